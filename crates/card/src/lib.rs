//! The core of a network card made of software, the device's side of virtio-net (virtio 1.2, section 5.1).
//!
//! ```text
//!   guest memory                                                     a tap, a server, another card
//!     rings <── lent buffers ──> HostSide ──────── Card ──────── Wire
//! ```
//!
//! [`Card::turn`] moves what there is, both ways, and never blocks. The card has no clock, no thread and no memory of its own: its owner
//! gives it the time, turns it, and lends it the guest's memory as a [`GuestMemory`]. Nothing is allocated for a packet, and a packet is
//! copied by the wire alone, between the guest's buffers and wherever the wire leads; fragments of a datagram are copied once more.
//! [`Offload`] stands before a wire that has no large units.
//!
//! The guest is not trusted. What it writes (addresses, lengths, indices, headers) is checked before it is used. The first lie stops its
//! queue until it is started anew ([`RingFault`]).
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(any(test, feature = "testing"))]
extern crate std;

mod card;
mod checksum;
pub mod coalesce;
mod counters;
mod datagram;
pub mod feature;
mod frame;
mod gso;
mod header;
mod host_side;
mod memory;
pub mod model;
mod offload;
mod paced;
mod placement;
mod ring;
mod segment;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit"
)]
pub mod testing;
mod wire;

pub use card::{Armed, Beyond, Card, Queue, Turn};
pub use counters::{Counters, OffloadCounters, Traffic};
pub use frame::MAX_HEAD;
pub use gso::GsoFrames;
pub use header::Header;
pub use host_side::{LONGEST_UNIT, Unit};
pub use memory::{GuestMemory, Span, Unmapped, gather, scatter};
pub use offload::Offload;
pub use paced::{Due, MOST_IN_FLIGHT, Pace, Paced, PacedCounters};
pub use ring::{Lie, Lies, MAX_RING, Ring, RingFault, RingLayout, RingStart};
pub use wire::{Received, Wire};
