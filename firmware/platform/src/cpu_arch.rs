//! `EFI_CPU_ARCH_PROTOCOL` (PI 1.8, volume 2, section 12.3), the firmware's processor driver: attributes of memory, and who handles interrupts.

use core::ffi::c_void;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams};
use uefi::proto::unsafe_protocol;
use uefi::{Status, StatusExt};
use x86_64::instructions::interrupts::without_interrupts;

/// EFI_MEMORY_RP: any access faults.
pub(crate) const READ_PROTECT: u64 = 0x2000;
/// EFI_MEMORY_XP: no instruction is fetched from there.
pub(crate) const EXECUTE_PROTECT: u64 = 0x4000;
/// EFI_MEMORY_RO: nothing is written there.
pub(crate) const READ_ONLY: u64 = 0x2_0000;

/// Vectors of interrupts. Those before are the processor's own exceptions.
const INTERRUPTS: core::ops::RangeInclusive<u8> = 32..=255;

/// EFI_CPU_INTERRUPT_HANDLER: gets the vector, and what the processor's registers held (EFI_SYSTEM_CONTEXT).
type Handler = unsafe extern "efiapi" fn(isize, *const c_void);

/// The protocol, up to what is used of it.
#[repr(C)]
#[unsafe_protocol("26baccb1-6f42-11d4-bce7-0080c73c8881")]
struct CpuArch {
    others: [*const c_void; 5],
    register_interrupt_handler:
        unsafe extern "efiapi" fn(*mut Self, isize, Option<Handler>) -> Status,
    get_timer_value: *const c_void,
    set_memory_attributes: unsafe extern "efiapi" fn(*mut Self, u64, u64, u64) -> Status,
}

/// The protocol, which is there as long as the firmware.
fn protocol() -> uefi::Result<*mut CpuArch> {
    let handle = boot::get_handle_for_protocol::<CpuArch>()?;
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: the firmware's processor driver is never unloaded.
    let protocol =
        unsafe { boot::open_protocol::<CpuArch>(params, OpenProtocolAttributes::GetProtocol) }?;
    let cpu: *const CpuArch = &*protocol;
    Ok(cpu.cast_mut())
}

/// Sets the attributes of whole pages. Without one of a memory type, that stays; without one of protection, the pages are not protected.
///
/// # Safety
/// The pages are the caller's alone. Where they are protected, nobody accesses them so.
pub(crate) unsafe fn set(start: u64, bytes: u64, attributes: u64) -> uefi::Result {
    let cpu = protocol()?;
    // SAFETY: the protocol is live; the pages are the caller's word.
    unsafe { ((*cpu).set_memory_attributes)(cpu, start, bytes, attributes) }.to_result()
}

/// A handler of ours could not be taken away again.
#[derive(Debug)]
pub(crate) struct HandlerStays;

/// The vector of the only interrupt that a driver of the firmware handles, where there is one: firmware without interrupts of cards has its timer's
/// alone.
pub(crate) fn handled_interrupt() -> Result<Option<u8>, HandlerStays> {
    let Ok(cpu) = protocol() else {
        return Ok(None);
    };
    // SAFETY: the protocol is live, and interrupts are off.
    without_interrupts(|| unsafe { only_handled(cpu) })
}

/// # Safety
/// As for [`is_handled`].
unsafe fn only_handled(cpu: *mut CpuArch) -> Result<Option<u8>, HandlerStays> {
    let (mut handled, mut count) = (None, 0);
    for vector in INTERRUPTS {
        // SAFETY: the caller's word.
        if unsafe { is_handled(cpu, vector) }? {
            handled = Some(vector);
            count += 1;
        }
    }
    Ok(handled.filter(|_| count == 1))
}

/// Whether an interrupt has a handler: it takes no second one (EFI_ALREADY_STARTED).
///
/// # Safety
/// The protocol is live, and interrupts are off: none comes while ours is its handler.
unsafe fn is_handled(cpu: *mut CpuArch, vector: u8) -> Result<bool, HandlerStays> {
    // SAFETY: the caller's word.
    let register =
        |handler| unsafe { ((*cpu).register_interrupt_handler)(cpu, isize::from(vector), handler) };
    let taken = register(Some(handle_nothing));
    if taken.is_success() && !register(None).is_success() {
        return Err(HandlerStays);
    }
    Ok(taken == Status::ALREADY_STARTED)
}

unsafe extern "efiapi" fn handle_nothing(_: isize, _: *const c_void) {}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    /// A firmware whose drivers handle some interrupts.
    #[repr(C)]
    struct Firmware {
        protocol: CpuArch,
        handled: [bool; 256],
        /// The vectors whose handler is ours.
        ours: [bool; 256],
        /// It takes no handler away.
        keeps: bool,
    }

    unsafe extern "efiapi" fn register(
        cpu: *mut CpuArch,
        vector: isize,
        handler: Option<Handler>,
    ) -> Status {
        // SAFETY: the protocol is the first member of a `Firmware`, which nobody else has meanwhile.
        let firmware = unsafe { &mut *cpu.cast::<Firmware>() };
        let vector = usize::try_from(vector).unwrap();
        match handler {
            Some(_) if firmware.handled[vector] || firmware.ours[vector] => Status::ALREADY_STARTED,
            None if firmware.keeps => Status::UNSUPPORTED,
            handler => {
                firmware.ours[vector] = handler.is_some();
                Status::SUCCESS
            }
        }
    }

    unsafe extern "efiapi" fn set(_: *mut CpuArch, _: u64, _: u64, _: u64) -> Status {
        Status::UNSUPPORTED
    }

    /// What is found where these are handled; nothing of ours is left where that can be.
    fn found(handled: &[usize], keeps: bool) -> Result<Option<u8>, HandlerStays> {
        let mut firmware = Firmware {
            protocol: CpuArch {
                others: [ptr::null(); 5],
                register_interrupt_handler: register,
                get_timer_value: ptr::null(),
                set_memory_attributes: set,
            },
            handled: core::array::from_fn(|vector| handled.contains(&vector)),
            ours: [false; 256],
            keeps,
        };
        // SAFETY: the protocol is live, and no interrupt leads to its handlers.
        let found = unsafe { only_handled((&raw mut firmware).cast()) };
        let stays = firmware.ours.iter().filter(|ours| **ours).count();
        assert_eq!(stays, usize::from(keeps));
        found
    }

    #[test]
    fn the_only_interrupt_that_is_handled_is_found() {
        assert_eq!(found(&[32], false).unwrap(), Some(32));
        assert_eq!(found(&[0x68, 3], false).unwrap(), Some(0x68));
        assert_eq!(found(&[255], false).unwrap(), Some(255));
    }

    #[test]
    fn of_several_or_of_none_nothing_is_told() {
        assert_eq!(found(&[32, 64], false).unwrap(), None);
        assert_eq!(found(&[], false).unwrap(), None);
        // An exception of the processor's is no interrupt.
        assert_eq!(found(&[14], false).unwrap(), None);
    }

    #[test]
    fn the_search_ends_where_a_handler_stays() {
        assert!(found(&[], true).is_err());
    }
}
