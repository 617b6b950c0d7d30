//! Frames of a link with one network of each IP version, as the station reads and writes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    ArpEthIpv4Packet, ArpOperation, ArpPacketSlice, EtherType, Ethernet2Header, Icmpv4Slice,
    Icmpv4Type, Icmpv6Slice, Icmpv6Type, IpNumber, Ipv4Header, Ipv4Slice, Ipv6Header, Ipv6Slice,
    PacketBuilder, TcpHeader, TcpSlice, UdpHeader, UdpSlice,
};
use wireboot_tcp::{Flags, Segment, Transmit};

/// Bytes of an Ethernet header.
pub(super) const LINK: usize = 14;
/// Hops that a packet may make. It makes one.
const HOPS: u8 = 64;
/// Hops of a message that comes from the link and stays there (RFC 4861).
const LINK_HOPS: u8 = 255;
/// Bytes of an IPv6 header, and of an IPv4 header without options.
const IPV6: usize = 40;
const IPV4: usize = 20;
/// Bytes of a UDP header.
const UDP: usize = 8;
/// Where the checksum is in a message of ICMPv6.
const ICMPV6_CHECKSUM: usize = 2;
/// Where the checksum is in a UDP header, and in one of TCP.
const UDP_CHECKSUM: usize = 6;
const TCP_CHECKSUM: usize = 16;

pub(super) type Mac = [u8; 6];

/// A client's end, and the station behind it on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub mac: Mac,
    pub address: SocketAddr,
}

/// What is in a frame.
#[derive(Debug)]
pub(super) enum Arrived<'a> {
    Arp(ArpPacketSlice<'a>),
    Udp {
        from: Peer,
        to: SocketAddr,
        payload: &'a [u8],
    },
    Tcp {
        from: Peer,
        to: SocketAddr,
        segment: Segment<'a>,
        payload: &'a [u8],
    },
    /// An echo request of ICMP.
    Echo {
        from: Peer,
        to: IpAddr,
        id: u16,
        seq: u16,
        payload: &'a [u8],
    },
    /// Another message of ICMPv6, of this link.
    Neighbour {
        mac: Mac,
        from: Ipv6Addr,
        to: Ipv6Addr,
        message: &'a [u8],
    },
}

/// Bytes of the header of IP before what goes to this address.
pub(super) fn ip_header_len(to: IpAddr) -> usize {
    match to {
        IpAddr::V4(_) => IPV4,
        IpAddr::V6(_) => IPV6,
    }
}

/// What is in a frame to `mac`, or to all; nothing where it is not whole, is a fragment, or is not understood. `partial`: a transport checksum
/// is still to be completed by whoever carries the frame, so there is none to look at.
pub(super) fn parse(frame: &[u8], mac: Mac, partial: bool) -> Option<Arrived<'_>> {
    let (link, packet) = Ethernet2Header::from_slice(frame).ok()?;
    // Groups of IPv6 (RFC 2464).
    let to_group = link.ether_type == EtherType::IPV6 && link.destination.starts_with(&[0x33; 2]);
    let to_us = link.destination == mac || link.destination == [0xff; 6] || to_group;
    let [first, ..] = link.source;
    (to_us && first & 1 == 0).then_some(())?;
    match link.ether_type {
        EtherType::ARP => Some(Arrived::Arp(ArpPacketSlice::from_slice(packet).ok()?)),
        EtherType::IPV4 => ipv4(link.source, packet, partial),
        EtherType::IPV6 => ipv6(link.source, packet, partial),
        _ => None,
    }
}

fn ipv4(mac: Mac, packet: &[u8], partial: bool) -> Option<Arrived<'_>> {
    let ip = Ipv4Slice::from_slice(packet).ok()?;
    let header = ip.header();
    let right = header.to_header().calc_header_checksum() == header.header_checksum();
    (right && !ip.is_payload_fragmented()).then_some(())?;
    let (from, to) = (header.source_addr(), header.destination_addr());
    let payload = ip.payload();
    // A slice of the packet's, and not of what was made of it.
    let bytes = payload.payload;
    match payload.ip_number {
        IpNumber::ICMP => {
            let icmp = Icmpv4Slice::from_slice(bytes).ok()?;
            let sum = icmp.icmp_type().calc_checksum(icmp.payload());
            match icmp.icmp_type() {
                Icmpv4Type::EchoRequest(echo) if sum == icmp.checksum() => Some(Arrived::Echo {
                    from: Peer {
                        mac,
                        address: (from, 0).into(),
                    },
                    to: to.into(),
                    id: echo.id,
                    seq: echo.seq,
                    payload: icmp.payload(),
                }),
                _ => None,
            }
        }
        kind => transport(mac, from.into(), to.into(), kind, bytes, partial),
    }
}

