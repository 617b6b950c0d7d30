//! What [`crate::packet`] reads of frames.

use super::forged::{Forged, arp, packet, transport_checksum};
use super::{CLIENT_MAC, IpVersion, SERVER, SERVER_MAC};
use crate::checksum;
use crate::packet::{
    ETHERNET_HEADER, Ends, IPV4_HEADER, PROTOCOL_TCP, PROTOCOL_UDP, Received, Tcp, Udp, is_host,
    parse, put, tcp, udp,
};
use crate::parts::Parts;
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
    /// Ends, whether to us alone, payload.
    Udp(Ends, bool, Vec<u8>),
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
    Read::Udp(udp.ends, udp.unicast, bytes(udp.payload))
}

fn read(frame: &Frame<'_>) -> Option<Read> {
    let Some(Received::V4(ip) | Received::V6(ip)) = parse(frame, &CLIENT_MAC) else {
        return None;
    };
    match ip.protocol {
        PROTOCOL_TCP => tcp(frame, &ip).map(|tcp| of_tcp(&tcp)),
        PROTOCOL_UDP => udp(frame, &ip).map(|udp| of_udp(&udp)),
        _ => None,
    }
}

/// What is read of a frame in one part, and the same of one whose last bytes are in another.
fn both(frame: &[u8], checksum: Checksum) -> Option<Read> {
    let of = |parts: &[&[u8]]| {
        read(&Frame {
            parts,
            len: frame.len(),
            checksum,
            udp_segment: None,
        })
    };
    let whole = of(&[frame]);
    let (head, tail) = frame.split_at(frame.len().saturating_sub(5));
    if head.len() >= 74 {
        assert_eq!(of(&[head, tail]), whole);
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

fn segment(version: IpVersion) -> Forged {
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
    (
        frame,
        Read::Udp(Ends::new(source, destination), true, TEXT.into()),
    )
}

/// Usual frames, and what is to be read in them.
fn frames() -> Vec<(IpVersion, Vec<u8>, Read)> {
    let mut frames = Vec::new();
    for version in IpVersion::BOTH {
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
fn headers_are_read_whatever_the_network_may_change_in_them() {
    for (version, frame, read) in frames() {
        let is_read = |frame: &[u8]| {
            for checksum in [Checksum::Unverified, Checksum::Trusted] {
                assert_eq!(both(frame, checksum).as_ref(), Some(&read), "{frame:?}");
            }
        };
        is_read(&frame);
        // As short frames come (IEEE 802.3): what follows the packet is nothing.
        is_read(&[&frame[..], &[0xa5; 9]].concat());
        // Service, identification and the bit that forbids fragments, hop limit; service and flow label.
        let other: &[(usize, u8)] = match version {
            IpVersion::V4 => &[(1, 0xff), (4, 0xff), (5, 0xff), (6, 0x40), (8, 0xff)],
            IpVersion::V6 => &[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)],
        };
        for (at, bits) in other {
            let mut frame = frame.clone();
            frame[ETHERNET_HEADER + at] ^= bits;
            match version {
                IpVersion::V4 => is_read(&sealed(frame)),
                IpVersion::V6 => is_read(&frame),
            }
        }
    }
}

/// Bytes that no checksum holds: the sender's address on the link; service, flow label and hop limit of IPv6.
fn is_free(version: IpVersion, byte: usize) -> bool {
    let ip = byte.wrapping_sub(ETHERNET_HEADER);
    (6..12).contains(&byte) || version == IpVersion::V6 && (matches!(ip, 1..4 | 7))
}

#[test]
fn a_frame_with_a_wrong_bit_is_not_read() {
    for (version, frame, read) in frames() {
        for bit in 0..frame.len() * 8 {
            let (byte, mask) = (bit / 8, 1 << (bit % 8));
            let mut wrong = frame.clone();
            wrong[byte] ^= mask;
            // The other half of this byte is the version, which must be 6.
            let service = version == IpVersion::V6 && byte == ETHERNET_HEADER && mask < 0x10;
            let to_many = (byte, mask) == (0, 1);
            let found = both(&wrong, Checksum::Unverified);
            if is_free(version, byte) || service {
                assert_eq!(found.as_ref(), Some(&read), "bit {bit}");
            } else if to_many && let Some(Read::Udp(ends, unicast, text)) = found {
                assert_eq!(Read::Udp(ends, !unicast, text), read);
            } else {
                assert_eq!(found, None, "bit {bit} of {frame:?}");
            }
        }
        for len in 0..frame.len() {
            assert_eq!(both(&frame[..len], Checksum::Trusted), None, "{len} bytes");
        }
    }
}

#[test]
fn headers_with_other_lengths_versions_and_ends() {
    let forged = segment(IpVersion::V4);
    for header in [0x44, 0x55, 0x75] {
        let mut frame = forged.frame();
        frame[ETHERNET_HEADER] = header;
        assert_eq!(both(&sealed(frame), Checksum::Trusted), None);
    }
    for version in IpVersion::BOTH {
        let mut forged = segment(version);
        forged.options = vec![1, 1, 1, 0];
        let found = both(&forged.frame(), Checksum::Unverified);
        assert!(
            matches!(found, Some(Read::Tcp(.., 4, ref text)) if text == TEXT),
            "{found:?}"
        );
        // A segment is for one station.
        let mut group = segment(version);
        for to in [[0xff; 6], [1, 0, 94, 0, 0, 1], SERVER_MAC] {
            group.to = to;
            assert_eq!(both(&group.frame(), Checksum::Trusted), None);
        }
    }
    // Such addresses are inside of hosts alone.
    let mapped: IpAddr = "::ffff:10.0.0.2".parse().unwrap();
    let Forged {
        source,
        destination,
        ..
    } = segment(IpVersion::V6);
    for (source, destination) in [
        (SocketAddr::new(mapped, 80), destination),
        (source, SocketAddr::new(mapped, 80)),
    ] {
        let (frame, _) = datagram(source, destination);
        assert_eq!(both(&frame, Checksum::Trusted), None);
        let mut forged = segment(IpVersion::V6);
        (forged.source, forged.destination) = (source, destination);
        assert_eq!(both(&forged.frame(), Checksum::Trusted), None);
    }
}

/// RFC 1122, section 3.2.1.3.
#[test]
fn addresses_that_one_host_can_have() {
    for (address, host) in [
        ("10.0.0.1", true),
        ("192.0.2.255", true),
        ("0.0.0.0", false),
        ("127.0.0.1", false),
        ("224.0.0.1", false),
        ("239.255.255.255", false),
        ("255.255.255.255", false),
    ] {
        assert_eq!(is_host(address.parse().unwrap()), host, "{address}");
    }
}

/// RFC 826, and RFC 5227 for probes: requests without a sender's address.
#[test]
fn arp_is_read_from_those_that_can_be_there() {
    let read = |operation, mac, sender: &str| {
        let frame = arp(operation, mac, sender.parse().unwrap(), SERVER);
        let parts = [&frame[..]];
        let frame = Frame {
            parts: &parts,
            len: frame.len(),
            checksum: Checksum::Unverified,
            udp_segment: None,
        };
        match parse(&frame, &CLIENT_MAC) {
            Some(Received::Arp(arp)) => Some((arp.reply, arp.sender, arp.target)),
            _ => None,
        }
    };
    let host = "10.0.0.9";
    let said = |reply, sender: &str| Some((reply, sender.parse().unwrap(), SERVER));
    assert_eq!(read(1, SERVER_MAC, host), said(false, host));
    assert_eq!(read(2, SERVER_MAC, host), said(true, host));
    assert_eq!(read(1, SERVER_MAC, "0.0.0.0"), said(false, "0.0.0.0"));
    assert_eq!(read(2, SERVER_MAC, "0.0.0.0"), None);
    for operation in [1, 2] {
        assert_eq!(read(operation, SERVER_MAC, "224.0.0.1"), None);
        assert_eq!(read(operation, [0xff; 6], host), None);
        assert_eq!(read(operation, [0; 6], host), None);
    }
    // A cluster answers with the address of a group, and asks from a station's.
    let group = [3, 0xbf, 10, 0, 0, 9];
    assert_eq!(read(1, group, host), None);
    assert_eq!(read(2, group, host), said(true, host));
    for operation in [0, 3] {
        assert_eq!(read(operation, SERVER_MAC, host), None);
    }
}
