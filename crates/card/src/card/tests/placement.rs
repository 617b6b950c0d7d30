//! Placement by our own driver: whatever comes, in whichever order, the driver lends just that.

use core::cell::Cell;
use core::ops::Range;
use core::time::Duration;
use std::boxed::Box;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

use proptest::prelude::*;

use super::driver::{AT_ONCE, Memory, pair};
use crate::frame::{Ip, u32_at};
use crate::testing::packets::{Link, TcpFields, tcp};
use crate::testing::{Guest, Script};
use crate::{Beyond, Card, GuestMemory, Header, Queue, Span, Unmapped, feature};
use wireboot_nic::model::ModelPci;
use wireboot_nic::virtio::VirtioNet;
use wireboot_nic::{LentMemory, Nic, Offload, Receive, Transmit};
use wireboot_wire::card::placement::{Ends, NOTE_LEN, Note, PlacementRequest, Region};

/// The first byte's, so that the numbers begin anew in the middle.
const FIRST: u32 = 0xffff_c000;
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;
const VOUCHED: Header = Header {
    flags: 2,
    gso_type: 0,
    hdr_len: 0,
    gso_size: 0,
    csum_start: 0,
    csum_offset: 0,
};

fn ends(v6: bool, host: u8) -> Ends {
    let address = |last| {
        if v6 {
            [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
        } else {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]
        }
    };
    Ends {
        remote: address(host),
        local: address(2),
        remote_port: 8080,
        local_port: 80,
    }
}

fn stream(at: u32, len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| (((at as usize + n) * 31) >> 3) as u8)
        .collect()
}

/// The memory of a driver, of which the card's longest look is kept.
struct Watched {
    memory: Memory,
    longest: Cell<usize>,
}

impl GuestMemory for Watched {
    fn contains(&self, span: Span) -> bool {
        self.memory.contains(span)
    }
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Unmapped> {
        self.longest.set(self.longest.get().max(to.len()));
        self.memory.read(address, to)
    }
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        self.memory.write(address, from)
    }
    fn load(&self, address: u64, order: core::sync::atomic::Ordering) -> Result<u16, Unmapped> {
        self.memory.load(address, order)
    }
    fn store(
        &self,
        address: u64,
        value: u16,
        order: core::sync::atomic::Ordering,
    ) -> Result<(), Unmapped> {
        self.memory.store(address, value, order)
    }
}

/// What lies in a region lies where its sequence number belongs.
fn belong(parts: &[&[u8]], unit: &[u8], regions: &[(usize, usize, u32)]) {
    let mut before = 0;
    for part in parts {
        let place = part.as_ptr() as usize;
        let within =
            |(start, len, _): &&(usize, usize, u32)| (*start..start + len).contains(&place);
        if let Some((start, _, at)) = regions.iter().rev().find(within) {
            let ip = Ip::parse(unit).unwrap();
            let sequence = u32_at(unit, ip.end + 4).unwrap();
            let head = ip.end + usize::from(unit[ip.end + 12] >> 4) * 4;
            assert_eq!(
                sequence.wrapping_add((before - head) as u32),
                FIRST.wrapping_add(*at).wrapping_add((place - start) as u32)
            );
        }
        before += part.len();
    }
}

/// A driver that has agreed on placement with its card.
struct World {
    nic: VirtioNet<ModelPci>,
    card: Card<Script>,
    memory: Watched,
    /// Regions that were given back.
    gone: Arc<Mutex<usize>>,
    /// Where regions lie, how long they are, and where they belong in the stream.
    regions: Vec<(usize, usize, u32)>,
    /// What was given to the wire and has not been lent.
    expected: VecDeque<Vec<u8>>,
    v6: bool,
    options: bool,
}

impl World {
    fn new(features: u64, chunks: bool) -> Self {
        let wire = Script {
            max_unit: Some(9014),
            ..Script::default()
        };
        let (mut nic, mut card, memory) = pair(features, wire);
        card.offer(Beyond {
            chunks: chunks.then_some(AT_ONCE),
            placement: true,
        });
        nic.ask_card(99).unwrap();
        card.turn(&memory, Duration::ZERO);
        nic.split().0.burst(8, |_| panic!("a frame")).unwrap();
        assert!(nic.placer().is_some());
        Self {
            nic,
            card,
            memory: Watched {
                memory,
                longest: Cell::new(0),
            },
            gone: Arc::default(),
            regions: Vec::new(),
            expected: VecDeque::new(),
            v6: false,
            options: false,
        }
    }

