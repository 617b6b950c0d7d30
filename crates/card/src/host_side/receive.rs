//! From the wire to the guest.

use alloc::collections::VecDeque;

use wireboot_wire::card::placement::{NOTE_LEN, Note};
use wireboot_wire::card::{MARK, chunk};

use super::buffers::Buffers;
use crate::feature;
use crate::header::{DATA_VALID, Header, NEEDS_CSUM};
use crate::memory::{GuestMemory, Span, scatter_at};
use crate::ring::{Chain, Direction, MAX_RING, Ring, RingFault, RingStart};

/// A frame of Ethernet, tagged, with its check sequence: a buffer with less room takes no further unit of a chunk, so that only
/// longer ones go on in the next buffer.
const ORDINARY: usize = 1522;

/// Bytes of a header with a number of buffers.
const LONG: usize = Header::LEN + 2;

/// The guest's empty buffers.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub ring: Ring,
    features: u64,
    /// Bytes of a header.
    header_len: usize,
    /// The guest takes chunks.
    chunks: bool,
    /// Chains that the next units may fill, in order, and how many of the buffers are each one's.
    chains: VecDeque<(Chain, usize)>,
    buffers: Buffers,
    /// Bytes in `buffers`.
    total: usize,
    /// Where the next unit's header is to be.
    at: usize,
    /// [`Buffers::room`] is what lies behind that header.
    ready: bool,
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
            header_len: Header::len(start.features),
            chunks: false,
            chains: VecDeque::with_capacity(MAX_RING.into()),
            buffers: Buffers::new(),
            total: 0,
            at: 0,
            ready: false,
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
    #[inline]
    pub(crate) fn room<M: GuestMemory>(
        &mut self,
        memory: &M,
        least: usize,
        most: usize,
    ) -> Result<Option<&[Span]>, RingFault> {
        self.least = least;
        let enough = self.room_len() >= most || !self.mergeable();
        let found = (self.ready && enough) || self.reserve(memory, least, most)?;
        Ok(found.then_some(self.buffers.room()))
    }

    /// What [`Self::room`] has found last.
    #[inline]
    pub(crate) fn found(&self) -> &[Span] {
        self.buffers.room()
    }

    /// Bytes behind the next unit's header.
    #[inline]
    pub(crate) fn room_len(&self) -> usize {
        self.total.saturating_sub(self.at + self.header_len)
    }

    #[inline]
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
        while self.chains.is_empty() || (self.mergeable() && self.room_len() < most) {
            let count = self.chains.len() as u16;
            if self.ring.available(memory, count + 1)? <= count {
                // A guest whose whole ring is shorter has nothing to add.
                let all = self.open.is_none() && self.buffers.len() >= self.ring.size().into();
                if count != 0 && (all || self.room_len() >= least) {
                    break;
                }
                return Ok(false);
            }
            let (chain, spans) = self.buffers.add(&self.ring, memory, count)?;
            // An empty chain would be one more for nothing, the first has the header.
            let needed = if count == 0 { self.header_len } else { 1 };
            if (chain.len as usize) < needed {
                return Err(RingFault::TooShort);
            }
            self.total += chain.len as usize;
            self.chains.push_back((chain, spans));
        }
        if !self.ready {
            self.buffers
                .keep_room_behind((self.at + self.header_len) as u32);
            self.ready = true;
        }
        Ok(true)
    }

    /// Gives the guest the unit of `len` bytes that was written to the room. The guest sees it after [`Ring::publish`], and with chunks
    /// after [`Self::close`].
    #[inline]
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
        scatter_at(memory, self.buffers.room(), len, &note.emit())?;
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
    #[inline]
    fn go_to(&mut self, next: usize) {
        let step = (next - self.at) as u32;
        self.at = next;
        self.ready = self.buffers.skip(step);
    }

    /// Another unit may follow one of `len` bytes in its buffer, with its header at `next`.
    #[inline]
    fn may_follow(&self, next: usize, len: usize) -> bool {
        let Some((chain, _)) = self.chains.front().filter(|_| self.chunks) else {
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
        let mut left = placed.at + self.header_len + placed.len;
        let (mut count, mut buffers) = (0u16, 0);
        while left != 0
            && let Some((chain, spans)) = self.chains.pop_front()
        {
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
                let told = liar.describe(
                    memory,
                    self.buffers.all(),
                    (placed.header, count),
                    checksums,
                );
                liar.end_unit();
                told
            }
        };
        self.write(memory, placed.at, header, told)?;
        if count > 1 && placed.at != 0 {
            // The first header tells, too.
            scatter_at(memory, self.buffers.all(), Header::LEN, &told.to_le_bytes())?;
        }
        self.ring.take(count);
        self.buffers.give_back(buffers);
        self.ready = false;
        self.at = 0;
        Ok(())
    }

    /// Writes a unit's header, `count` buffers with it.
    #[inline]
    fn write<M: GuestMemory>(
        &self,
        memory: &M,
        at: usize,
        header: Header,
        count: u16,
    ) -> Result<(), RingFault> {
        let all = self.buffers.all();
        let words = header.words(count);
        match all.first() {
            // Nearly always.
            Some(first) if self.header_len == LONG && at + LONG <= first.len as usize => {
                // No overflow: the span lies in the guest's memory.
                memory.write_words(first.address.wrapping_add(at as u64), words)?;
            }
            _ => self.write_in_parts(memory, at, words)?,
        }
        Ok(())
    }

    /// The same for a short header, or one that lies in several buffers.
    #[cold]
    fn write_in_parts<M: GuestMemory>(
        &self,
        memory: &M,
        at: usize,
        words: [u32; LONG / 4],
    ) -> Result<(), RingFault> {
        let bytes = words.map(u32::to_le_bytes);
        let bytes = bytes.as_flattened().get(..self.header_len);
        scatter_at(memory, self.buffers.all(), at, bytes.unwrap_or_default())?;
        Ok(())
    }
}
