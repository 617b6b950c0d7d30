//! A whole card between a guest made of software and a wire that keeps what it gets.

mod chunks;
mod driver;
mod hello;
mod placement;

use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

use super::*;
use crate::feature;
use crate::header::Header;
use crate::testing::{Guest, Loopback, Script, fuzz_card_rings};

const NOW: Duration = Duration::ZERO;

/// Any of the features that the card offers.
fn features() -> impl Strategy<Value = u64> {
    any::<u64>().prop_map(|bits| bits & feature::KNOWN)
}

fn frame(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|n| (n as u8).wrapping_mul(31) ^ seed)
        .collect()
}

/// Turns until nothing moves.
fn turn_until_idle(card: &mut Card<Script>, guest: &Guest) {
    while card.turn(&guest.memory, NOW).units != 0 {}
}

/// More buffers than are counted off before those behind them are moved, and never all of them given back.
#[test]
fn buffers_that_were_looked_at_are_filled_in_order() {
    let mut guest = Guest::new(16, feature::RINGS);
    let mut card = Card::new(Script::default());
    guest.start(&mut card).unwrap();
    for n in 0..3 * usize::from(crate::MAX_RING) {
        while guest.offer(&[600]) {}
        guest.receive.publish(&guest.memory);
        let unit = frame(60 + n % 1400, n as u8);
        let needed = (unit.len() + Header::len(feature::RINGS)).div_ceil(600);
        card.wire_mut()
            .coming
            .push_back((Header::default(), unit.clone()));
        turn_until_idle(&mut card, &guest);
        let (_, got, buffers) = guest.received().unwrap();
        assert!(got == unit, "unit {n}");
        assert_eq!(usize::from(buffers), needed);
    }
    assert_eq!(card.counters().stopped().count(), 0);
}

