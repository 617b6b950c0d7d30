//! Both programs, and the two verbs that run them.

use crate::{apt, shell, uefi};
use anyhow::{Context, Result};
use std::path::Path;
use std::{fs, io};

/// The firmware program and the host command, in `dist/`.
const PROGRAMS: [&str; 2] = ["wireboot.efi", "wireboot"];

/// Builds `dist/wireboot.efi` and `dist/wireboot`. When the build fails, no older ones are left to be taken for new.
pub fn all() -> Result<()> {
    let dist = shell::root().join("dist");
    fs::create_dir_all(&dist)?;
    for program in PROGRAMS {
        match fs::remove_file(dist.join(program)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }

    let toolchain = uefi::Toolchain::find()?;
    shell::run(toolchain.cargo("build").args(["--package", "wireboot"]))?;
    let target = shell::target_directory();
    let program = target
        .join("uefi")
        .join(uefi::TARGET)
        .join("release/wireboot.efi");
    install(&program, &dist.join("wireboot.efi"))?;

    shell::run(shell::cargo().args(["build", "--release", "--package", "wireboot-cli"]))?;
    install(&target.join("release/wireboot"), &dist.join("wireboot"))
}

/// Whether the last build made both programs.
pub fn all_built() -> bool {
    PROGRAMS
        .iter()
        .all(|program| shell::root().join("dist").join(program).exists())
}

/// Builds, then boots a virtual machine over the network.
pub fn boot(arguments: &[String]) -> Result<()> {
    apt::ensure(apt::BOOT)?;
    all()?;
    lab("boot", arguments)
}

/// Builds, then measures wireboot beside other network boots.
pub fn bench(arguments: &[String]) -> Result<()> {
    apt::ensure(&[apt::BOOT, apt::BENCH].concat())?;
    all()?;
    lab("bench", arguments)
}

fn lab(verb: &str, arguments: &[String]) -> Result<()> {
    shell::run(
        shell::command(shell::root().join("dist/wireboot"))
            .args(["lab", verb])
            .args(arguments),
    )
}

fn install(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    let size = fs::metadata(to)?.len();
    println!(
        "{} ({} KiB)",
        to.strip_prefix(shell::root()).unwrap_or(to).display(),
        size / 1024
    );
    Ok(())
}
