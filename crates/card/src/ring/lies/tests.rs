//! What a guest finds in its used ring, by raw memory.

use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::card::{Card, Queue};
use crate::feature;
use crate::testing::{Guest, Script};

const FEATURES: u64 = feature::VERSION_1 | feature::MRG_RXBUF | feature::GUEST_CSUM;
const SIZE: u16 = 512;
const FRAMES: u16 = 400;
/// Of a frame, with the header.
const LEN: u32 = 112;

/// 400 frames that a lying card has given a guest, a turn each 5 ms.
struct LyingCardRun {
    guest: Guest,
    card: Card<Script>,
    /// By turn: the used index.
    indices: Vec<u16>,
}

impl LyingCardRun {
    fn of(lies: &[Lie], seed: u64) -> Self {
        Self::with(FEATURES, lies, seed)
    }

    fn with(features: u64, lies: &[Lie], seed: u64) -> Self {
        let mut guest = Guest::new(SIZE, features);
        let mut card = Card::new(Script::default());
        card.lie(Lies::new(lies, seed));
        let start = guest.start_of(Queue::Receive, 0);
        card.start(&guest.memory, Queue::Receive, start).unwrap();
        while guest.offer(&[2000]) {}
        guest.receive.publish(&guest.memory);
        let frames = (0..FRAMES).map(|n| (Header::default(), vec![n as u8; LEN as usize - 12]));
        card.wire_mut().coming.extend(frames);
        let mut indices = Vec::new();
        for turn in 0..20 {
            let turn = card.turn(&guest.memory, Duration::from_millis(5 * turn));
            assert_eq!(turn.receive_fault, None);
            indices.push(guest.receive.returned(&guest.memory));
        }
        Self {
            guest,
            card,
            indices,
        }
    }

    /// Identifier and length of what came back, up to the index.
    fn entries(&self) -> Vec<(u32, u32)> {
        let index = self.indices.last().copied().unwrap();
        (0..index).map(|n| self.entry(n)).collect()
    }

    fn entry(&self, n: u16) -> (u32, u32) {
        let at = self.guest.receive.layout.used + 4 + 8 * u64::from(n % SIZE);
        let mut bytes = [0; 8];
        self.guest.memory.read(at, &mut bytes).unwrap();
        let word = |from: usize| u32::from_le_bytes(bytes[from..from + 4].try_into().unwrap());
        (word(0), word(4))
    }

    /// Flags, number of buffers and frame of a buffer.
    fn unit(&self, id: u16) -> (u8, u16, Vec<u8>) {
        let descriptor = self.guest.receive.layout.descriptors + 16 * u64::from(id);
        let mut address = [0; 8];
        self.guest.memory.read(descriptor, &mut address).unwrap();
        let mut bytes = vec![0; LEN as usize];
        self.guest
            .memory
            .read(u64::from_le_bytes(address), &mut bytes)
            .unwrap();
        (
            bytes[0],
            u16::from_le_bytes([bytes[10], bytes[11]]),
            bytes[12..].to_vec(),
        )
    }
}

fn truth() -> Vec<(u32, u32)> {
    (0..u32::from(FRAMES)).map(|n| (n, LEN)).collect()
}

/// Entries that are not the truth, where nothing else differs.
fn differing(run: &LyingCardRun) -> Vec<(usize, (u32, u32))> {
    let entries = run.entries();
    assert_eq!(entries.len(), usize::from(FRAMES));
    let pairs = entries.into_iter().zip(truth()).enumerate();
    pairs
        .filter(|(_, (entry, truth))| entry != truth)
        .map(|(n, (entry, _))| (n, entry))
        .collect()
}

#[test]
fn without_lies_there_is_the_truth() {
    let run = LyingCardRun::of(&[], 1);
    assert_eq!(run.entries(), truth());
    for n in 0..FRAMES {
        assert_eq!(run.unit(n), (0, 1, vec![n as u8; 100]));
    }
}

