//! What the card does for a wire that takes and has frames only: units are cut and joined in front of it.
//!
//! ```text
//!   guest ── units ──> Offload: cut ──────────── frames ──> wire
//!   guest <── units ── Offload: join, reassemble <── frames ── wire
//! ```
//!
//! A unit that the wire takes or has itself goes through. Cut frames are headers of the card's and payload in the guest's memory. Segments are
//! joined where they lie: the next one is written so that its payload follows that of the one before, and its headers, read, give way to
//! what they lie on. A unit ends with the first frame that does not continue it, and as soon as the wire has nothing: no frame waits for another, so
//! there is no timer. Fragments are copied once more, as they may come in any order.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::counters::OffloadCounters;
use crate::datagram::{self, Fragments, Put};
use crate::feature;
use crate::frame::{Ip, MAX_HEAD, UDP, Version};
use crate::header::{GSO_NONE, GSO_UDP, GSO_UDP_L4, Header};
use crate::host_side::{LONGEST_UNIT, Unit};
use crate::memory::{GuestMemory, Span, behind, gather, keep, scatter};
use crate::segment::{self, Run};
use crate::wire::{Received, Wire};

/// In IPv4: more fragments follow, or this one's place.
const FRAGMENT: u32 = 0x3fff;
const TSO: u64 = feature::GUEST_TSO4 | feature::GUEST_TSO6;
/// The least payload of a frame that a guest has cut: it is not to have the card send a frame for each of 65,535 bytes.
const LEAST_OF_GUEST: usize = 16;

/// A wire behind the card's own offloads.
#[derive(Debug)]
pub struct Offload<W> {
    wire: W,
    agreed: u64,
    /// What came behind a unit, and did not continue it.
    held: Held,
    /// Its bytes; those of a fragment.
    aside: Box<[u8]>,
    fragments: Fragments,
    /// Of fragments over IPv6.
    id: u16,
    spans: Vec<Span>,
    counters: OffloadCounters,
}

#[derive(Clone, Copy, Debug)]
enum Held {
    Nothing,
    Unit { header: Header, len: usize },
    TooLong,
}

impl<W> Offload<W> {
    /// The offloads in front of this wire.
    pub fn new(wire: W) -> Self {
        Self {
            wire,
            agreed: 0,
            held: Held::Nothing,
            aside: vec![0; LONGEST_UNIT].into_boxed_slice(),
            fragments: Fragments::new(),
            id: 0,
            spans: Vec::with_capacity(crate::MAX_RING.into()),
            counters: OffloadCounters::default(),
        }
    }

    /// What it did so far.
    pub fn counters(&self) -> OffloadCounters {
        OffloadCounters {
            joined_datagrams: self.fragments.whole,
            joined_fragments: self.fragments.joined,
            dropped_fragments: self.fragments.dropped,
            waiting_fragments: self.fragments.waiting(),
            ..self.counters
        }
    }

    /// What is behind the offloads.
    pub fn wire(&self) -> &W {
        &self.wire
    }

    /// The same, to change it between turns.
    pub fn wire_mut(&mut self) -> &mut W {
        &mut self.wire
    }

    /// True when there is a unit that came behind the last one, and did not continue it.
    pub(crate) fn holds(&self) -> bool {
        !matches!(self.held, Held::Nothing)
    }

