//! The usual unit, read at fixed offsets: a data segment without options or a datagram, to this station, whole, without IP options or
//! extension headers. What it is not, [`crate::packet::parse`] finds out; what both say is the same.

use crate::checksum;
use crate::packet::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ends, IPV4_HEADER, IPV6_HEADER, Ip, PROTOCOL_TCP, TCP_HEADER,
    Tcp, be16, be32, be128, is_mapped, mapped, verify,
};
use crate::parts::Parts;
use wireboot_nic::{Checksum, Frame, MacAddress};
use wireboot_tcp::{Flags, Segment};

const LINK: usize = 14;

/// An IPv4 packet, and its protocol.
#[inline(always)]
pub fn ipv4<'a>(frame: &Frame<'a>, station: MacAddress) -> Option<(u8, Ip<'a>)> {
    let head = *frame.parts.first()?;
    let (fixed, rest) = head.split_first_chunk::<{ LINK + IPV4_HEADER }>()?;
    let header: &[u8; IPV4_HEADER] = fixed.get(LINK..)?.first_chunk()?;
    let usual = fixed.starts_with(&station)
        && be16(fixed, 12)? == ETHERTYPE_IPV4
        && header[0] == 0x45
        && be16(header, 6)? & 0x3fff == 0
        && checksum::header_ok(header);
    let ip = Ip {
        source: mapped(be32(header, 12)?),
        destination: mapped(be32(header, 16)?),
        start: LINK + IPV4_HEADER,
        len: usize::from(be16(header, 2)?).checked_sub(IPV4_HEADER)?,
        head: rest,
        unicast: true,
    };
    (usual && frame.len >= ip.start + ip.len).then_some((header[9], ip))
}

/// An IPv6 packet, and what follows its header.
#[inline(always)]
pub fn ipv6<'a>(frame: &Frame<'a>, station: MacAddress) -> Option<(u8, Ip<'a>)> {
    let head = *frame.parts.first()?;
    let (fixed, rest) = head.split_first_chunk::<{ LINK + IPV6_HEADER }>()?;
    let usual =
        fixed.starts_with(&station) && be16(fixed, 12)? == ETHERTYPE_IPV6 && fixed[LINK] >> 4 == 6;
    let ip = Ip {
        source: be128(fixed, 22)?,
        destination: be128(fixed, 38)?,
        start: LINK + IPV6_HEADER,
        len: usize::from(be16(fixed, 18)?),
        head: rest,
        unicast: true,
    };
    let usual = usual
        && !is_mapped(ip.source)
        && !is_mapped(ip.destination)
        && frame.len >= ip.start + ip.len;
    usual.then_some((fixed[20], ip))
}

/// The segment in a packet.
#[inline(always)]
pub fn segment<'a>(frame: &Frame<'a>, ip: &Ip<'a>) -> Option<Tcp<'a>> {
    let header: &[u8; TCP_HEADER] = ip.head.first_chunk()?;
    let len = ip.len.checked_sub(TCP_HEADER)?;
    let trusted = frame.checksum == Checksum::Trusted;
    let usual = header[12] >> 4 == 5 && (trusted || verify(frame, ip, PROTOCOL_TCP, ip.len));
    usual.then_some(Tcp {
        ends: Ends {
            remote: ip.source,
            local: ip.destination,
            ports: be32(header, 0)?,
        },
        segment: Segment {
            seq: be32(header, 4)?,
            ack: be32(header, 8)?,
            flags: Flags(header[13]),
            wnd: be16(header, 14)?,
            options: &[],
            len,
        },
        payload: Parts::of(frame).slice(ip.start + TCP_HEADER, len),
    })
}
