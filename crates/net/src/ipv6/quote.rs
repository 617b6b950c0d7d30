//! What error messages of ICMP quote of a packet of ours, for both IP versions (RFC 792, RFC 4443).
//!
//! Anybody can send such a message. A caller believes it when the quoted flow is one of its own; for TCP also only when the
//! quoted sequence number is of data in flight (RFC 5927).

use super::header::{HEADER, ICMP, TCP, UDP, upper_of_whole};
use super::{icmp, is_unicast};
use crate::packet::{Version, array, be16, be32, be128};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The start of a packet that we sent, as somebody says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    pub protocol: u8,
    /// Our side of the flow. Echo requests have port 0.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// TCP's sequence number.
    pub sequence: Option<u32>,
    /// Of the whole packet, IP header included.
    pub len: usize,
}

/// Reads the start of an IP packet.
pub fn read(version: Version, bytes: &[u8]) -> Option<Quoted> {
    let first = *bytes.first()?;
    let (protocol, local, remote, len, transport) = match version {
        Version::V4 => {
            let header_len = usize::from(first & 0xf) * 4;
            let fragment = be16(bytes, 6)? & 0x1fff;
            let local = Ipv4Addr::from(be32(bytes, 12)?);
            let remote = Ipv4Addr::from(be32(bytes, 16)?);
            if first >> 4 != 4 || header_len < 20 || fragment != 0 || remote.is_multicast() {
                return None;
            }
            let len = usize::from(be16(bytes, 2)?);
            let transport = bytes.get(header_len..)?;
            (*bytes.get(9)?, local.into(), remote.into(), len, transport)
        }
        Version::V6 => {
            let local = Ipv6Addr::from(be128(bytes, 8)?);
            let remote = Ipv6Addr::from(be128(bytes, 24)?);
            if first >> 4 != 6 || !is_unicast(remote) {
                return None;
            }
            let upper = upper_of_quote(*bytes.get(6)?, bytes.get(HEADER..)?)?;
            let len = HEADER + usize::from(be16(bytes, 4)?);
            (upper.0, local.into(), remote.into(), len, upper.1)
        }
    };
    let [a, b, c, d, sequence @ ..] = array::<8>(transport, 0)?;
    let (local_port, remote_port) = match protocol {
        TCP | UDP => (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])),
        _ => (0, 0),
    };
    Some(Quoted {
        protocol,
        local: SocketAddr::new(local, local_port),
        remote: SocketAddr::new(remote, remote_port),
        sequence: (protocol == TCP).then_some(u32::from_be_bytes(sequence)),
        len,
    })
}

/// Passes by the one extension header that packets of ours can have, the Fragment header of a first piece.
fn upper_of_quote(next: u8, bytes: &[u8]) -> Option<(u8, &[u8])> {
    const FRAGMENT: u8 = 44;
    if next != FRAGMENT {
        return matches!(next, TCP | UDP | ICMP).then_some((next, bytes));
    }
    let [next, _, offset_high, offset_low, ..] = array::<8>(bytes, 0)?;
    let first = u16::from_be_bytes([offset_high, offset_low]) & !7 == 0;
    let upper = upper_of_whole(next, bytes.get(8..)?)?;
    first.then_some((upper.protocol, upper.payload))
}

/// The datagram that came to nobody, when that is what `message` (its checksum is right) says. The caller believes only the host
/// that was meant (`remote`): what routers say is often passing.
pub fn port_unreachable(version: Version, message: &[u8]) -> Option<Quoted> {
    let unreachable = match version {
        Version::V4 => (3, 3),
        Version::V6 => (icmp::DESTINATION_UNREACHABLE, 4),
    };
    let [kind, code, ..] = array::<8>(message, 0)?;
    let quoted = read(version, message.get(8..)?)?;
    ((kind, code) == unreachable && quoted.protocol == UDP).then_some(quoted)
}

