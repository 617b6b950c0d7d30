//! UDP in IP in Ethernet, as frames: the rungs below a protocol stack have none to do it for them.

use alloc::vec::Vec;
use core::net::IpAddr;

/// Bytes of the headers of Ethernet, IPv4 without options, IPv6 without extensions, and UDP.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;

/// Where in a frame the source's address is.
const SOURCE_V4: usize = 26;
const SOURCE_V6: usize = 22;

pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_ARP: u16 = 0x0806;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_ICMPV6: u8 = 58;
const HOP_LIMIT: u8 = 64;
/// Of a message that has not been forwarded (RFC 4861 section 7.1.1).
const LINK_HOP_LIMIT: u8 = 255;
const NEIGHBOUR_SOLICITATION: u8 = 135;
/// The option that tells the source's Ethernet address: its type, and its length in units of 8 bytes.
const SOURCE_LINK_ADDRESS: [u8; 2] = [1, 1];

/// An end of a conversation, with all its addresses that a frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameEndpoint {
    /// Source or destination of the frame's Ethernet header.
    pub mac: [u8; 6],
    /// Of the same IP version at both ends.
    pub address: IpAddr,
    /// Of UDP, in host byte order.
    pub port: u16,
}

/// What a frame says of the datagram in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    /// Of UDP, the destination, in host byte order.
    pub port: u16,
    /// Where in the frame the payload begins.
    pub at: usize,
    /// Length of the payload in bytes, by the UDP header; the frame may be shorter.
    pub len: usize,
}

/// Bytes that precede a payload to `address`.
pub(crate) fn headers(address: IpAddr) -> usize {
    let ip = match address {
        IpAddr::V4(_) => IPV4,
        IpAddr::V6(_) => IPV6,
    };
    ETHERNET + ip + UDP
}

/// What frames with packets of the version of `address` say in their EtherType.
pub(crate) fn ethertype(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => ETHERTYPE_IPV4,
        IpAddr::V6(_) => ETHERTYPE_IPV6,
    }
}

/// A datagram as a frame. Both ends have addresses of one version; `payload` is at most what a frame holds.
pub(crate) fn emit(from: FrameEndpoint, to: FrameEndpoint, payload: &[u8]) -> Vec<u8> {
    let udp_len = (UDP + payload.len()) as u16;
    let mut frame = Vec::with_capacity(headers(to.address) + payload.len());
    frame.extend(to.mac);
    frame.extend(from.mac);
    let udp_checksum = match (from.address, to.address) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend(ETHERTYPE_IPV4.to_be_bytes());
            let mut header = Vec::with_capacity(IPV4);
            // No options; identification 0 and not to be fragmented.
            header.extend([0x45, 0]);
            header.extend((IPV4 as u16 + udp_len).to_be_bytes());
            header.extend([0, 0, 0x40, 0, HOP_LIMIT, PROTOCOL_UDP, 0, 0]);
            header.extend(source.octets());
            header.extend(destination.octets());
            let sum = checksum([header.as_slice()]).to_be_bytes();
            if let Some(place) = header.get_mut(10..12) {
                place.copy_from_slice(&sum);
            }
            frame.extend(header);
            // Left out (RFC 768).
            0
        }
        (source, destination) => {
            let (source, destination) = (octets6(source), octets6(destination));
            frame.extend(ETHERTYPE_IPV6.to_be_bytes());
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(udp_len.to_be_bytes());
            frame.extend([PROTOCOL_UDP, HOP_LIMIT]);
            frame.extend(source);
            frame.extend(destination);
            // RFC 8200, section 8.1: a checksum there must be, over a pseudo-header too.
            let words = [from.port, to.port, udp_len, udp_len, PROTOCOL_UDP.into()];
            let words = words.map(u16::to_be_bytes);
            match checksum([&source, &destination, words.as_flattened(), payload]) {
                0 => 0xffff,
                sum => sum,
            }
        }
    };
    for word in [from.port, to.port, udp_len, udp_checksum] {
        frame.extend(word.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

/// Asks everybody for the Ethernet address of `to` (ARP, RFC 826; neighbour discovery, RFC 4861). Who has it learns that of `from`, which answers
/// no such question.
pub(crate) fn solicitation(from: FrameEndpoint, to: IpAddr) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET + IPV6 + 32);
    match (from.address, to) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            frame.extend([0xff; 6]);
            frame.extend(from.mac);
            frame.extend(ETHERTYPE_ARP.to_be_bytes());
            // Ethernet, IPv4, the lengths of their addresses; a request.
            frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
            frame.extend(from.mac);
            frame.extend(source.octets());
            frame.extend([0; 6]);
            frame.extend(target.octets());
        }
        (source, target) => {
            let (source, target) = (octets6(source), octets6(target));
            let [.., a, b, c] = target;
            // The target's solicited-node multicast address (RFC 4291 section 2.7.1), and its Ethernet address.
            let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c];
            frame.extend([0x33, 0x33, 0xff, a, b, c]);
            frame.extend(from.mac);
            frame.extend(ETHERTYPE_IPV6.to_be_bytes());
            let mut body = Vec::with_capacity(28);
            body.extend([0; 4]);
            body.extend(target);
            body.extend(SOURCE_LINK_ADDRESS);
            body.extend(from.mac);
            let len = 4 + body.len() as u8;
            frame.extend([0x60, 0, 0, 0, 0, len, PROTOCOL_ICMPV6, LINK_HOP_LIMIT]);
            frame.extend(source);
            frame.extend(group);
            let pseudo = [0, len, 0, PROTOCOL_ICMPV6, NEIGHBOUR_SOLICITATION, 0];
            let sum = checksum([&source, &group, &pseudo, &body]);
            frame.extend([NEIGHBOUR_SOLICITATION, 0]);
            frame.extend(sum.to_be_bytes());
            frame.extend(body);
        }
    }
    frame
}

