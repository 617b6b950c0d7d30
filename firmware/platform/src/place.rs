//! Where initial RAM disks go, so that one large piece of memory stays free: Linux' EFI stub copies them all to a piece of its own.

use alloc::vec::Vec;

/// Memory below is left to the firmware, and to APs' first instructions.
const LOWEST: u64 = 16 << 20;
/// Smaller holes are left to the firmware.
const SMALLEST: u64 = 1 << 20;
/// What a kernel's image and the kernel unpacked from it take in distributions, in bytes.
const KERNEL: u64 = 128 << 20;

/// Memory in one piece, from one address to before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    pub(crate) fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// How much memory is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// In all, in bytes.
    pub bytes: u64,
    /// In one piece, in bytes.
    pub largest: u64,
}

/// What of free memory, given as addresses and lengths in bytes, may be used.
pub(crate) fn holes(free: impl Iterator<Item = (u64, u64)>) -> Vec<Span> {
    free.map(|(start, len)| Span {
        start: start.max(LOWEST),
        end: start.saturating_add(len),
    })
    .filter(|hole| hole.len() >= SMALLEST)
    .collect()
}

/// All holes together, and the largest.
pub(crate) fn free(holes: &[Span]) -> Free {
    Free {
        // A firmware may say anything.
        bytes: holes
            .iter()
            .fold(0, |sum, hole| sum.saturating_add(hole.len())),
        largest: holes.iter().map(Span::len).max().unwrap_or(0),
    }
}

/// Places for `bytes` bytes, few and large, beside which `copy` bytes stay free in one piece, with room for the kernel where that can
/// be had. Both are whole pages. `None` when there is not so much memory.
pub(crate) fn places(holes: &[Span], bytes: u64, copy: u64) -> Option<Vec<Span>> {
    beside(holes, bytes, copy.saturating_add(KERNEL)).or_else(|| beside(holes, bytes, copy))
}

/// The same, where `kept` bytes stay free at the start of the largest hole.
fn beside(holes: &[Span], bytes: u64, kept: u64) -> Option<Vec<Span>> {
    let mut holes = holes.to_vec();
    let largest = take_largest(&mut holes)?;
    if largest.len() < kept {
        return None;
    }
    let mut last = Some(Span {
        start: largest.start + kept,
        ..largest
    });
    let mut left = bytes;
    let mut places = Vec::new();
    while left > 0 {
        let hole = take_largest(&mut holes).or_else(|| last.take())?;
        let len = left.min(hole.len());
        places.push(Span {
            start: hole.end - len,
            end: hole.end,
        });
        left -= len;
    }
    Some(places)
}

