//! The driver's side of the rings, as simple as can be.

use core::sync::atomic::Ordering::Relaxed;
use std::collections::{BTreeMap, VecDeque};
use std::vec;
use std::vec::Vec;

use super::VecMemory;
use crate::card::{Card, Queue};
use crate::feature;
use crate::header::Header;
use crate::memory::{GuestMemory, Span};
use crate::ring::{RingFault, RingLayout, RingStart};
use crate::wire::Wire;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// A ring of a guest's.
#[derive(Debug)]
pub struct GuestRing {
    /// Where its parts lie in the guest's memory.
    pub layout: RingLayout,
    features: u64,
    free: VecDeque<u16>,
    /// Descriptors of the chains that the card has, by head.
    lent: BTreeMap<u16, Vec<u16>>,
    avail: u16,
    published: u16,
    used: u16,
}

impl GuestRing {
    /// Bytes that a ring of this size takes.
    #[must_use]
    pub fn len(size: u16) -> u64 {
        (16 + 2 + 8) * u64::from(size) + 16
    }

    /// An empty ring at `at`.
    #[must_use]
    pub fn new(at: u64, size: u16, features: u64) -> Self {
        let available = at + 16 * u64::from(size);
        let used = (available + 6 + 2 * u64::from(size)).next_multiple_of(4);
        Self {
            layout: RingLayout {
                size,
                descriptors: at,
                available,
                used,
            },
            features,
            free: (0..size).collect(),
            lent: BTreeMap::new(),
            avail: 0,
            published: 0,
            used: 0,
        }
    }

    fn describe(memory: &VecMemory, at: u64, span: Span, flags: u16, next: u16) {
        memory.write(at, &span.address.to_le_bytes()).unwrap();
        memory.write(at + 8, &span.len.to_le_bytes()).unwrap();
        memory.write(at + 12, &flags.to_le_bytes()).unwrap();
        memory.write(at + 14, &next.to_le_bytes()).unwrap();
    }

    /// Puts a chain of buffers into the ring; its head, or none when there are too few descriptors. With `table`, they are described there
    /// and in one descriptor of the ring.
    pub fn offer(
        &mut self,
        memory: &VecMemory,
        spans: &[Span],
        write: bool,
        table: Option<u64>,
    ) -> Option<u16> {
        let direction = if write { WRITE } else { 0 };
        let needed = if table.is_some() { 1 } else { spans.len() };
        if needed == 0 || self.free.len() < needed {
            return None;
        }
        let ids: Vec<u16> = self.free.drain(..needed).collect();
        let place = |n: usize| match table {
            Some(table) => (table + 16 * n as u64, n as u16 + 1),
            None => (
                self.layout.descriptors + 16 * u64::from(ids[n]),
                ids.get(n + 1).copied().unwrap_or(0),
            ),
        };
        for (n, span) in spans.iter().enumerate() {
            let (at, next) = place(n);
            let more = if n + 1 < spans.len() { NEXT } else { 0 };
            Self::describe(memory, at, *span, direction | more, next);
        }
        if let Some(address) = table {
            let at = self.layout.descriptors + 16 * u64::from(ids[0]);
            let len = 16 * spans.len() as u32;
            Self::describe(memory, at, Span { address, len }, INDIRECT, 0);
        }
        let slot = u64::from(self.avail % self.layout.size);
        let entry = self.layout.available + 4 + 2 * slot;
        memory.store(entry, ids[0], Relaxed).unwrap();
        self.avail = self.avail.wrapping_add(1);
        let head = ids[0];
        self.lent.insert(head, ids);
        Some(head)
    }

