//! Memory that the card fills itself, where it and the driver have agreed on that ([`wireboot_wire::card::placement`]).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::mem;

use wireboot_wire::card::placement::{Ends, NOTE_LEN, Note};

use crate::placer::LentMemory;

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
    /// Behind the last bytes that a frame was lent with.
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
    /// there are then; `None` where they lie in no region, or not any more: units may come late.
    pub(super) fn show<'a>(
        &'a self,
        id: u32,
        at: usize,
        len: usize,
        parts: &mut [&'a [u8]],
        mut count: usize,
    ) -> Option<usize> {
        let first = self.regions.iter().position(|region| region.id == id)?;
        let mut following = self.regions.range(first..);
        let ends = following.clone().next().map(|region| region.ends);
        let (mut at, mut left) = (at, len);
        while left > 0 {
            let region = following.find(|region| Some(region.ends) == ends)?;
            let end = at.saturating_add(left).min(region.memory.len());
            let bytes = region.memory.bytes(at..end);
            if bytes.is_empty() {
                return None;
            }
            *parts.get_mut(count)? = bytes;
            count += 1;
            left -= bytes.len();
            at = 0;
        }
        Some(count)
    }

    /// What [`Self::show`] has shown was seen: regions that are full are given back.
    pub(super) fn seen(&mut self, id: u32, mut at: usize, mut len: usize) {
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
            let count = len.min(size.saturating_sub(at));
            region.filled = region.filled.max(at + count);
            len -= count;
            at = 0;
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::ops::Range;
    use std::vec::Vec;

    struct Plain(Vec<u8>);

    impl LentMemory for Plain {
        fn device_address(&self) -> u64 {
            0
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn bytes(&self, range: Range<usize>) -> &[u8] {
            self.0.get(range).unwrap_or_default()
        }
    }

    fn ends(port: u16) -> Ends {
        Ends {
            remote: [1; 16],
            local: [2; 16],
            remote_port: 80,
            local_port: port,
        }
    }

    /// Regions 1 and 3 are of one connection, 2 of another.
    fn placed() -> Placed {
        let mut placed = Placed::default();
        for (port, first) in [(1, 0), (2, 100), (1, 10)] {
            placed.lend(&ends(port), Box::new(Plain((first..first + 10).collect())));
        }
        placed
    }

    fn shown(placed: &Placed, id: u32, at: usize, len: usize) -> Option<Vec<u8>> {
        let mut parts: [&[u8]; 3] = [b"h", &[], &[]];
        let count = placed.show(id, at, len, &mut parts, 1)?;
        Some(parts[1..count].concat())
    }

    #[test]
    fn a_connections_regions_follow_each_other() {
        let mut placed = placed();
        assert_eq!(shown(&placed, 1, 0, 4), Some((0..4).collect()));
        placed.seen(1, 0, 4);
        assert_eq!(shown(&placed, 1, 4, 12), Some((4..16).collect()));
        placed.seen(1, 4, 12);
        assert_eq!(shown(&placed, 3, 6, 4), Some((16..20).collect()));
        assert_eq!(shown(&placed, 2, 0, 10), Some((100..110).collect()));
        let ids: Vec<_> = placed.regions.iter().map(|region| region.id).collect();
        assert_eq!(ids, [2, 3]);
        assert_eq!(placed.last_of(&ends(1)), Some(3));
        placed.seen(3, 6, 4);
        assert_eq!(placed.last_of(&ends(1)), None);
    }

    #[test]
    fn what_was_not_lent_is_no_place() {
        let placed = placed();
        for (id, at, len) in [
            (0, 0, 1),
            (4, 0, 1),
            (1, 0, 21),
            (1, 10, 1),
            (1, 11, 1),
            (1, usize::MAX, 1),
            (2, 0, 11),
            (2, 9, 2),
        ] {
            assert_eq!(shown(&placed, id, at, len), None, "{id} {at} {len}");
        }
    }

    #[test]
    fn units_may_be_lost_and_come_late() {
        let mut placed = placed();
        assert_eq!(shown(&placed, 1, 6, 2), Some((6..8).collect()));
        placed.seen(1, 6, 2);
        assert_eq!(shown(&placed, 1, 4, 2), Some((4..6).collect()));
        placed.seen(1, 4, 2);
        assert_eq!(shown(&placed, 1, 8, 5), Some((8..13).collect()));
        placed.seen(1, 8, 5);
        assert_eq!(shown(&placed, 1, 0, 4), None);
        assert_eq!(shown(&placed, 3, 1, 9), Some((11..20).collect()));
    }

    #[test]
    fn an_end_is_one_connections() {
        let mut placed = placed();
        placed.end(3);
        assert_eq!(placed.last_of(&ends(1)), None);
        assert_eq!(placed.last_of(&ends(2)), Some(2));
        // A later one, of which the card had not heard.
        let mut placed = self::placed();
        placed.end(1);
        assert_eq!(placed.last_of(&ends(1)), Some(3));
        placed.end(9);
        assert_eq!(placed.last_of(&ends(1)), Some(3));
    }

    #[test]
    fn a_note_may_lie_in_two_buffers() {
        let note = Note::Placed {
            id: 1,
            at: 2,
            len: 3,
        };
        let bytes = note.emit();
        let unit = [b"head".as_slice(), &bytes].concat();
        for cut in 1..unit.len() {
            let (first, second) = unit.split_at(cut);
            let mut parts = [first, second];
            let (found, count) = take_note(&mut parts).unwrap();
            assert_eq!((found, parts[..count].concat()), (note, b"head".to_vec()));
        }
        assert!(take_note(&mut [&bytes[1..]]).is_none());
        assert_eq!(take_note(&mut [bytes.as_slice()]), Some((note, 0)));
    }
}
