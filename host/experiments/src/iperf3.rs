//! Debian's iperf3 as the server.

use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use wireboot_lab::netns::Lab;

/// A server, which serves one client at a time. It ends with this value.
pub(crate) struct Iperf3(Child);

impl Iperf3 {
    /// Starts it in the lab.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        let mut command = lab.command("iperf3");
        command.arg("--server");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let started = command.spawn();
        Ok(Self(started.context("starting iperf3: is it installed?")?))
    }
}

impl Drop for Iperf3 {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
