//! From the wire to the guest.

use alloc::vec::Vec;

use wireboot_wire::card::placement::{NOTE_LEN, Note};
use wireboot_wire::card::{MARK, chunk};

use crate::feature;
use crate::header::{DATA_VALID, Header, NEEDS_CSUM};
use crate::memory::{GuestMemory, Span, behind, scatter_at};
use crate::ring::{Chain, Direction, MAX_RING, Ring, RingFault, RingStart};

/// A frame of Ethernet, tagged, with its check sequence: a buffer with less room takes no further unit of a chunk, so that only
/// longer ones go on in the next buffer.
const ORDINARY: usize = 1522;

/// The guest's empty buffers.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub ring: Ring,
    features: u64,
    /// The guest takes chunks.
    chunks: bool,
    /// Chains that the next units may fill, in order, and how many of the buffers are each one's.
    chains: Vec<(Chain, usize)>,
    /// Where the chains lie, in order, without empty buffers.
    spans: Vec<Span>,
    /// Bytes of them.
    total: usize,
    /// The same behind the next unit's header; empty when that is to be found out.
    room: Vec<Span>,
    /// Where the next unit's header is to be.
    at: usize,
    /// What the wire may fill at once, when last asked for.
    least: usize,
    /// The last unit in the first chain, which others may follow; its header is not written yet.
    open: Option<Placed>,
    /// Units of the chunk that [`Self::open`] is the last one of.
    units: u64,
    counters: ChunkCounters,
}

/// A unit in the guest's buffers.
#[derive(Clone, Copy, Debug)]
struct Placed {
    header: Header,
    /// Where its header is to be.
    at: usize,
    len: usize,
}

