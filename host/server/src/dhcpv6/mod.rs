//! The DHCPv6 server (RFC 8415, RFC 5970), with addresses or, beside another server, without.

mod other_server;
mod responder;
mod socket;

pub use other_server::another_gives_addresses;
pub(crate) use responder::range_of;
pub use responder::{Answers, Responder};
pub use socket::{DhcpV6Server, DhcpV6Sockets};
