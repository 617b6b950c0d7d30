//! The processor's page tables (Intel SDM volume 3, chapter 4). Firmware maps memory to its own address.

use core::arch::x86_64::__cpuid;
use x86_64::registers::control::{Cr3, Cr4, Cr4Flags};

/// Bits of an entry.
const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const WRITE_THROUGH: u64 = 1 << 3;
const CACHE_DISABLE: u64 = 1 << 4;
/// The entry is of a large page, at levels 2 and 3.
const LARGE: u64 = 1 << 7;
/// The third bit of the memory type, in an entry of a page and in one of a large page.
const PAT: u64 = 1 << 7;
const LARGE_PAT: u64 = 1 << 12;
const NO_EXECUTE: u64 = 1 << 63;
/// Where the next table is, or the page.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    /// Where the first is.
    root: u64,
    levels: u32,
    /// The bit that says in addresses that memory is encrypted, if there is one.
    encrypted: u64,
}

/// What the tables say of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The physical address that it leads to: that of the byte, not of its page.
    pub address: u64,
    /// Each level lets it be written.
    pub writable: bool,
    /// Each level lets it be executed.
    pub executable: bool,
    /// Which of the eight memory types of the PAT it has.
    pub pat_index: u8,
}

impl Tables {
    /// Those that the processor uses.
    pub(crate) fn current() -> Self {
        let large = Cr4::read().contains(Cr4Flags::L5_PAGING);
        let (root, _) = Cr3::read_raw();
        Self {
            root: root.start_address().as_u64(),
            levels: if large { 5 } else { 4 },
            encrypted: encrypted(),
        }
    }

    /// The page of an address. `read` reads an entry, or cannot. `None` where nothing is mapped.
    pub(crate) fn page(&self, address: u64, read: impl Fn(u64) -> Option<u64>) -> Option<Page> {
        let mut table = self.root & ADDRESS & !self.encrypted;
        let mut page = Page {
            address,
            writable: true,
            executable: true,
            pat_index: 0,
        };
        for level in (1..=self.levels).rev() {
            let shift = 12 + 9 * (level - 1);
            let index = (address >> shift) & 0x1ff;
            let entry = read(table + index * 8)?;
            if entry & PRESENT == 0 {
                return None;
            }
            page.writable &= entry & WRITABLE != 0;
            page.executable &= entry & NO_EXECUTE == 0;
            let next = entry & ADDRESS & !self.encrypted;
            let large = entry & LARGE != 0 && (level == 2 || level == 3);
            if level == 1 || large {
                let offset = (1_u64 << shift) - 1;
                page.address = next & !offset | address & offset;
                let pat = if level == 1 { PAT } else { LARGE_PAT };
                page.pat_index = [WRITE_THROUGH, CACHE_DISABLE, pat]
                    .into_iter()
                    .zip(0..)
                    .map(|(bit, place)| u8::from(entry & bit != 0) << place)
                    .sum();
                return Some(page);
            }
            table = next;
        }
        None
    }
}

/// The bit that says in addresses that memory is encrypted (AMD APM volume 2, section 15.34.1); 0 where there is none.
fn encrypted() -> u64 {
    const LEAF: u32 = 0x8000_001f;
    const SEV: u32 = 1 << 1;
    if __cpuid(0x8000_0000).eax < LEAF {
        return 0;
    }
    let leaf = __cpuid(LEAF);
    if leaf.eax & SEV == 0 {
        return 0;
    }
    1 << (leaf.ebx & 0x3f)
}

#[cfg(test)]
mod tests {
    use super::*;

    const C_BIT: u64 = 1 << 47;

