//! Debian's boot loaders for the network. They are not installed: that would concern the loader of this computer, or they are newer than
//! this computer's system.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::packages::{self, Package};
use crate::qemu::Firmware;

/// The same loaders on every host.
const SUITE: &str = "bookworm";
const SHIM: Loader = Loader {
    package: "shim-signed",
    file: "usr/lib/shim/shimx64.efi.signed",
};
const GRUB: Loader = Loader {
    package: "grub-efi-amd64-signed",
    file: "usr/lib/grub/x86_64-efi-signed/grubnetx64-installer.efi.signed",
};
const IPXE: &str = "ipxe";
const OVMF: &str = "ovmf";
/// Where Debian's newest packages are, the newest first.
pub const NEW_SUITES: [&str; 3] = ["sid", "forky", "trixie"];
/// Where the tree of Debian's installer has them, and where that GRUB looks for its configuration.
pub const FOLDER: &str = "debian-installer/amd64";

struct Loader {
    package: &'static str,
    file: &'static str,
}

impl Loader {
    fn copy(&self, to: &Path) -> Result<()> {
        let file = Package::fetched(self.package)?.file(&[self.file])?;
        fs::copy(&file, to).with_context(|| format!("copying {}", file.display()))?;
        Ok(())
    }
}

/// Fetches the loaders into the cache, unless they are there.
///
/// # Errors
/// When they are not to be had.
pub fn fetch() -> Result<()> {
    packages::fetch(&[SHIM.package, GRUB.package], &[SUITE], Duration::MAX)?;
    packages::fetch(&[IPXE], &NEW_SUITES, Duration::MAX)
}

/// Fetches OVMF of the newest Debian into the cache, unless it is there.
///
/// # Errors
/// When it is not to be had.
pub fn fetch_newest_ovmf() -> Result<()> {
    packages::fetch(&[OVMF], &NEW_SUITES, Duration::MAX)
}

/// OVMF of the newest Debian.
///
/// # Errors
/// When it was not fetched.
pub fn newest_ovmf() -> Result<Firmware> {
    let package = Package::fetched(OVMF)?;
    Ok(Firmware::Ovmf {
        code: package.file(&["usr/share/OVMF/OVMF_CODE_4M.fd"])?,
        variables: package.file(&["usr/share/OVMF/OVMF_VARS_4M.fd"])?,
    })
}

/// iPXE of the newest Debian, over the firmware's interface.
///
/// # Errors
/// When it was not fetched.
pub fn newest_snponly() -> Result<PathBuf> {
    Package::fetched(IPXE)?.file(&["usr/lib/ipxe/snponly.efi"])
}

/// Puts shim and GRUB into `directory` as the installer's tree has them, shim as `bootnetx64.efi`, with `menu` as GRUB's configuration.
///
/// # Errors
/// When they were not fetched, or there is no room.
pub fn shim_and_grub(directory: &Path, menu: &str) -> Result<()> {
    let folder = directory.join(FOLDER);
    fs::create_dir_all(folder.join("grub"))
        .with_context(|| format!("making {}", folder.display()))?;
    SHIM.copy(&folder.join("bootnetx64.efi"))?;
    GRUB.copy(&folder.join("grubx64.efi"))?;
    fs::write(folder.join("grub/grub.cfg"), menu).context("writing grub.cfg")
}
