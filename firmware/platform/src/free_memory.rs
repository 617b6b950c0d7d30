//! Memory that nobody has, by the firmware's memory map.

use crate::memory::{self, PAGE};
use alloc::vec::Vec;
use uefi::boot::MemoryType;

/// What was free when the map was read. Nothing, where the firmware does not tell.
#[derive(Clone, Debug, Default)]
pub struct FreeMemory(Vec<(u64, u64)>);

impl FreeMemory {
    /// Asks the firmware.
    #[must_use]
    pub fn read() -> Self {
        let Some((map, words)) = memory::map() else {
            return Self::default();
        };
        let regions = map.chunks_exact(words).filter_map(|entry| {
            let [kind, first, _, pages, ..] = *entry else {
                return None;
            };
            // The upper half is padding.
            let is_free = kind as u32 == MemoryType::CONVENTIONAL.0;
            let behind = first.saturating_add(pages.saturating_mul(PAGE as u64));
            is_free.then_some((first, behind))
        });
        Self(regions.collect())
    }

    /// Whether some of these bytes are.
    #[must_use]
    pub fn has_some_of(&self, address: usize, bytes: usize) -> bool {
        let address = address as u64;
        let end = address.saturating_add(bytes as u64);
        let mut regions = self.0.iter();
        regions.any(|(first, behind)| address < *behind && *first < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_enough() {
        let free = FreeMemory(vec![(0x1000, 0x2000), (0x8000, 0x9000)]);
        for (address, bytes) in [(0xfff, 2), (0x1fff, 1), (0x8800, 8), (0, usize::MAX)] {
            assert!(free.has_some_of(address, bytes), "{address:#x}");
        }
        for (address, bytes) in [(0xff0, 0x10), (0x2000, 0x6000), (0x9000, 1)] {
            assert!(!free.has_some_of(address, bytes), "{address:#x}");
        }
        assert!(!FreeMemory::default().has_some_of(0x1000, 8));
    }
}
