//! Our ring with our driver's queue on the other end: every interleaving of the two that matters.

use std::vec::Vec;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use wireboot_nic::virtio::loom_queue::{DriverQueue, Parts};

use super::*;
use crate::memory::Unmapped;

const SIZE: u16 = 2;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
/// Of the first buffer; the others lie behind.
const BUFFERS: u64 = 0x4000;
const LEN: u32 = 60;

/// The driver's tables, as the card reaches them.
struct Memory(Arc<Parts>);

impl Memory {
    fn word(&self, address: u64) -> Option<&AtomicU16> {
        let parts = &self.0;
        if let Some(at) = address.checked_sub(USED) {
            let event = 4 + 8 * u64::from(SIZE);
            let at = if at == event { 4 } else { at };
            return parts.used.get(at as usize / 2);
        }
        parts
            .avail
            .get(address.checked_sub(AVAILABLE)? as usize / 2)
    }
}

impl GuestMemory for Memory {
    fn contains(&self, _: Span) -> bool {
        true
    }

    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Unmapped> {
        let words = self.0.descriptor(((address - DESCRIPTORS) / 16) as usize);
        to.copy_from_slice(words.map(u32::to_le_bytes).as_flattened());
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        let entry = u64::from_le_bytes(from.try_into().unwrap());
        let at = ((address - USED - 4) / 8) as usize;
        self.0.put_used(at, (entry as u32, (entry >> 32) as u32));
        Ok(())
    }

    fn load(&self, address: u64, order: Ordering) -> Result<u16, Unmapped> {
        Ok(self.word(address).ok_or(Unmapped)?.load(order))
    }

    fn store(&self, address: u64, value: u16, order: Ordering) -> Result<(), Unmapped> {
        self.word(address).ok_or(Unmapped)?.store(value, order);
        Ok(())
    }
}

/// What an eventfd is.
#[derive(Default)]
struct Doorbell(Mutex<bool>, Condvar);