fn ipv6(mac: Mac, packet: &[u8], partial: bool) -> Option<Arrived<'_>> {
    let ip = Ipv6Slice::from_slice(packet).ok()?;
    (!ip.is_payload_fragmented()).then_some(())?;
    let header = ip.header();
    let (from, to) = (header.source_addr(), header.destination_addr());
    let payload = ip.payload();
    let bytes = payload.payload;
    match payload.ip_number {
        IpNumber::IPV6_ICMP => {
            let icmp = Icmpv6Slice::from_slice(bytes).ok()?;
            icmp.is_checksum_valid(from.octets(), to.octets())
                .then_some(())?;
            match icmp.icmp_type() {
                Icmpv6Type::EchoRequest(echo) => Some(Arrived::Echo {
                    from: Peer {
                        mac,
                        address: (from, 0).into(),
                    },
                    to: to.into(),
                    id: echo.id,
                    seq: echo.seq,
                    payload: icmp.payload(),
                }),
                _ if header.hop_limit() == LINK_HOPS => Some(Arrived::Neighbour {
                    mac,
                    from,
                    to,
                    message: bytes,
                }),
                _ => None,
            }
        }
        kind => transport(mac, from.into(), to.into(), kind, bytes, partial),
    }
}

/// A datagram or segment from one address to another.
fn transport(
    mac: Mac,
    from: IpAddr,
    to: IpAddr,
    kind: IpNumber,
    bytes: &[u8],
    partial: bool,
) -> Option<Arrived<'_>> {
    let is_right = |bytes: &[u8]| {
        let sum = pseudo_sum(from, to, kind, bytes.len()).add_slice(bytes);
        sum.ones_complement() == 0
    };
    let peer = |port| Peer {
        mac,
        address: (from, port).into(),
    };
    match kind {
        IpNumber::UDP => {
            let udp = UdpSlice::from_slice(bytes).ok()?;
            // IPv6 has none without (RFC 8200, section 8.1).
            let none = udp.checksum() == 0 && from.is_ipv4();
            (partial || none || is_right(udp.slice())).then_some(())?;
            Some(Arrived::Udp {
                from: peer(udp.source_port()),
                to: (to, udp.destination_port()).into(),
                payload: udp.payload(),
            })
        }
        IpNumber::TCP => {
            let tcp = TcpSlice::from_slice(bytes).ok()?;
            (partial || is_right(bytes)).then_some(())?;
            let head = tcp.header_slice();
            Some(Arrived::Tcp {
                from: peer(tcp.source_port()),
                to: (to, tcp.destination_port()).into(),
                segment: Segment {
                    seq: tcp.sequence_number(),
                    ack: tcp.acknowledgment_number(),
                    flags: Flags(*head.get(13)?),
                    wnd: tcp.window_size(),
                    options: head.get(20..)?,
                    len: tcp.payload().len(),
                },
                payload: tcp.payload(),
            })
        }
        _ => None,
    }
}

/// The answer to an ARP request for `address`, which `mac` has.
pub(super) fn arp_reply(
    request: &ArpPacketSlice<'_>,
    mac: Mac,
    address: Ipv4Addr,
) -> Option<Vec<u8>> {
    let asks = request.operation() == ArpOperation::REQUEST
        && request.proto_addr_type() == EtherType::IPV4
        && request.target_protocol_addr() == address.octets();
    asks.then_some(())?;
    let target_mac: Mac = request.sender_hw_addr().try_into().ok()?;
    let target_ipv4 = request.sender_protocol_addr().try_into().ok()?;
    let reply = ArpEthIpv4Packet {
        operation: ArpOperation::REPLY,
        sender_mac: mac,
        sender_ipv4: address.octets(),
        target_mac,
        target_ipv4,
    };
    let mut frame = Vec::with_capacity(LINK + ArpEthIpv4Packet::LEN);
    frame.extend(link(mac, target_mac, EtherType::ARP));
    frame.extend(reply.to_bytes());
    Some(frame)
}

