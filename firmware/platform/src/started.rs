//! What wireboot.efi has started and what has not come back: such a program may start wireboot.efi again.

use crate::variable::{self, OWN};
use alloc::format;
use alloc::string::String;

const NAME: &str = "WirebootStarted";

/// Their URLs, each in a line.
#[must_use]
pub fn urls() -> String {
    let text = variable::read(NAME, OWN).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// One more is told as long as this value lives.
#[derive(Debug)]
pub struct Started {
    before: String,
}

impl Started {
    /// Tells `url`.
    #[must_use]
    pub fn tell(url: &str) -> Self {
        let before = urls();
        lend(&format!("{before}{url}\n"));
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

fn lend(urls: &str) {
    if let Err(error) = variable::lend(NAME, OWN, urls.as_bytes()) {
        log::debug!("{NAME}: {error}");
    }
}
