//! Memory of which the firmware's memory map knows, whatever it is used for.

use crate::memory::{self, PAGE};
use alloc::vec::Vec;

#[derive(Clone, Debug)]
pub(crate) struct KnownMemory(Vec<Piece>);

#[derive(Clone, Copy, Debug)]
struct Piece {
    first: u64,
    behind: u64,
}

impl KnownMemory {
    /// Asks for the map; `None` where the firmware does not tell.
    pub(crate) fn read() -> Option<Self> {
        let (map, words) = memory::map()?;
        let pieces = map.chunks_exact(words).filter_map(|entry| {
            let [_, first, _, pages, ..] = *entry else {
                return None;
            };
            let behind = first.saturating_add(pages.saturating_mul(PAGE as u64));
            Some(Piece { first, behind })
        });
        Some(Self(pieces.collect()))
    }

    /// Whether one entry has all of these bytes.
    pub(crate) fn holds(&self, address: u64, bytes: usize) -> bool {
        let Some(end) = address.checked_add(bytes as u64) else {
            return false;
        };
        let mut pieces = self.0.iter();
        pieces.any(|piece| piece.first <= address && end <= piece.behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_piece_must_have_all_of_it() {
        let piece = |first, behind| Piece { first, behind };
        let known = KnownMemory(vec![piece(0x1000, 0x2000), piece(0x2000, 0x3000)]);
        assert!(known.holds(0x1000, 0x1000) && known.holds(0x2ff8, 8));
        for (address, bytes) in [(0xfff, 8), (0x1ffc, 8), (0x2ffc, 8), (u64::MAX, 8)] {
            assert!(!known.holds(address, bytes), "{address:#x}");
        }
    }
}
