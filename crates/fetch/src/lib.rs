//! What to get and how: an address and boot information by DHCP, names by DNS, files by TFTP and HTTP.
//!
//! [`Service`] runs the protocols and their engine behind a mailbox: commands in, events out. On a card with several queue pairs,
//! [`Worker`]s on other APs (application processors) receive parts of large files for it. The protocols themselves are `async` functions
//! over a [`wireboot_net::Stack`], and do not know who asked.
#![no_std]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod destination;
pub mod dhcp;
mod dhcp_request;
pub mod dhcpv6;
pub mod dns;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit"
)]
pub mod fuzzing;
pub mod http;
mod leases;
pub mod memory_window;
mod outbox;
mod pace;
mod race;
pub mod resolve;
mod service;
pub mod socket;
#[cfg(test)]
mod testing;
pub mod tftp;
pub mod url;
pub mod verify;
mod wait;
mod worker;

pub use dhcp::{DhcpRequest, Lease, LeaseSource};
pub use dhcpv6::{ClientId, Dhcp6Error, Lease6};
pub use error::FetchError;
pub use http::team::{Leader, Link, Workers, team};
pub use leases::Leases;
pub use pace::{Floor, Limits};
pub use service::{Command, Event, Exchanged, File, Job, MAX_CONCURRENT, Service, Stats};
pub use worker::Worker;