fn take_largest(holes: &mut Vec<Span>) -> Option<Span> {
    let (at, _) = holes
        .iter()
        .enumerate()
        .max_by_key(|(_, hole)| hole.len())?;
    Some(holes.swap_remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn span(start: u64, end: u64) -> Span {
        Span { start, end }
    }

    /// Holes of these places and lengths, in MiB.
    fn map(spans: &[(u64, u64)]) -> Vec<Span> {
        holes(
            spans
                .iter()
                .map(|(start, end)| (start * MIB, (end - start) * MIB)),
        )
    }

    /// Free memory of OVMF 2022.11 (q35) with 2 GiB below 4 GiB, as its shell's `memmap` tells, and `high` MiB above.
    fn ovmf(high: u64) -> Vec<Span> {
        let low = [
            (0x1000, 0x8_7000),
            (0x8_8000, 0xa_0000),
            (0x10_0000, 0x80_6000),
            (0x80_8000, 0x81_0000),
            (0x150_0000, 0x7bb6_d000),
            (0x7bb8_d000, 0x7de0_9000),
            (0x7dee_0000, 0x7df3_0000),
            (0x7df4_e000, 0x7df5_a000),
            (0x7fe0_0000, 0x7fe7_1000),
        ];
        let high = [(4 << 30, (4 << 30) + high * MIB)];
        holes(
            low.iter()
                .chain(&high)
                .map(|(start, end)| (*start, end - start)),
        )
    }

    /// What stays free.
    #[track_caller]
    fn rest(holes: &[Span], places: &[Span]) -> Vec<Span> {
        let mut rest = holes.to_vec();
        for place in places {
            let inside = |hole: &Span| hole.start <= place.start && place.end <= hole.end;
            let at = rest.iter().position(inside).expect("free memory");
            let hole = rest.swap_remove(at);
            rest.extend([span(hole.start, place.start), span(place.end, hole.end)]);
        }
        rest
    }

    #[test]
    fn low_memory_and_small_holes_are_left_alone() {
        let free_memory = [
            (0, 8 * MIB),
            (8 * MIB, 10 * MIB),
            (20 * MIB, SMALLEST),
            (30 * MIB, SMALLEST - 4096),
            (u64::MAX, 4096),
        ];
        let holes = holes(free_memory.into_iter());
        assert_eq!(holes, [span(16 * MIB, 18 * MIB), span(20 * MIB, 21 * MIB)]);
        let sum = Free {
            bytes: 3 * MIB,
            largest: 2 * MIB,
        };
        assert_eq!(free(&holes), sum);
        assert_eq!(free(&[]).largest, 0);
    }

    #[test]
    fn more_than_1_gib_in_machines_of_3_and_4_gib() {
        let bytes = 1026 * MIB;
        for (high, pieces) in [(1024, 2), (2048, 1)] {
            let holes = ovmf(high);
            let places = places(&holes, bytes, bytes).unwrap();
            assert_eq!(places.len(), pieces);
            let rest = rest(&holes, &places);
            assert!(free(&rest).largest >= bytes + KERNEL);
        }
    }

    #[test]
    fn pieces_are_few_and_those_of_the_largest_hole_come_last() {
        let holes = map(&[(100, 130), (200, 1000), (1100, 1140)]);
        let mib = |spans: Option<Vec<Span>>| -> Vec<(u64, u64)> {
            let spans = spans.unwrap().into_iter();
            spans
                .map(|span| (span.start / MIB, span.end / MIB))
                .collect()
        };
        assert_eq!(mib(places(&holes, 10 * MIB, MIB)), [(1130, 1140)]);
        assert_eq!(
            mib(places(&holes, 50 * MIB, MIB)),
            [(1100, 1140), (120, 130)]
        );
        assert_eq!(
            mib(places(&holes, 80 * MIB, MIB)),
            [(1100, 1140), (100, 130), (990, 1000)]
        );
        assert_eq!(mib(places(&holes, 0, MIB)), []);
    }

    #[test]
    fn the_kernel_has_room_if_there_is_some() {
        let holes = map(&[(100, 400), (500, 1500)]);
        for (bytes, kernel) in [(800 * MIB - KERNEL, KERNEL), (800 * MIB, 0)] {
            let places = places(&holes, bytes, 500 * MIB).unwrap();
            assert!(free(&rest(&holes, &places)).largest >= 500 * MIB + kernel);
        }
    }

    #[test]
    fn what_does_not_fit_has_no_place() {
        let holes = map(&[(100, 400), (500, 600)]);
        assert!(places(&holes, 150 * MIB, 250 * MIB).is_some());
        for (bytes, copy) in [
            (151 * MIB, 250 * MIB),
            (MIB, 301 * MIB),
            (u64::MAX, MIB),
            (MIB, u64::MAX),
        ] {
            assert_eq!(places(&holes, bytes, copy), None);
        }
        assert_eq!(places(&[], MIB, MIB), None);
    }

    #[test]
    fn one_initrd_after_the_other() {
        let mut holes = ovmf(2048);
        let mut sum = 0;
        for bytes in [2 * MIB, 500 * MIB, 4 * MIB, 500 * MIB] {
            sum += bytes;
            let places = places(&holes, bytes, sum).unwrap();
            holes = rest(&holes, &places);
        }
        assert!(free(&holes).largest >= sum + KERNEL);
    }

    #[test]
    fn more_memory_than_there_can_be_is_no_panic() {
        let all = span(0, u64::MAX);
        let free = free(&[all, all]);
        assert_eq!((free.bytes, free.largest), (u64::MAX, u64::MAX));
    }
}
