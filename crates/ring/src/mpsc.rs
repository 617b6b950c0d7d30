//! A bounded queue from several producers to one consumer.
//!
//! Each slot has a turn. While it equals the position that a producer wants, the slot is free for it; the producer who moves
//! `tail` on has the position, writes, and sets the turn one higher, which makes the slot the consumer's; the consumer
//! sets it one round further. A producer that is stopped between the two (a processor that is lost) holds up what is behind it, never
//! the others: they go on until the queue is full.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem::MaybeUninit;

use crate::sync::{AtomicUsize, Counter, Ordering, UnsafeCell};

struct Slot<T> {
    turn: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

struct Queue<T> {
    tail: Counter,
    /// Written by the consumer alone.
    head: Counter,
    slots: Box<[Slot<T>]>,
}

// SAFETY: a slot is touched by whom its turn says (see the module's text), and T itself may change processor.
unsafe impl<T: Send> Send for Queue<T> {}
// SAFETY: as above; the rest is atomics.
unsafe impl<T: Send> Sync for Queue<T> {}

impl<T> Queue<T> {
    fn slot(&self, position: usize) -> &Slot<T> {
        #[expect(
            clippy::indexing_slicing,
            reason = "the capacity is a power of two, so the mask keeps the index in range"
        )]
        &self.slots[position & (self.slots.len() - 1)]
    }

    /// Takes the value at `head`, if a producer is done with it. For the consumer.
    fn pop(&self) -> Option<T> {
        let head = self.head.0.load(Ordering::Relaxed);
        let slot = self.slot(head);
        let filled = head.wrapping_add(1);
        // Acquire: the producer's write of the slot happens before we read it.
        if slot.turn.load(Ordering::Acquire) != filled {
            return None;
        }
        let value = slot.value.with(|value| {
            // SAFETY: the turn says that it is filled and the consumer's, of whom there is one.
            unsafe { (*value).assume_init_read() }
        });
        self.head.0.store(filled, Ordering::Relaxed);
        // Release: our read is over before a producer of the next round sees the slot free.
        let next_round = head.wrapping_add(self.slots.len());
        slot.turn.store(next_round, Ordering::Release);
        Some(value)
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        while let Some(value) = self.pop() {
            drop(value);
        }
    }
}

/// An end that pushes. Clones push to the same queue, and one may be shared.
pub struct SharedSender<T>(Arc<Queue<T>>);

impl<T> Clone for SharedSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The end that pops what several push.
pub struct SharedReceiver<T>(Arc<Queue<T>>);

/// Makes a queue for several producers that holds at least `capacity` values (rounded up to a power of two, at least 2).
#[must_use]
pub fn shared_channel<T: Send>(capacity: usize) -> (SharedSender<T>, SharedReceiver<T>) {
    let capacity = capacity.max(2).next_power_of_two();
    let slot = |turn| Slot {
        turn: AtomicUsize::new(turn),
        value: UnsafeCell::new(MaybeUninit::uninit()),
    };
    let queue = Arc::new(Queue {
        tail: Counter(AtomicUsize::new(0)),
        head: Counter(AtomicUsize::new(0)),
        slots: (0..capacity).map(slot).collect(),
    });
    (SharedSender(queue.clone()), SharedReceiver(queue))
}

impl<T: Send> SharedSender<T> {
    /// Pushes `value`, or gives it back when the queue is full. Never waits for another producer.
    ///
    /// # Errors
    /// The value.
    pub fn push(&self, value: T) -> Result<(), T> {
        let queue = &*self.0;
        let mut tail = queue.tail.0.load(Ordering::Relaxed);
        loop {
            let slot = queue.slot(tail);
            // Acquire: the consumer's read of the slot happens before we write it again.
            let turn = slot.turn.load(Ordering::Acquire);
            let next = tail.wrapping_add(1);
            if turn == tail {
                let taken = queue.tail.0.compare_exchange_weak(
                    tail,
                    next,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                match taken {
                    Ok(_) => {
                        slot.value.with_mut(|place| {
                            // SAFETY: the slot was free for this position, which is ours alone now.
                            unsafe { (*place).write(value) };
                        });
                        // Release: the value is in the slot before the consumer sees it filled.
                        slot.turn.store(next, Ordering::Release);
                        return Ok(());
                    }
                    Err(moved) => tail = moved,
                }
            } else {
                // Filled in the round before and not yet taken, unless another producer was quicker and the position is old.
                let now = queue.tail.0.load(Ordering::Relaxed);
                if now == tail {
                    return Err(value);
                }
                tail = now;
            }
        }
    }
}

impl<T: Send> SharedReceiver<T> {
    /// Takes the oldest value, or `None` when there is none whose producer is done.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn first_in_first_out_and_bounded() {
        let (tx, mut rx) = shared_channel(3);
        for round in 0..10 {
            for i in 0..4 {
                assert_eq!(tx.clone().push(round + i), Ok(()));
            }
            assert_eq!(tx.push(9), Err(9));
            let out: Vec<_> = core::iter::from_fn(|| rx.pop()).collect();
            assert_eq!(out, [round, round + 1, round + 2, round + 3]);
        }
    }

    #[test]
    fn the_smallest_queue_holds_two() {
        let (tx, mut rx) = shared_channel(0);
        assert_eq!(
            (tx.push(1), tx.push(2), tx.push(3)),
            (Ok(()), Ok(()), Err(3))
        );
        assert_eq!((rx.pop(), rx.pop(), rx.pop()), (Some(1), Some(2), None));
    }

    #[test]
    fn values_left_behind_are_dropped_once() {
        let value = Arc::new(());
        let (tx, mut rx) = shared_channel(4);
        for _ in 0..3 {
            tx.push(value.clone()).unwrap();
        }
        drop(rx.pop());
        drop((tx, rx));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    /// One producer has taken a position and never comes back to fill it.
    #[test]
    fn a_lost_producer_stops_nobody_else() {
        let (tx, mut rx) = shared_channel(4);
        tx.push(1).unwrap();
        tx.0.tail.0.fetch_add(1, Ordering::Relaxed);
        assert_eq!(
            (tx.push(3), tx.push(4), tx.push(5)),
            (Ok(()), Ok(()), Err(5))
        );
        assert_eq!((rx.pop(), rx.pop()), (Some(1), None));
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
