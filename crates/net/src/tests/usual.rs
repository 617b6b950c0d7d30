//! What [`crate::usual`] reads at fixed offsets is what [`crate::packet`] reads field by field, or nothing.

use super::forged::{Forged, packet, transport_checksum};
use super::{CLIENT_MAC, SERVER_MAC, Version};
use crate::checksum;
use crate::packet::{
    ETHERNET_HEADER, Ends, IPV4_HEADER, Ip, PROTOCOL_TCP, PROTOCOL_UDP, Received, Tcp, Udp, parse,
    put, udp,
};
use crate::parts::Parts;
use crate::usual;
use core::net::{IpAddr, SocketAddr};
use std::vec;
use std::vec::Vec;
use wireboot_nic::{Checksum, Frame};
use wireboot_tcp::Flags;

const TEXT: &[u8] = b"thirteen byte";

#[derive(Debug, PartialEq)]
enum Read {
    /// Ends, sequence number, acknowledgement number, flags, window, length of options, payload.
    Tcp(Ends, u32, u32, Flags, u16, usize, Vec<u8>),
    /// Source, destination, whether to us alone, payload.
    Udp(SocketAddr, SocketAddr, bool, Vec<u8>),
}

fn bytes(parts: Parts<'_>) -> Vec<u8> {
    let mut bytes = vec![0; parts.len()];
    assert_eq!(parts.copy_to(&mut bytes), bytes.len());
    bytes
}

fn of_tcp(tcp: &Tcp<'_>) -> Read {
    let seg = &tcp.segment;
    assert_eq!(seg.len, tcp.payload.len());
    Read::Tcp(
        tcp.ends,
        seg.seq,
        seg.ack,
        seg.flags,
        seg.wnd,
        seg.options.len(),
        bytes(tcp.payload),
    )
}

fn of_udp(udp: &Udp<'_>) -> Read {
    Read::Udp(udp.source, udp.destination, udp.unicast, bytes(udp.payload))
}

fn usual(frame: &Frame<'_>) -> Option<Read> {
    let packet: Option<(u8, Ip<'_>)> =
        usual::ipv4(frame, CLIENT_MAC).or_else(|| usual::ipv6(frame, CLIENT_MAC));
    match packet? {
        (PROTOCOL_TCP, ip) => usual::segment(frame, &ip).map(|tcp| of_tcp(&tcp)),
        (PROTOCOL_UDP, ip) => udp(frame, &ip).map(|udp| of_udp(&udp)),
        _ => None,
    }
}

fn long(frame: &Frame<'_>) -> Option<Read> {
    match parse(frame, CLIENT_MAC) {
        Received::Tcp(tcp) => Some(of_tcp(&tcp)),
        Received::Udp(udp) => Some(of_udp(&udp)),
        _ => None,
    }
}

/// Both, of a frame in one part and of one whose last bytes are in another.
fn both(frame: &[u8], checksum: Checksum) -> (Option<Read>, Option<Read>) {
    let of = |parts: &[&[u8]]| {
        let frame = Frame {
            parts,
            len: frame.len(),
            checksum,
            udp_segment: None,
        };
        (usual(&frame), long(&frame))
    };
    let whole = of(&[frame]);
    let (head, tail) = frame.split_at(frame.len().saturating_sub(5));
    let cut = of(&[head, tail]);
    assert_eq!(whole.1, cut.1);
    if head.len() >= 74 {
        assert_eq!(whole.0, cut.0);
    }
    whole
}

/// An IPv4 header's checksum put right.
fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    put(&mut frame, ETHERNET_HEADER + 10, [0, 0]);
    let sum = checksum::compute(0, &frame[ETHERNET_HEADER..][..IPV4_HEADER]);
    put(&mut frame, ETHERNET_HEADER + 10, sum.to_be_bytes());
    frame
}

fn segment(version: Version) -> Forged {
    Forged {
        to: CLIENT_MAC,
        source: version.server(),
        destination: SocketAddr::new(version.client(), 50_000),
        seq: 0x1234_5678,
        ack: 0x9abc_def0,
        flags: Flags::ACK | Flags::PSH,
        options: Vec::new(),
        payload: TEXT.into(),
    }
}

