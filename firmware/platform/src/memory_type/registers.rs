//! The registers that give memory its types: PAT and MTRRs (Intel SDM volume 3, section 12.11).

use core::arch::x86_64::__cpuid;

/// The page attribute table.
pub const PAT: u32 = 0x277;
/// Which MTRRs there are.
pub const CAPABILITIES: u32 = 0xfe;
/// In [`CAPABILITIES`]: the [`FIXED`] ones are there.
pub const FIXED_SUPPORTED: u64 = 1 << 8;
/// The type of what no range has, and which ranges are enabled.
pub const DEFAULT_TYPE: u32 = 0x2ff;
/// The base of the first variable range. Its mask is behind it, and then come the others.
pub const FIRST_VARIABLE: u32 = 0x200;
/// Each with the types of eight pieces of the first MiB, in the order of addresses.
pub const FIXED: [u32; 11] = [
    0x250, 0x258, 0x259, 0x268, 0x269, 0x26a, 0x26b, 0x26c, 0x26d, 0x26e, 0x26f,
];

/// How many variable ranges there are, by what [`CAPABILITIES`] holds. Behind so many come the fixed ones.
#[must_use]
pub fn variable_pairs(capabilities: u64) -> u32 {
    const MOST: u32 = (FIXED[0] - FIRST_VARIABLE) / 2;
    (capabilities as u32 & 0xff).min(MOST)
}

/// Whether the processor has MSRs, MTRRs and the PAT.
#[must_use]
pub fn are_announced() -> bool {
    announced(__cpuid(1).edx)
}

/// The same by CPUID's leaf 1.
pub(super) fn announced(edx: u32) -> bool {
    const ALL: u32 = 1 << 5 | 1 << 12 | 1 << 16;
    edx & ALL == ALL
}
