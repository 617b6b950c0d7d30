//! Just enough of Ethernet II, ARP (RFC 826), IPv4 (RFC 791), IPv6 (RFC 8200), UDP (RFC 768) and TCP (RFC 9293) headers to tell what a
//! received unit is. All that can be checked without knowing the station's state is checked here.

use crate::checksum;
use crate::parts::Parts;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use wireboot_nic::{Checksum, Frame, MacAddress};
use wireboot_tcp::{Flags, Segment};

pub const ETHERNET_HEADER: usize = 14;
pub const IPV4_HEADER: usize = 20;
pub const IPV6_HEADER: usize = 40;
pub const UDP_HEADER: usize = 8;
pub const TCP_HEADER: usize = 20;

pub const BROADCAST: MacAddress = [0xff; 6];
pub const ETHERTYPE_IPV4: u16 = 0x0800;
pub const ETHERTYPE_ARP: u16 = 0x0806;
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Ethernet, IPv4, lengths 6 and 4.
pub const ARP_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
pub const PROTOCOL_ICMP: u8 = 1;
pub const PROTOCOL_TCP: u8 = 6;
pub const PROTOCOL_UDP: u8 = 17;

/// Reads a big-endian 16-bit field; `None` beyond the end.
#[inline]
pub fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|field| u16::from_be_bytes(*field))
}

/// Reads a big-endian 32-bit field; `None` beyond the end.
#[inline]
pub fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|field| u32::from_be_bytes(*field))
}

/// Reads an IPv6 address; `None` beyond the end.
#[inline]
fn address6(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    bytes
        .get(at..)?
        .first_chunk::<16>()
        .map(|octets| (*octets).into())
}

/// Writes `value` at `at`; nothing happens beyond the end.
#[inline]
pub fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = value;
    }
}

/// A MAC address of one station, as only such can be somebody's.
pub fn is_station(mac: MacAddress) -> bool {
    mac != [0; 6] && mac[0] & 1 == 0
}

/// An IPv4 address of one host.
pub fn is_host(address: Ipv4Addr) -> bool {
    !address.is_unspecified()
        && !address.is_multicast()
        && !address.is_broadcast()
        && !address.is_loopback()
}

/// A received unit, as far as the engine looks at it.
pub enum Received<'a> {
    Arp(Arp),
    Udp(Udp<'a>),
    Tcp(Tcp<'a>),
    /// An IP packet that is neither, or one in fragments or with options: the rest of the engine looks at it in one piece.
    Ip(Version),
    /// Not for this station, or broken.
    Drop,
}

/// The version of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V4,
    V6,
}

/// An ARP packet whose sender may be somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// An answer, not a request.
    pub reply: bool,
    pub sender_mac: MacAddress,
    pub sender: Ipv4Addr,
    pub target: Ipv4Addr,
}

/// One datagram, or several that the device joined.
pub struct Udp<'a> {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// To this station's address on the link, not to many.
    pub unicast: bool,
    pub payload: Parts<'a>,
}

/// A segment, or several that the device joined.
pub struct Tcp<'a> {
    pub remote: SocketAddr,
    pub local: SocketAddr,
    pub segment: Segment<'a>,
    pub payload: Parts<'a>,
}

/// The IP header's part of what UDP and TCP need.
struct Ip<'a> {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    /// The transport segment; `head` is its start as one slice.
    segment: Parts<'a>,
    head: &'a [u8],
}

/// Sorts a received unit. Transport checksums that the device did not vouch for are verified here, so nothing behind needs to.
pub fn parse<'a>(frame: &Frame<'a>, station: MacAddress) -> Received<'a> {
    classify(frame, station).unwrap_or(Received::Drop)
}

fn classify<'a>(frame: &Frame<'a>, station: MacAddress) -> Option<Received<'a>> {
    let head = *frame.parts.first()?;
    let to: &MacAddress = head.first_chunk()?;
    let unicast = *to == station;
    if !unicast && to.first()? & 1 == 0 {
        return None;
    }
    match be16(head, 12)? {
        ETHERTYPE_IPV4 => ipv4(frame, head, unicast),
        ETHERTYPE_IPV6 => ipv6(frame, head, unicast),
        ETHERTYPE_ARP => arp(head).map(Received::Arp),
        _ => None,
    }
}

fn arp(head: &[u8]) -> Option<Arp> {
    let packet: &[u8; 28] = head.get(ETHERNET_HEADER..)?.first_chunk()?;
    let operation = be16(packet, 6)?;
    let arp = Arp {
        reply: operation == 2,
        sender_mac: *packet.get(8..)?.first_chunk()?,
        sender: be32(packet, 14)?.into(),
        target: be32(packet, 24)?.into(),
    };
    // A probe (RFC 5227) has no sender address.
    let sender = is_host(arp.sender) || arp.sender.is_unspecified() && !arp.reply;
    let valid = packet.starts_with(&ARP_IPV4) && matches!(operation, 1 | 2);
    (valid && sender && is_station(arp.sender_mac)).then_some(arp)
}