/// The answer to an echo request.
pub(super) fn echo_reply(
    mac: Mac,
    from: IpAddr,
    to: Peer,
    id: u16,
    seq: u16,
    payload: &[u8],
) -> Option<Vec<u8>> {
    let link = PacketBuilder::ethernet2(mac, to.mac);
    let mut frame = Vec::new();
    match (from, to.address.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => link
            .ipv4(from.octets(), to.octets(), HOPS)
            .icmpv4_echo_reply(id, seq)
            .write(&mut frame, payload),
        (IpAddr::V6(from), IpAddr::V6(to)) => link
            .ipv6(from.octets(), to.octets(), HOPS)
            .icmpv6_echo_reply(id, seq)
            .write(&mut frame, payload),
        _ => return None,
    }
    .ok()?;
    Some(frame)
}

/// A message of ICMPv6 that stays on the link; its checksum is completed here.
pub(super) fn neighbour(mac: Mac, from: Ipv6Addr, to: Peer, message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(LINK + IPV6 + message.len());
    let kind = IpNumber::IPV6_ICMP;
    let header = Ipv6Header {
        hop_limit: LINK_HOPS,
        ..ipv6_header(from, to, kind, message.len())
    };
    frame.extend(link(mac, to.mac, EtherType::IPV6));
    frame.extend_from_slice(&header.to_bytes());
    let start = frame.len();
    frame.extend_from_slice(message);
    let field = start + ICMPV6_CHECKSUM;
    if let Some(field) = frame.get_mut(field..field + 2) {
        field.copy_from_slice(&pseudo_header(from.into(), to, kind, message.len()).to_be_bytes());
    }
    let offset = ICMPV6_CHECKSUM;
    Partial { start, offset }.complete(&mut frame);
    frame
}

/// The frame of a UDP datagram, its checksums complete.
pub(super) fn datagram(mac: Mac, from: SocketAddr, to: Peer, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(LINK + IPV6 + UDP + payload.len());
    let partial = udp_headers(&mut frame, mac, from, to, payload.len());
    frame.extend_from_slice(payload);
    if let Some(partial) = partial {
        partial.complete(&mut frame);
    }
    frame
}

/// Writes the headers of a datagram. Over IPv4 it has no checksum, which it may do without (RFC 768): nothing can happen to it on its way.
pub(super) fn udp_headers(
    head: &mut Vec<u8>,
    mac: Mac,
    from: SocketAddr,
    to: Peer,
    len: usize,
) -> Option<Partial> {
    ip_headers(head, mac, from.ip(), to, IpNumber::UDP, UDP + len);
    let start = head.len();
    let sum = match from {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(_) => pseudo_header(from.ip(), to, IpNumber::UDP, UDP + len),
    };
    udp_header(head, from, to, len, sum);
    let offset = UDP_CHECKSUM;
    from.is_ipv6().then_some(Partial { start, offset })
}

/// The headers of a datagram over IPv4 that is longer than the MTU, whose fragments tell by `id` that they belong together. What is to be cut needs
/// a checksum (virtio 1.2, section 5.1.6.2).
pub(super) fn long_udp_headers(
    head: &mut Vec<u8>,
    mac: Mac,
    (from, port): (Ipv4Addr, u16),
    to: Peer,
    len: usize,
    id: u16,
) -> Partial {
    let ip = Ipv4Header {
        dont_fragment: false,
        identification: id,
        ..ipv4_header(from, to, IpNumber::UDP, UDP + len)
    };
    link_and_ipv4(head, mac, to, ip);
    let start = head.len();
    let sum = pseudo_header(from.into(), to, IpNumber::UDP, UDP + len);
    udp_header(head, (from, port).into(), to, len, sum);
    Partial {
        start,
        offset: UDP_CHECKSUM,
    }
}

fn udp_header(head: &mut Vec<u8>, from: SocketAddr, to: Peer, len: usize, checksum: u16) {
    let udp = UdpHeader {
        source_port: from.port(),
        destination_port: to.address.port(),
        length: (UDP + len) as u16,
        checksum,
    };
    head.extend(udp.to_bytes());
}

/// The sum of the pseudo header (RFC 768, RFC 9293, RFC 8200), which stands in the field of a checksum that is not complete.
fn pseudo_header(from: IpAddr, to: Peer, kind: IpNumber, len: usize) -> u16 {
    !pseudo_sum(from, to.address.ip(), kind, len)
        .ones_complement()
        .to_be()
}

