//! The QEMU Machine Protocol: one JSON object a line, over a Unix socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// How long QEMU may take to greet: it touches all of a machine's memory before, which takes long on a busy host.
const GREETING: Duration = Duration::from_secs(120);
/// The same for an answer.
const ANSWER: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects to a QEMU that is just starting, and takes its greeting.
    pub(crate) fn connect(socket: &Path, timeout: Duration) -> Result<Self> {
        let deadline = Instant::now() + timeout;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => {
                    return Err(error).context("connecting to QEMU's control socket");
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let wait = |longest| {
            let limited = stream.set_read_timeout(Some(longest));
            limited.context("limiting waits for QEMU")
        };
        wait(GREETING)?;
        let mut qmp = Self {
            stream: BufReader::new(stream.try_clone()?),
        };
        qmp.receive().context("waiting for QEMU's greeting")?;
        wait(ANSWER)?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command; its answer.
    pub(crate) fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream.get_mut(), "{request}")
            .with_context(|| format!("asking QEMU for {command}"))?;
        loop {
            let mut answer = self
                .receive()
                .with_context(|| format!("waiting for QEMU's answer to {command}"))?;
            if let Some(error) = answer.get("error") {
                bail!("QEMU refused {command}: {error}");
            }
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            // An event: nothing here depends on them.
        }
    }

    fn receive(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!("QEMU has ended");
        }
        serde_json::from_str(&line).context("QEMU's answer is not JSON")
    }
}
