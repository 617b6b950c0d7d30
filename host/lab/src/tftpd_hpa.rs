//! tftpd-hpa, in the lab. Its package excludes atftpd's, so it is fetched from Debian's mirror and taken apart, not installed.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::ip::host;
use crate::netns::Lab;
use crate::packages::{self, Package};

/// The name of its package in Debian.
pub const PACKAGE: &str = "tftpd-hpa";
/// Debian's release that it comes from.
const SUITE: &str = "bookworm";

/// Fetches it. Wants the host's network, so call it outside the lab's namespaces.
///
/// # Errors
/// When it is not to be had.
pub fn fetch() -> Result<()> {
    packages::fetch(&[PACKAGE], &[SUITE], Duration::MAX)
}

/// The program in the lab, to serve `directory` at an address of this computer, without the options of requests that it is to refuse.
///
/// # Errors
/// When it was not fetched.
pub fn serve(lab: &Lab, address: IpAddr, directory: &Path, refused: &[&str]) -> Result<Command> {
    let package = Package::fetched(PACKAGE)?;
    let mut command = lab.command(package.file(&["usr/sbin/in.tftpd"])?);
    command
        .args(["--foreground", "--secure", "--user", "root", "--address"])
        .arg(host(address));
    for option in refused {
        command.args(["--refuse", option]);
    }
    command.arg(directory);
    Ok(command)
}
