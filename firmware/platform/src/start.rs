//! From the firmware's call to a Rust function and back.

use crate::{bsp, callbacks, console, memory, processors, profiler, shim, watchdog};
use core::ffi::c_void;
use uefi::runtime::{self, ResetType};
use uefi::{Handle, Status};

/// Makes `fn() -> Status` the program that the firmware starts, with a heap of so many bytes if it says so.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        $crate::entry!($main, $crate::memory::ARENA);
    };
    ($main:path, $heap:expr) => {
        #[unsafe(export_name = "efi_main")]
        extern "efiapi" fn efi_main(
            image: $crate::Handle,
            system_table: *const ::core::ffi::c_void,
        ) -> $crate::Status {
            // SAFETY: called once, by the firmware, with its own arguments.
            unsafe { $crate::start(image, system_table, $main, $heap) }
        }
    };
}

/// Makes `fn() -> Status` a driver: it stays in memory when it succeeds, and has no heap.
#[macro_export]
macro_rules! driver_entry {
    ($main:path) => {
        #[unsafe(export_name = "efi_main")]
        extern "efiapi" fn efi_main(
            image: $crate::Handle,
            system_table: *const ::core::ffi::c_void,
        ) -> $crate::Status {
            // SAFETY: called once, by the firmware, with its own arguments.
            unsafe { $crate::start_driver(image, system_table, $main) }
        }
    };
}

/// Runs `main`. What allocates on Rust's heap panics.
///
/// # Safety
/// As for [`start`], but what `main` leaves behind may be used while boot services last when it succeeds.
pub unsafe fn start_driver(
    image: Handle,
    system_table: *const c_void,
    main: fn() -> Status,
) -> Status {
    // SAFETY: the firmware's own handle and table.
    unsafe {
        uefi::boot::set_image_handle(image);
        uefi::table::set_system_table(system_table.cast());
    }
    bsp::remember();
    main()
}

/// Opens a heap of `heap` bytes and the console, runs `main`, and gives the heap back.
///
/// # Safety
/// The arguments must be those that the firmware called the image's entry point with; called once. `main` must
/// leave nothing behind that uses the heap, except on processors that are lost.
pub unsafe fn start(
    image: Handle,
    system_table: *const c_void,
    main: fn() -> Status,
    heap: usize,
) -> Status {
    // SAFETY: the firmware's own handle and table.
    unsafe {
        uefi::boot::set_image_handle(image);
        uefi::table::set_system_table(system_table.cast());
    }
    bsp::remember();
    processors::remember_image();
    let arena = match memory::Arena::open(heap) {
        Ok(arena) => arena,
        Err(error) => return error.status(),
    };
    console::open();
    // It would reset the machine 5 minutes into a long download.
    watchdog::disarm();
    let status = main();
    if !nothing_is_used() {
        reset_instead();
    }
    // SAFETY: `main` has dropped all that it allocated (the caller's word), nothing of ours runs elsewhere, and nothing runs or logs
    // after it.
    unsafe { arena.close() };
    status
}

/// Ends our code on APs. True when the firmware may then take the image's memory: nobody runs or may call what is in it.
pub(crate) fn nothing_is_used() -> bool {
    processors::stop_all() && !callbacks::any() && !shim::any() && profiler::as_found()
}

/// The way out where the firmware cannot go on in this session: code of ours is still in use, or boot services are ending.
pub(crate) fn reset_instead() -> ! {
    console::start_line();
    console::write(format_args!(
        "wireboot: error: the firmware cannot go on from here; the machine is reset\n"
    ));
    reset()
}

/// Resets the machine: what is at work in it cannot be stopped, and would write memory that others use.
pub fn reset() -> ! {
    runtime::reset(ResetType::COLD, Status::ABORTED, None)
}
