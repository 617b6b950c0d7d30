//! Memory that nobody has, by the firmware's memory map.

use crate::memory;
use alloc::vec::Vec;

/// The memory map as of the last [`refresh`](Self::refresh). Before the first, and where the firmware gives no map, nothing is free.
#[derive(Clone, Debug, Default)]
pub struct FreeMemory {
    map: Vec<u64>,
    /// Words of an entry; 0 for no map.
    words: usize,
}

impl FreeMemory {
    /// Reads it anew. Allocates only where the map has grown.
    pub fn refresh(&mut self) {
        self.words = memory::map_into(&mut self.map).unwrap_or(0);
    }

    /// Whether some of these bytes are free.
    #[must_use]
    pub fn has_some_of(&self, address: usize, bytes: usize) -> bool {
        let address = address as u64;
        let end = address.saturating_add(bytes as u64);
        let entries = self.map.chunks_exact(self.words.max(1));
        let mut regions = entries.filter_map(memory::free);
        regions.any(|(first, bytes)| address < first.saturating_add(bytes) && first < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::PAGE;

    #[test]
    fn a_byte_is_enough() {
        const FREE: u64 = 7;
        let entry = |kind, first: usize| [kind, first as u64, 0, 1, 0, 0];
        let map = [
            entry(FREE, 0x1000),
            entry(4, 0x2000),
            entry(FREE | 0xaaaa_0000_0000, 0x8000),
        ];
        let free = FreeMemory {
            map: map.concat(),
            words: 6,
        };
        for (address, bytes) in [(0xfff, 2), (0x1fff, 1), (0x8800, 8), (0, usize::MAX)] {
            assert!(free.has_some_of(address, bytes), "{address:#x}");
        }
        for (address, bytes) in [(0xff0, 0x10), (0x2000, 0x6000), (0x8000 + PAGE, 1)] {
            assert!(!free.has_some_of(address, bytes), "{address:#x}");
        }
        assert!(!FreeMemory::default().has_some_of(0x1000, 8));
    }
}
