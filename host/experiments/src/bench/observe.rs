//! The view from outside the guest: its packets as they pass, and the interface's counters.

use std::fs;
use std::io::BufReader;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::evaluate::{Packet, Transfer};
use wireboot_capture::{Captured, Packets};
use wireboot_lab::capture::wait_until_listening;
use wireboot_lab::console::now;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{self, INTERFACE};

/// Which packets are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// The client's, and the small ones of the server: next to no load at any speed.
    Client,
    /// Those of both sides, the server's data among them.
    Both,
}

/// The first bytes of each packet that are captured: enough for the headers and a request's first line.
const SNAP_LENGTH: &str = "400";
/// Between two looks at the interface's counters.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// A live capture with the counters beside it.
#[derive(Debug)]
pub(crate) struct Observer {
    tcpdump: Child,
    packets: Receiver<(f64, Packet)>,
    stop: Arc<AtomicBool>,
    sampler: Option<JoinHandle<Vec<Sample>>>,
}

/// The interface's counters at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    time: f64,
    /// Packets handed to the guest.
    to_guest: u64,
}

impl Observer {
    /// Begins to look at what the lab's servers and their client say in a version of IP; packets are seen from when this returns.
    ///
    /// # Errors
    /// When tcpdump does not start.
    pub(crate) fn start(lab: &Lab, view: View, ip: IpVersion) -> Result<Self> {
        let server = network::server(ip);
        let mut command = lab.command("tcpdump");
        command.args([
            "-i",
            INTERFACE,
            "-n",
            "-U",
            "-s",
            SNAP_LENGTH,
            "-B",
            "16384",
            "-Z",
            "root",
            "-w",
            "-",
        ]);
        if view == View::Client {
            command.arg(format!("not src host {server} or less 160"));
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tcpdump = command
            .spawn()
            .context("starting tcpdump: is it installed?")?;
        let (Some(output), Some(messages)) = (tcpdump.stdout.take(), tcpdump.stderr.take()) else {
            bail!("tcpdump has no output")
        };
        let (sender, packets) = channel();
        spawn(move || {
            let Ok(captured) = Packets::new(output) else {
                return;
            };
            for Captured { time, data, .. } in captured.map_while(Result::ok) {
                if let Some(packet) = Packet::parse(&data, server)
                    && sender.send((time, packet)).is_err()
                {
                    return;
                }
            }
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sampler = Some(spawn(move || sample_until(&stopped)));
        let observer = Self {
            tcpdump,
            packets,
            stop,
            sampler,
        };

        wait_until_listening(&mut BufReader::new(messages))?;
        Ok(observer)
    }

    /// The next packet and its time in seconds since the Unix epoch; `None` when none comes in time.
    ///
    /// # Errors
    /// When the capture has ended.
    pub(crate) fn packet(&self, timeout: Duration) -> Result<Option<(f64, Packet)>> {
        match self.packets.recv_timeout(timeout) {
            Ok(packet) => Ok(Some(packet)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("tcpdump has ended"),
        }
    }

    /// Ends the look. Returns how many packets went to the guest during a transfer: what the guest took from its card, so
    /// a unit of up to 64 KiB counts once where the guest lets the card join segments.
    #[must_use]
    pub(crate) fn packets_to_guest(mut self, transfer: Transfer) -> Option<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let samples = self.sampler.take()?.join().ok()?;
        increase(&samples, transfer)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
    }
}

fn sample_until(stop: &AtomicBool) -> Vec<Sample> {
    let mut samples = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        // Not /sys: it shows the interfaces of the network namespace in which it was mounted.
        let table = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
        samples.extend(transmitted(&table, INTERFACE).map(|to_guest| Sample {
            time: now(),
            to_guest,
        }));
        sleep(SAMPLE_INTERVAL);
    }
    samples
}

/// Packets transmitted by an interface: the tenth number of its line.
fn transmitted(table: &str, interface: &str) -> Option<u64> {
    let line = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    line.split_whitespace().nth(9)?.parse().ok()
}

/// The counter's increase from the last sample before the transfer to the first after it.
fn increase(samples: &[Sample], transfer: Transfer) -> Option<u64> {
    let before = samples
        .iter()
        .rfind(|sample| sample.time <= transfer.start)?;
    let after = samples.iter().find(|sample| sample.time >= transfer.end)?;
    after.to_guest.checked_sub(before.to_guest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_is_that_of_the_interface() {
        let table = "Inter-|   Receive |  Transmit\n face |bytes packets |bytes\n    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n  lab0:10 20 0 0 0 0 0 0 30 40 0 0 0 0 0 0\n";
        assert_eq!(transmitted(table, "lab0"), Some(40));
        assert_eq!(transmitted(table, "lab"), None);
    }

    #[test]
    fn increase_covers_the_transfer() {
        let samples: Vec<_> = [(1.0, 5), (2.0, 7), (3.0, 50), (4.0, 80), (5.0, 99)]
            .map(|(time, to_guest)| Sample { time, to_guest })
            .into();
        assert_eq!(
            increase(
                &samples,
                Transfer {
                    start: 2.5,
                    end: 3.5
                }
            ),
            Some(73)
        );
        assert_eq!(
            increase(
                &samples,
                Transfer {
                    start: 0.5,
                    end: 3.5
                }
            ),
            None
        );
        assert_eq!(
            increase(
                &samples,
                Transfer {
                    start: 2.5,
                    end: 6.0
                }
            ),
            None
        );
    }
}
