//! What a card does wrong on purpose, where it gives buffers back. Nothing of it is on the way of a card that tells the truth.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::time::Duration;

use super::{Ring, RingFault};
use crate::header::{DATA_VALID, Header};
use crate::memory::{GuestMemory, Span, behind};
use crate::model::Random;

/// How long a buffer is kept that comes back late.
const LATE: Duration = Duration::from_millis(20);
/// Of the units from the place on, every such one is kept, lost or changed.
const EVERY: u32 = 16;
/// The place is among so many first buffers or units.
const PLACES: u64 = 256;

/// A way to break the rules of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Once, the used index is ahead of the buffers that came back.
    UsedIndex,
    /// Once, a buffer comes back that the ring does not have.
    ForeignBuffer,
    /// Once, a buffer comes back twice.
    RepeatedBuffer,
    /// Once, more was written than the buffer has room for.
    Length,
    /// Once, a unit lies in more buffers than came back, or in none.
    BufferCount,
    /// Every 16th unit is damaged, and said to be right.
    Checksum,
    /// Every 16th unit's buffers never come back.
    Lost,
    /// Every 16th unit's buffers come back 20 ms late.
    Late,
    /// Units whose buffers come back together do so in the wrong order.
    Order,
    /// From a buffer on, none comes back, and none is looked at.
    Silence,
}

