//! The registers by which the processor gives memory its types.

use wireboot_platform::memory_type::registers::{
    CAPABILITIES, DEFAULT_TYPE, FIRST_VARIABLE, FIXED, FIXED_SUPPORTED, PAT, are_announced,
    variable_pairs,
};
use x86_64::registers::model_specific::Msr;

use super::{EMPTY, add};

/// A sum of what they hold. `None` where the processor announces none.
pub(super) fn registers() -> Option<u64> {
    are_announced().then(|| {
        sum(|register| {
            // SAFETY: the processor announces PAT and MTRRs, and those are read that it says are there.
            unsafe { Msr::new(register).read() }
        })
    })
}

/// The same by `read`.
fn sum(read: impl Fn(u32) -> u64) -> u64 {
    let capabilities = read(CAPABILITIES);
    let variable = FIRST_VARIABLE..FIRST_VARIABLE + 2 * variable_pairs(capabilities);
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
