//! What the engine costs the processor, counted rather than timed.

use serde::Serialize;

/// Instructions per byte received of one sort of stream.
#[derive(Clone, Debug, Serialize)]
pub struct Instructions {
    /// What was received.
    pub stream: String,
    /// Bytes of payload received.
    pub bytes: u64,
    /// Instructions that it took: of a run with these bytes less one with none.
    pub instructions: u64,
    /// Instructions per byte.
    pub per_byte: f64,
}
