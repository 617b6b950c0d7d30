//! Members of the firmware's tables, with functions of ours in their places until boot services end.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use spinning_top::Spinlock;
use uefi::boot::{self, EventType, Tpl};
use uefi::{Event, Status};
use uefi_raw::table::Header;
use uefi_raw::table::system::SystemTable;
use wireboot_platform::shim::{self, Original, Shim};

/// As many can be replaced.
const MOST: usize = 8;

static REPLACED: Spinlock<[Option<Shim>; MOST]> = Spinlock::new([const { None }; MOST]);
/// The firmware leads to this image.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether anything of this image is known to the firmware, so that it must stay.
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// From now on it is.
pub(crate) fn stay() {
    ANY.store(true, Ordering::Relaxed);
}

/// The system table.
pub(crate) fn system() -> uefi::Result<NonNull<SystemTable>> {
    uefi::table::system_table_raw().ok_or_else(|| Status::UNSUPPORTED.into())
}

/// Puts `ours` in the place of a function.
///
/// # Safety
/// As [`shim::replace`], until boot services end.
pub(crate) unsafe fn replace<F: Copy>(
    member: *mut F,
    table: Option<NonNull<Header>>,
    ours: F,
    original: &Original<F>,
) -> uefi::Result {
    let member = NonNull::new(member).ok_or(Status::UNSUPPORTED)?;
    let mut replaced = REPLACED.lock();
    if replaced.iter().all(Option::is_none) {
        put_back_at_the_end()?;
    }
    let place = replaced.iter_mut().find(|place| place.is_none());
    let place = place.ok_or(Status::OUT_OF_RESOURCES)?;
    // SAFETY: the caller's word.
    let shim = unsafe { shim::replace(member, table, ours, original) };
    *place = Some(shim.map_err(|_| Status::UNSUPPORTED)?);
    Ok(())
}

/// The system calls runtime services when this image is gone.
fn put_back_at_the_end() -> uefi::Result {
    // SAFETY: the function is this image's, which stays.
    unsafe {
        boot::create_event(
            EventType::SIGNAL_EXIT_BOOT_SERVICES,
            Tpl::NOTIFY,
            Some(on_exit),
            None,
        )
    }?;
    stay();
    Ok(())
}

unsafe extern "efiapi" fn on_exit(_: Event, _: Option<NonNull<core::ffi::c_void>>) {
    if let Some(mut replaced) = REPLACED.try_lock() {
        // The last one first.
        replaced.iter_mut().rev().for_each(|shim| *shim = None);
    }
}
