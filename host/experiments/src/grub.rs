//! A GRUB that does what a script says.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Writes an EFI program to `to` that has these modules, and does what the file `script` says: one command a line, without conditions. `memdisk` is a tar
/// archive that the program has in it.
///
/// # Errors
/// When GRUB is not installed, lacks a module, or there is no room.
pub(crate) fn image(
    to: &Path,
    script: &Path,
    modules: &[&str],
    memdisk: Option<&Path>,
) -> Result<()> {
    let mut command = Command::new("grub-mkimage");
    command.args(["-O", "x86_64-efi", "-p", "/", "-c"]);
    command.arg(script).arg("-o").arg(to);
    if let Some(archive) = memdisk {
        command.args([OsStr::new("-m"), archive.as_os_str()]);
    }
    let output = command
        .args(modules)
        .output()
        .context("starting grub-mkimage: are grub-common and grub-efi-amd64-bin installed?")?;
    if !output.status.success() {
        bail!(
            "grub-mkimage failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
