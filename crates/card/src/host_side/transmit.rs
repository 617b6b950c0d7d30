//! From the guest to the wire.

use alloc::vec::Vec;

use crate::header::Header;
use crate::memory::{GuestMemory, Span, behind, gather};
use crate::ring::{Direction, MAX_RING, Ring, RingFault, RingStart};

/// The link header.
const MIN_FRAME: usize = 14;
/// A packet of IP as long as can be, and the link header with a tag.
pub const LONGEST_UNIT: usize = 65_535 + MIN_FRAME + 4;

/// A unit of the guest's, on loan: one frame, or what is to be cut to several.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    /// What the guest says of it, checked.
    pub header: Header,
    /// Its first bytes where the card has them itself: the headers of a frame that it has cut, or all of one that was on its way.
    pub head: &'a [u8],
    /// Its bytes behind those, in the guest's memory.
    pub spans: &'a [Span],
    /// All its bytes, link header included.
    pub len: usize,
}

/// What the guest has next.
pub(crate) enum Next<'a> {
    Nothing,
    Unit(Unit<'a>),
    /// No frame is so short or so long: there is nothing to send.
    BadLength,
}

/// The guest's full buffers.
#[derive(Debug)]
pub(crate) struct TransmitQueue {
    pub ring: Ring,
    features: u64,
    /// The number of the chain on loan.
    head: u16,
    /// Where that chain lies, header included, without empty buffers.
    spans: Vec<Span>,
    /// The same behind the header.
    frame: Vec<Span>,
}

impl TransmitQueue {
    pub(crate) fn start<M: GuestMemory>(memory: &M, start: RingStart) -> Result<Self, RingFault> {
        Ok(Self {
            ring: Ring::start(memory, start, Direction::FromGuest)?,
            features: start.features,
            head: 0,
            spans: Vec::with_capacity(MAX_RING.into()),
            frame: Vec::with_capacity(MAX_RING.into()),
        })
    }

    /// The next unit. Unless there is nothing, [`Self::done`] is to follow.
    pub(crate) fn next<M: GuestMemory>(&mut self, memory: &M) -> Result<Next<'_>, RingFault> {
        if self.ring.available(memory, 1)? == 0 {
            return Ok(Next::Nothing);
        }
        self.spans.clear();
        let chain = self.ring.chain(memory, 0, &mut self.spans)?;
        self.head = chain.head;
        let mut bytes = [0; Header::LEN];
        gather(memory, &self.spans, &mut bytes)?;
        let header_len = Header::len(self.features);
        let len = (chain.len as usize)
            .checked_sub(header_len)
            .ok_or(RingFault::TooShort)?;
        if !(MIN_FRAME..=LONGEST_UNIT).contains(&len) {
            return Ok(Next::BadLength);
        }
        let header = Header::parse(bytes)
            .leaving(self.features, len)
            .ok_or(RingFault::Header)?;
        behind(&self.spans, header_len as u32, &mut self.frame);
        Ok(Next::Unit(Unit {
            header,
            head: &[],
            spans: &self.frame,
            len,
        }))
    }

    /// Gives the buffers of the last unit back. The guest sees them after [`Ring::publish`].
    pub(crate) fn done<M: GuestMemory>(&mut self, memory: &M) -> Result<(), RingFault> {
        self.ring.put_used(memory, self.head, 0)?;
        if let Some(liar) = &mut self.ring.liar {
            liar.end_unit();
        }
        self.ring.take(1);
        Ok(())
    }
}
