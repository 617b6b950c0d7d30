//! The MTRRs, by which firmware says which type physical memory has (Intel SDM volume 3, "Memory Type Range Registers").

use super::MemoryType;
use super::registers::{
    CAPABILITIES, DEFAULT_TYPE, FIRST_VARIABLE, FIXED, FIXED_SUPPORTED, variable_pairs,
};
use alloc::vec::Vec;
use core::arch::x86_64::CpuidResult;

/// AMD's (APM volume 2, "System Configuration Register").
const SYSCFG: u32 = 0xc001_0010;
const TOM2: u32 = 0xc001_001d;

/// What the registers say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranges {
    enabled: bool,
    /// Number of the type of what no range has.
    default: u8,
    /// Of the first MiB, where they are enabled.
    fixed: Option<[[u8; 8]; FIXED.len()]>,
    variable: Vec<Variable>,
    /// From 4 GiB to here what no range has is write-back.
    write_back_until: u64,
}

/// A range that is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variable {
    base: u64,
    /// Bits that addresses in it have in common.
    mask: u64,
    /// Number of its type.
    kind: u8,
}

impl Ranges {
    /// By `msr`, which reads a register. `bits` has a physical address. With `tom2` there are AMD's SYSCFG and TOM2, too.
    pub(super) fn read(bits: u32, tom2: bool, msr: impl Fn(u32) -> u64) -> Self {
        const FIXED_ENABLED: u64 = 1 << 10;
        const ENABLED: u64 = 1 << 11;
        const VALID: u64 = 1 << 11;
        const TOM2_ENABLED: u64 = 1 << 21;
        const FORCED_WRITE_BACK: u64 = 1 << 22;
        let addresses = ((1_u64 << bits.clamp(32, 52)) - 1) & !0xfff;
        let capabilities = msr(CAPABILITIES);
        let default = msr(DEFAULT_TYPE);
        let has_fixed = capabilities & FIXED_SUPPORTED != 0 && default & FIXED_ENABLED != 0;
        let count = variable_pairs(capabilities);
        let variable = (0..count).filter_map(|number| {
            let base = msr(FIRST_VARIABLE + number * 2);
            let mask = msr(FIRST_VARIABLE + number * 2 + 1);
            (mask & VALID != 0).then_some(Variable {
                base: base & mask & addresses,
                mask: mask & addresses,
                kind: base as u8,
            })
        });
        let forced = tom2 && {
            let both = TOM2_ENABLED | FORCED_WRITE_BACK;
            msr(SYSCFG) & both == both
        };
        Self {
            enabled: default & ENABLED != 0,
            default: default as u8,
            fixed: has_fixed.then(|| FIXED.map(|register| msr(register).to_le_bytes())),
            variable: variable.collect(),
            write_back_until: if forced { msr(TOM2) & addresses } else { 0 },
        }
    }

    /// The type at a physical address. `None` where ranges contradict each other, or a register has a type that there is not.
    pub(super) fn at(&self, address: u64) -> Option<MemoryType> {
        const FIXED_END: u64 = 1 << 20;
        const FOUR_GIB: u64 = 1 << 32;
        if !self.enabled {
            return Some(MemoryType::Uncached);
        }
        if let Some(fixed) = self.fixed.as_ref().filter(|_| address < FIXED_END) {
            let place = place(address);
            let kind = fixed.as_flattened().get(place)?;
            // AMD has two more bits in each.
            return range_type(kind & 7);
        }
        let mut kinds = self
            .variable
            .iter()
            .filter(|range| address & range.mask == range.base)
            .map(|range| range_type(range.kind));
        let Some(first) = kinds.next() else {
            if (FOUR_GIB..self.write_back_until).contains(&address) {
                return Some(MemoryType::WriteBack);
            }
            return range_type(self.default);
        };
        kinds.fold(first, |one, other| overlapping(one?, other?))
    }
}

/// Which piece of the fixed ranges has an address below 1 MiB: pieces have 64 KiB at first, then 16, then 4.
fn place(address: u64) -> usize {
    let place = match address {
        0..0x8_0000 => address >> 16,
        0x8_0000..0xc_0000 => 8 + ((address - 0x8_0000) >> 14),
        _ => 24 + ((address - 0xc_0000) >> 12),
    };
    place as usize
}