    /// The page by tables in which each entry leads to the next table, one page behind; the entry of `special` has these flags instead.
    fn look(address: u64, levels: u32, special: u32, flags: u64) -> Option<Page> {
        let tables = Tables {
            root: C_BIT | 0x1000,
            levels,
            encrypted: C_BIT,
        };
        let read = |entry: u64| {
            let passed = (entry >> 12) as u32 - 1;
            let level = levels - passed;
            let index = (address >> (12 + 9 * (level - 1))) & 0x1ff;
            assert_eq!(entry & 0xfff, index * 8);
            let flags = if level == special {
                flags
            } else {
                PRESENT | WRITABLE
            };
            Some(C_BIT | (u64::from(passed) + 2) << 12 | flags)
        };
        tables.page(address, read)
    }

    #[test]
    fn every_level_must_let_write() {
        let writable = |levels, level, flags| {
            look(0x1234_5678_9abc, levels, level, flags).map(|page| page.writable)
        };
        for levels in [4, 5] {
            for level in 1..=levels {
                assert_eq!(writable(levels, level, PRESENT | WRITABLE), Some(true));
                assert_eq!(writable(levels, level, PRESENT), Some(false));
                assert_eq!(writable(levels, level, WRITABLE), None);
                let executable = |flags| {
                    look(0x1234_5678_9abc, levels, level, flags).map(|page| page.executable)
                };
                assert_eq!(executable(PRESENT), Some(true));
                assert_eq!(executable(PRESENT | NO_EXECUTE), Some(false));
            }
        }
    }

    #[test]
    fn a_large_page_ends_the_way() {
        let large = PRESENT | WRITABLE | LARGE;
        // Nothing is read behind it: that would be an entry with another index.
        for level in [2, 3] {
            assert!(look(0xffff_f000, 4, level, large).unwrap().writable);
            let protected = look(0xffff_f000, 4, level, PRESENT | LARGE).unwrap();
            assert!(!protected.writable);
        }
    }

    #[test]
    fn addresses_are_of_the_page_and_its_offset() {
        let at = |level, flags| look(0x1234_5678_9abc, 4, level, flags).unwrap().address;
        assert_eq!(at(1, PRESENT), 0x5abc);
        // The frames that the tables of this test lead to lie below the first large page.
        assert_eq!(at(2, PRESENT | LARGE), 0x18_9abc);
        assert_eq!(at(3, PRESENT | LARGE), 0x1678_9abc);
    }

    #[test]
    fn the_bits_of_the_type_are_where_the_size_of_the_page_has_them() {
        let index = |level, flags| {
            let page = look(0xffff_f000, 4, level, PRESENT | flags);
            page.unwrap().pat_index
        };
        assert_eq!(index(1, 0), 0);
        assert_eq!(index(1, WRITE_THROUGH), 1);
        assert_eq!(index(1, CACHE_DISABLE), 2);
        assert_eq!(index(1, PAT), 4);
        assert_eq!(index(1, PAT | CACHE_DISABLE | WRITE_THROUGH), 7);
        // Where a small page has that bit, a large one says that it is large, and has it where a small one's address is.
        for (level, page) in [(2, 0x4020_0000), (3, 0x8000_0000)] {
            let tables = Tables {
                root: 0x1000,
                levels: 4,
                encrypted: 0,
            };
            let at = |flags: u64| {
                let leads = |entry: u64| match (entry >> 12) as u32 {
                    passed if 5 - passed > level => (u64::from(passed) + 1) << 12 | PRESENT,
                    _ => page | PRESENT | LARGE | flags,
                };
                let found = tables.page(0x123, |entry| Some(leads(entry))).unwrap();
                (found.address, found.pat_index)
            };
            assert_eq!(at(0), (page + 0x123, 0));
            assert_eq!(at(WRITE_THROUGH), (page + 0x123, 1));
            assert_eq!(at(CACHE_DISABLE), (page + 0x123, 2));
            assert_eq!(at(LARGE_PAT), (page + 0x123, 4));
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_followed() {
        let tables = Tables {
            root: 0x1000,
            levels: 4,
            encrypted: 0,
        };
        assert_eq!(tables.page(0, |_| None), None);
        let once = |entry| (entry == 0x1000).then_some(0x2000 | PRESENT);
        assert_eq!(tables.page(0, once), None);
    }
}
