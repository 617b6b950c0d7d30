//! The headers of a captured frame, up to that of the transport.

use core::fmt;
use core::net::IpAddr;

use smoltcp::wire::TcpPacket;

/// Protocols behind IP, by IANA's numbers.
const TCP: u8 = 6;
const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// Ethernet's types of VLAN tags (IEEE 802.1Q, 802.1ad and the one before it) and of both versions of IP.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Ethernet's types of what switches tell: of themselves, and of groups of ports.
const LLDP: u16 = 0x88cc;
const SLOW_PROTOCOLS: u16 = 0x8809;

/// An Ethernet address. Shown in hexadecimal, with colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// What a captured packet begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// Linux' "cooked" header of 16 bytes, as of a capture of all interfaces.
    LinuxCooked,
    /// Its second version, of 20 bytes.
    LinuxCooked2,
    /// An IP header.
    Ip,
}

impl LinkType {
    /// By its number in capture files (tcpdump's list of link-layer header types).
    pub fn from_number(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Ethernet),
            113 => Some(Self::LinuxCooked),
            276 => Some(Self::LinuxCooked2),
            101 | 228 | 229 => Some(Self::Ip),
            _ => None,
        }
    }
}

/// What is read of a captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Who sent it, where the capture tells.
    pub source: Option<Mac>,
    /// What it carries; [`Content::Other`] where that tells nothing of a boot.
    pub content: Content<'a>,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// A packet of a bridge to its neighbours (IEEE 802.1D), behind the LLC header.
    Bpdu(&'a [u8]),
    /// What a station tells its neighbours of itself (IEEE 802.1AB).
    Lldp(&'a [u8]),
    /// The same by Cisco's protocol, behind the SNAP header.
    Cdp(&'a [u8]),
    /// One of the slow protocols (IEEE 802.3 annex 57A), LACP among them.
    Slow(&'a [u8]),
    /// IPv4 or IPv6.
    Ip(IpPacket<'a>),
    /// What tells nothing of a boot: ARP and the like.
    Other,
}

/// Between Ethernet's type and length: numbers below are a length (IEEE 802.3).
const FIRST_TYPE: u16 = 0x0600;

/// LLC header of bridges: both access points 0x42, unnumbered information.
const LLC_BRIDGE: [u8; 3] = [0x42, 0x42, 0x03];

/// LLC and SNAP headers of Cisco's discovery protocol: both access points 0xaa, unnumbered information, Cisco's number, type 0x2000.
const SNAP_CDP: [u8; 8] = [0xaa, 0xaa, 0x03, 0x00, 0x00, 0x0c, 0x20, 0x00];

impl<'a> Frame<'a> {
    /// Reads the headers. `None` for what is too short to have any.
    pub fn parse(link: LinkType, bytes: &'a [u8]) -> Option<Self> {
        let mac = |at: &[u8]| <[u8; 6]>::try_from(at).ok().map(Mac);
        let number = |at: &[u8]| <[u8; 2]>::try_from(at).ok().map(u16::from_be_bytes);
        let (source, kind, rest) = match link {
            LinkType::Ethernet => {
                let (header, rest) = bytes.split_at_checked(14)?;
                (mac(header.get(6..12)?), number(header.get(12..)?)?, rest)
            }
            LinkType::LinuxCooked => {
                let (header, rest) = bytes.split_at_checked(16)?;
                (mac(header.get(6..12)?), number(header.get(14..)?)?, rest)
            }
            LinkType::LinuxCooked2 => {
                let (header, rest) = bytes.split_at_checked(20)?;
                (mac(header.get(12..18)?), number(header.get(..2)?)?, rest)
            }
            LinkType::Ip => {
                let content = IpPacket::parse(bytes).map_or(Content::Other, Content::Ip);
                return Some(Self {
                    source: None,
                    content,
                });
            }
        };
        // A cooked header tells 802.2 frames by the number 4.
        let content = if kind < FIRST_TYPE {
            let bpdu = rest.strip_prefix(&LLC_BRIDGE).map(Content::Bpdu);
            let cdp = || rest.strip_prefix(&SNAP_CDP).map(Content::Cdp);
            bpdu.or_else(cdp)
        } else {
            behind_tags(kind, rest).and_then(|(kind, rest)| match kind {
                IPV4 | IPV6 => IpPacket::parse(rest).map(Content::Ip),
                LLDP => Some(Content::Lldp(rest)),
                SLOW_PROTOCOLS => Some(Content::Slow(rest)),
                _ => None,
            })
        };
        let content = content.unwrap_or(Content::Other);
        Some(Self { source, content })
    }
}

/// What follows the type `kind` and VLAN tags, with its own type.
fn behind_tags(mut kind: u16, mut rest: &[u8]) -> Option<(u16, &[u8])> {
    while TAGS.contains(&kind) {
        let (tag, behind) = rest.split_first_chunk::<4>()?;
        let [_, _, high, low] = *tag;
        kind = u16::from_be_bytes([high, low]);
        rest = behind;
    }
    Some((kind, rest))
}

/// An IP packet, whose end a capture may have cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPacket<'a> {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's, which may be a group's.
    pub destination: IpAddr,
    /// The protocol behind the headers, by its number.
    pub protocol: u8,
    /// A part of a datagram.
    pub fragment: bool,
    /// The part with the transport's header, or all.
    pub first: bool,
    /// Bytes on the wire behind the IP header and its extensions.
    pub length: usize,
    /// What the capture has of them.
    pub payload: &'a [u8],
}

impl<'a> IpPacket<'a> {
    /// Reads an IPv4 or IPv6 header and its extensions. `None` for what is neither, or has no whole header.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::v4(bytes),
            6 => Self::v6(bytes),
            _ => None,
        }
    }

    /// RFC 791 section 3.1.
    fn v4(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<20>()?;
        let &[
            first,
            _,
            t0,
            t1,
            _,
            _,
            f0,
            f1,
            _,
            protocol,
            _,
            _,
            s0,
            s1,
            s2,
            s3,
            d0,
            d1,
            d2,
            d3,
        ] = header;
        let own = usize::from(first & 15) * 4;
        let rest = bytes.get(own..).filter(|_| own >= header.len())?;
        let total = usize::from(u16::from_be_bytes([t0, t1]));
        let flags = u16::from_be_bytes([f0, f1]);
        let (more, offset) = (flags & 0x2000 != 0, flags & 0x1fff);
        // 0 where the card cuts the segment itself (TSO) and the capture is of before that.
        let length = match total {
            0 => rest.len(),
            total => total.checked_sub(own)?,
        };
        Some(Self {
            source: IpAddr::from([s0, s1, s2, s3]),
            destination: IpAddr::from([d0, d1, d2, d3]),
            protocol,
            fragment: more || offset != 0,
            first: offset == 0,
            length,
            // Bytes behind the packet's end are Ethernet's padding.
            payload: rest.get(..length).unwrap_or(rest),
        })
    }

    /// RFC 8200 sections 3 and 4.
    fn v6(bytes: &'a [u8]) -> Option<Self> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const DESTINATION: u8 = 60;
        let (header, rest) = bytes.split_first_chunk::<40>()?;
        let &[_, _, _, _, l0, l1, next, _, ref addresses @ ..] = header;
        let (source, destination) = addresses.split_first_chunk::<16>()?;
        let destination = destination.first_chunk::<16>()?;
        let length = match u16::from_be_bytes([l0, l1]) {
            0 => rest.len(),
            length => usize::from(length),
        };
        let mut packet = Self {
            source: IpAddr::from(*source),
            destination: IpAddr::from(*destination),
            protocol: next,
            fragment: false,
            first: true,
            length,
            payload: rest.get(..length).unwrap_or(rest),
        };
        while packet.first {
            let Some(&[next, size, o0, o1, ..]) = packet.payload.first_chunk::<8>() else {
                break;
            };
            let own = match packet.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION => (usize::from(size) + 1) * 8,
                FRAGMENT => {
                    let offset = u16::from_be_bytes([o0, o1]);
                    packet.fragment = offset & !6 != 0;
                    packet.first = offset >> 3 == 0;
                    8
                }
                _ => break,
            };
            packet.protocol = next;
            packet.length = packet.length.checked_sub(own)?;
            packet.payload = packet.payload.get(own..).unwrap_or_default();
        }
        Some(packet)
    }

    /// The UDP datagram that begins in this packet (RFC 768).
    pub fn udp(&self) -> Option<Udp<'a>> {
        if self.protocol != UDP || !self.first {
            return None;
        }
        let (header, rest) = self.payload.split_first_chunk::<8>()?;
        let [s0, s1, d0, d1, l0, l1, ..] = *header;
        let length = usize::from(u16::from_be_bytes([l0, l1])).checked_sub(8)?;
        Some(Udp {
            source_port: u16::from_be_bytes([s0, s1]),
            destination_port: u16::from_be_bytes([d0, d1]),
            length,
            payload: rest.get(..length).unwrap_or(rest),
        })
    }

    /// The TCP segment in this packet (RFC 9293).
    pub fn tcp(&self) -> Option<Tcp<'a>> {
        if self.protocol != TCP || self.fragment {
            return None;
        }
        let segment = TcpPacket::new_checked(self.payload).ok()?;
        Some(Tcp {
            length: self.length.checked_sub(segment.header_len().into())?,
            segment,
        })
    }
}

