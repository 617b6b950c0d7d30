//! Frames of a link with one IPv4 network, as the station reads and writes them.

use std::net::{Ipv4Addr, SocketAddrV4};

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    ArpEthIpv4Packet, ArpOperation, ArpPacketSlice, EtherType, Ethernet2Header, Icmpv4Slice,
    Icmpv4Type, IpNumber, Ipv4Header, Ipv4Slice, PacketBuilder, TcpHeader, TcpSlice, UdpHeader,
    UdpSlice,
};
use wireboot_tcp::{Flags, Segment, Transmit};

/// Bytes of an Ethernet header.
const LINK: usize = 14;
/// Hops that a packet may make. It makes one.
const HOPS: u8 = 64;
/// Bytes of a UDP header.
const UDP: usize = 8;
/// Where the checksum is in a UDP header, and in one of TCP.
const UDP_CHECKSUM: usize = 6;
const TCP_CHECKSUM: usize = 16;

/// An Ethernet address.
pub(super) type Mac = [u8; 6];

/// A client's end, and the station behind it on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub mac: Mac,
    pub address: SocketAddrV4,
}

/// What is in a frame.
#[derive(Debug)]
pub(super) enum Arrived<'a> {
    Arp(ArpPacketSlice<'a>),
    Udp {
        from: Peer,
        to: SocketAddrV4,
        payload: &'a [u8],
    },
    Tcp {
        from: Peer,
        to: SocketAddrV4,
        segment: Segment<'a>,
        payload: &'a [u8],
    },
    /// An echo request of ICMP.
    Echo {
        from: Peer,
        to: Ipv4Addr,
        id: u16,
        seq: u16,
        payload: &'a [u8],
    },
}

/// What is in a frame to `mac`, or to all; nothing where it is not whole, is a fragment, or is not understood. `partial`: a transport checksum
/// is still to be completed by whoever carries the frame, so there is none to look at.
pub(super) fn parse(frame: &[u8], mac: Mac, partial: bool) -> Option<Arrived<'_>> {
    let (link, packet) = Ethernet2Header::from_slice(frame).ok()?;
    let to_us = link.destination == mac || link.destination == [0xff; 6];
    let [first, ..] = link.source;
    (to_us && first & 1 == 0).then_some(())?;
    match link.ether_type {
        EtherType::ARP => Some(Arrived::Arp(ArpPacketSlice::from_slice(packet).ok()?)),
        EtherType::IPV4 => ipv4(link.source, packet, partial),
        _ => None,
    }
}

