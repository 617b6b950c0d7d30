//! The ring against another implementation, on whatever a guest may write.

use core::sync::atomic::Ordering::Relaxed;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Queue as Oracle, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::*;
use crate::memory::Unmapped;
use crate::testing::{GuestRing, VecMemory};

const LEN: usize = 0x2000;

/// The same bytes twice: ours, and for the oracle. Guest memory begins at 0.
fn twice(bytes: &[u8]) -> (VecMemory, GuestMemoryMmap) {
    let ours = VecMemory::new(0, LEN);
    let theirs = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), LEN)]).unwrap();
    ours.write(0, bytes).unwrap();
    theirs.write_slice(bytes, GuestAddress(0)).unwrap();
    (ours, theirs)
}

fn oracle(layout: RingLayout, event_idx: bool) -> Oracle {
    let mut queue = Oracle::new(MAX_RING).unwrap();
    queue.try_set_size(layout.size).unwrap();
    queue
        .try_set_desc_table_address(GuestAddress(layout.descriptors))
        .unwrap();
    queue
        .try_set_avail_ring_address(GuestAddress(layout.available))
        .unwrap();
    queue
        .try_set_used_ring_address(GuestAddress(layout.used))
        .unwrap();
    queue.set_event_idx(event_idx);
    queue.set_ready(true);
    queue
}

/// A descriptor that may well be part of a chain.
fn descriptor() -> impl Strategy<Value = [u8; 16]> {
    let address = prop_oneof![8 => 0..LEN as u64, 1 => any::<u64>()];
    let len = prop_oneof![4 => 0..64u32, 3 => (1..16u32).prop_map(|n| 16 * n), 1 => any::<u32>()];
    let flags = prop_oneof![6 => Just(1u16), 6 => Just(0), 2 => Just(3), 2 => Just(2), 3 => Just(4), 1 => any::<u16>()];
    let next = prop_oneof![8 => 0..16u16, 1 => any::<u16>()];
    (address, len, flags, next).prop_map(|(address, len, flags, next)| {
        let word = u128::from(address)
            | u128::from(len) << 64
            | u128::from(flags) << 96
            | u128::from(next) << 112;
        word.to_le_bytes()
    })
}

