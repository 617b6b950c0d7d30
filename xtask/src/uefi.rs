//! The compiler for x86_64-unknown-uefi.
//!
//! A rustup toolchain that has the target is enough. Where it has not and cannot download it, Debian's compiler builds the
//! standard library for the target from source on the way.

use crate::{apt, shell};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The target that the firmware programs are built for.
pub(crate) const TARGET: &str = "x86_64-unknown-uefi";

/// The profile in Cargo.toml that they are built with.
pub(crate) const PROFILE: &str = "firmware";

/// Debian 12's compiler, linter, library source and linker.
const DEBIAN: [&str; 6] = [
    "rustc-web",
    "cargo-web",
    "rust-web-src",
    "rust-web-clippy",
    "rustfmt-web",
    "lld-16",
];

/// Which compiler makes firmware programs.
pub(crate) enum Toolchain {
    /// The one that runs xtask: it has the target.
    Host,
    /// Debian's, with the standard library from source.
    Debian,
}

impl Toolchain {
    /// Finds the compiler; installs one where none is there.
    pub(crate) fn find() -> Result<Self> {
        if host_has_target()? {
            return Ok(Self::Host);
        }
        if apt::installed(&DEBIAN) {
            return Ok(Self::Debian);
        }
        if let Ok(toolchain) = std::env::var("RUSTUP_TOOLCHAIN") {
            println!("Asking rustup for the target {TARGET}");
            let mut add = shell::command("timeout");
            add.args([
                "120",
                "rustup",
                "target",
                "add",
                "--toolchain",
                &toolchain,
                TARGET,
            ]);
            if shell::succeeds(&mut add) && host_has_target()? {
                return Ok(Self::Host);
            }
            println!("rustup cannot get it; taking Debian's compiler");
        }
        apt::ensure(&DEBIAN).context("no compiler for UEFI")?;
        Ok(Self::Debian)
    }

    /// `cargo VERB` for the UEFI target, optimised, in a target directory of its own.
    pub(crate) fn cargo(&self, command: &str) -> Command {
        let mut flags = short_paths();
        let mut cargo = match self {
            Self::Host => {
                let own = std::env::var("RUSTFLAGS").unwrap_or_default();
                flags.extend(own.split_whitespace().map(str::to_owned));
                shell::cargo()
            }
            Self::Debian => {
                flags.push("-Clinker-flavor=lld-link".into());
                debian_cargo()
            }
        };
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        cargo.args([command, "--profile", PROFILE, "--target", TARGET]);
        if let Self::Debian = self {
            cargo.arg("-Zbuild-std=core,alloc,compiler_builtins");
            cargo.arg("-Zbuild-std-features=compiler-builtins-mem");
        }
        cargo.env("CARGO_TARGET_DIR", shell::target_directory().join("uefi"));
        cargo
    }
}

/// Whether the compiler of the cargo that runs xtask has the target's standard library.
fn host_has_target() -> Result<bool> {
    let sysroot = shell::output(shell::command("rustc").args(["--print", "sysroot"]))?;
    if sysroot.is_empty() {
        bail!("rustc tells no sysroot");
    }
    Ok(Path::new(&sysroot)
        .join("lib/rustlib")
        .join(TARGET)
        .join("lib")
        .is_dir())
}

/// The compiler's flags by which a program's code is the same in whatever home it is built, and whichever mirror its packages come from: the
/// texts of panics name files.
fn short_paths() -> Vec<String> {
    let home = std::env::var("CARGO_HOME")
        .unwrap_or_else(|_| std::env::var("HOME").unwrap_or_default() + "/.cargo");
    let registries = fs::read_dir(Path::new(&home).join("registry/src"));
    registries
        .into_iter()
        .flatten()
        .flatten()
        .map(|registry| format!("--remap-path-prefix={}=", registry.path().display()))
        .collect()
}

/// Debian's cargo with Debian's tools, whatever toolchain runs xtask.
fn debian_cargo() -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut cargo = shell::command("/usr/bin/cargo");
    for variable in ["CARGO", "RUSTUP_TOOLCHAIN"] {
        cargo.env_remove(variable);
    }
    cargo
        .env("PATH", format!("/usr/bin:{path}"))
        .env("RUSTC", "/usr/bin/rustc")
        // The library is built by the compiler it belongs to, so its unstable features are the right ones.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_X86_64_UNKNOWN_UEFI_LINKER", "lld-link-16");
    cargo
}
