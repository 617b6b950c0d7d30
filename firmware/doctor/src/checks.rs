//! What can be examined, each in a module of its own.

mod machine;

use crate::error::Error;
use crate::examination::Examination;

/// Something to examine.
#[derive(Debug)]
pub(crate) struct Check {
    /// The word for it in the options.
    pub name: &'static str,
    /// What it does, for the screen.
    pub what: &'static str,
    /// In an examination without words.
    pub standard: bool,
    /// In one with `quick`.
    pub quick: bool,
    /// The firmware resets the machine when it takes longer than this, in seconds.
    pub limit_s: usize,
    /// Writes what it measures into the report.
    pub run: fn(&mut Examination<'_>) -> Result<(), Error>,
}

impl PartialEq for Check {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Check {}

/// All of them, in the order in which they run.
pub(crate) const ALL: &[Check] = &[Check {
    name: "check",
    what: "firmware and processors",
    standard: true,
    quick: true,
    limit_s: 10,
    run: machine::examine,
}];
