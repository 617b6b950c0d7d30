//! Programs that started this image, or the one that did, and that drive network interfaces themselves, as iPXE does.
//!
//! They go on when we return, with what they know of their interfaces. Once its driver was disconnected, iPXE uses memory that it has freed.

use crate::image;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::{iter, slice};
use uefi::boot;
use uefi::{Guid, Handle, Status};
use uefi_raw::table::boot::OpenProtocolInformationEntry;

/// `EFI_OPEN_PROTOCOL_BY_DRIVER` (UEFI 2.10, section 7.3.9).
const BY_DRIVER: u32 = 0x10;
/// A firmware that goes round in circles is no reason to do so.
const MOST_CALLERS: usize = 16;

/// Whether one of them has opened a protocol of `handle` as a driver. Takes no memory of the heap.
pub(super) fn drives(handle: Handle) -> bool {
    boot::protocols_per_handle(handle).is_ok_and(|protocols| {
        let mut protocols = protocols.iter();
        protocols.any(|protocol| has_opened(handle, protocol))
    })
}

/// Whether one of them has opened that protocol as a driver.
pub(super) fn has_opened(handle: Handle, protocol: &Guid) -> bool {
    has_driver(handle, protocol, |agent| {
        callers().any(|caller| caller.as_ptr() == agent)
    })
}

/// Whether an agent of which `is_wanted` is true has opened that protocol as a driver. Takes no memory of the heap.
pub(super) fn has_driver(
    handle: Handle,
    protocol: &Guid,
    is_wanted: impl Fn(*mut c_void) -> bool,
) -> bool {
    let Some(table) = uefi::table::system_table_raw() else {
        return false;
    };
    let (mut entries, mut count) = (ptr::null_mut::<OpenProtocolInformationEntry>(), 0);
    // SAFETY: the system table is live, and boot services too, as the caller is a running image; the results are written to locals.
    let status = unsafe {
        let Some(services) = table.as_ref().boot_services.as_ref() else {
            return false;
        };
        (services.open_protocol_information)(
            handle.as_ptr(),
            protocol,
            &raw mut entries,
            &raw mut count,
        )
    };
    let (Status::SUCCESS, Some(start)) = (status, NonNull::new(entries)) else {
        return false;
    };
    // SAFETY: on success there are that many entries from there on, allocated from pool for us to free.
    unsafe {
        let found = slice::from_raw_parts(start.as_ptr(), count)
            .iter()
            .filter(|entry| entry.attributes & BY_DRIVER != 0)
            .any(|entry| is_wanted(entry.agent_handle));
        let _ = boot::free_pool(start.cast());
        found
    }
}

/// The nearest first.
fn callers() -> impl Iterator<Item = Handle> {
    let nearest = image::parent(boot::image_handle());
    iter::successors(nearest, |image| image::parent(*image)).take(MOST_CALLERS)
}
