//! UDP datagrams.

use proptest::collection::vec;

use super::*;
use crate::testing::packets::{fragment, incomplete, is_right, udp};

const AGREED: u64 = feature::GUEST_CSUM | feature::GUEST_UFO;
const LINK: Link = Link {
    v6: false,
    tagged: false,
    id: 7,
    host: 1,
};

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 11 % 253) as u8).collect()
}

/// The fragments that the card makes of a datagram of so many bytes.
fn fragments(link: Link, len: usize, size: u16) -> (Vec<u8>, Vec<Vec<u8>>) {
    let whole = udp(link, &bytes(len));
    let (header, unit) = incomplete(&whole);
    let header = Header {
        gso_type: GSO_UDP,
        gso_size: size,
        hdr_len: header.csum_start + 8,
        ..header
    };
    let mut card = card(0);
    assert!(send(&mut card, header, &unit, &[700, 3, 90]));
    assert_eq!(card.counters().cut_frames, card.wire.sent.len() as u64);
    (whole, card.wire.sent)
}

fn comes(card: &mut Offload<Frames>, frames: &[Vec<u8>], now: Duration) -> Vec<Vec<u8>> {
    let coming = frames
        .iter()
        .map(|frame| Some((Header::default(), frame.clone())));
    card.wire.coming.extend(coming);
    let units = receive(card, &[1000, 1], now);
    units.into_iter().map(|(_, unit)| unit).collect()
}

proptest! {
    /// Fragments in any order, some of them twice, of several datagrams at once.
    #[test]
    fn what_is_cut_is_put_together(
        link in link(),
        len in 200..65_400usize,
        size in 400..1480u16,
        order in any::<u64>(),
        twice in vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let other = Link { id: link.id ^ 1, host: 3, ..link };
        let (whole, first) = fragments(link, len, size);
        let (second_whole, second) = fragments(other, 3000, size);
        prop_assert!(first.iter().all(|frame| frame.len() <= 18 + 48 + usize::from(size)));
        let twice: Vec<_> = twice.iter().map(|index| index.get(&first).clone()).collect();
        let fragmented = first.len() > 1;
        let mut all = [first, second].concat();
        // Sorted by a hash: one of all orders, in which no datagram needs more pieces than there may be.
        let disorder = |n: usize| n / 32 * 1000 + (order.wrapping_mul(n as u64 | 1) >> 7) as usize % 1000;
        let mut places: Vec<_> = (0..all.len()).collect();
        places.sort_by_key(|n| disorder(*n));
        all = places.into_iter().map(|n| all[n].clone()).collect();
        let count = all.len();
        // Those that come twice, come while the datagram is not whole.
        let again = if fragmented { twice } else { Vec::new() };
        let last = all.pop().unwrap();
        let known: Vec<_> = again.into_iter().filter(|frame| all.contains(frame)).collect();
        all.extend(known.clone());
        all.push(last);
        let mut card = card(AGREED);
        let got = comes(&mut card, &all, NOW);
        let counters = card.counters();
        if counters.dropped_fragments == known.len() as u64 {
            prop_assert!(got.contains(&whole) && got.contains(&second_whole));
            prop_assert_eq!(got.len(), 2);
        }
        let single = u64::from(!fragmented);
        let kinds = counters.joined_fragments + counters.dropped_fragments + counters.waiting_fragments;
        prop_assert_eq!(kinds + single, (count + known.len()) as u64);
        for unit in &got {
            prop_assert!(is_right(unit));
        }
    }

    #[test]
    fn fragments_are_right(link in link(), len in 0..65_400usize, size in 16..1480u16) {
        let (_, frames) = fragments(link, len, size);
        let data = len + 8;
        let step = usize::from(size & !7);
        let count = if data <= size.into() { 1 } else { data.div_ceil(step) };
        prop_assert_eq!(frames.len(), count);
        for frame in &frames {
            let ip = Ip::parse(frame).unwrap();
            prop_assert!(ip.is_intact(frame));
            prop_assert_eq!(ip.at + ip.len, frame.len());
        }
    }
}

