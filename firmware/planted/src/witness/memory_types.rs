//! The registers by which the processor gives memory its types: PAT and MTRRs (Intel SDM volume 3, "Memory Cache Control").

use core::arch::x86_64::__cpuid;
use x86_64::registers::model_specific::Msr;

use super::{EMPTY, add};

const PAT: u32 = 0x277;
const CAPABILITIES: u32 = 0xfe;
const DEFAULT_TYPE: u32 = 0x2ff;
/// The first pair of a variable range's base and mask.
const FIRST_VARIABLE: u32 = 0x200;
const FIXED: [u32; 11] = [
    0x250, 0x258, 0x259, 0x268, 0x269, 0x26a, 0x26b, 0x26c, 0x26d, 0x26e, 0x26f,
];
/// Behind so many pairs come the fixed ranges.
const MOST_VARIABLE: u32 = (FIXED[0] - FIRST_VARIABLE) / 2;

/// A sum of them all. `None` where the processor announces none.
pub(super) fn registers() -> Option<u64> {
    /// In CPUID's leaf 1: MSRs, MTRRs, PAT.
    const ANNOUNCED: u32 = 1 << 5 | 1 << 12 | 1 << 16;
    (__cpuid(1).edx & ANNOUNCED == ANNOUNCED).then(|| {
        sum(|register| {
            // SAFETY: the processor announces PAT and MTRRs, and those are read that it says are there.
            unsafe { Msr::new(register).read() }
        })
    })
}

/// The same by `read`.
fn sum(read: impl Fn(u32) -> u64) -> u64 {
    const FIXED_SUPPORTED: u64 = 1 << 8;
    let capabilities = read(CAPABILITIES);
    let pairs = (capabilities as u32 & 0xff).min(MOST_VARIABLE);
    let variable = FIRST_VARIABLE..FIRST_VARIABLE + 2 * pairs;
    let has_fixed = capabilities & FIXED_SUPPORTED != 0;
    let fixed = FIXED.into_iter().filter(|_| has_fixed);
    let all = [PAT, DEFAULT_TYPE].into_iter().chain(variable).chain(fixed);
    all.fold(EMPTY, |sum, register| {
        add(sum, &read(register).to_le_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight variable ranges, and fixed ones.
    const EIGHT: u64 = 0x108;

    fn with(capabilities: u64, changed: u32) -> u64 {
        sum(|register| match register {
            CAPABILITIES => capabilities,
            other => u64::from(other) + u64::from(other == changed),
        })
    }

    #[test]
    fn each_register_that_there_is_counts_and_no_other() {
        let same = with(EIGHT, 0);
        let variable = 0x200..0x210;
        for register in variable.chain(FIXED).chain([PAT, DEFAULT_TYPE]) {
            assert_ne!(with(EIGHT, register), same, "{register:#x}");
        }
        assert_eq!(with(EIGHT, 0x210), same);
        let without_fixed = with(8, 0);
        assert_eq!(with(8, 0x250), without_fixed);
        assert_ne!(with(8, 0x20f), without_fixed);
    }
}
