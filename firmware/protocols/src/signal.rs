//! Signalling a caller's event.

use uefi_raw::Event;

/// Signals it, unless it is null. Its notify function may call back in, so nobody has borrowed the state.
pub(crate) fn signal(event: Event) {
    // SAFETY: the caller's event, which lives until it is signalled.
    if let Some(event) = unsafe { uefi::Event::from_ptr(event) } {
        let _ = uefi::boot::signal_event(&event);
    }
}