/// A TCP segment, whose end may be cut off.
#[derive(Clone, Debug)]
pub struct Tcp<'a> {
    /// Its fields, and what the capture has of its payload.
    pub segment: TcpPacket<&'a [u8]>,
    /// Bytes of payload on the wire.
    pub length: usize,
}

/// A UDP datagram, whose end may be in another fragment or cut off.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// Bytes of payload on the wire.
    pub length: usize,
    /// What the capture has of them in this packet.
    pub payload: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use etherparse::{
        IpHeaders, IpNumber, Ipv4Header, Ipv6Extensions, Ipv6Header, Ipv6RawExtHeader,
        PacketBuilder,
    };

    fn ip_of(link: LinkType, frame: &[u8]) -> IpPacket<'_> {
        match Frame::parse(link, frame).unwrap().content {
            Content::Ip(ip) => ip,
            other => panic!("{other:?}"),
        }
    }

    /// A datagram of 100 bytes, of which the capture kept 80 of the frame.
    fn cut(ip: IpHeaders) -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ip(ip);
        builder.udp(69, 2000).write(&mut frame, &[0; 92]).unwrap();
        frame.truncate(80);
        frame
    }

    #[test]
    fn lengths_are_those_on_the_wire() {
        let (from, to) = ([10, 77, 0, 1], [10, 77, 0, 2]);
        let mut header = Ipv4Header::new(0, 64, IpNumber::UDP, from, to).unwrap();
        header.options = [1; 4].into();
        let frame = cut(IpHeaders::Ipv4(header, Default::default()));
        let packet = ip_of(LinkType::Ethernet, &frame);
        let ends = (packet.source, packet.destination);
        assert_eq!(ends, (from.into(), to.into()));
        assert_eq!((packet.length, packet.udp().unwrap().length), (100, 92));

        let (from, to) = ([0xfd; 16], [0xfe; 16]);
        let header = Ipv6Header {
            source: from,
            destination: to,
            ..Ipv6Header::default()
        };
        let options = Ipv6RawExtHeader::new_raw(IpNumber::UDP, &[1, 4, 0, 0, 0, 0]).unwrap();
        let extensions = Ipv6Extensions {
            destination_options: Some(options),
            ..Ipv6Extensions::default()
        };
        let frame = cut(IpHeaders::Ipv6(header, extensions));
        let packet = ip_of(LinkType::Ethernet, &frame);
        let ends = (packet.source, packet.destination);
        assert_eq!(ends, (from.into(), to.into()));
        assert_eq!((packet.length, packet.udp().unwrap().length), (100, 92));
    }

    fn datagram() -> Vec<u8> {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(67, 68)
            .write(&mut packet, b"hello")
            .unwrap();
        packet
    }

    #[test]
    fn each_link_type_leads_to_the_same_packet() {
        let packet = datagram();
        let own = Mac([2, 0, 0, 0, 0, 7]);
        let ethernet = [&[0xff; 6], own.0.as_slice(), &[8, 0], &packet].concat();
        let tagged = [
            [0xff; 6].as_slice(),
            &own.0,
            // Two tags: a provider's, and the customer's.
            &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0],
            &packet,
        ]
        .concat();
        let cooked = [
            &[0, 0, 0, 1, 0, 6],
            own.0.as_slice(),
            &[0, 0, 8, 0],
            &packet,
        ]
        .concat();
        let cooked2 = [
            [8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6].as_slice(),
            &own.0,
            &[0, 0],
            &packet,
        ]
        .concat();
        for (link, frame) in [
            (LinkType::Ethernet, ethernet),
            (LinkType::Ethernet, tagged),
            (LinkType::LinuxCooked, cooked),
            (LinkType::LinuxCooked2, cooked2),
        ] {
            assert_eq!(
                Frame::parse(link, &frame).unwrap().source,
                Some(own),
                "{link:?}"
            );
            let udp = ip_of(link, &frame).udp().unwrap();
            assert_eq!((udp.source_port, udp.payload), (67, b"hello".as_slice()));
        }
        let udp = ip_of(LinkType::Ip, &packet).udp().unwrap();
        assert_eq!(udp.destination_port, 68);
    }

    #[test]
    fn link_types_have_tcpdumps_numbers() {
        let all = [1, 113, 276, 101, 228, 229, 105].map(LinkType::from_number);
        let ip = Some(LinkType::Ip);
        let [ethernet, cooked, cooked2] = [
            LinkType::Ethernet,
            LinkType::LinuxCooked,
            LinkType::LinuxCooked2,
        ]
        .map(Some);
        assert_eq!(all, [ethernet, cooked, cooked2, ip, ip, ip, None]);
    }

    #[test]
    fn what_is_no_ip_is_other() {
        let arp = [&[0xff; 6], [2; 6].as_slice(), &[8, 6], &[0; 28]].concat();
        let frame = Frame::parse(LinkType::Ethernet, &arp).unwrap();
        assert!(matches!(frame.content, Content::Other));
        assert!(Frame::parse(LinkType::Ethernet, &arp[..13]).is_none());
        let bpdu = [
            &[1, 0x80, 0xc2, 0, 0, 0],
            [2; 6].as_slice(),
            &[0, 38, 0x42, 0x42, 3, 9, 9],
        ]
        .concat();
        let frame = Frame::parse(LinkType::Ethernet, &bpdu).unwrap();
        assert!(matches!(frame.content, Content::Bpdu([9, 9])));
    }

    #[test]
    fn extensions_and_fragments_of_ipv6_are_read() {
        let packet = |next: u8, behind: &[u8]| {
            let mut packet = vec![0x60, 0, 0, 0, 0, behind.len() as u8, next, 64];
            packet.extend([[0xfd; 16], [0xfe; 16]].concat());
            packet.extend(behind);
            packet
        };
        let udp = [0, 69, 7, 0xd0, 0, 12, 0, 0, 1, 2, 3, 4];
        // Hop by hop of 16 bytes, a first fragment of several, the datagram.
        let hop = [44, 1, 5, 2, 0, 0, 1, 0, 1, 2, 0, 0, 0, 0, 0, 0];
        let whole = packet(
            0,
            &[hop.as_slice(), &[17, 0, 0, 1, 0, 0, 0, 9], &udp].concat(),
        );
        let read = IpPacket::parse(&whole).unwrap();
        assert!(read.fragment && read.first);
        assert_eq!(
            (read.length, read.udp().unwrap().payload),
            (12, [1, 2, 3, 4].as_slice())
        );
        // The second: no transport.
        let second = packet(44, &[17, 0, 0, 8, 0, 0, 0, 9, 17, 7, 7, 7, 7, 7, 7, 7]);
        let read = IpPacket::parse(&second).unwrap();
        assert!(read.fragment && !read.first && read.udp().is_none());
        assert_eq!(read.length, 8);
        // A fragment header over all of a datagram is none.
        let atomic = packet(44, &[[17, 0, 0, 0, 0, 0, 0, 9].as_slice(), &udp].concat());
        let read = IpPacket::parse(&atomic).unwrap();
        assert!(!read.fragment && read.udp().is_some());
        // Wherever the capture has cut it, it is read or not, and nothing beyond it.
        for end in 0..whole.len() {
            let read = IpPacket::parse(&whole[..end]);
            assert_eq!(read.is_some(), end >= 40, "{end}");
        }
    }

    #[test]
    fn lengths_that_contradict_themselves_are_refused() {
        let packet = datagram();
        for (place, value) in [(0, 0x44), (0, 0x55), (3, 19), (0, 0x4f)] {
            let mut broken = packet.clone();
            broken[place] = value;
            assert_eq!(IpPacket::parse(&broken), None, "{place} {value:x}");
        }
        // Ethernet's padding is not the packet's.
        let padded = [packet.as_slice(), &[0; 13]].concat();
        assert_eq!(IpPacket::parse(&padded), IpPacket::parse(&packet));
        // The card is to cut it.
        let mut whole = packet.clone();
        whole[2..4].fill(0);
        assert_eq!(IpPacket::parse(&whole).unwrap().length, 13);
    }

    #[test]
    fn a_fragment_has_its_transport_in_the_first_alone() {
        let mut header = Ipv4Header::new(16, 64, IpNumber::UDP, [1; 4], [2; 4]).unwrap();
        header.more_fragments = true;
        let mut first = header.to_bytes().to_vec();
        // Source 3000, destination 2000, 2008 bytes in all.
        first.extend([
            0x0b, 0xb8, 0x07, 0xd0, 0x07, 0xd8, 0, 0, 0, 3, 0, 1, 9, 9, 9, 9,
        ]);
        let packet = IpPacket::parse(&first).unwrap();
        assert!(packet.fragment && packet.first);
        assert_eq!(packet.udp().unwrap().length, 2000);
        header.fragment_offset = 2.try_into().unwrap();
        let mut second = header.to_bytes().to_vec();
        second.extend([0; 16]);
        let packet = IpPacket::parse(&second).unwrap();
        assert!(packet.fragment && !packet.first);
        assert!(packet.udp().is_none());
    }
}
