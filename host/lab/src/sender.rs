//! The sender that a machine measures itself against: sends datagrams when asked, tells what has come from the machine, and takes what
//! its TCP sends.

mod sink;

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};
pub use wireboot_wire::ladder::DATA_PORT;
use wireboot_wire::ladder::{Answer, PORT, Request};

use crate::ip::IpVersion;
use crate::netns::tool;
use crate::network::{self, INTERFACE};

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// Datagrams that the kernel takes at once (UDP_SEGMENT), and the longest of them all together.
const SEGMENTS: usize = 64;
const SEGMENTS_BYTES: usize = 65_507;
/// Frames that may wait in the cable, which holds 1000 (the tap interface's queue): enough that QEMU always finds some, few enough that
/// none is lost.
const UNDER_WAY: u64 = 900;
/// A pause for a cable that is full.
const PAUSE: Duration = Duration::from_micros(20);
/// After so long without any movement in the cable, frames are sent all the same: perhaps the counter tells nothing.
const STILL: Duration = Duration::from_millis(20);

/// A sender at work. It ends with this value.
#[derive(Debug)]
pub struct Sender {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Sender {
    /// Starts it on the lab's network, which must exist and have addresses of this version of IP; the machine's cable ends at the interface `cable`.
    ///
    /// # Errors
    /// When a port is taken.
    pub fn start(ip: IpVersion, cable: &str) -> Result<Self> {
        let server = network::server(ip);
        let bind = |port| UdpSocket::bind((server, port)).context("opening the sender's port");
        let control = bind(PORT)?;
        control
            .set_read_timeout(Some(LOOK))
            .context("limiting the sender's waits")?;
        // What the machine sends to be counted ends here unread. Without a socket the kernel would answer it.
        let unread = bind(DATA_PORT)?;
        setsockopt(&unread, sockopt::RcvBuf, &1).context("making the sink small")?;
        let listener = sink::listen((server, DATA_PORT).into())?;
        let stop = Arc::new(AtomicBool::new(false));
        let cable = cable.to_owned();
        let stopped = Arc::clone(&stop);
        let sender = spawn(move || {
            let _unread = unread;
            let mut served = Served::new(server, cable);
            while !stopped.load(Ordering::Relaxed) {
                if let Err(error) = served.next(&control) {
                    log::warn!("the sender: {error:#}");
                }
            }
        });
        let stopped = Arc::clone(&stop);
        let sink = spawn(move || sink::serve(&listener, &stopped));
        Ok(Self {
            stop,
            threads: vec![sender, sink],
        })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What has been done already.
struct Served {
    /// The sender's address.
    server: IpAddr,
    /// The interface at which the machine's cable ends.
    cable: String,
    /// Whose address the kernel has been told for good.
    neighbour: Option<(IpAddr, [u8; 6])>,
    /// The last request to send and its answer: asked for again when the answer was lost.
    last: Option<(Request, Answer)>,
}

impl Served {
    fn new(server: IpAddr, cable: String) -> Self {
        Self {
            server,
            cable,
            neighbour: None,
            last: None,
        }
    }

    fn next(&mut self, control: &UdpSocket) -> Result<()> {
        let mut datagram = [0; 128];
        let (len, from) = match control.recv_from(&mut datagram) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(());
            }
            Err(error) => return Err(error).context("waiting for requests"),
        };
        let request = datagram.get(..len).and_then(Request::parse);
        let Some(request) = request else {
            return Ok(());
        };
        self.tell_kernel(from.ip(), &request)?;
        let answer = match self.last {
            Some((known, answer)) if known == request => answer,
            _ => self.serve(request, from)?,
        };
        control
            .send_to(answer.emit().as_bytes(), from)
            .context("answering")?;
        Ok(())
    }

    fn serve(&mut self, request: Request, from: SocketAddr) -> Result<Answer> {
        match request {
            Request::Count { number, .. } => Ok(Answer::Counted {
                number,
                frames: Counters::read(&self.cable).received,
            }),
            Request::Send {
                number,
                payload,
                micros,
                ..
            } => {
                let duration = Duration::from_micros(micros.into());
                let ends = (self.server, from.ip());
                let answer = send(number, ends, payload.into(), duration, &self.cable)?;
                self.last = Some((request, answer));
                Ok(answer)
            }
        }
    }

