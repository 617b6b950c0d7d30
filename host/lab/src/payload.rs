//! What the lab boots when the user names nothing: Debian's installer, from the package of its network boot image.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::netns::Lab;

/// The package of Debian's installer.
pub const INSTALLER_PACKAGE: &str = "debian-installer-12-netboot-amd64";
/// Where it keeps kernel and initial RAM disk.
const INSTALLER: &str = "/usr/lib/debian-installer/images/12/amd64/text/debian-installer/amd64";

/// The installer's first question, as its serial console shows it.
pub const FIRST_QUESTION: &str = "Select a language";

/// What its kernel is told: the serial console, and neither to test its own ciphers nor to clear what it allocates, which take an
/// emulated processor long; on a busy host it would take an emulated timer for broken.
pub const INSTALLER_OPTIONS: &str =
    "console=ttyS0,115200n8 cryptomgr.notests init_on_alloc=0 no_timer_check";

/// A directory with the installer and a boot configuration for the serial console.
///
/// # Errors
/// When the package is not installed.
pub fn debian_installer(lab: &Lab) -> Result<PathBuf> {
    let directory = lab.scratch().join("installer");
    fs::create_dir_all(&directory).context("making the payload directory")?;
    copy_installer(&directory)
        .with_context(|| format!("install the package {INSTALLER_PACKAGE}, or name a --payload"))?;
    let configuration = format!(
        "title Debian 12 installer\nlinux linux\ninitrd initrd.gz\noptions {INSTALLER_OPTIONS}\n"
    );
    fs::write(directory.join("wireboot.conf"), configuration)
        .context("writing the boot configuration")?;
    Ok(directory)
}

/// The installer's kernel and initial RAM disk.
pub const INSTALLER_FILES: [&str; 2] = ["linux", "initrd.gz"];

/// Copies [`INSTALLER_FILES`] into `directory`.
///
/// # Errors
/// When the package is not installed, or there is no room.
pub fn copy_installer(directory: &Path) -> Result<()> {
    for file in INSTALLER_FILES {
        let from = Path::new(INSTALLER).join(file);
        fs::copy(&from, directory.join(file))
            .with_context(|| format!("copying {}", from.display()))?;
    }
    Ok(())
}
