//! Where files go, so that the largest memory in one piece stays free: Linux' EFI stub copies the initial RAM disks to memory of its own,
//! in one piece at any address, after it has unpacked the kernel to an address below 1 GiB that it draws by lot.

use alloc::vec::Vec;

/// What the firmware and old programs use for themselves lies below.
const LOWEST: u64 = 16 << 20;
/// The kernel is unpacked below (`KERNEL_IMAGE_SIZE`), anywhere in what is free there.
const KERNEL_LIMIT: u64 = 1 << 30;
/// What the kernel's image may take, and the unpacked kernel, in bytes; those of distributions take 50 to 80 MiB.
const KERNEL: u64 = 96 << 20;
/// Smaller pieces are not worth it.
const SMALLEST: u64 = 1 << 20;

/// Memory in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// What of it lies between two addresses.
    fn clip(&self, start: u64, end: u64) -> Self {
        Self {
            start: self.start.max(start),
            end: self.end.min(end),
        }
    }
}

/// What is free, as far as it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// In all, in bytes.
    pub bytes: u64,
    /// In one piece, in bytes.
    pub largest: u64,
}

/// The free memory of a memory map, whose entries are start and length in bytes: neighbours as one, what may be used of it.
pub(crate) fn holes(map: impl Iterator<Item = (u64, u64)>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (start, len) in map {
        let end = start.saturating_add(len);
        let at = spans.partition_point(|span| span.start < start);
        spans.insert(at, Span { start, end });
    }
    let mut holes: Vec<Span> = Vec::new();
    for span in spans {
        match holes.last_mut() {
            Some(last) if last.end >= span.start => last.end = last.end.max(span.end),
            _ => holes.push(span),
        }
    }
    holes
        .into_iter()
        .map(|hole| hole.clip(LOWEST, u64::MAX))
        .filter(|hole| hole.len() > 0)
        .collect()
}

/// Sums up.
pub(crate) fn free(holes: &[Span]) -> Free {
    Free {
        bytes: holes.iter().map(Span::len).sum(),
        largest: holes.iter().map(Span::len).max().unwrap_or(0),
    }
}

/// A place in one piece: the end of the smallest hole that has room.
pub(crate) fn whole(holes: &[Span], bytes: u64) -> Option<Span> {
    let hole = holes.iter().filter(|hole| hole.len() >= bytes);
    let hole = hole.min_by_key(|hole| hole.len())?;
    Some(Span {
        start: hole.end - bytes,
        end: hole.end,
    })
}

/// Places for so many bytes, in pieces where it has to be, beside which `beside` bytes stay free in one piece. Both are multiples of a
/// page. `None` when there are not so many.
pub(crate) fn scattered(holes: &[Span], bytes: u64, beside: u64) -> Option<Vec<Span>> {
    // Best where the kernel is not unpacked, with room for that, and for the kernel's image, which the firmware puts to the top.
    let demands = [
        (KERNEL_LIMIT, KERNEL, KERNEL),
        (KERNEL_LIMIT, KERNEL, 0),
        (KERNEL_LIMIT, 0, 0),
        (0, KERNEL, KERNEL),
        (0, KERNEL, 0),
        (0, 0, 0),
    ];
    demands.into_iter().find_map(|(floor, kernel, image)| {
        let beside = beside.saturating_add(image);
        demanding(holes, bytes, beside, floor, kernel)
    })
}

