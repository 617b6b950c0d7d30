//! A guest's question to the card itself, in whatever state its queues are.

use super::*;
use wireboot_wire::card::hello::{CHUNKS, Chunks, DATAGRAMS, Hello, Kind, LEN};
use wireboot_wire::card::{GROUP, MARK};

const MESSAGES: u64 = feature::MRG_RXBUF | feature::GUEST_CSUM | feature::GUEST_UFO;

fn question(token: u64) -> Hello {
    Hello {
        kind: Kind::Question,
        source: [2, 0, 0, 0, 0, 9],
        token,
        features: DATAGRAMS | CHUNKS | 1 << 30,
        chunks: Chunks {
            frames: 43,
            bytes: 65_536,
            micros: 100,
        },
    }
}

/// Sends it as a frame that lies in pieces.
fn ask(guest: &mut Guest, frame: &[u8]) {
    assert!(guest.send(Header::default(), frame, &[20, 3], false));
    guest.transmit.publish(&guest.memory);
}

/// The one answer that the guest has got.
fn answered(guest: &mut Guest) -> Hello {
    let (header, unit, _) = guest.received().unwrap();
    let marked = Header {
        gso_type: MARK,
        ..Header::default()
    };
    assert_eq!((header, unit.len()), (marked, LEN));
    assert!(guest.received().is_none());
    Hello::parse(&unit).unwrap()
}

fn offer(guest: &mut Guest) {
    guest.offer(&[2000]);
    guest.receive.publish(&guest.memory);
}

#[test]
fn the_card_answers_and_sends_nothing_on() {
    for (features, does) in [(MESSAGES, DATAGRAMS), (feature::MRG_RXBUF, 0), (0, 0)] {
        let (mut card, mut guest) = card_and_guest(features);
        offer(&mut guest);
        ask(&mut guest, &question(77).emit());
        let turn = card.turn(&guest.memory, NOW);
        assert_eq!((turn.transmit_fault, turn.receive_fault), (None, None));
        let answer = Hello {
            kind: Kind::Answer,
            features: does,
            chunks: Chunks::default(),
            ..question(77)
        };
        assert_eq!(answered(&mut guest), answer);
        assert!(card.wire().sent.is_empty());
        let counters = card.counters();
        assert_eq!((counters.hellos, counters.sent.units), (1, 0));
        assert_eq!(counters.received.units, 0);
        assert_eq!(guest.transmit.returned(&guest.memory), 1);
    }
}

#[test]
fn only_what_the_driver_understands_is_agreed() {
    let (mut card, mut guest) = card_and_guest(MESSAGES);
    offer(&mut guest);
    let asks = Hello {
        features: CHUNKS,
        ..question(1)
    };
    ask(&mut guest, &asks.emit());
    card.turn(&guest.memory, NOW);
    assert_eq!(answered(&mut guest).features, 0);
}

#[test]
fn an_answer_waits_for_room_and_the_last_question_counts() {
    let (mut card, mut guest) = card_and_guest(MESSAGES);
    ask(&mut guest, &question(1).emit());
    ask(&mut guest, &question(2).emit());
    assert!(card.turn(&guest.memory, NOW).no_room);
    // Room that came between the turn and the look before a wait.
    offer(&mut guest);
    assert!(card.arm(&guest.memory).work);
    card.disarm(&guest.memory);
    card.turn(&guest.memory, NOW);
    assert_eq!(answered(&mut guest).token, 2);
    assert!(!card.arm(&guest.memory).work);
}

#[test]
fn a_driver_that_begins_anew_has_asked_nothing() {
    for (base, answers) in [(0, false), (1, true)] {
        let (mut card, mut guest) = card_and_guest(MESSAGES);
        ask(&mut guest, &question(1).emit());
        card.turn(&guest.memory, NOW);
        assert_eq!(card.stop(Queue::Transmit), Some(1));
        let start = guest.start_of(Queue::Transmit, base);
        if base == 0 {
            // A new ring, in which nothing was offered.
            guest.transmit = crate::testing::GuestRing::new(
                start.layout.descriptors,
                start.layout.size,
                MESSAGES,
            );
            guest
                .memory
                .store(
                    start.layout.available + 2,
                    0,
                    core::sync::atomic::Ordering::Relaxed,
                )
                .unwrap();
        }
        card.start(&guest.memory, Queue::Transmit, start).unwrap();
        offer(&mut guest);
        card.turn(&guest.memory, NOW);
        assert_eq!(guest.received().is_some(), answers, "base {base}");
    }
}

#[test]
fn what_is_no_question_is_counted_and_goes_nowhere() {
    let (mut card, mut guest) = card_and_guest(MESSAGES);
    offer(&mut guest);
    let answer = Hello {
        kind: Kind::Answer,
        ..question(1)
    };
    ask(&mut guest, &answer.emit());
    ask(&mut guest, &question(1).emit()[..LEN - 1]);
    ask(&mut guest, &question(1).emit()[..14]);
    let turn = card.turn(&guest.memory, NOW);
    assert_eq!(turn.transmit_fault, None);
    assert!(card.wire().sent.is_empty() && guest.received().is_none());
    let counters = card.counters();
    assert_eq!((counters.send_not_understood, counters.hellos), (3, 0));
    assert_eq!(guest.transmit.returned(&guest.memory), 3);
}

#[test]
fn other_frames_to_the_group_go_on_both_ways() {
    let (mut card, mut guest) = card_and_guest(MESSAGES);
    offer(&mut guest);
    // Its LLDP.
    let mut lldp = frame(60, 0);
    lldp[..6].copy_from_slice(&GROUP);
    lldp[12..14].copy_from_slice(&[0x88, 0xcc]);
    ask(&mut guest, &lldp);
    card.wire_mut()
        .coming
        .push_back((Header::default(), lldp.clone()));
    card.turn(&guest.memory, NOW);
    assert_eq!(card.wire().sent[0].1, lldp);
    assert_eq!(guest.received().unwrap().1, lldp);
}

#[test]
fn nobody_on_the_wire_speaks_for_the_card() {
    let (mut card, mut guest) = card_and_guest(MESSAGES);
    offer(&mut guest);
    let answer = Hello {
        kind: Kind::Answer,
        ..question(1)
    };
    let marked = Header {
        gso_type: MARK,
        gso_size: 1000,
        ..Header::default()
    };
    let coming = [
        (Header::default(), answer.emit().to_vec()),
        (Header::default(), question(1).emit().to_vec()),
        (marked, frame(60, 1)),
        (Header::default(), frame(60, 2)),
    ];
    card.wire_mut().coming.extend(coming);
    card.turn(&guest.memory, NOW);
    assert_eq!(
        guest.received().unwrap(),
        (Header::default(), frame(60, 2), 1)
    );
    let counters = card.counters();
    assert_eq!(
        (counters.receive_pretended, counters.receive_not_agreed),
        (2, 1)
    );
}

#[test]
fn a_guest_with_too_small_a_ring_loses_the_answer_and_not_the_card() {
    let (mut card, mut guest) = card_and_guest(0);
    guest.offer(&[30]);
    guest.receive.publish(&guest.memory);
    ask(&mut guest, &question(1).emit());
    let turn = card.turn(&guest.memory, NOW);
    assert_eq!(turn.receive_fault, None);
    assert_eq!(card.counters().receive_too_long, 1);
    assert!(guest.received().is_none());
}
