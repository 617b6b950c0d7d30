//! What the documents point at is there: files, headings, and the sources that they name.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::collections::HashSet;
use std::fs;

/// A document: its path from the repository's root, and its text.
struct Document {
    path: String,
    text: String,
}

/// Fails where a document links to a file or a heading that is not there, or names a source file that is not.
pub(super) fn check() -> Result<()> {
    let listed = shell::output(shell::command("git").arg("ls-files"))?;
    let files: HashSet<&str> = listed.lines().collect();
    let documents = files
        .iter()
        .filter(|path| path.ends_with(".md"))
        .map(|path| {
            let text = fs::read_to_string(shell::root().join(path))
                .with_context(|| format!("cannot read {path}"))?;
            Ok(Document {
                path: (*path).to_owned(),
                text,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let mut missing: Vec<_> = documents
        .iter()
        .flat_map(|document| missing_from(document, &documents, &files))
        .collect();
    if !missing.is_empty() {
        missing.sort();
        bail!(
            "documents point at what is not there:\n{}",
            missing.join("\n")
        );
    }
    println!("{} documents point at what is there", documents.len());
    Ok(())
}

/// What `document` points at in vain, a line each.
fn missing_from(document: &Document, all: &[Document], files: &HashSet<&str>) -> Vec<String> {
    let folder = document
        .path
        .rsplit_once('/')
        .map_or("", |(folder, _)| folder);
    let links =
        links(&document.text).filter(|target| !leads_somewhere(target, document, all, files));
    let sources = sources(&document.text).filter(|name| !is_source(name, folder, files));
    links
        .chain(sources)
        .map(|target| format!("{}: {target}", document.path))
        .collect()
}

/// The targets of links within the repository: `path`, `path#heading` or `#heading`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next())
        .filter(|target| !target.contains(':'))
}

/// The names of source files in backquotes.
fn sources(text: &str) -> impl Iterator<Item = &str> {
    text.split('`')
        .filter(|word| word.ends_with(".rs") && !word.contains(['*', ' ', '\n', '{']))
}

fn leads_somewhere(target: &str, from: &Document, all: &[Document], files: &HashSet<&str>) -> bool {
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        Some(from.path.clone())
    } else {
        resolved(&from.path, path)
    };
    let Some(path) = path else {
        return false;
    };
    let below = format!("{path}/");
    if heading.is_empty() {
        return files.contains(path.as_str()) || files.iter().any(|file| file.starts_with(&below));
    }
    all.iter()
        .filter(|document| document.path == path)
        .any(|document| headings(&document.text).any(|one| one == heading))
}

/// `target`, which stands in the file `from`, from the repository's root on. `None` where it leads out of that.
fn resolved(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The document's headings as links write them: small letters, hyphens for spaces, no other signs.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut in_block = false;
    text.lines()
        .filter(move |line| {
            in_block ^= line.starts_with("```");
            !in_block && line.starts_with('#')
        })
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|one| one.is_alphanumeric() || matches!(one, ' ' | '-' | '_'))
                .map(|one| if one == ' ' { '-' } else { one })
                .collect()
        })
}

/// Whether `name` is a file below the document's folder, or from the repository's root on.
fn is_source(name: &str, folder: &str, files: &HashSet<&str>) -> bool {
    let end = format!("/{name}");
    let below = format!("{folder}/");
    files.contains(name)
        || files
            .iter()
            .any(|file| (folder.is_empty() || file.starts_with(&below)) && file.ends_with(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<String> {
        let document = |path: &str, text: &str| Document {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let all = [
            document("docs/a.md", text),
            document("README.md", "# The `x`: first\n"),
        ];
        let files = [
            "docs/a.md",
            "README.md",
            "docs/src/poll.rs",
            "crates/net/src/lib.rs",
        ];
        missing_from(&all[0], &all, &files.into_iter().collect())
    }

    #[test]
    fn what_is_there_is_found() {
        assert!(
            missing("# Own\n[a](../README.md) [b](#own) [c](../README.md#the-x-first)").is_empty()
        );
        assert!(
            missing("[a](src) [b](https://example.org/none) `poll.rs` `src/poll.rs`").is_empty()
        );
        assert!(missing("`crates/net/src/lib.rs`, `a/*.rs`").is_empty());
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert_eq!(missing("[a](README.md)"), ["docs/a.md: README.md"]);
        assert_eq!(missing("[a](#none)"), ["docs/a.md: #none"]);
        assert_eq!(
            missing("[a](#no)\n```\n# no\n```\n"),
            ["docs/a.md: #no"],
            "a comment in a block is no heading"
        );
        assert_eq!(
            missing("[a](../../README.md)"),
            ["docs/a.md: ../../README.md"]
        );
        assert_eq!(
            missing("[a](../README.md#first)"),
            ["docs/a.md: ../README.md#first"]
        );
        assert_eq!(missing("`oll.rs`"), ["docs/a.md: oll.rs"]);
        assert_eq!(missing("`lib.rs`"), ["docs/a.md: lib.rs"]);
    }
}