    fn gone(&self) -> usize {
        *self.gone.lock().unwrap()
    }

    /// Has `len` bytes placed from byte `at` of the stream on. Where they are to be.
    fn place(&mut self, at: u32, len: usize) -> u64 {
        let memory = self.memory.memory.0.lend(len, &self.gone);
        let address = memory.device_address();
        let place = memory.bytes(0..len).as_ptr() as usize;
        self.regions.push((place, len, at));
        let ends = ends(self.v6, 1);
        let placer = self.nic.placer().unwrap();
        placer
            .place(&ends, FIRST.wrapping_add(at), Box::new(memory))
            .unwrap();
        self.nic.split().1.flush().unwrap();
        address
    }

    fn leave(&mut self) {
        let ends = ends(self.v6, 1);
        self.nic.placer().unwrap().leave(&ends).unwrap();
        self.nic.split().1.flush().unwrap();
    }

    fn fields(&self, at: u32, flags: u8) -> TcpFields {
        TcpFields {
            port: 8080,
            sequence: FIRST.wrapping_add(at),
            flags,
            options: self.options,
        }
    }

    fn link(&self, host: u8) -> Link {
        Link {
            v6: self.v6,
            tagged: false,
            id: 1,
            host,
        }
    }

    /// A segment of this host comes.
    fn of_host(&mut self, host: u8, header: Header, at: u32, len: usize, flags: u8) {
        let unit = tcp(self.link(host), self.fields(at, flags), &stream(at, len));
        self.unit(header, unit);
    }

    fn unit(&mut self, header: Header, unit: Vec<u8>) {
        self.card
            .wire_mut()
            .coming
            .push_back((header, unit.clone()));
        self.expected.push_back(unit);
    }

    /// A segment of the connection comes.
    fn segment(&mut self, at: u32, len: usize) {
        self.of_host(1, VOUCHED, at, len, ACK);
    }

    /// All that waits comes to the driver, as it was.
    fn turn(&mut self) {
        while !self.expected.is_empty() || !self.card.wire().coming.is_empty() {
            let turn = self.card.turn(&self.memory, Duration::ZERO);
            assert_eq!((turn.receive_fault, turn.transmit_fault), (None, None));
            let (expected, regions) = (&mut self.expected, &self.regions);
            let (mut rx, _) = self.nic.split();
            rx.burst(64, |frame| {
                let bytes = frame.parts.concat();
                assert_eq!(bytes.len(), frame.len);
                belong(frame.parts, &bytes, regions);
                assert_eq!(Some(bytes), expected.pop_front());
            })
            .unwrap();
        }
        // What is told alone.
        self.card.turn(&self.memory, Duration::ZERO);
        self.nic.split().0.burst(64, |_| panic!("a frame")).unwrap();
    }

    fn placed(&self) -> u64 {
        self.card.counters().placed.bytes
    }

    fn has(&self, address: u64, at: u32, len: usize) {
        let bytes = self.memory.memory.0.read_memory(address, len).unwrap();
        assert!(bytes == stream(at, len));
    }
}

/// Each size of a region and a unit; where the first region begins in a unit; IPv6, options, chunks.
#[test]
fn a_stream_goes_to_its_place() {
    for (v6, options, chunks) in [
        (false, false, false),
        (true, false, true),
        (false, true, true),
        (true, true, false),
    ] {
        let mut world = World::new(feature::KNOWN, chunks);
        (world.v6, world.options) = (v6, options);
        world.segment(0, 1000);
        world.turn();
        world.place(2500, 20_000);
        world.place(22_500, 7000);
        for at in (1000..29_500).step_by(1500) {
            world.segment(at, 1500);
        }
        world.turn();
        assert_eq!(world.placed(), 27_000);
        assert_eq!(world.gone(), 2);
        assert_eq!(world.card.counters().placements_refused, 0);
        world.segment(29_500, 1500);
        world.turn();
    }
}

