//! The way out of a panic: it ends this program, and not the boot.

use crate::claim::{pci, snp, undi};
use crate::start::{nothing_is_used, reset, reset_instead};
use crate::{bsp, console, firmware_net, image, memory_type, processors, profiler, shim};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};
use uefi::{Status, boot};

static PANICKING: AtomicBool = AtomicBool::new(false);

/// A panic ends wireboot, not the boot: the NIC goes back to the firmware, and so does control, with
/// an error that makes it try its next boot option. Memory stays allocated until a system boots.
///
/// All of this takes no lock and no memory of the heap: an AP (application processor) that is ended here may hold it.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if !bsp::on_bsp() {
        // The BSP (bootstrap processor) will log it, and go on without this AP.
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
