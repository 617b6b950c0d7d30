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
    without_interrupts(|| {
        let (mut handled, mut count) = (None, 0);
        for vector in INTERRUPTS {
            // SAFETY: the protocol is live, and interrupts are off.
            if unsafe { is_handled(cpu, vector) }? {
                handled = Some(vector);
                count += 1;
            }
        }
        Ok(handled.filter(|_| count == 1))
    })
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
