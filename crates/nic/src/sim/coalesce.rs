//! Joins segments that arrive together, as a device with GUEST_TSO and GUEST_USO would, of both IP versions.

use alloc::vec::Vec;

use super::Unit;
use crate::{Checksum, checksum};

/// Largest coalesced unit: an IP packet of 65,535 bytes and the Ethernet header.
pub(super) const MAX_UNIT: usize = 65_535 + ETHERNET;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// A frame as a unit of its own; a device that coalesces also verifies the checksum.
pub(super) fn unit(bytes: Vec<u8>, verify: bool) -> Unit {
    let trusted = verify && Segment::parse(&bytes).is_some();
    Unit {
        bytes,
        checksum: if trusted {
            Checksum::Trusted
        } else {
            Checksum::Unverified
        },
        udp_segment: None,
    }
}

/// Appends the payload of `frame` to `unit` if it continues it; false when it does not.
pub(super) fn join(unit: &mut Unit, frame: &[u8]) -> bool {
    // A joined unit's own checksum is stale; its being trusted says it has been verified.
    if unit.checksum != Checksum::Trusted {
        return false;
    }
    let (Some(head), Some(next)) = (Segment::headers(&unit.bytes), Segment::parse(frame)) else {
        return false;
    };
    let same_flow = head.flow() == next.flow() && head.headers == next.headers;
    if !same_flow || next.payload.is_empty() || unit.bytes.len() + next.payload.len() > MAX_UNIT {
        return false;
    }
    let (transport, is_ipv4) = (head.transport, head.is_ipv4());
    let mut flags = 0;
    match head.protocol {
        TCP => {
            let expected = head.sequence().wrapping_add(head.payload.len() as u32);
            let plain = |segment: &Segment<'_>| segment.flags() & !PSH == ACK;
            let options_equal = head.bytes[transport + 20..head.headers]
                == next.bytes[transport + 20..next.headers];
            if next.sequence() != expected
                || !(plain(&head) && (plain(&next) || next.flags() & !PSH == ACK | FIN))
                || head.flags() & PSH != 0
                || !options_equal
            {
                return false;
            }
            flags = next.flags();
        }
        _ => {
            // All datagrams have one size, but the last, which may be shorter.
            let size = unit.udp_segment.map_or(head.payload.len(), usize::from);
            if size == 0 || head.payload.len() % size != 0 || next.payload.len() > size {
                return false;
            }
            unit.udp_segment = Some(size as u16);
        }
    }
    unit.bytes.extend_from_slice(next.payload);
    let transport_len = (unit.bytes.len() - transport) as u16;
    let (ip, segment) = unit.bytes[ETHERNET..].split_at_mut(transport - ETHERNET);
    if is_ipv4 {
        ip[2..4].copy_from_slice(&(transport_len + IPV4 as u16).to_be_bytes());
        ip[10..12].fill(0);
        let header = !(checksum::sum(ip, 0) as u16);
        ip[10..12].copy_from_slice(&header.to_be_bytes());
    } else {
        ip[4..6].copy_from_slice(&transport_len.to_be_bytes());
    }
    if unit.udp_segment.is_some() {
        segment[4..6].copy_from_slice(&transport_len.to_be_bytes());
    } else {
        segment[13] |= flags;
    }
    true
}

/// A TCP segment or UDP datagram in an unfragmented IP packet without options or extension headers, unpadded.
struct Segment<'a> {
    bytes: &'a [u8],
    protocol: u8,
    /// Where the TCP or UDP header is.
    transport: usize,
    /// Length of all headers.
    headers: usize,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    fn headers(bytes: &'a [u8]) -> Option<Self> {
        let ip = bytes.get(ETHERNET..)?;
        let word = |at: usize| Some(u16::from_be_bytes(*ip.get(at..)?.first_chunk()?));
        let (transport, total, protocol) = match bytes[12..ETHERNET] {
            [0x08, 0x00] => {
                let fragment = word(6)? & 0x3fff;
                if *ip.first()? != 0x45 || fragment != 0 {
                    return None;
                }
                (ETHERNET + IPV4, word(2)?.into(), *ip.get(9)?)
            }
            [0x86, 0xdd] => {
                let total = IPV6 + usize::from(word(4)?);
                (ETHERNET + IPV6, total, *ip.get(6)?)
            }
            _ => return None,
        };
        if bytes.len() != ETHERNET + total {
            return None;
        }
        let header = match protocol {
            TCP => usize::from(bytes.get(transport + 12)? >> 4) * 4,
            UDP => 8,
            _ => return None,
        };
        if protocol == TCP && header < 20 {
            return None;
        }
        let headers = transport + header;
        let payload = bytes.get(headers..)?;
        Some(Segment {
            bytes,
            protocol,
            transport,
            headers,
            payload,
        })
    }

    /// The same, with right checksums.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let segment = Self::headers(bytes)?;
        let (ip, payload) = bytes[ETHERNET..].split_at(segment.transport - ETHERNET);
        let right = !segment.is_ipv4() || checksum::sum(ip, 0) == 0xffff;
        let pseudo = checksum::sum(&ip[segment.addresses()..], 0)
            + u32::from(segment.protocol)
            + payload.len() as u32;
        (right && checksum::sum(payload, pseudo) == 0xffff).then_some(segment)
    }

    fn is_ipv4(&self) -> bool {
        self.transport == ETHERNET + IPV4
    }

    /// Where the addresses are in the IP header, whose end they are.
    fn addresses(&self) -> usize {
        if self.is_ipv4() { 12 } else { 8 }
    }

    /// Addresses, protocol and ports, Ethernet header first.
    fn flow(&self) -> (&[u8], u8, &[u8]) {
        (
            &self.bytes[..ETHERNET],
            self.protocol,
            &self.bytes[ETHERNET + self.addresses()..self.transport + 4],
        )
    }

    fn sequence(&self) -> u32 {
        self.bytes[self.transport + 4..self.transport + 8]
            .iter()
            .fold(0, |value, &byte| value << 8 | u32::from(byte))
    }

    fn flags(&self) -> u8 {
        self.bytes[self.transport + 13]
    }
}
