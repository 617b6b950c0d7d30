//! The tap interface at which one machine's cable ends, by the kernel's counters: the laboratory's, where nothing is to be lost.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Frames that may wait in the cable, which holds 1000 (the tap interface's queue): enough that QEMU always finds some, few enough that
/// none is lost.
const UNDER_WAY: u64 = 900;
/// A pause for a cable that is full.
const PAUSE: Duration = Duration::from_micros(20);
/// After so long without any movement in the cable, frames are sent all the same: perhaps the counter tells nothing.
const STILL: Duration = Duration::from_millis(20);
/// Bytes of the table of interfaces that are read at once.
const PAGE: usize = 4096;

/// A tap interface with one machine behind it.
#[derive(Debug)]
pub struct Cable {
    /// Not of /sys: that shows the interfaces of the network namespace in which it was mounted.
    table: File,
    interface: String,
}

impl Cable {
    /// By the interface's name, in the network namespace of this thread.
    ///
    /// # Errors
    /// When the kernel has no such table.
    pub fn open(interface: &str) -> io::Result<Self> {
        Ok(Self {
            table: File::open("/proc/thread-self/net/dev")?,
            interface: interface.to_owned(),
        })
    }

    /// Frames that have found no room in the cable so far; `None` where the kernel does not tell.
    #[must_use]
    pub fn dropped(&self) -> Option<u64> {
        self.read().map(|counters| counters.dropped)
    }

    pub(super) fn counters(&self) -> Counters {
        self.read().unwrap_or_default()
    }

    fn read(&self) -> Option<Counters> {
        let mut table = Vec::new();
        let mut page = [0; PAGE];
        while let Ok(len @ 1..) = self.table.read_at(&mut page, table.len() as u64) {
            table.extend_from_slice(page.get(..len).unwrap_or_default());
        }
        let table = String::from_utf8_lossy(&table);
        Counters::parse(&table, &self.interface)
    }
}

/// Of a cable into which datagrams are sent.
pub(super) struct Pace<'a> {
    cable: &'a Cable,
    before: Counters,
    /// Frames that had left the cable when it was last looked at.
    gone: u64,
    /// How long there was no room.
    pub waited: Duration,
}

impl<'a> Pace<'a> {
    pub(super) fn new(cable: &'a Cable) -> Self {
        Self {
            cable,
            before: cable.counters(),
            gone: 0,
            waited: Duration::ZERO,
        }
    }

    /// Waits until there is room for `more` frames behind the first `sent`.
    pub(super) fn wait_for_room(&mut self, sent: u64, more: u64) {
        if sent - self.gone + more <= UNDER_WAY {
            return;
        }
        let full = Instant::now();
        let mut moved = full;
        loop {
            let gone = self.cable.counters().gone_since(&self.before).min(sent);
            if gone != self.gone {
                (self.gone, moved) = (gone, Instant::now());
            }
            if sent - self.gone + more <= UNDER_WAY || moved.elapsed() > STILL {
                break;
            }
            sleep(PAUSE);
        }
        self.waited += full.elapsed();
    }

    /// Frames that found no room so far.
    pub(super) fn dropped(&self) -> u64 {
        let now = self.cable.counters().dropped;
        now.saturating_sub(self.before.dropped)
    }
}

/// The counters of the cable's end at the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Frames from the machine.
    pub received: u64,
    /// Frames that QEMU has taken.
    transmitted: u64,
    /// Frames that found no room.
    dropped: u64,
}

impl Counters {
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

    #[test]
    fn the_kernels_table_is_read_anew_each_time() {
        let cable = Cable::open("lo").unwrap();
        let before = cable.counters().received;
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        socket.recv_from(&mut [0; 8]).unwrap();
        assert!(cable.counters().received > before);
        assert_eq!(Cable::open("none").unwrap().counters(), Counters::default());
    }
}
