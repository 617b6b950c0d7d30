//! The DHCP server, and the proxyDHCP server beside somebody else's (RFC 2131, PXE 2.1).

mod responder;
mod server_probe;
mod socket;

pub use responder::{Answers, Destination, Reply, Responder};
pub(crate) use responder::{LEASE_TIME, hardware_address};
pub use server_probe::another_gives_addresses;
pub use socket::{DhcpServer, DhcpSockets};