proptest! {
    #[test]
    fn what_the_guest_sends_comes_to_the_wire(
        features in features(),
        frames in vec((14..1600usize, vec(0..200u32, 0..4), any::<bool>()), 1..40),
    ) {
        let mut guest = Guest::new(16, features);
        let mut card = Card::new(Script::default());
        guest.start(&mut card).unwrap();
        let mut expected = Vec::new();
        for (n, (len, pieces, indirect)) in frames.into_iter().enumerate() {
            let frame = frame(len, n as u8);
            let indirect = indirect && features & feature::INDIRECT_DESC != 0;
            if !guest.send(Header::default(), &frame, &pieces, indirect) {
                guest.transmit.publish(&guest.memory);
                turn_until_idle(&mut card, &guest);
                while guest.transmit.take(&guest.memory).is_some() {}
                prop_assert!(guest.send(Header::default(), &frame, &pieces, indirect));
            }
            expected.push((Header::default(), frame));
        }
        guest.transmit.publish(&guest.memory);
        turn_until_idle(&mut card, &guest);
        prop_assert_eq!(card.counters().sent.units, expected.len() as u64);
        let bytes: usize = expected.iter().map(|(_, frame)| frame.len()).sum();
        prop_assert_eq!(card.counters().sent.bytes, bytes as u64);
        prop_assert_eq!(&card.wire().sent, &expected);
        prop_assert!(card.wire().flushes > 0);
    }

    #[test]
    fn what_the_wire_has_comes_to_the_guest(
        features in features(),
        units in vec(14..1519usize, 1..40),
        pieces in vec(1..600u32, 1..4),
    ) {
        let mergeable = features & feature::MRG_RXBUF != 0;
        let mut pieces = pieces;
        pieces[0] += 40;
        if !mergeable {
            pieces.push(1530);
        }
        let mut guest = Guest::new(64, features);
        let mut card = Card::new(Script::default());
        guest.start(&mut card).unwrap();
        let units: Vec<_> = units.iter().enumerate().map(|(n, len)| frame(*len, n as u8)).collect();
        card.wire_mut().coming = units.iter().map(|unit| (Header::default(), unit.clone())).collect();
        let mut got = Vec::new();
        while got.len() < units.len() {
            while guest.offer(&pieces) {}
            guest.receive.publish(&guest.memory);
            let turn = card.turn(&guest.memory, NOW);
            let mut count = 0;
            while let Some((header, unit, buffers)) = guest.received() {
                prop_assert_eq!(header, Header::default());
                let one: u32 = pieces.iter().sum();
                let needed = (unit.len() + Header::len(features)).div_ceil(one as usize);
                prop_assert_eq!(usize::from(buffers), needed);
                got.push(unit);
                count += 1;
            }
            prop_assert_eq!(turn.units, count);
            prop_assert!(count > 0, "nothing moves");
        }
        prop_assert_eq!(got, units);
    }

    /// Whoever goes to sleep after a look is woken.
    #[test]
    fn no_wake_up_is_lost(features in features(), steps in vec(0..5u8, 1..200)) {
        let mut guest = Guest::new(16, features);
        let mut card = Card::new(Loopback::default());
        guest.start(&mut card).unwrap();
        // What each side waits for: then the other must ring or call.
        let (mut asleep, mut waits) = (None, false);
        guest.receive.want_call(&guest.memory, false);
        for step in steps {
            let mut rings = [false; 2];
            match step {
                0 => {
                    guest.send(Header::default(), &frame(60, 1), &[], false);
                    rings[1] = guest.transmit.publish(&guest.memory);
                    let new = guest.transmit.returned(&guest.memory) == 0;
                    if asleep.is_some() && new && card.wants(&guest, Queue::Transmit) {
                        prop_assert!(rings[1], "the card sleeps and has work");
                    }
                }
                1 => {
                    guest.offer(&[1600]);
                    rings[0] = guest.receive.publish(&guest.memory);
                    if asleep == Some(false) && card.wants(&guest, Queue::Receive) {
                        prop_assert!(rings[0], "the card waits for room and is not told");
                    }
                }
                2 => {
                    let armed = card.arm(&guest.memory);
                    asleep = (!armed.work).then_some(armed.wire);
                    if armed.work {
                        card.disarm(&guest.memory);
                    }
                    continue;
                }
                3 => {
                    while guest.received().is_some() {}
                    guest.receive.want_call(&guest.memory, true);
                    waits = true;
                    continue;
                }
                _ => {
                    card.disarm(&guest.memory);
                    asleep = None;
                    let before = guest.receive.returned(&guest.memory);
                    let turn = card.turn(&guest.memory, NOW);
                    let after = guest.receive.returned(&guest.memory);
                    if waits && before == 0 && after != 0 {
                        prop_assert!(turn.call_receive, "the guest waits and is not called");
                        waits = false;
                    }
                    while guest.transmit.take(&guest.memory).is_some() {}
                    continue;
                }
            }
            if rings != [false; 2] {
                card.disarm(&guest.memory);
                asleep = None;
            }
        }
    }

    #[test]
    fn a_hostile_guest_gets_nowhere(data in vec(any::<u8>(), 0..2000)) {
        fuzz_card_rings(&data);
    }
}

impl<W: Wire<crate::testing::VecMemory>> Card<W> {
    /// Whether there are buffers that this card has not looked at.
    fn wants(&mut self, guest: &Guest, queue: Queue) -> bool {
        let memory = &guest.memory;
        match queue {
            Queue::Receive => self.receive.running().is_some_and(|queue| {
                queue
                    .room(memory, 1518, 1518)
                    .is_ok_and(|room| room.is_some())
            }),
            Queue::Transmit => self
                .transmit
                .running()
                .is_some_and(|queue| queue.ring.available(memory, 1).is_ok_and(|n| n == 1)),
        }
    }
}

