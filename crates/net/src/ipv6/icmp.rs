//! ICMPv6 (RFC 4443): checksums, answers to echo requests, error messages.

use super::header::{self, ICMP, Packet};
use super::is_unicast;
use crate::checksum;
use crate::packet::{IPV6_HEADER, array, put};
use crate::parts::Parts;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

pub(crate) const DESTINATION_UNREACHABLE: u8 = 1;
pub(crate) const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const REDIRECT: u8 = 137;
/// What every link carries.
pub(crate) const MIN_MTU: u16 = 1280;
/// Hop limit of what may leave the link.
const HOP_LIMIT: u8 = 64;

/// True when the checksum of an ICMPv6 message is right.
pub(crate) fn verify(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> bool {
    let pseudo = checksum::pseudo_header(source.into(), destination.into(), ICMP, message.len());
    checksum::verify(pseudo, Parts::new(&[message]))
}

/// Writes the checksum of a message that has zero there.
pub(crate) fn seal(source: Ipv6Addr, destination: Ipv6Addr, message: &mut [u8]) {
    let pseudo = checksum::pseudo_header(source.into(), destination.into(), ICMP, message.len());
    let sum = checksum::compute(pseudo, message);
    put(message, 2, sum.to_be_bytes());
}

/// A packet with a message whose checksum is still zero.
pub(crate) fn packet(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
    mut message: Vec<u8>,
) -> Vec<u8> {
    seal(source, destination, &mut message);
    header::packet(source, destination, ICMP, hop_limit, &message)
}

/// The answer to an echo request that came from `source`, whose checksum is right. `us`: where it went, or for a group one
/// of our addresses. How often is for the caller to say.
pub(crate) fn echo_reply(source: Ipv6Addr, us: Ipv6Addr, message: &[u8]) -> Option<Vec<u8>> {
    let [kind, code, ..] = array::<8>(message, 0)?;
    if kind != ECHO_REQUEST || code != 0 || !is_unicast(source) {
        return None;
    }
    let mut reply = message.to_vec();
    put(&mut reply, 0, [ECHO_REPLY, 0, 0, 0]);
    Some(packet(us, source, HOP_LIMIT, reply))
}

/// What tells the sender of the packet `offending` that it is refused; `None` where nobody may be told (RFC 4443,
/// section 2.4 e). `value` is the second word, a Parameter Problem's pointer. How often is for the caller to say.
pub(crate) fn error(
    us: Ipv6Addr,
    kind: u8,
    code: u8,
    value: u32,
    offending: &[u8],
    to_group: bool,
) -> Option<Vec<u8>> {
    let packet_in = Packet::parse(offending)?;
    let of_icmp = match packet_in.upper() {
        Ok(upper) if upper.protocol == ICMP => upper.payload.first().copied(),
        _ => None,
    };
    let about_error = of_icmp.is_some_and(|kind| kind < ECHO_REQUEST || kind == REDIRECT);
    let group = packet_in.destination.is_multicast() && !to_group;
    if about_error || group || !is_unicast(packet_in.source) {
        return None;
    }
    let room = usize::from(MIN_MTU) - IPV6_HEADER - 8;
    let len = (IPV6_HEADER + packet_in.payload.len()).min(room);
    let mut message = Vec::with_capacity(8 + len);
    message.extend([kind, code, 0, 0]);
    message.extend(value.to_be_bytes());
    message.extend(offending.get(..len)?);
    Some(packet(us, packet_in.source, HOP_LIMIT, message))
}

#[cfg(test)]
mod tests {
    use super::super::ALL_NODES;
    use super::*;
    use crate::packet::{IpVersion, PROTOCOL_UDP};
    use crate::quote::port_unreachable;
    use alloc::vec;
    use proptest::prelude::*;

    const US: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    /// The message in a packet, and that its checksum is right.
    fn message(bytes: &[u8]) -> Vec<u8> {
        let packet = Packet::parse(bytes).unwrap();
        let upper = packet.upper().unwrap();
        assert_eq!(upper.protocol, ICMP);
        assert!(verify(packet.source, packet.destination, upper.payload));
        upper.payload.to_vec()
    }

    #[test]
    fn an_example_of_a_checksum() {
        // A neighbour solicitation from fe80::1 for fe80::2, summed by hand: fe80 1 ff02 1 ff00 2 20 3a 8700 fe80 2 0101 0200 0 1,
        // the carries added, complemented.
        let source: Ipv6Addr = "fe80::1".parse().unwrap();
        let group: Ipv6Addr = "ff02::1:ff00:2".parse().unwrap();
        let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
        message.extend("fe80::2".parse::<Ipv6Addr>().unwrap().octets());
        message.extend([1, 1, 2, 0, 0, 0, 0, 1]);
        let words = [
            0xfe80, 1, 0xff02, 1, 0xff00, 2, 0x20, 0x3a, 0x8700, 0xfe80, 2, 0x0101, 0x0200, 0, 1u32,
        ];
        let sum: u32 = words.iter().sum();
        let want = !((sum >> 16) + (sum & 0xffff)) as u16;
        seal(source, group, &mut message);
        assert_eq!(message[2..4], want.to_be_bytes());
        assert!(verify(source, group, &message));
        assert!(!verify(group, group, &message));
        message[23] ^= 1;
        assert!(!verify(source, group, &message));
        assert!(!verify(source, group, &[]));
    }

    #[test]
    fn an_echo() {
        let request = [128, 0, 9, 9, 1, 2, 3, 4, 5];
        let bytes = echo_reply(HOST, US, &request).unwrap();
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.source, packet.destination), (US, HOST));
        let reply = message(&bytes);
        assert_eq!((reply[0], reply[1], &reply[4..]), (129, 0, &request[4..]));
        assert_eq!(echo_reply(ALL_NODES, US, &request), None);
        assert_eq!(echo_reply(Ipv6Addr::UNSPECIFIED, US, &request), None);
        assert_eq!(echo_reply(HOST, US, &request[..7]), None);
        assert_eq!(echo_reply(HOST, US, &reply), None);
        assert_eq!(echo_reply(HOST, US, &[128, 1, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn an_error_quotes_what_fits() {
        let udp = header::packet(HOST, US, PROTOCOL_UDP, 64, &[7; 2000]);
        let bytes = error(US, DESTINATION_UNREACHABLE, 4, 0, &udp, false).unwrap();
        assert_eq!(bytes.len(), 1280);
        assert_eq!(message(&bytes)[8..], udp[..1232]);
        let quoted = port_unreachable(IpVersion::V6, &message(&bytes)).unwrap();
        assert_eq!(quoted.local, (HOST, 0x0707).into());
        // The padding of a frame is not quoted.
        let padded = [
            header::packet(HOST, US, PROTOCOL_UDP, 64, &[1; 8]),
            vec![0; 6],
        ]
        .concat();
        let bytes = error(US, PARAMETER_PROBLEM, 2, 42, &padded, false).unwrap();
        assert_eq!(message(&bytes)[..8][4..], [0, 0, 0, 42]);
        assert_eq!(message(&bytes).len(), 8 + 48);
    }

    #[test]
    fn nobody_is_told() {
        let told = |source, destination, first: u8, to_group| {
            let about = packet(source, destination, 64, vec![first, 0, 0, 0, 0, 0, 0, 0]);
            error(US, PARAMETER_PROBLEM, 2, 0, &about, to_group).is_some()
        };
        assert!(told(HOST, US, 128, false));
        assert!(
            !told(HOST, US, 1, false) && !told(HOST, US, 127, false) && !told(HOST, US, 137, false)
        );
        assert!(!told(HOST, ALL_NODES, 128, false) && told(HOST, ALL_NODES, 128, true));
        assert!(!told(Ipv6Addr::UNSPECIFIED, US, 128, false));
        assert_eq!(error(US, PARAMETER_PROBLEM, 2, 0, &[0x60; 39], false), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            echo_reply(HOST, US, &bytes);
            verify(HOST, US, &bytes);
            error(US, PARAMETER_PROBLEM, 2, 0, &bytes, false);
        }
    }
}
