//! What went over the wire: packets to a file while it happens, transfers out of the file afterwards.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use wireboot_capture::Packets;
use wireboot_observe::transfers::Transfers;
use wireboot_observe::{Content, Frame};
pub use wireboot_report::network::Transfer;

use crate::netns::Lab;

/// Of each packet: all headers, and a request's first line.
pub const HEADERS: u32 = 256;

/// Waits until tcpdump, whose error output these messages are, captures.
///
/// # Errors
/// When it ends before, with what it said.
pub fn wait_until_listening(messages: &mut impl BufRead) -> Result<()> {
    let mut said = String::new();
    while !said.contains("listening on") {
        if messages
            .read_line(&mut said)
            .context("reading tcpdump's messages")?
            == 0
        {
            bail!("tcpdump did not start: {}", said.trim());
        }
    }
    Ok(())
}

/// A capture under way. It ends with this value.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Child,
    messages: BufReader<std::process::ChildStderr>,
    file: PathBuf,
}

impl Capture {
    /// Captures an interface's packets that match `filter` (a pcap filter, empty for all) to `file`, the first `length` bytes of each, from
    /// when this returns.
    ///
    /// # Errors
    /// When tcpdump does not start, with what it said.
    pub fn start(
        lab: &Lab,
        interface: &str,
        filter: &str,
        length: u32,
        file: &Path,
    ) -> Result<Self> {
        let mut command = lab.command("tcpdump");
        // A large buffer, because the writer shares the processors with QEMU. As root: a user namespace has no other user.
        command.args([
            "-i",
            interface,
            "-n",
            "-B",
            "65536",
            "-s",
            &length.to_string(),
            "--time-stamp-precision=nano",
            "-Z",
            "root",
            "-w",
        ]);
        command
            .arg(file)
            .arg(filter)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut tcpdump = command
            .spawn()
            .context("starting tcpdump: is it installed?")?;
        let mut messages = BufReader::new(
            tcpdump
                .stderr
                .take()
                .context("tcpdump has no error output")?,
        );
        wait_until_listening(&mut messages)?;
        Ok(Self {
            tcpdump,
            messages,
            file: file.to_owned(),
        })
    }

    /// Ends the capture and reads its transfers.
    ///
    /// # Errors
    /// When packets were lost to the capture, or its file cannot be read.
    pub fn finish(self) -> Result<Vec<Transfer>> {
        transfers(&self.stop()?)
    }

    /// Ends the capture. Returns its file.
    ///
    /// # Errors
    /// When packets were lost to the capture.
    pub fn stop(mut self) -> Result<PathBuf> {
        // The kernel hands packets over in blocks, at the latest after a second; those of an unfinished block would be missing.
        std::thread::sleep(Duration::from_millis(1200));
        let pid = Pid::from_raw(i32::try_from(self.tcpdump.id()).context("tcpdump's process id")?);
        kill(pid, Signal::SIGINT).context("stopping tcpdump")?;
        let mut said = String::new();
        self.messages
            .read_to_string(&mut said)
            .context("reading tcpdump's messages")?;
        self.tcpdump.wait().context("waiting for tcpdump")?;
        if let Some(dropped) = said
            .lines()
            .find(|line| line.contains("dropped by kernel") && !line.starts_with("0 "))
        {
            bail!("the capture is not whole: {dropped}");
        }
        Ok(std::mem::take(&mut self.file))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
    }
}

/// Reads the TFTP and HTTP transfers in a capture file, in the order of their requests. Their times are in seconds since 1970.
///
/// # Errors
/// When the file cannot be read or is no capture. Packets that make no sense are passed over.
pub fn transfers(file: &Path) -> Result<Vec<Transfer>> {
    let reading = || format!("reading {}", file.display());
    let packets = Packets::new(File::open(file).with_context(reading)?).with_context(reading)?;
    let mut found = Transfers::default();
    for packet in packets {
        let packet = packet.with_context(reading)?;
        let frame = packet
            .link
            .and_then(|link| Frame::parse(link, &packet.data));
        if let Some(Content::Ip(ip)) = frame.map(|frame| frame.content) {
            found.packet(packet.time, &ip);
        }
    }
    Ok(found.finish())
}