fn range_type(number: u8) -> Option<MemoryType> {
    MemoryType::of(number).filter(|kind| *kind != MemoryType::UncachedMinus)
}

/// What overlapping ranges make (SDM volume 3, "MTRR Precedences").
fn overlapping(one: MemoryType, other: MemoryType) -> Option<MemoryType> {
    use MemoryType::{Uncached, WriteBack, WriteThrough};
    match (one, other) {
        _ if one == other => Some(one),
        (Uncached, _) | (_, Uncached) => Some(Uncached),
        (WriteThrough, WriteBack) | (WriteBack, WriteThrough) => Some(WriteThrough),
        _ => None,
    }
}

/// Whether CPUID's leaves 0 and 1 are of a processor of AMD's or Hygon's that has SYSCFG and TOM2, and no hypervisor stands before it.
pub(super) fn has_tom2(vendor: CpuidResult, version: CpuidResult) -> bool {
    const HYPERVISOR: u32 = 1 << 31;
    /// From here on they are there: K8.
    const FAMILY: u32 = 0xf;
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    let is_amds = [&b"AuthenticAMD"[..], b"HygonGenuine"].contains(&name.as_flattened());
    is_amds && version.ecx & HYPERVISOR == 0 && version.eax >> 8 & 0xf == FAMILY
}

#[cfg(test)]
mod tests {
    use super::MemoryType::{
        Uncached as UC, WriteBack as WB, WriteCombining as WC, WriteProtected as WP,
        WriteThrough as WT,
    };
    use super::*;
    use std::collections::BTreeMap;

    const WHOLE: u32 = 36;
    const MASK: u64 = (1 << WHOLE) - 1;

    /// Ranges by these registers; no other is read.
    fn ranges(tom2: bool, registers: &[(u32, u64)]) -> Ranges {
        let registers: BTreeMap<u32, u64> = registers.iter().copied().collect();
        Ranges::read(WHOLE, tom2, |register| registers[&register])
    }

    /// A variable range of a power of two.
    fn variable(number: u32, base: u64, bytes: u64, kind: u64) -> [(u32, u64); 2] {
        let register = FIRST_VARIABLE + 2 * number;
        [
            (register, base | kind),
            (register + 1, MASK & !(bytes - 1) | 1 << 11),
        ]
    }

    #[test]
    fn without_mtrrs_nothing_is_cached() {
        let off = ranges(false, &[(0xfe, 0x500), (0x2ff, 6)]);
        assert_eq!(off.at(0), Some(UC));
        assert_eq!(off.at(1 << 33), Some(UC));
    }

    #[test]
    fn what_has_no_range_has_the_default() {
        let on =
            |default: u64| ranges(false, &[(0xfe, 0), (0x2ff, 0x800 | default)]).at(0x1234_5000);
        assert_eq!(
            [0, 1, 2, 4, 5, 6, 7].map(on),
            [Some(UC), Some(WC), None, Some(WT), Some(WP), Some(WB), None]
        );
    }

    #[test]
    fn fixed_ranges_have_the_first_mib() {
        let mut registers = vec![(0xfe, 0x100), (0x2ff, 0xc06)];
        // The number of a piece's type tells its place here.
        registers.extend(FIXED.map(|register| (register, 0x0606_0606_0606_0606)));
        let with = |register: u32, value: u64| {
            let mut registers = registers.clone();
            registers.push((register, value));
            ranges(false, &registers)
        };
        let low = with(0x250, 0x0606_0606_0606_0600);
        assert_eq!((low.at(0xffff), low.at(0x1_0000)), (Some(UC), Some(WB)));
        let video = with(0x259, 0);
        assert_eq!(
            (video.at(0x9_ffff), video.at(0xa_0000)),
            (Some(WB), Some(UC))
        );
        assert_eq!(
            (video.at(0xb_ffff), video.at(0xc_0000)),
            (Some(UC), Some(WB))
        );
        let rom = with(0x26f, 0x0506_0606_0606_0606);
        assert_eq!((rom.at(0xf_efff), rom.at(0xf_f000)), (Some(WB), Some(WP)));
        assert_eq!(rom.at(0x10_0000), Some(WB));
        // AMD's bits above a type say where reads and writes go.
        assert_eq!(with(0x250, 0x1e).at(0), Some(WB));
        // Neither off nor unsupported are they read.
        for (capabilities, default) in [(0x100, 0x806), (0, 0xc06)] {
            let off = ranges(false, &[(0xfe, capabilities), (0x2ff, default)]);
            assert_eq!(off.at(0xa_0000), Some(WB));
        }
    }

