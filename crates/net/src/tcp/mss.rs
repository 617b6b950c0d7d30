//! How much a segment carries.

use crate::output::headers_len;
use crate::packet::{ETHERNET_HEADER, TCP_HEADER};
use core::net::IpAddr;

/// Bytes of payload in a segment to `remote` without options, on a path with this MTU.
pub(crate) fn mss(remote: IpAddr, mtu: u16) -> u16 {
    let headers = headers_len(&remote) - ETHERNET_HEADER + TCP_HEADER;
    mtu.saturating_sub(headers as u16)
}
