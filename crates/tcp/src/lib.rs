//! TCP (RFC 9293) without a network: segments and time in, segments and events out.
//!
//! A [`Connection`] is one transmission control block. It sees headers and lengths, never payload: what arrives is answered
//! with a [`PayloadRange`], which says where the caller shall copy it; what leaves is a [`Transmit`], whose payload the caller
//! takes from its own send buffer. Ports, addresses and checksums are the caller's, and so is the look-up of a segment's
//! connection. Nothing in a connection changes before everything about a segment has been checked.
//!
//! | module | what it holds | RFC |
//! |---|---|---|
//! | `connection` | the states, OPEN, CLOSE, ABORT | 9293 |
//! | `transmit` | what leaves next | 9293 |
//! | `arrives` | SEGMENT ARRIVES, in the RFC's order | 9293 section 3.10.7, 5961 |
//! | `segment` | a header; the answers of CLOSED and LISTEN, which have no connection | 9293 sections 3.10.7.1 and 3.10.7.2 |
//! | `receiver` | receive sequence variables, gaps, when to acknowledge | 9293, 2018 |
//! | `sender` | send sequence variables, retransmission, recovery from loss | 9293, 5681, 6582, 6675 |
//! | `sack` | ranges of sequence numbers | 2018, 6675 |
//! | `window` | the window that we advertise | 9293 section 3.8.6, 7323 |
//! | `congestion` | congestion window | 5681, 6928 |
//! | `timers` | retransmission time-out | 6298 |
//! | `isn` | initial sequence numbers | 6528 |
//! | `options` | MSS, window scale, SACK | 9293, 7323, 2018 |
//! | `sequence` | arithmetic modulo 2^32 | 9293 section 3.4 |
//! | `time` | time in microseconds, on the caller's clock | |
//!
//! Timestamps (RFC 7323) are not used: they cost twelve bytes of each segment, and no measurement favours them.
#![no_std]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

extern crate alloc;

mod arrives;
mod congestion;
mod connection;
mod isn;
mod options;
mod receiver;
mod sack;
mod segment;
mod sender;
mod sequence;
#[cfg(test)]
mod tests;
mod time;
mod timers;
mod transmit;
mod window;

pub use connection::{Connection, Error, State};
pub use isn::InitialSequence;
pub use options::{OptionBytes, Options};
pub use receiver::PayloadRange;
pub use segment::{Flags, Listen, Reply, Segment, closed, listen};
pub use sequence::{after, at_or_after};
pub use time::{Duration, Instant};
pub use transmit::{Limits, Transmit};
pub use window::{MAX_WINDOW, WINDOW_SCALE};