/// Chunks of more than one unit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChunkCounters {
    pub chunks: u64,
    pub units: u64,
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
            chunks: false,
            chains: Vec::with_capacity(MAX_RING.into()),
            spans: Vec::with_capacity(MAX_RING.into()),
            total: 0,
            room: Vec::with_capacity(MAX_RING.into()),
            at: 0,
            least: 0,
            open: None,
            units: 0,
            counters: ChunkCounters::default(),
        })
    }

    /// Several units may come in one buffer, which [`Self::close`] ends, or none may.
    pub(crate) fn set_chunks(&mut self, chunks: bool) {
        self.chunks = chunks;
    }

    /// Chunks since this was last asked.
    pub(crate) fn take_counters(&mut self) -> ChunkCounters {
        core::mem::take(&mut self.counters)
    }

    /// The guest's buffers for a unit of up to `least` bytes, or all if its ring is full; none when there are too few. More, up to `most`, where
    /// they are there. The same ones come first until [`Self::deliver`]. Without MRG_RXBUF they are one chain's, as long as that may be.
    pub(crate) fn room<M: GuestMemory>(
        &mut self,
        memory: &M,
        least: usize,
        most: usize,
    ) -> Result<Option<&[Span]>, RingFault> {
        self.least = least;
        let there = self.room_len();
        let found = if self.room.is_empty() || there < most && self.mergeable() {
            self.reserve(memory, least, most)?
        } else {
            true
        };
        Ok(found.then_some(&self.room))
    }

    /// What [`Self::room`] has found last.
    pub(crate) fn found(&self) -> &[Span] {
        &self.room
    }

    /// Bytes behind the next unit's header.
    fn room_len(&self) -> usize {
        self.total
            .saturating_sub(self.at + Header::len(self.features))
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
        while self.chains.is_empty() || (self.mergeable() && self.room_len() < most) {
            let count = self.chains.len() as u16;
            if self.ring.available(memory, count + 1)? <= count {
                // A guest whose whole ring is shorter has nothing to add.
                let all = self.open.is_none() && self.spans.len() >= self.ring.size().into();
                if count != 0 && (all || self.room_len() >= least) {
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
            self.total += chain.len as usize;
            self.chains.push((chain, self.spans.len() - before));
        }
        behind(&self.spans, (self.at + header) as u32, &mut self.room);
        Ok(true)
    }

    /// Gives the guest the unit of `len` bytes that was written to the room. The guest sees it after [`Ring::publish`], and with chunks
    /// after [`Self::close`].
    pub(crate) fn deliver<M: GuestMemory>(
        &mut self,
        memory: &M,
        header: Header,
        len: usize,
    ) -> Result<Delivered, RingFault> {
        let Some(header) = header.arriving(self.features, len) else {
            return Ok(Delivered::NotAgreed);
        };
        self.put(memory, header, len)
    }

    /// Gives the guest `len` bytes that were written to the buffers, and the note behind them, marked as the card's own word.
    pub(crate) fn note<M: GuestMemory>(
        &mut self,
        memory: &M,
        len: usize,
        header: Header,
        note: Note,
    ) -> Result<Delivered, RingFault> {
        let checked = header.flags & (NEEDS_CSUM | DATA_VALID) != 0;
        let header = Header {
            flags: if checked { DATA_VALID } else { 0 },
            gso_type: MARK,
            ..Header::default()
        };
        if len + NOTE_LEN > self.room_len() {
            return Ok(Delivered::TooLong);
        }
        scatter_at(memory, &self.room, len, &note.emit())?;
        self.put(memory, header, len + NOTE_LEN)
    }

    /// The same with a header that is the card's own affair.
    pub(crate) fn put<M: GuestMemory>(
        &mut self,
        memory: &M,
        header: Header,
        len: usize,
    ) -> Result<Delivered, RingFault> {
        if len > self.room_len() {
            return Ok(Delivered::TooLong);
        }
        if let Some(before) = self.open {
            let header = Header {
                flags: before.header.flags | chunk::MORE,
                // It ends in the first chain.
                hdr_len: before.len as u16,
                ..before.header
            };
            self.write(memory, before.at, header, 1)?;
        }
        let at = self.at;
        self.open = Some(Placed { header, at, len });
        self.units += 1;
        let next = chunk::behind(at, len);
        if self.may_follow(next, len) {
            self.go_to(next);
        } else {
            self.close(memory)?;
        }
        Ok(Delivered::Yes)
    }

    /// The next unit's header is to be at `next`, in the first chain.
    fn go_to(&mut self, next: usize) {
        let step = (next - self.at) as u32;
        self.at = next;
        match self.room.first_mut() {
            Some(first) if first.len > step => {
                first.address = first.address.wrapping_add(step.into());
                first.len -= step;
            }
            _ => self.room.clear(),
        }
    }

    /// Another unit may follow one of `len` bytes in its buffer, with its header at `next`.
    fn may_follow(&self, next: usize, len: usize) -> bool {
        let Some((chain, _)) = self.chains.first().filter(|_| self.chunks) else {
            return false;
        };
        let needed = if self.mergeable() {
            self.least.min(ORDINARY)
        } else {
            self.least
        };
        let needed = chunk::HEADER_LEN + needed.max(chunk::FIRST_PART_MIN);
        let described = (chunk::UNIT_MIN..=u16::MAX.into()).contains(&len);
        described && next + needed <= chain.len as usize
    }

    /// Ends the chunk, if there is one: the guest sees it after [`Ring::publish`].
    pub(crate) fn close<M: GuestMemory>(&mut self, memory: &M) -> Result<(), RingFault> {
        let Some(placed) = self.open.take() else {
            return Ok(());
        };
        let units = core::mem::take(&mut self.units);
        if units > 1 {
            self.counters.chunks += 1;
            self.counters.units += units;
        }
        let mut left = placed.at + Header::len(self.features) + placed.len;
        let (mut count, mut buffers) = (0u16, 0);
        for (chain, spans) in &self.chains {
            if left == 0 {
                break;
            }
            let part = left.min(chain.len as usize);
            self.ring.put_used(memory, chain.head, part as u32)?;
            self.total -= chain.len as usize;
            left -= part;
            count += 1;
            buffers += spans;
        }
        let (header, told) = match &mut self.ring.liar {
            None => (placed.header, count),
            Some(liar) => {
                let checksums = self.features & feature::GUEST_CSUM != 0;
                let told = liar.describe(memory, &self.spans, (placed.header, count), checksums);
                liar.end_unit();
                told
            }
        };
        self.write(memory, placed.at, header, told)?;
        if count > 1 && placed.at != 0 {
            // The first header tells, too.
            scatter_at(memory, &self.spans, Header::LEN, &told.to_le_bytes())?;
        }
        self.ring.take(count);
        self.chains.drain(..usize::from(count));
        self.spans.drain(..buffers);
        self.room.clear();
        self.at = 0;
        Ok(())
    }

    /// Writes a unit's header, `count` buffers with it.
    fn write<M: GuestMemory>(
        &self,
        memory: &M,
        at: usize,
        header: Header,
        count: u16,
    ) -> Result<(), RingFault> {
        let mut bytes = [0; Header::LEN + 2];
        let (first, last) = bytes.split_at_mut(Header::LEN);
        first.copy_from_slice(&header.emit());
        last.copy_from_slice(&count.to_le_bytes());
        let len = Header::len(self.features);
        let bytes = bytes.get(..len).unwrap_or_default();
        scatter_at(memory, &self.spans, at, bytes)?;
        Ok(())
    }
}
