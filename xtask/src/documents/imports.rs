//! `ARCHITECTURE.md` says which crates of ours each crate imports: as the manifests do, and only crates of lines above.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;

const PAGE: &str = "ARCHITECTURE.md";
/// The line before the list.
const BEFORE: &str = "Imports point one way";
const FOLDERS: [&str; 3] = ["crates/", "firmware/", "host/"];

/// A crate: the name of its package, its folder, and the packages that it imports.
struct Crate {
    package: String,
    folder: String,
    imports: Vec<String>,
}

/// Fails where the page's list and the manifests differ.
pub(super) fn check() -> Result<()> {
    let read = |path: &str| {
        fs::read_to_string(shell::root().join(path)).with_context(|| format!("cannot read {path}"))
    };
    let listed = shell::output(shell::command("git").args(["ls-files", "*/Cargo.toml"]))?;
    let crates = listed
        .lines()
        .filter(|path| FOLDERS.iter().any(|folder| path.starts_with(folder)))
        .map(|path| Ok(Crate::read(path, &read(path)?)))
        .collect::<Result<Vec<_>>>()?;
    let wrong = differences(&read(PAGE)?, &crates);
    if !wrong.is_empty() {
        bail!(
            "the list of imports in {PAGE} is not right:\n{}",
            wrong.join("\n")
        );
    }
    println!("{PAGE} lists the imports of {} crates", crates.len());
    Ok(())
}

impl Crate {
    fn read(path: &str, manifest: &str) -> Self {
        let folder = path.trim_end_matches("/Cargo.toml").to_owned();
        let (mut package, mut imports) = (String::new(), Vec::new());
        let mut section = "";
        for line in manifest.lines() {
            let key = line.split([' ', '.', '=']).next().unwrap_or_default();
            if line.starts_with('[') {
                section = line;
            } else if section == "[package]" && key == "name" {
                package = line.split('"').nth(1).unwrap_or_default().to_owned();
            } else if section.ends_with("dependencies]")
                && !section.ends_with("dev-dependencies]")
                && key.starts_with("wireboot")
            {
                imports.push(key.to_owned());
            }
        }
        Self {
            package,
            folder,
            imports,
        }
    }

    /// As the page names it: its folder, which is said only where it is not `crates`.
    fn shown(&self) -> &str {
        self.folder.strip_prefix("crates/").unwrap_or(&self.folder)
    }

    /// Its line on the page.
    fn line(&self, all: &[Self]) -> String {
        let mut imports: Vec<_> = all
            .iter()
            .filter(|other| self.imports.contains(&other.package))
            .map(|other| (other.shown().contains('/'), other.shown()))
            .collect();
        imports.sort_unstable();
        let imports: Vec<_> = imports.into_iter().map(|(_, name)| name).collect();
        format!("    {:<20}{}", self.shown(), imports.join(", "))
            .trim_end()
            .to_owned()
    }
}

/// What is wrong with the page's list, a line each.
fn differences(page: &str, crates: &[Crate]) -> Vec<String> {
    let list: Vec<_> = page
        .lines()
        .skip_while(|line| !line.starts_with(BEFORE))
        .skip_while(|line| !line.starts_with("    "))
        .take_while(|line| line.starts_with("    "))
        .collect();
    let place = |one: &Crate| {
        let line = one.line(crates);
        list.iter().position(|listed| *listed == line)
    };
    let missing = crates
        .iter()
        .filter(|one| place(one).is_none())
        .map(|one| format!("missing: {}", one.line(crates)));
    let lines: Vec<_> = crates.iter().map(|one| one.line(crates)).collect();
    let foreign = list
        .iter()
        .filter(|listed| !lines.iter().any(|line| line == *listed))
        .map(|listed| format!("no crate's: {listed}"));
    let below = crates.iter().flat_map(|one| {
        crates
            .iter()
            .filter(|other| one.imports.contains(&other.package))
            .filter(move |other| place(one).is_some() && place(other) > place(one))
            .map(|other| format!("{} imports {}, below it", one.shown(), other.shown()))
    });
    missing.chain(foreign).chain(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NET: &str = "[package]\nname = \"wireboot-net\"\n[dependencies]\nwireboot-nic.workspace = true\nlog = \"1\"\n\
        [dev-dependencies]\nwireboot-lab.workspace = true\n";

    fn wrong(list: &str) -> Vec<String> {
        let crates = [
            Crate::read("crates/net/Cargo.toml", NET),
            Crate::read(
                "crates/nic/Cargo.toml",
                "[package]\nname = \"wireboot-nic\"\n",
            ),
            Crate::read(
                "host/lab/Cargo.toml",
                "[package]\nname = \"wireboot-lab\"\n[target.x.dependencies]\nwireboot-net = { optional = true }\nwireboot-nic = {}\n",
            ),
        ];
        differences(
            &format!("text\n\n{BEFORE}:\n\n{list}\n\n    code\n"),
            &crates,
        )
    }

    const RIGHT: [&str; 3] = [
        "    nic",
        "    net                 nic",
        "    host/lab            net, nic",
    ];

    #[test]
    fn the_manifests_list_is_right() {
        assert_eq!(wrong(&RIGHT.join("\n")), [""; 0]);
    }

    #[test]
    fn a_missing_a_foreign_and_a_line_too_early_are_told() {
        let [nic, net, lab] = RIGHT;
        assert_eq!(wrong(&[nic, net].join("\n")), [format!("missing: {lab}")]);
        let more = "    net                 nic, tcp";
        assert_eq!(
            wrong(&[nic, more, lab].join("\n")),
            [format!("missing: {net}"), format!("no crate's: {more}")]
        );
        assert_eq!(
            wrong(&[net, nic, lab].join("\n")),
            ["net imports nic, below it"]
        );
    }
}