/// The same where the bytes that stay free lie above `floor`, and the first `kernel` bytes of the largest hole below
/// [`KERNEL_LIMIT`] stay free as well.
fn demanding(
    holes: &[Span],
    bytes: u64,
    beside: u64,
    floor: u64,
    kernel: u64,
) -> Option<Vec<Span>> {
    let above = |hole: &Span| hole.clip(floor, u64::MAX);
    let kept = holes.iter().max_by_key(|hole| above(hole).len())?;
    if above(kept).len() < beside {
        return None;
    }
    let low = |hole: &Span| hole.clip(0, KERNEL_LIMIT);
    let image = holes.iter().max_by_key(|hole| low(hole).len())?;
    let usable = |hole: &Span| {
        let start = hole.start + if hole == image { kernel } else { 0 };
        let end = hole.end - if hole == kept { beside } else { 0 };
        let span = Span { start, end };
        (hole == kept, span)
    };
    let mut usable: Vec<_> = holes
        .iter()
        .map(usable)
        .filter(|(_, span)| span.len() >= SMALLEST)
        .collect();
    let mut left = bytes;
    let mut places = Vec::new();
    while left > 0 {
        // Few pieces; those of the hole that has to keep the most come last.
        let order = |at: &usize| usable.get(*at).map(|(kept, span)| (!kept, span.len()));
        let largest = (0..usable.len()).max_by_key(order)?;
        let (_, span) = usable.swap_remove(largest);
        let count = left.min(span.len());
        places.push(Span {
            start: span.end - count,
            end: span.end,
        });
        left -= count;
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn map(spans: &[(u64, u64)]) -> Vec<Span> {
        holes(spans.iter().map(|&(start, end)| (start, end - start)))
    }

    /// Free memory of OVMF 2022.11 (q35) with 3 and 4 GiB, as its shell's `memmap` tells.
    const LOW: [(u64, u64); 9] = [
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

    fn ovmf(high: u64) -> Vec<Span> {
        let mut spans = LOW.to_vec();
        spans.push((4 << 30, (4 << 30) + high));
        map(&spans)
    }

    /// What stays free.
    fn rest(holes: &[Span], places: &[Span]) -> Vec<Span> {
        let mut rest = Vec::new();
        for hole in holes {
            let mut start = hole.start;
            let mut inside: Vec<_> = places
                .iter()
                .filter(|place| hole.start <= place.start && place.end <= hole.end)
                .collect();
            inside.sort_unstable_by_key(|place| place.start);
            for place in inside {
                assert!(start <= place.start, "two at one place");
                rest.push(Span {
                    start,
                    end: place.start,
                });
                start = place.end;
            }
            rest.push(Span {
                start,
                end: hole.end,
            });
        }
        let taken: u64 = places.iter().map(Span::len).sum();
        assert_eq!(
            free(holes).bytes - taken,
            free(&rest).bytes,
            "outside of what is free"
        );
        rest
    }

    /// Whether Linux finds room for its copy wherever it puts the kernel.
    fn is_safe(rest: &[Span], bytes: u64) -> bool {
        let large = |span: Span| span.len() >= bytes;
        let kernel = rest
            .iter()
            .any(|span| span.clip(0, KERNEL_LIMIT).len() >= KERNEL);
        kernel
            && rest
                .iter()
                .any(|span| large(span.clip(KERNEL_LIMIT, u64::MAX)))
    }

    #[test]
    fn entries_that_touch_are_one_hole_and_low_memory_is_none() {
        let spans = [
            (32 * MIB, 48 * MIB),
            (0, 8 * MIB),
            (20 * MIB, 32 * MIB),
            (8 * MIB, 18 * MIB),
        ];
        let expected = [
            Span {
                start: 16 * MIB,
                end: 18 * MIB,
            },
            Span {
                start: 20 * MIB,
                end: 48 * MIB,
            },
        ];
        assert_eq!(map(&spans), expected);
        let sum = Free {
            bytes: 30 * MIB,
            largest: 28 * MIB,
        };
        assert_eq!(free(&expected), sum);
        assert_eq!(
            free(&[]),
            Free {
                bytes: 0,
                largest: 0
            }
        );
    }

    #[test]
    fn a_gib_in_machines_of_3_and_4_gib() {
        for high in [1024 * MIB, 2048 * MIB] {
            let holes = ovmf(high);
            let bytes = 1024 * MIB;
            let places = scattered(&holes, bytes, bytes).unwrap();
            assert_eq!(places.len(), 1);
            assert!(
                places[0].end <= 1 << 31,
                "above 4 GiB is Linux' place: {places:x?}"
            );
            assert!(is_safe(&rest(&holes, &places), bytes));
        }
    }

    #[test]
    fn in_pieces_where_one_is_not_to_be_had() {
        // More than the memory above 4 GiB has: Linux' copy must lie below, and ours in both.
        let holes = ovmf(1024 * MIB);
        let bytes = 1040 * MIB;
        let places = scattered(&holes, bytes, bytes).unwrap();
        assert!(places.len() > 1);
        assert!(free(&rest(&holes, &places)).largest >= bytes);
        // Many small holes and one large.
        let spans: Vec<_> = (0..10)
            .map(|n| (n * 100 * MIB + 20 * MIB, n * 100 * MIB + 60 * MIB))
            .collect();
        let mut holes = map(&spans);
        holes.push(Span {
            start: 4 << 30,
            end: (4 << 30) + 350 * MIB,
        });
        let places = scattered(&holes, 340 * MIB, 340 * MIB).unwrap();
        assert_eq!(places.len(), 9);
        assert!(free(&rest(&holes, &places)).largest >= 340 * MIB);
        // Up to the last byte, and no further.
        assert!(scattered(&holes, 400 * MIB, 350 * MIB).is_some());
        assert!(scattered(&holes, 401 * MIB, 350 * MIB).is_none());
        assert!(scattered(&holes, MIB, 351 * MIB).is_none());
    }

    #[test]
    fn the_kernel_is_unpacked_below_what_fills_nearly_all() {
        let holes = ovmf(2048 * MIB);
        let bytes = 1940 * MIB;
        let places = scattered(&holes, bytes, bytes).unwrap();
        assert!(is_safe(&rest(&holes, &places), bytes));
    }

    #[test]
    fn the_kernels_image_has_room_at_the_top() {
        let holes = ovmf(1024 * MIB);
        let bytes = 1080 * MIB;
        let places = scattered(&holes, bytes, bytes).unwrap();
        let mut rest = rest(&holes, &places);
        let images = rest.iter_mut().filter(|hole| hole.len() >= KERNEL);
        images.max_by_key(|hole| hole.start).unwrap().end -= KERNEL;
        assert!(free(&rest).largest >= bytes);
    }

    #[test]
    fn small_holes_are_left_alone() {
        let holes = map(&[(20 * MIB, 20 * MIB + SMALLEST / 2), (30 * MIB, 40 * MIB)]);
        assert!(scattered(&holes, 9 * MIB, MIB).is_some());
        assert!(scattered(&holes, 9 * MIB + SMALLEST / 4, MIB).is_none());
    }

    #[test]
    fn one_initrd_after_the_other() {
        let mut holes = ovmf(2048 * MIB);
        let mut sum = 0;
        for bytes in [2 * MIB, 500 * MIB, 4 * MIB, 500 * MIB] {
            sum += bytes;
            let places = scattered(&holes, bytes, sum).unwrap();
            holes = rest(&holes, &places);
        }
        assert!(is_safe(&holes, sum));
    }

    #[test]
    fn a_file_in_one_piece_takes_the_smallest_hole() {
        let holes = map(&[
            (20 * MIB, 220 * MIB),
            (300 * MIB, 334 * MIB),
            (400 * MIB, 410 * MIB),
        ]);
        let place = |start, end| {
            Some(Span {
                start: start * MIB,
                end: end * MIB,
            })
        };
        assert_eq!(whole(&holes, 10 * MIB), place(400, 410));
        assert_eq!(whole(&holes, 14 * MIB), place(320, 334));
        assert_eq!(whole(&holes, 40 * MIB), place(180, 220));
        assert_eq!(whole(&holes, 201 * MIB), None);
    }
}
