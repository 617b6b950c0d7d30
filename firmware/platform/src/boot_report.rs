//! What a boot took, for the system: a variable until the machine's next start.

use crate::variable::{self, OWN};

const NAME: &str = "WirebootBoot";

/// The longest text, in bytes. Some firmware takes variables of 8 KiB at most, header and name included.
pub const LONGEST: usize = 8000;

/// The text is told as long as this value lives, and to the system for good.
#[derive(Debug)]
pub struct BootReport(());

impl BootReport {
    /// Tells `json`. `None` where the firmware does not take it.
    #[must_use]
    pub fn tell(json: &str) -> Option<Self> {
        match variable::lend(NAME, OWN, json.as_bytes()) {
            Ok(()) => Some(Self(())),
            Err(error) => {
                log::debug!("{NAME}: {error}");
                None
            }
        }
    }
}

impl Drop for BootReport {
    fn drop(&mut self) {
        variable::remove(NAME, OWN);
    }
}
