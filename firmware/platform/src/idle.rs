//! Waiting in the firmware's idle loop, which halts the processor.

#[cfg(target_os = "uefi")]
use core::arch::asm;
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
            let waited = boot::wait_for_event(&[unsafe { timer.unsafe_clone() }]);
            if waited.is_err() {
                // Above TPL_APPLICATION, in a call of a boot loader's (UEFI 2.10, section 7.1, WaitForEvent).
                halt();
            }
        }
    }
}

/// The flag of `RFLAGS` without which no interrupt comes.
#[cfg(target_os = "uefi")]
const INTERRUPTS: u64 = 1 << 9;

/// Halts until the next interrupt: the firmware's tick at the latest, which firmware that starts APs (application processors) has.
/// Returns at once where none can come.
fn halt() {
    #[cfg(target_os = "uefi")]
    {
        let flags: u64;
        // SAFETY: reads the flags by way of the stack.
        unsafe { asm!("pushfq", "pop {}", out(reg) flags) };
        if flags & INTERRUPTS != 0 {
            // SAFETY: boot services run at privilege level 0, and their interrupts end it.
            unsafe { asm!("hlt", options(nomem, nostack, preserves_flags)) };
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
