//! What wireboot.efi has started and what has not come back: such a program may start wireboot.efi again.

use crate::variable::{self, OWN};
use alloc::format;
use alloc::string::String;

const NAME: &str = "WirebootStarted";

/// What is told: for each program some lines, the last one's at the end.
#[must_use]
pub fn told() -> String {
    let text = variable::read(NAME, OWN).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// One more is told as long as this value lives.
#[derive(Debug)]
pub struct Started {
    before: String,
}

impl Started {
    /// Tells these lines of a program.
    #[must_use]
    pub fn tell(lines: &str) -> Self {
        let before = told();
        lend(&format!("{before}{lines}"));
        Self { before }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.before.is_empty() {
            variable::remove(NAME, OWN);
        } else {
            lend(&self.before);
        }
    }
}

fn lend(lines: &str) {
    if let Err(error) = variable::lend(NAME, OWN, lines.as_bytes()) {
        log::debug!("{NAME}: {error}");
    }
}
