//! The local APIC of the calling processor (Intel SDM volume 3, chapter 11).

use core::ptr::NonNull;
use x86_64::registers::model_specific::Msr;

/// IA32_APIC_BASE (Intel SDM volume 4, chapter 2): address and mode of the local APIC.
const BASE: u32 = 0x1b;
const ENABLED: u64 = 1 << 11;
const X2APIC: u64 = 1 << 10;

/// Registers, by their offset in the APIC's page; x2APIC has them at 0x800 + offset / 16.
pub(super) const END_OF_INTERRUPT: u32 = 0xb0;
const SPURIOUS_VECTOR: u32 = 0xf0;
const SOFTWARE_ENABLED: u32 = 1 << 8;
const INTERRUPT_COMMAND: u32 = 0x300;
const INTERRUPT_COMMAND_HIGH: u32 = 0x310;
/// Of the interrupt command: a non-maskable interrupt, asserted; it has not been sent yet.
const NMI: u32 = 0b100 << 8 | 1 << 14;
const PENDING: u32 = 1 << 12;
pub(super) const TIMER: u32 = 0x320;
pub(super) const MASKED: u32 = 1 << 16;
pub(super) const INITIAL_COUNT: u32 = 0x380;
pub(super) const CURRENT_COUNT: u32 = 0x390;
pub(super) const DIVIDE: u32 = 0x3e0;
pub(super) const BY_1: u32 = 0xb;

/// The local APIC of the processor that it was made on, and for no other.
#[derive(Debug)]
pub(crate) enum Apic {
    Page(NonNull<u32>),
    /// x2APIC: model-specific registers.
    Registers,
}

impl Apic {
    /// The calling processor's, where it is on.
    pub(crate) fn here() -> Option<Self> {
        // SAFETY: every x86-64 processor has the register.
        let base = unsafe { Msr::new(BASE).read() };
        if base & ENABLED == 0 {
            return None;
        }
        let apic = if base & X2APIC != 0 {
            Self::Registers
        } else {
            Self::Page(NonNull::new((base & 0x000f_ffff_ffff_f000) as *mut u32)?)
        };
        (apic.read(SPURIOUS_VECTOR) & SOFTWARE_ENABLED != 0).then_some(apic)
    }

    pub(super) fn read(&self, register: u32) -> u32 {
        match self {
            // SAFETY: within the page of a local APIC that is on; reading has no effect.
            Self::Page(page) => unsafe { page.byte_add(register as usize).read_volatile() },
            // SAFETY: x2APIC is on, so the register exists; reading has no effect.
            Self::Registers => unsafe { Msr::new(0x800 + register / 16).read() as u32 },
        }
    }

    /// # Safety
    /// Only the timer's registers and the end of an interrupt, while its gate is ours; else as the caller says.
    pub(super) unsafe fn write(&self, register: u32, value: u32) {
        match self {
            // SAFETY: within the page; what it does is the caller's word.
            Self::Page(page) => unsafe { page.byte_add(register as usize).write_volatile(value) },
            // SAFETY: the register exists; what it does is the caller's word.
            Self::Registers => unsafe {
                Msr::new(0x800 + register / 16).write(u64::from(value));
            },
        }
    }

    /// Sends a non-maskable interrupt to the processor `apic_id`. False where the one before has not left yet.
    ///
    /// # Safety
    /// That processor's gate for it is ours, or whoever has it can take one.
    pub(crate) unsafe fn send_nmi(&self, apic_id: u32) -> bool {
        match self {
            Self::Page(_) => {
                if self.read(INTERRUPT_COMMAND) & PENDING != 0 {
                    return false;
                }
                // SAFETY: the second write sends it, to whom the first says; that it may be sent is the caller's word.
                unsafe {
                    self.write(INTERRUPT_COMMAND_HIGH, apic_id << 24);
                    self.write(INTERRUPT_COMMAND, NMI);
                }
            }
            // SAFETY: x2APIC has the command in one register.
            Self::Registers => unsafe {
                Msr::new(0x800 + INTERRUPT_COMMAND / 16)
                    .write(u64::from(apic_id) << 32 | u64::from(NMI));
            },
        }
        true
    }
}
