//! The IPv6 header and the extension headers behind it (RFC 8200).

use crate::packet::{IPV6_HEADER, array};
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use smoltcp::wire::Ipv6Packet;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
pub(crate) const ICMP: u8 = 58;

const PAD1: u8 = 0;
const PADN: u8 = 1;
const ROUTER_ALERT: u8 = 5;

/// A packet by its fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub hop_limit: u8,
    pub next_header: u8,
    /// As long as the header says.
    pub payload: &'a [u8],
}

/// What is behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Upper<'a> {
    pub protocol: u8,
    pub payload: &'a [u8],
    /// The payload is one of several pieces, `protocol` what its Fragment header says.
    pub fragment: Option<Fragment>,
    /// A Fragment header was there, of a piece or of a whole ("atomic") packet. Neighbour discovery does not
    /// allow either (RFC 6980).
    pub fragmented: bool,
    /// A Router Alert option for MLD was there.
    pub router_alert: bool,
}

/// Where a fragment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub id: u32,
    /// In bytes.
    pub offset: u16,
    pub more: bool,
}

/// Why a packet comes to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Drop,
    /// The sender is told by a Parameter Problem (RFC 4443, section 3.4).
    Problem {
        code: u8,
        /// From the start of the IPv6 header.
        pointer: u32,
        /// Also when the packet went to a group.
        to_group: bool,
    },
}

impl<'a> Packet<'a> {
    /// Reads the fixed header. What is longer than it says (Ethernet's padding) is cut off.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let packet = Ipv6Packet::new_checked(bytes).ok()?;
        let (source, destination) = (packet.src_addr(), packet.dst_addr());
        let right = packet.version() == 6
            && !source.is_multicast()
            && !source.is_loopback()
            && !destination.is_unspecified()
            && !destination.is_loopback();
        right.then_some(Packet {
            source,
            destination,
            hop_limit: packet.hop_limit(),
            next_header: packet.next_header().into(),
            payload: packet.payload(),
        })
    }

    /// Goes through the extension headers.
    pub(crate) fn upper(&self) -> Result<Upper<'a>, Refusal> {
        walk(self.next_header, self.payload, true)
    }
}

/// Goes through the extension headers of what was put together from fragments. Fragments in it are refused.
pub(crate) fn upper_of_whole(next_header: u8, bytes: &[u8]) -> Option<Upper<'_>> {
    walk(next_header, bytes, false).ok()
}

/// `start`: nothing but the fixed header is before `bytes`.
fn walk(mut next: u8, bytes: &[u8], start: bool) -> Result<Upper<'_>, Refusal> {
    let (mut at, mut fragmented, mut router_alert) = (0, !start, false);
    let problem = |code, at: usize| Refusal::Problem {
        code,
        pointer: (IPV6_HEADER + at) as u32,
        to_group: false,
    };
    loop {
        let rest = bytes.get(at..).ok_or(Refusal::Drop)?;
        let extension = matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS);
        if !extension {
            return Ok(Upper {
                protocol: next,
                payload: rest,
                fragment: None,
                fragmented,
                router_alert,
            });
        }
        let fields: [u8; 8] = array(rest, 0).ok_or(Refusal::Drop)?;
        let [following, len, _, segments_left, ..] = fields;
        let mut len = (usize::from(len) + 1) * 8;
        match next {
            FRAGMENT => {
                let [_, _, offset_high, offset_low, id @ ..] = fields;
                let offset = u16::from_be_bytes([offset_high, offset_low]);
                let (more, offset) = (offset & 1 != 0, offset & !7);
                if fragmented {
                    return Err(Refusal::Drop);
                }
                fragmented = true;
                if more || offset != 0 {
                    return Ok(Upper {
                        protocol: following,
                        payload: rest.get(8..).ok_or(Refusal::Drop)?,
                        fragment: Some(Fragment {
                            id: u32::from_be_bytes(id),
                            offset,
                            more,
                        }),
                        fragmented,
                        router_alert,
                    });
                }
                len = 8;
            }
            // Routing headers are for routers; one that has done its work is passed by. Type 0 included (RFC 5095).
            ROUTING if segments_left == 0 => {}
            ROUTING => return Err(problem(0, at + 2)),
            HOP_BY_HOP if at != 0 || !start => return Err(problem(1, at)),
            _ => {
                let header = rest.get(..len).ok_or(Refusal::Drop)?;
                router_alert |= options(header, at)? && next == HOP_BY_HOP;
            }
        }
        next = following;
        at += len;
    }
}

