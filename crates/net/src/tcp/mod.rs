//! TCP over the engine: [`wireboot_tcp`] keeps the protocol, this gives it segments, memory and a NIC.
//!
//! A segment's payload is copied once, from DMA memory to its place in the destination, behind a gap too. What comes while there is no
//! destination, or behind its end, is held until somebody reads it.

mod buffer;
mod flows;
mod segments;
mod send_buffer;
mod stream;
pub(crate) mod window;

pub(crate) use flows::{Flow, Flows};
pub use stream::{ReadHalf, TcpStream, WriteHalf};

use crate::output::headers_len;
use crate::packet::{ETHERNET_HEADER, TCP_HEADER};
use core::net::IpAddr;

/// Bytes of payload in a segment to `remote` without options, on a path with this MTU.
pub(crate) fn mss(remote: IpAddr, mtu: u16) -> u16 {
    let headers = headers_len(&remote) - ETHERNET_HEADER + TCP_HEADER;
    mtu.saturating_sub(headers as u16)
}
