//! Units that are cut and joined between guest memory and a wire that keeps frames.

mod datagrams;
mod segments;
mod split;

use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

use super::*;
use crate::testing::packets::{Link, completed};
use crate::testing::{Script, VecMemory, fuzz_card_fragments, fuzz_card_headers};

const NOW: Duration = Duration::ZERO;
const BASE: u64 = 0x1000;

/// A wire that takes frames alone, completes their checksums and keeps them. What comes, comes in bursts with nothing between.
#[derive(Debug, Default)]
struct Frames {
    sent: Vec<Vec<u8>>,
    /// Units that it has taken before it takes no more.
    takes: Option<usize>,
    coming: VecDeque<Option<(Header, Vec<u8>)>>,
}

impl Wire<VecMemory> for Frames {
    fn offloads(&self) -> u64 {
        feature::CSUM
    }

    fn agree(&mut self, _: u64) {}

    fn max_unit(&self) -> usize {
        1518
    }

    fn send(&mut self, memory: &VecMemory, unit: &Unit<'_>, _: Duration) -> bool {
        if self.takes.is_some_and(|takes| takes == self.sent.len()) {
            return false;
        }
        assert_eq!(unit.header.gso_type, GSO_NONE);
        let mut frame = unit.head.to_vec();
        let mut rest = vec![0; unit.len - frame.len()];
        assert_eq!(gather(memory, unit.spans, &mut rest), Ok(true));
        frame.extend(rest);
        self.sent.push(completed(unit.header, &frame));
        true
    }

    fn flush(&mut self) {}

    fn receive(&mut self, memory: &VecMemory, room: &[Span], _: Duration) -> Received {
        let Some((header, frame)) = self.coming.pop_front().flatten() else {
            return Received::Nothing;
        };
        let space: usize = room.iter().map(|span| span.len as usize).sum();
        assert!(space >= 1518, "asked without room");
        assert_eq!(scatter(memory, room, &frame), Ok(true));
        Received::Unit {
            header,
            len: frame.len(),
        }
    }
}

fn card(agreed: u64) -> Offload<Frames> {
    let mut card = Offload::new(Frames::default());
    Wire::<VecMemory>::agree(&mut card, agreed);
    card
}

/// Memory for a unit and what comes behind, in pieces of these lengths and a rest.
fn memory(pieces: &[u32]) -> (VecMemory, Vec<Span>) {
    let memory = VecMemory::new(BASE, 0x30000);
    let mut spans = Vec::new();
    let mut address = BASE;
    for &len in pieces.iter().chain([&0x20000]) {
        spans.push(Span { address, len });
        address += u64::from(len) + 1;
    }
    (memory, spans)
}

/// Has the guest send this.
fn send(card: &mut Offload<Frames>, header: Header, bytes: &[u8], pieces: &[u32]) -> bool {
    let (memory, mut spans) = memory(pieces);
    assert_eq!(scatter(&memory, &spans, bytes), Ok(true));
    keep(&mut spans, bytes.len());
    let unit = Unit {
        header,
        head: &[],
        spans: &spans,
        len: bytes.len(),
    };
    card.send(&memory, &unit, NOW)
}

/// All that comes to the guest, across times when the wire has nothing.
fn receive(card: &mut Offload<Frames>, pieces: &[u32], now: Duration) -> Vec<(Header, Vec<u8>)> {
    let (memory, room) = memory(pieces);
    let mut units = Vec::new();
    loop {
        // Else leftovers may look like what was to come.
        let before: Vec<u8> = (0..0x20000usize).map(|n| n as u8 ^ 0x5a).collect();
        memory.write(BASE, &before).unwrap();
        let untouched = memory.snapshot();
        match card.receive(&memory, &room, now) {
            Received::Unit { header, len } => {
                let mut bytes = vec![0; len];
                assert_eq!(gather(&memory, &room, &mut bytes), Ok(true));
                units.push((header, bytes));
            }
            Received::Kept => {}
            Received::Nothing if card.wire.coming.is_empty() => {
                assert_eq!(memory.snapshot(), untouched, "writes without a unit");
                return units;
            }
            Received::Nothing => {}
            Received::TooLong => panic!("too long"),
        }
    }
}

fn link() -> impl Strategy<Value = Link> {
    (any::<bool>(), any::<bool>(), any::<u16>()).prop_map(|(v6, tagged, id)| Link {
        v6,
        tagged,
        id,
        host: 1,
    })
}

#[test]
fn the_card_offers_what_the_wire_lacks() {
    let card = card(0);
    let offloads = Wire::<VecMemory>::offloads(&card);
    let all = feature::KNOWN & !feature::RINGS;
    let lacked = feature::GUEST_ECN | feature::GUEST_USO4 | feature::GUEST_USO6;
    assert_eq!(offloads, all & !lacked);
    assert_eq!(feature::consistent(offloads), offloads);
}

#[test]
fn units_stay_with_the_guest_while_the_wire_is_busy() {
    for is_busy in [true, false] {
        let card = Offload::new(Script {
            is_busy,
            ..Script::default()
        });
        assert_eq!(Wire::<VecMemory>::takes(&card), !is_busy);
    }
}

#[test]
fn there_is_room_for_what_was_agreed_on() {
    let room = |agreed| {
        let card = card(agreed);
        let card: &dyn Wire<VecMemory> = &card;
        (card.max_unit(), card.useful_room())
    };
    assert_eq!(room(feature::GUEST_CSUM), (1518, 1518));
    let datagrams = feature::GUEST_CSUM | feature::GUEST_UFO;
    assert_eq!(room(datagrams), (LONGEST_UNIT, LONGEST_UNIT));
    let segments = feature::GUEST_CSUM | feature::GUEST_TSO6;
    assert_eq!(room(segments), (1518, LONGEST_UNIT + 1518));
    // A guest that has not agreed to what that needs has not agreed to it.
    assert_eq!(room(feature::GUEST_TSO6), (1518, 1518));
}

proptest! {
    #[test]
    fn no_header_makes_it_break_a_promise(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz_card_headers(&data);
    }

    #[test]
    fn no_fragment_makes_it_break_a_promise(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz_card_fragments(&data);
    }
}

/// A place that the field of a fragment cannot say is none that it says.
#[test]
fn fragments_beyond_the_field_are_not_expected() {
    fuzz_card_fragments(&[
        0xff, 0x60, 0xff, 0xff, 0x01, 0x00, 0x00, 0x00, 0xff, 0x0a, 0x00, 0xde,
    ]);
}
