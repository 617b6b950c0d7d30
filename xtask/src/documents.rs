//! Documents that must agree with files: what they point at is there, the imports are those of the manifests, and each configuration on
//! the deployment page is one that a whole boot runs. Imports point one way inside of crates, too.

mod circles;
mod imports;
mod links;

use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;

const PAGE: &str = "docs/deploy.md";
const FILES: &str = "docs/deploy";

/// Fails where a document points at nothing, a block on the page differs from its file, a file is not on the page, or imports are not what
/// they shall be.
///
/// A block belongs to a file by its first fence line: ```` ```conf docs/deploy/dnsmasq.conf ````.
pub(crate) fn check() -> Result<()> {
    links::check()?;
    imports::check()?;
    circles::check()?;
    let page = fs::read_to_string(shell::root().join(PAGE))
        .with_context(|| format!("cannot read {PAGE}"))?;
    let blocks = blocks(&page);
    for (name, text) in &blocks {
        let file = fs::read_to_string(shell::root().join(name))
            .with_context(|| format!("{PAGE} shows {name}, which cannot be read"))?;
        if file != *text {
            bail!(
                "{PAGE} and {name} differ; make the block on the page equal to the file, which the tests boot"
            );
        }
        println!("{PAGE} shows {name} as it is");
    }
    for entry in fs::read_dir(shell::root().join(FILES))? {
        let name = format!("{FILES}/{}", entry?.file_name().to_string_lossy());
        if !name.ends_with(".md") && !blocks.iter().any(|(shown, _)| *shown == name) {
            bail!("{name} is not on {PAGE}");
        }
    }
    Ok(())
}

/// The page's blocks that name a file: name and text.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            continue;
        };
        let text = lines
            .by_ref()
            .take_while(|line| *line != "```")
            .fold(String::new(), |text, line| text + line + "\n");
        if let Some((_, name)) = info.split_once(' ') {
            blocks.push((name, text));
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::blocks;

    #[test]
    fn only_blocks_with_a_name_count() {
        let page = "a\n```sh\nls\n```\nb\n```conf docs/deploy/x.conf\none\ntwo\n```\n";
        assert_eq!(
            blocks(page),
            [("docs/deploy/x.conf", "one\ntwo\n".to_owned())]
        );
    }
}
