//! Our own driver on the card: whole exchanges, in one thread.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::BTreeSet;
use std::vec::Vec;

use crate::coalesce::Limits;
use crate::testing::{Loopback, Script};
use crate::{
    Beyond, Card, Counters, GuestMemory, Lie, Lies, Queue, RingLayout, RingStart, Span, Unmapped,
    Wire, feature,
};
use wireboot_nic::model::{Model, ModelConfig, ModelPci};
use wireboot_nic::virtio::VirtioNet;
use wireboot_nic::{Fault, Nic, Offload, Receive, SendError, Transmit};
use wireboot_wire::card::hello::{CHUNKS, DATAGRAMS};

/// virtio-net's feature bit for an address of its own.
const MAC: u64 = 1 << 5;

/// The driver's memory, as the card sees it.
pub(super) struct Memory(pub Model);

impl GuestMemory for Memory {
    fn contains(&self, span: Span) -> bool {
        self.0
            .read_memory(span.address, span.len as usize)
            .is_some()
    }

    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Unmapped> {
        let bytes = self.0.read_memory(address, to.len()).ok_or(Unmapped)?;
        to.copy_from_slice(&bytes);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        self.0.write_memory(address, from).ok_or(Unmapped)
    }

    fn load(&self, address: u64, _: Ordering) -> Result<u16, Unmapped> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    fn store(&self, address: u64, value: u16, _: Ordering) -> Result<(), Unmapped> {
        self.write(address, &value.to_le_bytes())
    }
}

/// A driver with these features, and a card that it has started.
pub(super) fn pair<W: Wire<Memory>>(
    features: u64,
    wire: W,
) -> (VirtioNet<ModelPci>, Card<W>, Memory) {
    lying_pair(features, wire, Lies::default())
}

/// The same with a card that lies.
fn lying_pair<W: Wire<Memory>>(
    features: u64,
    wire: W,
    lies: Lies,
) -> (VirtioNet<ModelPci>, Card<W>, Memory) {
    let model = Model::new(ModelConfig {
        features: features | MAC,
        ..ModelConfig::default()
    });
    let nic = VirtioNet::new(model.pci()).unwrap();
    let mut card = Card::new(wire);
    card.lie(lies);
    let memory = Memory(model);
    Wire::<Memory>::agree(card.wire_mut(), memory.0.accepted());
    for (number, queue) in [Queue::Receive, Queue::Transmit].into_iter().enumerate() {
        let (size, [descriptors, available, used]) = memory.0.queue(number).unwrap();
        let start = RingStart {
            layout: RingLayout {
                size,
                descriptors,
                available,
                used,
            },
            base: 0,
            features: memory.0.accepted(),
        };
        card.start(&memory, queue, start).unwrap();
    }
    (nic, card, memory)
}

fn frame(n: usize) -> Vec<u8> {
    let len = 60 + n * 37 % 1455;
    (0..len).map(|at| (at * 7 + n) as u8).collect()
}

/// Sends frames by way of the wire to the driver itself, and sees all of them come, in order.
fn round(features: u64) -> Counters {
    let (nic, card, memory) = pair(features, Loopback::default());
    round_of(nic, card, &memory, 256)
}

/// The same in chunks.
fn round_in_chunks(features: u64, limits: Limits<Duration>, budget: usize) -> Counters {
    let (mut nic, mut card, memory) = pair(features, Loopback::default());
    card.offer(Beyond {
        chunks: Some(limits),
        ..Beyond::default()
    });
    nic.ask_card(99).unwrap();
    card.turn(&memory, Duration::ZERO);
    nic.split().0.burst(8, |_| panic!("a frame")).unwrap();
    assert_eq!(nic.agreed().unwrap().features & CHUNKS, CHUNKS);
    round_of(nic, card, &memory, budget)
}

