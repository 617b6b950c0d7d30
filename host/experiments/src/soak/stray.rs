//! Frames that nobody asked for: what a sender goes on sending to a machine that has handed over its network card.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use wireboot_lab::netns::tool;
use wireboot_lab::network::{INTERFACE, SERVER};

/// The network's broadcast address.
const EVERYBODY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 255);
/// A port on which nobody listens.
const PORT: u16 = 40069;
/// In a datagram, as in TFTP's on this network.
const PAYLOAD: usize = 1472;

/// What the datagrams consist of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(pub &'static [u8]);

/// Sent while the boot services end: it may lie in memory that was the card's by then.
pub(super) const BEFORE: Mark = Mark(b"[stray frame during the hand-over]");
/// Sent after the device was seen stopped: it may lie nowhere.
pub(super) const AFTER: Mark = Mark(b"[stray frame after the hand-over]");

/// A sender at work, until it is dropped.
#[derive(Debug)]
pub(super) struct Stray {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    sender: Option<JoinHandle<()>>,
}

impl Stray {
    /// Starts to send so many frames a second, to the machine and to everybody by turns.
    ///
    /// # Errors
    /// When there is no socket to be had.
    pub(super) fn start(machine: Ipv4Addr, mac: &str, mark: Mark, rate: u32) -> Result<Self> {
        // A machine without a network stack answers no ARP.
        let address = machine.to_string();
        tool(
            "ip",
            [
                "neighbour",
                "replace",
                &address,
                "lladdr",
                mac,
                "nud",
                "permanent",
                "dev",
                INTERFACE,
            ],
        )?;
        let socket = UdpSocket::bind((SERVER, 0))
            .and_then(|socket| socket.set_broadcast(true).map(|()| socket))
            .context("making a socket for stray frames")?;
        // When the machine takes none, neither does the socket.
        socket
            .set_nonblocking(true)
            .context("making a socket for stray frames")?;
        let pause = Duration::from_secs(1) / rate.max(1);
        let (stop, sent) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopping, counter) = (Arc::clone(&stop), Arc::clone(&sent));
        let sender = std::thread::spawn(move || {
            let datagram: Vec<u8> = mark.0.iter().copied().cycle().take(PAYLOAD).collect();
            while !stopping.load(Ordering::Relaxed) {
                for to in [machine, EVERYBODY] {
                    // A full queue towards a machine that takes no more is what is wanted.
                    let _ = socket.send_to(&datagram, (to, PORT));
                    counter.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(pause);
                }
            }
        });
        Ok(Self {
            stop,
            sent,
            sender: Some(sender),
        })
    }

    /// Frames sent so far.
    #[must_use]
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}