impl Lie {
    /// All, by names for people.
    pub const NAMED: [(&'static str, Self); 10] = [
        ("used-index", Self::UsedIndex),
        ("foreign-buffer", Self::ForeignBuffer),
        ("repeated-buffer", Self::RepeatedBuffer),
        ("length", Self::Length),
        ("buffer-count", Self::BufferCount),
        ("checksum", Self::Checksum),
        ("lost", Self::Lost),
        ("late", Self::Late),
        ("order", Self::Order),
        ("silence", Self::Silence),
    ];

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Which lies a card tells, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lies {
    told: u16,
    seed: u64,
}

impl Lies {
    /// These. The same seed tells them at the same places, drawn among the first 256 buffers and units of each start of a ring.
    #[must_use]
    pub fn new(lies: &[Lie], seed: u64) -> Self {
        let told = lies.iter().fold(0, |told, lie| told | lie.bit());
        Self { told, seed }
    }

    /// Who tells them on the next ring that starts; none where there are none.
    pub(crate) fn next(&mut self) -> Option<Liar> {
        if self.told == 0 {
            return None;
        }
        self.seed = self.seed.wrapping_add(1);
        let mut random = Random::new(self.seed);
        let place = random.below(PLACES) as u32;
        Some(Liar {
            told: self.told,
            random,
            place,
            count: 0,
            units: 0,
            now: Duration::ZERO,
            unit: Vec::new(),
            entries: Vec::new(),
            late: VecDeque::new(),
        })
    }
}

/// Tells lies on one ring.
#[derive(Debug)]
pub(crate) struct Liar {
    told: u16,
    random: Random,
    /// The number of the buffer, and of the unit, from which on it lies.
    place: u32,
    count: u32,
    units: u32,
    pub now: Duration,
    /// Identifiers and lengths of a unit's buffers that have come back, as they are to be told.
    unit: Vec<(u32, u32)>,
    /// What is to be told with the next [`Ring::publish`].
    entries: Vec<(u32, u32)>,
    late: VecDeque<(Duration, Vec<(u32, u32)>)>,
}

impl Liar {
    fn tells(&self, lie: Lie) -> bool {
        self.told & lie.bit() != 0
    }

    fn once(&self, lie: Lie) -> bool {
        self.tells(lie) && self.count == self.place
    }

    fn often(&self, lie: Lie) -> bool {
        let since = self.units.checked_sub(self.place);
        self.tells(lie) && since.is_some_and(|since| since % EVERY == 0)
    }

    /// True when the ring is looked at no more.
    pub(super) fn is_silent(&self) -> bool {
        self.tells(Lie::Silence) && self.count > self.place
    }

    /// True when a buffer is still to come back.
    pub(super) fn keeps(&self) -> bool {
        !self.late.is_empty()
    }

    /// A buffer of a unit comes back.
    pub(super) fn put(&mut self, size: u16, head: u16, len: u32) {
        let (mut id, mut told_len) = (u32::from(head), len);
        if self.once(Lie::ForeignBuffer) {
            id = u32::from(size) + self.random.below(0x1_0000) as u32;
        }
        if self.once(Lie::Length) {
            told_len = 0x10_0000 + self.random.below(0x10_0000) as u32;
        }
        if self.once(Lie::RepeatedBuffer) {
            self.unit.push((id, told_len));
        }
        self.unit.push((id, told_len));
        self.count = self.count.saturating_add(1);
    }

    /// All buffers of a unit have come back.
    pub(crate) fn end_unit(&mut self) {
        let unit = core::mem::take(&mut self.unit);
        if self.often(Lie::Lost) {
        } else if self.often(Lie::Late) {
            self.late.push_back((self.now + LATE, unit));
        } else if self.tells(Lie::Order) {
            self.entries.splice(0..0, unit);
        } else {
            self.entries.extend(unit);
        }
        self.units = self.units.saturating_add(1);
    }

    /// What a unit's header is to say, and the number of its buffers. Damages the unit, which lies in these spans.
    pub(crate) fn describe<M: GuestMemory>(
        &mut self,
        memory: &M,
        spans: &[Span],
        header: (Header, u16),
        checksums: bool,
    ) -> (Header, u16) {
        let (mut header, mut count) = header;
        if self.tells(Lie::BufferCount) && self.units == self.place {
            count = match self.random.below(3) {
                0 => 0,
                1 => u16::MAX,
                _ => count.saturating_add(1 + self.random.below(64) as u16),
            };
        }
        if self.often(Lie::Checksum) {
            if checksums && header.flags == 0 {
                header.flags = DATA_VALID;
            }
            damage(memory, spans);
        }
        (header, count)
    }
}

/// Turns a bit behind the headers.
fn damage<M: GuestMemory>(memory: &M, spans: &[Span]) {
    const BEHIND_HEADERS: u32 = 12 + 14 + 40 + 12;
    let mut rest = Vec::new();
    behind(spans, BEHIND_HEADERS, &mut rest);
    if let Some(span) = rest.first() {
        let mut byte = [0; 1];
        if memory.read(span.address, &mut byte).is_ok() {
            let _ = memory.write(span.address, &byte.map(|byte| byte ^ 1));
        }
    }
}

impl Ring {
    /// [`Ring::publish`], by a liar.
    #[cold]
    pub(super) fn publish_lies<M: GuestMemory>(&mut self, memory: &M) -> Result<bool, RingFault> {
        let Some(mut liar) = self.liar.take() else {
            return Ok(false);
        };
        let result = self.publish_entries(memory, &mut liar);
        self.liar = Some(liar);
        result
    }

    fn publish_entries<M: GuestMemory>(
        &mut self,
        memory: &M,
        liar: &mut Liar,
    ) -> Result<bool, RingFault> {
        while let Some((due, unit)) = liar.late.front()
            && *due <= liar.now
        {
            liar.entries.extend(unit);
            liar.late.pop_front();
        }
        if liar.entries.is_empty() {
            return Ok(false);
        }
        for (id, len) in &liar.entries {
            self.write_used(memory, *id, *len)?;
        }
        liar.entries.clear();
        self.published = self.used;
        let mut index = self.used;
        if liar.tells(Lie::UsedIndex) && liar.count > liar.place {
            liar.told &= !Lie::UsedIndex.bit();
            let ahead = 1 + liar.random.below(2 * u64::from(self.layout.size)) as u16;
            index = index.wrapping_add(ahead);
        }
        memory.store(self.layout.used_index(), index, Ordering::Release)?;
        self.wants_call(memory)
    }
}

#[cfg(test)]
mod tests;