fn round_of(
    mut nic: VirtioNet<ModelPci>,
    mut card: Card<Loopback>,
    memory: &Memory,
    budget: usize,
) -> Counters {
    const FRAMES: usize = 3000;
    let mut now = Duration::ZERO;
    let (mut sent, mut received) = (0, 0);
    while received < FRAMES {
        let (mut rx, mut tx) = nic.split();
        while sent < FRAMES && sent - received < 100 {
            let bytes = frame(sent);
            match tx.send(bytes.len(), Offload::None, &mut |out| {
                out.copy_from_slice(&bytes);
            }) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        tx.flush().unwrap();
        now += Duration::from_micros(10);
        let turn = card.turn(memory, now);
        assert_eq!((turn.receive_fault, turn.transmit_fault), (None, None));
        // It polls.
        assert!(!turn.call_receive && !turn.call_transmit);
        let before = received;
        rx.burst(budget, |unit| {
            assert_eq!(unit.parts.concat(), frame(received));
            received += 1;
        })
        .unwrap();
        let waits = card.due().is_some();
        assert!(
            waits || turn.units > 0 || received > before,
            "nothing moves"
        );
    }
    let counters = card.counters();
    assert_eq!(counters.sent.units, FRAMES as u64);
    assert_eq!(counters.received, counters.sent);
    // Nobody asked for one.
    assert!(memory.0.doorbells().iter().sum::<usize>() <= 2);
    nic.stop();
    counters
}

pub(super) const AT_ONCE: Limits<Duration> = Limits {
    frames: 43,
    bytes: 65_536,
    wait: Duration::ZERO,
};

/// Frames of 60 to 1514 bytes, in the driver's buffers of 16 KB and 2 KB.
#[test]
fn chunks_come_back_with_all_features() {
    for budget in [1, 7] {
        let counters = round_in_chunks(feature::KNOWN, AT_ONCE, budget);
        assert!(counters.received_chunks > 0, "{counters:?}");
    }
    let counters = round_in_chunks(feature::KNOWN, AT_ONCE, 256);
    assert!(counters.sent_chunk_units > 1000, "{counters:?}");
    assert!(counters.received_chunks < 400, "{counters:?}");
    assert!(counters.received_chunk_units > 2900, "{counters:?}");
}

#[test]
fn chunks_come_back_with_one_buffer_for_each() {
    let counters = round_in_chunks(feature::KNOWN & !feature::MRG_RXBUF, AT_ONCE, 256);
    assert!(counters.received_chunk_units > 2900, "{counters:?}");
}

/// Buffers of 2 KB.
#[test]
fn chunks_come_back_with_the_least() {
    let counters = round_in_chunks(feature::VERSION_1, AT_ONCE, 256);
    assert!(counters.received_chunk_units > 500, "{counters:?}");
}

#[test]
fn chunks_that_wait_for_more_come_back() {
    let limits = Limits {
        wait: Duration::from_micros(25),
        ..AT_ONCE
    };
    round_in_chunks(feature::KNOWN, limits, 256);
}

#[test]
fn frames_come_back_with_all_features() {
    round(feature::KNOWN);
}

#[test]
fn frames_come_back_with_one_buffer_for_each() {
    round(feature::KNOWN & !feature::MRG_RXBUF);
}

#[test]
fn frames_come_back_with_the_least() {
    round(feature::VERSION_1);
}

#[test]
fn a_checksum_is_left_to_the_wire() {
    let (mut nic, mut card, memory) = pair(feature::KNOWN, Script::default());
    let offload = Offload::L4Checksum {
        start: 34,
        offset: 16,
    };
    let (_, mut tx) = nic.split();
    tx.send(80, offload, &mut |out| out.fill(1)).unwrap();
    tx.flush().unwrap();
    card.turn(&memory, Duration::ZERO);
    let (header, bytes) = &card.wire().sent[0];
    assert_eq!(bytes, &[1; 80]);
    assert_eq!(
        (header.flags, header.csum_start, header.csum_offset),
        (1, 34, 16)
    );
}

#[test]
fn a_driver_that_starts_again_is_served_again() {
    let (mut nic, mut card, memory) = pair(feature::KNOWN, Loopback::default());
    nic.stop();
    for queue in [Queue::Receive, Queue::Transmit] {
        assert_eq!(card.stop(queue), Some(0));
    }
    drop((nic, memory));
    round(feature::KNOWN);
}

/// Asks over a wire, and what the card is agreed to do.
fn asked(features: u64) -> Option<u32> {
    let (mut nic, mut card, memory) = pair(features, crate::Offload::new(Script::default()));
    nic.ask_card(99).unwrap();
    let turn = card.turn(&memory, Duration::ZERO);
    assert_eq!((turn.receive_fault, turn.transmit_fault), (None, None));
    nic.split().0.burst(8, |_| panic!("a frame")).unwrap();
    assert!(card.wire().wire().sent.is_empty());
    assert_eq!(nic.counters().receive_dropped, 0);
    let agreed = nic.agreed().map(|answer| answer.features);
    let joins = agreed.is_some_and(|features| features & DATAGRAMS != 0);
    assert_eq!(nic.joins_datagrams(), joins);
    agreed
}

#[test]
fn the_driver_and_the_card_agree() {
    assert_eq!(asked(feature::KNOWN), Some(DATAGRAMS));
    assert_eq!(asked(feature::KNOWN & !feature::MRG_RXBUF), Some(0));
    assert_eq!(asked(feature::KNOWN & !feature::GUEST_UFO), Some(0));
    assert_eq!(asked(feature::VERSION_1), Some(0));
}

/// In fragments, as a server's frames: 65,507 bytes, and over IPv6 what the 65,562 bytes of a unit leave (virtio 1.2, section 5.1.6.3.1).
#[test]
fn the_longest_datagram_comes_as_one_unit() {
    use crate::testing::packets::{Link, fragment, udp};
    for (v6, len) in [(false, 65_507), (true, 65_488)] {
        let link = Link {
            v6,
            tagged: false,
            id: 7,
            host: 1,
        };
        let whole = udp(link, &frame(5).repeat(1000)[..len]);
        let datagram = &whole[if v6 { 54 } else { 34 }..];
        let mut wire = Script::default();
        for (n, part) in datagram.chunks(1448).enumerate() {
            let offset = n * 1448;
            let more = offset + part.len() < datagram.len();
            let unit = fragment(link, part, offset, more);
            wire.coming.push_back((Default::default(), unit));
        }
        let (mut nic, mut card, memory) = pair(feature::KNOWN, crate::Offload::new(wire));
        let mut got = Vec::new();
        for _ in 0..3 {
            let turn = card.turn(&memory, Duration::ZERO);
            assert_eq!((turn.receive_fault, turn.transmit_fault), (None, None));
            let (mut rx, _) = nic.split();
            rx.burst(64, |unit| {
                assert_eq!(unit.udp_segment, None);
                got.push(unit.parts.concat());
            })
            .unwrap();
        }
        assert_eq!(got.len(), 1);
        assert_eq!(&got[0][got[0].len() - len..], &datagram[8..]);
        assert_eq!(got[0].len(), whole.len());
        assert_eq!(card.wire().counters().joined_datagrams, 1);
        nic.stop();
    }
}

/// Segments by one unit of the driver's, and back to it as one. The frames that were on the wire.
fn segments_and_back<W: Wire<Memory>>(wire: W) -> Card<W> {
    use crate::testing::packets::{Link, TcpFields, incomplete, tcp};
    let (mut nic, mut card, memory) = pair(feature::KNOWN, wire);
    for v6 in [false, true] {
        let link = Link {
            v6,
            tagged: false,
            id: 1,
            host: 1,
        };
        let fields = TcpFields {
            port: 80,
            sequence: 1,
            flags: 0x10,
            options: true,
        };
        let (header, unit) = incomplete(&tcp(link, fields, &frame(5).repeat(200)));
        let offload = Offload::TcpSegmentation {
            start: header.csum_start,
            header_len: header.csum_start + 32,
            mss: 1400,
        };
        let (mut rx, mut tx) = nic.split();
        tx.send(unit.len(), offload, &mut |out| out.copy_from_slice(&unit))
            .unwrap();
        tx.flush().unwrap();
        let mut got = Vec::new();
        for _ in 0..3 {
            let turn = card.turn(&memory, Duration::ZERO);
            assert_eq!((turn.receive_fault, turn.transmit_fault), (None, None));
            rx.burst(256, |unit| got.push(unit.parts.concat())).unwrap();
        }
        assert_eq!(got, [unit]);
    }
    nic.stop();
    card
}

#[test]
fn large_units_go_through_a_wire_that_takes_them() {
    let mut wire = Loopback::default();
    wire.offloads = feature::KNOWN & !feature::RINGS;
    wire.max_unit = Some(crate::LONGEST_UNIT);
    let card = segments_and_back(crate::Offload::new(wire));
    assert_eq!(card.wire().counters(), crate::OffloadCounters::default());
    assert_eq!(card.counters().sent.units, 2);
}

#[test]
fn large_units_are_cut_and_joined_for_one_that_does_not() {
    let mut wire = Loopback::default();
    wire.offloads = feature::CSUM;
    let card = segments_and_back(crate::Offload::new(wire));
    let counters = card.wire().counters();
    assert_eq!((counters.cut_units, counters.joined_units), (2, 2));
    assert_eq!(counters.cut_frames, counters.joined_segments);
    assert!(counters.cut_frames > 40);
}

/// Frames to the driver itself through a card that lies, until it has all, or nothing moves any more. What the driver says.
fn round_of_lies(lie: Lie, seed: u64) -> Result<usize, Fault> {
    const FRAMES: usize = 1000;
    let (mut nic, mut card, memory) =
        lying_pair(feature::KNOWN, Loopback::default(), Lies::new(&[lie], seed));
    let (mut sent, mut received, mut idle, mut now) = (0, 0, 0, Duration::ZERO);
    let mut all = BTreeSet::new();
    // Each wait ends: after so many turns in vain the rest is lost.
    while received < FRAMES && idle < 200 {
        now += Duration::from_millis(1);
        let (mut rx, mut tx) = nic.split();
        while sent < FRAMES && sent.saturating_sub(received) < 100 {
            let bytes = frame(sent);
            match tx.send(bytes.len(), Offload::None, &mut |out| {
                out.copy_from_slice(&bytes);
            }) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => break,
                Err(SendError::Fault(fault)) => return Err(fault),
                Err(error) => panic!("{error}"),
            }
            all.insert(bytes);
        }
        tx.flush()?;
        let turn = card.turn(&memory, now);
        assert_eq!((turn.receive_fault, turn.transmit_fault), (None, None));
        let before = received;
        rx.burst(256, |unit| {
            let bytes = unit.parts.concat();
            let known = match lie {
                // A buffer that has not come back holds an older frame, and its old entry another length.
                Lie::UsedIndex => true,
                // The frames behind it are taken for its end, which its own length leaves out.
                Lie::BufferCount => all.iter().any(|frame| bytes.starts_with(frame)),
                _ => all.contains(&bytes),
            };
            assert!(known, "bytes that nobody sent: {lie:?}, seed {seed}");
            received += 1;
        })?;
        idle = if received > before { 0 } else { idle + 1 };
    }
    nic.stop();
    Ok(received)
}

/// But that on checksums: what the card vouches for, the driver does not check.
#[test]
fn the_driver_finds_lies_out_or_goes_on() {
    for (name, lie) in Lie::NAMED
        .into_iter()
        .filter(|(_, lie)| *lie != Lie::Checksum)
    {
        for seed in 0..30 {
            let result = round_of_lies(lie, seed);
            let expected = match (lie, &result) {
                (
                    Lie::ForeignBuffer | Lie::Length | Lie::RepeatedBuffer | Lie::BufferCount,
                    Err(Fault::Misbehaved(_)),
                ) => true,
                // A count that could be.
                (Lie::BufferCount, Ok(received)) => *received < 1000,
                // An index that is not too far ahead shows what may have come back before.
                (Lie::UsedIndex, Ok(_) | Err(Fault::Misbehaved(_))) => true,
                (Lie::Lost | Lie::Silence, Ok(received)) => *received < 1000,
                (Lie::Late | Lie::Order, Ok(received)) => *received == 1000,
                _ => false,
            };
            assert!(expected, "{name}, seed {seed}: {result:?}");
        }
    }
}
