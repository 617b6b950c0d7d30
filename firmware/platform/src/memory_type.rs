//! How the processor caches memory: its effective memory type, which page tables, PAT and MTRRs make together (Intel SDM volume 3, "Memory Cache
//! Control").

mod change;
mod ranges;
pub mod registers;

pub(crate) use change::change;
#[cfg(target_os = "uefi")]
pub(crate) use change::put_back_in_panic;
pub use change::{Unchanged, as_found};

use crate::known_memory::KnownMemory;
use crate::memory::PAGE;
use crate::page_tables::{Page, Tables};
use core::arch::x86_64::__cpuid;
use core::fmt;
use ranges::Ranges;
use x86_64::registers::control::{Cr0, Cr0Flags};
use x86_64::registers::model_specific::Msr;

/// How memory is cached: SDM volume 3, "Memory Types and Their Properties".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryType {
    /// UC: each access goes to memory, in order.
    Uncached,
    /// UC-: the same, unless the MTRRs say write-combining. Of pages alone.
    UncachedMinus,
    /// WC: writes are collected, reads go to memory.
    WriteCombining,
    /// WT: reads are cached, writes go to memory.
    WriteThrough,
    /// WP: reads are cached, a write goes to memory and takes the line out of all caches.
    WriteProtected,
    /// WB: both are cached.
    WriteBack,
}

impl MemoryType {
    /// By its number in registers.
    fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Uncached,
            1 => Self::WriteCombining,
            4 => Self::WriteThrough,
            5 => Self::WriteProtected,
            6 => Self::WriteBack,
            7 => Self::UncachedMinus,
            _ => return None,
        })
    }

    /// What a page of this type is in a range of another: SDM volume 3, "Effective Page-Level Memory Types for Pentium III and More Recent Processor
    /// Families".
    fn within(self, range: Self) -> Self {
        match (self, range) {
            (Self::Uncached | Self::WriteCombining, _) => self,
            (Self::UncachedMinus, Self::WriteCombining | Self::WriteProtected) => {
                Self::WriteCombining
            }
            (Self::UncachedMinus, _) => Self::Uncached,
            (Self::WriteThrough | Self::WriteProtected, Self::Uncached | Self::WriteCombining) => {
                Self::Uncached
            }
            (Self::WriteThrough | Self::WriteProtected, _) => self,
            (Self::WriteBack, _) => range,
        }
    }
}

impl fmt::Display for MemoryType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uncached => "UC",
            Self::UncachedMinus => "UC-",
            Self::WriteCombining => "WC",
            Self::WriteThrough => "WT",
            Self::WriteProtected => "WP",
            Self::WriteBack => "WB",
        })
    }
}

/// The type of memory that has many pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeOfPages {
    /// All have this one.
    All(MemoryType),
    /// They have not all the same.
    Mixed,
    /// Some are not mapped, or have a type that is undefined.
    Unknown,
}

impl TypeOfPages {
    /// Of these and other pages together.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (one, other) if one == other => one,
            _ => Self::Mixed,
        }
    }
}

impl fmt::Display for TypeOfPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(kind) => kind.fmt(f),
            Self::Mixed => f.write_str("mixed"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// The effective type of some memory, and the two that it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveMemoryType {
    /// What the processor does with it.
    pub effective: TypeOfPages,
    /// What page tables and PAT say.
    pub page: TypeOfPages,
    /// What the MTRRs say.
    pub range: TypeOfPages,
}

/// Why nothing is known of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the processor announces no PAT or no MTRRs (CPUID), or its page tables lie outside the firmware's memory map"
)]
pub struct Unknown;

/// What the processor's registers say of types.
#[derive(Clone, Debug)]
pub struct Types {
    tables: Tables,
    memory: KnownMemory,
    registers: Registers,
}

/// The registers, but for the page tables.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Registers {
    /// Nothing is cached: CR0.CD.
    caches_off: bool,
    pat: [u8; 8],
    ranges: Ranges,
}

