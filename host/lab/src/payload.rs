//! What the lab boots when the user names nothing: Debian's installer, from the package of its network boot image.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::netns::Lab;

/// Where the package `debian-installer-12-netboot-amd64` keeps kernel and initial RAM disk.
const INSTALLER: &str = "/usr/lib/debian-installer/images/12/amd64/text/debian-installer/amd64";

/// The installer's first question, as its serial console shows it.
pub const FIRST_QUESTION: &str = "Select a language";

/// A directory with the installer and a boot configuration for the serial console.
///
/// # Errors
/// When the package is not installed.
pub fn debian_installer(lab: &Lab) -> Result<PathBuf> {
    let directory = lab.scratch().join("installer");
    fs::create_dir_all(&directory).context("making the payload directory")?;
    for file in ["linux", "initrd.gz"] {
        let from = Path::new(INSTALLER).join(file);
        fs::copy(&from, directory.join(file))
            .with_context(|| format!("{} is missing: install the package debian-installer-12-netboot-amd64, or name a --payload", from.display()))?;
    }
    let configuration = "title Debian 12 installer\nlinux linux\ninitrd initrd.gz\noptions console=ttyS0,115200n8\n";
    fs::write(directory.join("wireboot.conf"), configuration)
        .context("writing the boot configuration")?;
    Ok(directory)
}
