//! Miri over what processors share: whether unsafe code keeps Rust's rules for pointers, initialization and threads.

use crate::not_run::NotRun;
use crate::shell;
use anyhow::Result;
use std::process::Command;

/// One that does not change. Miri is part of no stable compiler.
const TOOLCHAIN: &str = "nightly-2026-05-20";

/// What is interpreted: a package, and words in the names of its tests. Others take Miri hours.
const TESTS: &[(&str, &[&str])] = &[
    ("wireboot-ring", &[]),
    ("wireboot-threads", &[]),
    // The driver's queues, in memory that a model of the device writes to.
    (
        "wireboot-nic",
        &["model::tests::chunks", "model::tests::each_lie"],
    ),
];

/// Fails where Miri finds undefined behaviour. Fetches the compiler on first use: about 100 MB.
pub(crate) fn check() -> Result<()> {
    if !shell::succeeds(&mut miri(&["--version"])) {
        let mut install = shell::command("rustup");
        install.args(["toolchain", "install", TOOLCHAIN, "--profile", "minimal"]);
        install.args(["--component", "miri", "--component", "rust-src"]);
        if !shell::succeeds(&mut install) {
            return Err(NotRun("rustup is not there, or cannot fetch Miri").into());
        }
    }
    for (package, words) in TESTS {
        let mut command = miri(&["test", "--quiet", "--lib", "--package", package, "--"]);
        // Clocks are the host's. One test gives a thread a pointer as a number.
        let flags = "-Zmiri-disable-isolation -Zmiri-permissive-provenance";
        command.env("MIRIFLAGS", flags);
        shell::run_beside(command.args(*words))?;
    }
    Ok(())
}

fn miri(arguments: &[&str]) -> Command {
    let mut command = shell::command("rustup");
    command.args(["run", TOOLCHAIN, "cargo", "miri"]);
    command.args(arguments);
    command.env("CARGO_TARGET_DIR", shell::target_directory().join("miri"));
    command
}
