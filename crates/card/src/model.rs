//! Models of what is around a card, in virtual time: the host's bus, the line, and what the host's processor spends.
//!
//! ```text
//!   host ── Bus ──> sending card ── Line ──> receiving card ── Bus ──> host
//!            send::send                       receive::receive          host::load
//! ```
//!
//! Nothing here has a clock, and nothing is rounded but to the next picosecond: what comes out is the same wherever it is computed.

mod arrival;
pub mod bus;
pub mod host;
mod latency;
pub mod line;
mod random;
pub mod receive;
pub mod receive_offload;
pub mod send;
mod throughput;
mod time;
pub mod traffic;

pub use arrival::Arrival;
pub use bus::Bus;
pub use latency::Latencies;
pub use line::Line;
pub use random::Random;
pub use receive_offload::ReceiveOffload;
pub use throughput::{Rate, Throughput};
pub use time::Picos;

/// Bytes of a frame besides its payload that cross the bus: the link header. The check sequence stays on the card.
pub const LINK_HEADER: u32 = 14;

/// Bytes of a frame with so much payload on the bus.
#[must_use]
pub fn on_bus(payload: u32) -> usize {
    payload.saturating_add(LINK_HEADER) as usize
}

#[cfg(test)]
mod tests;