    #[test]
    fn variable_ranges_are_told_by_base_and_mask() {
        // As OVMF has them with 2 GiB: all is write-back but from 2 to 4 GiB.
        let mut registers = vec![(0xfe, 0x508), (0x2ff, 0x806)];
        registers.extend(variable(0, 0x8000_0000, 0x8000_0000, 0));
        for number in 1..8 {
            registers.extend([(0x200 + 2 * number, 6), (0x201 + 2 * number, 0)]);
        }
        let ovmf = ranges(false, &registers);
        assert_eq!(ovmf.at(0x7fff_ffff), Some(WB));
        assert_eq!(ovmf.at(0x8000_0000), Some(UC));
        assert_eq!(ovmf.at(0xffff_ffff), Some(UC));
        assert_eq!(ovmf.at(0x1_0000_0000), Some(WB));
    }

    #[test]
    fn ranges_that_overlap_take_precedence_as_the_manual_says() {
        let both = |one, other| {
            let mut registers = vec![(0xfe, 2), (0x2ff, 0x800)];
            registers.extend(variable(0, 0, 1 << 32, one));
            registers.extend(variable(1, 0x10_0000, 0x10_0000, other));
            let both = ranges(false, &registers);
            assert_eq!(both.at(0x20_0000), range_type(one as u8));
            both.at(0x18_0000)
        };
        assert_eq!([both(6, 0), both(0, 6), both(1, 0)], [Some(UC); 3]);
        assert_eq!([both(6, 4), both(4, 6)], [Some(WT); 2]);
        assert_eq!([both(6, 6), both(1, 1)], [Some(WB), Some(WC)]);
        assert_eq!([both(6, 1), both(4, 5), both(3, 6)], [None; 3]);
    }

    #[test]
    fn no_register_beyond_the_variable_ranges_is_read() {
        // 255 pairs would reach beyond the fixed ranges.
        let many = Ranges::read(WHOLE, false, |register| match register {
            CAPABILITIES => 0xff,
            DEFAULT_TYPE => 0x806,
            FIRST_VARIABLE..0x250 => 0,
            other => panic!("{other:#x}"),
        });
        assert_eq!(many.at(0), Some(WB));
    }

    #[test]
    fn amds_memory_above_4_gib_is_write_back_up_to_its_top() {
        let at = |syscfg: u64, address| {
            let registers = [
                (0xfe, 0),
                (0x2ff, 0x800),
                (SYSCFG, syscfg),
                (TOM2, 0x2_4000_0000),
            ];
            ranges(true, &registers).at(address)
        };
        assert_eq!(at(3 << 21, 0x1_0000_0000), Some(WB));
        assert_eq!(at(3 << 21, 0x2_3fff_f000), Some(WB));
        assert_eq!(at(3 << 21, 0x2_4000_0000), Some(UC));
        assert_eq!(at(3 << 21, 0xffff_f000), Some(UC));
        assert_eq!(at(1 << 21, 0x1_0000_0000), Some(UC));
        assert_eq!(at(1 << 22, 0x1_0000_0000), Some(UC));
    }

    #[test]
    fn tom2_is_read_of_amds_without_a_hypervisor() {
        let leaf = |eax, ebx, ecx, edx| CpuidResult { eax, ebx, ecx, edx };
        let amd = leaf(0, 0x6874_7541, 0x444d_4163, 0x6974_6e65);
        let intel = leaf(0, 0x756e_6547, 0x6c65_746e, 0x4965_6e69);
        let zen = leaf(0x80_0f11, 0, 0, 0);
        assert!(has_tom2(amd, zen));
        assert!(!has_tom2(intel, zen));
        assert!(!has_tom2(amd, leaf(0x80_0f11, 0, 1 << 31, 0)));
        assert!(!has_tom2(amd, leaf(0x681, 0, 0, 0)));
    }
}
