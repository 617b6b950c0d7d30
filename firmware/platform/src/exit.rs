//! The end of boot services: an event that stops the NIC before the system owns memory.

use alloc::boxed::Box;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use uefi::Event;
use uefi::boot::{self, EventType, Tpl};

struct Ending<T> {
    value: T,
    stop: fn(&mut T),
}

/// Keeps a value while another image runs, and calls `stop` on it when that image ends boot services.
///
/// A system that fails to end boot services tries again, so `stop` may be called more than once. It may
/// neither allocate nor free memory, nor print.
#[derive(Debug)]
pub struct StopOnExit<T> {
    event: ManuallyDrop<Event>,
    ending: NonNull<Ending<T>>,
}

impl<T> StopOnExit<T> {
    /// Registers `stop`.
    ///
    /// # Errors
    /// The value comes back when the firmware has no memory for an event.
    pub fn new(value: T, stop: fn(&mut T)) -> Result<Self, (T, uefi::Error)> {
        let ending = NonNull::from(Box::leak(Box::new(Ending { value, stop })));
        // SAFETY: the context lives until `take` closes the event. The callback neither allocates nor uses
        // boot services that may be gone.
        let event = unsafe {
            boot::create_event(
                EventType::SIGNAL_EXIT_BOOT_SERVICES,
                Tpl::NOTIFY,
                Some(on_exit::<T>),
                Some(ending.cast()),
            )
        };
        match event {
            Ok(event) => Ok(Self {
                event: ManuallyDrop::new(event),
                ending,
            }),
            Err(error) => {
                // SAFETY: leaked above and given to nobody.
                let ending = unsafe { Box::from_raw(ending.as_ptr()) };
                Err((ending.value, error))
            }
        }
    }

    /// Takes the value back: the other image has returned.
    pub fn take(mut self) -> T {
        self.close();
        // SAFETY: leaked in `new`; the event is closed, so nobody else refers to it, and forgetting
        // `self` keeps `drop` from freeing it again.
        let ending = unsafe { Box::from_raw(self.ending.as_ptr()) };
        core::mem::forget(self);
        ending.value
    }

    fn close(&mut self) {
        // SAFETY: `take` and `drop` call this once; the event is not used again.
        let event = unsafe { ManuallyDrop::take(&mut self.event) };
        let _ = boot::close_event(event);
    }
}

impl<T> Drop for StopOnExit<T> {
    fn drop(&mut self) {
        self.close();
        // SAFETY: as in `take`.
        drop(unsafe { Box::from_raw(self.ending.as_ptr()) });
    }
}

unsafe extern "efiapi" fn on_exit<T>(_: Event, context: Option<NonNull<c_void>>) {
    let Some(ending) = context else { return };
    // SAFETY: the context is the `Ending` of a `StopOnExit`, which nobody else touches while the event is
    // open.
    let ending = unsafe { ending.cast::<Ending<T>>().as_mut() };
    (ending.stop)(&mut ending.value);
}
