//! The end of boot services: an event that stops the NIC before the system owns memory.

use crate::callbacks::Callback;
use crate::claim::pci;
use crate::{image, processors};
use alloc::boxed::Box;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use uefi::Event;
use uefi::boot::{self, EventType, Tpl};

/// To be called first in the function of an event of that end. Other drivers have stopped their devices already, so there is no way back to
/// the firmware: a panic resets the machine.
pub fn begins() {
    image::forget_started();
    #[cfg(feature = "faults")]
    crate::faults::reach(crate::faults::Place::Exit);
}

/// Boot services end while somebody is at work with the device, and never goes on: ends our code on APs, and takes the device off the bus.
/// False when the firmware does not end what runs on an AP: that goes on in memory that becomes the system's. For the function of an event
/// of that end.
#[must_use]
pub fn stop_all() -> bool {
    let stopped = processors::stop_all();
    pci::stop_claimed();
    stopped
}

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
    _known: Callback,
}

impl<T> StopOnExit<T> {
    /// From now on the end of boot services has `stop` called, at `TPL_NOTIFY`.
    ///
    /// # Errors
    /// The value comes back when the firmware has no memory for an event.
    pub fn new(value: T, stop: fn(&mut T)) -> Result<Self, (T, uefi::Error)> {
        let known = Callback::new();
        let ending = NonNull::from(Box::leak(Box::new(Ending { value, stop })));
        // SAFETY: the context lives until `drop` has closed the event. The callback neither allocates nor uses
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
                _known: known,
            }),
            Err(error) => {
                // SAFETY: leaked above and given to nobody.
                let ending = unsafe { Box::from_raw(ending.as_ptr()) };
                Err((ending.value, error))
            }
        }
    }
}

impl<T> Drop for StopOnExit<T> {
    fn drop(&mut self) {
        // SAFETY: `drop` runs once; the event is not used again.
        let event = unsafe { ManuallyDrop::take(&mut self.event) };
        let _ = boot::close_event(event);
        // SAFETY: leaked in `new`; the event is closed, so nobody else refers to it.
        drop(unsafe { Box::from_raw(self.ending.as_ptr()) });
    }
}

unsafe extern "efiapi" fn on_exit<T>(_: Event, context: Option<NonNull<c_void>>) {
    begins();
    let Some(ending) = context else { return };
    // SAFETY: the context is the `Ending` of a `StopOnExit`, which nobody else touches while the event is
    // open.
    let ending = unsafe { ending.cast::<Ending<T>>().as_mut() };
    (ending.stop)(&mut ending.value);
}