/// Goes through the options of a header that is `at` bytes behind the fixed one. True when one is a Router Alert for MLD.
fn options(header: &[u8], at: usize) -> Result<bool, Refusal> {
    let mut router_alert = false;
    let mut here = 2;
    while let Some(&kind) = header.get(here) {
        if kind == PAD1 {
            here += 1;
            continue;
        }
        let data = || {
            header
                .get(here + 2..)?
                .get(..usize::from(*header.get(here + 1)?))
        };
        let data = data().ok_or(Refusal::Drop)?;
        // What an option that nobody knows asks for (RFC 8200, section 4.2).
        match (kind, kind >> 6) {
            (PADN, _) | (_, 0) => router_alert |= kind == ROUTER_ALERT && *data == [0, 0],
            (_, 1) => return Err(Refusal::Drop),
            (_, action) => {
                return Err(Refusal::Problem {
                    code: 2,
                    pointer: (IPV6_HEADER + at + here) as u32,
                    to_group: action == 2,
                });
            }
        }
        here += 2 + data.len();
    }
    Ok(router_alert)
}

/// A packet. Its payload must be shorter than 64 KB.
pub(crate) fn packet(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    next_header: u8,
    hop_limit: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(IPV6_HEADER + payload.len());
    bytes.extend([0x60, 0, 0, 0]);
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next_header, hop_limit]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend(payload);
    bytes
}

