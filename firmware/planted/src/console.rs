//! A console as slow as a serial port of 9600 bits a second.

use crate::{busy, services};
use core::ptr::NonNull;
use uefi_raw::Status;
use uefi_raw::protocol::console::SimpleTextOutputProtocol;
use wireboot_platform::shim::Original;

/// Microseconds of a character: a byte, and a bit before and behind it.
const CHARACTER: u64 = 10 * 1_000_000 / 9600;
/// Characters of a text that are waited for.
const LONGEST: u64 = 4096;

type OutputString = unsafe extern "efiapi" fn(*mut SimpleTextOutputProtocol, *const u16) -> Status;

static OUTPUT_STRING: Original<OutputString> = Original::new();

/// Plants it: in the console of all devices together.
pub(crate) fn plant() -> uefi::Result {
    let system = services::system()?;
    // SAFETY: the table is live.
    let console = NonNull::new(unsafe { system.as_ref() }.stdout).ok_or(Status::UNSUPPORTED)?;
    // SAFETY: the firmware's own console stays; our function goes on to the firmware's.
    unsafe {
        let member = (&raw mut (*console.as_ptr()).output_string).cast::<OutputString>();
        services::replace(member, None, output_string as OutputString, &OUTPUT_STRING)
    }
}

unsafe extern "efiapi" fn output_string(
    this: *mut SimpleTextOutputProtocol,
    text: *const u16,
) -> Status {
    let Some(firmwares) = OUTPUT_STRING.get() else {
        return Status::DEVICE_ERROR;
    };
    let mut characters = 0;
    // SAFETY: the caller's text ends with a zero; nothing behind that is read.
    while characters < LONGEST && unsafe { text.add(characters as usize).read() } != 0 {
        characters += 1;
    }
    busy::wait(characters * CHARACTER);
    // SAFETY: the caller's own arguments.
    unsafe { firmwares(this, text) }
}
