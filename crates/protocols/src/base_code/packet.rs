//! IP packets as bytes: read with every length and checksum checked, written with all of them.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use wireboot_net::checksum::{compute, pseudo_header};

pub(super) const ARP: [u8; 2] = [8, 6];
pub(super) const IPV4: [u8; 2] = [8, 0];
pub(super) const IPV6: [u8; 2] = [0x86, 0xdd];

pub(super) const ICMP: u8 = 1;
pub(super) const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
pub(super) const ICMPV6: u8 = 58;
/// Extension headers that end where their length says (RFC 8200, section 4): hop-by-hop options, routing, destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];
const MOST_EXTENSIONS: usize = 8;

pub(super) const UDP_HEADER: usize = 8;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const FRAGMENT_HEADER: usize = 8;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// A packet, or a fragment of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(super) protocol: u8,
    pub(super) hops: u8,
    pub(super) payload: &'a [u8],
    pub(super) fragment: Option<Fragment>,
}

/// Which part of its packet a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(super) id: u32,
    /// Bytes of the packet before it.
    pub(super) offset: usize,
    pub(super) more: bool,
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u16::from_be_bytes)
}

/// The checksum of a payload whose checksum field is zero; zero where it holds one that is right.
pub(super) fn checksum(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> u16 {
    compute(
        pseudo_header(source, destination, protocol, payload.len()),
        payload,
    )
}

/// The checksum of an ICMP message of IPv4, which is over nothing else.
pub(super) fn icmp_checksum(message: &[u8]) -> u16 {
    compute(0, message)
}

/// Reads a packet of the given Ethertype; `None` where it is damaged or none of IP.
pub(crate) fn parse(kind: [u8; 2], packet: &[u8]) -> Option<Ip<'_>> {
    read(kind, packet, false)
}

/// The same of what an ICMP error quotes: the beginning of a packet, whose header others may have changed on its way.
pub(super) fn quoted(kind: [u8; 2], packet: &[u8]) -> Option<Ip<'_>> {
    read(kind, packet, true)
}

fn read(kind: [u8; 2], packet: &[u8], quoted: bool) -> Option<Ip<'_>> {
    match kind {
        IPV4 => parse4(packet, quoted),
        IPV6 => parse6(packet, quoted),
        _ => None,
    }
}

/// The ports of a datagram, source first, or of its first fragment; `None` for anything else.
pub(crate) fn ports(ip: &Ip<'_>) -> Option<(u16, u16)> {
    let begins = ip.fragment.is_none_or(|part| part.offset == 0);
    (begins && ip.protocol == UDP).then_some(())?;
    Some((word(ip.payload, 0)?, word(ip.payload, 2)?))
}

fn parse4(packet: &[u8], quoted: bool) -> Option<Ip<'_>> {
    let header: &[u8; IPV4_HEADER] = packet.first_chunk()?;
    let [
        first,
        _,
        l0,
        l1,
        i0,
        i1,
        f0,
        f1,
        hops,
        protocol,
        _,
        _,
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
    ] = *header;
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    let header_len = usize::from(first & 0xf) * 4;
    let whole = if quoted { packet } else { packet.get(..len)? };
    let (header, payload) = whole.split_at_checked(header_len)?;
    let damaged = !quoted && compute(0, header) != 0;
    if first >> 4 != 4 || header_len < IPV4_HEADER || damaged {
        return None;
    }
    let flags = u16::from_be_bytes([f0, f1]);
    let offset = usize::from(flags & 0x1fff) * 8;
    let more = flags & MORE_FRAGMENTS != 0;
    Some(Ip {
        source: [a, b, c, d].into(),
        destination: [e, f, g, h].into(),
        protocol,
        hops,
        payload,
        fragment: (more || offset > 0).then_some(Fragment {
            id: u16::from_be_bytes([i0, i1]).into(),
            offset,
            more,
        }),
    })
}

fn parse6(packet: &[u8], quoted: bool) -> Option<Ip<'_>> {
    let (header, rest) = packet.split_first_chunk::<IPV6_HEADER>()?;
    let [first, _, _, _, l0, l1, mut protocol, hops, addresses @ ..] = *header;
    let (source, destination) = addresses.split_first_chunk::<16>()?;
    let destination = destination.first_chunk::<16>()?;
    let mut payload = if quoted {
        rest
    } else {
        rest.get(..usize::from(u16::from_be_bytes([l0, l1])))?
    };
    if first >> 4 != 6 {
        return None;
    }
    let mut fragment = None;
    for _ in 0..MOST_EXTENSIONS {
        if protocol == FRAGMENT && fragment.is_none() {
            let (header, rest) = payload.split_first_chunk::<FRAGMENT_HEADER>()?;
            let [next, _, o0, o1, id @ ..] = *header;
            let offset = u16::from_be_bytes([o0, o1]);
            fragment = Some(Fragment {
                id: u32::from_be_bytes(id),
                offset: (offset & !7).into(),
                more: offset & 1 == 1,
            });
            (protocol, payload) = (next, rest);
            // What follows is a part of the payload.
            break;
        }
        if !EXTENSIONS.contains(&protocol) {
            break;
        }
        let [next, len, ..] = *payload else {
            return None;
        };
        protocol = next;
        payload = payload.get((usize::from(len) + 1) * 8..)?;
    }
    // A packet in one fragment is whole (RFC 6946).
    let whole = fragment.is_some_and(|part| part.offset == 0 && !part.more);
    Some(Ip {
        source: Ipv6Addr::from(*source).into(),
        destination: Ipv6Addr::from(*destination).into(),
        protocol,
        hops,
        payload,
        fragment: fragment.filter(|_| !whole),
    })
}

