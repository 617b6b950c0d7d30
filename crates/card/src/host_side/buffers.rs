//! Where the guest's buffers lie, from the first that was not given back.

use alloc::vec::Vec;

use crate::memory::{GuestMemory, Span};
use crate::ring::{Chain, MAX_RING, Ring, RingFault};

/// Buffers at once, at most.
const MOST: usize = MAX_RING as usize;

/// Buffers in order, without empty ones. They are not moved when others are given back.
#[derive(Debug)]
pub(super) struct Buffers {
    spans: Vec<Span>,
    /// The same as far as a unit may fill them, each at the same place.
    room: Vec<Span>,
    /// The first that was not given back, at most [`MOST`].
    first: usize,
    /// The first in which there is room.
    first_room: usize,
}

impl Buffers {
    /// Room for [`MOST`] that are with the card and as many that were given back, so that nothing is allocated later.
    pub(super) fn new() -> Self {
        Self {
            spans: Vec::with_capacity(2 * MOST),
            room: Vec::with_capacity(2 * MOST),
            first: 0,
            first_room: 0,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.spans.len() - self.first
    }

    /// All that were not given back.
    #[inline]
    pub(super) fn all(&self) -> &[Span] {
        self.spans.get(self.first..).unwrap_or_default()
    }

    /// What of them a unit may fill.
    #[inline]
    pub(super) fn room(&self) -> &[Span] {
        self.room.get(self.first_room..).unwrap_or_default()
    }

    /// Adds those of the `n`th available chain: the chain, and how many they are.
    #[inline]
    pub(super) fn add<M: GuestMemory>(
        &mut self,
        ring: &Ring,
        memory: &M,
        n: u16,
    ) -> Result<(Chain, usize), RingFault> {
        let before = self.spans.len();
        let chain = ring.chain(memory, n, &mut self.spans, self.first + MOST)?;
        let added = self.spans.get(before..).unwrap_or_default();
        if let [one] = added {
            // Nearly always.
            self.room.push(*one);
        } else {
            self.room.extend_from_slice(added);
        }
        Ok((chain, added.len()))
    }

    /// A unit may fill all but the first `skip` bytes.
    #[inline]
    pub(super) fn keep_room_behind(&mut self, skip: u32) {
        let mut skip = skip;
        let mut full = 0;
        let room = self.room.get_mut(self.first..).unwrap_or_default();
        let spans = self.spans.get(self.first..).unwrap_or_default();
        for (room, span) in room.iter_mut().zip(spans) {
            let cut = skip.min(span.len);
            *room = Span {
                // No overflow: the span lies in the guest's memory.
                address: span.address.wrapping_add(cut.into()),
                len: span.len - cut,
            };
            skip -= cut;
            if room.len != 0 {
                break;
            }
            full += 1;
        }
        self.first_room = self.first + full;
    }

    /// A unit may not fill the next `step` bytes either. False when they are not in one buffer, or fill it: [`Self::keep_room_behind`] is to
    /// tell.
    #[inline]
    pub(super) fn skip(&mut self, step: u32) -> bool {
        match self.room.get_mut(self.first_room) {
            Some(room) if room.len > step => {
                room.address = room.address.wrapping_add(step.into());
                room.len -= step;
                true
            }
            _ => false,
        }
    }

    /// The first `count` are the guest's again.
    #[inline]
    pub(super) fn give_back(&mut self, count: usize) {
        self.first += count;
        if self.first == self.spans.len() {
            self.spans.clear();
            self.room.clear();
            self.first = 0;
        } else if self.first > MOST {
            self.spans.drain(..self.first);
            self.room.drain(..self.first);
            self.first = 0;
        }
        self.first_room = self.first;
    }
}
