//! `OutputString` of each console: blanks at the beginning of the cursor's line, where the cursor stays.

use super::Service;
use crate::device_path;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::ptr::NonNull;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, SearchType};
use uefi::proto::console::text::Output;
use uefi::{CStr16, Handle, cstr16, table};
use uefi_raw::protocol::console::SimpleTextOutputProtocol;

/// A serial port may take a millisecond for ten characters.
const MOST: usize = 200;
/// 16 characters. They never come to the line's end, where some consoles scroll.
const TEXT: &CStr16 = cstr16!("\r       \r      \r");

/// One for all consoles together, as programs use them, and one for each.
pub(super) fn services() -> Vec<Service> {
    let mut services = Vec::new();
    let system = table::system_table_raw();
    // SAFETY: the system table is live, as boot services run.
    let together = system.and_then(|system| NonNull::new(unsafe { system.as_ref().stdout }));
    services.extend(together.map(|all| output("ConOut.OutputString", all)));
    let handles = boot::locate_handle_buffer(SearchType::from_proto::<Output>());
    let handles = handles.iter().flat_map(|handles| handles.iter());
    for &handle in handles {
        // Those that lead to others have none.
        let Some(path) = device_path::of_handle(handle) else {
            continue;
        };
        let kind = if device_path::is_serial(&path) {
            "serial"
        } else {
            "screen"
        };
        services.extend(protocol(handle).map(|one| output(format!("OutputString, {kind}"), one)));
    }
    services
}

fn protocol(handle: Handle) -> Option<NonNull<SimpleTextOutputProtocol>> {
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: consoles stay connected while this image runs. (Opening one exclusively would disconnect it.)
    let output =
        unsafe { boot::open_protocol::<Output>(params, OpenProtocolAttributes::GetProtocol) };
    let output = output.ok()?;
    Some(NonNull::from(output.get()?).cast())
}

fn output(name: impl ToString, console: NonNull<SimpleTextOutputProtocol>) -> Service {
    let service = Service::new(name, move || {
        // SAFETY: the console is live (see above); the text ends in a zero.
        unsafe { (console.as_ref().output_string)(console.as_ptr(), TEXT.as_ptr().cast()) }.into()
    });
    service.at_most(MOST)
}