fn ipv4(mac: Mac, packet: &[u8], partial: bool) -> Option<Arrived<'_>> {
    let ip = Ipv4Slice::from_slice(packet).ok()?;
    let header = ip.header();
    let right = header.to_header().calc_header_checksum() == header.header_checksum();
    (right && !ip.is_payload_fragmented()).then_some(())?;
    let (source, destination) = (header.source_addr(), header.destination_addr());
    let (from_bytes, to_bytes) = (header.source(), header.destination());
    let peer = |port| Peer {
        mac,
        address: SocketAddrV4::new(source, port),
    };
    let payload = ip.payload();
    // A slice of the packet's, and not of what was made of it.
    let bytes = payload.payload;
    match payload.ip_number {
        IpNumber::UDP => {
            let udp = UdpSlice::from_slice(bytes).ok()?;
            let sum = udp
                .to_header()
                .calc_checksum_ipv4_raw(from_bytes, to_bytes, udp.payload())
                .ok()?;
            (partial || udp.checksum() == 0 || udp.checksum() == sum).then_some(())?;
            Some(Arrived::Udp {
                from: peer(udp.source_port()),
                to: SocketAddrV4::new(destination, udp.destination_port()),
                payload: udp.payload(),
            })
        }
        IpNumber::TCP => {
            let tcp = TcpSlice::from_slice(bytes).ok()?;
            let sum = tcp.calc_checksum_ipv4(from_bytes, to_bytes).ok()?;
            (partial || tcp.checksum() == sum).then_some(())?;
            let head = tcp.header_slice();
            Some(Arrived::Tcp {
                from: peer(tcp.source_port()),
                to: SocketAddrV4::new(destination, tcp.destination_port()),
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
        IpNumber::ICMP => {
            let icmp = Icmpv4Slice::from_slice(bytes).ok()?;
            let sum = icmp.icmp_type().calc_checksum(icmp.payload());
            match icmp.icmp_type() {
                Icmpv4Type::EchoRequest(echo) if sum == icmp.checksum() => Some(Arrived::Echo {
                    from: peer(0),
                    to: destination,
                    id: echo.id,
                    seq: echo.seq,
                    payload: icmp.payload(),
                }),
                _ => None,
            }
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
    from: Ipv4Addr,
    to: Peer,
    id: u16,
    seq: u16,
    payload: &[u8],
) -> Option<Vec<u8>> {
    let builder = PacketBuilder::ethernet2(mac, to.mac)
        .ipv4(from.octets(), to.address.ip().octets(), HOPS)
        .icmpv4_echo_reply(id, seq);
    let mut frame = Vec::with_capacity(builder.size(payload.len()));
    builder.write(&mut frame, payload).ok()?;
    Some(frame)
}

/// A datagram, whole.
pub(super) fn datagram(mac: Mac, from: SocketAddrV4, to: Peer, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(LINK + 20 + UDP + payload.len());
    udp_headers(&mut frame, mac, from, to, payload.len());
    frame.extend_from_slice(payload);
    frame
}

/// Writes the headers of a datagram. It has no checksum, which over IPv4 it may do without (RFC 768): nothing can happen to it on its way.
pub(super) fn udp_headers(head: &mut Vec<u8>, mac: Mac, from: SocketAddrV4, to: Peer, len: usize) {
    ip_headers(head, mac, *from.ip(), to, IpNumber::UDP, UDP + len);
    udp_header(head, from, to, len, 0);
}

/// The same of one that is longer than the MTU, whose fragments tell by `id` that they belong together. What is to be cut needs a checksum (virtio
/// 1.2, section 5.1.6.2).
pub(super) fn long_udp_headers(
    head: &mut Vec<u8>,
    mac: Mac,
    from: SocketAddrV4,
    to: Peer,
    len: usize,
    id: u16,
) -> Partial {
    let ip = Ipv4Header {
        dont_fragment: false,
        identification: id,
        ..ip_header(*from.ip(), to, IpNumber::UDP, UDP + len)
    };
    link_and_ip(head, mac, to, ip);
    let start = head.len();
    let sum = pseudo_header(*from.ip(), to, IpNumber::UDP, UDP + len);
    udp_header(head, from, to, len, sum);
    Partial {
        start,
        offset: UDP_CHECKSUM,
    }
}

fn udp_header(head: &mut Vec<u8>, from: SocketAddrV4, to: Peer, len: usize, checksum: u16) {
    let udp = UdpHeader {
        source_port: from.port(),
        destination_port: to.address.port(),
        length: (UDP + len) as u16,
        checksum,
    };
    head.extend(udp.to_bytes());
}

/// The sum of the pseudo header (RFC 768, RFC 9293), which stands in the field of a checksum that is not complete.
fn pseudo_header(from: Ipv4Addr, to: Peer, kind: IpNumber, len: usize) -> u16 {
    !Sum16BitWords::new()
        .add_4bytes(from.octets())
        .add_4bytes(to.address.ip().octets())
        .add_2bytes([0, kind.0])
        .add_2bytes((len as u16).to_be_bytes())
        .ones_complement()
        .to_be()
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
        let sum = Sum16BitWords::new()
            .add_slice(covered)
            .ones_complement()
            .to_be();
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
    from: SocketAddrV4,
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
    tcp.checksum = pseudo_header(*from.ip(), to, IpNumber::TCP, len);
    ip_headers(head, mac, *from.ip(), to, IpNumber::TCP, len);
    let start = head.len();
    head.extend_from_slice(&tcp.to_bytes());
    Partial {
        start,
        offset: TCP_CHECKSUM,
    }
}

/// A segment without payload, whole.
pub(super) fn segment(mac: Mac, from: SocketAddrV4, to: Peer, out: &Transmit) -> Vec<u8> {
    let mut frame = Vec::with_capacity(LINK + 20 + TcpHeader::MAX_LEN);
    let partial = tcp_headers(&mut frame, mac, from, to, out);
    partial.complete(&mut frame);
    frame
}

fn ip_headers(head: &mut Vec<u8>, mac: Mac, from: Ipv4Addr, to: Peer, kind: IpNumber, len: usize) {
    let ip = ip_header(from, to, kind, len);
    link_and_ip(head, mac, to, ip);
}

fn ip_header(from: Ipv4Addr, to: Peer, kind: IpNumber, len: usize) -> Ipv4Header {
    Ipv4Header {
        total_len: (Ipv4Header::MIN_LEN + len) as u16,
        dont_fragment: true,
        time_to_live: HOPS,
        protocol: kind,
        source: from.octets(),
        destination: to.address.ip().octets(),
        ..Ipv4Header::default()
    }
}

fn link_and_ip(head: &mut Vec<u8>, mac: Mac, to: Peer, mut ip: Ipv4Header) {
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
