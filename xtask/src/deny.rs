//! Licences, duplicate versions, sources and advisories, by cargo-deny.

use crate::{shell, tool};
use anyhow::Result;
use std::path::PathBuf;

/// About a minute and a half to build, on two processors.
const VERSION: &str = "0.20.2";

/// Fails on a licence that deny.toml does not allow, on two versions of one crate, on a crate from elsewhere and on a
/// known vulnerability. Where the list of vulnerabilities cannot be fetched and is not at hand, says so and goes on.
pub fn check() -> Result<()> {
    let program = tool::installed("cargo-deny", VERSION)?;
    let deny = || {
        let mut deny = shell::command(&program);
        deny.args(["--workspace", "--log-level", "warn"]);
        deny
    };
    shell::run(deny().args([
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]))?;

    if !shell::succeeds(deny().args(["fetch", "db"])) {
        if !advisories_at_hand() {
            println!(
                "advisories: NOT CHECKED, the RustSec database cannot be fetched and none is at hand"
            );
            return Ok(());
        }
        println!("advisories: the RustSec database cannot be fetched; taking the one at hand");
    }
    shell::run(deny().args(["--offline", "check", "--hide-inclusion-graph", "advisories"]))
}

/// Whether an earlier run left a list of vulnerabilities.
fn advisories_at_hand() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let entries = home.and_then(|home| std::fs::read_dir(home.join("advisory-dbs")).ok());
    entries.is_some_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| entry.path().is_dir()))
    })
}