#[test]
fn a_datagram_is_one_unit_with_its_checksum() {
    for v6 in [false, true] {
        let (whole, frames) = fragments(Link { v6, ..LINK }, 65_400, 1480);
        assert_eq!(frames.len(), 65_408usize.div_ceil(1480));
        let mut card = card(AGREED);
        let last = frames.len() - 1;
        assert_eq!(comes(&mut card, &frames[..last], NOW).len(), 0);
        assert_eq!(card.counters().waiting_fragments, last as u64);
        card.wire
            .coming
            .push_back(Some((Header::default(), frames[last].clone())));
        let units = receive(&mut card, &[], NOW);
        let header = Header {
            gso_type: GSO_UDP,
            gso_size: 1480,
            hdr_len: if v6 { 62 } else { 42 },
            ..Header::default()
        };
        assert_eq!(units, [(header, whole)]);
        assert!(header.arriving(AGREED, units[0].1.len()).is_some());
        assert_eq!(card.counters().joined_datagrams, 1);
    }
}

#[test]
fn the_longest_datagram_is_one() {
    let (whole, frames) = fragments(LINK, 65_507, 1480);
    assert_eq!(comes(&mut card(AGREED), &frames, NOW), [whole]);
}

#[test]
fn a_guest_that_did_not_agree_gets_fragments() {
    let (_, frames) = fragments(LINK, 5000, 1480);
    assert_eq!(comes(&mut card(feature::GUEST_TSO4), &frames, NOW), frames);
}

#[test]
fn what_overlaps_drops_the_datagram() {
    for v6 in [false, true] {
        let link = Link { v6, ..LINK };
        let (_, frames) = fragments(link, 5000, 1480);
        let mut other = frames[1].clone();
        // The same place, other data.
        *other.last_mut().unwrap() ^= 1;
        let mut card = card(AGREED);
        let coming = [&frames[..2], &[other], &frames[2..]].concat();
        assert_eq!(comes(&mut card, &coming, NOW).len(), 0);
        assert_eq!(card.counters().dropped_fragments, coming.len() as u64);
        // Part of a place.
        let (_, small) = fragments(link, 5000, 1000);
        let coming = [&frames[..1], &small[1..]].concat();
        let mut card = super::card(AGREED);
        assert_eq!(comes(&mut card, &coming, NOW).len(), 0);
    }
}

#[test]
fn two_ends_drop_the_datagram() {
    let (_, long) = fragments(LINK, 5000, 1480);
    let (_, short) = fragments(LINK, 4000, 1480);
    for (last, then) in [(&long, &short), (&short, &long)] {
        let mut card = card(AGREED);
        let ends = [last.last().unwrap().clone(), then.last().unwrap().clone()];
        assert_eq!(comes(&mut card, &ends, NOW).len(), 0);
        assert_eq!(comes(&mut card, last, NOW).len(), 0);
        assert_eq!(card.counters().dropped_fragments, 2 + last.len() as u64);
    }
}

#[test]
fn fragments_wait_for_a_time_only() {
    let (_, frames) = fragments(LINK, 3000, 1480);
    let mut card = card(AGREED);
    assert_eq!(comes(&mut card, &frames[..1], NOW).len(), 0);
    let late = Duration::from_secs(30);
    assert_eq!(comes(&mut card, &frames[1..], late).len(), 0);
    let counters = card.counters();
    assert_eq!(
        (counters.dropped_fragments, counters.waiting_fragments),
        (1, 2)
    );
    // What comes again in time is whole.
    assert_eq!(comes(&mut card, &frames[..1], late).len(), 1);
}

#[test]
fn the_oldest_goes_when_the_table_is_full() {
    let all: Vec<_> = (0..17)
        .map(|id| fragments(Link { id, ..LINK }, 3000, 1480).1)
        .collect();
    let mut card = card(AGREED);
    for (n, frames) in all.iter().enumerate() {
        comes(&mut card, &frames[..1], Duration::from_millis(n as u64));
    }
    let counters = card.counters();
    assert_eq!(
        (counters.dropped_fragments, counters.waiting_fragments),
        (1, 16)
    );
    let now = Duration::from_millis(20);
    assert_eq!(comes(&mut card, &all[16][1..], now).len(), 1);
    assert_eq!(comes(&mut card, &all[0][1..], now).len(), 0);
}

