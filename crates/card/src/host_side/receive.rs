//! From the wire to the guest.

use alloc::vec::Vec;

use crate::feature;
use crate::header::Header;
use crate::memory::{GuestMemory, Span, behind, scatter};
use crate::ring::{Chain, Direction, MAX_RING, Ring, RingFault, RingStart};

/// The guest's empty buffers.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub ring: Ring,
    features: u64,
    /// Chains that the next units may fill, in order, and how many of the buffers are each one's.
    chains: Vec<(Chain, usize)>,
    /// Where the chains lie, in order, without empty buffers.
    spans: Vec<Span>,
    /// The same behind the header.
    room: Vec<Span>,
}

/// What became of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    Yes,
    /// The guest has not agreed to what its header says. Its buffers are the next unit's.
    NotAgreed,
    /// It is longer than the room was. Its buffers are the next unit's.
    TooLong,
}

impl ReceiveQueue {
    pub(crate) fn start<M: GuestMemory>(memory: &M, start: RingStart) -> Result<Self, RingFault> {
        Ok(Self {
            ring: Ring::start(memory, start, Direction::ToGuest)?,
            features: start.features,
            chains: Vec::with_capacity(MAX_RING.into()),
            spans: Vec::with_capacity(MAX_RING.into()),
            room: Vec::with_capacity(MAX_RING.into()),
        })
    }

    /// The guest's buffers for a unit of up to `least` bytes, or all if its ring is full; none when there are too few. More, up to `most`, where
    /// they are there. The same ones come first until [`Self::deliver`]. Without MRG_RXBUF they are one chain's, as long as that may be.
    pub(crate) fn room<M: GuestMemory>(
        &mut self,
        memory: &M,
        least: usize,
        most: usize,
    ) -> Result<Option<&[Span]>, RingFault> {
        let found = if self.chains.is_empty() || self.mergeable() {
            self.reserve(memory, least, most)?
        } else {
            true
        };
        Ok(found.then_some(&self.room))
    }

    fn mergeable(&self) -> bool {
        self.features & feature::MRG_RXBUF != 0
    }

    /// Takes a look at more chains. False when there is too little room.
    fn reserve<M: GuestMemory>(
        &mut self,
        memory: &M,
        least: usize,
        most: usize,
    ) -> Result<bool, RingFault> {
        let header = Header::len(self.features);
        let mut total: usize = self.spans.iter().map(|span| span.len as usize).sum();
        while self.chains.is_empty() || (self.mergeable() && total < header + most) {
            let count = self.chains.len() as u16;
            if self.ring.available(memory, count + 1)? <= count {
                // A guest whose whole ring is shorter has nothing to add.
                let all = self.spans.len() >= self.ring.size().into();
                if count != 0 && (all || total >= header + least) {
                    break;
                }
                return Ok(false);
            }
            let before = self.spans.len();
            let chain = self.ring.chain(memory, count, &mut self.spans)?;
            // An empty chain would be one more for nothing, the first has the header.
            if (chain.len as usize) < if count == 0 { header } else { 1 } {
                return Err(RingFault::TooShort);
            }
            total += chain.len as usize;
            self.chains.push((chain, self.spans.len() - before));
        }
        behind(&self.spans, header as u32, &mut self.room);
        Ok(true)
    }

    /// Gives the guest the unit of `len` bytes that was written to the room. The guest sees it after [`Ring::publish`].
    pub(crate) fn deliver<M: GuestMemory>(
        &mut self,
        memory: &M,
        header: Header,
        len: usize,
    ) -> Result<Delivered, RingFault> {
        let Some(header) = header.arriving(self.features, len) else {
            return Ok(Delivered::NotAgreed);
        };
        let header_len = Header::len(self.features);
        let room: usize = self.room.iter().map(|span| span.len as usize).sum();
        if len > room {
            return Ok(Delivered::TooLong);
        }
        let mut left = header_len + len;
        let (mut count, mut buffers) = (0u16, 0);
        for (chain, spans) in &self.chains {
            if left == 0 {
                break;
            }
            let part = left.min(chain.len as usize);
            self.ring.put_used(memory, chain.head, part as u32)?;
            left -= part;
            count += 1;
            buffers += spans;
        }
        let (header, told) = match &mut self.ring.liar {
            None => (header, count),
            Some(liar) => {
                let checksums = self.features & feature::GUEST_CSUM != 0;
                let told = liar.describe(memory, &self.spans, (header, count), checksums);
                liar.end_unit();
                told
            }
        };
        let mut bytes = [0; Header::LEN + 2];
        let (first, last) = bytes.split_at_mut(Header::LEN);
        first.copy_from_slice(&header.emit());
        last.copy_from_slice(&told.to_le_bytes());
        let bytes = bytes.get(..header_len).unwrap_or_default();
        scatter(memory, &self.spans, bytes)?;
        self.ring.take(count);
        self.chains.drain(..usize::from(count));
        self.spans.drain(..buffers);
        Ok(Delivered::Yes)
    }
}
