//! Datagrams of one flow that the guest sends as one unit (UDP_SEGMENT of its Linux).

use proptest::collection::vec;

use super::*;
use crate::testing::packets::{incomplete, udp};

const LINK: Link = Link {
    v6: false,
    tagged: false,
    id: 0xffff,
    host: 1,
};

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 13 % 251) as u8).collect()
}

/// Datagrams with this payload of `size` bytes each, but the last.
fn unit(link: Link, payload: &[u8], size: u16) -> (Header, Vec<u8>) {
    let (header, unit) = incomplete(&udp(link, payload));
    let header = Header {
        gso_type: GSO_UDP_L4,
        gso_size: size,
        hdr_len: header.csum_start + 8,
        ..header
    };
    (header, unit)
}

proptest! {
    #[test]
    fn each_datagram_is_a_frame(
        link in link(),
        size in 16..1440u16,
        len in 0..60_000usize,
        pieces in vec(1..3000u32, 0..20),
    ) {
        let payload = bytes(len);
        let (header, unit) = unit(link, &payload, size);
        let mut card = card(feature::CSUM | feature::HOST_USO);
        prop_assert!(send(&mut card, header, &unit, &pieces));
        let mut parts: Vec<&[u8]> = payload.chunks(size.into()).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let frames = parts.iter().enumerate().map(|(n, part)| {
            let id = link.id.wrapping_add(n as u16);
            udp(Link { id, ..link }, part)
        });
        prop_assert_eq!(card.wire.sent.clone(), frames.collect::<Vec<_>>());
        let counters = card.counters();
        prop_assert_eq!(counters.cut_units, 1);
        prop_assert_eq!(counters.cut_frames, parts.len() as u64);
    }
}

#[test]
fn what_cannot_be_split_is_lost_and_sends_nothing() {
    let (good, bytes) = unit(LINK, &bytes(500), 16);
    assert!(send(&mut card(0), good, &bytes, &[]));
    let mut tcp = bytes.clone();
    tcp[23] = 6;
    let small = Header {
        gso_size: 15,
        ..good
    };
    let elsewhere = Header {
        csum_start: good.csum_start - 1,
        ..good
    };
    let other = Header {
        csum_offset: 16,
        ..good
    };
    for (header, bytes) in [
        (small, &bytes[..]),
        (elsewhere, &bytes),
        (other, &bytes),
        (good, &tcp),
        (good, &bytes[..14 + 20 + 7]),
    ] {
        let mut card = card(0);
        assert!(!send(&mut card, header, bytes, &[]), "{header:?}");
        assert_eq!(card.wire.sent.len(), 0);
        assert_eq!(card.counters(), OffloadCounters::default());
    }
}
