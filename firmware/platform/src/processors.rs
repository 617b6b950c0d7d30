//! The machine's APs (application processors), by EFI_MP_SERVICES_PROTOCOL (PI 1.8, volume 2, section 13.4).
//!
//! What runs there may call no boot service: firmware is not made for it. Such a processor has interrupts off, the
//! page tables of the BSP (bootstrap processor), and a stack and exception handlers of ours.

pub(crate) mod apic;
mod exceptions;
mod failure;
mod parking;
mod stack;
mod tlb;

pub(crate) use exceptions::remember_image;
#[cfg(target_os = "uefi")]
pub(crate) use failure::record_and_halt;
pub use parking::Parking;
pub use tlb::flush as flush_tlb;

use self::apic::Apic;
use self::exceptions::Tables;
use self::stack::Stack;
use crate::clock::Clock;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::ffi::c_void;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use uefi::boot::{self, EventType, OpenProtocolAttributes, OpenProtocolParams, Tpl};
use uefi::proto::pi::mp::MpServices;
use wireboot_threads::Entry;
use x86_64::registers::model_specific::Msr;

/// How long an AP may take to halt by a non-maskable interrupt, in microseconds: hypervisors run something else meanwhile.
const HALT: u64 = 2_000_000;
/// How often is looked whether it has, in microseconds.
const LOOK: u64 = 1000;
/// Processors with a higher number are not used.
const MAX_PROCESSORS: usize = 1024;
/// On which APs our code may run: a bit for each, by their numbers. For those whose [`Processor`] nobody has any more.
static RUNNING: [AtomicU64; MAX_PROCESSORS / 64] =
    [const { AtomicU64::new(0) }; MAX_PROCESSORS / 64];
/// The firmware's services, once they were found.
static SERVICES: AtomicPtr<MpServices> = AtomicPtr::new(ptr::null_mut());
/// The leaf of CPUID that tells of encrypted memory (AMD64 APM volume 3, appendix E.4.17).
const ENCRYPTION: u32 = 0x8000_001f;
/// What of that is on in a guest (AMD64 APM volume 2, section 15.34.10).
const SEV_STATUS: u32 = 0xc001_0131;

/// Why no AP can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAps {
    /// The firmware does not offer them.
    NoServices,
    /// The BSP is the only one.
    SingleProcessor,
    /// All APs are disabled or broken.
    Disabled,
    /// It is a guest with encrypted registers (SEV-ES): CPUID raises an exception there, for which there is no handler of ours.
    Encrypted,
}

impl fmt::Display for NoAps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoServices => "the firmware does not offer APs",
            Self::SingleProcessor => "the machine has one processor",
            Self::Disabled => "all APs are disabled",
            Self::Encrypted => "the machine's registers are encrypted (SEV-ES)",
        })
    }
}

/// An AP that the firmware has nothing to do for.
#[derive(Debug)]
pub struct Processor {
    services: NonNull<MpServices>,
    number: usize,
    apic_id: u32,
    started: Option<Started>,
}

/// What an AP was started with. The event is never closed, since the firmware signals it late.
#[derive(Debug)]
struct Started {
    launch: NonNull<Launch>,
    stack: Stack,
}

/// What the firmware hands to [`on_processor`].
struct Launch {
    /// Upper end of the stack.
    top: usize,
    tables: Box<Tables>,
    entry: Entry,
    argument: *mut c_void,
    /// The gates of exceptions are ours.
    gated: AtomicBool,
    /// The AP has left our stack for the firmware's.
    left: AtomicBool,
}