    /// Sends the frames of a unit. False when one is lost, or all.
    fn cut<M: GuestMemory>(&mut self, memory: &M, unit: &Unit<'_>, now: Duration) -> bool
    where
        W: Wire<M>,
    {
        let Self {
            wire,
            spans,
            counters,
            ..
        } = self;
        let mut bytes = [0; MAX_HEAD];
        let Some(head) = first_bytes(memory, unit.spans, unit.len, &mut bytes) else {
            return false;
        };
        let mut all = true;
        let mut send = |header, head: &[u8], place: core::ops::Range<usize>| {
            behind(unit.spans, place.start as u32, spans);
            keep(spans, place.len());
            let frame = Unit {
                header,
                head,
                spans,
                len: head.len() + place.len(),
            };
            let sent = wire.send(memory, &frame, now);
            all &= sent;
            if sent {
                counters.cut_frames += 1;
            }
        };
        let (header, len) = (unit.header, unit.len);
        let cut = if header.gso_type == GSO_UDP {
            let checksum = datagram::checksum(header, memory, unit.spans, len);
            let Ok(checksum) = checksum else {
                return false;
            };
            self.id = self.id.wrapping_add(1);
            // Not the same for 65,536 datagrams, and not known beforehand by who does not see them.
            let id = u32::from(checksum) << 16 | u32::from(self.id);
            datagram::cut(header, head, len, checksum, id, |head, place| {
                send(Header::default(), head, place);
            })
        } else if header.gso_type == GSO_UDP_L4 {
            datagram::split(header, head, len, LEAST_OF_GUEST, send)
        } else {
            segment::cut(header, head, len, LEAST_OF_GUEST, send)
        };
        if cut.is_some() {
            counters.cut_units += 1;
        }
        cut.is_some() && all
    }

    /// What came behind a unit, at the beginning of the room.
    fn release<M: GuestMemory>(&mut self, memory: &M, room: &[Span]) -> Received {
        match core::mem::replace(&mut self.held, Held::Nothing) {
            Held::Nothing => Received::Nothing,
            Held::TooLong => Received::TooLong,
            Held::Unit { header, len } => {
                let bytes = self.aside.get(..len).unwrap_or_default();
                match scatter(memory, room, bytes) {
                    Ok(true) => Received::Unit { header, len },
                    _ => Received::TooLong,
                }
            }
        }
    }

    /// Takes the frame of `len` bytes at the beginning of the spans aside.
    fn take_aside<M: GuestMemory>(
        &mut self,
        memory: &M,
        spans: &[Span],
        len: usize,
    ) -> Option<&[u8]> {
        let bytes = self.aside.get_mut(..len)?;
        (gather(memory, spans, bytes) == Ok(true)).then_some(bytes)
    }

    /// Takes a fragment out of the room. Puts the datagram there that it completes.
    fn reassemble<M: GuestMemory>(
        &mut self,
        memory: &M,
        room: &[Span],
        len: usize,
        now: Duration,
    ) -> Received {
        if self.take_aside(memory, room, len).is_none() {
            return Received::TooLong;
        }
        let frame = self.aside.get(..len).unwrap_or_default();
        let Put::Whole { header, head, data } = self.fragments.put(frame, now) else {
            return Received::Kept;
        };
        behind(room, head.len() as u32, &mut self.spans);
        let written = scatter(memory, room, head) == Ok(true)
            && scatter(memory, &self.spans, data) == Ok(true);
        if !written {
            return Received::TooLong;
        }
        let len = head.len() + data.len();
        Received::Unit { header, len }
    }

    /// Has more segments follow those of the run, which is at the beginning of the room.
    fn join<M: GuestMemory>(&mut self, run: &mut Run, memory: &M, room: &[Span], now: Duration)
    where
        W: Wire<M>,
    {
        let all: usize = room.iter().map(|span| span.len as usize).sum();
        let mut rest = core::mem::take(&mut self.spans);
        while !run.is_closed() {
            // The next headers lie over the end of what is there.
            let from = run.len() - run.head_len();
            if all.saturating_sub(from) < self.wire.max_unit() {
                break;
            }
            behind(room, from as u32, &mut rest);
            let mut bytes = [0; MAX_HEAD];
            let Some(covered) = first_bytes(memory, &rest, run.head_len(), &mut bytes) else {
                break;
            };
            let joined = match self.wire.receive(memory, &rest, now) {
                Received::Nothing => break,
                // It was in the room. Frames that are kept may come as fast as they are looked at.
                Received::Kept => false,
                Received::TooLong => {
                    self.held = Held::TooLong;
                    false
                }
                Received::Unit { header, len } => {
                    let mut bytes = [0; MAX_HEAD];
                    let next = first_bytes(memory, &rest, len, &mut bytes);
                    let joined = header.gso_type == GSO_NONE
                        && next.is_some_and(|head| run.push(header, head, len, memory, &rest));
                    if !joined {
                        self.held = match self.take_aside(memory, &rest, len) {
                            Some(_) => Held::Unit { header, len },
                            None => Held::TooLong,
                        };
                    }
                    joined
                }
            };
            // The guest's memory stays where it was.
            if scatter(memory, &rest, covered).is_err() || !joined {
                break;
            }
        }
        self.spans = rest;
    }

    /// The unit that begins with a frame, which is at the beginning of the room, as far as what follows is there.
    fn continued<M: GuestMemory>(
        &mut self,
        memory: &M,
        room: &[Span],
        (header, len): (Header, usize),
        now: Duration,
    ) -> Received
    where
        W: Wire<M>,
    {
        let received = Received::Unit { header, len };
        let mut bytes = [0; MAX_HEAD];
        let Some(head) = first_bytes(memory, room, len, &mut bytes) else {
            return received;
        };
        if self.agreed & feature::GUEST_UFO != 0 && datagram::is_fragment(header, head) {
            return self.reassemble(memory, room, len, now);
        }
        let agreed = match Ip::parse(head).map(|ip| ip.version) {
            Some(Version::V4) => self.agreed & feature::GUEST_TSO4 != 0,
            Some(Version::V6) => self.agreed & feature::GUEST_TSO6 != 0,
            None => false,
        };
        if !agreed {
            return received;
        }
        let Some(mut run) = Run::begin(header, head, len, memory, room) else {
            return received;
        };
        self.join(&mut run, memory, room, now);
        let (len, segments) = (run.len(), run.segments());
        let Some((header, head)) = run.unit() else {
            return received;
        };
        if scatter(memory, room, head) != Ok(true) {
            return Received::TooLong;
        }
        self.counters.joined_units += 1;
        self.counters.joined_segments += segments as u64;
        Received::Unit { header, len }
    }
}

impl<M: GuestMemory, W: Wire<M>> Wire<M> for Offload<W> {
    fn offloads(&self) -> u64 {
        let wire = self.wire.offloads();
        let cut = if wire & feature::CSUM != 0 {
            feature::HOST_TSO4
                | feature::HOST_TSO6
                | feature::HOST_ECN
                | feature::HOST_UFO
                | feature::HOST_USO
        } else {
            0
        };
        wire | cut | feature::GUEST_CSUM | TSO | feature::GUEST_UFO
    }

