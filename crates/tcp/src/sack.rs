//! Ranges of sequence numbers: what lies in its place behind a gap (RFC 2018), and what the peer has told of (RFC 6675).

use crate::sequence::{after, earlier, later};
use alloc::vec::Vec;

/// Most ranges kept; what comes beside them is as if it had not come. A window of 16 MiB with one segment in a
/// hundred missing has as many.
const LIMIT: usize = 128;
/// Equal acknowledgements (RFC 5681, section 3.2), or ranges above a gap (RFC 6675), that tell of a loss.
pub(crate) const DUP_THRESH: u32 = 3;

/// Sorted, disjoint ranges of sequence numbers. All lie within half the sequence space of each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    ranges: Vec<(u32, u32)>,
    /// In the range that changed last.
    latest: u32,
}

impl Ranges {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Where the last range ends.
    pub(crate) fn end(&self) -> Option<u32> {
        self.ranges.last().map(|range| range.1)
    }

    /// Notes the numbers from `start` to before `end`. False when there are too many ranges already.
    pub(crate) fn insert(&mut self, start: u32, end: u32) -> bool {
        let first = self.ranges.partition_point(|r| after(start, r.1));
        let behind = self.ranges.partition_point(|r| !after(r.0, end));
        if first >= behind && self.ranges.len() >= LIMIT {
            return false;
        }
        // What touches the new range becomes one with it.
        let joined = self
            .ranges
            .drain(first..behind.max(first))
            .fold((start, end), |(a, b), r| (earlier(a, r.0), later(b, r.1)));
        self.ranges.insert(first, joined);
        self.latest = start;
        true
    }

    /// Forgets what lies before `base`, and returns where the numbers from `base` on that are noted without a gap end.
    pub(crate) fn advance(&mut self, base: u32) -> u32 {
        let done = self.ranges.partition_point(|r| !after(r.0, base));
        let end = self
            .ranges
            .drain(..done)
            .fold(base, |end, r| later(end, r.1));
        // Ranges do not touch, so the next one does not begin at `end`.
        end
    }

    /// Forgets what lies before `base`.
    pub(crate) fn forget_before(&mut self, base: u32) {
        self.ranges.retain_mut(|range| {
            range.0 = later(range.0, base);
            after(range.1, range.0)
        });
    }

    /// The first stretch from `start` to before `end` that is not noted.
    pub(crate) fn hole(&self, start: u32, end: u32) -> Option<(u32, u32)> {
        let next = self.ranges.partition_point(|r| !after(r.1, start));
        let (from, end) = match self.ranges.get(next) {
            Some(range) if after(range.0, start) => (start, earlier(end, range.0)),
            Some(range) => {
                let beyond = self.ranges.get(next + 1);
                (range.1, beyond.map_or(end, |beyond| earlier(end, beyond.0)))
            }
            None => (start, end),
        };
        after(end, from).then_some((from, end))
    }

    /// How many numbers from `start` to before `end` are noted.
    pub(crate) fn count(&self, start: u32, end: u32) -> u32 {
        let covered = |r: &(u32, u32)| crate::sequence::ahead(earlier(r.1, end), later(r.0, start));
        self.ranges.iter().map(covered).sum()
    }

    /// Before this number, what is not noted was lost: there are [`DUP_THRESH`] ranges, or more bytes than so many segments
    /// but one, above it (RFC 6675, IsLost). `None` when nothing is known to be lost.
    pub(crate) fn lost_before(&self, mss: u32) -> Option<u32> {
        let (mut ranges, mut bytes) = (0, 0_u32);
        for &(start, end) in self.ranges.iter().rev() {
            ranges += 1;
            bytes = bytes.saturating_add(end.wrapping_sub(start));
            if ranges >= DUP_THRESH || bytes > (DUP_THRESH - 1) * mss {
                return Some(start);
            }
        }
        None
    }

