//! The DHCP server, and the proxyDHCP server beside somebody else's (RFC 2131, PXE 2.1).

mod other_server;
mod responder;
mod socket;

pub use other_server::another_gives_addresses;
pub(crate) use responder::hardware_address;
pub use responder::{Answers, Destination, Reply, Responder};
pub use socket::{DhcpServer, DhcpSockets};
