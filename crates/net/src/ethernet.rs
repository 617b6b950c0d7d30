//! Just enough of Ethernet II, ARP (RFC 826), IPv4 (RFC 791), UDP (RFC 768) and TCP (RFC 9293) headers to
//! tell a flow's packets from the rest. Whatever does not fit is left to smoltcp.

use crate::checksum;
use crate::parts::Parts;
use smoltcp::wire::Ipv4Address;
use wireboot_nic::{Checksum, Frame, MacAddress};

pub const ETHERNET_HEADER: usize = 14;
pub const IPV4_HEADER: usize = 20;
pub const UDP_HEADER: usize = 8;
pub const TCP_HEADER: usize = 20;

pub const BROADCAST: MacAddress = [0xff; 6];
const ETHERTYPE_IPV4: u16 = 0x0800;
pub const ETHERTYPE_ARP: u16 = 0x0806;
const ARP_REPLY: u16 = 2;
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

/// Writes `value` at `at`; nothing happens beyond the end.
#[inline]
pub fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = value;
    }
}

/// A received unit, as far as the engine looks at it.
pub enum Received<'a> {
    Arp(Arp),
    Udp(Udp<'a>),
    Tcp(Tcp<'a>),
    /// For smoltcp to judge.
    Other,
    /// Not for this station, or broken in a way that smoltcp need not see.
    Drop,
}

pub struct Arp {
    /// An answer, not a request.
    pub reply: bool,
    pub sender_mac: MacAddress,
    pub sender: Ipv4Address,
    pub target: Ipv4Address,
}

pub struct Udp<'a> {
    pub source: Ipv4Address,
    pub destination: Ipv4Address,
    pub source_port: u16,
    pub destination_port: u16,
    /// Payload of one datagram, or of several when the device coalesced them.
    pub payload: Parts<'a>,
}

pub struct Tcp<'a> {
    pub source: Ipv4Address,
    pub source_port: u16,
    pub destination_port: u16,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub flags: u8,
    pub options: &'a [u8],
    pub payload: Parts<'a>,
}

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;

/// Sorts a received unit. Transport checksums that the device did not vouch for are verified here, so
/// nothing behind needs to.
pub fn parse<'a>(frame: &Frame<'a>, station: MacAddress) -> Received<'a> {
    classify(frame, station).unwrap_or(Received::Other)
}

fn classify<'a>(frame: &Frame<'a>, station: MacAddress) -> Option<Received<'a>> {
    let head = *frame.parts.first()?;
    let to: &MacAddress = head.first_chunk()?;
    if *to != station && to.first()? & 1 == 0 {
        return Some(Received::Drop);
    }
    match be16(head, 12)? {
        ETHERTYPE_ARP => Some(Received::Arp(Arp {
            reply: be16(head, 20)? == ARP_REPLY,
            sender_mac: *head.get(22..)?.first_chunk()?,
            sender: be32(head, 28)?.into(),
            target: be32(head, 38)?.into(),
        })),
        ETHERTYPE_IPV4 => ipv4(frame, head),
        _ => None,
    }
}

fn ipv4<'a>(frame: &Frame<'a>, head: &'a [u8]) -> Option<Received<'a>> {
    let header: &[u8; IPV4_HEADER] = head.get(ETHERNET_HEADER..)?.first_chunk()?;
    // Options and fragments are rare enough to take the long way.
    if *header.first()? != 0x45 || be16(header, 6)? & 0x3fff != 0 {
        return None;
    }
    if !checksum::header_ok(header) {
        return Some(Received::Drop);
    }
    let payload_len = usize::from(be16(header, 2)?).checked_sub(IPV4_HEADER)?;
    let segment = Parts::new(frame.parts).slice(ETHERNET_HEADER + IPV4_HEADER, payload_len);
    if segment.len() != payload_len {
        return Some(Received::Drop);
    }
    let source = be32(header, 12)?.into();
    let destination = be32(header, 16)?.into();
    let protocol = *header.get(9)?;
    let transport = head.get(ETHERNET_HEADER + IPV4_HEADER..)?;
    let unverified = frame.checksum == Checksum::Unverified;
    match protocol {
        PROTOCOL_UDP => {
            let transport: &[u8; UDP_HEADER] = transport.first_chunk()?;
            let len = usize::from(be16(transport, 4)?);
            // A coalesced unit's length field is that of its first datagram or of the whole, by device.
            let datagram = if frame.udp_segment.is_some() {
                segment
            } else if (UDP_HEADER..=segment.len()).contains(&len) {
                segment.slice(0, len)
            } else {
                return Some(Received::Drop);
            };
            if unverified && be16(transport, 6)? != 0 {
                let pseudo = checksum::pseudo_header(source, destination, protocol, datagram.len());
                if !checksum::verify(pseudo, datagram) {
                    return Some(Received::Drop);
                }
            }
            Some(Received::Udp(Udp {
                source,
                destination,
                source_port: be16(transport, 0)?,
                destination_port: be16(transport, 2)?,
                payload: datagram.slice(UDP_HEADER, usize::MAX),
            }))
        }
        PROTOCOL_TCP => {
            let options = transport;
            let transport: &[u8; TCP_HEADER] = transport.first_chunk()?;
            let header_len = usize::from(transport.get(12)? >> 4) * 4;
            if header_len < TCP_HEADER || header_len > segment.len() {
                return Some(Received::Drop);
            }
            if unverified {
                let pseudo = checksum::pseudo_header(source, destination, protocol, segment.len());
                if !checksum::verify(pseudo, segment) {
                    return Some(Received::Drop);
                }
            }
            Some(Received::Tcp(Tcp {
                source,
                source_port: be16(transport, 0)?,
                destination_port: be16(transport, 2)?,
                sequence: be32(transport, 4)?,
                acknowledgement: be32(transport, 8)?,
                flags: *transport.get(13)?,
                options: options.get(TCP_HEADER..header_len)?,
                payload: segment.slice(header_len, usize::MAX),
            }))
        }
        _ => None,
    }
}
