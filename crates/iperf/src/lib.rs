//! A client of iperf3's protocol: what TCP and UDP move between this machine and the server that people already have.
//!
//! ```text
//!  Test ──> run ──> session: states and JSON messages, without a network
//!            ├────> streams: TCP and UDP over the engine
//!            └────> Throughput (wireboot-report), with the server's own figures
//! ```
//!
//! Two programs share a control connection (TCP port 5201). The server names each state by one byte, and the client follows: parameters,
//! streams, start, end, results. JSON goes behind its length in four bytes. Not here: authentication, SCTP, `--omit`, `--get-server-output`.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod client;
mod datagram;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fuzz target's verdicts"
)]
pub mod fuzzing;
mod messages;
mod session;
mod streams;
mod test;
#[cfg(test)]
mod tests;

pub use client::{Watch, run};
pub use error::Error;
pub use test::{Limit, Test};

/// The server's port, of the control connection and of the streams.
pub const PORT: u16 = 5201;
