//! UDP in IPv4 in Ethernet, as frames: the rungs below a protocol stack have none to do it for them.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Bytes of Ethernet, IPv4 (without options) and UDP headers.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
/// What precedes a payload.
pub const HEADERS: usize = ETHERNET + IPV4 + UDP;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const PROTOCOL_UDP: u8 = 17;

/// One end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Ethernet address.
    pub mac: [u8; 6],
    /// IPv4 address.
    pub address: Ipv4Addr,
    /// UDP port.
    pub port: u16,
}

/// A datagram as a frame. Its UDP checksum is left out (zero, RFC 768); `payload` is at most what a frame holds.
pub fn emit(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let udp_len = (UDP + payload.len()) as u16;
    let mut frame = Vec::with_capacity(HEADERS + payload.len());
    frame.extend(to.mac);
    frame.extend(from.mac);
    frame.extend(ETHERTYPE_IPV4);
    let mut header = [0; IPV4];
    let fields: [(usize, &[u8]); 6] = [
        (0, &[0x45]),
        (2, &(IPV4 as u16 + udp_len).to_be_bytes()),
        // Don't fragment; time to live; protocol.
        (6, &[0x40, 0, 64, PROTOCOL_UDP]),
        (12, &from.address.octets()),
        (16, &to.address.octets()),
        (10, &[0, 0]),
    ];
    for (at, bytes) in fields {
        if let Some(place) = header.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
    let sum = checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    frame.extend(header);
    for word in [from.port, to.port, udp_len, 0] {
        frame.extend(word.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

/// The ones' complement sum of RFC 1071 over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks_exact(2)
        .filter_map(|pair| pair.first_chunk().copied())
        .map(|pair| u32::from(u16::from_be_bytes(pair)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The destination port and the length of the payload, if a frame that begins with `start` holds UDP in IPv4 without options.
#[inline]
pub fn parse(start: &[u8]) -> Option<(u16, usize)> {
    let header: &[u8; HEADERS] = start.first_chunk()?;
    if header[12..15] != [0x08, 0x00, 0x45] || header[23] != PROTOCOL_UDP {
        return None;
    }
    let port = u16::from_be_bytes([header[36], header[37]]);
    let len = usize::from(u16::from_be_bytes([header[38], header[39]]));
    Some((port, len.checked_sub(UDP)?))
}

/// Who sent the frame.
pub fn source(start: &[u8]) -> Option<[u8; 6]> {
    start.get(6..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: End = End {
        mac: [2, 0, 0, 0, 0, 1],
        address: Ipv4Addr::new(10, 77, 0, 2),
        port: 7078,
    };
    const TO: End = End {
        mac: [2, 0, 0, 0, 0, 2],
        address: Ipv4Addr::new(10, 77, 0, 1),
        port: 7077,
    };

    #[test]
    fn frames() {
        let frame = emit(FROM, TO, b"hello");
        assert_eq!(frame.len(), HEADERS + 5);
        assert_eq!(parse(&frame), Some((7077, 5)));
        assert_eq!(source(&frame), Some(FROM.mac));
        // A header with its checksum sums to zero.
        assert_eq!(checksum(&frame[14..34]), 0);
        assert_eq!(frame[16..18], 33u16.to_be_bytes());
    }

    #[test]
    fn other_frames_are_none() {
        let mut frame = emit(FROM, TO, b"hello");
        assert_eq!(parse(&frame[..HEADERS - 1]), None);
        frame[23] = 6;
        assert_eq!(parse(&frame), None);
        frame[23] = PROTOCOL_UDP;
        frame[39] = 7;
        frame[38] = 0;
        assert_eq!(parse(&frame), None);
    }
}
