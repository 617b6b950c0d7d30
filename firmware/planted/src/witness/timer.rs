//! The firmware's timer.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::{Guid, Status, guid};

use crate::services;

/// EFI_TIMER_ARCH_PROTOCOL (PI 1.8, volume 2, section 12.10).
const TIMER: Guid = guid!("26baccb3-6f42-11d4-bce7-0080c73c8881");

#[repr(C)]
struct Timer {
    register_handler: *const c_void,
    set_timer_period: *const c_void,
    get_timer_period: unsafe extern "efiapi" fn(*mut Self, *mut u64) -> Status,
}

/// In units of 100 ns.
pub(super) fn period() -> Option<u64> {
    let mut period = 0;
    // SAFETY: boot services run. The firmware writes the interface's address to a local; the protocol is its own, with this member, and writes
    // to a local.
    unsafe {
        let boot = services::system().ok()?.as_ref().boot_services;
        let mut found = ptr::null_mut();
        let status = ((*boot).locate_protocol)(&TIMER, ptr::null_mut(), &raw mut found);
        let timer = NonNull::new(found.cast::<Timer>()).filter(|_| status.is_success())?;
        let status = ((*timer.as_ptr()).get_timer_period)(timer.as_ptr(), &raw mut period);
        status.is_success().then_some(period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn the_protocol_is_as_the_specification_has_it() {
        assert_eq!(offset_of!(Timer, get_timer_period), 16);
    }
}