#[test]
fn once_a_buffer_is_none_of_the_rings() {
    for seed in 0..20 {
        let wrong = differing(&LyingCardRun::of(&[Lie::ForeignBuffer], seed));
        assert_eq!(wrong.len(), 1);
        let (at, (id, len)) = wrong[0];
        assert!(at < 256 && id >= u32::from(SIZE) && len == LEN, "{wrong:?}");
    }
}

#[test]
fn once_a_length_is_beyond_all_buffers() {
    for seed in 0..20 {
        let wrong = differing(&LyingCardRun::of(&[Lie::Length], seed));
        assert_eq!(wrong.len(), 1);
        let (at, (id, len)) = wrong[0];
        assert!(at < 256 && id == at as u32 && len >= 0x10_0000);
    }
}

#[test]
fn once_a_buffer_comes_back_twice() {
    for seed in 0..20 {
        let mut entries = LyingCardRun::of(&[Lie::RepeatedBuffer], seed).entries();
        let twice = (1..entries.len()).find(|n| entries[*n] == entries[n - 1]);
        entries.remove(twice.unwrap());
        assert_eq!(entries, truth());
    }
}

#[test]
fn once_the_index_is_ahead() {
    for seed in 0..20 {
        let run = LyingCardRun::of(&[Lie::UsedIndex], seed);
        let right = |turn: usize| (64 * (turn + 1)).min(FRAMES.into()) as u16;
        let wrong = (0..20).filter(|turn| run.indices[*turn] != right(*turn));
        let wrong: Vec<_> = wrong.collect();
        assert_eq!(wrong.len(), 1, "{:?}", run.indices);
        let ahead = run.indices[wrong[0]] - right(wrong[0]);
        assert!((1..=2 * SIZE).contains(&ahead));
        assert_eq!(run.entries(), truth());
    }
}

#[test]
fn once_a_unit_has_other_buffers_than_it_says() {
    let mut counts = BTreeSet::new();
    for seed in 0..20 {
        let run = LyingCardRun::of(&[Lie::BufferCount], seed);
        assert_eq!(run.entries(), truth());
        let units = (0..FRAMES).map(|n| run.unit(n).1);
        let wrong: Vec<_> = units.filter(|count| *count != 1).collect();
        assert_eq!(wrong.len(), 1);
        counts.insert(wrong[0]);
    }
    assert!(counts.contains(&0) && counts.contains(&u16::MAX));
    assert!(counts.iter().any(|count| (2..100).contains(count)));
}

#[test]
fn each_16th_unit_is_damaged_and_said_to_be_right() {
    for (features, flags) in [(FEATURES, 2), (FEATURES & !feature::GUEST_CSUM, 0)] {
        let run = LyingCardRun::with(features, &[Lie::Checksum], 3);
        assert_eq!(run.entries(), truth());
        let mut places = Vec::new();
        for n in 0..FRAMES {
            let (said, _, frame) = run.unit(n);
            let bits = frame.iter().map(|byte| (byte ^ n as u8).count_ones());
            match bits.sum() {
                0 => assert_eq!(said, 0),
                1 => {
                    assert_eq!(said, flags);
                    places.push(n);
                }
                bits => panic!("{bits} bits"),
            }
        }
        assert!(places[0] < 256 && places.len() >= 9);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] == 16));
    }
}

#[test]
fn each_16th_unit_never_comes_back() {
    let entries = LyingCardRun::of(&[Lie::Lost], 3).entries();
    let lost: Vec<_> = (0..u32::from(FRAMES))
        .filter(|n| !entries.contains(&(*n, LEN)))
        .collect();
    assert!(lost[0] < 256 && lost.len() >= 9);
    assert!(lost.windows(2).all(|pair| pair[1] - pair[0] == 16));
    assert_eq!(entries.len() + lost.len(), usize::from(FRAMES));
}

#[test]
fn each_16th_unit_is_20_ms_late() {
    let run = LyingCardRun::of(&[Lie::Late], 3);
    let mut entries = run.entries();
    // All came with the first seven turns, 64 a turn, or four turns later.
    let late = run.entry(run.indices[6] - 1);
    assert_eq!(
        run.indices[6..11].iter().collect::<BTreeSet<_>>().len(),
        5,
        "{:?}",
        run.indices
    );
    assert!(late.0 % 16 != 15 || late.1 == LEN);
    assert!(!entries.is_sorted());
    entries.sort_unstable();
    assert_eq!(entries, truth());
}

