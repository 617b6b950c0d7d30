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
    /// Chains that the next unit may fill, in order.
    chains: Vec<Chain>,
    /// Their buffers.
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

    /// The guest's buffers for a unit of up to `len` bytes; none when it has too few. The same ones until [`Self::deliver`]. Without
    /// MRG_RXBUF they are one chain's, as long as that may be.
    pub(crate) fn room<M: GuestMemory>(
        &mut self,
        memory: &M,
        len: usize,
    ) -> Result<Option<&[Span]>, RingFault> {
        if self.chains.is_empty() && !self.reserve(memory, len)? {
            self.chains.clear();
            return Ok(None);
        }
        Ok(Some(&self.room))
    }

    fn reserve<M: GuestMemory>(&mut self, memory: &M, len: usize) -> Result<bool, RingFault> {
        let header = Header::len(self.features);
        let mergeable = self.features & feature::MRG_RXBUF != 0;
        self.spans.clear();
        let mut total = 0;
        let mut count = 0;
        while count == 0 || (mergeable && total < header + len) {
            if self.ring.available(memory, count + 1)? <= count {
                return Ok(false);
            }
            let chain = self.ring.chain(memory, count, &mut self.spans)?;
            // An empty chain would be one more for nothing, the first has the header.
            if (chain.len as usize) < if count == 0 { header } else { 1 } {
                return Err(RingFault::TooShort);
            }
            self.chains.push(chain);
            total += chain.len as usize;
            count += 1;
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
        let mut count = 0u16;
        for chain in &self.chains {
            if left == 0 {
                break;
            }
            let part = left.min(chain.len as usize);
            self.ring.put_used(memory, chain.head, part as u32)?;
            left -= part;
            count += 1;
        }
        let mut bytes = [0; Header::LEN + 2];
        let (first, last) = bytes.split_at_mut(Header::LEN);
        first.copy_from_slice(&header.emit());
        last.copy_from_slice(&count.to_le_bytes());
        let bytes = bytes.get(..header_len).unwrap_or_default();
        scatter(memory, &self.spans, bytes)?;
        self.ring.take(count);
        self.chains.clear();
        Ok(Delivered::Yes)
    }
}
