//! Chunks both ways.

use core::time::Duration;
use std::collections::VecDeque;
use std::vec::Vec;

use wireboot_wire::card::hello::{CHUNKS, Chunks, Hello, Kind};

use super::Bytes;
use crate::card::{Beyond, Card};
use crate::coalesce::Limits;
use crate::feature;
use crate::header::Header;
use crate::ring::RingFault;
use crate::testing::{Guest, Script, chunk_of, units_of};

const FRAME_MAX: usize = 1518;

fn frame(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let len = 14 + usize::from(bytes.u16()) % (FRAME_MAX - 13);
    let seed = bytes.u8();
    // No ethertype of the card's own.
    (0..len).map(|n| seed ^ (n / 3) as u8 & 0x7f).collect()
}

/// A card with frames on its wire, and a guest that has asked for chunks, that turns it and takes what came as `data` says: each frame comes, once, in
/// order, and none later than its time.
///
/// # Panics
/// When one does not.
pub fn fuzz_card_chunks(data: &[u8]) {
    let mut bytes = Bytes(data);
    let kind = bytes.u8();
    if kind & 1 == 0 {
        return to_card(&mut bytes, kind);
    }
    let mergeable = kind & 2 != 0;
    let features = feature::VERSION_1 | if mergeable { feature::MRG_RXBUF } else { 0 };
    // All of the ring has room for a frame, of a queue without MRG_RXBUF each buffer.
    let least = if mergeable { 256 } else { 1600 };
    let piece = u32::from(bytes.u16()).max(least);
    let pieces = [12 + piece / 2, piece - piece / 2];
    let limits = Limits {
        frames: 1 + usize::from(bytes.u8()) % 60,
        bytes: usize::from(bytes.u16()),
        wait: Duration::from_micros(bytes.u8().into()),
    };
    let mut guest = Guest::new(16, features);
    let mut card = Card::new(Script::default());
    card.offer(Beyond {
        chunks: Some(limits),
        ..Beyond::default()
    });
    guest.start(&mut card).unwrap();
    let question = Hello {
        kind: Kind::Question,
        source: [2; 6],
        token: 1,
        features: CHUNKS,
        chunks: Chunks {
            frames: u16::MAX,
            bytes: u32::MAX,
            micros: u32::MAX,
        },
    };
    guest.send(Header::default(), &question.emit(), &[], false);
    guest.transmit.publish(&guest.memory);
    while guest.offer(&pieces) {}
    guest.receive.publish(&guest.memory);
    let mut now = Duration::ZERO;
    card.turn(&guest.memory, now);
    let (_, answer, _) = guest.received().expect("no answer");
    assert_eq!(Hello::parse(&answer).unwrap().features, CHUNKS);
    let mut expected = VecDeque::new();
    while !bytes.0.is_empty() {
        match bytes.u8() % 4 {
            0 => now += Duration::from_micros(bytes.u8().into()),
            1 => {
                let frame = frame(&mut bytes);
                expected.push_back(frame.clone());
                card.wire_mut().coming.push_back((Header::default(), frame));
            }
            2 => {
                while guest.offer(&pieces) {}
                guest.receive.publish(&guest.memory);
            }
            _ => {
                let turn = card.turn(&guest.memory, now);
                assert_eq!((turn.receive_fault, turn.transmit_fault), (None, None));
                let due = card.due();
                assert!(due.is_none_or(|due| due > now && due <= now + limits.wait));
                while let Some((header, chunk, _)) = guest.received() {
                    for (header, unit) in units_of(header, &chunk) {
                        assert_eq!(header, Header::default());
                        assert!(Some(unit) == expected.pop_front(), "another frame");
                    }
                }
                let left = card.wire().coming.len();
                assert!(due.is_some() || turn.no_room || expected.len() == left);
            }
        }
    }
    let counters = card.counters();
    assert_eq!(counters.receive_too_long, 0);
    assert!(counters.received_chunk_units >= 2 * counters.received_chunks);
}

/// A guest's chunk: as the format says, or with bytes that are changed. Its units come to the wire, or its queue is stopped.
fn to_card(bytes: &mut Bytes<'_>, kind: u8) {
    let mut guest = Guest::new(16, feature::VERSION_1);
    let mut card = Card::new(Script::default());
    guest.start(&mut card).unwrap();
    let units: Vec<_> = (0..1 + bytes.u8() % 40)
        .map(|_| (Header::default(), frame(bytes)))
        .collect();
    let (header, mut chunk) = chunk_of(&units);
    let changes = kind >> 1 & 3;
    for _ in 0..changes {
        let (at, value) = (usize::from(bytes.u16()), bytes.u8());
        if let Some(byte) = chunk.get_mut(at) {
            *byte = value;
        }
    }
    let pieces = [1 + u32::from(bytes.u8()), u32::from(bytes.u16())];
    guest.send(header, &chunk, &pieces, false);
    guest.transmit.publish(&guest.memory);
    let turn = card.turn(&guest.memory, Duration::ZERO);
    let counters = card.counters();
    assert!(counters.sent.bytes <= chunk.len() as u64);
    match turn.transmit_fault {
        None => assert_eq!(guest.transmit.returned(&guest.memory), 1),
        Some(fault) => assert!(matches!(fault, RingFault::Header | RingFault::TooShort)),
    }
    if changes == 0 {
        assert_eq!(turn.transmit_fault, None);
        assert_eq!(card.wire().sent, units);
        if units.len() > 1 {
            let chunks = (counters.sent_chunks, counters.sent_chunk_units);
            assert_eq!(chunks, (1, units.len() as u64));
        }
    }
}