impl Registers {
    /// The effective type of a page, and the two that it is made of.
    fn of(&self, page: &Page) -> [Option<MemoryType>; 3] {
        let kind = self.pat.get(usize::from(page.pat_index)).copied();
        let kind = kind.and_then(MemoryType::of);
        let range = self.ranges.at(page.address);
        let effective = kind.zip(range).map(|(kind, range)| kind.within(range));
        let effective = if self.caches_off {
            Some(MemoryType::Uncached)
        } else {
            effective
        };
        [effective, kind, range]
    }
}

impl Types {
    /// Reads the calling processor's registers, and the memory map.
    ///
    /// # Errors
    /// Where the processor does not say that it has them.
    pub fn read() -> Result<Self, Unknown> {
        if !registers::are_announced() {
            return Err(Unknown);
        }
        let read = |register| {
            // SAFETY: the processor announces PAT and MTRRs, and `Ranges` asks for those of them alone that it says are there.
            unsafe { Msr::new(register).read() }
        };
        Ok(Self {
            tables: Tables::current(),
            memory: KnownMemory::read().ok_or(Unknown)?,
            registers: Registers {
                caches_off: Cr0::read().contains(Cr0Flags::CACHE_DISABLE),
                pat: read(registers::PAT).to_le_bytes(),
                ranges: Ranges::read(address_bits(), tom2_is_there(), read),
            },
        })
    }

    /// The types of memory in one piece.
    #[must_use]
    pub fn of(&self, start: u64, bytes: u64) -> EffectiveMemoryType {
        let pages = self.pages(start, bytes);
        let types = pages.map(|page| {
            let types = page.map_or([None; 3], |page| self.registers.of(&page));
            types.map(|kind| kind.map_or(TypeOfPages::Unknown, TypeOfPages::All))
        });
        let told = types.reduce(|[effective, page, range], other| {
            [
                effective.and(other[0]),
                page.and(other[1]),
                range.and(other[2]),
            ]
        });
        let [effective, page, range] = told.unwrap_or([TypeOfPages::Unknown; 3]);
        EffectiveMemoryType {
            effective,
            page,
            range,
        }
    }

    fn pages(&self, start: u64, bytes: u64) -> impl Iterator<Item = Option<Page>> {
        let first = start & !(PAGE as u64 - 1);
        let end = start.saturating_add(bytes);
        let pages = (first..end).step_by(PAGE);
        pages.map(|address| {
            self.tables.page(address, |entry| {
                self.memory.holds(entry, 8).then(|| {
                    // SAFETY: the firmware's memory map has the entry, memory is mapped to its own address, and the processor uses this table.
                    unsafe { (entry as *const u64).read_volatile() }
                })
            })
        })
    }
}

/// Bits of a physical address.
fn address_bits() -> u32 {
    const LEAF: u32 = 0x8000_0008;
    if __cpuid(0x8000_0000).eax < LEAF {
        return 36;
    }
    __cpuid(LEAF).eax & 0xff
}

/// Whether the processor has AMD's SYSCFG and TOM2, and no hypervisor stands before them.
fn tom2_is_there() -> bool {
    ranges::has_tom2(__cpuid(0), __cpuid(1))
}

#[cfg(test)]
mod tests {
    use super::MemoryType::{
        Uncached as UC, UncachedMinus as UCM, WriteBack as WB, WriteCombining as WC,
        WriteProtected as WP, WriteThrough as WT,
    };
    use super::*;

