//! Several units in one buffer, in whatever order things happen.

use super::*;
use crate::coalesce::Limits;
use crate::testing::{chunk_of, fuzz_card_chunks, units_of};
use wireboot_wire::card::hello::{CHUNKS, Chunks, Hello, Kind};

const MORE: u8 = 0x80;

const AT_ONCE: Limits<Duration> = Limits {
    frames: 43,
    bytes: 65_536,
    wait: Duration::ZERO,
};

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}

const QUESTION: Hello = Hello {
    kind: Kind::Question,
    source: [2, 0, 0, 0, 0, 9],
    token: 77,
    features: CHUNKS,
    chunks: Chunks {
        frames: 100,
        bytes: 50_000,
        micros: 1000,
    },
};

/// A card that gathers frames for this guest, which has buffers of `len` bytes.
fn asked(features: u64, limits: Limits<Duration>, len: u32) -> (Card<Script>, Guest) {
    let (mut card, mut guest) = card_and_guest(features);
    card.offer(Beyond {
        chunks: Some(limits),
        ..Beyond::default()
    });
    guest.send(Header::default(), &QUESTION.emit(), &[], false);
    guest.transmit.publish(&guest.memory);
    offer(&mut guest, len);
    card.turn(&guest.memory, NOW);
    assert!(guest.received().is_some());
    offer(&mut guest, len);
    (card, guest)
}

fn offer(guest: &mut Guest, len: u32) {
    while guest.offer(&[len]) {}
    guest.receive.publish(&guest.memory);
}

fn comes(card: &mut Card<Script>, lengths: &[usize]) {
    let frames = lengths
        .iter()
        .map(|len| (Header::default(), frame(*len, 7)));
    card.wire_mut().coming.extend(frames);
}

/// Lengths of the units in each chunk that has come.
fn came(guest: &mut Guest) -> Vec<Vec<usize>> {
    let mut chunks = Vec::new();
    while let Some((header, bytes, _)) = guest.received() {
        let units = units_of(header, &bytes);
        assert!(units.iter().all(|(_, unit)| *unit == frame(unit.len(), 7)));
        chunks.push(units.iter().map(|(_, unit)| unit.len()).collect());
    }
    chunks
}

proptest! {
    #[test]
    fn frames_come_once_in_order_and_in_time(data in vec(any::<u8>(), 0..2000)) {
        fuzz_card_chunks(&data);
    }
}

#[test]
fn the_card_keeps_within_both_limits() {
    let limits = Limits {
        frames: 43,
        bytes: 65_536,
        wait: micros(2000),
    };
    for (features, does) in [(feature::VERSION_1, CHUNKS), (0, 0)] {
        let (mut card, mut guest) = card_and_guest(features);
        card.offer(Beyond {
            chunks: Some(limits),
            ..Beyond::default()
        });
        guest.send(Header::default(), &QUESTION.emit(), &[], false);
        guest.transmit.publish(&guest.memory);
        offer(&mut guest, 2000);
        card.turn(&guest.memory, NOW);
        let answer = Hello::parse(&guest.received().unwrap().1).unwrap();
        assert_eq!(answer.features, does);
        let both = Chunks {
            frames: 43,
            bytes: 50_000,
            micros: 1000,
        };
        let expected = if does == 0 { Chunks::default() } else { both };
        assert_eq!(answer.chunks, expected);
    }
}

#[test]
fn nobody_gets_chunks_who_has_not_asked() {
    let (mut card, mut guest) = card_and_guest(feature::VERSION_1);
    card.offer(Beyond {
        chunks: Some(AT_ONCE),
        ..Beyond::default()
    });
    offer(&mut guest, 4096);
    comes(&mut card, &[60, 60]);
    card.turn(&guest.memory, NOW);
    assert_eq!(came(&mut guest), [[60], [60]]);
}

#[test]
fn a_buffer_takes_frames_until_the_longest_would_not_fit() {
    let (mut card, mut guest) = asked(feature::VERSION_1 | feature::MRG_RXBUF, AT_ONCE, 4096);
    // Behind two of 1282, 2 * 1296 bytes, there is room for 1492 and a header; behind two of 1270 for 1516, and for 1522 behind two of 1264.
    comes(&mut card, &[1282; 3]);
    card.turn(&guest.memory, NOW);
    assert_eq!(came(&mut guest), [std::vec![1282; 2], std::vec![1282]]);
    comes(&mut card, &[1264; 3]);
    card.turn(&guest.memory, NOW);
    assert_eq!(came(&mut guest), [std::vec![1264; 3]]);
    let counters = card.counters();
    assert_eq!(
        (counters.received_chunks, counters.received_chunk_units),
        (2, 5)
    );
}

