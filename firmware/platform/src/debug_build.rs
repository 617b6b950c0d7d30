//! Signs of a DEBUG build of EDK II: its core fills memory that it allocates (`PcdDebugClearMemoryValue`), and its images have the words of ASSERT.

use crate::image;
use crate::images::{Image, Images};
use alloc::vec::Vec;
use core::ptr;
use uefi::boot::{self, MemoryType};
use uefi::mem::memory_map::MemoryMap;

/// What memory is filled with.
const FILLING: u8 = 0xaf;
/// Memory of this size is looked at, so often.
const POOL: usize = 256;
const TIMES: usize = 3;

/// What DEBUG's libraries print before an ASSERT's place: with the image's name, and before EDK II had that there.
const FORMATS: [&[u8]; 2] = [b"ASSERT [%a] %a(%d): %a", b"ASSERT %a(%d): %a"];
const LONGEST_FORMAT: usize = 22;
/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;
/// Larger images than this are no firmware's.
const LARGEST: u64 = 64 << 20;

/// Whether the firmware fills the memory that it allocates. Not, where it has none.
#[must_use]
pub fn pool_is_filled() -> bool {
    (0..TIMES).all(|_| is_filled().unwrap_or(false))
}

/// Of one allocation, behind another of the same size with other bytes in it: the firmware may give out the same memory.
fn is_filled() -> uefi::Result<bool> {
    let allocate = || boot::allocate_pool(MemoryType::BOOT_SERVICES_DATA, POOL);
    let before = allocate()?;
    // SAFETY: fresh memory of this size, which is ours until it is freed here.
    unsafe {
        before.write_bytes(!FILLING, POOL);
        boot::free_pool(before)?;
    }
    let memory = allocate()?;
    // SAFETY: memory of this size, which is ours; volatile, as the firmware may have left anything there.
    let filled = (0..POOL).all(|at| unsafe { memory.add(at).read_volatile() } == FILLING);
    // SAFETY: allocated above, and not used again.
    unsafe { boot::free_pool(memory) }?;
    Ok(filled)
}

/// Images with the words of ASSERT, but for this one. None where the firmware does not tell of its memory.
#[must_use]
pub fn asserting(images: &Images) -> Vec<&Image> {
    let Ok(map) = boot::memory_map(MemoryType::BOOT_SERVICES_DATA) else {
        return Vec::new();
    };
    let regions = || {
        let held = map.entries().filter(|region| holds_images(region.ty));
        held.map(|region| {
            let bytes = region.page_count.saturating_mul(boot::PAGE_SIZE as u64);
            (region.phys_start, region.phys_start.saturating_add(bytes))
        })
    };
    let own = image::extent();
    let others = images
        .iter()
        .filter(|image| Some((image.base, image.bytes)) != own);
    let asserting = others.filter(|image| {
        image.bytes <= LARGEST
            && covered(image.base, image.bytes, regions)
            && has_format(image.bytes, |at, out| {
                let from = (image.base + at) as *const u8;
                // SAFETY: the firmware's memory map has all of the image's bytes, memory is mapped one to one, and nobody else runs. An
                // image is loaded to be read.
                unsafe { ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
            })
    });
    asserting.collect()
}

/// Whether images lie in memory of this type.
fn holds_images(kind: MemoryType) -> bool {
    [
        MemoryType::LOADER_CODE,
        MemoryType::LOADER_DATA,
        MemoryType::BOOT_SERVICES_CODE,
        MemoryType::BOOT_SERVICES_DATA,
        MemoryType::RUNTIME_SERVICES_CODE,
        MemoryType::RUNTIME_SERVICES_DATA,
    ]
    .contains(&kind)
}

/// Whether all of these bytes lie in regions, given by their first address and the one behind them.
fn covered<I: Iterator<Item = (u64, u64)>>(base: u64, bytes: u64, regions: impl Fn() -> I) -> bool {
    let Some(end) = base.checked_add(bytes) else {
        return false;
    };
    let mut reached = base;
    while reached < end {
        let Some((_, behind)) =
            regions().find(|(first, behind)| (*first..*behind).contains(&reached))
        else {
            return false;
        };
        reached = behind;
    }
    true
}

/// Whether one of the formats is in so many bytes, of which `read` gives those from a place on.
fn has_format(bytes: u64, mut read: impl FnMut(u64, &mut [u8])) -> bool {
    let mut piece = alloc::vec![0; PIECE];
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from(bytes - at).unwrap_or(PIECE).min(PIECE);
        let piece = piece.get_mut(..length).unwrap_or_default();
        read(at, piece);
        if has(piece) {
            return true;
        }
        // The next piece begins with this one's end: a format may lie across.
        at += length.saturating_sub(LONGEST_FORMAT - 1).max(1) as u64;
        if length < PIECE {
            break;
        }
    }
    false
}

fn has(piece: &[u8]) -> bool {
    let mut rest = piece;
    while let Some(found) = rest.iter().position(|byte| *byte == b'A') {
        let (_, from) = rest.split_at(found);
        if FORMATS.iter().any(|format| from.starts_with(format)) {
            return true;
        }
        rest = from.get(1..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(memory: &[u8]) -> bool {
        has_format(memory.len() as u64, |at, out| {
            let at = at as usize;
            out.copy_from_slice(&memory[at..at + out.len()]);
        })
    }

    #[test]
    fn a_format_is_found_wherever_it_lies() {
        assert_eq!(FORMATS.map(<[u8]>::len).iter().max(), Some(&LONGEST_FORMAT));
        for format in FORMATS {
            let across = PIECE - 30..=PIECE;
            for before in [0, 1, 5000, 2 * PIECE - 30].into_iter().chain(across) {
                let mut memory = alloc::vec![b'A'; before];
                memory.extend(format);
                assert!(found_in(&memory), "{before}");
                memory.pop();
                assert!(!found_in(&memory), "{before}");
            }
        }
        for nothing in [&b""[..], b"A", b"ASSERT %s failed"] {
            assert!(!found_in(nothing));
        }
    }

    #[test]
    fn an_image_lies_in_memory_when_all_of_it_does() {
        let regions = [(0x1000, 0x3000), (0x3000, 0x4000), (0x5000, 0x6000)];
        let lies = |base, bytes| covered(base, bytes, || regions.into_iter());
        assert!(lies(0x1000, 0x3000) && lies(0x2800, 0x1000) && lies(0x5fff, 1));
        for (base, bytes) in [
            (0xfff, 2),
            (0x3800, 0x1000),
            (0x3800, 0x2000),
            (0x5fff, 2),
            (u64::MAX, 2),
            (0x9000, 1),
        ] {
            assert!(!lies(base, bytes), "{base:#x}");
        }
    }
}
