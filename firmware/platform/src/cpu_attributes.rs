//! The attributes of memory, as the firmware's processor driver sets them: `EFI_CPU_ARCH_PROTOCOL` (PI 1.8, volume 2, section 12.3).

use core::ffi::c_void;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams};
use uefi::proto::unsafe_protocol;
use uefi::{Status, StatusExt};

/// EFI_MEMORY_RP: any access faults.
pub(crate) const READ_PROTECT: u64 = 0x2000;
/// EFI_MEMORY_XP: no instruction is fetched from there.
pub(crate) const EXECUTE_PROTECT: u64 = 0x4000;
/// EFI_MEMORY_RO: nothing is written there.
pub(crate) const READ_ONLY: u64 = 0x2_0000;

/// The protocol, up to what is used of it.
#[repr(C)]
#[unsafe_protocol("26baccb1-6f42-11d4-bce7-0080c73c8881")]
struct CpuArch {
    others: [*const c_void; 7],
    set_memory_attributes: unsafe extern "efiapi" fn(*mut Self, u64, u64, u64) -> Status,
}

/// Sets the attributes of whole pages. Without one of a memory type, that stays; without one of protection, the pages are not protected.
///
/// # Safety
/// The pages are the caller's alone. Where they are protected, nobody accesses them so.
pub(crate) unsafe fn set(start: u64, bytes: u64, attributes: u64) -> uefi::Result {
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
    // SAFETY: the protocol is live; the pages are the caller's word.
    unsafe { ((*cpu).set_memory_attributes)(cpu.cast_mut(), start, bytes, attributes) }.to_result()
}
