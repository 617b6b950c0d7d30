use std::vec;
use std::vec::Vec;

use super::*;
use crate::feature;
use crate::header::{GSO_TCPV4, GSO_TCPV6, GSO_UDP};
use crate::testing::VecMemory;
use crate::testing::packets::{Link, TcpFields, incomplete, tcp, udp};

const BASE: u64 = 0x100;

fn link(v6: bool, tagged: bool) -> Link {
    Link {
        v6,
        tagged,
        id: 0xffff,
        host: 1,
    }
}

const FIELDS: TcpFields = TcpFields {
    port: 1000,
    sequence: 0xffff_ff00,
    flags: 0x18,
    options: true,
};

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 % 251) as u8).collect()
}

/// The frame as a unit that is to be cut to `size` bytes each.
fn to_cut(frame: &[u8], v6: bool, size: u16) -> (Header, Vec<u8>) {
    let (header, bytes) = incomplete(frame);
    let header = Header {
        gso_type: if v6 { GSO_TCPV6 } else { GSO_TCPV4 },
        gso_size: size,
        hdr_len: header.csum_start + 32,
        ..header
    };
    (header, bytes)
}

/// The next frame, written to two buffers.
fn next(frames: &mut GsoFrames) -> Option<Vec<u8>> {
    let memory = VecMemory::new(BASE, 2000);
    let at = |address, len| Span { address, len };
    let room = [at(BASE + 400, 1600), at(BASE, 400)];
    match frames.next(&memory, &room)? {
        Received::Unit { header, len } => {
            assert_eq!(header, Header::default());
            let mut bytes = vec![0; 2000];
            memory.read(BASE + 400, &mut bytes[..1600]).unwrap();
            memory.read(BASE, &mut bytes[1600..]).unwrap();
            bytes.truncate(len);
            Some(bytes)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_unit_becomes_the_segments_that_a_sender_would_have_sent() {
    for (v6, tagged) in [(false, false), (false, true), (true, false), (true, true)] {
        let (link, payload) = (link(v6, tagged), payload(5000));
        let (header, unit) = to_cut(&tcp(link, FIELDS, &payload), v6, 1448);
        assert!(GsoFrames::are_needed(
            header,
            feature::GUEST_CSUM,
            unit.len()
        ));
        let mut frames = GsoFrames::new();
        assert!(frames.make(header, &unit));
        let parts: Vec<_> = payload.chunks(1448).collect();
        for (n, part) in parts.iter().enumerate() {
            let link = Link {
                id: link.id.wrapping_add(n as u16),
                ..link
            };
            let fields = TcpFields {
                sequence: FIELDS.sequence.wrapping_add(1448 * n as u32),
                // Pushed at its end.
                flags: if n + 1 == parts.len() { 0x18 } else { 0x10 },
                ..FIELDS
            };
            assert_eq!(next(&mut frames), Some(tcp(link, fields, part)), "{n}");
        }
        assert_eq!(next(&mut frames), None);
    }
}

/// VIRTIO_NET_HDR_GSO_UDP_L4: what a sender gave to Linux in one call.
#[test]
fn datagrams_that_came_together_are_a_frame_each() {
    for (v6, tagged) in [(false, false), (true, true)] {
        let (link, payload) = (link(v6, tagged), payload(3500));
        let (header, unit) = incomplete(&udp(link, &payload));
        let header = Header {
            gso_type: 5,
            gso_size: 1000,
            hdr_len: header.csum_start + 8,
            ..header
        };
        for uso in [feature::GUEST_USO4, feature::GUEST_USO6, feature::GUEST_USO] {
            let features = feature::KNOWN & !feature::GUEST_USO | uso;
            let needed = GsoFrames::are_needed(header, features, unit.len());
            assert_eq!(needed, uso != feature::GUEST_USO);
        }
        let mut frames = GsoFrames::new();
        assert!(frames.make(header, &unit));
        for (n, part) in payload.chunks(1000).enumerate() {
            let link = Link {
                id: link.id.wrapping_add(n as u16),
                ..link
            };
            assert_eq!(next(&mut frames), Some(udp(link, part)), "{n}");
        }
        assert_eq!(next(&mut frames), None);
        let nothing = Header {
            gso_size: 0,
            ..header
        };
        let elsewhere = Header {
            csum_start: header.csum_start - 1,
            ..header
        };
        for bad in [nothing, elsewhere] {
            assert!(!frames.make(bad, &unit));
        }
        assert!(!frames.make(header, &unit[..header.csum_start as usize + 7]));
    }
}

#[test]
fn checksums_are_completed() {
    let mut frames = GsoFrames::new();
    for link in [link(false, false), link(true, true)] {
        for frame in [tcp(link, FIELDS, b"odd"), udp(link, b"even")] {
            let (header, unit) = incomplete(&frame);
            assert!(GsoFrames::are_needed(header, 0, unit.len()));
            assert!(!GsoFrames::are_needed(
                header,
                feature::GUEST_CSUM,
                unit.len()
            ));
            assert!(frames.make(header, &unit));
            assert_eq!(next(&mut frames), Some(frame));
        }
    }
}

/// RFC 768: a datagram whose checksum is 0 says 0xffff, as 0 would be none.
#[test]
fn a_datagrams_checksum_is_never_zero() {
    let link = link(false, false);
    let frame = (0..=u16::MAX)
        .map(|number| udp(link, &number.to_be_bytes()))
        .find(|frame| frame[40..42] == [0xff, 0xff])
        .unwrap();
    let (header, unit) = incomplete(&frame);
    let mut frames = GsoFrames::new();
    assert!(frames.make(header, &unit));
    assert_eq!(next(&mut frames), Some(frame));
}

#[test]
fn what_the_guest_takes_needs_no_frames() {
    let (header, unit) = to_cut(
        &tcp(link(false, false), FIELDS, &payload(3000)),
        false,
        1448,
    );
    let features = feature::GUEST_CSUM | feature::GUEST_TSO4;
    assert!(!GsoFrames::are_needed(header, features, unit.len()));
    assert!(!GsoFrames::are_needed(Header::default(), 0, 60));
}

#[test]
fn what_cannot_be_cut_has_no_frames() {
    let (good, unit) = to_cut(
        &tcp(link(false, false), FIELDS, &payload(60_000)),
        false,
        1448,
    );
    let mut frames = GsoFrames::new();
    for bad in [
        Header {
            gso_type: GSO_UDP,
            ..good
        },
        // No datagrams.
        Header {
            gso_type: 5,
            ..good
        },
        Header {
            csum_start: 0,
            ..good
        },
        // Their headers take more than the unit.
        Header {
            gso_size: 16,
            ..good
        },
        Header {
            csum_start: 0xffff,
            ..incomplete(&unit).0
        },
    ] {
        assert!(frames.make(good, &unit));
        assert!(!frames.make(bad, &unit), "{bad:?}");
        assert_eq!(next(&mut frames), None, "{bad:?}");
    }
}

#[test]
fn a_frame_that_has_no_room_is_lost_alone() {
    let (header, unit) = to_cut(
        &tcp(link(false, false), FIELDS, &payload(2000)),
        false,
        1448,
    );
    let mut frames = GsoFrames::new();
    assert!(frames.make(header, &unit));
    let memory = VecMemory::new(BASE, 1000);
    let room = [Span {
        address: BASE,
        len: 1000,
    }];
    assert_eq!(frames.next(&memory, &room), Some(Received::TooLong));
    let second = frames.next(&memory, &room);
    assert!(
        matches!(second, Some(Received::Unit { len: 618, .. })),
        "{second:?}"
    );
    assert_eq!(frames.next(&memory, &room), None);
    assert!(frames.make(header, &unit));
    frames.clear();
    assert_eq!(frames.next(&memory, &room), None);
}

/// A sender's few bytes each, which somebody before us has joined (GRO).
#[test]
fn small_segments_are_cut_too() {
    let (header, unit) = to_cut(&tcp(link(true, false), FIELDS, &payload(30)), true, 7);
    let mut frames = GsoFrames::new();
    assert!(frames.make(header, &unit));
    let all = core::iter::from_fn(|| next(&mut frames));
    let lens: Vec<_> = all.map(|frame| frame.len() - 86).collect();
    assert_eq!(lens, [7, 7, 7, 7, 2]);
}
