//! The points of a boot that a driver sees: each boot option's turn, the start of its loader, the end of boot services.
//!
//! It takes the place of two members of the boot services' table, and stays there: for an image that is never unloaded.

use crate::shim::{self, Original};
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::boot::{self, EventType, MemoryType, Tpl};
use uefi::proto::loaded_image::LoadedImage;
use uefi::{Event, Guid, Identify, Result, Status, guid};

/// What is told. All of it on the BSP (bootstrap processor); what comes with the end of boot services may not call the firmware.
pub trait BootPoints: Sync {
    /// The firmware is about to load the loader of a boot option (`EFI_EVENT_GROUP_READY_TO_BOOT`).
    fn ready_to_boot(&self);
    /// A program is about to be started; drivers do not count. True: its return is to be told, too.
    fn program_starts(&self) -> bool;
    /// That program has come back.
    fn program_came_back(&self);
    /// Somebody asks for the end of boot services.
    fn exit_begins(&self);
    /// Boot services have ended; `ExitBootServices` returns to its caller next.
    fn exit_done(&self);
}

/// `EFI_EVENT_GROUP_READY_TO_BOOT`.
pub const READY_TO_BOOT: Guid = guid!("7ce88fb3-4bd7-4679-87a8-a8d8dee50d2b");

type StartImage = unsafe extern "efiapi" fn(uefi_raw::Handle, *mut usize, *mut *mut u16) -> Status;
type ExitBootServices = unsafe extern "efiapi" fn(uefi_raw::Handle, usize) -> Status;

static START_IMAGE: Original<StartImage> = Original::new();
static EXIT_BOOT_SERVICES: Original<ExitBootServices> = Original::new();
/// The one who is told.
static OBSERVER: spinning_top::Spinlock<Option<&'static dyn BootPoints>> =
    spinning_top::Spinlock::new(None);

fn observer() -> Option<&'static dyn BootPoints> {
    *OBSERVER.try_lock()?
}

/// Tells `observer` of all such points from now on.
///
/// # Errors
/// When the firmware has no memory for an event, or keeps its table read-only: then nothing is told, and the image may go.
pub fn observe(observer: &'static dyn BootPoints) -> Result {
    let system = uefi::table::system_table_raw().ok_or(Status::ABORTED)?;
    // SAFETY: the system table is the one that the image was started with.
    let services = unsafe { system.as_ref() }.boot_services;
    let services = NonNull::new(services).ok_or(Status::ABORTED)?;
    // SAFETY: the function is this image's, which stays or closes the event below. It uses no boot services that could be gone.
    let ready = unsafe {
        boot::create_event_ex(
            EventType::NOTIFY_SIGNAL,
            Tpl::CALLBACK,
            Some(on_ready_to_boot),
            None,
            Some(&READY_TO_BOOT),
        )
    }?;
    *OBSERVER.lock() = Some(observer);
    // SAFETY: the table of the boot services, which are active, has one user at a time: this one. It is there until they end, and with it
    // the members. Ours call those that they replace.
    let shims = unsafe {
        let services = services.as_ptr();
        let header = NonNull::new(&raw mut (*services).header);
        let start = NonNull::new_unchecked(&raw mut (*services).start_image);
        let exit = NonNull::new_unchecked(&raw mut (*services).exit_boot_services);
        shim::replace::<StartImage>(start, header, our_start_image, &START_IMAGE).and_then(
            |start| {
                let exit = shim::replace::<ExitBootServices>(
                    exit,
                    header,
                    our_exit_boot_services,
                    &EXIT_BOOT_SERVICES,
                )?;
                Ok((start, exit))
            },
        )
    };
    match shims {
        Ok(shims) => {
            // For good.
            core::mem::forget(shims);
            Ok(())
        }
        Err(_) => {
            let _ = boot::close_event(ready);
            Err(Status::UNSUPPORTED.into())
        }
    }
}

unsafe extern "efiapi" fn on_ready_to_boot(_: Event, _: Option<NonNull<c_void>>) {
    if let Some(observer) = observer() {
        observer.ready_to_boot();
    }
}

unsafe extern "efiapi" fn our_start_image(
    image: uefi_raw::Handle,
    exit_data_size: *mut usize,
    exit_data: *mut *mut u16,
) -> Status {
    let watched = observer().filter(|observer| is_program(image) && observer.program_starts());
    let Some(firmwares) = START_IMAGE.get() else {
        return Status::ABORTED;
    };
    // SAFETY: the caller's own arguments.
    let status = unsafe { firmwares(image, exit_data_size, exit_data) };
    if let Some(observer) = watched {
        observer.program_came_back();
    }
    status
}

unsafe extern "efiapi" fn our_exit_boot_services(image: uefi_raw::Handle, key: usize) -> Status {
    let observer = observer();
    if let Some(observer) = observer {
        observer.exit_begins();
    }
    let Some(firmwares) = EXIT_BOOT_SERVICES.get() else {
        return Status::ABORTED;
    };
    // SAFETY: the caller's own arguments.
    let status = unsafe { firmwares(image, key) };
    if status.is_success()
        && let Some(observer) = observer
    {
        observer.exit_done();
    }
    status
}

/// Whether an image is a program: the firmware loads drivers to memory of another type.
fn is_program(image: uefi_raw::Handle) -> bool {
    let Some(system) = uefi::table::system_table_raw() else {
        return false;
    };
    let mut interface = ptr::null_mut();
    // SAFETY: called from a boot service, so they are active. The firmware checks the handle.
    let status = unsafe {
        let services = system.as_ref().boot_services;
        ((*services).handle_protocol)(image, &LoadedImage::GUID, &raw mut interface)
    };
    if !status.is_success() || interface.is_null() {
        return false;
    }
    // SAFETY: the protocol's interface, which lives as long as the image that is about to be started.
    let image = unsafe { &*interface.cast::<LoadedImage>() };
    image.code_type() == MemoryType::LOADER_CODE
}
