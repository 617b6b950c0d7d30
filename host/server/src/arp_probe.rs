//! Which addresses somebody has already, by ARP: who answers a probe, and who speaks of its own accord. A machine that was given its address
//! by hand never asks a DHCP server.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::interface::Interface;
use crate::link_socket::LinkSocket;
use crate::stop::Stop;

/// Addresses that are probed before the first is given.
const PROBED: usize = 4096;
/// So many probes, then a pause: switches and hosts drop floods of broadcasts.
const AT_ONCE: usize = 16;
const PAUSE: Duration = Duration::from_millis(10);
/// How often it is asked who has a single address, and how long an answer is waited for each time.
const ASKED: usize = 3;
const WAIT: Duration = Duration::from_millis(300);

/// What was heard of the range. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Arp {
    socket: Arc<LinkSocket>,
    mac: [u8; 6],
    range: RangeInclusive<Ipv4Addr>,
    heard: Arc<Mutex<HashMap<Ipv4Addr, [u8; 6]>>>,
}

impl Arp {
    /// Hears through `socket` from now on.
    ///
    /// # Errors
    /// When the system refuses it, or the interface has no Ethernet address.
    pub(crate) fn hear(
        socket: LinkSocket,
        interface: &Interface,
        range: RangeInclusive<Ipv4Addr>,
    ) -> io::Result<Self> {
        let mac = interface.mac.ok_or(io::ErrorKind::Unsupported)?;
        socket.hear_arp(Stop::CHECK_EVERY)?;
        Ok(Self {
            socket: Arc::new(socket),
            mac,
            range,
            heard: Arc::default(),
        })
    }

    /// Asks for each address of the range, for a moment.
    pub(crate) fn probe_all(&self) {
        let (first, last) = (u32::from(*self.range.start()), u32::from(*self.range.end()));
        for (count, address) in (first..=last).take(PROBED).enumerate() {
            self.probe(address.into());
            if count % AT_ONCE == AT_ONCE - 1 {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Asks who has `address`.
    pub(crate) fn probe(&self, address: Ipv4Addr) {
        // A lost probe is one of which nothing is heard.
        let _ = self.socket.probe(address, self.mac);
    }

    /// Listens until told to stop.
    pub(crate) fn listen(&self, stop: &Stop) {
        while !stop.is_set() {
            match self.socket.hear() {
                Ok((address, mac)) if self.range.contains(&address) && mac != self.mac => {
                    if let Ok(mut heard) = self.heard.lock() {
                        heard.insert(address, mac);
                    }
                }
                Ok(_) => {}
                Err(error) if passes(&error) => {}
                // The interface is down, say.
                Err(_) => std::thread::sleep(Stop::CHECK_EVERY),
            }
        }
    }

    /// Who has been heard since the last call: addresses of the range and who has them.
    pub(crate) fn heard(&self) -> HashMap<Ipv4Addr, [u8; 6]> {
        self.heard
            .lock()
            .map(|mut heard| std::mem::take(&mut *heard))
            .unwrap_or_default()
    }
}

/// Who on the network has `address`, which `interface` does not have; that takes about a second. `None`: nobody answers, be it because there is
/// no link yet.
///
/// # Errors
/// When the system refuses it, or the interface has no Ethernet address.
pub(crate) fn who_has(address: Ipv4Addr, interface: &Interface) -> io::Result<Option<[u8; 6]>> {
    let mac = interface.mac.ok_or(io::ErrorKind::Unsupported)?;
    let socket = LinkSocket::open(interface.index)?;
    socket.hear_arp(WAIT)?;
    for _ in 0..ASKED {
        socket.probe(address, mac)?;
        let asked = Instant::now();
        while asked.elapsed() < WAIT {
            match socket.hear() {
                Ok((speaker, other)) if speaker == address && other != mac => {
                    return Ok(Some(other));
                }
                Ok(_) => {}
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(None)
}

/// Whether the next packet can be waited for at once.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, InvalidData, TimedOut, WouldBlock};
    matches!(
        error.kind(),
        WouldBlock | TimedOut | Interrupted | InvalidData
    )
}
