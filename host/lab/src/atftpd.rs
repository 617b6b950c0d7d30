//! atftpd, in the lab.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// TFTP's port.
const PORT: u16 = 69;
/// How long it waits for a request before it ends: longer than the lab lives.
const IDLE_SECONDS: &str = "86400";

/// Completes `command`, for atftpd, to serve `directory` at an address of this computer. It gets its socket as from inetd: one of its own would be
/// of IPv4. Requests wait there, so it need not be waited for.
///
/// # Errors
/// When the port is taken, or the address is not ours.
pub fn serve(mut command: Command, address: IpAddr, directory: &Path) -> Result<Command> {
    let socket = UdpSocket::bind((address, PORT))
        .with_context(|| format!("opening TFTP's port at {address}"))?;
    command
        .args(["--no-fork", "--tftpd-timeout", IDLE_SECONDS])
        .args(["--user", "root", "--group", "root", "--logfile", "-"])
        .arg(directory)
        .stdin(OwnedFd::from(socket));
    Ok(command)
}
