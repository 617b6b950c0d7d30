//! What error messages of ICMP quote of a packet of ours, for both IP versions (RFC 792, RFC 4443).
//!
//! Anybody can send such a message. A caller believes it when the quoted flow is one of its own; for TCP also only when the
//! quoted sequence number is of data in flight (RFC 5927).

use crate::ipv6::{icmp, is_unicast};
use crate::packet::{IPV6_HEADER, IpVersion, PROTOCOL_TCP, PROTOCOL_UDP, array, be16, be32, be128};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The start of a segment or datagram that we sent, as somebody says. Packets of ours have no extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quoted {
    /// Our side of the flow.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// TCP's sequence number; a datagram has none.
    pub sequence: Option<u32>,
    /// Of the whole packet, IP header included.
    pub len: usize,
}

/// The start of any IP packet of ours, as somebody says.
pub(crate) struct QuotedPacket<'a> {
    pub protocol: u8,
    pub local: IpAddr,
    pub remote: IpAddr,
    /// Of the whole packet, IP header included.
    pub len: usize,
    /// What there is behind the IP header.
    pub transport: &'a [u8],
}

/// Reads the start of an IP packet.
pub(crate) fn packet(version: IpVersion, bytes: &[u8]) -> Option<QuotedPacket<'_>> {
    let first = *bytes.first()?;
    match version {
        IpVersion::V4 => {
            let header_len = usize::from(first & 0xf) * 4;
            let fragment = be16(bytes, 6)? & 0x1fff;
            let local = Ipv4Addr::from(be32(bytes, 12)?);
            let remote = Ipv4Addr::from(be32(bytes, 16)?);
            if first >> 4 != 4 || header_len < 20 || fragment != 0 || remote.is_multicast() {
                return None;
            }
            Some(QuotedPacket {
                protocol: *bytes.get(9)?,
                local: local.into(),
                remote: remote.into(),
                len: usize::from(be16(bytes, 2)?),
                transport: bytes.get(header_len..)?,
            })
        }
        IpVersion::V6 => {
            let local = Ipv6Addr::from(be128(bytes, 8)?);
            let remote = Ipv6Addr::from(be128(bytes, 24)?);
            if first >> 4 != 6 || !is_unicast(remote) {
                return None;
            }
            Some(QuotedPacket {
                protocol: *bytes.get(6)?,
                local: local.into(),
                remote: remote.into(),
                len: IPV6_HEADER + usize::from(be16(bytes, 4)?),
                transport: bytes.get(IPV6_HEADER..)?,
            })
        }
    }
}

/// Reads the start of an IP packet with a segment or datagram.
pub(crate) fn read(version: IpVersion, bytes: &[u8]) -> Option<Quoted> {
    let packet = packet(version, bytes)?;
    let [a, b, c, d, sequence @ ..] = array::<8>(packet.transport, 0)?;
    let sequence = match packet.protocol {
        PROTOCOL_TCP => Some(u32::from_be_bytes(sequence)),
        PROTOCOL_UDP => None,
        _ => return None,
    };
    Some(Quoted {
        local: SocketAddr::new(packet.local, u16::from_be_bytes([a, b])),
        remote: SocketAddr::new(packet.remote, u16::from_be_bytes([c, d])),
        sequence,
        len: packet.len,
    })
}

/// The datagram that came to nobody, when that is what `message` (its checksum is right) says. The caller believes only the host
/// that was meant (`remote`): what routers say is often passing.
pub(crate) fn port_unreachable(version: IpVersion, message: &[u8]) -> Option<Quoted> {
    let unreachable = match version {
        IpVersion::V4 => (3, 3),
        IpVersion::V6 => (icmp::DESTINATION_UNREACHABLE, 4),
    };
    let [kind, code, ..] = array::<8>(message, 0)?;
    let quoted = read(version, message.get(8..)?)?;
    ((kind, code) == unreachable && quoted.sequence.is_none()).then_some(quoted)
}

#[cfg(test)]
pub(crate) mod tests;
