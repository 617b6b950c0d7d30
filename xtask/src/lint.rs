//! Gates that need no test to run: formatting, clippy, rustdoc, publishing, the deployment page, dependencies.

use crate::not_run::NotRun;
use crate::{apt, build, deny, documents, shell, uefi};
use anyhow::{Context, Result};
use std::fs;

/// Every gate in turn; fails at the first that does.
pub(crate) fn all() -> Result<()> {
    tools()?;
    format()?;
    clippy()?;
    clippy_uefi()?;
    rustdoc()?;
    publishing()?;
    documents::check()?;
    deny::check()?;
    match deny::advisories() {
        Err(error) if error.is::<NotRun>() => {
            println!("advisories not checked: {error}");
            Ok(())
        }
        result => result,
    }
}

/// Gets rustfmt and clippy for the cargo that runs xtask.
pub(crate) fn tools() -> Result<()> {
    let there = |tool| shell::succeeds(shell::cargo().args([tool, "--version"]));
    if there("fmt") && there("clippy") {
        return Ok(());
    }
    if std::env::var_os("RUSTUP_TOOLCHAIN").is_some() {
        return shell::run(shell::command("rustup").args([
            "component",
            "add",
            "rustfmt",
            "clippy",
        ]));
    }
    apt::ensure(&["rust-web-clippy", "rustfmt-web"])
}

/// rustfmt changes nothing.
pub(crate) fn format() -> Result<()> {
    let check = |manifest| {
        shell::run(shell::cargo().args(["fmt", "--all", "--check", "--manifest-path", manifest]))
            .context("run `cargo fmt --all` (and once more in fuzz/)")
    };
    check("Cargo.toml")?;
    check("fuzz/Cargo.toml")
}

/// clippy finds nothing in what the host can compile, tests included, nor in `wireboot serve` alone.
pub(crate) fn clippy() -> Result<()> {
    let clippy = |what: &[&str]| {
        let mut cargo = shell::cargo();
        cargo
            .arg("clippy")
            .args(what)
            .args(["--", "-D", "warnings"]);
        shell::run(&mut cargo)
    };
    clippy(&["--workspace", "--all-features", "--all-targets"])?;
    clippy(&["--package", "wireboot-cli", "--no-default-features"])
}

/// clippy finds nothing in the firmware programs.
pub(crate) fn clippy_uefi() -> Result<()> {
    let toolchain = uefi::Toolchain::find()?;
    let clippy = |features: &[&str]| {
        shell::run(
            toolchain
                .cargo("clippy")
                .args(build::FIRMWARE.map(|(package, _)| format!("--package={package}")))
                .args(features)
                .args(["--", "-D", "warnings"]),
        )
    };
    clippy(&[])?;
    clippy(&[build::FAULTS_FEATURES])
}

/// No page of the API documentation has a broken link.
pub(crate) fn rustdoc() -> Result<()> {
    shell::run(
        shell::cargo()
            .args(["doc", "--no-deps", "--all-features", "--quiet"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// The crates for other projects compile from what would be published of them, without the tree around it.
pub(crate) fn publishing() -> Result<()> {
    let target = shell::target_directory().join("publishing");
    // What was compiled of them before counts as fresh.
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    let mut package = shell::cargo();
    // `cargo package` would build all that they need once more.
    package.args([
        "package",
        "--no-verify",
        "--quiet",
        "--offline",
        "--allow-dirty",
    ]);
    let mut manifest = String::from(
        "[workspace]\nmembers = [\"wireboot-*\"]\nresolver = \"3\"\n[patch.crates-io]\n",
    );
    let mut names = Vec::new();
    for entry in fs::read_dir(shell::root().join("crates"))? {
        let name = format!("wireboot-{}", entry?.file_name().display());
        package.arg(format!("--package={name}"));
        manifest += &format!("{name} = {{ path = \"{name}-{VERSION}\" }}\n");
        names.push(name);
    }
    shell::run(package.env("CARGO_TARGET_DIR", &target))?;
    let packages = target.join("package");
    for entry in fs::read_dir(&packages)? {
        let file = entry?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "crate")
        {
            let mut tar = shell::command("tar");
            shell::run(tar.arg("xf").arg(&file).arg("-C").arg(&packages))?;
        }
    }
    fs::write(packages.join("Cargo.toml"), manifest)?;
    fs::copy(
        shell::root().join("Cargo.lock"),
        packages.join("Cargo.lock"),
    )?;
    // Each alone: what another one turns on of a dependency is not there.
    names.iter().try_for_each(|name| {
        shell::run(
            shell::cargo()
                .args(["check", "--package", name, "--quiet", "--offline"])
                .arg("--manifest-path")
                .arg(packages.join("Cargo.toml"))
                .env("CARGO_TARGET_DIR", &target),
        )
    })
}

/// Of all that is published.
const VERSION: &str = env!("CARGO_PKG_VERSION");
