//! The engine: one polled network core that owns a NIC, a station's two IP versions, connections, timers and
//! the protocol tasks that use them.
//!
//! [`Engine::poll`] never blocks and calls nobody but its NIC, so it runs wherever somebody calls it: on
//! the BSP (bootstrap processor), on an AP (application processor), or in a test on simulated time. Protocol code is `async` over a
//! [`Stack`]; its futures are polled once a turn of the engine, without wakers.
//!
//! Several engines can share the queue pairs of one card ([`team()`]), each on an AP of its own.
//!
//! Payload takes one copy: datagrams of a port with a [`DatagramSink`] and TCP data of a connection with a destination are taken
//! straight from DMA memory.
#![no_std]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bootp;
pub mod checksum;
mod datagrams;
mod echo;
mod echo_socket;
mod engine;
mod error;
mod fragments;
#[cfg(any(test, feature = "fuzzing"))]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit"
)]
pub mod fuzzing;
mod igmp;
mod interface;
mod ipv6;
mod membership;
mod memory;
mod neighbors;
mod output;
mod packet;
mod parts;
mod path_mtu;
mod quote;
mod random;
pub mod sort;
mod stack;
mod state;
mod tap;
mod tcp;
mod tcp_stream;
mod team;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod udp;

pub use bootp::Bootp;
pub use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
pub use datagrams::DatagramSink;
pub use echo_socket::EchoSocket;
pub use engine::{Engine, Task};
pub use error::NetError;
#[cfg(any(test, feature = "fuzzing"))]
pub use fuzzing::ipv6 as ipv6_fuzzing;
pub use igmp::Igmp;
pub use interface::{Ipv4Config, Route, RouterInfo};
pub use ipv6::mld::Mld;
pub use memory::{Memory, MemoryBlock, Region};
pub use packet::Ends;
pub use parts::Parts;
pub use random::Random;
pub use smoltcp::wire::{Ipv4Cidr, Ipv6Cidr};
pub use stack::Stack;
pub use tap::{Tap, TapPort, tap};
pub use tcp_stream::{ReadHalf, TcpStream, WriteHalf};
pub use team::{Forwarded, Peer, team};
pub use udp::UdpSocket;
pub use wireboot_tcp::{Duration, Instant};
