//! Time that goes by in a service itself: by the time-stamp counter, as a stall would be a service of its own.

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering};
use wireboot_platform::Clock;

static TICKS_PER_MILLI: AtomicU64 = AtomicU64::new(0);

fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and firmware runs where it is permitted.
    unsafe { _rdtsc() }
}

/// Learns how fast the counter is.
pub(crate) fn calibrate() {
    let clock = Clock::calibrate_finely();
    TICKS_PER_MILLI.store(clock.ticks_of(1000), Ordering::Relaxed);
}

/// Lets so many microseconds go by.
pub(crate) fn wait(micros: u64) {
    let ticks_wanted = micros.saturating_mul(TICKS_PER_MILLI.load(Ordering::Relaxed)) / 1000;
    let begun = ticks();
    while ticks().wrapping_sub(begun) < ticks_wanted {
        core::hint::spin_loop();
    }
}