fn card_and_guest(features: u64) -> (Card<Script>, Guest) {
    let guest = Guest::new(16, features);
    let mut card = Card::new(Script::default());
    guest.start(&mut card).unwrap();
    (card, guest)
}

/// Sends so, and the fault that comes of it.
fn sends(features: u64, header: Header, len: usize) -> (Card<Script>, Option<RingFault>) {
    let (mut card, mut guest) = card_and_guest(features);
    assert!(guest.send(header, &frame(len, 0), &[], false));
    guest.transmit.publish(&guest.memory);
    let fault = card.turn(&guest.memory, NOW).transmit_fault;
    (card, fault)
}

#[test]
fn checksums_are_passed_on_both_ways() {
    let header = Header {
        flags: 1,
        csum_start: 34,
        csum_offset: 16,
        ..Header::default()
    };
    let (card, fault) = sends(feature::CSUM, header, 60);
    assert_eq!(fault, None);
    assert_eq!(card.wire().sent[0].0, header);

    let (mut card, mut guest) = card_and_guest(feature::GUEST_CSUM);
    guest.offer(&[2000]);
    guest.receive.publish(&guest.memory);
    card.wire_mut().coming.push_back((header, frame(60, 0)));
    card.turn(&guest.memory, NOW);
    assert_eq!(guest.received().unwrap().0, header);
}

#[test]
fn a_header_beyond_what_was_agreed_on_stops_the_queue() {
    let header = Header {
        flags: 1,
        csum_start: 34,
        csum_offset: 16,
        ..Header::default()
    };
    let (mut card, fault) = sends(0, header, 60);
    assert_eq!(fault, Some(RingFault::Header));
    assert_eq!(
        card.counters().stopped().next(),
        Some((RingFault::Header, 1))
    );
    // It was not taken, so it is the first when the queue starts again.
    assert_eq!(card.stop(Queue::Transmit), Some(0));
}

#[test]
fn a_unit_that_was_not_agreed_on_is_dropped() {
    let (mut card, mut guest) = card_and_guest(0);
    guest.offer(&[2000]);
    guest.receive.publish(&guest.memory);
    let header = Header {
        flags: 1,
        ..Header::default()
    };
    let coming = [(header, frame(60, 1)), (Header::default(), frame(61, 2))];
    card.wire_mut().coming.extend(coming);
    card.turn(&guest.memory, NOW);
    assert_eq!(guest.received().unwrap().1, frame(61, 2));
    assert_eq!(card.counters().receive_not_agreed, 1);
}

#[test]
fn frames_that_are_none_are_counted_and_given_back() {
    let (mut card, mut guest) = card_and_guest(0);
    for len in [0, 13, 65_554] {
        assert!(guest.send(Header::default(), &frame(len, 0), &[], false));
    }
    assert!(guest.send(Header::default(), &frame(14, 0), &[], false));
    guest.transmit.publish(&guest.memory);
    let turn = card.turn(&guest.memory, NOW);
    assert_eq!((turn.units, turn.transmit_fault), (4, None));
    assert_eq!(card.counters().send_bad_length, 3);
    assert_eq!(card.wire().sent.len(), 1);
    assert_eq!(guest.transmit.returned(&guest.memory), 4);
}

#[test]
fn a_buffer_without_room_for_the_header_stops_the_queue() {
    let (mut card, mut guest) = card_and_guest(feature::VERSION_1);
    guest.offer(&[11]);
    guest.receive.publish(&guest.memory);
    card.wire_mut()
        .coming
        .push_back((Header::default(), frame(60, 0)));
    let turn = card.turn(&guest.memory, NOW);
    assert_eq!(turn.receive_fault, Some(RingFault::TooShort));
}

