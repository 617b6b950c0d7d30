//! What comes to a card from the line.

use super::time::Picos;

/// A frame that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its last bit was there.
    pub at: Picos,
    /// Bytes of its payload.
    pub payload: u32,
    /// Those of them that the host wants.
    pub data: u32,
    /// The flow that it belongs to.
    pub flow: u32,
    /// The next higher one is that of the frame which continues it.
    pub number: u64,
}

impl Arrival {
    /// A frame of which all the payload counts.
    #[must_use]
    pub fn new(at: Picos, payload: u32) -> Self {
        Self {
            at,
            payload,
            data: payload,
            flow: 0,
            number: 0,
        }
    }
}
