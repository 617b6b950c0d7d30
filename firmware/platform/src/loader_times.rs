//! When this program began and when it starts a system, as the Boot Loader Interface tells it (systemd's documentation
//! `BOOT_LOADER_INTERFACE`): `systemd-analyze` shows them as the shares of firmware and loader.

use alloc::format;
use alloc::vec::Vec;
use uefi::{Guid, guid};

use crate::{Clock, variable};

const VENDOR: Guid = guid!("4a67b082-0a4c-41cf-b6c7-440b29bb8c4f");
/// When the loader began, and when it was done, in microseconds since the machine's start.
const BEGAN: &str = "LoaderTimeInitUSec";
const DONE: &str = "LoaderTimeExecUSec";

/// No machine is in its firmware for longer. Where the counter runs on over a warm start, it says how long the machine has had power.
const LONGEST: u64 = 3_600_000_000;

/// The times are told as long as this value lives, and to the system for good.
#[derive(Debug)]
pub struct LoaderTimes(());

impl LoaderTimes {
    /// Tells that the program began when `clock` did, and starts a system now. `None` where the time-stamp counter cannot have begun with the
    /// machine, or the firmware takes no variables: then nothing is told.
    #[must_use]
    pub fn tell(clock: &Clock) -> Option<Self> {
        let (began, done) = since_reset(clock)?;
        let told = Self(());
        for (name, micros) in [(BEGAN, began), (DONE, done)] {
            if let Err(error) = variable::lend(name, VENDOR, &text(micros)) {
                log::debug!("{name}: {error}");
                return None;
            }
        }
        Some(told)
    }
}

/// When the program began and what time it is, in microseconds since the machine's start. `None` where the time-stamp counter cannot have begun
/// with it.
#[must_use]
pub fn since_reset(clock: &Clock) -> Option<(u64, u64)> {
    let began = clock.began_micros();
    let now = began.saturating_add(clock.micros());
    can_be(began, now).then_some((began, now))
}

impl Drop for LoaderTimes {
    fn drop(&mut self) {
        for name in [BEGAN, DONE] {
            variable::remove(name, VENDOR);
        }
    }
}

/// Such times can be those of a boot.
fn can_be(began: u64, done: u64) -> bool {
    began > 0 && began <= done && done <= LONGEST
}

/// Decimal digits in UTF-16 with a NUL behind them.
fn text(micros: u64) -> Vec<u8> {
    let digits = format!("{micros}\0");
    digits.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, can_be, text};

    #[test]
    fn a_counter_that_began_before_the_machine_tells_nothing() {
        assert!(can_be(1, 1));
        assert!(can_be(3_500_000, LONGEST));
        assert!(!can_be(3_500_000, LONGEST + 1));
        assert!(!can_be(0, 1));
        assert!(!can_be(2, 1));
    }

    #[test]
    fn a_time_is_told_in_utf_16() {
        assert_eq!(text(40), b"4\x000\x00\x00\x00");
    }
}
