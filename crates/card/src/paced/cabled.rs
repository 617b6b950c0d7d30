//! A wire behind a line: frames are on their way for as long as the line takes.

use core::time::Duration;

use super::store::Store;
use super::{PacedCounters, moment};
use crate::feature::LARGE_UNITS;
use crate::header::Header;
use crate::host_side::{LONGEST_UNIT, Unit};
use crate::memory::{GuestMemory, Span, gather, scatter};
use crate::model::line::{Cable, Fate};
use crate::model::{LINK_HEADER, Line, Picos};
use crate::wire::{Received, Wire};

/// Bytes that may wait for the line at either end: two units, as one goes while the next one comes.
const QUEUE: usize = 2 * LONGEST_UNIT;
/// Bytes of frames on a line, at most. A line that is longer or faster loses what is more.
pub const MOST_IN_FLIGHT: usize = 64 << 20;
/// Bytes of frames that have come to the card and wait for the bus. What finds no room is dropped.
const MEMORY: usize = 1 << 20;
/// Frames that are taken from the wire at once, at most.
const BURST: usize = 64;

/// A wire and the line that leads to it.
#[derive(Debug)]
pub(super) struct Cabled<W> {
    wire: W,
    is_line: bool,
    from_guest: LineDirection,
    to_guest: LineDirection,
    /// When the unit that is being sent is on the card.
    pub leaves: Picos,
    /// What has come, and waits for the bus.
    card: Store,
    pub counters: PacedCounters,
}

/// A line in one direction, from the guest or to it: the cable, and what is under way on it.
#[derive(Debug)]
struct LineDirection {
    /// None: there is no line, and it takes no time.
    cable: Option<(Cable, Picos)>,
    store: Store,
}

impl LineDirection {
    fn new(line: Option<Line>, seed: u64) -> Self {
        let on_the_way = line.map_or(0, |line| line.in_flight().min(MOST_IN_FLIGHT));
        Self {
            cable: line.map(|line| (Cable::new(line, seed), line.rate.time_of(QUEUE as u64))),
            // So much that there is always a place for a unit side by side while no more than the queue waits.
            store: Store::new(on_the_way + 4 * QUEUE),
        }
    }

    /// From when on it takes a unit; none while it has no memory for one.
    fn free(&self) -> Option<Picos> {
        if !self.store.has_place(LONGEST_UNIT) {
            return None;
        }
        match &self.cable {
            Some((cable, queue)) => Some(cable.free().since(*queue)),
            None => Some(Picos::ZERO),
        }
    }

    /// Takes a frame of `len` bytes, which `write` writes. False when it was never on the line.
    fn put(
        &mut self,
        counters: &mut PacedCounters,
        now: Picos,
        header: Header,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        let Some(payload) = len.checked_sub(LINK_HEADER as usize) else {
            return false;
        };
        if !self.store.has_place(len) {
            counters.no_room += 1;
            return false;
        }
        let fate = match &mut self.cable {
            Some((cable, _)) => cable.send(payload as u32, now),
            None => Fate::Arrives(now),
        };
        match fate {
            Fate::Arrives(at) => self.store.put(at, header, len, write),
            Fate::Lost => {
                counters.line_lost += 1;
                true
            }
            Fate::TooLong => {
                counters.line_too_long += 1;
                false
            }
        }
    }
}

impl<W> Cabled<W> {
    pub(super) fn new(wire: W, line: Option<Line>, seed: u64) -> Self {
        Self {
            wire,
            is_line: line.is_some(),
            from_guest: LineDirection::new(line, seed),
            // Not the same frames both ways.
            to_guest: LineDirection::new(line, !seed),
            leaves: Picos::ZERO,
            card: Store::new(MEMORY),
            counters: PacedCounters::default(),
        }
    }

    pub(super) fn wire(&self) -> &W {
        &self.wire
    }

    pub(super) fn wire_mut(&mut self) -> &mut W {
        &mut self.wire
    }

    /// From when on the line takes a unit of the guest's.
    pub(super) fn free_from_guest(&self) -> Option<Picos> {
        self.from_guest.free()
    }

    /// When the next frame of the guest's is at the wire.
    pub(super) fn due_from_guest(&self) -> Option<Picos> {
        self.from_guest.store.first().map(|(frame, _)| frame.at)
    }