/// What is to become of the chain that the oracle has found.
fn expected(chain: &[Descriptor], to_guest: bool) -> Option<Vec<Span>> {
    let end = chain.last()?;
    let whole = !end.has_next();
    let direction = chain
        .iter()
        .all(|descriptor| descriptor.is_write_only() == to_guest);
    let spans: Vec<Span> = chain
        .iter()
        .map(|descriptor| Span {
            address: descriptor.addr().0,
            len: descriptor.len(),
        })
        .collect();
    let memory = VecMemory::new(0, LEN);
    let mapped = spans.iter().all(|span| memory.contains(*span));
    (whole && direction && mapped).then(|| spans.into_iter().filter(|span| span.len != 0).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn chains_are_those_that_the_oracle_finds(
        table in vec(descriptor(), 64),
        head in 0..10u16,
        to_guest: bool,
        indirect in prop::bool::weighted(0.9),
    ) {
        let mut bytes = table.concat();
        let layout = GuestRing::new(0x1000, 8, 0).layout;
        // The ring's table is the beginning of the random one; addresses below are likely to meet it, so indirect tables are found.
        let layout = RingLayout { descriptors: 0, ..layout };
        bytes.resize(LEN, 0);
        let (ours, theirs) = twice(&bytes);
        for (at, value) in [(layout.available + 2, 1u16), (layout.available + 4, head)] {
            ours.store(at, value, Relaxed).unwrap();
            theirs.write_obj(value, GuestAddress(at)).unwrap();
        }
        let features = if indirect { feature::INDIRECT_DESC } else { 0 };
        let direction = if to_guest { Direction::ToGuest } else { Direction::FromGuest };
        let mut ring = Ring::start(&ours, RingStart { layout, base: 0, features }, direction).unwrap();
        prop_assert_eq!(ring.available(&ours, 1), Ok(1));
        let mut spans = Vec::with_capacity(MAX_RING.into());
        let result = ring.chain(&ours, 0, &mut spans, MAX_RING.into());

        let mut queue = oracle(layout, false);
        let found: Vec<Descriptor> = queue.iter(&theirs).unwrap().next().into_iter().flatten().collect();
        let uses_table = head < 8 && table_flags(&bytes, head, 8);
        let total: u64 = found.iter().map(|descriptor| u64::from(descriptor.len())).sum();
        match expected(&found, to_guest) {
            Some(wanted) if indirect || !uses_table => {
                // The oracle takes longer chains from a table, which the specification forbids, and ends a table in the middle of a chain.
                if matches!(result, Err(RingFault::ChainTooLong)) {
                    prop_assert!(found.len() > usize::from(layout.size));
                } else if matches!(result, Err(RingFault::Indirect)) {
                    prop_assert!(uses_table);
                } else {
                    let chain = result.unwrap();
                    prop_assert_eq!(chain.head, head);
                    prop_assert_eq!(u64::from(chain.len), total);
                    prop_assert_eq!(spans, wanted);
                }
            }
            Some(_) => prop_assert_eq!(result.map(drop), Err(RingFault::Indirect)),
            None => prop_assert!(result.is_err()),
        }
    }

    #[test]
    fn used_entries_and_calls_are_those_of_the_oracle(
        base: u16,
        batches in vec((1..5u16, 0..20u16, any::<u32>()), 1..20),
        event_idx: bool,
    ) {
        let layout = GuestRing::new(0, 8, 0).layout;
        let mut bytes = std::vec![0; LEN];
        bytes[layout.used as usize + 2..][..2].copy_from_slice(&base.to_le_bytes());
        let (ours, theirs) = twice(&bytes);
        let features = if event_idx { feature::EVENT_IDX } else { 0 };
        let mut ring = Ring::start(&ours, RingStart { layout, base, features }, Direction::ToGuest).unwrap();
        let mut queue = oracle(layout, event_idx);
        queue.set_next_used(base);
        for (n, (count, event, len)) in batches.into_iter().enumerate() {
            let event = base.wrapping_add(event);
            let at = layout.used_event();
            ours.store(at, event, Relaxed).unwrap();
            theirs.write_obj(event, GuestAddress(at)).unwrap();
            for id in 0..count {
                ring.put_used(&ours, id, len).unwrap();
                queue.add_used(&theirs, id, len).unwrap();
            }
            let called = ring.publish(&ours).unwrap();
            let wanted = queue.needs_notification(&theirs).unwrap();
            // The first time the guest is called in any case: it may have missed a call before.
            prop_assert_eq!(called, n == 0 || !event_idx || wanted);
            let mut all = std::vec![0; LEN];
            theirs.read_slice(&mut all, GuestAddress(0)).unwrap();
            prop_assert_eq!(ours.snapshot(), all);
        }
    }

    #[test]
    fn nothing_is_shown_before_it_is_published(count in 1..8u16) {
        let layout = GuestRing::new(0, 8, 0).layout;
        let memory = VecMemory::new(0, LEN);
        let start = RingStart { layout, base: 0, features: 0 };
        let mut ring = Ring::start(&memory, start, Direction::ToGuest).unwrap();
        for id in 0..count {
            ring.put_used(&memory, id, 1).unwrap();
            prop_assert_eq!(memory.load(layout.used_index(), Relaxed), Ok(0));
        }
        ring.publish(&memory).unwrap();
        prop_assert_eq!(memory.load(layout.used_index(), Relaxed), Ok(count));
        prop_assert_eq!(ring.publish(&memory), Ok(false));
    }
}

/// Whether a chain of the ring's comes to a descriptor that leads to a table.
fn table_flags(bytes: &[u8], head: u16, size: u16) -> bool {
    let mut number = head;
    for _ in 0..=size {
        if number >= size {
            return false;
        }
        let at = 16 * usize::from(number);
        let flags = bytes[at + 12];
        if flags & 4 != 0 {
            return true;
        }
        if flags & 1 == 0 {
            return false;
        }
        number = u16::from_le_bytes([bytes[at + 14], bytes[at + 15]]);
    }
    false
}

fn start(layout: RingLayout) -> Result<Ring, RingFault> {
    let memory = VecMemory::new(0, LEN);
    let start = RingStart {
        layout,
        base: 0,
        features: 0,
    };
    Ring::start(&memory, start, Direction::FromGuest)
}

#[test]
fn a_ring_that_cannot_be_is_refused() {
    let good = GuestRing::new(0, 8, 0).layout;
    assert!(start(good).is_ok());
    for size in [0, 3, 2048] {
        let result = start(RingLayout { size, ..good });
        assert_eq!(result.map(drop), Err(RingFault::Size), "{size}");
    }
    let odd = [
        RingLayout {
            descriptors: 8,
            ..good
        },
        RingLayout {
            available: good.available + 1,
            ..good
        },
        RingLayout {
            used: good.used + 2,
            ..good
        },
    ];
    for layout in odd {
        assert_eq!(start(layout).map(drop), Err(RingFault::Misaligned));
    }
    let end = LEN as u64;
    let outside = [
        RingLayout {
            descriptors: end - 16 * 8 + 16,
            ..good
        },
        // The event index is part of the ring.
        RingLayout {
            available: end - 4 - 2 * 8,
            ..good
        },
        RingLayout {
            used: end - 4 - 8 * 8,
            ..good
        },
        RingLayout {
            used: u64::MAX - 3,
            ..good
        },
    ];
    for layout in outside {
        assert_eq!(start(layout).map(drop), Err(RingFault::Unmapped));
    }
}

#[test]
fn an_index_beyond_the_ring_is_a_fault() {
    let layout = GuestRing::new(0, 8, 0).layout;
    let memory = VecMemory::new(0, LEN);
    let start = RingStart {
        layout,
        base: 0xfffe,
        features: 0,
    };
    let mut ring = Ring::start(&memory, start, Direction::FromGuest).unwrap();
    memory.store(layout.available_index(), 6, Relaxed).unwrap();
    assert_eq!(ring.available(&memory, 1), Ok(8));
    let mut ring = Ring::start(&memory, start, Direction::FromGuest).unwrap();
    memory.store(layout.available_index(), 7, Relaxed).unwrap();
    assert_eq!(ring.available(&memory, 1), Err(RingFault::AvailableIndex));
}

/// The fault of a chain of one descriptor, the ring's first: 32 bytes at `address`, with flags.
fn indirect(address: u64, flags: u16, table: &[(u64, u16)]) -> Result<u32, RingFault> {
    let layout = GuestRing::new(0, 8, 0).layout;
    let memory = VecMemory::new(0, LEN);
    let describe = |at: u64, address: u64, flags: u16| {
        let word = u128::from(address) | 32 << 64 | u128::from(flags) << 96;
        memory.write(at, &word.to_le_bytes()).unwrap();
    };
    describe(0, address, flags);
    for (n, (address, flags)) in table.iter().enumerate() {
        describe(0x1000 + 16 * n as u64, *address, *flags);
    }
    memory.store(layout.available_index(), 1, Relaxed).unwrap();
    let start = RingStart {
        layout,
        base: 0,
        features: feature::INDIRECT_DESC,
    };
    let mut ring = Ring::start(&memory, start, Direction::FromGuest).unwrap();
    ring.available(&memory, 1).unwrap();
    let mut spans = Vec::with_capacity(MAX_RING.into());
    ring.chain(&memory, 0, &mut spans, MAX_RING.into())
        .map(|chain| chain.len)
}

#[test]
fn a_table_is_the_end_of_its_chain_and_in_no_other() {
    assert_eq!(indirect(0x1000, 4, &[(0x1100, 0)]), Ok(32));
    // It leads to itself.
    assert_eq!(
        indirect(0x1000, 4, &[(0x1000, 4)]),
        Err(RingFault::Indirect)
    );
    assert_eq!(
        indirect(0x1000, 5, &[(0x1100, 0)]),
        Err(RingFault::Indirect)
    );
    // A table at the end of all addresses.
    assert_eq!(indirect(u64::MAX, 4, &[]), Err(RingFault::Unmapped));
}

#[test]
fn memory_that_is_not_there_is_a_fault() {
    assert_eq!(RingFault::from(Unmapped), RingFault::Unmapped);
}
