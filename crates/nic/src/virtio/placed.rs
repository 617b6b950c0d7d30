//! Memory that the card fills itself, where it and the driver have agreed on that ([`wireboot_wire::card::placement`]).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::mem;

use wireboot_wire::card::placement::{Ends, NOTE_LEN, Note};

use crate::Fault;
use crate::placer::LentMemory;

const IMPOSSIBLE: Fault = Fault::Misbehaved("it placed payload where nothing was to be placed");

/// Regions that the card may write to.
#[derive(Default)]
pub(super) struct Placed {
    /// In the order of their ids.
    regions: VecDeque<Region>,
    last: u32,
}

struct Region {
    id: u32,
    ends: Ends,
    memory: Box<dyn LentMemory>,
    /// Bytes from its beginning that frames were lent with.
    filled: usize,
}

impl Placed {
    /// The number of the next region, which `lend` is to be called with.
    pub(super) fn next_id(&self) -> u32 {
        self.last.wrapping_add(1)
    }

    pub(super) fn lend(&mut self, ends: &Ends, memory: Box<dyn LentMemory>) {
        self.last = self.next_id();
        self.regions.push_back(Region {
            id: self.last,
            ends: *ends,
            memory,
            filled: 0,
        });
    }

    /// The last region that is lent of a connection's.
    pub(super) fn last_of(&self, ends: &Ends) -> Option<u32> {
        let mut last = self.regions.iter().rev();
        last.find(|region| region.ends == *ends)
            .map(|region| region.id)
    }

    /// The card has placed `len` bytes from byte `at` of region `id` on. Adds where they lie to `parts`, behind the first `count`. How many parts
    /// there are then.
    pub(super) fn show<'a>(
        &'a self,
        id: u32,
        at: usize,
        len: usize,
        parts: &mut [&'a [u8]],
        mut count: usize,
    ) -> Result<usize, &'static Fault> {
        let first = self.regions.iter().position(|region| region.id == id);
        let first = first.ok_or(&IMPOSSIBLE)?;
        let mut following = self.regions.range(first..);
        let ends = following.clone().next().map(|region| region.ends);
        let (mut at, mut left) = (at, len);
        while left > 0 {
            let next = following.find(|region| Some(region.ends) == ends);
            let region = next
                .filter(|region| region.filled == at)
                .ok_or(&IMPOSSIBLE)?;
            let end = at.saturating_add(left).min(region.memory.len());
            let bytes = region.memory.bytes(at..end);
            if bytes.is_empty() {
                return Err(&IMPOSSIBLE);
            }
            *parts.get_mut(count).ok_or(&IMPOSSIBLE)? = bytes;
            count += 1;
            left -= bytes.len();
            at = 0;
        }
        Ok(count)
    }

    /// What [`Self::show`] has shown was seen: regions that are full are given back.
    pub(super) fn seen(&mut self, id: u32, mut len: usize) {
        let first = self.regions.iter().position(|region| region.id == id);
        let Some(mut index) = first else { return };
        let ends = self.regions.get(index).map(|region| region.ends);
        while len > 0
            && let Some(region) = self.regions.get_mut(index)
        {
            if Some(region.ends) != ends {
                index += 1;
                continue;
            }
            let size = region.memory.len();
            let count = len.min(size - region.filled);
            region.filled += count;
            len -= count;
            if region.filled == size {
                self.regions.remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// The card fills region `id`, and those of its connection before it, no further.
    #[cold]
    pub(super) fn end(&mut self, id: u32) {
        let known = self.regions.iter().find(|region| region.id == id);
        let Some(ends) = known.map(|region| region.ends) else {
            return;
        };
        self.regions
            .retain(|region| region.ends != ends || region.id > id);
    }

    /// The device has stopped, or has not: then nobody may have the memory any more.
    pub(super) fn give_back(&mut self, stopped: bool) {
        let regions = mem::take(&mut self.regions);
        if !stopped {
            mem::forget(regions);
        }
    }
}

/// The note at the end of a marked unit in `parts`, without which it is shorter. How many parts are left.
pub(super) fn take_note(parts: &mut [&[u8]]) -> Option<(Note, usize)> {
    let mut bytes = [0; NOTE_LEN];
    let (mut count, mut left) = (parts.len(), NOTE_LEN);
    while left > 0 {
        let part = parts.get_mut(count.checked_sub(1)?)?;
        let cut = part.len().min(left);
        let (rest, tail) = part.split_at(part.len() - cut);
        bytes.get_mut(left - cut..left)?.copy_from_slice(tail);
        left -= cut;
        *part = rest;
        if rest.is_empty() {
            count -= 1;
        }
    }
    Some((Note::parse(&bytes)?, count))
}
