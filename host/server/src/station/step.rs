//! What a flow does next.

use std::time::Instant;

use super::Cut;

/// What a flow has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowStep {
    /// Headers were written; this much payload follows.
    Frame {
        offset: u64,
        len: usize,
        cut: Option<Cut>,
    },
    /// Nothing before something comes, or this moment.
    Nothing(Option<Instant>),
    /// It is over, and the flow can be forgotten.
    Over,
}