#[test]
fn a_datagram_in_very_many_pieces_is_dropped() {
    let (_, frames) = fragments(LINK, 5000, 16);
    let mut card = card(AGREED);
    let gaps: Vec<_> = frames.iter().step_by(2).cloned().collect();
    assert!(gaps.len() > 65);
    comes(&mut card, &gaps[..64], NOW);
    assert_eq!(card.counters().waiting_fragments, 64);
    comes(&mut card, &gaps[64..65], NOW);
    let counters = card.counters();
    assert_eq!(
        (counters.dropped_fragments, counters.waiting_fragments),
        (65, 0)
    );
}

#[test]
fn identifications_over_ipv6_differ() {
    let link = Link { v6: true, ..LINK };
    let mut card = card(0);
    let (header, unit) = incomplete(&udp(link, &bytes(2000)));
    let header = Header {
        gso_type: GSO_UDP,
        gso_size: 1400,
        ..header
    };
    for _ in 0..2 {
        assert!(send(&mut card, header, &unit, &[]));
    }
    let ids: Vec<_> = card.wire.sent.iter().map(|frame| &frame[58..62]).collect();
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[1], ids[2]);
}

#[test]
fn what_cannot_be_cut_is_lost_and_sends_nothing() {
    let (partial, unit) = incomplete(&udp(LINK, &bytes(500)));
    let good = Header {
        gso_type: GSO_UDP,
        gso_size: 16,
        ..partial
    };
    let mut tcp = unit.clone();
    tcp[23] = 6;
    let long = [&unit[..], &[0; 65_100]].concat();
    assert!(send(&mut card(0), good, &unit, &[]));
    for (n, (header, unit)) in [
        (
            Header {
                gso_size: 15,
                ..good
            },
            &unit[..],
        ),
        (
            Header {
                csum_start: 30,
                ..good
            },
            &unit,
        ),
        (
            Header {
                csum_offset: 16,
                ..good
            },
            &unit,
        ),
        (good, &tcp),
        (good, &long[..14 + 65_536]),
        (good, &unit[..14 + 20 + 7]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut card = card(0);
        assert!(!send(&mut card, header, unit, &[]), "case {n}");
        assert_eq!(card.wire.sent.len(), 0);
        assert_eq!(card.counters(), OffloadCounters::default());
    }
}

#[test]
fn a_checksum_of_zero_is_not_none() {
    let mut payload = bytes(1000);
    payload[..2].fill(0);
    // What makes the sum of all ones.
    let sum = udp(LINK, &payload)[40..42].to_vec();
    payload[..2].copy_from_slice(&sum);
    let (partial, unit) = incomplete(&udp(LINK, &payload));
    let header = Header {
        gso_type: GSO_UDP,
        gso_size: 500,
        ..partial
    };
    let mut card = card(0);
    assert!(send(&mut card, header, &unit, &[]));
    assert_eq!(card.wire.sent[0][40..42], [0xff; 2]);
}

/// What is waiting and what is dropped when these fragments have come: offset, length, whether more follow.
fn after(v6: bool, parts: &[(usize, usize, bool)]) -> (u64, u64, u64) {
    let link = Link { v6, ..LINK };
    let frames: Vec<_> = parts
        .iter()
        .map(|(offset, len, more)| fragment(link, &bytes(*len), *offset, *more))
        .collect();
    let mut card = card(AGREED);
    comes(&mut card, &frames, NOW);
    let counters = card.counters();
    (
        counters.joined_fragments,
        counters.waiting_fragments,
        counters.dropped_fragments,
    )
}

#[test]
fn fragments_that_contradict_each_other_are_dropped() {
    for v6 in [false, true] {
        assert_eq!(after(v6, &[(16, 5, false), (0, 16, true)]), (2, 0, 0));
        assert_eq!(after(v6, &[(24, 8, true), (8, 8, true)]), (0, 2, 0));
        // Behind the end; an end before what is there; up to the end, and more.
        assert_eq!(after(v6, &[(16, 8, false), (32, 8, true)]), (0, 0, 2));
        assert_eq!(after(v6, &[(24, 8, true), (8, 8, false)]), (0, 0, 2));
        assert_eq!(
            after(v6, &[(16, 8, false), (8, 8, true), (0, 8, false)]),
            (0, 2, 0)
        );
        assert_eq!(after(v6, &[(16, 8, false), (16, 8, true)]), (0, 0, 2));
        assert_eq!(after(v6, &[(16, 8, true), (16, 8, false)]), (0, 0, 2));
        // Again, with the same end.
        assert_eq!(after(v6, &[(16, 8, false), (16, 8, false)]), (0, 1, 1));
        // No multiple of 8; nothing.
        assert_eq!(after(v6, &[(0, 12, true)]), (0, 0, 1));
        assert_eq!(after(v6, &[(8, 0, false)]), (0, 0, 1));
    }
    // As long as IPv6 can say, and not IPv4.
    assert_eq!(after(true, &[(65_504, 16, false)]), (0, 1, 0));
    assert_eq!(after(false, &[(65_504, 16, false)]), (0, 0, 1));
    assert_eq!(after(false, &[(65_504, 11, false)]), (0, 1, 0));
    assert_eq!(after(true, &[(65_528, 8, false)]), (0, 0, 1));
}

#[test]
fn datagrams_of_several_senders_do_not_mix() {
    let other = Link { host: 2, ..LINK };
    let first = fragment(LINK, &bytes(16), 0, true);
    let last = fragment(other, &bytes(16), 16, false);
    let mut card = card(AGREED);
    assert_eq!(comes(&mut card, &[first, last], NOW).len(), 0);
    assert_eq!(card.counters().waiting_fragments, 2);
    // Nor those of a guest with the next one's.
    Wire::<VecMemory>::agree(&mut card, AGREED);
    let counters = card.counters();
    assert_eq!(
        (counters.waiting_fragments, counters.dropped_fragments),
        (0, 2)
    );
}

#[test]
fn what_is_no_fragment_of_a_datagram_goes_through() {
    let good = fragment(LINK, &bytes(16), 16, false);
    let mut wrong = good.clone();
    wrong[24] ^= 1;
    let mut tcp = good.clone();
    tcp[23] = 6;
    let ip = Ip::parse(&tcp).unwrap();
    ip.set_len(&mut tcp, 16).unwrap();
    for frame in [wrong, tcp] {
        let mut card = card(AGREED);
        assert_eq!(
            comes(&mut card, core::slice::from_ref(&frame), NOW),
            [frame]
        );
    }
}

/// Who is no party to a datagram, in another VLAN or at another address of the link, does not put its own end in the place of the right one.
#[test]
fn fragments_of_other_stations_and_vlans_are_not_of_a_datagram() {
    let tagged = Link {
        tagged: true,
        ..LINK
    };
    let (whole, frames) = fragments(tagged, 3000, 1480);
    let (last, first) = frames.split_last().unwrap();
    let forged = |at: usize, value: u8| {
        let mut frame = last.clone();
        frame[at] = value;
        let end = frame.len() - 1;
        frame[end] ^= 0xff;
        frame
    };
    for forged in [
        // The VLAN's number, and both stations.
        forged(15, 6),
        forged(5, 9),
        forged(11, 9),
    ] {
        let mut card = card(AGREED);
        assert_eq!(comes(&mut card, first, NOW).len(), 0);
        assert_eq!(comes(&mut card, &[forged], NOW).len(), 0);
        assert_eq!(
            comes(&mut card, std::slice::from_ref(last), NOW),
            std::slice::from_ref(&whole)
        );
    }
}
