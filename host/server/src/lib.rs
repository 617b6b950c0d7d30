//! A network boot server with nothing to set up: DHCP or proxyDHCP, TFTP and HTTP for one directory, over IPv4 and IPv6.
//!
//! ```text
//!   dhcp --- "boot file ..." ---> machine ---> tftp, http --- names ---> directory --- bytes of files
//!     \___________________________events_____________/
//! ```
//!
//! [`cli`] is the whole server as a command; the other modules are its parts. [`station`] is the same parts on a link of their own, without sockets.
#![deny(missing_docs)]

mod arp_probe;
mod boot;
mod boot_conf;
mod check;
pub mod cli;
mod confine;
mod content;
pub mod dhcp;
pub mod dhcpv6;
pub mod directory;
pub mod event;
mod folder;
#[cfg(any(test, feature = "fuzzing"))]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit"
)]
pub mod fuzzing;
pub mod http;
pub mod interface;
pub mod ladder;
mod leases;
mod link_socket;
pub mod listen;
mod other_servers;
mod pool;
pub mod ports;
pub mod ra;
mod read_ahead;
pub mod reports;
mod segmented;
pub mod station;
pub mod stop;
pub mod tftp;
mod trees;