/// The ends and the payload of a datagram; `None` where it is damaged.
pub(super) fn datagram(
    source: IpAddr,
    destination: IpAddr,
    bytes: &[u8],
) -> Option<(SocketAddr, SocketAddr, &[u8])> {
    let len = usize::from(word(bytes, 4)?);
    let bytes = bytes.get(..len)?;
    let ends = (word(bytes, 0)?, word(bytes, 2)?);
    let sum = word(bytes, 6)?;
    let without = sum == 0 && source.is_ipv4();
    if !without && (sum == 0 || checksum(source, destination, UDP, bytes) != 0) {
        return None;
    }
    Some((
        SocketAddr::new(source, ends.0),
        SocketAddr::new(destination, ends.1),
        bytes.get(UDP_HEADER..)?,
    ))
}

/// A datagram with its header.
pub(super) fn udp(from: SocketAddr, to: SocketAddr, parts: [&[u8]; 2]) -> Vec<u8> {
    let len = UDP_HEADER + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend((len as u16).to_be_bytes());
    bytes.extend([0, 0]);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    let sum = match checksum(from.ip(), to.ip(), UDP, &bytes) {
        // No checksum at all would be zero (RFC 768).
        0 => 0xffff,
        sum => sum,
    };
    put(&mut bytes, 6, &sum.to_be_bytes());
    bytes
}

pub(super) fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = to.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// What an IP header says besides the addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    /// Time to live, or hop limit.
    pub(super) ttl: u8,
    /// Type of service, or traffic class.
    pub(super) tos: u8,
    pub(super) id: u32,
}

/// Bytes of an IP header to this address.
pub(super) fn header_len(to: IpAddr) -> usize {
    if to.is_ipv4() {
        IPV4_HEADER
    } else {
        IPV6_HEADER
    }
}

/// The packets that carry `payload`: one, or where it does not fit and `may_fragment`, several of at most `mtu` bytes. `None` where it
/// does not fit.
pub(super) fn packets(
    header: &Header,
    payload: &[u8],
    mtu: usize,
    may_fragment: bool,
) -> Option<Vec<Vec<u8>>> {
    let room = mtu.saturating_sub(header_len(header.destination));
    if payload.len() <= room {
        return Some(vec![packet(header, payload, None, !may_fragment)]);
    }
    let fragments = match header.destination {
        IpAddr::V4(_) => room,
        IpAddr::V6(_) => room.saturating_sub(FRAGMENT_HEADER),
    };
    let step = fragments & !7;
    if !may_fragment || step == 0 || payload.len() > 0xffff - IPV4_HEADER {
        return None;
    }
    let count = payload.len().div_ceil(step);
    let parts = payload.chunks(step).enumerate();
    let packets = parts.map(|(index, part)| {
        let fragment = Fragment {
            id: header.id,
            offset: index * step,
            more: index + 1 < count,
        };
        packet(header, part, Some(fragment), false)
    });
    Some(packets.collect())
}

fn packet(header: &Header, payload: &[u8], fragment: Option<Fragment>, alone: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(IPV6_HEADER + FRAGMENT_HEADER + payload.len());
    match (header.source, header.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let flags = match fragment {
                Some(part) => (part.offset / 8) as u16 | if part.more { MORE_FRAGMENTS } else { 0 },
                None if alone => DONT_FRAGMENT,
                None => 0,
            };
            bytes.extend([0x45, header.tos]);
            bytes.extend(((IPV4_HEADER + payload.len()) as u16).to_be_bytes());
            bytes.extend((header.id as u16).to_be_bytes());
            bytes.extend(flags.to_be_bytes());
            bytes.extend([header.ttl, header.protocol, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            let sum = compute(0, &bytes);
            put(&mut bytes, 10, &sum.to_be_bytes());
        }
        (source, destination) => {
            let extra = if fragment.is_some() {
                FRAGMENT_HEADER
            } else {
                0
            };
            bytes.extend([0x60 | header.tos >> 4, header.tos << 4, 0, 0]);
            bytes.extend(((extra + payload.len()) as u16).to_be_bytes());
            let next = if fragment.is_some() {
                FRAGMENT
            } else {
                header.protocol
            };
            bytes.extend([next, header.ttl]);
            for address in [source, destination] {
                bytes.extend(match address {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                    IpAddr::V6(v6) => v6.octets(),
                });
            }
            if let Some(part) = fragment {
                bytes.extend([header.protocol, 0]);
                bytes.extend((part.offset as u16 | u16::from(part.more)).to_be_bytes());
                bytes.extend(part.id.to_be_bytes());
            }
        }
    }
    bytes.extend_from_slice(payload);
    bytes
}