#[test]
fn frames_wait_for_others_until_their_time() {
    let limits = Limits {
        frames: 4,
        bytes: 1000,
        wait: micros(100),
    };
    let (mut card, mut guest) = asked(feature::VERSION_1, limits, 60_000);
    comes(&mut card, &[60]);
    card.turn(&guest.memory, micros(5));
    assert_eq!(card.due(), Some(micros(105)));
    comes(&mut card, &[61]);
    card.turn(&guest.memory, micros(104));
    assert!(came(&mut guest).is_empty());
    card.turn(&guest.memory, micros(105));
    assert_eq!(came(&mut guest), [[60, 61]]);
    assert_eq!(card.due(), None);
    // So many frames do not wait, nor so many bytes; what is behind them begins anew.
    comes(&mut card, &[60; 5]);
    card.turn(&guest.memory, micros(200));
    assert_eq!(came(&mut guest), [[60; 4]]);
    comes(&mut card, &[940]);
    card.turn(&guest.memory, micros(210));
    assert_eq!(came(&mut guest), [[60, 940]]);
    comes(&mut card, &[600, 600, 60]);
    card.turn(&guest.memory, micros(220));
    assert_eq!(came(&mut guest), [[600, 600]]);
}

#[test]
fn a_guest_without_more_buffers_gets_what_waits() {
    let limits = Limits {
        wait: micros(100),
        ..AT_ONCE
    };
    let (mut card, mut guest) = asked(feature::VERSION_1 | feature::MRG_RXBUF, limits, 3000);
    comes(&mut card, &[1000; 40]);
    card.turn(&guest.memory, NOW);
    assert_eq!(came(&mut guest), std::vec![std::vec![1000; 2]; 16]);
}

#[test]
fn what_waits_when_the_queue_stops_is_counted() {
    let limits = Limits {
        wait: micros(100),
        ..AT_ONCE
    };
    let (mut card, mut guest) = asked(feature::VERSION_1 | feature::MRG_RXBUF, limits, 4096);
    comes(&mut card, &[1000; 5]);
    card.turn(&guest.memory, NOW);
    // The answer's buffer was used. The others the guest has back when the queue starts again.
    assert_eq!(card.stop(Queue::Receive), Some(1));
    assert_eq!(card.counters().receive_left, 5);
    card.start(
        &guest.memory,
        Queue::Receive,
        guest.start_of(Queue::Receive, 1),
    )
    .unwrap();
    comes(&mut card, &[1001; 2]);
    card.turn(&guest.memory, micros(1));
    card.turn(&guest.memory, micros(101));
    assert_eq!(came(&mut guest), [[1001; 2]]);
}

#[test]
fn a_driver_that_begins_anew_has_not_asked() {
    let limits = Limits {
        wait: micros(100),
        ..AT_ONCE
    };
    let (mut card, _) = asked(feature::VERSION_1, limits, 4096);
    card.stop(Queue::Receive);
    card.stop(Queue::Transmit);
    let mut guest = Guest::new(16, feature::VERSION_1);
    guest.start(&mut card).unwrap();
    offer(&mut guest, 4096);
    comes(&mut card, &[60, 60]);
    card.turn(&guest.memory, NOW);
    assert_eq!(came(&mut guest), [[60], [60]]);
}

/// A unit longer than what is left goes on in the next buffers, and nothing follows it.
#[test]
fn a_large_unit_ends_its_chunk() {
    let (mut card, mut guest) = asked(feature::VERSION_1 | feature::MRG_RXBUF, AT_ONCE, 4096);
    card.wire_mut().max_unit = Some(9000);
    comes(&mut card, &[60, 9000, 60]);
    card.turn(&guest.memory, NOW);
    let (header, bytes, buffers) = guest.received().unwrap();
    let lengths: Vec<_> = units_of(header, &bytes)
        .iter()
        .map(|(_, unit)| unit.len())
        .collect();
    assert_eq!((lengths, buffers), (std::vec![60, 9000], 3));
    assert_eq!(came(&mut guest), [[60]]);
}

/// Sends what is behind `header` in one buffer; the frames that came of it, and the fault.
fn gives(header: Header, bytes: &[u8]) -> (Vec<usize>, Option<RingFault>) {
    let (mut card, mut guest) = card_and_guest(feature::VERSION_1);
    assert!(guest.send(header, bytes, &[100, 30], false));
    guest.transmit.publish(&guest.memory);
    let turn = card.turn(&guest.memory, NOW);
    let lengths = card.wire().sent.iter().map(|(header, unit)| {
        assert_eq!(*header, Header::default());
        unit.len()
    });
    (lengths.collect(), turn.transmit_fault)
}

