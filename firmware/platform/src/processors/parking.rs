//! A processor that has nothing to do is parked, so that a hypervisor may run something else there and a machine stays cool:
//! it halts until its own local APIC's timer interrupts that (Intel SDM volume 3, section 11.5.4).

use super::apic::{
    Apic, BY_1, CURRENT_COUNT, DIVIDE, END_OF_INTERRUPT, INITIAL_COUNT, MASKED, TIMER,
};
use super::exceptions::are_loaded;
use crate::clock::Clock;
use core::arch::asm;

/// The timer's interrupt. Which one does not matter: nothing else raises interrupts here.
const VECTOR: u8 = 0x40;
/// How long the timer is compared with the clock, in microseconds.
const CALIBRATION: u64 = 500;

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
    /// The calling processor's timer, calibrated; takes half a millisecond. None on the BSP, whose timer and
    /// gates are the firmware's, and where there is no such timer.
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
            apic.write(INITIAL_COUNT, u32::MAX);
        }
        let start = clock.micros();
        let elapsed = loop {
            let elapsed = clock.micros() - start;
            if elapsed >= CALIBRATION {
                break elapsed;
            }
        };
        let ticks = u32::MAX - apic.read(CURRENT_COUNT);
        let parking = Self {
            rate: u32::try_from(u64::from(ticks) / elapsed).ok()?,
            apic,
            timer,
            divide,
        };
        // SAFETY: stops the timer.
        unsafe { parking.apic.write(INITIAL_COUNT, 0) };
        // A timer that stands still would never wake us.
        (parking.rate > 0).then_some(parking)
    }

    /// Halts the processor for about so many microseconds.
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
