//! Events that the firmware signals to us (UEFI 2.10, section 7.1).

use crate::callbacks::Callback;
use core::ffi::c_void;
use core::ptr::NonNull;
use uefi::Event;
use uefi::boot::{self, EventNotifyFn, EventType, Tpl};

/// An event that is closed when this is dropped. Meanwhile the firmware knows its function.
#[derive(Debug)]
pub(crate) struct OwnEvent {
    /// `None` only while being dropped.
    event: Option<Event>,
    _known: Callback,
}

impl OwnEvent {
    /// By `CreateEvent`, with its arguments.
    ///
    /// # Errors
    /// Where the firmware has no memory for it.
    ///
    /// # Safety
    /// `context` is what `function` takes it for, until the event is closed.
    pub(crate) unsafe fn new(
        kind: EventType,
        level: Tpl,
        function: Option<EventNotifyFn>,
        context: Option<NonNull<c_void>>,
    ) -> uefi::Result<Self> {
        let known = Callback::new();
        // SAFETY: the caller's word.
        let event = unsafe { boot::create_event(kind, level, function, context) }?;
        Ok(Self {
            event: Some(event),
            _known: known,
        })
    }

    /// For functions of the `uefi` crate.
    pub(crate) fn get(&self) -> Option<&Event> {
        self.event.as_ref()
    }

    /// For the firmware's own functions.
    pub(crate) fn raw(&self) -> uefi_raw::Event {
        self.event
            .as_ref()
            .map_or(core::ptr::null_mut(), Event::as_ptr)
    }
}

impl Drop for OwnEvent {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            let _ = boot::close_event(event);
        }
    }
}
