//! From the firmware's call to a Rust function and back, and the way out of a panic.

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
fn nothing_is_used() -> bool {
    processors::stop_all() && !callbacks::any() && !shim::any() && profiler::as_found()
}

/// The way out where the firmware cannot go on in this session: code of ours is still in use, or boot services are ending.
fn reset_instead() -> ! {
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

#[cfg(target_os = "uefi")]
mod panic {
    use super::{nothing_is_used, reset, reset_instead};
    use crate::claim::{pci, snp, undi};
    use crate::{bsp, console, firmware_net, image, memory_type, processors, profiler, shim};
    use core::panic::PanicInfo;
    use core::sync::atomic::{AtomicBool, Ordering};
    use uefi::{Status, boot};

    static PANICKING: AtomicBool = AtomicBool::new(false);

    /// A panic ends wireboot, not the boot: the NIC goes back to the firmware, and so does control, with
    /// an error that makes it try its next boot option. Memory stays allocated until a system boots.
    ///
    /// All of this takes no lock and no memory of the heap: a processor that is ended here may hold it.
    #[panic_handler]
    fn panic(info: &PanicInfo<'_>) -> ! {
        if !bsp::on_bsp() {
            // The BSP will log it, and go on without this processor.
            processors::record_and_halt(info);
        }
        if PANICKING.swap(true, Ordering::Relaxed) {
            // On the way out of a panic: nothing of what follows is sure to work.
            reset();
        }
        console::start_line();
        console::write(format_args!(
            "wireboot: error: internal error, please report it: {info}\n"
        ));
        // Before anything else calls one of these.
        shim::put_back_in_panic();
        // In a callback: the image that has called it ends, and `main` goes on behind its start.
        image::end_started();
        if !nothing_is_used() {
            reset_instead();
        }
        profiler::release_in_panic();
        // Our gate may still be led to.
        if !profiler::as_found() {
            reset_instead();
        }
        memory_type::put_back_in_panic();
        pci::release_in_panic();
        undi::release_in_panic();
        snp::release_in_panic();
        // On the card's interfaces, so behind them.
        firmware_net::release_in_panic();
        // SAFETY: nobody runs or may call what is in the image, as was made sure of above.
        let _ = unsafe {
            boot::exit(
                boot::image_handle(),
                Status::ABORTED,
                0,
                core::ptr::null_mut(),
            )
        };
        reset_instead();
    }
}