#[test]
fn what_is_longer_than_the_room_is_lost_and_counted() {
    let (mut card, mut guest) = card_and_guest(feature::VERSION_1);
    guest.offer(&[12 + 1500]);
    guest.receive.publish(&guest.memory);
    let coming = [frame(1501, 0), frame(1500, 1)].map(|frame| (Header::default(), frame));
    card.wire_mut().coming.extend(coming);
    let turn = card.turn(&guest.memory, NOW);
    assert_eq!(turn.units, 2);
    assert_eq!(card.counters().receive_too_long, 1);
    assert_eq!(guest.received().unwrap().1, frame(1500, 1));
}

/// A wire that says more than there was room for.
struct Liar;

impl<M> Wire<M> for Liar {
    fn offloads(&self) -> u64 {
        0
    }
    fn agree(&mut self, _: u64) {}
    fn max_unit(&self) -> usize {
        100
    }
    fn send(&mut self, _: &M, _: &crate::Unit<'_>, _: Duration) -> bool {
        true
    }
    fn flush(&mut self) {}
    fn receive(&mut self, _: &M, _: &[crate::Span], _: Duration) -> Received {
        Received::Unit {
            header: Header::default(),
            len: usize::MAX,
        }
    }
}

#[test]
fn no_wire_makes_a_unit_longer_than_its_buffers() {
    let mut guest = Guest::new(16, 0);
    let mut card = Card::new(Liar);
    guest.start(&mut card).unwrap();
    guest.offer(&[200]);
    guest.receive.publish(&guest.memory);
    card.turn(&guest.memory, NOW);
    assert_eq!(guest.receive.returned(&guest.memory), 0);
    assert!(card.counters().receive_too_long > 0);
}

#[test]
fn the_wire_is_not_asked_without_room() {
    for more in [0, feature::EVENT_IDX] {
        without_room(feature::MRG_RXBUF | more);
    }
}

fn without_room(features: u64) {
    let (mut card, mut guest) = card_and_guest(features);
    guest.offer(&[1000]);
    guest.receive.publish(&guest.memory);
    card.wire_mut()
        .coming
        .push_back((Header::default(), frame(60, 0)));
    let turn = card.turn(&guest.memory, NOW);
    assert!(turn.no_room && turn.units == 0);
    assert_eq!(card.wire().coming.len(), 1);
    let armed = card.arm(&guest.memory);
    assert!(!armed.work && !armed.wire);
    // The one buffer is not looked at again, the second is asked for.
    guest.offer(&[1000]);
    assert!(guest.receive.publish(&guest.memory));
    card.disarm(&guest.memory);
    assert_eq!(card.turn(&guest.memory, NOW).units, 1);
    assert_eq!(card.counters().no_room, 2);
}

#[test]
fn what_the_wire_refuses_is_counted_and_given_back() {
    let (mut card, mut guest) = card_and_guest(0);
    card.wire_mut().takes = Some(1);
    for n in 0..3 {
        guest.send(Header::default(), &frame(60, n), &[], false);
    }
    guest.transmit.publish(&guest.memory);
    card.turn(&guest.memory, NOW);
    let counters = card.counters();
    assert_eq!((counters.sent.units, counters.send_lost), (1, 2));
    assert_eq!(guest.transmit.returned(&guest.memory), 3);
}

#[test]
fn a_queue_that_discards_loses_what_is_sent_until_its_next_start() {
    let (mut card, mut guest) = card_and_guest(0);
    card.stop(Queue::Transmit);
    for (base, discards) in [(0, true), (1, false)] {
        card.discard(discards);
        let start = guest.start_of(Queue::Transmit, base);
        card.start(&guest.memory, Queue::Transmit, start).unwrap();
        assert_eq!(card.runs(Queue::Transmit), !discards);
        guest.send(Header::default(), &frame(60, 0), &[], false);
        guest.transmit.publish(&guest.memory);
        assert_eq!(card.turn(&guest.memory, NOW).units, 1);
        assert_eq!(card.wire().sent.is_empty(), discards);
        assert_eq!(card.stop(Queue::Transmit), Some(base + 1));
    }
    assert_eq!(card.counters().send_lost, 1);
    assert_eq!(guest.transmit.returned(&guest.memory), 2);
}