    /// The machine answers neither ARP nor neighbour solicitations while it measures.
    fn tell_kernel(&mut self, address: IpAddr, request: &Request) -> Result<()> {
        let (Request::Send { mac, .. } | Request::Count { mac, .. }) = *request;
        if self.neighbour == Some((address, mac)) {
            return Ok(());
        }
        let text = mac.map(|byte| format!("{byte:02x}")).join(":");
        tool(
            "ip",
            [
                "neighbour",
                "replace",
                &address.to_string(),
                "lladdr",
                &text,
                "nud",
                "permanent",
                "dev",
                INTERFACE,
            ],
        )?;
        self.neighbour = Some((address, mac));
        Ok(())
    }
}

/// Sends datagrams of `payload` bytes, as fast as the cable takes them without loss.
fn send(
    number: u32,
    (from, to): (IpAddr, IpAddr),
    payload: usize,
    duration: Duration,
    cable: &str,
) -> Result<Answer> {
    let socket = UdpSocket::bind((from, 0)).context("opening a port to send from")?;
    socket
        .connect((to, DATA_PORT))
        .context("choosing the machine to send to")?;
    let mut count = SEGMENTS.min(SEGMENTS_BYTES / payload.max(1)).max(1);
    if setsockopt(&socket, sockopt::UdpGsoSegment, &(payload as i32)).is_err() {
        count = 1;
    }
    let bytes = vec![0x55; payload * count];
    let before = Counters::read(cable);
    let begin = Instant::now();
    let mut datagrams = 0;
    let mut waited = Duration::ZERO;
    // Frames that had left the cable when it was last looked at.
    let mut gone = 0;
    while begin.elapsed() < duration {
        if datagrams - gone + count as u64 > UNDER_WAY {
            let full = Instant::now();
            let had = gone;
            loop {
                gone = Counters::read(cable).gone_since(&before).min(datagrams);
                if datagrams - gone + count as u64 <= UNDER_WAY {
                    break;
                }
                if full.elapsed() > STILL && gone == had {
                    break;
                }
                sleep(PAUSE);
            }
            waited += full.elapsed();
        }
        match socket.send(&bytes) {
            Ok(_) => datagrams += count as u64,
            // ICMP from before, or no room in the socket: the next may go.
            Err(error) => log::debug!("sending: {error}"),
        }
    }
    let after = Counters::read(cable);
    Ok(Answer::Sent {
        number,
        datagrams,
        dropped: after.dropped.saturating_sub(before.dropped),
        micros: begin.elapsed().as_micros() as u64,
        waited: waited.as_micros() as u64,
    })
}

/// The counters of the cable's end at the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    /// Frames from the machine.
    received: u64,
    /// Frames that QEMU has taken.
    transmitted: u64,
    /// Frames that found no room.
    dropped: u64,
}

impl Counters {
    fn read(cable: &str) -> Self {
        // Not /sys: it shows the interfaces of the network namespace in which it was mounted.
        let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        Self::parse(&table, cable).unwrap_or_default()
    }

    /// The interface's line: eight numbers of receiving, packets the second, and eight of transmitting, packets the second and
    /// dropped the fourth.
    fn parse(table: &str, interface: &str) -> Option<Self> {
        let line = table
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
        let numbers: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        Some(Self {
            received: *numbers.get(1)?,
            transmitted: *numbers.get(9)?,
            dropped: *numbers.get(11)?,
        })
    }

    /// Frames that have left the cable, at either end.
    fn gone_since(&self, before: &Self) -> u64 {
        (self.transmitted + self.dropped).saturating_sub(before.transmitted + before.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let table = "Inter-|   Receive\n face |bytes packets\n    lo:  1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  \
                     lab0: 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26\n";
        let counters = Counters::parse(table, "lab0").unwrap();
        assert_eq!(
            counters,
            Counters {
                received: 12,
                transmitted: 20,
                dropped: 22
            }
        );
        assert_eq!(counters.gone_since(&Counters::default()), 42);
        assert_eq!(Counters::parse(table, "eth0"), None);
    }
}
