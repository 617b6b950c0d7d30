//! What writes the processor's caches back.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, _mm_clflush, _mm_mfence};

/// Bytes of a line that CLFLUSH writes back, where the processor has it (CPUID leaf 1).
#[must_use]
pub fn line() -> Option<usize> {
    const CLFLUSH: u32 = 1 << 19;
    let leaf = __cpuid(1);
    let bytes = (leaf.ebx >> 8 & 0xff) as usize * 8;
    (leaf.edx & CLFLUSH != 0 && bytes > 0).then_some(bytes)
}

/// Writes all lines of `memory` back and takes them out of all caches, `line` bytes at a time. Returns how many there were. Does nothing where the
/// processor has no CLFLUSH.
pub fn flush(memory: &[u8]) -> usize {
    let Some(bytes) = line() else {
        return 0;
    };
    let lines = memory.chunks(bytes);
    let count = lines.len();
    for line in lines {
        // SAFETY: the processor has the instruction, and the address is of memory that may be read.
        unsafe { _mm_clflush(line.as_ptr()) };
    }
    // SAFETY: every x86-64 processor has it.
    unsafe { _mm_mfence() };
    count
}

/// Writes all of the processor's caches back and empties them: WBINVD.
pub fn write_back_all() {
    // SAFETY: firmware runs where the instruction is permitted; no data is lost.
    unsafe { asm!("wbinvd", options(nostack, preserves_flags)) };
}

/// Whether a hypervisor says that it is there (CPUID leaf 1).
#[must_use]
pub fn in_virtual_machine() -> bool {
    __cpuid(1).ecx & 1 << 31 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_flushed() {
        let bytes = line().unwrap();
        assert!(bytes.is_power_of_two());
        assert_eq!(flush(&vec![7; 3 * bytes + 1]), 4);
        assert_eq!(flush(&[]), 0);
    }
}
