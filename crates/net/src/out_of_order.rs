//! Data that lies in its place already though something before it is missing.

use alloc::vec::Vec;

/// Most ranges kept; the data of more is dropped, and comes again. A window of 16 MiB with one segment in a
/// hundred missing has as many.
const LIMIT: usize = 128;

/// Sorted, disjoint ranges of sequence numbers. All lie within half the sequence space behind `base`, the number expected
/// next, which their owner passes in.
#[derive(Default)]
pub struct OutOfOrder {
    ranges: Vec<(u32, u32)>,
    /// In the range that changed last.
    latest: u32,
}

impl OutOfOrder {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Notes the bytes from `start` to before `end`. False when there are too many ranges already.
    pub fn insert(&mut self, base: u32, start: u32, end: u32) -> bool {
        let offset = |number: u32| number.wrapping_sub(base);
        let (from, to) = (offset(start), offset(end));
        let first = self.ranges.partition_point(|r| offset(r.1) < from);
        let behind = self.ranges.partition_point(|r| offset(r.0) <= to);
        if first == behind && self.ranges.len() >= LIMIT {
            return false;
        }
        // What touches the new range becomes one with it.
        let joined = self
            .ranges
            .drain(first..behind.max(first))
            .fold((from, to), |(a, b), r| {
                (a.min(offset(r.0)), b.max(offset(r.1)))
            });
        let range = (base.wrapping_add(joined.0), base.wrapping_add(joined.1));
        self.ranges.insert(first, range);
        self.latest = start;
        true
    }

    /// Drops the ranges that begin at or before `base` and returns where the data that is there without a gap ends.
    pub fn advance(&mut self, base: u32) -> u32 {
        let mut end = base;
        let mut done = 0;
        for &(start, stop) in &self.ranges {
            if (start.wrapping_sub(end) as i32) > 0 {
                break;
            }
            if (stop.wrapping_sub(end) as i32) > 0 {
                end = stop;
            }
            done += 1;
        }
        self.ranges.drain(..done);
        end
    }

    /// What a SACK option tells, the range that changed last first (RFC 2018, section 4).
    pub fn blocks(&self) -> impl Iterator<Item = (u32, u32)> {
        let latest = self
            .ranges
            .iter()
            .rposition(|r| (self.latest.wrapping_sub(r.0) as i32) >= 0);
        let others = (0..self.ranges.len()).filter(move |&i| Some(i) != latest);
        latest
            .into_iter()
            .chain(others)
            .filter_map(|i| self.ranges.get(i).copied())
            .take(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    proptest! {
        /// Against one flag for each byte, across the end of the sequence space.
        #[test]
        fn ranges_are_what_was_inserted(
            base in prop_oneof![any::<u32>(), u32::MAX - 300..=u32::MAX],
            inserted in prop::collection::vec((1u32..300, 1u32..40), 1..40),
            filled in 1u32..300,
        ) {
            let mut ranges = OutOfOrder::default();
            let mut there = vec![false; 400];
            for (start, len) in inserted {
                prop_assert!(ranges.insert(base, base.wrapping_add(start), base.wrapping_add(start + len)));
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
            there[..filled as usize].fill(true);
            let end = there.iter().position(|there| !there).unwrap();
            prop_assert_eq!(ranges.advance(base.wrapping_add(filled)), base.wrapping_add(end as u32));
        }
    }

    #[test]
    fn there_is_a_limit() {
        let mut ranges = OutOfOrder::default();
        for i in 0..LIMIT as u32 {
            assert!(ranges.insert(0, 10 + i * 10, 15 + i * 10));
        }
        assert!(!ranges.insert(0, 5, 6));
        assert!(ranges.insert(0, 15, 20), "joins two");
        assert!(ranges.insert(0, 5, 6));
    }
}
