//! Wires for tests: one that follows a script, one that gives back what was sent.

use core::time::Duration;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

use crate::header::Header;
use crate::host_side::Unit;
use crate::memory::{GuestMemory, Span};
use crate::wire::{Received, Wire};

/// A wire that keeps what was sent, and has what it was given.
#[derive(Debug, Default)]
pub struct Script {
    /// What the guest has sent.
    pub sent: Vec<(Header, Vec<u8>)>,
    /// What is to come.
    pub coming: VecDeque<(Header, Vec<u8>)>,
    /// Units that it still takes; `None` for all.
    pub takes: Option<usize>,
    /// The longest unit, where it is not that of plain Ethernet.
    pub max_unit: Option<usize>,
    /// Room of which it makes use, where that is more than the longest unit.
    pub useful_room: Option<usize>,
    /// Bursts that have ended.
    pub flushes: usize,
    /// What it can do.
    pub offloads: u64,
    /// What was agreed on.
    pub agreed: u64,
    /// Whether units are to stay with the guest.
    pub is_busy: bool,
}

impl<M: GuestMemory> Wire<M> for Script {
    fn offloads(&self) -> u64 {
        self.offloads
    }

    fn agree(&mut self, features: u64) {
        self.agreed = features;
    }

    fn max_unit(&self) -> usize {
        self.max_unit.unwrap_or(1518)
    }

    fn useful_room(&self) -> usize {
        let unit = Wire::<M>::max_unit(self);
        self.useful_room.unwrap_or(unit)
    }

    fn takes(&self) -> bool {
        !self.is_busy
    }

    fn send(&mut self, memory: &M, unit: &Unit<'_>, _: Duration) -> bool {
        if let Some(takes) = &mut self.takes {
            if *takes == 0 {
                return false;
            }
            *takes -= 1;
        }
        self.sent.push((unit.header, bytes_of(memory, unit)));
        true
    }

    fn flush(&mut self) {
        self.flushes += 1;
    }

    fn receive(&mut self, memory: &M, room: &[Span], _: Duration) -> Received {
        let Some((header, frame)) = self.coming.pop_front() else {
            return Received::Nothing;
        };
        fill(memory, room, header, &frame)
    }
}

/// A wire on which what was sent comes back, after a time.
#[derive(Debug, Default)]
pub struct Loopback {
    /// How long it takes.
    pub delay: Duration,
    /// The longest unit, where it is not that of plain Ethernet.
    pub max_unit: Option<usize>,
    /// What it can do.
    pub offloads: u64,
    under_way: VecDeque<(Duration, Header, Vec<u8>)>,
}

impl<M: GuestMemory> Wire<M> for Loopback {
    fn offloads(&self) -> u64 {
        self.offloads
    }

    fn agree(&mut self, _: u64) {}

    fn max_unit(&self) -> usize {
        self.max_unit.unwrap_or(1518)
    }

    fn send(&mut self, memory: &M, unit: &Unit<'_>, now: Duration) -> bool {
        let frame = bytes_of(memory, unit);
        self.under_way
            .push_back((now + self.delay, unit.header, frame));
        true
    }

    fn flush(&mut self) {}

    fn receive(&mut self, memory: &M, room: &[Span], now: Duration) -> Received {
        if self.under_way.front().is_none_or(|(due, ..)| *due > now) {
            return Received::Nothing;
        }
        match self.under_way.pop_front() {
            Some((_, header, frame)) => fill(memory, room, header, &frame),
            None => Received::Nothing,
        }
    }
}

fn bytes_of<M: GuestMemory>(memory: &M, unit: &Unit<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(unit.head);
    for span in unit.spans {
        let mut piece = vec![0; span.len as usize];
        memory.read(span.address, &mut piece).unwrap();
        bytes.extend(piece);
    }
    assert_eq!(bytes.len(), unit.len);
    bytes
}

fn fill<M: GuestMemory>(memory: &M, room: &[Span], header: Header, frame: &[u8]) -> Received {
    let space: usize = room.iter().map(|span| span.len as usize).sum();
    if frame.len() > space {
        return Received::TooLong;
    }
    let mut from = frame;
    for span in room {
        let (now, rest) = from.split_at(from.len().min(span.len as usize));
        memory.write(span.address, now).unwrap();
        from = rest;
    }
    Received::Unit {
        header,
        len: frame.len(),
    }
}