/// The frame of a datagram, and what is to be read in it.
fn datagram(source: SocketAddr, destination: SocketAddr) -> (Vec<u8>, Read) {
    let mut datagram = Vec::from(source.port().to_be_bytes());
    datagram.extend(destination.port().to_be_bytes());
    datagram.extend([0, 8 + TEXT.len() as u8, 0, 0]);
    datagram.extend(TEXT);
    let ends = (source.ip(), destination.ip());
    let sum = transport_checksum(ends, PROTOCOL_UDP, &datagram);
    put(&mut datagram, 6, sum);
    let frame = packet(CLIENT_MAC, ends, PROTOCOL_UDP, &datagram);
    (frame, Read::Udp(source, destination, true, TEXT.into()))
}

/// Usual frames, and what is to be read in them.
fn frames() -> Vec<(Version, Vec<u8>, Read)> {
    let mut frames = Vec::new();
    for version in Version::BOTH {
        let forged = segment(version);
        let read = Read::Tcp(
            Ends::new(forged.source, forged.destination),
            forged.seq,
            forged.ack,
            forged.flags,
            0xffff,
            0,
            TEXT.into(),
        );
        frames.push((version, forged.frame(), read));
        let (frame, read) = datagram(forged.source, forged.destination);
        frames.push((version, frame, read));
    }
    frames
}

#[test]
fn what_is_usual_goes_the_short_way() {
    for (version, frame, read) in frames() {
        let is_read = |frame: &[u8]| {
            for checksum in [Checksum::Unverified, Checksum::Trusted] {
                let (usual, long) = both(frame, checksum);
                assert_eq!(usual.as_ref(), Some(&read), "{frame:?}");
                assert_eq!(long.as_ref(), Some(&read), "{frame:?}");
            }
        };
        is_read(&frame);
        // As short frames come (IEEE 802.3): what follows the packet is nothing.
        is_read(&[&frame[..], &[0xa5; 9]].concat());
        // Service, identification and the bit that forbids fragments, hop limit; service and flow label.
        let other: &[(usize, u8)] = match version {
            Version::V4 => &[(1, 0xff), (4, 0xff), (5, 0xff), (6, 0x40), (8, 0xff)],
            Version::V6 => &[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)],
        };
        for (at, bits) in other {
            let mut frame = frame.clone();
            frame[ETHERNET_HEADER + at] ^= bits;
            match version {
                Version::V4 => is_read(&sealed(frame)),
                Version::V6 => is_read(&frame),
            }
        }
    }
}

#[test]
fn what_is_not_usual_is_read_alike_or_not_at_all() {
    let alike = |frame: &[u8]| {
        for checksum in [Checksum::Unverified, Checksum::Trusted] {
            let (usual, long) = both(frame, checksum);
            assert!(usual.is_none() || usual == long, "{usual:?} {long:?}");
        }
    };
    for (version, frame, _) in frames() {
        for bit in 0..frame.len() * 8 {
            let mut frame = frame.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            alike(&frame);
            if version == Version::V4 {
                alike(&sealed(frame));
            }
        }
        for len in 0..frame.len() {
            alike(&frame[..len]);
        }
        for header in [0x46, 0x44, 0x55, 0x75] {
            let mut frame = frame.clone();
            frame[ETHERNET_HEADER] = header;
            alike(&sealed(frame));
        }
    }
    for version in Version::BOTH {
        let mut forged = segment(version);
        forged.options = vec![1, 1, 1, 0];
        alike(&forged.frame());
        let mut group = segment(version);
        for to in [[0xff; 6], [1, 0, 94, 0, 0, 1], SERVER_MAC] {
            group.to = to;
            alike(&group.frame());
        }
    }
    // Such addresses are inside of hosts alone.
    let mapped: IpAddr = "::ffff:10.0.0.2".parse().unwrap();
    let (us, host) = (
        segment(Version::V6).destination,
        segment(Version::V6).source,
    );
    for (source, destination) in [
        (SocketAddr::new(mapped, 80), us),
        (host, SocketAddr::new(mapped, 80)),
    ] {
        let (frame, _) = datagram(source, destination);
        assert_eq!(both(&frame, Checksum::Trusted), (None, None));
        let mut forged = segment(Version::V6);
        (forged.source, forged.destination) = (source, destination);
        assert_eq!(both(&forged.frame(), Checksum::Trusted), (None, None));
    }
}
