//! A step that cannot be run where it was asked for.

use std::fmt;

/// Why a step could not be run here; the rest of the tests goes on, and does not fail for it.
#[derive(Debug)]
pub(crate) struct NotRun(pub &'static str);

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NotRun {}
