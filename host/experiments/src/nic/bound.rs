//! What is to be little.

/// What is measured, in the unit of its title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Little {
    /// The share of a processor that a card takes whose guest has nothing to do, in percent.
    Idle,
    /// Doorbells that wireboot's driver rings for what it sends, in a boot from a stick with a download from the server in a card that always looks at its queues.
    Doorbells,
}

/// One of these, and the most that it is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    /// Short name for `--only`.
    pub id: &'static str,
    /// In a few words, with the unit.
    pub title: &'static str,
    pub what: Little,
    pub most: f64,
}

pub(super) const BOUNDS: [Bound; 2] = [
    Bound {
        id: "idle",
        title: "an idle card, % of a processor",
        what: Little::Idle,
        most: 1.0,
    },
    Bound {
        id: "doorbells",
        title: "transmit doorbells of a boot from a stick with a download by HTTP, while the card polls",
        what: Little::Doorbells,
        most: 10.0,
    },
];
