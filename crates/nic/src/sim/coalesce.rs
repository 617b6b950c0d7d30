//! Joins segments that arrive together, as a device with GUEST_TSO4 and GUEST_USO4 would.

use alloc::vec::Vec;

use super::Unit;
use crate::{Checksum, checksum};

/// Largest coalesced unit: an IPv4 packet of 65,535 bytes and the Ethernet header.
pub(super) const MAX_UNIT: usize = 65_535 + ETHERNET;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const TRANSPORT: usize = ETHERNET + IPV4;
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
    let mut flags = 0;
    match head.protocol {
        TCP => {
            let expected = head.sequence().wrapping_add(head.payload.len() as u32);
            let plain = |segment: &Segment<'_>| segment.flags() & !PSH == ACK;
            let options_equal = head.bytes[TRANSPORT + 20..head.headers]
                == next.bytes[TRANSPORT + 20..next.headers];
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
    let ip_len = (unit.bytes.len() - ETHERNET) as u16;
    unit.bytes[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&ip_len.to_be_bytes());
    unit.bytes[ETHERNET + 10..ETHERNET + 12].fill(0);
    let header = !(checksum::sum(&unit.bytes[ETHERNET..TRANSPORT], 0) as u16);
    unit.bytes[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&header.to_be_bytes());
    if unit.udp_segment.is_some() {
        let udp_len = ip_len - IPV4 as u16;
        unit.bytes[TRANSPORT + 4..TRANSPORT + 6].copy_from_slice(&udp_len.to_be_bytes());
    } else {
        unit.bytes[TRANSPORT + 13] |= flags;
    }
    true
}

/// A TCP segment or UDP datagram in an unfragmented IPv4 packet without options, unpadded.
struct Segment<'a> {
    bytes: &'a [u8],
    protocol: u8,
    /// Length of all headers.
    headers: usize,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    fn headers(bytes: &'a [u8]) -> Option<Self> {
        let ip = bytes.get(ETHERNET..TRANSPORT)?;
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff;
        if bytes[12..14] != [8, 0]
            || ip[0] != 0x45
            || fragment != 0
            || bytes.len() != total + ETHERNET
        {
            return None;
        }
        let protocol = ip[9];
        let headers = TRANSPORT
            + match protocol {
                TCP => usize::from(bytes.get(TRANSPORT + 12)? >> 4) * 4,
                UDP => 8,
                _ => return None,
            };
        if protocol == TCP && headers < TRANSPORT + 20 {
            return None;
        }
        let payload = bytes.get(headers..)?;
        Some(Segment {
            bytes,
            protocol,
            headers,
            payload,
        })
    }

    /// The same, with right checksums.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let segment = Self::headers(bytes)?;
        let ip = &bytes[ETHERNET..TRANSPORT];
        (checksum::sum(ip, 0) == 0xffff
            && ipv4_payload_valid(&ip[12..20], segment.protocol, &bytes[TRANSPORT..]))
        .then_some(segment)
    }

    /// Addresses, protocol and ports, Ethernet header first.
    fn flow(&self) -> (&[u8], u8, &[u8]) {
        (
            &self.bytes[..ETHERNET],
            self.protocol,
            &self.bytes[ETHERNET + 12..TRANSPORT + 4],
        )
    }

    fn sequence(&self) -> u32 {
        self.bytes[TRANSPORT + 4..TRANSPORT + 8]
            .iter()
            .fold(0, |value, &byte| value << 8 | u32::from(byte))
    }

    fn flags(&self) -> u8 {
        self.bytes[TRANSPORT + 13]
    }
}

/// True when the transport checksum of an IPv4 packet's payload is right.
fn ipv4_payload_valid(source_destination: &[u8], protocol: u8, payload: &[u8]) -> bool {
    let pseudo = checksum::sum(source_destination, 0) + u32::from(protocol) + payload.len() as u32;
    checksum::sum(payload, pseudo) == 0xffff
}