#[cfg(test)]
pub mod tests {
    use super::super::header;
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    pub const US4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    pub const HOST4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    pub const US6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    pub const HOST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    /// A packet of ours with the transport header's first 8 bytes 50,000 -> 69, sequence number 0x01020304, `len` long
    /// altogether.
    pub fn sent(version: Version, protocol: u8, len: u16) -> Vec<u8> {
        let transport = [0xc3, 0x50, 0, 69, 1, 2, 3, 4];
        match version {
            Version::V4 => {
                let mut bytes = Vec::from([0x45, 0]);
                bytes.extend(len.to_be_bytes());
                bytes.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
                bytes.extend(US4.octets());
                bytes.extend(HOST4.octets());
                bytes.extend(transport);
                bytes
            }
            Version::V6 => {
                let mut bytes = header::packet(US6, HOST6, protocol, 64, &transport);
                bytes[4..6].copy_from_slice(&(len - 40).to_be_bytes());
                bytes
            }
        }
    }

    /// An error message about it.
    pub fn about(kind: u8, code: u8, value: u32, sent: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::from([kind, code, 0, 0]);
        bytes.extend(value.to_be_bytes());
        bytes.extend(sent);
        bytes
    }

    #[test]
    fn the_flow_is_read() {
        for version in [Version::V4, Version::V6] {
            let mut want = Quoted {
                protocol: TCP,
                local: match version {
                    Version::V4 => (US4, 50_000).into(),
                    Version::V6 => (US6, 50_000).into(),
                },
                remote: match version {
                    Version::V4 => (HOST4, 69).into(),
                    Version::V6 => (HOST6, 69).into(),
                },
                sequence: Some(0x0102_0304),
                len: 1500,
            };
            let bytes = sent(version, TCP, 1500);
            assert_eq!(read(version, &bytes), Some(want));
            for len in 0..bytes.len() {
                assert_eq!(read(version, &bytes[..len]), None, "{version:?} {len}");
            }
            (want.protocol, want.sequence) = (UDP, None);
            assert_eq!(read(version, &sent(version, UDP, 1500)), Some(want));
        }
        assert_eq!(read(Version::V6, &sent(Version::V4, UDP, 1500)), None);
        assert_eq!(read(Version::V4, &sent(Version::V6, UDP, 1500)), None);
    }

    #[test]
    fn pieces() {
        // A later piece quotes no ports.
        let mut bytes = sent(Version::V4, UDP, 1500);
        bytes[6..8].copy_from_slice(&[0x20, 0]);
        assert!(read(Version::V4, &bytes).is_some());
        bytes[7] = 1;
        assert_eq!(read(Version::V4, &bytes), None);
        let piece = |offset| {
            let payload = [UDP, 0, 0, offset, 0, 0, 0, 9, 0xc3, 0x50, 0, 69, 0, 0, 0, 0];
            let bytes = header::packet(US6, HOST6, 44, 64, &payload);
            read(Version::V6, &bytes).map(|quoted| (quoted.local.port(), quoted.remote.port()))
        };
        assert_eq!(piece(1), Some((50_000, 69)));
        assert_eq!(piece(9), None);
        // A header of less than 20 bytes; groups.
        let mut bytes = sent(Version::V4, UDP, 1500);
        bytes[0] = 0x44;
        assert_eq!(read(Version::V4, &bytes), None);
        let mut bytes = sent(Version::V4, UDP, 1500);
        bytes[16] = 224;
        assert_eq!(read(Version::V4, &bytes), None);
        let mut bytes = sent(Version::V6, UDP, 1500);
        bytes[24] = 0xff;
        assert_eq!(read(Version::V6, &bytes), None);
    }

    #[test]
    fn a_port_is_unreachable() {
        for (version, kind, code) in [(Version::V4, 3, 3), (Version::V6, 1, 4)] {
            let says = |kind, code, protocol| {
                port_unreachable(
                    version,
                    &about(kind, code, 0, &sent(version, protocol, 100)),
                )
            };
            assert_eq!(
                says(kind, code, UDP),
                read(version, &sent(version, UDP, 100))
            );
            assert!(says(kind, code, UDP).is_some());
            assert_eq!(says(kind, code, TCP), None);
            assert_eq!(says(kind, code - 1, UDP), None);
            assert_eq!(says(kind + 1, code, UDP), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0..48_usize, flip: u8) {
            for version in [Version::V4, Version::V6] {
                read(version, &bytes);
                port_unreachable(version, &bytes);
                let mut sent = sent(version, UDP, 100);
                if let Some(byte) = sent.get_mut(at) {
                    *byte ^= flip;
                }
                read(version, &sent);
            }
        }
    }
}
