//! Programs from the crate registry that the chores use, built on first use into the cache.

use crate::shell;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// The program of the crate `name` in this version; another version is installed beside it.
pub(crate) fn installed(name: &str, version: &str) -> Result<PathBuf> {
    let root = shell::cache_directory().join(format!("tools/{name}-{version}"));
    let program = root.join("bin").join(name);
    if !program.exists() {
        println!("Building {name} {version}, once");
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
                .args(["--version", version, name])
                .env("CARGO_TARGET_DIR", &building),
        )
        .with_context(|| format!("{name} cannot be built; is the crate registry within reach?"))?;
        // Best effort: half a gigabyte that nobody needs any more.
        let _ = std::fs::remove_dir_all(building);
    }
    Ok(program)
}