fn ipv4<'a>(frame: &Frame<'a>, head: &'a [u8], unicast: bool) -> Option<Received<'a>> {
    let header: &[u8; IPV4_HEADER] = head.get(ETHERNET_HEADER..)?.first_chunk()?;
    // Options and fragments are rare enough to take the long way.
    if *header.first()? != 0x45 || be16(header, 6)? & 0x3fff != 0 {
        return Some(Received::Ip(Version::V4));
    }
    if !checksum::header_ok(header) {
        return None;
    }
    let len = usize::from(be16(header, 2)?).checked_sub(IPV4_HEADER)?;
    const TRANSPORT: usize = ETHERNET_HEADER + IPV4_HEADER;
    let segment = Parts::new(frame.parts).slice(TRANSPORT, len);
    if segment.len() != len {
        return None;
    }
    let ip = Ip {
        source: Ipv4Addr::from(be32(header, 12)?).into(),
        destination: Ipv4Addr::from(be32(header, 16)?).into(),
        protocol: *header.get(9)?,
        segment,
        head: head.get(TRANSPORT..)?,
    };
    transport(frame, &ip, unicast, Version::V4)
}

fn ipv6<'a>(frame: &Frame<'a>, head: &'a [u8], unicast: bool) -> Option<Received<'a>> {
    let header: &[u8; IPV6_HEADER] = head.get(ETHERNET_HEADER..)?.first_chunk()?;
    if *header.first()? >> 4 != 6 {
        return None;
    }
    let len = usize::from(be16(header, 4)?);
    const TRANSPORT: usize = ETHERNET_HEADER + IPV6_HEADER;
    let segment = Parts::new(frame.parts).slice(TRANSPORT, len);
    if segment.len() != len {
        return None;
    }
    let ip = Ip {
        source: address6(header, 8)?.into(),
        destination: address6(header, 24)?.into(),
        protocol: *header.get(6)?,
        segment,
        head: head.get(TRANSPORT..)?,
    };
    transport(frame, &ip, unicast, Version::V6)
}

fn transport<'a>(
    frame: &Frame<'a>,
    ip: &Ip<'a>,
    unicast: bool,
    version: Version,
) -> Option<Received<'a>> {
    match ip.protocol {
        PROTOCOL_TCP => tcp(frame, ip, unicast).map(Received::Tcp),
        PROTOCOL_UDP => udp(frame, ip, unicast).map(Received::Udp),
        _ => Some(Received::Ip(version)),
    }
}

/// Whether the transport checksum is right, as far as the device did not see to it.
fn verified(frame: &Frame<'_>, ip: &Ip<'_>, segment: Parts<'_>) -> bool {
    frame.checksum == Checksum::Trusted || {
        let pseudo = checksum::pseudo_header(ip.source, ip.destination, ip.protocol, segment.len());
        checksum::verify(pseudo, segment)
    }
}

fn udp<'a>(frame: &Frame<'a>, ip: &Ip<'a>, unicast: bool) -> Option<Udp<'a>> {
    let header: &[u8; UDP_HEADER] = ip.head.first_chunk()?;
    let len = usize::from(be16(header, 4)?);
    // A joined unit's length field is that of its first datagram or of the whole, by device.
    let datagram = if frame.udp_segment.is_some() {
        ip.segment
    } else if (UDP_HEADER..=ip.segment.len()).contains(&len) {
        ip.segment.slice(0, len)
    } else {
        return None;
    };
    // No checksum is allowed over IPv4 only (RFC 768; RFC 8200, section 8.1).
    let without = be16(header, 6)? == 0;
    if without && ip.source.is_ipv6() && frame.checksum == Checksum::Unverified {
        return None;
    }
    if !without && !verified(frame, ip, datagram) {
        return None;
    }
    Some(Udp {
        source: SocketAddr::new(ip.source, be16(header, 0)?),
        destination: SocketAddr::new(ip.destination, be16(header, 2)?),
        unicast,
        payload: datagram.slice(UDP_HEADER, usize::MAX),
    })
}

fn tcp<'a>(frame: &Frame<'a>, ip: &Ip<'a>, unicast: bool) -> Option<Tcp<'a>> {
    let header: &[u8; TCP_HEADER] = ip.head.first_chunk()?;
    let header_len = usize::from(header.get(12)? >> 4) * 4;
    if header_len < TCP_HEADER || header_len > ip.segment.len() {
        return None;
    }
    // A segment to many is nobody's (RFC 9293, section 3.9.2.3).
    if !unicast || !verified(frame, ip, ip.segment) {
        return None;
    }
    let payload = ip.segment.slice(header_len, usize::MAX);
    Some(Tcp {
        remote: SocketAddr::new(ip.source, be16(header, 0)?),
        local: SocketAddr::new(ip.destination, be16(header, 2)?),
        segment: Segment {
            seq: be32(header, 4)?,
            ack: be32(header, 8)?,
            flags: Flags(*header.get(13)?),
            wnd: be16(header, 14)?,
            options: ip.head.get(TCP_HEADER..header_len)?,
            len: payload.len(),
        },
        payload,
    })
}
