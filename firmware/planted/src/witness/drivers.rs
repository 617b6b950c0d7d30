//! Which drivers drive the devices.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use uefi::boot::{self, SearchType};
use uefi::{Guid, Handle};
use uefi_raw::table::boot::OpenProtocolInformationEntry;

use super::{EMPTY, MOST, add};
use crate::services;

/// EFI_OPEN_PROTOCOL_BY_DRIVER (UEFI 2.10, section 7.3.9).
const BY_DRIVER: u32 = 0x10;

/// The drivers that have opened a protocol on any handle, each with how many handles it drives, in any order.
pub(super) fn of_all(protocol: &'static Guid) -> Option<u64> {
    let mut handles = [const { MaybeUninit::<Handle>::uninit() }; MOST];
    let handles = boot::locate_handle(SearchType::ByProtocol(protocol), &mut handles).ok()?;
    let mut all = 0_u64;
    for handle in handles.iter() {
        all = all.wrapping_add(of_handle(*handle, protocol)?);
    }
    Some(all)
}

/// The same of one handle: the handle itself does not count, as a driver that starts again makes another.
fn of_handle(handle: Handle, protocol: &Guid) -> Option<u64> {
    let (mut entries, mut count) = (ptr::null_mut::<OpenProtocolInformationEntry>(), 0);
    // SAFETY: boot services run; the firmware checks the handle and writes to locals.
    let status = unsafe {
        let boot = services::system().ok()?.as_ref().boot_services;
        ((*boot).open_protocol_information)(
            handle.as_ptr(),
            protocol,
            &raw mut entries,
            &raw mut count,
        )
    };
    if !status.is_success() {
        return None;
    }
    let Some(first) = NonNull::new(entries) else {
        return Some(0);
    };
    let mut all = 0_u64;
    for place in 0..count {
        // SAFETY: the firmware has allocated so many entries.
        let entry = unsafe { first.add(place).read() };
        if entry.attributes & BY_DRIVER != 0 {
            let agent = entry.agent_handle as usize as u64;
            all = all.wrapping_add(add(EMPTY, &agent.to_le_bytes()));
        }
    }
    // SAFETY: from the firmware's pool, and not used again.
    unsafe { boot::free_pool(first.cast()) }.ok()?;
    Some(all)
}