#[test]
fn a_card_that_keeps_buffers_does_not_sleep() {
    let mut run = LyingCardRun::of(&[Lie::Late], 3);
    assert!(!run.card.arm(&run.guest.memory).work);
    let more = (0..16).map(|_| (Header::default(), vec![1; 100]));
    run.card.wire_mut().coming.extend(more);
    run.card.turn(&run.guest.memory, Duration::from_secs(1));
    assert!(run.card.arm(&run.guest.memory).work);
    run.card
        .turn(&run.guest.memory, Duration::from_millis(1020));
    assert!(!run.card.arm(&run.guest.memory).work);
}

#[test]
fn what_comes_back_together_is_in_the_wrong_order() {
    let mut expected = truth();
    for burst in expected.chunks_mut(64) {
        burst.reverse();
    }
    assert_eq!(LyingCardRun::of(&[Lie::Order], 3).entries(), expected);
}

/// Segments of a unit stay together, so that its bytes are right.
#[test]
fn a_unit_in_several_buffers_stays_whole() {
    for lie in [Lie::Order, Lie::Late, Lie::Lost] {
        let mut guest = Guest::new(SIZE, FEATURES);
        let mut card = Card::new(Script::default());
        card.lie(Lies::new(&[lie], 3));
        let start = guest.start_of(Queue::Receive, 0);
        card.start(&guest.memory, Queue::Receive, start).unwrap();
        while guest.offer(&[50]) {}
        guest.receive.publish(&guest.memory);
        let frames = (0..100u8).map(|n| (Header::default(), vec![n; 100]));
        card.wire_mut().coming.extend(frames);
        for turn in 0..200 {
            card.turn(&guest.memory, Duration::from_millis(turn));
            while let Some((_, frame, buffers)) = guest.received() {
                assert_eq!((frame.len(), buffers), (100, 3));
                assert!(frame.iter().all(|byte| *byte == frame[0]));
            }
            while guest.offer(&[50]) {}
            guest.receive.publish(&guest.memory);
        }
    }
}

#[test]
fn a_silent_card_takes_nothing_and_gives_nothing() {
    for seed in 0..20 {
        let mut run = LyingCardRun::of(&[Lie::Silence], seed);
        let given = run.entries();
        assert_eq!(given, truth()[..given.len()]);
        // A burst at once appears or does not.
        assert!(given.len() <= 256);
        assert!(!run.card.wire().coming.is_empty());
        assert!(!run.card.arm(&run.guest.memory).work);
    }
}

#[test]
fn the_same_seed_lies_at_the_same_place_and_each_start_at_another() {
    let place = |seed| differing(&LyingCardRun::of(&[Lie::ForeignBuffer], seed));
    assert_eq!(place(5), place(5));
    let places: BTreeSet<_> = (0..20).map(|seed| place(seed)[0].0).collect();
    assert!(places.len() > 10, "{places:?}");
    let mut lies = Lies::new(&[Lie::Length], 1);
    let starts: BTreeSet<_> = (0..20).map(|_| lies.next().unwrap().place).collect();
    assert!(starts.len() > 10, "{starts:?}");
}

#[test]
fn sent_buffers_are_lied_about_too() {
    let mut guest = Guest::new(SIZE, FEATURES);
    let mut card = Card::new(Script::default());
    card.lie(Lies::new(&[Lie::Lost], 2));
    let start = guest.start_of(Queue::Transmit, 0);
    card.start(&guest.memory, Queue::Transmit, start).unwrap();
    while guest.send(Header::default(), &[1; 60], &[], false) {}
    guest.transmit.publish(&guest.memory);
    for _ in 0..20 {
        card.turn(&guest.memory, Duration::ZERO);
    }
    assert_eq!(card.wire().sent.len(), usize::from(SIZE));
    let returned = guest.transmit.returned(&guest.memory);
    assert!(returned < SIZE && returned > SIZE - 40, "{returned}");
}