/// The payload goes straight from the wire to its region: the card reads headers alone.
#[test]
fn the_card_copies_nothing() {
    let mut world = World::new(feature::KNOWN, false);
    world.place(0, 1 << 20);
    world.segment(0, 8000);
    world.turn();
    assert!(world.memory.longest.get() > 200, "the first one is copied");
    world.memory.longest.set(0);
    for n in 1..100 {
        world.segment(n * 8000, 8000);
    }
    world.turn();
    assert_eq!(world.placed(), 800_000);
    assert!(
        world.memory.longest.get() <= 138,
        "{:?}",
        world.memory.longest
    );
}

/// What ends it: nothing is lost, and the driver has its memory again before what follows.
#[test]
fn what_does_not_continue_the_stream_ends_it() {
    let ends: [fn(&mut World); 7] = [
        |world| world.segment(4000, 1000),
        |world| world.of_host(1, VOUCHED, 3000, 1000, ACK | FIN),
        |world| world.of_host(1, Header::default(), 3000, 1000, ACK),
        |world| world.segment(3000, 9000 - 54),
        |world| {
            // Longer than the packet in it.
            let mut unit = tcp(world.link(1), world.fields(3000, ACK), &stream(3000, 100));
            unit.push(0);
            world.unit(VOUCHED, unit);
            world.turn();
            world.leave();
        },
        |world| world.leave(),
        |world| {
            // It does not follow the one before.
            world.place(10_001, 1000);
        },
    ];
    // With room for the longest unit behind, so that it comes straight to the region, and without.
    let cases = [10_000, 30_000]
        .into_iter()
        .flat_map(|len| ends.map(|end| (len, end)));
    for (n, (len, end)) in cases.enumerate() {
        let mut world = World::new(feature::KNOWN, false);
        let address = world.place(0, len);
        world.segment(0, 1000);
        world.segment(1000, 1000);
        // Again, and in part.
        world.segment(0, 2000);
        world.segment(500, 2500);
        world.turn();
        assert_eq!((world.placed(), world.gone()), (3000, 0), "{n}");
        world.has(address, 0, 3000);
        end(&mut world);
        world.turn();
        if len == 30_000 && n % 7 == 3 {
            // That one finds room.
            continue;
        }
        assert_eq!(world.placed(), 3000, "{n}");
        assert!(world.gone() >= 1, "{n}");
        world.segment(3000, 1000);
        world.turn();
        assert_eq!(world.placed(), 3000, "{n}");
        // And again.
        world.place(4000, 5000);
        world.segment(4000, 5000);
        world.turn();
        assert_eq!(world.placed(), 8000, "{n}");
    }
}

#[test]
fn a_reset_ends_it_and_gives_all_back() {
    let mut world = World::new(feature::KNOWN, false);
    world.place(0, 10_000);
    world.segment(0, 1000);
    world.turn();
    world.nic.stop();
    assert_eq!(world.gone(), 1);
    assert!(!world.card.agreed.placement.is_idle());
    world.card.stop(Queue::Receive).unwrap();
    assert!(world.card.agreed.placement.is_idle());
}

/// A monitor goes on with another card at the same place. That knows of nothing, and says so.
#[test]
fn a_card_that_was_started_again_gives_the_memory_back() {
    let mut world = World::new(feature::KNOWN, false);
    world.place(0, 10_000);
    world.segment(0, 1000);
    world.turn();
    world.card.forget();
    world.segment(1000, 1000);
    world.turn();
    assert_eq!((world.placed(), world.gone()), (1000, 0));
    world.leave();
    world.turn();
    assert_eq!(world.gone(), 1);
}

#[test]
fn a_device_that_does_not_stop_keeps_the_memory() {
    let mut world = World::new(feature::KNOWN, false);
    world.place(0, 10_000);
    world.memory.memory.0.set_obeys_reset(false);
    let gone = world.gone.clone();
    drop(world);
    assert_eq!(*gone.lock().unwrap(), 0);
}

