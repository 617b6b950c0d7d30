//! The firmware's watchdog: resets a machine that hangs (UEFI 2.10, section 7.5, `SetWatchdogTimer`).

use uefi::boot;

/// Our code for it. Those up to 0xffff are the firmware's.
const CODE: u64 = 0x10000;

/// Runs until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Watchdog(());

/// Has the firmware reset the machine in `seconds`. Firmware that has no watchdog does not.
pub fn arm(seconds: usize) -> Watchdog {
    let _ = boot::set_watchdog_timer(seconds, CODE, None);
    Watchdog(())
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        disarm();
    }
}

pub(crate) fn disarm() {
    let _ = boot::set_watchdog_timer(0, CODE, None);
}