    /// What a SACK option tells, the range that changed last first (RFC 2018, section 4).
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u32, u32)> {
        let latest = self
            .ranges
            .iter()
            .rposition(|r| crate::sequence::at_or_after(self.latest, r.0));
        let others = (0..self.ranges.len()).filter(move |&i| Some(i) != latest);
        latest
            .into_iter()
            .chain(others)
            .filter_map(|i| self.ranges.get(i).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    proptest! {
        /// Against one flag for each number, across the end of the sequence space.
        #[test]
        fn ranges_are_what_was_inserted(
            base in prop_oneof![any::<u32>(), u32::MAX - 300..=u32::MAX],
            inserted in prop::collection::vec((1u32..300, 1u32..40), 1..40),
            filled in 1u32..300,
            (from, to) in (0u32..400, 0u32..400),
        ) {
            let mut ranges = Ranges::default();
            let mut there = vec![false; 400];
            for (start, len) in inserted {
                prop_assert!(ranges.insert(base.wrapping_add(start), base.wrapping_add(start + len)));
                there[start as usize..(start + len) as usize].fill(true);
                let (from, to) = ranges.blocks().next().unwrap();
                let (from, to) = (from.wrapping_sub(base), to.wrapping_sub(base));
                prop_assert!(from <= start && start + len <= to);
            }
            let mut noted = vec![false; 400];
            for &(from, to) in &ranges.ranges {
                noted[from.wrapping_sub(base) as usize..to.wrapping_sub(base) as usize].fill(true);
            }
            prop_assert_eq!(&noted, &there);
            let at = |number: u32| base.wrapping_add(number);
            let (a, b) = (from as usize, to as usize);
            let count = there.get(a..b).map_or(0, |part| part.iter().filter(|t| **t).count());
            prop_assert_eq!(ranges.count(at(from), at(to)) as usize, count);
            let hole = (a..b).find(|&i| !there[i]).map(|start| {
                let end = (start..b).find(|&i| there[i]).unwrap_or(b);
                (at(start as u32), at(end as u32))
            });
            prop_assert_eq!(ranges.hole(at(from), at(to)), hole);
            let last = there.iter().rposition(|t| *t).unwrap() as u32;
            prop_assert_eq!(ranges.end(), Some(at(last + 1)));
            let mut forgotten = ranges.clone();
            forgotten.forget_before(at(filled));
            let left = there[filled as usize..].iter().filter(|t| **t).count();
            prop_assert_eq!(forgotten.count(base, at(400)) as usize, left);
            there[..filled as usize].fill(true);
            let end = there.iter().position(|there| !there).unwrap();
            prop_assert_eq!(ranges.advance(at(filled)), at(end as u32));
            prop_assert_eq!(ranges.count(base, at(400)) as usize, there[end..].iter().filter(|t| **t).count());
        }
    }

    #[test]
    fn there_is_a_limit() {
        let mut ranges = Ranges::default();
        for i in 0..LIMIT as u32 {
            assert!(ranges.insert(10 + i * 10, 15 + i * 10));
        }
        assert!(!ranges.insert(5, 6));
        assert!(ranges.insert(15, 20), "joins two");
        assert!(ranges.insert(5, 6));
    }

    #[test]
    fn three_ranges_or_two_segments_and_a_byte_above_tell_of_a_loss() {
        let mut ranges = Ranges::default();
        ranges.insert(100, 110);
        ranges.insert(200, 210);
        assert_eq!(ranges.lost_before(10), None, "two segments are no proof");
        assert_eq!(ranges.lost_before(9), Some(100));
        ranges.insert(300, 310);
        assert_eq!(ranges.lost_before(1000), Some(100));
        ranges.insert(400, 410);
        assert_eq!(ranges.lost_before(1000), Some(200));
    }

    #[test]
    fn all_blocks_are_told_the_latest_first() {
        let mut ranges = Ranges::default();
        for start in [100, 300, 200] {
            ranges.insert(start, start + 10);
        }
        assert_eq!(
            ranges.blocks().collect::<Vec<_>>(),
            [(200, 210), (100, 110), (300, 310)]
        );
    }
}