    /// Shows the card what was offered. True when it asks for a doorbell.
    pub fn publish(&mut self, memory: &VecMemory) -> bool {
        let before = std::mem::replace(&mut self.published, self.avail);
        let index = self.layout.available + 2;
        memory.store(index, self.avail, Relaxed).unwrap();
        if self.features & feature::EVENT_IDX == 0 {
            return before != self.avail
                && memory.load(self.layout.used, Relaxed).unwrap() & 1 == 0;
        }
        let event = self.layout.used + 4 + 8 * u64::from(self.layout.size);
        let event = memory.load(event, Relaxed).unwrap();
        self.avail.wrapping_sub(event).wrapping_sub(1) < self.avail.wrapping_sub(before)
    }

    /// Asks for a call for the next buffer that comes back, or forgoes calls.
    pub fn want_call(&self, memory: &VecMemory, wanted: bool) {
        if self.features & feature::EVENT_IDX == 0 {
            memory
                .store(self.layout.available, u16::from(!wanted), Relaxed)
                .unwrap();
        } else if wanted {
            let event = self.layout.available + 4 + 2 * u64::from(self.layout.size);
            memory.store(event, self.used, Relaxed).unwrap();
        }
    }

    /// Buffers that have come back, and nobody has taken.
    #[must_use]
    pub fn returned(&self, memory: &VecMemory) -> u16 {
        let index = memory.load(self.layout.used + 2, Relaxed).unwrap();
        index.wrapping_sub(self.used)
    }

    /// The next buffer that has come back, and how much of it was written.
    ///
    /// # Panics
    /// When the guest had not lent it.
    pub fn take(&mut self, memory: &VecMemory) -> Option<(u16, u32)> {
        if self.returned(memory) == 0 {
            return None;
        }
        let entry = self.layout.used + 4 + 8 * u64::from(self.used % self.layout.size);
        let mut bytes = [0; 8];
        memory.read(entry, &mut bytes).unwrap();
        let head = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        let head = u16::try_from(head).unwrap();
        let ids = self.lent.remove(&head).expect("a buffer that was not lent");
        self.free.extend(ids);
        self.used = self.used.wrapping_add(1);
        Some((head, u32::from_le_bytes(bytes[4..].try_into().unwrap())))
    }
}

/// A guest with a pair of queues.
#[derive(Debug)]
pub struct Guest {
    /// Memory that holds both rings and their buffers.
    pub memory: VecMemory,
    /// By which it receives.
    pub receive: GuestRing,
    /// By which it sends.
    pub transmit: GuestRing,
    features: u64,
    /// Where the buffers of both rings lie, `BUFFER` bytes for each descriptor.
    buffers: [u64; 2],
    /// Receive buffers that the card has, by head.
    lent: BTreeMap<u16, Vec<Span>>,
}

/// Room for what a descriptor describes.
const BUFFER: u64 = 0x1_1000;
const BASE: u64 = 0x10_0000;

impl Guest {
    /// A guest with rings of `size` entries.
    #[must_use]
    pub fn new(size: u16, features: u64) -> Self {
        let ring = GuestRing::len(size).next_multiple_of(64);
        let buffers = BUFFER * u64::from(size);
        let memory = VecMemory::new(BASE, (2 * (ring + buffers)) as usize);
        Self {
            memory,
            receive: GuestRing::new(BASE, size, features),
            transmit: GuestRing::new(BASE + ring, size, features),
            features,
            buffers: [BASE + 2 * ring, BASE + 2 * ring + buffers],
            lent: BTreeMap::new(),
        }
    }

    /// Addresses of memory that it uses for nothing.
    #[must_use]
    pub fn spare(&self) -> core::ops::Range<u64> {
        // What it sends is shorter.
        let first = self.buffers[1];
        first + BUFFER / 2..first + BUFFER
    }

    /// How its queue starts.
    #[must_use]
    pub fn start_of(&self, queue: Queue, base: u16) -> RingStart {
        let ring = match queue {
            Queue::Receive => &self.receive,
            Queue::Transmit => &self.transmit,
        };
        RingStart {
            layout: ring.layout,
            base,
            features: self.features,
        }
    }

