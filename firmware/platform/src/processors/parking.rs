//! A processor that has nothing to do is parked, so that a hypervisor may run something else there and a machine stays cool:
//! it halts until its own local APIC's timer interrupts that (Intel SDM volume 3, section 11.5.4).

use super::exceptions::are_loaded;
use crate::clock::Clock;
use core::arch::asm;
use core::ptr::NonNull;
use x86_64::registers::model_specific::Msr;

/// IA32_APIC_BASE (Intel SDM volume 4, chapter 2): address and mode of the local APIC.
const BASE: u32 = 0x1b;
const ENABLED: u64 = 1 << 11;
const X2APIC: u64 = 1 << 10;

/// Registers, by their offset in the APIC's page; x2APIC has them at 0x800 + offset / 16.
const END_OF_INTERRUPT: u32 = 0xb0;
const SPURIOUS_VECTOR: u32 = 0xf0;
const SOFTWARE_ENABLED: u32 = 1 << 8;
const TIMER: u32 = 0x320;
const MASKED: u32 = 1 << 16;
const INITIAL_COUNT: u32 = 0x380;
const CURRENT_COUNT: u32 = 0x390;
const DIVIDE: u32 = 0x3e0;
const BY_1: u32 = 0xb;

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

#[derive(Debug)]
enum Apic {
    Page(NonNull<u32>),
    Registers,
}

impl Apic {
    fn read(&self, register: u32) -> u32 {
        match self {
            // SAFETY: within the page of a local APIC that is on; reading has no effect.
            Self::Page(page) => unsafe { page.byte_add(register as usize).read_volatile() },
            // SAFETY: x2APIC is on, so the register exists; reading has no effect.
            Self::Registers => unsafe { Msr::new(0x800 + register / 16).read() as u32 },
        }
    }

    /// # Safety
    /// Only the timer's registers and the end of an interrupt, while its gate is ours.
    unsafe fn write(&self, register: u32, value: u32) {
        match self {
            // SAFETY: within the page; what it does is the caller's word.
            Self::Page(page) => unsafe { page.byte_add(register as usize).write_volatile(value) },
            // SAFETY: the register exists; what it does is the caller's word.
            Self::Registers => unsafe {
                Msr::new(0x800 + register / 16).write(u64::from(value));
            },
        }
    }
}

impl Parking {
    /// The calling processor's timer, calibrated; takes half a millisecond. None on the BSP, whose timer and
    /// gates are the firmware's, and where there is no such timer.
    #[must_use]
    pub fn here(clock: Clock) -> Option<Self> {
        if !are_loaded(VECTOR) {
            return None;
        }
        // SAFETY: every x86-64 processor has the register.
        let base = unsafe { Msr::new(BASE).read() };
        if base & ENABLED == 0 {
            return None;
        }
        let apic = if base & X2APIC != 0 {
            Apic::Registers
        } else {
            Apic::Page(NonNull::new((base & 0x000f_ffff_ffff_f000) as *mut u32)?)
        };
        if apic.read(SPURIOUS_VECTOR) & SOFTWARE_ENABLED == 0 {
            return None;
        }
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