#[test]
fn memory_that_is_not_the_guests_is_refused() {
    struct Elsewhere(Box<dyn LentMemory>);
    impl LentMemory for Elsewhere {
        fn device_address(&self) -> u64 {
            self.0.device_address() + 4096
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn bytes(&self, range: Range<usize>) -> &[u8] {
            self.0.bytes(range)
        }
    }
    let mut world = World::new(feature::KNOWN, false);
    let memory = Box::new(world.memory.memory.0.lend(4096, &world.gone));
    let placer = world.nic.placer().unwrap();
    placer
        .place(&ends(false, 1), FIRST, Box::new(Elsewhere(memory)))
        .unwrap();
    world.nic.split().1.flush().unwrap();
    world.segment(0, 1000);
    world.turn();
    assert_eq!((world.placed(), world.gone()), (0, 1));
    assert_eq!(world.card.counters().placements_refused, 1);
}

/// Payload is not placed for a guest without checksums from its card, nor by a card that does not offer it, whatever a guest asks for.
#[test]
fn it_needs_an_offer_and_checksums() {
    for (features, placement) in [(feature::VERSION_1, true), (feature::KNOWN, false)] {
        let (mut nic, mut card, memory) = pair(features, Script::default());
        card.offer(Beyond {
            placement,
            ..Beyond::default()
        });
        nic.ask_card(99).unwrap();
        let request = PlacementRequest::Leave(ends(false, 1), 1).emit([2; 6]);
        let (mut rx, mut tx) = nic.split();
        tx.send(request.len(), Offload::None, &mut |frame| {
            frame.copy_from_slice(&request);
        })
        .unwrap();
        tx.flush().unwrap();
        card.turn(&memory, Duration::ZERO);
        rx.burst(8, |_| panic!("a frame")).unwrap();
        assert!(nic.agreed().is_some() && nic.placer().is_none());
        assert_eq!(card.counters().send_not_understood, 1);
        assert!(card.agreed.placement.is_idle());
    }
}

/// Bytes of the regions of two connections, one behind the other, and of the longest frame on their wire.
const LENT: [u32; 2] = [0x4000, 0x2000];
const FRAME: u32 = 1514;

/// A guest that has asked for two connections to be placed, from their first byte on. Its card's wire makes use of more room than a frame takes.
fn two_placed() -> (Card<Script>, Guest) {
    let features = feature::VERSION_1 | feature::GUEST_CSUM | feature::MRG_RXBUF;
    let mut guest = Guest::new(16, features);
    let mut card = Card::new(Script {
        max_unit: Some(FRAME as usize),
        useful_room: Some(65_535),
        ..Script::default()
    });
    card.offer(Beyond {
        placement: true,
        ..Beyond::default()
    });
    guest.start(&mut card).unwrap();
    let mut address = guest.spare().start;
    for (host, len) in (1..).zip(LENT) {
        let region = Region {
            id: host.into(),
            sequence: FIRST,
            address,
            len,
        };
        address += u64::from(len);
        let request = PlacementRequest::Fill(ends(false, host), region).emit([2; 6]);
        assert!(guest.send(Header::default(), &request, &[], false));
    }
    guest.transmit.publish(&guest.memory);
    (card, guest)
}

/// `len` bytes of the host's connection come, from byte `at` on.
fn comes(card: &mut Card<Script>, host: u8, at: u32, len: usize) {
    let link = Link {
        v6: false,
        tagged: false,
        id: 1,
        host,
    };
    let fields = TcpFields {
        port: 8080,
        sequence: FIRST.wrapping_add(at),
        flags: ACK,
        options: false,
    };
    let unit = tcp(link, fields, &stream(at, len));
    card.wire_mut().coming.push_back((VOUCHED, unit));
}

/// What is said of the next unit, whose headers alone have come.
fn note(guest: &mut Guest) -> Option<Note> {
    let (_, unit, _) = guest.received()?;
    let (head, note) = unit.split_at(unit.len() - NOTE_LEN);
    assert_eq!(head.len(), 54);
    Note::parse(note.first_chunk().unwrap())
}

/// The first connection's region has room for it, but the buffers have not: what is in them is not taken for it.
#[test]
fn a_unit_that_is_longer_than_the_buffers_is_not_placed_for_another_connection() {
    let (mut card, mut guest) = two_placed();
    let at = guest.spare().start;
    guest.offer(&[12 + 2048]);
    guest.receive.publish(&guest.memory);
    comes(&mut card, 1, 0, 1000);
    card.turn(&guest.memory, Duration::ZERO);
    let placed = |id, len| Some(Note::Placed { id, at: 0, len });
    assert_eq!(note(&mut guest), placed(1, 1000));
    guest.offer(&[12 + 2048]);
    guest.receive.publish(&guest.memory);
    comes(&mut card, 2, 0, 5000);
    card.turn(&guest.memory, Duration::ZERO);
    assert!(guest.received().is_none());
    assert_eq!(card.counters().receive_too_long, 1);
    // As TCP sends it again.
    comes(&mut card, 2, 0, 1000);
    card.turn(&guest.memory, Duration::ZERO);
    assert_eq!(note(&mut guest), placed(2, 1000));
    let content = |at, len| {
        let mut bytes = std::vec![0; len];
        guest.memory.read(at, &mut bytes).unwrap();
        bytes
    };
    assert!(content(at, 1000) == stream(0, 1000));
    assert!(content(at + u64::from(LENT[0]), 1000) == stream(0, 1000));
}

/// With room for a frame, and none for a note behind it, the guest's doorbell is waited for, and not the wire.
#[test]
fn a_card_that_places_waits_for_room_for_a_note_too() {
    let (mut card, mut guest) = two_placed();
    guest.offer(&[12 + FRAME]);
    guest.receive.publish(&guest.memory);
    comes(&mut card, 1, 0, 1000);
    assert!(card.turn(&guest.memory, Duration::ZERO).no_room);
    let armed = card.arm(&guest.memory);
    assert!(!armed.work && !armed.wire, "{armed:?}");
    guest.offer(&[12 + FRAME]);
    assert!(guest.receive.publish(&guest.memory), "it asks for none");
    card.disarm(&guest.memory);
    assert_eq!(card.turn(&guest.memory, Duration::ZERO).units, 1);
    assert!(note(&mut guest).is_some());
}

#[derive(Clone, Debug)]
enum Step {
    /// Of the connection: from so far behind what was sent last, so many bytes.
    Segment(i32, usize),
    /// The same in order.
    Next(usize),
    /// Of another connection, which has regions or has not.
    Other(u8, usize),
    Unvouched(usize),
    /// A region behind the last one, or behind what was sent.
    Place(bool, usize),
    Leave,
    Short,
    Turn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        // With all headers no longer than the wire's longest unit.
        8 => (1..8900_usize).prop_map(Step::Next),
        2 => ((-3000..3000), 0..3000_usize).prop_map(|(at, len)| Step::Segment(at, len)),
        1 => (1..3_u8, 0..2000_usize).prop_map(|(host, len)| Step::Other(host + 1, len)),
        1 => (1..2000_usize).prop_map(Step::Unvouched),
        4 => (any::<bool>(), 1..30_000_usize).prop_map(|(behind, len)| Step::Place(behind, len)),
        1 => Just(Step::Leave),
        1 => Just(Step::Short),
        6 => Just(Step::Turn),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #[test]
    fn the_driver_lends_what_came(steps in steps(), mergeable in any::<bool>(), chunks in any::<bool>(), v6 in any::<bool>(), options in any::<bool>()) {
        let features = if mergeable { feature::KNOWN } else { feature::KNOWN & !feature::MRG_RXBUF };
        let mut world = World::new(features, chunks);
        (world.v6, world.options) = (v6, options);
        let (mut sent, mut end) = (0_u32, 0_u32);
        for step in steps {
            match step {
                Step::Next(len) => {
                    world.segment(sent, len);
                    sent += len as u32;
                }
                Step::Segment(at, len) => {
                    let at = sent.saturating_add_signed(at);
                    world.segment(at, len);
                    sent = sent.max(at + len as u32);
                }
                Step::Other(host, len) => world.of_host(host, VOUCHED, sent, len, ACK),
                Step::Unvouched(len) => {
                    world.of_host(1, Header::default(), sent, len, ACK);
                    sent += len as u32;
                }
                Step::Place(behind, len) => {
                    // Never what is on its way.
                    world.turn();
                    let at = if behind { end.max(sent) } else { sent };
                    world.place(at, len);
                    end = at + len as u32;
                }
                Step::Leave => world.leave(),
                Step::Short => {
                    let unit = stream(sent, 60);
                    world.unit(VOUCHED, unit);
                }
                Step::Turn => world.turn(),
            }
        }
        world.turn();
        world.nic.stop();
    }

    #[test]
    fn any_orders(data in prop::collection::vec(any::<u8>(), 0..400)) {
        crate::testing::fuzz_card_placement(&data);
    }
}