    /// Starts both queues of a card.
    ///
    /// # Errors
    /// [`RingFault`].
    pub fn start<W: Wire<VecMemory>>(&self, card: &mut Card<W>) -> Result<(), RingFault> {
        for queue in [Queue::Receive, Queue::Transmit] {
            card.start(&self.memory, queue, self.start_of(queue, 0))?;
        }
        Ok(())
    }

    /// Offers a receive buffer in pieces of these lengths. True when there was room.
    pub fn offer(&mut self, pieces: &[u32]) -> bool {
        let Some(&id) = self.receive.free.front() else {
            return false;
        };
        let spans = pieces_at(self.buffers[0] + BUFFER * u64::from(id), pieces);
        match self.receive.offer(&self.memory, &spans, true, None) {
            Some(head) => {
                self.lent.insert(head, spans);
                true
            }
            None => false,
        }
    }

    /// What has been received: header, frame and the number of buffers that it was in.
    ///
    /// # Panics
    /// When the card breaks the rules.
    pub fn received(&mut self) -> Option<(Header, Vec<u8>, u16)> {
        let (mut bytes, len) = self.take_received()?;
        let header_len = Header::len(self.features);
        assert!(bytes.len() >= header_len, "a unit without its header");
        assert_eq!(bytes.len(), len as usize);
        let header = Header::parse(bytes[..Header::LEN].try_into().unwrap());
        let mut count = 1;
        if header_len > Header::LEN {
            count = u16::from_le_bytes([bytes[10], bytes[11]]);
            assert!(count >= 1, "a unit in no buffer");
            assert!(
                count == 1 || self.features & feature::MRG_RXBUF != 0,
                "more buffers than agreed on"
            );
        }
        for _ in 1..count {
            // All of a unit appears at once.
            let (more, _) = self.take_received().expect("half a unit");
            bytes.extend(more);
        }
        Some((header, bytes[header_len..].to_vec(), count))
    }

    fn take_received(&mut self) -> Option<(Vec<u8>, u32)> {
        let (head, len) = self.receive.take(&self.memory)?;
        let spans = self.lent.remove(&head).unwrap();
        let mut bytes = Vec::new();
        for span in spans {
            let mut piece = vec![0; (span.len as usize).min(len as usize - bytes.len())];
            self.memory.read(span.address, &mut piece).unwrap();
            bytes.extend(piece);
        }
        Some((bytes, len))
    }

    /// Puts a frame with its header, in pieces of these lengths and the rest, into the transmit ring. True when there was room.
    pub fn send(&mut self, header: Header, frame: &[u8], pieces: &[u32], indirect: bool) -> bool {
        let Some(&id) = self.transmit.free.front() else {
            return false;
        };
        let mut bytes = header.emit().to_vec();
        bytes.resize(Header::len(self.features), 0);
        bytes.extend_from_slice(frame);
        let at = self.buffers[1] + BUFFER * u64::from(id);
        let mut left = bytes.len() as u32;
        let mut lengths: Vec<u32> = Vec::new();
        for piece in pieces {
            let piece = left.min(*piece);
            lengths.push(piece);
            left -= piece;
        }
        lengths.push(left);
        let spans = pieces_at(at, &lengths);
        let mut from = &bytes[..];
        for span in &spans {
            let (now, rest) = from.split_at(span.len as usize);
            self.memory.write(span.address, now).unwrap();
            from = rest;
        }
        // The table lies where no frame reaches.
        let table = indirect.then_some(at + BUFFER - 0x800);
        self.transmit
            .offer(&self.memory, &spans, false, table)
            .is_some()
    }
}

/// Spans of these lengths, a byte apart, so that what runs over is noticed.
fn pieces_at(at: u64, pieces: &[u32]) -> Vec<Span> {
    let mut address = at;
    pieces
        .iter()
        .map(|&len| {
            let span = Span { address, len };
            address += u64::from(len) + 1;
            span
        })
        .collect()
}
