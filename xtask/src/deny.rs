//! Licences, duplicate versions, sources and advisories, by cargo-deny.

use crate::not_run::NotRun;
use crate::{shell, tool};
use anyhow::Result;
use std::process::Command;

/// About a minute and a half to build, on two processors.
const VERSION: &str = "0.20.2";

/// Fails on a licence that deny.toml does not allow, on two versions of one crate and on a crate from elsewhere.
pub(crate) fn check() -> Result<()> {
    shell::run(deny()?.args([
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]))
}

/// Fails on a known vulnerability. Is not run where the list of them cannot be fetched and is not at hand.
pub(crate) fn advisories() -> Result<()> {
    if !shell::succeeds(deny()?.args(["fetch", "db"])) {
        if !advisories_at_hand() {
            return Err(
                NotRun("the RustSec database cannot be fetched and none is at hand").into(),
            );
        }
        println!("the RustSec database cannot be fetched; taking the one at hand");
    }
    shell::run(deny()?.args(["--offline", "check", "--hide-inclusion-graph", "advisories"]))
}

fn deny() -> Result<Command> {
    let mut deny = shell::command(tool::installed("cargo-deny", VERSION)?);
    deny.args(["--workspace", "--log-level", "warn"]);
    Ok(deny)
}

/// Whether an earlier run left a list of vulnerabilities.
fn advisories_at_hand() -> bool {
    let entries =
        shell::cargo_home().and_then(|home| std::fs::read_dir(home.join("advisory-dbs")).ok());
    entries.is_some_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| entry.path().is_dir()))
    })
}
