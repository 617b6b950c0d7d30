//! Just enough of Ethernet II, ARP (RFC 826), IPv4 (RFC 791), IPv6 (RFC 8200), UDP (RFC 768) and TCP (RFC 9293) headers to tell what a
//! received unit is. All that can be checked without knowing the station's state is checked here.

use crate::checksum;
use crate::parts::Parts;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use wireboot_nic::{Checksum, Frame, MacAddress};
use wireboot_tcp::{Flags, Segment};

pub(crate) const ETHERNET_HEADER: usize = 14;
pub(crate) const IPV4_HEADER: usize = 20;
pub(crate) const IPV6_HEADER: usize = 40;
pub(crate) const UDP_HEADER: usize = 8;
pub(crate) const TCP_HEADER: usize = 20;

pub(crate) const BROADCAST: MacAddress = [0xff; 6];
pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_ARP: u16 = 0x0806;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Ethernet, IPv4, lengths 6 and 4.
pub(crate) const ARP_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
pub(crate) const PROTOCOL_ICMP: u8 = 1;
pub(crate) const PROTOCOL_TCP: u8 = 6;
pub(crate) const PROTOCOL_UDP: u8 = 17;

/// The `N` bytes at `at`; `None` beyond the end.
#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Reads a big-endian 16-bit field; `None` beyond the end.
#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

/// Reads a big-endian 32-bit field; `None` beyond the end.
#[inline]
pub(crate) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

/// Reads a big-endian 128-bit field; `None` beyond the end.
#[inline]
pub(crate) fn be128(bytes: &[u8], at: usize) -> Option<u128> {
    array(bytes, at).map(u128::from_be_bytes)
}

/// Writes `value` at `at`; nothing happens beyond the end.
#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = value;
    }
}

/// A MAC address that can be somebody's: of one station, or with `group` of several, but not of all.
pub(crate) fn is_somebodys(mac: MacAddress, group: bool) -> bool {
    mac != [0; 6] && (mac[0] & 1 == 0 || group && mac != BROADCAST)
}

/// An IPv4 address of one host.
pub(crate) fn is_host(address: Ipv4Addr) -> bool {
    !address.is_unspecified()
        && !address.is_multicast()
        && !address.is_broadcast()
        && !address.is_loopback()
}

/// A received unit, as far as its IP header.
pub(crate) enum Received<'a> {
    Arp(Arp),
    /// A packet without options, not in fragments. Each version by itself: the compiler makes two straight ways of it.
    V4(Ip<'a>),
    V6(Ip<'a>),
    /// Another IP packet, of which only the version was looked at.
    Odd(IpVersion),
}

/// The version of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IpVersion {
    V4,
    V6,
}

/// An ARP packet whose sender may be somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arp {
    /// An answer, not a request.
    pub reply: bool,
    /// To this station's address on the link, not to many.
    pub unicast: bool,
    /// A group's perhaps in an answer, as clusters have it; else one station's.
    pub sender_mac: MacAddress,
    pub sender: Ipv4Addr,
    pub target: Ipv4Addr,
}

/// One datagram, or several that the device joined.
pub(crate) struct Udp<'a> {
    pub ends: Ends,
    /// To this station's address on the link, not to many.
    pub unicast: bool,
    pub payload: Parts<'a>,
}

/// A segment, or several that the device joined.
pub(crate) struct Tcp<'a> {
    pub ends: Ends,
    pub segment: Segment<'a>,
    pub payload: Parts<'a>,
}

/// The two ends of a connection or datagram, in a form that is quickly compared: IPv4 addresses as mapped ones (RFC 4291, section
/// 2.5.5.2), which no packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    pub(crate) remote: u128,
    pub(crate) local: u128,
    /// The remote port above the local one.
    pub(crate) ports: u32,
}

impl Ends {
    pub(crate) fn new(remote: SocketAddr, local: SocketAddr) -> Self {
        Self {
            remote: v6(remote.ip()).to_bits(),
            local: v6(local.ip()).to_bits(),
            ports: u32::from(remote.port()) << 16 | u32::from(local.port()),
        }
    }

