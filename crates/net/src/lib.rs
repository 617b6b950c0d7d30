//! The engine: one polled network core that owns a NIC, an IP interface (smoltcp), sockets, timers and
//! the protocol tasks that use them.
//!
//! [`Engine::poll`] never blocks and calls nobody but its NIC, so it runs wherever somebody calls it: on
//! the boot processor, on another processor, or in a test on simulated time. Protocol code is `async` over a
//! [`Stack`]; its futures are polled once a turn of the engine, without wakers.
//!
//! Several engines can share the queue pairs of one card ([`team()`]), each on a processor of its own.
//!
//! Payload takes one copy. Datagrams of a port with a [`DatagramSink`] and in-order TCP data of a
//! connection with a destination are taken straight from DMA memory; all else goes through smoltcp.
#![no_std]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bootp;
mod checksum;
mod engine;
mod ethernet;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod icmp;
#[allow(dead_code)]
mod ipv6;
mod memory;
mod neighbor;
mod out_of_order;
mod parts;
mod smoltcp_device;
mod stack;
mod tcp;
mod team;
#[cfg(test)]
mod tests;
mod udp;
mod window;

pub use bootp::Bootp;
pub use engine::Engine;
pub use memory::{Memory, MemoryBlock, Region};
pub use parts::Parts;
pub use smoltcp::time::{Duration, Instant};
pub use smoltcp::wire::{Ipv4Address, Ipv4Cidr};
pub use stack::{Ipv4Config, NetError, Stack};
pub use tcp::TcpStream;
pub use team::{Forwarded, Member, team};
pub use udp::{DatagramSink, UdpSocket};
