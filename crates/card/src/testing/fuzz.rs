//! The bodies of the fuzz targets.

mod chunks;
mod offloads;
mod placement;

use core::time::Duration;
use std::vec;

pub use chunks::fuzz_card_chunks;
pub use offloads::{fuzz_card_fragments, fuzz_card_headers};
pub use placement::fuzz_card_placement;

use super::{Loopback, VecMemory};
use crate::card::{Card, Queue};
use crate::feature;
use crate::memory::GuestMemory;
use crate::ring::{RingLayout, RingStart};

const BASE: u64 = 0x1000;
const MEMORY: usize = 0x4000;

/// A card before a guest that does what `data` says: how its rings start, what it writes to its memory, and when the card is turned.
///
/// # Panics
/// When the card breaks a promise: a buffer outside the memory, more used entries than buffers, a queue that goes on after a fault.
pub fn fuzz_card_rings(data: &[u8]) {
    let mut bytes = Bytes(data);
    let memory = VecMemory::new(BASE, MEMORY);
    let mut card = Card::new(Loopback::default());
    let mut now = Duration::ZERO;
    let mut stopped = [true; 2];
    while !bytes.0.is_empty() {
        match bytes.u8() % 8 {
            0 => {
                let (queue, n) = queue(bytes.u8());
                let bits = [
                    feature::CSUM,
                    feature::GUEST_CSUM,
                    feature::MRG_RXBUF,
                    feature::INDIRECT_DESC,
                    feature::EVENT_IDX,
                    feature::VERSION_1,
                ];
                let chosen = bytes.u8();
                let features = bits
                    .into_iter()
                    .enumerate()
                    .filter(|(n, _)| chosen & 1 << n != 0)
                    .fold(0, |all, (_, bit)| all | bit);
                // Mostly what could work.
                let exact = chosen & 0x80 == 0;
                let size = bytes.u16();
                let size = if exact { 1 << (size % 7) } else { size };
                let mut address = || {
                    let address = BASE + u64::from(bytes.u16());
                    if exact { address & !0xf } else { address }
                };
                let layout = RingLayout {
                    size,
                    descriptors: address(),
                    available: address(),
                    used: address(),
                };
                let base = bytes.u16();
                let start = RingStart {
                    layout,
                    base,
                    features,
                };
                stopped[n] = card.start(&memory, queue, start).is_err();
            }
            1 => {
                let (queue, n) = queue(bytes.u8());
                card.stop(queue);
                assert_eq!(card.stop(queue), None, "stopped, and still in use");
                stopped[n] = true;
            }
            2 | 3 => {
                let at = BASE + u64::from(bytes.u16());
                let mut content = vec![0; usize::from(bytes.u8() % 32)];
                content.iter_mut().for_each(|byte| *byte = bytes.u8());
                // What goes beyond the memory is not written.
                memory.write(at, &content).ok();
            }
            4 => {
                now += Duration::from_micros(bytes.u8().into());
                card.wire_mut().delay = Duration::from_micros(bytes.u8().into());
            }
            5 => {
                card.arm(&memory);
                card.disarm(&memory);
            }
            _ => {
                let before = memory.snapshot();
                let turn = card.turn(&memory, now);
                let faults = [turn.receive_fault, turn.transmit_fault];
                assert!(card.counters().stopped().count() >= usize::from(faults != [None; 2]));
                for (n, fault) in faults.into_iter().enumerate() {
                    assert!(fault.is_none() || !stopped[n], "a queue that is off");
                    stopped[n] |= fault.is_some();
                }
                if stopped == [true; 2] && faults == [None; 2] {
                    assert_eq!(memory.snapshot(), before, "writes of a card that is off");
                }
            }
        }
    }
}

fn queue(n: u8) -> (Queue, usize) {
    match n % 2 {
        0 => (Queue::Receive, 0),
        _ => (Queue::Transmit, 1),
    }
}

/// The fuzzer's bytes, zeros at the end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }
}
