//! Time in which the processor does not run the firmware though its interrupts are off: system management mode, or a virtual machine's host.

use crate::Clock;
use crate::clock::ticks;
use core::arch::x86_64::{__cpuid, CpuidResult};
use x86_64::instructions::interrupts::without_interrupts;
use x86_64::registers::model_specific::Msr;

/// Interrupts are off no longer at a time, in microseconds.
const CHUNK: u64 = 20_000;
/// From one look at the counter to the next, at least so many microseconds are a gap.
const GAP: u64 = 10;

/// What [`look`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stolen {
    /// How long it was looked, in nanoseconds.
    pub looked: u64,
    /// All gaps, in nanoseconds.
    pub stolen: u64,
    /// How many there were.
    pub gaps: u64,
    /// The longest, in nanoseconds.
    pub longest: u64,
    /// System management interrupts meanwhile, where the processor counts them.
    pub smis: Option<u64>,
}

/// Looks for so many microseconds.
#[must_use]
pub fn look(clock: Clock, micros: u64) -> Stolen {
    let before = smi_count();
    let mut gaps = Gaps::new(clock.ticks_of(GAP));
    let chunk = clock.ticks_of(CHUNK);
    for _ in 0..micros.div_ceil(CHUNK) {
        without_interrupts(|| gaps.look(chunk, ticks));
    }
    let after = smi_count();
    Stolen {
        looked: clock.nanos_of(gaps.looked),
        stolen: clock.nanos_of(gaps.stolen),
        gaps: gaps.count,
        longest: clock.nanos_of(gaps.longest),
        smis: before
            .zip(after)
            .map(|(before, after)| after.wrapping_sub(before)),
    }
}

/// Gaps between looks at the counter, in its ticks.
#[derive(Debug, Default)]
struct Gaps {
    least: u64,
    looked: u64,
    stolen: u64,
    count: u64,
    longest: u64,
}

impl Gaps {
    fn new(least: u64) -> Self {
        Self {
            least,
            ..Self::default()
        }
    }

    /// Looks at the counter again and again, for so many ticks.
    fn look(&mut self, chunk: u64, mut now: impl FnMut() -> u64) {
        let begun = now();
        let mut last = begun;
        while last.wrapping_sub(begun) < chunk {
            let next = now();
            let gap = next.wrapping_sub(last);
            last = next;
            if gap >= self.least {
                self.stolen = self.stolen.saturating_add(gap);
                self.count += 1;
                self.longest = self.longest.max(gap);
            }
        }
        self.looked = self.looked.saturating_add(last.wrapping_sub(begun));
    }
}

/// MSR_SMI_COUNT (Intel SDM volume 4, table 2-15): system management interrupts since reset, in the lower half.
fn smi_count() -> Option<u64> {
    const SMI_COUNT: u32 = 0x34;
    let is_there = counts_smis(__cpuid(0), __cpuid(1));
    // SAFETY: the processor has the register, and no hypervisor stands before it.
    is_there.then(|| u64::from(unsafe { Msr::new(SMI_COUNT).read() } as u32))
}

/// Whether CPUID's leaves 0 and 1 are of a processor that has the register: Intel's family 6 from Nehalem on, but for the first Atoms. Hypervisors
/// are not asked: some know no such register.
fn counts_smis(vendor: CpuidResult, version: CpuidResult) -> bool {
    const INTEL: [u32; 3] = [
        u32::from_le_bytes(*b"Genu"),
        u32::from_le_bytes(*b"ineI"),
        u32::from_le_bytes(*b"ntel"),
    ];
    const HYPERVISOR: u32 = 1 << 31;
    /// The first of Nehalem's.
    const NEHALEM: u32 = 0x1a;
    /// Bonnell's and Saltwell's, which are Atoms, and a last Core 2.
    const WITHOUT: [u32; 6] = [0x1c, 0x1d, 0x26, 0x27, 0x35, 0x36];
    let family = version.eax >> 8 & 0xf;
    let model = version.eax >> 12 & 0xf0 | version.eax >> 4 & 0xf;
    [vendor.ebx, vendor.edx, vendor.ecx] == INTEL
        && version.ecx & HYPERVISOR == 0
        && family == 6
        && model >= NEHALEM
        && !WITHOUT.contains(&model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_counted_from_their_least_length_on() {
        // The end is beyond the counter's.
        let start = u64::MAX - 50;
        let mut times = [0, 5, 14, 24, 25, 65, 66, 101]
            .map(|at| start.wrapping_add(at))
            .into_iter();
        let mut gaps = Gaps::new(10);
        gaps.look(100, || times.next().unwrap());
        assert_eq!(times.next(), None);
        let told = (gaps.looked, gaps.stolen, gaps.count, gaps.longest);
        assert_eq!(told, (101, 10 + 40 + 35, 3, 40));
    }

    fn leaf(eax: u32, ebx: u32, ecx: u32, edx: u32) -> CpuidResult {
        CpuidResult { eax, ebx, ecx, edx }
    }

    #[test]
    fn the_register_is_read_where_it_is_alone() {
        let intel = leaf(0, 0x756e_6547, 0x6c65_746e, 0x4965_6e69);
        let amd = leaf(0, 0x6874_7541, 0x444d_4163, 0x6974_6e65);
        let has = |vendor, eax, ecx| counts_smis(vendor, leaf(eax, 0, ecx, 0));
        // Nehalem, Skylake, Silvermont.
        for eax in [0x106a5, 0x506e3, 0x30678] {
            assert!(has(intel, eax, 0), "{eax:#x}");
            assert!(!has(intel, eax, 1 << 31), "{eax:#x} under a hypervisor");
            assert!(!has(amd, eax, 0), "{eax:#x}");
        }
        // Core 2, Dunnington, two Atoms, Pentium 4, Zen.
        for eax in [0x10676, 0x106d1, 0x106c2, 0x30661, 0xf43, 0x80_0f11] {
            assert!(!has(intel, eax, 0), "{eax:#x}");
        }
    }
}