impl Doorbell {
    fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// The driver's queue, and the memory for the card.
fn queue() -> (DriverQueue, Memory) {
    let (queue, parts) = DriverQueue::new(SIZE);
    (queue, Memory(parts))
}

fn offer(queue: &mut DriverQueue, id: u16) {
    queue.offer(id, BUFFERS + u64::from(id), LEN);
}

fn ring(memory: &Memory, base: u16, features: u64) -> Ring {
    let start = RingStart {
        layout: RingLayout {
            size: SIZE,
            descriptors: DESCRIPTORS,
            available: AVAILABLE,
            used: USED,
        },
        base,
        features,
    };
    Ring::start(memory, start, Direction::ToGuest).unwrap()
}

/// Shows the card what was offered, and rings if it asks for that. Our driver does not know EVENT_IDX: its rule is virtio 1.2, section 2.7.10.
fn publish(
    queue: &mut DriverQueue,
    parts: &Parts,
    before: u16,
    features: u64,
    doorbell: &Doorbell,
) {
    let by_flag = queue.publish();
    let rings = if features & feature::EVENT_IDX == 0 {
        by_flag
    } else {
        // Behind the fence of `publish`.
        parts.used[2].load(Ordering::Relaxed) == before
    };
    if rings {
        doorbell.ring();
    }
}

/// Takes what is there and gives it back.
fn turn(ring: &mut Ring, memory: &Memory) -> Result<u16, RingFault> {
    let count = ring.available(memory, 1)?;
    for n in 0..count {
        let mut spans = Vec::with_capacity(1);
        let chain = ring.chain(memory, n, &mut spans, 1)?;
        let address = BUFFERS + u64::from(chain.head);
        assert_eq!(spans, [Span { address, len: LEN }]);
        ring.put_used(memory, chain.head, 40 + u32::from(chain.head))?;
    }
    ring.take(count);
    ring.publish(memory)?;
    Ok(count)
}

/// The driver takes its buffers back in order.
fn take(queue: &mut DriverQueue, next: &mut u16) {
    for _ in 0..queue.returned().unwrap() {
        let id = *next % SIZE;
        assert_eq!(queue.take(), Ok((id, 40 + u32::from(id))));
        *next += 1;
    }
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// The driver hands over two buffers, one after the other. A card that sleeps in between is woken for each.
fn sleeper(features: u64) {
    model(move || {
        let (mut queue, memory) = queue();
        let doorbell = Arc::new(Doorbell::default());
        let parts = memory.0.clone();
        let mut card = ring(&memory, 0, features);
        card.forgo_doorbells(&memory).unwrap();
        let heard = doorbell.clone();
        let card = thread::spawn(move || {
            let mut done = 0;
            while done < 2 {
                let count = turn(&mut card, &memory).unwrap();
                done += count;
                if count == 0 {
                    if !card.want_doorbell(&memory).unwrap() {
                        heard.wait();
                    }
                    card.forgo_doorbells(&memory).unwrap();
                }
            }
        });
        for id in 0..2 {
            offer(&mut queue, id);
            publish(&mut queue, &parts, id, features, &doorbell);
        }
        card.join().unwrap();
        let mut next = 0;
        take(&mut queue, &mut next);
        assert_eq!(next, 2);
    });
}

#[test]
fn a_sleeping_card_is_woken_by_flag() {
    sleeper(0);
}

#[test]
fn a_sleeping_card_is_woken_by_event_index() {
    sleeper(feature::EVENT_IDX);
}

/// A guest that sleeps, as Linux does, is called: it asks for calls, looks once more, waits.
fn sleeping_guest(features: u64) {
    model(move || {
        let (mut queue, memory) = queue();
        offer(&mut queue, 0);
        offer(&mut queue, 1);
        queue.publish();
        let doorbell = Arc::new(Doorbell::default());
        let parts = memory.0.clone();
        let mut card = ring(&memory, 0, features);
        let called = doorbell.clone();
        let card = thread::spawn(move || {
            for n in 0..2 {
                assert!(card.available(&memory, 1).unwrap() > 0);
                card.take(1);
                card.put_used(&memory, n, 40 + u32::from(n)).unwrap();
                if card.publish(&memory).unwrap() {
                    called.ring();
                }
            }
        });
        let mut next = 0;
        while next < 2 {
            take(&mut queue, &mut next);
            if features & feature::EVENT_IDX == 0 {
                parts.avail[0].store(0, Ordering::Relaxed);
            } else {
                parts.avail[2 + usize::from(SIZE)].store(next, Ordering::Relaxed);
            }
            fence(Ordering::SeqCst);
            if next < 2 && queue.returned() == Ok(0) {
                doorbell.wait();
            }
            parts.avail[0].store(1, Ordering::Relaxed);
        }
        card.join().unwrap();
    });
}

#[test]
fn a_sleeping_guest_is_called_by_flag() {
    sleeping_guest(0);
}

#[test]
fn a_sleeping_guest_is_called_by_event_index() {
    sleeping_guest(feature::EVENT_IDX);
}

/// Buffers go round: each side writes what the other has read, and reads what the other has written.
#[test]
fn what_goes_round_is_whole_on_both_sides() {
    model(|| {
        let (mut queue, memory) = queue();
        let mut card = ring(&memory, 0, 0);
        let card = thread::spawn(move || {
            let mut done = 0;
            while done < 3 {
                done += turn(&mut card, &memory).unwrap();
                thread::yield_now();
            }
        });
        let (mut offered, mut next) = (0, 0);
        while next < 3 {
            while offered < 3 && offered - next < SIZE {
                offer(&mut queue, offered % SIZE);
                offered += 1;
            }
            queue.publish();
            take(&mut queue, &mut next);
            thread::yield_now();
        }
        card.join().unwrap();
    });
}

/// A card that is stopped in a burst touches nothing after its answer, and the index in it is where the next one goes on: no buffer is used twice, none is
/// forgotten.
#[test]
fn a_burst_that_is_stopped_goes_on_where_it_was() {
    model(|| {
        let (mut queue, memory) = queue();
        let memory = Arc::new(memory);
        let stop = Arc::new(AtomicU16::new(0));
        let (answer, base) = loom::sync::mpsc::channel();
        let mut card = ring(&memory, 0, 0);
        let (its_memory, told) = (memory.clone(), stop.clone());
        let card = thread::spawn(move || {
            while told.load(Ordering::Relaxed) == 0 {
                turn(&mut card, &its_memory).unwrap();
                thread::yield_now();
            }
            answer.send(card.base()).unwrap();
        });
        for id in 0..2 {
            offer(&mut queue, id);
            queue.publish();
        }
        stop.store(1, Ordering::Relaxed);
        let base = base.recv().unwrap();
        let mut next = 0;
        take(&mut queue, &mut next);
        assert_eq!(next, base);
        // Another card, on this side of the answer.
        let mut other = ring(&memory, base, 0);
        assert_eq!(turn(&mut other, &memory), Ok(2 - base));
        take(&mut queue, &mut next);
        assert_eq!(next, 2);
        card.join().unwrap();
    });
}
