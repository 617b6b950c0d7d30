//! From the guest to the wire.

use alloc::vec::Vec;

use wireboot_wire::card::chunk;

use super::receive::ChunkCounters;
use crate::header::Header;
use crate::memory::{GuestMemory, Span, behind, gather, keep};
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
    pub features: u64,
    /// Its units are lost.
    pub discards: bool,
    /// The number of the chain on loan, and its bytes.
    head: u16,
    len: usize,
    /// Where the next unit's header is in it, if one follows the last unit.
    at: usize,
    follows: bool,
    counters: ChunkCounters,
    /// Where that chain lies, header included, without empty buffers.
    spans: Vec<Span>,
    /// Where the unit on loan lies.
    frame: Vec<Span>,
    /// Where what is left of the chain lies.
    rest: Vec<Span>,
}

impl TransmitQueue {
    pub(crate) fn start<M: GuestMemory>(memory: &M, start: RingStart) -> Result<Self, RingFault> {
        Ok(Self {
            ring: Ring::start(memory, start, Direction::FromGuest)?,
            features: start.features,
            discards: false,
            head: 0,
            len: 0,
            at: 0,
            follows: false,
            counters: ChunkCounters::default(),
            spans: Vec::with_capacity(MAX_RING.into()),
            frame: Vec::with_capacity(MAX_RING.into()),
            rest: Vec::with_capacity(MAX_RING.into()),
        })
    }

    /// Chunks since this was last asked.
    pub(crate) fn take_counters(&mut self) -> ChunkCounters {
        core::mem::take(&mut self.counters)
    }

    /// The next unit. Unless there is nothing, [`Self::done`] is to follow when it does not say that more of a chunk follows.
    pub(crate) fn next<M: GuestMemory>(&mut self, memory: &M) -> Result<Next<'_>, RingFault> {
        let header_len = Header::len(self.features);
        if !self.follows {
            if self.ring.available(memory, 1)? == 0 {
                return Ok(Next::Nothing);
            }
            self.spans.clear();
            let chain = self
                .ring
                .chain(memory, 0, &mut self.spans, MAX_RING.into())?;
            self.head = chain.head;
            self.len = chain.len as usize;
            self.at = 0;
        }
        behind(&self.spans, self.at as u32, &mut self.rest);
        let mut bytes = [0; Header::LEN];
        gather(memory, &self.rest, &mut bytes)?;
        let mut header = Header::parse(bytes);
        let mut len = (self.len - self.at)
            .checked_sub(header_len)
            .ok_or(RingFault::TooShort)?;
        // Agreed on or not: no other driver sets the bit, and one whose card was started again goes on to.
        let more = header_len == chunk::HEADER_LEN && header.flags & chunk::MORE != 0;
        if more {
            len = header.hdr_len.into();
            // virtio-net's hint has no place here.
            header.hdr_len = 0;
            let next = chunk::next(self.at, len, self.len).ok_or(RingFault::Header)?;
            self.counters.chunks += u64::from(self.at == 0);
            self.at = next;
        }
        if more || self.follows {
            self.counters.units += 1;
        }
        self.follows = more;
        if !(MIN_FRAME..=LONGEST_UNIT).contains(&len) {
            return Ok(Next::BadLength);
        }
        let header = header
            .leaving(self.features, len)
            .ok_or(RingFault::Header)?;
        behind(&self.rest, header_len as u32, &mut self.frame);
        keep(&mut self.frame, len);
        Ok(Next::Unit(Unit {
            header,
            head: &[],
            spans: &self.frame,
            len,
        }))
    }

    /// The next unit is in the same chain.
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// Gives the buffers of the last chain back. The guest sees them after [`Ring::publish`].
    pub(crate) fn done<M: GuestMemory>(&mut self, memory: &M) -> Result<(), RingFault> {
        self.ring.put_used(memory, self.head, 0)?;
        if let Some(liar) = &mut self.ring.liar {
            liar.end_unit();
        }
        self.ring.take(1);
        Ok(())
    }
}