#[test]
fn a_card_that_is_stopped_touches_nothing_and_starts_where_it_was() {
    let (mut card, mut guest) = card_and_guest(feature::EVENT_IDX);
    for n in 0..3 {
        guest.send(Header::default(), &frame(60, n), &[], false);
    }
    guest.transmit.publish(&guest.memory);
    card.turn(&guest.memory, NOW);
    assert_eq!(card.stop(Queue::Transmit), Some(3));
    assert_eq!(card.stop(Queue::Receive), Some(0));
    guest.send(Header::default(), &frame(60, 3), &[], false);
    guest.transmit.publish(&guest.memory);
    let before = guest.memory.snapshot();
    assert_eq!(card.turn(&guest.memory, NOW), Turn::default());
    card.arm(&guest.memory);
    card.disarm(&guest.memory);
    assert_eq!(guest.memory.snapshot(), before);
    let start = guest.start_of(Queue::Transmit, 3);
    card.start(&guest.memory, Queue::Transmit, start).unwrap();
    card.turn(&guest.memory, NOW);
    assert_eq!(card.wire().sent[3].1, frame(60, 3));
    assert_eq!(guest.transmit.returned(&guest.memory), 4);
}

#[test]
fn a_ring_that_cannot_start_is_counted_and_keeps_its_base() {
    let (mut card, guest) = card_and_guest(0);
    let mut start = guest.start_of(Queue::Receive, 7);
    start.layout.used = 0;
    let result = card.start(&guest.memory, Queue::Receive, start);
    assert_eq!(result, Err(RingFault::Unmapped));
    assert_eq!(
        card.counters().stopped().next(),
        Some((RingFault::Unmapped, 1))
    );
    assert_eq!(card.stop(Queue::Receive), Some(7));
}

#[test]
fn a_fault_found_before_a_wait_is_told_and_not_waited_with() {
    let (mut card, mut guest) = card_and_guest(0);
    guest.offer(&[5]);
    guest.receive.publish(&guest.memory);
    assert!(card.arm(&guest.memory).work);
    let turn = card.turn(&guest.memory, NOW);
    assert_eq!(turn.receive_fault, Some(RingFault::TooShort));
    assert_eq!(card.turn(&guest.memory, NOW).receive_fault, None);
}

#[test]
fn a_fault_of_one_queue_leaves_the_other() {
    let (mut card, mut guest) = card_and_guest(0);
    let running =
        |card: &Card<Script>| [Queue::Receive, Queue::Transmit].map(|queue| card.runs(queue));
    assert_eq!(running(&card), [true, true]);
    guest.offer(&[5]);
    guest.receive.publish(&guest.memory);
    assert!(card.turn(&guest.memory, NOW).receive_fault.is_some());
    assert_eq!(running(&card), [false, true]);
    guest.send(Header::default(), &frame(60, 0), &[], false);
    guest.transmit.publish(&guest.memory);
    let turn = card.turn(&guest.memory, NOW);
    assert_eq!((turn.units, turn.receive_fault), (1, None));
    card.stop(Queue::Transmit);
    assert_eq!(running(&card), [false, false]);
}

#[test]
fn calls_are_for_guests_that_want_them() {
    for features in [0, feature::EVENT_IDX] {
        let (mut card, mut guest) = card_and_guest(features);
        // The first call comes in any case with EVENT_IDX.
        guest.send(Header::default(), &frame(60, 0), &[], false);
        guest.transmit.publish(&guest.memory);
        card.turn(&guest.memory, NOW);
        guest.transmit.want_call(&guest.memory, false);
        guest.send(Header::default(), &frame(60, 0), &[], false);
        guest.transmit.publish(&guest.memory);
        assert!(!card.turn(&guest.memory, NOW).call_transmit);
        while guest.transmit.take(&guest.memory).is_some() {}
        guest.transmit.want_call(&guest.memory, true);
        guest.send(Header::default(), &frame(60, 0), &[], false);
        guest.transmit.publish(&guest.memory);
        assert!(card.turn(&guest.memory, NOW).call_transmit);
        assert_eq!(card.counters().calls, 2);
    }
}