    /// As a device knows them.
    pub(crate) fn for_device(&self) -> wireboot_nic::placer::Ends {
        wireboot_nic::placer::Ends {
            remote: self.remote.to_be_bytes(),
            local: self.local.to_be_bytes(),
            remote_port: (self.ports >> 16) as u16,
            local_port: self.ports as u16,
        }
    }

    /// The remote end's address and port.
    #[must_use]
    pub fn remote_end(&self) -> SocketAddr {
        SocketAddr::new(address(self.remote), (self.ports >> 16) as u16)
    }

    /// The local end's address and port.
    #[must_use]
    pub fn local_end(&self) -> SocketAddr {
        SocketAddr::new(address(self.local), self.ports as u16)
    }
}

/// An address of either version in the form of an IPv6 one: IPv4 ones mapped.
#[inline]
pub(crate) fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The address whose [`v6`] has these bits.
#[inline(always)]
fn address(bits: u128) -> IpAddr {
    if is_mapped(bits) {
        Ipv4Addr::from_bits(bits as u32).into()
    } else {
        Ipv6Addr::from_bits(bits).into()
    }
}

/// What mapped IPv4 addresses begin with.
const MAPPED: u128 = 0xffff;
const MAPPED_PREFIX: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

#[inline(always)]
pub(crate) fn mapped(address: u32) -> u128 {
    MAPPED << 32 | u128::from(address)
}

#[inline(always)]
pub(crate) fn is_mapped(bits: u128) -> bool {
    bits >> 32 == MAPPED
}

/// Sorts a received unit; `None` for one that is not for this station, or broken.
#[inline(always)]
pub(crate) fn parse<'a>(frame: &Frame<'a>, station: &MacAddress) -> Option<Received<'a>> {
    let head = *frame.parts.first()?;
    let (link, packet) = head.split_first_chunk::<ETHERNET_HEADER>()?;
    let unicast = link.starts_with(station);
    if !unicast && link[0] & 1 == 0 {
        return None;
    }
    match be16(link, 12)? {
        ETHERTYPE_IPV4 => ipv4(frame.len, packet, unicast),
        ETHERTYPE_IPV6 => ipv6(frame.len, packet, unicast),
        ETHERTYPE_ARP => arp(packet, unicast).map(Received::Arp),
        _ => None,
    }
}

#[cold]
fn arp(packet: &[u8], unicast: bool) -> Option<Arp> {
    let packet: &[u8; 28] = packet.first_chunk()?;
    let operation = be16(packet, 6)?;
    let arp = Arp {
        reply: operation == 2,
        unicast,
        sender_mac: array(packet, 8)?,
        sender: be32(packet, 14)?.into(),
        target: be32(packet, 24)?.into(),
    };
    // A probe (RFC 5227) has no sender address.
    let sender = is_host(arp.sender) || arp.sender.is_unspecified() && !arp.reply;
    let valid = packet.starts_with(&ARP_IPV4) && matches!(operation, 1 | 2);
    (valid && sender && is_somebodys(arp.sender_mac, arp.reply)).then_some(arp)
}

#[inline(always)]
fn ipv4(frame_len: usize, packet: &[u8], unicast: bool) -> Option<Received<'_>> {
    let (header, head) = packet.split_first_chunk::<IPV4_HEADER>()?;
    // Options and fragments are rare enough to take the long way.
    if header[0] != 0x45 || be16(header, 6)? & 0x3fff != 0 {
        return Some(Received::Odd(IpVersion::V4));
    }
    let ip = Ip {
        source: mapped(be32(header, 12)?),
        destination: mapped(be32(header, 16)?),
        protocol: header[9],
        start: ETHERNET_HEADER + IPV4_HEADER,
        len: usize::from(be16(header, 2)?).checked_sub(IPV4_HEADER)?,
        head,
        unicast,
    };
    let whole = frame_len >= ip.start + ip.len;
    (whole && checksum::header_ok(header)).then_some(Received::V4(ip))
}