#[test]
fn a_chunk_of_the_guests_is_cut() {
    let units: Vec<_> = [60, 61, 14, 1514]
        .map(|len| (Header::default(), frame(len, 3)))
        .into();
    let (header, bytes) = chunk_of(&units);
    assert_eq!(gives(header, &bytes), (std::vec![60, 61, 14, 1514], None));
}

#[test]
fn a_chunk_that_contradicts_itself_stops_the_queue() {
    let two = [60, 60].map(|len| (Header::default(), frame(len, 3)));
    let (header, bytes) = chunk_of(&two);
    let says = |hdr_len| Header { hdr_len, ..header };
    for hdr_len in [0, 13, 61 + 58, u16::MAX] {
        let fault = Some(RingFault::Header);
        assert_eq!(
            gives(says(hdr_len), &bytes),
            (Vec::new(), fault),
            "{hdr_len}"
        );
    }
    // Nothing is behind the second.
    let (mut bytes, at) = (bytes, 60);
    bytes[at] |= MORE;
    assert_eq!(
        gives(header, &bytes),
        (std::vec![60], Some(RingFault::Header))
    );
}

/// The first buffer of a unit has its first 128 bytes, however short the wire says that units are.
#[test]
fn no_unit_begins_at_the_very_end_of_a_buffer() {
    let (mut card, mut guest) = asked(feature::VERSION_1 | feature::MRG_RXBUF, AT_ONCE, 1100);
    card.wire_mut().max_unit = Some(60);
    comes(&mut card, &[1000, 200]);
    card.turn(&guest.memory, NOW);
    assert_eq!(came(&mut guest), [[1000], [200]]);
}

/// All buffers of the ring are found, and less than the longest unit is left of them.
#[test]
fn a_long_unit_waits_for_buffers_when_others_have_some() {
    let (mut card, mut guest) = asked(feature::VERSION_1 | feature::MRG_RXBUF, AT_ONCE, 4096);
    card.wire_mut().max_unit = Some(63_000);
    comes(&mut card, &[1000, 1000, 1000, 62_900]);
    let turn = card.turn(&guest.memory, NOW);
    assert!(turn.no_room);
    assert_eq!(came(&mut guest), [[1000; 3]]);
    offer(&mut guest, 4096);
    card.turn(&guest.memory, NOW);
    assert_eq!(came(&mut guest), [[62_900]]);
    assert_eq!(card.counters().receive_too_long, 0);
}

/// One buffer can be millions of units: a turn moves so many only, and the next one goes on where it ended.
#[test]
fn a_long_chunk_takes_several_turns() {
    let units: Vec<_> = (0..150)
        .map(|n| (Header::default(), frame(60 + n, 3)))
        .collect();
    let (header, bytes) = chunk_of(&units);
    let (mut card, mut guest) = card_and_guest(feature::VERSION_1);
    assert!(guest.send(header, &bytes, &[100, 30], false));
    guest.transmit.publish(&guest.memory);
    let mut turns = Vec::new();
    while card.wire().sent.len() < 150 {
        // It would not wait.
        assert!(card.arm(&guest.memory).work);
        let turn = card.turn(&guest.memory, NOW);
        assert_eq!(turn.transmit_fault, None);
        turns.push(turn.units);
    }
    assert_eq!(turns, [64, 64, 22]);
    let lengths: Vec<_> = card
        .wire()
        .sent
        .iter()
        .map(|(_, unit)| unit.len())
        .collect();
    assert_eq!(lengths, (60..210).collect::<Vec<_>>());
    assert_eq!(card.counters().sent_chunk_units, 150);
    assert!(!card.arm(&guest.memory).work);
}

/// A driver that comes without a reset of the rings, as after a migration, has asked nothing.
#[test]
fn what_a_driver_before_has_asked_is_forgotten() {
    let (mut card, mut guest) = asked(feature::VERSION_1 | feature::MRG_RXBUF, AT_ONCE, 4096);
    comes(&mut card, &[60, 61]);
    card.turn(&guest.memory, NOW);
    assert_eq!(came(&mut guest), [[60, 61]]);
    card.forget();
    comes(&mut card, &[60, 61]);
    card.turn(&guest.memory, NOW);
    assert_eq!(came(&mut guest), [[60], [61]]);
}
