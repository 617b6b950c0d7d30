//! Signalling a caller's event.

use alloc::vec::Vec;
use uefi::boot::{self, Tpl};
use uefi_raw::Event;

/// Signals it, unless it is null. Its notify function may call back in, so nobody has borrowed the state.
pub(crate) fn signal(event: Event) {
    // SAFETY: the caller's event, which lives until it is signalled.
    if let Some(event) = unsafe { uefi::Event::from_ptr(event) } {
        let _ = boot::signal_event(&event);
    }
}

/// The same with several, at TPL_CALLBACK. The function of none runs before all are signalled: none is above TPL_NOTIFY.
pub(crate) fn signal_all(events: Vec<Event>) {
    // SAFETY: the level is below that, and restored when all are signalled.
    let notify = unsafe { boot::raise_tpl(Tpl::NOTIFY) };
    events.into_iter().for_each(signal);
    drop(notify);
}