    #[test]
    fn pages_in_ranges_have_the_types_of_the_manuals_table() {
        // Intel SDM volume 3A, table 11-7 (12-7 in later editions): MTRR, then UC, UC-, WC, WT, WB and WP by the PAT.
        let table = [
            (UC, [UC, UC, WC, UC, UC, UC]),
            (WC, [UC, WC, WC, UC, WC, UC]),
            (WT, [UC, UC, WC, WT, WT, WP]),
            (WB, [UC, UC, WC, WT, WB, WP]),
            (WP, [UC, WC, WC, WT, WP, WP]),
        ];
        for (range, effective) in table {
            for (page, effective) in [UC, UCM, WC, WT, WB, WP].into_iter().zip(effective) {
                assert_eq!(page.within(range), effective, "{page} in {range}");
            }
        }
    }

    #[test]
    fn numbers_are_the_manuals() {
        let numbers = (0..9).map(MemoryType::of).collect::<Vec<_>>();
        let all = [
            Some(UC),
            Some(WC),
            None,
            None,
            Some(WT),
            Some(WP),
            Some(WB),
            Some(UCM),
            None,
        ];
        assert_eq!(numbers, all);
    }

    #[test]
    fn many_pages_have_a_type_when_all_have_the_same() {
        let (cached, uncached) = (TypeOfPages::All(WB), TypeOfPages::All(UC));
        assert_eq!(cached.and(cached), cached);
        assert_eq!(cached.and(uncached), TypeOfPages::Mixed);
        assert_eq!(TypeOfPages::Mixed.and(cached), TypeOfPages::Mixed);
        for told in [cached, TypeOfPages::Mixed, TypeOfPages::Unknown] {
            assert_eq!(told.and(TypeOfPages::Unknown), TypeOfPages::Unknown);
            assert_eq!(TypeOfPages::Unknown.and(told), TypeOfPages::Unknown);
        }
        let shown = [cached, TypeOfPages::Mixed, TypeOfPages::Unknown].map(|told| told.to_string());
        assert_eq!(shown, ["WB", "mixed", "unknown"]);
    }

    fn registers(pat: u64, caches_off: bool) -> Registers {
        // MTRRs on, all of memory write-back but where a variable range says uncached.
        let ranges = Ranges::read(36, false, |register| match register {
            0xfe => 1,
            0x2ff => 0x806,
            0x200 => 0x8000_0000,
            0x201 => 0xf_8000_0800,
            other => panic!("{other:#x}"),
        });
        Registers {
            caches_off,
            pat: pat.to_le_bytes(),
            ranges,
        }
    }

    #[test]
    fn the_page_chooses_from_the_pat() {
        let page = |address, pat_index| Page {
            address,
            writable: true,
            executable: true,
            pat_index,
        };
        // As at reset; and entry 5 is WC, entry 6 undefined.
        let registers_on = registers(0x0003_0107_0007_0406 & !(0xff << 8) | 4 << 8, false);
        let of = |address, index| registers_on.of(&page(address, index));
        assert_eq!(of(0x1000, 0), [Some(WB), Some(WB), Some(WB)]);
        assert_eq!(of(0x1000, 1), [Some(WT), Some(WT), Some(WB)]);
        assert_eq!(of(0x1000, 2), [Some(UC), Some(UCM), Some(WB)]);
        assert_eq!(of(0x1000, 5), [Some(WC), Some(WC), Some(WB)]);
        assert_eq!(of(0x1000, 6), [None, None, Some(WB)]);
        assert_eq!(of(0x8000_0000, 0), [Some(UC), Some(WB), Some(UC)]);
        assert_eq!(of(0x8000_0000, 5), [Some(WC), Some(WC), Some(UC)]);
        let off = registers(0x0007_0406_0007_0406, true);
        assert_eq!(off.of(&page(0x1000, 0)), [Some(UC), Some(WB), Some(WB)]);
    }

    #[test]
    fn all_three_must_be_announced() {
        use registers::announced;
        let all = 1 << 5 | 1 << 12 | 1 << 16;
        assert!(announced(all) && announced(u32::MAX));
        for bit in [5, 12, 16] {
            assert!(!announced(all & !(1 << bit)));
        }
    }
}