/// The APs that can be started.
///
/// # Errors
/// [`NoAps`] when there is none.
pub fn aps() -> Result<Vec<Processor>, NoAps> {
    let is_told = __cpuid(0x8000_0000).eax >= ENCRYPTION;
    // SAFETY: processors with SEV have the register; reading has no effect.
    let status = || unsafe { Msr::new(SEV_STATUS).read() };
    if is_told && has_encrypted_registers(__cpuid(ENCRYPTION).eax, status) {
        return Err(NoAps::Encrypted);
    }
    let services = services().ok_or(NoAps::NoServices)?;
    SERVICES.store(services.as_ptr(), Ordering::Relaxed);
    // SAFETY: the firmware's protocol stays installed until boot services end.
    let mp = unsafe { services.as_ref() };
    let total = mp
        .get_number_of_processors()
        .map_err(|_| NoAps::NoServices)?
        .total;
    if total < 2 {
        return Err(NoAps::SingleProcessor);
    }
    let usable = |number: usize| {
        let info = mp.get_processor_info(number).ok()?;
        (!info.is_bsp() && info.is_enabled() && info.is_healthy()).then_some(Processor {
            services,
            number,
            // Its upper half is reserved.
            apic_id: info.processor_id as u32,
            started: None,
        })
    };
    let found: Vec<Processor> = (0..total.min(MAX_PROCESSORS)).filter_map(usable).collect();
    if found.is_empty() {
        return Err(NoAps::Disabled);
    }
    Ok(found)
}

/// True in a guest with SEV-ES, by EAX of [`ENCRYPTION`] and by [`SEV_STATUS`], which not all processors have.
fn has_encrypted_registers(encryption: u32, status: impl FnOnce() -> u64) -> bool {
    const SEV: u32 = 1 << 1;
    const SEV_ES: u64 = 1 << 1;
    encryption & SEV != 0 && status() & SEV_ES != 0
}

fn services() -> Option<NonNull<MpServices>> {
    let handle = boot::get_handle_for_protocol::<MpServices>().ok()?;
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: the firmware's processor driver is never unloaded.
    let protocol =
        unsafe { boot::open_protocol::<MpServices>(params, OpenProtocolAttributes::GetProtocol) }
            .ok()?;
    protocol.get().map(NonNull::from)
}

/// Ends our code on all APs, wherever it is there: what runs on must not find its memory in other hands. False when the
/// firmware refuses. For the BSP; takes neither a lock nor memory of the heap, which an AP that is ended may hold.
pub(crate) fn stop_all() -> bool {
    let Some(services) = NonNull::new(SERVICES.load(Ordering::Relaxed)) else {
        return true;
    };
    let runs = |number: &usize| {
        let word = RUNNING.get(number / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (number % 64)) != 0)
    };
    // Each, also where one does not stop.
    let stays = |number: &usize| !stop(services, *number);
    (0..MAX_PROCESSORS).filter(runs).filter(stays).count() == 0
}

/// Has the firmware reset an AP to idle. False when it refuses.
fn stop(services: NonNull<MpServices>, number: usize) -> bool {
    // SAFETY: the firmware's protocol stays installed until boot services end.
    let mp = unsafe { services.as_ref() };
    // Enabling resets an AP to where it waits for work; one that is not disabled is not enabled.
    let stopped = mp.enable_disable_ap(number, false, None).is_ok()
        && mp.enable_disable_ap(number, true, None).is_ok();
    if stopped {
        set_running(number, false);
    }
    stopped
}