/// A Hop-by-Hop Options header with the Router Alert option for MLD (RFC 2711).
pub(crate) fn router_alert(next_header: u8) -> [u8; 8] {
    [next_header, 0, ROUTER_ALERT, 2, 0, 0, PADN, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PROTOCOL_UDP;
    use alloc::vec;
    use proptest::prelude::*;

    const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const B: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

    /// The verdict on headers that begin with the one of type `first`.
    fn upper(first: u8, payload: &[u8]) -> Result<(u8, Vec<u8>), Refusal> {
        let bytes = packet(A, B, first, 64, payload);
        let upper = Packet::parse(&bytes).unwrap().upper()?;
        Ok((upper.protocol, upper.payload.to_vec()))
    }

    fn problem(code: u8, pointer: u32, to_group: bool) -> Result<(u8, Vec<u8>), Refusal> {
        Err(Refusal::Problem {
            code,
            pointer,
            to_group,
        })
    }

    #[test]
    fn the_fixed_header() {
        let mut bytes = packet(A, B, PROTOCOL_UDP, 64, &[1, 2, 3]);
        let parsed = Packet::parse(&bytes).unwrap();
        assert_eq!((parsed.source, parsed.destination), (A, B));
        assert_eq!((parsed.next_header, parsed.hop_limit), (PROTOCOL_UDP, 64));
        assert_eq!(Packet::parse(&bytes[..42]), None);
        bytes.extend([0; 9]);
        assert_eq!(Packet::parse(&bytes).unwrap().payload, [1, 2, 3]);
        bytes[0] = 0x45;
        assert_eq!(Packet::parse(&bytes), None);
        let group = super::super::ALL_NODES;
        let none = Ipv6Addr::UNSPECIFIED;
        let loopback = Ipv6Addr::LOCALHOST;
        for (source, destination) in [(group, A), (loopback, A), (A, loopback), (A, none)] {
            let bytes = packet(source, destination, PROTOCOL_UDP, 64, &[]);
            assert_eq!(Packet::parse(&bytes), None, "{source} {destination}");
        }
        assert!(Packet::parse(&packet(none, group, PROTOCOL_UDP, 64, &[])).is_some());
    }

    #[test]
    fn headers_are_passed_by() {
        let mut payload = router_alert(DESTINATION_OPTIONS).to_vec();
        payload.extend([ROUTING, 0, PADN, 4, 0, 0, 0, 0]);
        payload.extend([FRAGMENT, 0, 0, 0, 0, 0, 0, 0]);
        payload.extend([PROTOCOL_UDP, 99, 0, 0, 0, 0, 0, 7]);
        payload.extend([9; 8]);
        let bytes = packet(A, B, HOP_BY_HOP, 1, &payload);
        let upper = Packet::parse(&bytes).unwrap().upper().unwrap();
        assert_eq!((upper.protocol, upper.payload), (PROTOCOL_UDP, &[9; 8][..]));
        assert!(upper.router_alert && upper.fragmented && upper.fragment.is_none());
        // A Router Alert counts in a Hop-by-Hop Options header alone, with MLD's value alone.
        let mut other = router_alert(PROTOCOL_UDP);
        let alert = |first, header: &[u8]| {
            let bytes = packet(A, B, first, 1, header);
            Packet::parse(&bytes).unwrap().upper().unwrap().router_alert
        };
        assert!(alert(HOP_BY_HOP, &other) && !alert(DESTINATION_OPTIONS, &other));
        other[5] = 1;
        assert!(!alert(HOP_BY_HOP, &other));
    }

    #[test]
    fn a_fragment_ends_the_walk() {
        let payload = [DESTINATION_OPTIONS, 0, 0x12, 0x39, 1, 2, 3, 4, 9];
        let bytes = packet(A, B, FRAGMENT, 64, &payload);
        let upper = Packet::parse(&bytes).unwrap().upper().unwrap();
        let fragment = Fragment {
            id: 0x0102_0304,
            offset: 0x1238,
            more: true,
        };
        assert_eq!(upper.fragment, Some(fragment));
        assert_eq!(
            (upper.protocol, upper.payload),
            (DESTINATION_OPTIONS, &[9][..])
        );
        // Fragments within fragments, within a packet or within what was put together.
        let twice = [
            [FRAGMENT, 0, 0, 0, 0, 0, 0, 1],
            [PROTOCOL_UDP, 0, 0, 1, 0, 0, 0, 2],
        ]
        .concat();
        assert_eq!(super::tests::upper(FRAGMENT, &twice), Err(Refusal::Drop));
        assert_eq!(upper_of_whole(FRAGMENT, &twice), None);
        assert_eq!(
            upper_of_whole(HOP_BY_HOP, &router_alert(PROTOCOL_UDP)),
            None
        );
        assert_eq!(
            upper_of_whole(PROTOCOL_UDP, &[1; 8]).unwrap().payload,
            [1; 8]
        );
    }

    /// RFC 8200, section 4.2: the pointer says where the option is, from the first byte of the packet on.
    #[test]
    fn an_option_that_nobody_knows_is_pointed_at() {
        let unknown = |kind| [PROTOCOL_UDP, 0, kind, 4, 0, 0, 0, 0];
        assert_eq!(upper(HOP_BY_HOP, &unknown(0x8a)), problem(2, 42, true));
        let later = |kind| [router_alert(DESTINATION_OPTIONS), unknown(kind)].concat();
        assert_eq!(upper(HOP_BY_HOP, &later(0x8a)), problem(2, 50, true));
        assert_eq!(upper(HOP_BY_HOP, &later(0xca)), problem(2, 50, false));
        assert_eq!(upper(HOP_BY_HOP, &later(0x4a)), Err(Refusal::Drop));
        assert!(upper(HOP_BY_HOP, &later(0x0a)).is_ok());
    }

    #[test]
    fn headers_out_of_place() {
        let late = [
            [HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0],
            router_alert(PROTOCOL_UDP),
        ]
        .concat();
        assert_eq!(upper(DESTINATION_OPTIONS, &late), problem(1, 48, false));
        assert_eq!(
            upper(ROUTING, &[PROTOCOL_UDP, 0, 0, 1, 0, 0, 0, 0]),
            problem(0, 42, false)
        );
        assert_eq!(
            upper(ROUTING, &[PROTOCOL_UDP, 1, 0, 0, 0, 0, 0, 0]),
            Err(Refusal::Drop)
        );
        assert_eq!(
            upper(HOP_BY_HOP, &[PROTOCOL_UDP, 0, 1, 3, 0, 0, 0]),
            Err(Refusal::Drop)
        );
        assert_eq!(upper(59, &[1]), Ok((59, vec![1])));
    }

    /// CVE-2023-45232: an unknown option of length 0 in a Destination Options header held EDK II for ever.
    #[test]
    fn pixiefail_45232_unknown_option_of_length_0() {
        let header = |kind| [PROTOCOL_UDP, 0, kind, 0, PADN, 2, 0, 0];
        let (at, done) = (DESTINATION_OPTIONS, Ok((PROTOCOL_UDP, vec![])));
        assert_eq!(upper(at, &header(0x39)), done);
        assert_eq!(upper(at, &header(0x79)), Err(Refusal::Drop));
        assert_eq!(upper(at, &header(0xb9)), problem(2, 42, true));
        assert_eq!(upper(at, &header(0xf9)), problem(2, 42, false));
    }

    /// CVE-2023-45233: the length of a PadN option wrapped an index of eight bits.
    #[test]
    fn pixiefail_45233_padn_beyond_its_header() {
        for len in [0xfe, 0xff, 5] {
            let header = [PROTOCOL_UDP, 0, PADN, len, 0, 0, 0, 0];
            assert_eq!(upper(DESTINATION_OPTIONS, &header), Err(Refusal::Drop));
        }
        // An option whose length is missing, and a PadN as long as one can be.
        let header = [PROTOCOL_UDP, 0, PADN, 3, 0, 0, 0, PADN];
        assert_eq!(upper(DESTINATION_OPTIONS, &header), Err(Refusal::Drop));
        let mut long = vec![0; 264];
        long[..4].copy_from_slice(&[PROTOCOL_UDP, 32, PADN, 0xfe]);
        assert_eq!(
            upper(DESTINATION_OPTIONS, &long),
            Ok((PROTOCOL_UDP, vec![]))
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(first in prop::sample::select(vec![0, 43, 44, 60, 17]), bytes: Vec<u8>) {
            let _ = upper(first, &bytes);
            let _ = Packet::parse(&bytes).map(|packet| packet.upper());
            let _ = upper_of_whole(first, &bytes);
        }
    }
}