    fn agree(&mut self, features: u64) {
        // A guest may take what it was offered in part.
        let features = feature::consistent(features);
        self.agreed = features;
        self.fragments.clear();
        if !matches!(self.held, Held::Nothing) {
            self.held = Held::Nothing;
            self.counters.dropped_frames += 1;
        }
        self.wire.agree(features);
    }

    fn max_unit(&self) -> usize {
        let wire = self.wire.max_unit();
        if self.agreed & feature::GUEST_UFO != 0 {
            wire.max(LONGEST_UNIT)
        } else {
            wire
        }
    }

    fn useful_room(&self) -> usize {
        if self.agreed & TSO != 0 {
            // And what comes behind the last segment, in case that it is none.
            LONGEST_UNIT + self.wire.max_unit()
        } else {
            self.max_unit()
        }
    }

    fn send(&mut self, memory: &M, unit: &Unit<'_>, now: Duration) -> bool {
        let done_by_wire = match unit.header.cut_feature(true) {
            Some(needed) => self.wire.offloads() & needed != 0,
            None => true,
        };
        if done_by_wire {
            self.wire.send(memory, unit, now)
        } else {
            self.cut(memory, unit, now)
        }
    }

    fn advance(&mut self, memory: &M, now: Duration) {
        self.wire.advance(memory, now);
    }

    fn takes(&self) -> bool {
        self.wire.takes()
    }

    fn flush(&mut self) {
        self.wire.flush();
    }

    #[inline]
    fn receive(&mut self, memory: &M, room: &[Span], now: Duration) -> Received {
        let received = if self.holds() {
            self.release(memory, room)
        } else {
            self.wire.receive(memory, room, now)
        };
        let Received::Unit { header, len } = received else {
            return received;
        };
        let joins = self.agreed & (TSO | feature::GUEST_UFO) != 0;
        if !joins || header.gso_type != GSO_NONE || is_whole_datagram(memory, room, len) {
            return received;
        }
        self.continued(memory, room, (header, len), now)
    }
}

/// True for a frame of UDP over IPv4, without a tag, that is no fragment: nothing is to be joined. Where it takes more than one access to find
/// out, false.
#[inline]
fn is_whole_datagram<M: GuestMemory>(memory: &M, spans: &[Span], len: usize) -> bool {
    /// From the EtherType to the protocol.
    const FROM: usize = 12;
    const TO: usize = 24;
    let Some(first) = spans.first().filter(|span| span.len as usize >= TO) else {
        return false;
    };
    // No overflow: the span lies in the guest's memory.
    let at = first.address.wrapping_add(FROM as u64);
    let Ok([kind, _, last]) = memory
        .read_words(at)
        .map(|words| words.map(u32::swap_bytes))
    else {
        return false;
    };
    // Version and length of its header are in the byte behind the EtherType.
    len >= TO
        && kind & 0xffff_ff00 == 0x0800_4500
        && last >> 16 & FRAGMENT == 0
        && last & 0xff == u32::from(UDP)
}

/// The first of `len` bytes in these spans, as many as there may be headers.
fn first_bytes<'a, M: GuestMemory>(
    memory: &M,
    spans: &[Span],
    len: usize,
    to: &'a mut [u8; MAX_HEAD],
) -> Option<&'a [u8]> {
    let bytes = to.get_mut(..len.min(MAX_HEAD))?;
    (gather(memory, spans, bytes) == Ok(true)).then_some(bytes)
}

#[cfg(test)]
mod tests;
