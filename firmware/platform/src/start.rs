//! From the firmware's call to a Rust function and back, and the way out of a panic.

use crate::{console, image, memory, processors};
use core::ffi::c_void;
use uefi::{Handle, Status};

/// Makes `fn() -> Status` the program that the firmware starts.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        #[unsafe(export_name = "efi_main")]
        extern "efiapi" fn efi_main(
            image: $crate::Handle,
            system_table: *const ::core::ffi::c_void,
        ) -> $crate::Status {
            // SAFETY: called once, by the firmware, with its own arguments.
            unsafe { $crate::start(image, system_table, $main) }
        }
    };
}

/// Opens heap and console, runs `main`, and gives the heap back.
///
/// # Safety
/// The arguments must be those that the firmware called the image's entry point with; called once. `main` must
/// leave nothing behind that uses the heap.
pub unsafe fn start(image: Handle, system_table: *const c_void, main: fn() -> Status) -> Status {
    // SAFETY: the firmware's own handle and table.
    unsafe {
        uefi::boot::set_image_handle(image);
        uefi::table::set_system_table(system_table.cast());
    }
    processors::remember_boot_processor();
    let arena = match memory::Arena::open() {
        Ok(arena) => arena,
        Err(error) => return error.status(),
    };
    console::open();
    image::disable_watchdog();
    let status = main();
    // SAFETY: `main` has dropped all that it allocated (the caller's word), and nothing runs or logs after it.
    unsafe { arena.close() };
    status
}

#[cfg(target_os = "uefi")]
mod panic {
    use crate::{console, pci, processors, snp, undi};
    use core::panic::PanicInfo;
    use core::sync::atomic::{AtomicBool, Ordering};
    use uefi::{Status, boot};

    static PANICKING: AtomicBool = AtomicBool::new(false);

    /// A panic ends wireboot, not the boot: the NIC goes back to the firmware, and so does control, with
    /// an error that makes it try its next boot option. Memory stays allocated until a system boots.
    #[panic_handler]
    fn panic(info: &PanicInfo<'_>) -> ! {
        if !processors::on_boot_processor() {
            // The boot processor will tell, and go on without.
            processors::end(info);
        }
        if !PANICKING.swap(true, Ordering::Relaxed) {
            console::start_line();
            console::write(format_args!(
                "wireboot: error: internal error, please report it: {info}\n"
            ));
            pci::release_in_panic();
            undi::release_in_panic();
            snp::release_in_panic();
            // SAFETY: no event callback of ours is registered except while another image runs, in which
            // case the firmware refuses to end this one.
            let _ = unsafe {
                boot::exit(
                    boot::image_handle(),
                    Status::ABORTED,
                    0,
                    core::ptr::null_mut(),
                )
            };
        }
        // Not possible to return: the firmware's watchdog, if on, resets the machine.
        loop {
            core::hint::spin_loop();
        }
    }
}
