//! Waiting in the firmware's idle loop, which halts the processor.

use core::time::Duration;
use uefi::Event;
use uefi::boot::{self, EventType, TimerTrigger, Tpl};

/// A timer event. `None` where the firmware has none to give.
#[derive(Debug)]
pub struct IdleTimer(Option<Event>);

impl Default for IdleTimer {
    fn default() -> Self {
        Self::new()
    }
}

impl IdleTimer {
    /// Where the firmware has no event to give, [`Self::wait_for_tick`] returns at once.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: an event without a notification function.
        let timer = unsafe { boot::create_event(EventType::TIMER, Tpl::APPLICATION, None, None) };
        Self(timer.ok())
    }

    /// Halts until the firmware's next timer tick: 1 to 10 ms on most.
    pub fn wait_for_tick(&self) {
        let Some(timer) = &self.0 else {
            core::hint::spin_loop();
            return;
        };
        if boot::set_timer(timer, TimerTrigger::Relative(Duration::from_millis(1))).is_ok() {
            // SAFETY: a second name of the event, which outlives the call.
            let _ = boot::wait_for_event(&[unsafe { timer.unsafe_clone() }]);
        }
    }
}

impl Drop for IdleTimer {
    fn drop(&mut self) {
        if let Some(timer) = self.0.take() {
            let _ = boot::close_event(timer);
        }
    }
}
