//! The server's frames, built before anything is counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{Icmpv6Slice, PacketBuilder, PacketBuilderStep, TcpOptionElement};

use wireboot_lab::ip::IpVersion;

pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const CLIENT6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2);
/// On no prefix that is on the link: the way there leads by the router, which is the same station.
const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 2, 0, 0, 0, 1);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
pub(super) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A segment of full size over IPv4, without options.
pub(super) const SEGMENT: usize = 1460;

/// The server's address in a version of IP.
pub(super) fn server(ip: IpVersion) -> IpAddr {
    match ip {
        IpVersion::V4 => SERVER.into(),
        IpVersion::V6 => SERVER6.into(),
    }
}

/// Where the header behind IP begins.
pub(super) fn transport(ip: IpVersion) -> usize {
    match ip {
        IpVersion::V4 => 34,
        IpVersion::V6 => 54,
    }
}

/// Bytes of TCP data in a full segment: IPv6's header takes 20 of them.
pub(super) fn segment(ip: IpVersion) -> usize {
    SEGMENT + transport(IpVersion::V4) - transport(ip)
}

fn packet(ip: IpVersion) -> PacketBuilderStep<etherparse::IpHeaders> {
    let ethernet = PacketBuilder::ethernet2(SERVER_MAC, CLIENT_MAC);
    match ip {
        IpVersion::V4 => ethernet.ipv4(SERVER.octets(), CLIENT.octets(), 64),
        IpVersion::V6 => ethernet.ipv6(SERVER6.octets(), CLIENT6.octets(), 64),
    }
}

/// A datagram from the server. Its checksum is not looked at, so it may be changed afterwards.
pub(super) fn udp(ip: IpVersion, from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let written = packet(ip).udp(from, to).write(&mut frame, payload);
    debug_assert!(written.is_ok(), "a vector takes everything");
    frame
}

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const ACK: u8 = 0x10;

/// A segment from the server's HTTP port. Its checksum is not looked at, so it may be changed afterwards.
pub(super) fn tcp(
    ip: IpVersion,
    port: u16,
    sequence: u32,
    acknowledged: u32,
    flags: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut builder = packet(ip).tcp(80, port, sequence, 65_535).ack(acknowledged);
    if flags & FIN != 0 {
        builder = builder.fin();
    }
    if flags & SYN != 0 {
        let options = [
            TcpOptionElement::MaximumSegmentSize(segment(ip) as u16),
            TcpOptionElement::WindowScale(7),
        ];
        builder = match builder.syn().options(&options) {
            Ok(builder) => builder,
            // Two options fit.
            Err(_) => return frame,
        };
    }
    let written = builder.write(&mut frame, payload);
    debug_assert!(written.is_ok(), "a vector takes everything");
    frame
}

/// The answer to an ARP request for the server's address; `None` to everything else.
pub(super) fn arp_reply(frame: &[u8]) -> Option<Vec<u8>> {
    // Ethernet type 0x0806, operation 1 at offset 20, the address that is asked for at 38. Somebody else's is asked for to see
    // whether it is taken.
    let asked = frame.get(12..14) == Some(&[8, 6])
        && frame.get(20..22) == Some(&[0, 1])
        && frame.get(38..42) == Some(SERVER.octets().as_slice());
    asked.then(|| {
        let mut reply = Vec::from(CLIENT_MAC);
        reply.extend(SERVER_MAC);
        reply.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
        reply.extend(SERVER_MAC);
        reply.extend(SERVER.octets());
        reply.extend(CLIENT_MAC);
        reply.extend(CLIENT.octets());
        reply.resize(60, 0);
        reply
    })
}

/// The router's answer to a router solicitation, and to a neighbour solicitation for it (RFC 4861, section 4); `None` to everything
/// else.
pub(super) fn discovery_reply(message: &Icmpv6Slice<'_>) -> Option<Vec<u8>> {
    let asks_for_router = message.payload().starts_with(&ROUTER.octets());
    let (kind, fields, mut body, option) = match message.type_u8() {
        // Default router for half an hour, no prefix.
        133 => (134, [64, 0, 7, 8], vec![0; 8], 1),
        // To all, so not called solicited; overrides.
        135 if asks_for_router => (136, [0x20, 0, 0, 0], ROUTER.octets().to_vec(), 2),
        _ => return None,
    };
    body.extend([option, 1]);
    body.extend(SERVER_MAC);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut frame = Vec::new();
    let written = PacketBuilder::ethernet2(SERVER_MAC, [0x33, 0x33, 0, 0, 0, 1])
        .ipv6(ROUTER.octets(), all_nodes.octets(), 255)
        .icmpv6_raw(kind, 0, fields)
        .write(&mut frame, &body);
    debug_assert!(written.is_ok(), "a vector takes everything");
    Some(frame)
}
