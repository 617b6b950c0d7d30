//! `wireboot serve`, in the lab.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::ip::IpVersion;
use crate::netns::Lab;
use crate::network::INTERFACE;

/// A line of the server's event file, as far as the lab uses it.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerEvent {
    /// Seconds since the Unix epoch.
    pub time: f64,
    /// The kind of event in kebab-case, such as `tftp-done`.
    pub event: String,
    /// The file in question.
    #[serde(default)]
    pub file: String,
    /// What DHCPv6 knows the client by, in hexadecimal.
    #[serde(default)]
    pub duid: String,
    /// The address that was given.
    #[serde(default)]
    pub address: String,
    /// The file's size in bytes.
    #[serde(default)]
    pub bytes: u64,
    /// How long it took.
    #[serde(default)]
    pub seconds: f64,
    /// More, for people.
    #[serde(default)]
    pub message: String,
}

/// The server stays root, that of the lab's namespaces: the scratch directory, and perhaps the payload, is for nobody else.
pub const AS_ROOT: [&str; 2] = ["--user", "root"];

/// What more `wireboot serve` is told on a network of a version of IP: with IPv6, the lab has no other router.
#[must_use]
pub fn advertise(ip: IpVersion) -> Option<&'static str> {
    (ip == IpVersion::V6).then_some("--ra")
}

/// A running server. It ends with this value.
#[derive(Debug)]
pub struct Server {
    child: Child,
    events: PathBuf,
    log: PathBuf,
    read: usize,
}

impl Server {
    /// Starts `program`, a command for wireboot in the lab or at a station, as a server of `directory`, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start, with what it said.
    pub fn start(
        lab: &Lab,
        mut program: Command,
        directory: &Path,
        nbp: &Path,
        more: &[&str],
    ) -> Result<Self> {
        let directory = directory
            .canonicalize()
            .with_context(|| format!("the directory to serve, {}", directory.display()))?;
        let (events, log) = (
            lab.scratch().join("server.events"),
            lab.scratch().join("server.log"),
        );
        // A server before this one may have left its own.
        let _ = fs::remove_file(&events);
        program
            .arg("serve")
            .arg(directory)
            .args(AS_ROOT)
            .args(["--interface", INTERFACE, "--nbp"])
            .arg(nbp)
            .arg("--leases")
            .arg(lab.scratch().join("server.leases"))
            .args(more);
        if !more.contains(&"--proxy") && !more.contains(&"--no-dhcp") {
            // Nobody else is on this network: no need to ask.
            program.arg("--authoritative");
        }
        program
            .arg("--events")
            .arg(&events)
            .stdout(Stdio::null())
            .stderr(File::create(&log).context("making the server's log")?);
        let child = program.spawn().context("starting the server")?;
        let mut server = Self {
            child,
            events,
            log,
            read: 0,
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !server
            .events()?
            .iter()
            .any(|event| event.message == "ready")
        {
            if server
                .child
                .try_wait()
                .context("waiting for the server")?
                .is_some()
                || Instant::now() > deadline
            {
                bail!("the server did not start:\n{}", server.tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
    /// The events since the last call.
    ///
    /// # Errors
    /// When a line is no event.
    pub fn events(&mut self) -> Result<Vec<ServerEvent>> {
        let text = fs::read_to_string(&self.events).unwrap_or_default();
        // Up to the last whole line.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let new = text.get(self.read..whole).unwrap_or_default();
        self.read = whole;
        new.lines()
            .map(|line| {
                serde_json::from_str(line).with_context(|| format!("the server's event {line:?}"))
            })
            .collect()
    }

    /// The last lines of its log.
    #[must_use]
    pub fn tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let from = lines.len().saturating_sub(8);
        lines
            .iter()
            .skip(from)
            .map(|line| format!("    | {line}\n"))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