#[test]
fn a_guest_that_has_less_than_the_longest_unit_gets_what_fits() {
    let (mut card, mut guest) = card_and_guest(feature::MRG_RXBUF);
    card.wire_mut().max_unit = Some(65_553);
    let frames = [
        frame(60, 0),
        frame(15_988, 1),
        frame(15_989, 2),
        frame(1500, 3),
    ];
    let coming = frames.clone().map(|frame| (Header::default(), frame));
    card.wire_mut().coming.extend(coming);
    for _ in 0..15 {
        guest.offer(&[1000]);
    }
    guest.receive.publish(&guest.memory);
    // One buffer is missing.
    let turn = card.turn(&guest.memory, NOW);
    assert!(turn.no_room && turn.units == 0);
    let mut got = Vec::new();
    while !card.wire().coming.is_empty() {
        while guest.offer(&[1000]) {}
        guest.receive.publish(&guest.memory);
        assert_eq!(card.turn(&guest.memory, NOW).receive_fault, None);
        while let Some((_, unit, _)) = guest.received() {
            got.push(unit);
        }
    }
    assert_eq!(got, [&frames[0], &frames[1], &frames[3]].map(Vec::clone));
    assert_eq!(card.counters().receive_too_long, 1);
}

#[test]
fn a_frame_that_is_kept_is_no_unit_and_others_follow() {
    use crate::testing::packets::{Link, udp};
    let agreed = feature::MRG_RXBUF | feature::GUEST_CSUM | feature::GUEST_UFO;
    let mut guest = Guest::new(64, agreed);
    let mut card = Card::new(crate::Offload::new(Script::default()));
    Wire::<crate::testing::VecMemory>::agree(card.wire_mut(), agreed);
    guest.start(&mut card).unwrap();
    while guest.offer(&[2000]) {}
    guest.receive.publish(&guest.memory);
    let link = Link {
        v6: false,
        tagged: false,
        id: 1,
        host: 1,
    };
    let mut fragment = udp(link, &frame(1000, 1));
    // More fragments; with its checksum.
    fragment[20] = 0x20;
    fragment[24] -= 0x20;
    let coming = [fragment, frame(60, 2)].map(|frame| (Header::default(), frame));
    card.wire_mut().wire_mut().coming.extend(coming);
    let turn = card.turn(&guest.memory, NOW);
    assert_eq!((turn.units, turn.no_room), (2, false));
    assert_eq!(guest.received().unwrap().1, frame(60, 2));
    assert_eq!(card.counters().received.units, 1);
    assert_eq!(card.wire().counters().waiting_fragments, 1);
}

#[test]
fn room_for_a_frame_is_enough_where_the_card_joins() {
    let agreed = feature::MRG_RXBUF | feature::GUEST_CSUM | feature::GUEST_TSO4;
    let mut guest = Guest::new(64, agreed);
    let mut card = Card::new(crate::Offload::new(Script::default()));
    Wire::<crate::testing::VecMemory>::agree(card.wire_mut(), agreed);
    guest.start(&mut card).unwrap();
    guest.offer(&[2000]);
    guest.receive.publish(&guest.memory);
    let coming = [1, 2].map(|n| (Header::default(), frame(60, n)));
    card.wire_mut().wire_mut().coming.extend(coming);
    assert!(card.arm(&guest.memory).wire);
    let turn = card.turn(&guest.memory, NOW);
    assert_eq!((turn.units, turn.no_room), (1, true));
    assert_eq!(guest.received().unwrap().1, frame(60, 1));
}