/// Notes whether our code may run on an AP.
fn set_running(number: usize, running: bool) {
    let Some(word) = RUNNING.get(number / 64) else {
        return;
    };
    let bit = 1 << (number % 64);
    if running {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

impl Processor {
    /// Its number among the machine's processors.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The message of code that panicked or faulted there, once; `None` also while an AP writes one.
    #[must_use]
    pub fn failure_message(&self) -> Option<String> {
        failure::take(self.apic_id)
    }

    /// True when what runs there has come to the end of its stack, on firmware that does not make a fault of it.
    #[must_use]
    pub fn is_overflowing(&self) -> bool {
        self.started
            .as_ref()
            .is_some_and(|started| started.stack.is_exhausted())
    }

    /// Ends what runs there, wherever it is: the firmware resets the AP to idle. False when the firmware
    /// refuses. What the code had is as it left it, and nobody else's.
    pub fn kill(&mut self) -> bool {
        // Its stack and launch are left to it for good.
        core::mem::forget(self.started.take());
        #[cfg(feature = "faults")]
        if crate::faults::kills_nothing() {
            return false;
        }
        stop(self.services, self.number)
    }

    /// Halts an AP that does not end what it runs, for good and wherever it is, by a non-maskable interrupt. `told`: where it was, or why
    /// it had halted already. It is not called where the AP does not say that in time. Calls no firmware, and takes no memory of the heap,
    /// which the AP may have locked.
    pub fn halt(&self, clock: Clock, told: impl FnOnce(&str)) {
        let mut told = Some(told);
        let mut tell = || {
            failure::tell(self.apic_id, |message| {
                if let Some(told) = told.take() {
                    told(message);
                }
            })
        };
        if tell() {
            return;
        }
        let Some(apic) = Apic::here() else { return };
        let mut sent = false;
        for _ in 0..HALT / LOOK {
            // SAFETY: its gate for it is ours, and halts it; or it leaves our code at this very moment, and what the firmware's gate does
            // there is what becomes of an AP that nobody uses.
            sent = sent || self.is_gated() && unsafe { apic.send_nmi(self.apic_id) };
            let begin = clock.micros();
            while clock.micros() - begin < LOOK {
                core::hint::spin_loop();
            }
            if tell() {
                return;
            }
        }
    }

    /// True while what runs there is our code with our gates.
    fn is_gated(&self) -> bool {
        self.started.as_ref().is_some_and(|started| {
            // SAFETY: a launch lives until `retire` has seen that it was left.
            unsafe { started.launch.as_ref() }
                .gated
                .load(Ordering::Acquire)
        })
    }

    /// True when nothing of ours runs there any more.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.started.as_ref().is_none_or(|started| {
            // SAFETY: a launch lives until `retire` has seen this flag.
            unsafe { started.launch.as_ref() }
                .left
                .load(Ordering::Acquire)
        })
    }

    /// Takes the stack back from an idle AP; that of one which is not is left to it.
    fn retire(&mut self) {
        let idle = self.is_idle();
        if let Some(started) = self.started.take() {
            if idle {
                set_running(self.number, false);
                // SAFETY: leaked in `start`; the AP has set the flag, after which it does not touch it.
                drop(unsafe { Box::from_raw(started.launch.as_ptr()) });
            } else {
                core::mem::forget(started);
            }
        }
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.retire();
    }
}

impl wireboot_threads::Processor for Processor {
    type Error = uefi::Error;

    unsafe fn start(&mut self, entry: Entry, argument: *mut c_void) -> uefi::Result<()> {
        self.retire();
        let stack = Stack::new()?;
        let launch = NonNull::from(Box::leak(Box::new(Launch {
            top: stack.top(),
            tables: Tables::new(),
            entry,
            argument,
            gated: AtomicBool::new(false),
            left: AtomicBool::new(false),
        })));
        // With an event, the firmware does not wait for the AP to finish.
        // SAFETY: an event without a notification function.
        let event = unsafe { boot::create_event(EventType::empty(), Tpl::APPLICATION, None, None) };
        set_running(self.number, true);
        let started = event.and_then(|event| {
            // SAFETY: the firmware's protocol stays installed until boot services end.
            let mp = unsafe { self.services.as_ref() };
            mp.startup_this_ap(
                self.number,
                on_processor,
                launch.as_ptr().cast(),
                Some(event),
                None,
            )
        });
        match started {
            Ok(()) => {
                self.started = Some(Started { launch, stack });
                Ok(())
            }
            Err(error) => {
                set_running(self.number, false);
                // SAFETY: leaked above, and the firmware did not take it.
                drop(unsafe { Box::from_raw(launch.as_ptr()) });
                Err(error)
            }
        }
    }
}

/// The first of our code on an AP, on the firmware's stack for it.
extern "efiapi" fn on_processor(launch: *mut c_void) {
    let launch = launch.cast::<Launch>();
    // SAFETY: a `Launch` lives until `left` is set, and all of it but the flags is this processor's meanwhile. Interrupts are
    // off; the stack belongs to this call; the entry may be called with the argument, by whoever called `start`.
    unsafe {
        let before = (*launch).tables.load();
        (*launch).gated.store(before.is_some(), Ordering::Release);
        call_on_stack((*launch).top, (*launch).entry, (*launch).argument);
        (*launch).gated.store(false, Ordering::Release);
        if let Some(before) = before {
            before.restore();
        }
        (*launch).left.store(true, Ordering::Release);
    }
}

