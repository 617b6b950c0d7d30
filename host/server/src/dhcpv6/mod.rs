//! The DHCPv6 server (RFC 8415, RFC 5970), with addresses or, beside another server, without.

mod responder;
mod server_probe;
mod socket;

pub use responder::{Answers, Responder};
pub(crate) use responder::{LEASE_TIME, range_of};
pub use server_probe::another_gives_addresses;
pub use socket::{DhcpV6Server, DhcpV6Sockets};
