//! An AP (application processor) that has nothing to do is parked, so that a hypervisor may run something else there and a machine stays
//! cool: it halts until its own local APIC's timer interrupts that (Intel SDM volume 3, section 11.5.4).

use super::apic::{
    Apic, BY_1, CURRENT_COUNT, DIVIDE, END_OF_INTERRUPT, INITIAL_COUNT, MASKED, TIMER,
};
use super::exceptions::are_loaded;
use crate::clock::Clock;
use core::arch::asm;

/// The timer's interrupt. Which one does not matter: nothing else raises interrupts here.
const VECTOR: u8 = 0x40;
/// How long the timer is compared with the clock, in microseconds, and how often where a hypervisor runs something else meanwhile.
const CALIBRATION: u64 = 500;
const CALIBRATIONS: usize = 5;
/// What such a comparison may last longer.
const DISTURBANCE: u64 = 100;

/// The local APIC of the processor that it was made on, and for no other.
#[derive(Debug)]
pub struct Parking {
    apic: Apic,
    /// Ticks of the timer in a microsecond.
    rate: u32,
    /// The firmware's values of these registers, put back on drop.
    timer: u32,
    divide: u32,
}

impl Parking {
    /// The calling processor's timer, calibrated; takes half a millisecond, undisturbed. None on the BSP (bootstrap processor), whose timer
    /// and gates are the firmware's, and where there is no such timer.
    #[must_use]
    pub fn here(clock: Clock) -> Option<Self> {
        if !are_loaded(VECTOR) {
            return None;
        }
        let apic = Apic::here()?;
        let (timer, divide) = (apic.read(TIMER), apic.read(DIVIDE));
        // SAFETY: a masked timer raises nothing.
        unsafe {
            apic.write(TIMER, MASKED | u32::from(VECTOR));
            apic.write(DIVIDE, BY_1);
        }
        let rate = calibrated(|| {
            compared(
                || clock.micros(),
                // SAFETY: the timer is masked.
                || unsafe { apic.write(INITIAL_COUNT, u32::MAX) },
                || u32::MAX - apic.read(CURRENT_COUNT),
            )
        });
        let parking = Self {
            rate,
            apic,
            timer,
            divide,
        };
        // SAFETY: stops the timer.
        unsafe { parking.apic.write(INITIAL_COUNT, 0) };
        // A timer that stands still would never wake us.
        (parking.rate > 0).then_some(parking)
    }

    /// Halts the AP for about so many microseconds.
    pub fn park(&self, micros: u32) {
        // SAFETY: the gate of the timer's vector is ours and does nothing but return (`exceptions`). `sti` takes effect after the
        // next instruction, so that the interrupt cannot come before `hlt`.
        unsafe {
            self.apic.write(TIMER, u32::from(VECTOR));
            self.apic
                .write(INITIAL_COUNT, self.rate.saturating_mul(micros).max(1));
            asm!("sti", "hlt", "cli", options(nomem, nostack));
            self.apic.write(END_OF_INTERRUPT, 0);
        }
    }
}

/// The ticks of a timer from `start` on, and a time in microseconds that is at least as long, whatever comes between.
fn compared(
    micros: impl Fn() -> u64,
    start: impl FnOnce(),
    ticks: impl FnOnce() -> u32,
) -> (u32, u64) {
    let begin = micros();
    start();
    while micros() - begin < CALIBRATION {}
    let ticks = ticks();
    (ticks, micros() - begin)
}

/// Ticks of the timer in a microsecond, by comparisons that each give the ticks and a time in microseconds that was at least as long. A
/// disturbed one thus says too few, and the processor is parked too short: with too many it might not wake for seconds.
fn calibrated(mut compare: impl FnMut() -> (u32, u64)) -> u32 {
    let mut rate = 0;
    for _ in 0..CALIBRATIONS {
        let (ticks, micros) = compare();
        let found = u64::from(ticks) / micros.max(1);
        rate = rate.max(u32::try_from(found).unwrap_or(u32::MAX));
        if micros <= CALIBRATION + DISTURBANCE {
            break;
        }
    }
    rate
}

impl Drop for Parking {
    fn drop(&mut self) {
        // SAFETY: as the firmware had it, with the count at 0: nothing comes.
        unsafe {
            self.apic.write(INITIAL_COUNT, 0);
            self.apic.write(DIVIDE, self.divide);
            self.apic.write(TIMER, self.timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The processor has to wait for a second when it is about to start the timer, or to read it.
    #[test]
    fn no_wait_makes_the_timer_faster() {
        use core::cell::Cell;
        for (before_start, before_read) in [(0, 0), (1_000_000, 0), (0, 1_000_000)] {
            let (now, begun) = (Cell::new(0), Cell::new(0));
            let pass = |micros: u64| now.set(now.get() + micros);
            let (ticks, micros) = compared(
                || {
                    pass(1);
                    now.get()
                },
                || {
                    pass(before_start);
                    begun.set(now.get());
                },
                || {
                    pass(before_read);
                    (1000 * (now.get() - begun.get())) as u32
                },
            );
            let rate = u64::from(ticks) / micros;
            assert!(rate <= 1000, "{before_start}, {before_read}: {rate}");
            assert!(ticks > 0 && micros >= CALIBRATION);
        }
    }

    /// What these comparisons make of a timer, and how many were made.
    fn of(compared: &[(u32, u64)]) -> (u32, usize) {
        let mut count = 0;
        let rate = calibrated(|| {
            count += 1;
            compared[count - 1]
        });
        (rate, count)
    }

    #[test]
    fn a_disturbed_comparison_never_says_too_much() {
        // A thousand ticks in a microsecond.
        assert_eq!(of(&[(500_000, 500)]), (1000, 1));
        assert_eq!(of(&[(500_000, 600)]), (833, 1));
        // The processor had to wait a second: before the timer was read, and behind it.
        assert_eq!(of(&[(1_000_500_000, 1_000_500), (510_000, 510)]), (1000, 2));
        assert_eq!(of(&[(500_000, 1_000_500), (510_000, 510)]), (1000, 2));
        let worst = [(500_000, 10_000); CALIBRATIONS];
        assert_eq!(of(&worst), (50, CALIBRATIONS));
        // One that stands still.
        assert_eq!(of(&[(0, 500)]), (0, 1));
    }
}