fn octets6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
    }
}

/// The ones' complement sum of RFC 1071 over all parts, of which only the last may be of an odd length.
pub(crate) fn checksum<const N: usize>(parts: [&[u8]; N]) -> u16 {
    let mut sum: u32 = 0;
    for pair in parts.into_iter().flat_map(|part| part.chunks(2)) {
        let word = match *pair {
            [high, low] => u16::from_be_bytes([high, low]),
            [high] => u16::from_be_bytes([high, 0]),
            _ => 0,
        };
        sum += u32::from(word);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What a frame that begins with `start` says, if it holds UDP in IPv4 without options or in IPv6 without extensions.
#[inline]
pub(crate) fn parse(start: &[u8]) -> Option<Datagram> {
    let first: &[u8; ETHERNET + IPV4] = start.first_chunk()?;
    let udp = if first[12..15] == [0x08, 0x00, 0x45] && first[23] == PROTOCOL_UDP {
        ETHERNET + IPV4
    } else if first[12..14] == ETHERTYPE_IPV6.to_be_bytes() && first[20] == PROTOCOL_UDP {
        ETHERNET + IPV6
    } else {
        return None;
    };
    let header: &[u8; UDP] = start.get(udp..)?.first_chunk()?;
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    Some(Datagram {
        port: u16::from_be_bytes([header[2], header[3]]),
        at: udp + UDP,
        len: len.checked_sub(UDP)?,
    })
}

/// Ethernet address, address and port that sent the datagram of such a frame.
pub(crate) fn source(start: &[u8]) -> Option<([u8; 6], IpAddr, u16)> {
    let udp = parse(start)?.at - UDP;
    let address = match udp == ETHERNET + IPV4 {
        true => IpAddr::from(*start.get(SOURCE_V4..)?.first_chunk::<4>()?),
        false => IpAddr::from(*start.get(SOURCE_V6..)?.first_chunk::<16>()?),
    };
    let port = start.get(udp..)?.first_chunk()?;
    let mac = *start.get(6..)?.first_chunk()?;
    Some((mac, address, u16::from_be_bytes(*port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(number: u8, v6: bool) -> FrameEndpoint {
        FrameEndpoint {
            mac: [2, 0, 0, 0, 0, number],
            address: if v6 {
                IpAddr::from([0xfd00, 0x77, 0, 0, 0, 0, 0, number.into()])
            } else {
                IpAddr::from([10, 77, 0, number])
            },
            port: 7079 - u16::from(number),
        }
    }

    #[test]
    fn frames() {
        for (v6, at) in [(false, 42), (true, 62)] {
            let (from, to) = (end(1, v6), end(2, v6));
            assert_eq!(headers(to.address), at);
            let frame = emit(from, to, b"hello");
            assert_eq!(frame.len(), at + 5);
            assert_eq!(&frame[at..], b"hello");
            let datagram = Datagram {
                port: 7077,
                at,
                len: 5,
            };
            assert_eq!(parse(&frame), Some(datagram));
            assert_eq!(source(&frame), Some((from.mac, from.address, from.port)));
            assert_eq!(frame[..6], to.mac);
            assert_eq!(frame[at - 8..at - 6], 7078u16.to_be_bytes());
            assert_eq!(frame[at - 4..at - 2], 13u16.to_be_bytes());
        }
    }

    #[test]
    fn ipv4_headers() {
        let frame = emit(end(1, false), end(2, false), b"hello");
        // A header with its checksum sums to zero.
        assert_eq!(checksum([&frame[14..34]]), 0);
        assert_eq!(frame[16..18], 33u16.to_be_bytes());
        assert_eq!(frame[26..34], [10, 77, 0, 1, 10, 77, 0, 2]);
        assert_eq!(frame[40..42], [0, 0]);
    }

    #[test]
    fn ipv6_headers() {
        for payload in [&b"hello"[..], b"hell", b""] {
            let frame = emit(end(1, true), end(2, true), payload);
            let len = 8 + payload.len() as u8;
            assert_eq!(frame[14..22], [0x60, 0, 0, 0, 0, len, 17, 64]);
            let (source, destination) = (&frame[22..38], &frame[38..54]);
            assert_eq!(source, octets6(end(1, true).address));
            assert_eq!(destination, octets6(end(2, true).address));
            // RFC 8200, section 8.1: source, destination, upper-layer packet length, zeros, next header.
            let pseudo = [&frame[22..54], &[0, 0, 0, len, 0, 0, 0, 17]].concat();
            assert_eq!(checksum([pseudo.as_slice(), &frame[54..]]), 0);
        }
    }

    #[test]
    fn questions_for_an_ethernet_address_tell_ones_own() {
        let frame = solicitation(end(1, false), end(2, false).address);
        let arp = [
            [0xff; 6].as_slice(),
            &[2, 0, 0, 0, 0, 1, 8, 6],
            &[0, 1, 8, 0, 6, 4, 0, 1],
            &[2, 0, 0, 0, 0, 1, 10, 77, 0, 1],
            &[0, 0, 0, 0, 0, 0, 10, 77, 0, 2],
        ];
        assert_eq!(frame, arp.concat());
        let frame = solicitation(end(1, true), end(2, true).address);
        let target = [0xfd, 0, 0, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
        let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 2];
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0, 0, 2]);
        assert_eq!(frame[6..14], [2, 0, 0, 0, 0, 1, 0x86, 0xdd]);
        assert_eq!(frame[14..22], [0x60, 0, 0, 0, 0, 32, 58, 255]);
        assert_eq!(frame[22..38], octets6(end(1, true).address));
        assert_eq!(frame[38..54], group);
        assert_eq!(frame[54..56], [135, 0]);
        assert_eq!(frame[58..62], [0; 4]);
        assert_eq!(frame[62..78], target);
        assert_eq!(frame[78..], [1, 1, 2, 0, 0, 0, 0, 1]);
        // RFC 8200 section 8.1.
        let pseudo = [&frame[22..54], &[0, 0, 0, 32, 0, 0, 0, 58]].concat();
        assert_eq!(checksum([pseudo.as_slice(), &frame[54..]]), 0);
    }

    #[test]
    fn a_sum_of_zero_is_not_left_out() {
        let (from, to) = (end(1, true), end(2, true));
        let sum = |payload: [u8; 2]| emit(from, to, &payload)[60..62].to_vec();
        let [high, low] = sum([0, 0])[..] else {
            panic!("two bytes");
        };
        // A word that makes it whole.
        assert_eq!(sum([high, low]), [0xff, 0xff]);
    }

    #[test]
    fn other_frames_are_none() {
        for (v6, protocol) in [(false, 23), (true, 20)] {
            let mut frame = emit(end(1, v6), end(2, v6), b"hello");
            let at = headers(end(1, v6).address);
            for len in 0..at {
                assert_eq!(parse(&frame[..len]), None, "{len}");
            }
            frame[protocol] = 6;
            assert_eq!(parse(&frame), None);
            frame[protocol] = PROTOCOL_UDP;
            frame[at - 4..at - 2].copy_from_slice(&[0, 7]);
            assert_eq!(parse(&frame), None);
            frame[12] = 0x88;
            assert_eq!(parse(&frame), None);
        }
    }
}