#[inline(always)]
fn ipv6(frame_len: usize, packet: &[u8], unicast: bool) -> Option<Received<'_>> {
    let (header, head) = packet.split_first_chunk::<IPV6_HEADER>()?;
    let ip = Ip {
        source: be128(header, 8)?,
        destination: be128(header, 24)?,
        protocol: header[6],
        start: ETHERNET_HEADER + IPV6_HEADER,
        len: usize::from(be16(header, 4)?),
        head,
        unicast,
    };
    let whole = frame_len >= ip.start + ip.len;
    // Mapped addresses stand for IPv4 ones, inside of hosts alone.
    let mapped =
        header[8..].starts_with(&MAPPED_PREFIX) || header[24..].starts_with(&MAPPED_PREFIX);
    (header[0] >> 4 == 6 && whole && !mapped).then_some(Received::V6(ip))
}

/// The IP header's part of what UDP and TCP need.
pub(crate) struct Ip<'a> {
    pub source: u128,
    pub destination: u128,
    /// Of what follows, in IPv6 an extension header perhaps.
    pub protocol: u8,
    /// Where that begins in the frame, and its length; `head` is its start as one slice.
    pub start: usize,
    pub len: usize,
    pub head: &'a [u8],
    /// To this station's address on the link, not to many.
    pub unicast: bool,
}

impl Ip<'_> {
    fn ends(&self, ports: u32) -> Ends {
        Ends {
            remote: self.source,
            local: self.destination,
            ports,
        }
    }
}

/// Whether the transport checksum is right over `len` bytes from `start`.
#[inline(never)]
fn verify(frame: &Frame<'_>, ends: Ends, protocol: u8, start: usize, len: usize) -> bool {
    let (source, destination) = (address(ends.remote), address(ends.local));
    let pseudo = checksum::pseudo_header(source, destination, protocol, len);
    checksum::verify(pseudo, Parts::of(frame).slice(start, len))
}

/// The datagram in a packet.
#[inline(always)]
pub(crate) fn udp<'a>(frame: &Frame<'a>, ip: &Ip<'a>) -> Option<Udp<'a>> {
    let header: &[u8; UDP_HEADER] = ip.head.first_chunk()?;
    let len = usize::from(be16(header, 4)?);
    // A joined unit's length field is that of its first datagram or of the whole, by device.
    let len = if frame.udp_segment.is_some() {
        ip.len
    } else if (UDP_HEADER..=ip.len).contains(&len) {
        len
    } else {
        return None;
    };
    let ends = ip.ends(be32(header, 0)?);
    if frame.checksum == Checksum::Unverified {
        // No checksum is allowed over IPv4 only (RFC 768; RFC 8200, section 8.1).
        let right = if be16(header, 6)? == 0 {
            is_mapped(ip.source)
        } else {
            verify(frame, ends, PROTOCOL_UDP, ip.start, len)
        };
        if !right {
            return None;
        }
    }
    Some(Udp {
        ends,
        unicast: ip.unicast,
        payload: Parts::of(frame).slice(ip.start + UDP_HEADER, len.checked_sub(UDP_HEADER)?),
    })
}

/// The segment in a packet.
#[inline(always)]
pub(crate) fn tcp<'a>(frame: &Frame<'a>, ip: &Ip<'a>) -> Option<Tcp<'a>> {
    let header: &[u8; TCP_HEADER] = ip.head.first_chunk()?;
    let header_len = usize::from(header[12] >> 4) * 4;
    let options = ip.head.get(TCP_HEADER..header_len)?;
    let len = ip.len.checked_sub(header_len)?;
    let ends = ip.ends(be32(header, 0)?);
    // A segment to many is nobody's (RFC 9293, section 3.9.2.3).
    let trusted = frame.checksum == Checksum::Trusted;
    if !ip.unicast || !trusted && !verify(frame, ends, PROTOCOL_TCP, ip.start, ip.len) {
        return None;
    }
    Some(Tcp {
        ends,
        segment: Segment {
            seq: be32(header, 4)?,
            ack: be32(header, 8)?,
            flags: Flags(header[13]),
            wnd: be16(header, 14)?,
            options,
            len,
        },
        payload: Parts::of(frame).slice(ip.start + header_len, len),
    })
}
