//! Licences, duplicate versions, sources and advisories, by cargo-deny.

use crate::shell;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Its version; a change of version installs it anew.
const VERSION: &str = "0.20.2";

/// Fails on a licence that deny.toml does not allow, on two versions of one crate, on a crate from elsewhere and on a
/// known vulnerability. Where the list of vulnerabilities cannot be fetched and is not at hand, says so and goes on.
pub fn check() -> Result<()> {
    let program = installed()?;
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

/// cargo-deny of our version, built on first use into the cache (about a minute and a half on two processors).
fn installed() -> Result<PathBuf> {
    let root = shell::cache_directory().join(format!("tools/cargo-deny-{VERSION}"));
    let program = root.join("bin/cargo-deny");
    if !program.exists() {
        println!("Building cargo-deny {VERSION}, once");
        let building = shell::target_directory().join("tools");
        shell::run(
            shell::cargo()
                .args([
                    "install",
                    "--quiet",
                    "--locked",
                    "--debug",
                    "--config",
                    "profile.dev.debug=0",
                    "--root",
                ])
                .arg(&root)
                .args(["--version", VERSION, "cargo-deny"])
                .env("CARGO_TARGET_DIR", &building),
        )
        .context("cargo-deny cannot be built; is the crate registry within reach?")?;
        // Best effort: half a gigabyte that nobody needs any more.
        let _ = std::fs::remove_dir_all(building);
    }
    Ok(program)
}
