//! Whether memory may be written, by the page tables (Intel SDM volume 3, chapter 4). Firmware maps memory to its own address.

/// Bits of an entry.
const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
/// The entry is of a large page, at levels 2 and 3.
const LARGE: u64 = 1 << 7;
/// Where the next table is, or the page.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Whether an 8-byte word at `address` may be written, by tables of so many levels, of which `read` reads an entry. `encrypted` is the bit that says
/// in addresses that memory is encrypted, if there is one.
fn leads_to_writable(
    address: u64,
    root: u64,
    levels: u32,
    encrypted: u64,
    read: impl Fn(u64) -> u64,
) -> bool {
    let mut table = root & ADDRESS & !encrypted;
    for level in (1..=levels).rev() {
        let index = (address >> (12 + 9 * (level - 1))) & 0x1ff;
        let entry = read(table + index * 8);
        if entry & PRESENT == 0 || entry & WRITABLE == 0 {
            return false;
        }
        if entry & LARGE != 0 && (level == 2 || level == 3) {
            return true;
        }
        table = entry & ADDRESS & !encrypted;
    }
    true
}

/// Whether the word at `address` may be written.
#[cfg(target_os = "uefi")]
pub(super) fn writable(address: u64) -> bool {
    use x86_64::registers::control::{Cr0, Cr0Flags, Cr3, Cr4, Cr4Flags};
    if !Cr0::read().contains(Cr0Flags::WRITE_PROTECT) {
        return true;
    }
    let large = Cr4::read().contains(Cr4Flags::L5_PAGING);
    let (root, _) = Cr3::read_raw();
    let levels = if large { 5 } else { 4 };
    let read = |entry: u64| {
        // SAFETY: the processor uses these tables, and firmware maps memory to its own address.
        unsafe { (entry as *const u64).read_volatile() }
    };
    leads_to_writable(
        address,
        root.start_address().as_u64(),
        levels,
        encrypted(),
        read,
    )
}

/// The bit that says in addresses that memory is encrypted (AMD APM volume 2, section 15.34.1); 0 where there is none.
#[cfg(target_os = "uefi")]
fn encrypted() -> u64 {
    use core::arch::x86_64::__cpuid;
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

    /// Reads of tables in which each entry leads to the next table, one page behind; the entry of `special` has these flags instead.
    fn look(address: u64, levels: u32, special: u32, flags: u64) -> bool {
        const C_BIT: u64 = 1 << 47;
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
            // The highest bit forbids execution.
            1 << 63 | C_BIT | (u64::from(passed) + 2) << 12 | flags
        };
        leads_to_writable(address, C_BIT | 0x1000, levels, C_BIT, read)
    }

    #[test]
    fn every_level_must_let_write() {
        for levels in [4, 5] {
            for level in 1..=levels {
                assert!(look(0x1234_5678_9abc, levels, level, PRESENT | WRITABLE));
                assert!(!look(0x1234_5678_9abc, levels, level, PRESENT));
                assert!(!look(0x1234_5678_9abc, levels, level, WRITABLE));
            }
        }
    }

    #[test]
    fn a_large_page_ends_the_way() {
        let large = PRESENT | WRITABLE | LARGE;
        // Nothing is read behind it: that would be an entry with another index.
        for level in [2, 3] {
            assert!(look(0xffff_f000, 4, level, large));
            assert!(!look(0xffff_f000, 4, level, PRESENT | LARGE));
        }
        // At level 1 the bit is another (PAT).
        assert!(look(0xffff_f000, 4, 1, large));
    }
}