/// Calls `entry(argument)` on the stack that ends at `top`.
///
/// # Safety
/// The memory below `top`, which is a multiple of 16, must be the call's own and enough for it, and the call sound.
unsafe fn call_on_stack(top: usize, entry: Entry, argument: *mut c_void) {
    // SAFETY: the callee preserves r12, which holds the former stack pointer meanwhile; all that it does not preserve is declared
    // lost. 32 bytes are the callee's by the Microsoft calling convention. The argument goes where either convention has it.
    unsafe {
        asm!(
            "xchg rsp, r12",
            "sub rsp, 32",
            "call {entry}",
            "mov rsp, r12",
            entry = in(reg) entry,
            in("rcx") argument,
            in("rdi") argument,
            inout("r12") top => _,
            clobber_abi("C"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn entry(argument: *mut c_void) {
        let here = 0u8;
        // SAFETY: the test's own pair.
        let told = unsafe { &mut *argument.cast::<[usize; 2]>() };
        told[1] = told[0] + 1;
        told[0] = &raw const here as usize;
    }

    #[test]
    fn a_call_runs_on_the_stack_it_is_given() {
        let mut stack = alloc::vec![0u128; 4096];
        let start = stack.as_mut_ptr() as usize;
        let top = start + stack.len() * 16;
        let mut told = [41usize, 0];
        // SAFETY: the stack is the call's, and the argument what the entry wants.
        unsafe { call_on_stack(top, entry, (&raw mut told).cast()) };
        assert_eq!(told[1], 42);
        assert!((start..top).contains(&told[0]));
    }

    #[test]
    fn aps_are_not_used_where_registers_are_encrypted() {
        // Of the leaf: SME, SEV and SEV-ES are bits 0, 1 and 3. Of the register: SEV, SEV-ES and SNP are bits 0 to 2.
        for (status, encrypted) in [(0, false), (1, false), (3, true), (7, true)] {
            assert_eq!(has_encrypted_registers(0b1011, || status), encrypted);
            assert_eq!(has_encrypted_registers(0b0010, || status), encrypted);
        }
        for encryption in [0, 0b0001, 0b1001] {
            let status = || -> u64 { unreachable!("there may be no such register") };
            assert!(!has_encrypted_registers(encryption, status));
        }
    }

    /// EFI_MP_SERVICES_PROTOCOL. Its sixth function is called, EnableDisableAP.
    type Services = [extern "efiapi" fn(usize, usize, bool, usize) -> uefi::Status; 7];

    /// Which processors were reset, as a sum of their numbers.
    static RESET: AtomicU64 = AtomicU64::new(0);
    const STUBBORN: usize = 1023;

    extern "efiapi" fn enable_disable_ap(
        _: usize,
        number: usize,
        enable: bool,
        _: usize,
    ) -> uefi::Status {
        if number == STUBBORN {
            return uefi::Status::UNSUPPORTED;
        }
        if enable {
            RESET.fetch_add(number as u64, Ordering::Relaxed);
        }
        uefi::Status::SUCCESS
    }

    #[test]
    fn all_that_run_our_code_are_stopped() {
        let services: Services = [enable_disable_ap; 7];
        assert!(stop_all(), "without processors there is nothing to stop");
        SERVICES.store((&raw const services).cast_mut().cast(), Ordering::Relaxed);
        for number in [3, 5, 70, STUBBORN, MAX_PROCESSORS] {
            set_running(number, true);
        }
        set_running(5, false);
        assert!(!stop_all());
        assert_eq!(RESET.load(Ordering::Relaxed), 3 + 70);
        assert!(!stop_all(), "it still runs");
        set_running(STUBBORN, false);
        assert!(stop_all());
        assert_eq!(RESET.load(Ordering::Relaxed), 3 + 70, "once is enough");
        SERVICES.store(ptr::null_mut(), Ordering::Relaxed);
    }
}