    /// From when on the wire may be asked; none while there is no memory.
    pub(super) fn free_to_guest(&self) -> Option<Picos> {
        // Where a line is in between, nobody knows beforehand that the card will be full.
        if !self.is_line && !self.card.has_place(LONGEST_UNIT) {
            return None;
        }
        self.to_guest.free()
    }

    /// When the next frame was or is at the card.
    pub(super) fn due_to_guest(&self) -> Option<Picos> {
        let first = self.card.first().or_else(|| self.to_guest.store.first());
        first.map(|(frame, _)| frame.at)
    }

    /// Gives the wire what has come to it and it takes.
    pub(super) fn send_due<M: GuestMemory>(&mut self, memory: &M, now: Duration)
    where
        W: Wire<M>,
    {
        let mut any = false;
        while let Some((frame, bytes)) = self.from_guest.store.first()
            && frame.at <= moment(now)
            && self.wire.takes()
        {
            let unit = Unit {
                header: frame.header,
                head: bytes,
                spans: &[],
                len: frame.len,
            };
            if !self.wire.send(memory, &unit, now) {
                self.counters.wire_lost += 1;
            }
            self.from_guest.store.pop();
            any = true;
        }
        if any {
            self.wire.flush();
        }
    }

    /// Puts what the wire has on the line, by way of the room.
    pub(super) fn fill<M: GuestMemory>(&mut self, memory: &M, room: &[Span], now: Duration)
    where
        W: Wire<M>,
    {
        for _ in 0..BURST {
            if self.free_to_guest().is_none_or(|free| free > moment(now)) {
                return;
            }
            match self.wire.receive(memory, room, now) {
                Received::Nothing => return,
                Received::Kept => {}
                Received::TooLong => self.counters.no_room += 1,
                Received::Unit { header, len } => {
                    let copy = |place: &mut [u8]| gather(memory, room, place) == Ok(true);
                    let counters = &mut self.counters;
                    self.to_guest.put(counters, moment(now), header, len, copy);
                    if !self.is_line {
                        self.come(moment(now));
                    }
                }
            }
        }
    }

    /// Frames come to the card until then, each if there is room for it.
    pub(super) fn come(&mut self, until: Picos) {
        while let Some((frame, bytes)) = self.to_guest.store.first()
            && frame.at <= until
        {
            let copy = |place: &mut [u8]| {
                place.copy_from_slice(bytes);
                true
            };
            if !self.card.put(frame.at, frame.header, frame.len, copy) {
                self.counters.no_room += 1;
            }
            self.to_guest.store.pop();
        }
    }
}

impl<M: GuestMemory, W: Wire<M>> Wire<M> for Cabled<W> {
    fn offloads(&self) -> u64 {
        let wire = self.wire.offloads();
        if self.is_line {
            wire & !LARGE_UNITS
        } else {
            wire
        }
    }

    fn agree(&mut self, features: u64) {
        // What is under way was made for another guest, or for the same one before it began anew.
        let forgotten = self.to_guest.store.clear() + self.card.clear();
        self.counters.forgotten += forgotten as u64;
        let features = if self.is_line {
            features & !LARGE_UNITS
        } else {
            features
        };
        self.wire.agree(features);
    }

    fn max_unit(&self) -> usize {
        self.wire.max_unit()
    }

    fn useful_room(&self) -> usize {
        self.wire.useful_room()
    }

    fn advance(&mut self, memory: &M, now: Duration) {
        self.wire.advance(memory, now);
    }

    fn send(&mut self, memory: &M, unit: &Unit<'_>, _: Duration) -> bool {
        let copy = |place: &mut [u8]| {
            place
                .split_at_mut_checked(unit.head.len())
                .is_some_and(|(head, rest)| {
                    head.copy_from_slice(unit.head);
                    gather(memory, unit.spans, rest) == Ok(true)
                })
        };
        let (direction, counters) = (&mut self.from_guest, &mut self.counters);
        direction.put(counters, self.leaves, unit.header, unit.len, copy)
    }

    // The wire is told when frames have come to it.
    fn flush(&mut self) {}

    fn receive(&mut self, memory: &M, room: &[Span], _: Duration) -> Received {
        let Some((frame, bytes)) = self.card.first() else {
            return Received::Nothing;
        };
        let written = scatter(memory, room, bytes) == Ok(true);
        self.card.pop();
        if !written {
            return Received::TooLong;
        }
        Received::Unit {
            header: frame.header,
            len: frame.len,
        }
    }
}