fn pseudo_sum(from: IpAddr, to: IpAddr, kind: IpNumber, len: usize) -> Sum16BitWords {
    let mut sum = Sum16BitWords::new();
    for address in [from, to] {
        sum = match address {
            IpAddr::V4(address) => sum.add_4bytes(address.octets()),
            IpAddr::V6(address) => sum.add_16bytes(address.octets()),
        };
    }
    sum.add_2bytes([0, kind.0])
        .add_2bytes((len as u16).to_be_bytes())
}

/// Where a transport checksum is to be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The first byte that it covers: that of the transport header. It ends with the frame.
    pub start: usize,
    /// The field, in bytes from there; it holds the sum of the pseudo header.
    pub offset: usize,
}

impl Partial {
    /// Completes the checksum of a whole frame.
    pub fn complete(self, frame: &mut [u8]) {
        let covered = frame.get(self.start..).unwrap_or_default();
        let sum = Sum16BitWords::new().add_slice(covered);
        // Zero stands for none (RFC 768), and all ones are as good.
        let sum = sum.to_ones_complement_with_no_zero().to_be();
        let at = self.start + self.offset;
        if let Some(field) = frame.get_mut(at..at + 2) {
            field.copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Writes the headers of a segment.
pub(super) fn tcp_headers(
    head: &mut Vec<u8>,
    mac: Mac,
    from: SocketAddr,
    to: Peer,
    out: &Transmit,
) -> Partial {
    let mut tcp = TcpHeader::new(from.port(), to.address.port(), out.seq, out.wnd);
    // Options of ours are whole words, and short.
    let _ = tcp.set_options_raw(out.options.as_slice());
    tcp.acknowledgment_number = out.ack;
    let flag = |flag| out.flags.contains(flag);
    (tcp.syn, tcp.ack, tcp.psh) = (flag(Flags::SYN), flag(Flags::ACK), flag(Flags::PSH));
    (tcp.fin, tcp.rst) = (flag(Flags::FIN), flag(Flags::RST));
    let len = tcp.header_len() + out.len;
    tcp.checksum = pseudo_header(from.ip(), to, IpNumber::TCP, len);
    ip_headers(head, mac, from.ip(), to, IpNumber::TCP, len);
    let start = head.len();
    head.extend_from_slice(&tcp.to_bytes());
    Partial {
        start,
        offset: TCP_CHECKSUM,
    }
}

/// A segment without payload, whole.
pub(super) fn segment(mac: Mac, from: SocketAddr, to: Peer, out: &Transmit) -> Vec<u8> {
    let mut frame = Vec::with_capacity(LINK + IPV6 + TcpHeader::MAX_LEN);
    let partial = tcp_headers(&mut frame, mac, from, to, out);
    partial.complete(&mut frame);
    frame
}

fn ip_headers(head: &mut Vec<u8>, mac: Mac, from: IpAddr, to: Peer, kind: IpNumber, len: usize) {
    match from {
        IpAddr::V4(from) => link_and_ipv4(head, mac, to, ipv4_header(from, to, kind, len)),
        IpAddr::V6(from) => {
            head.extend(link(mac, to.mac, EtherType::IPV6));
            head.extend_from_slice(&ipv6_header(from, to, kind, len).to_bytes());
        }
    }
}

fn ipv4_header(from: Ipv4Addr, to: Peer, kind: IpNumber, len: usize) -> Ipv4Header {
    let destination = match to.address.ip() {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    };
    Ipv4Header {
        total_len: (IPV4 + len) as u16,
        dont_fragment: true,
        time_to_live: HOPS,
        protocol: kind,
        source: from.octets(),
        destination: destination.octets(),
        ..Ipv4Header::default()
    }
}

fn ipv6_header(from: Ipv6Addr, to: Peer, kind: IpNumber, len: usize) -> Ipv6Header {
    let destination = match to.address.ip() {
        IpAddr::V6(address) => address,
        IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
    };
    Ipv6Header {
        payload_length: len as u16,
        next_header: kind,
        hop_limit: HOPS,
        source: from.octets(),
        destination: destination.octets(),
        ..Ipv6Header::default()
    }
}

fn link_and_ipv4(head: &mut Vec<u8>, mac: Mac, to: Peer, mut ip: Ipv4Header) {
    head.extend(link(mac, to.mac, EtherType::IPV4));
    ip.header_checksum = ip.calc_header_checksum();
    head.extend_from_slice(&ip.to_bytes());
}

fn link(source: Mac, destination: Mac, ether_type: EtherType) -> [u8; LINK] {
    let header = Ethernet2Header {
        source,
        destination,
        ether_type,
    };
    header.to_bytes()
}
