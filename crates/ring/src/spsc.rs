//! A bounded queue from one producer to one consumer.
//!
//! `tail` counts what was ever pushed and is written by the producer alone; `head` counts what was ever
//! popped and is written by the consumer alone. A slot belongs to the producer while `tail - head` has not
//! reached it and to the consumer afterwards, so the two counters are all that needs ordering.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::mem::MaybeUninit;

use crate::sync::{AtomicUsize, Counter, Ordering, UnsafeCell};

struct Queue<T> {
    head: Counter,
    tail: Counter,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is touched by one end at a time (see the module's text), and T itself may change processor.
unsafe impl<T: Send> Send for Queue<T> {}
// SAFETY: as above; the shared counters are atomics.
unsafe impl<T: Send> Sync for Queue<T> {}

impl<T> Queue<T> {
    fn slot(&self, position: usize) -> &UnsafeCell<MaybeUninit<T>> {
        #[expect(
            clippy::indexing_slicing,
            reason = "the capacity is a power of two, so the mask keeps the index in range"
        )]
        &self.slots[position & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        let tail = self.tail.0.load(Ordering::Relaxed);
        let mut head = self.head.0.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: both ends are gone, and slots from head to tail hold values that nobody took.
            self.slot(head)
                .with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}

/// The end that pushes.
pub struct Sender<T>(Arc<Queue<T>>);

/// The end that pops.
pub struct Receiver<T>(Arc<Queue<T>>);

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

/// Makes a queue that holds at least `capacity` values (rounded up to a power of two, at least 1).
#[must_use]
pub fn channel<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let queue = Arc::new(Queue {
        head: Counter(AtomicUsize::new(0)),
        tail: Counter(AtomicUsize::new(0)),
        slots: (0..capacity)
            .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
            .collect(),
    });
    (Sender(queue.clone()), Receiver(queue))
}

impl<T: Send> Sender<T> {
    /// Pushes `value`, or gives it back when the queue is full.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let queue = &*self.0;
        let tail = queue.tail.0.load(Ordering::Relaxed);
        // Acquire: the consumer's read of the slot happens before we write it again.
        let head = queue.head.0.load(Ordering::Acquire);
        if tail.wrapping_sub(head) == queue.slots.len() {
            return Err(value);
        }
        queue.slot(tail).with_mut(|slot| {
            // SAFETY: the slot lies outside head..tail, so the consumer does not look at it.
            unsafe { (*slot).write(value) };
        });
        // Release: the value is in the slot before the consumer sees the new tail.
        queue.tail.0.store(tail.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Values that can be pushed now for certain (the consumer may free more at any time).
    #[must_use]
    pub fn room(&self) -> usize {
        let tail = self.0.tail.0.load(Ordering::Relaxed);
        // Relaxed: no slot is touched, and `push` looks again.
        let head = self.0.head.0.load(Ordering::Relaxed);
        self.0.slots.len() - tail.wrapping_sub(head)
    }
}

impl<T: Send> Receiver<T> {
    /// Takes the oldest value, or `None` when the queue is empty.
    pub fn pop(&mut self) -> Option<T> {
        let queue = &*self.0;
        let head = queue.head.0.load(Ordering::Relaxed);
        // Acquire: the producer's write of the slot happens before we read it.
        if head == queue.tail.0.load(Ordering::Acquire) {
            return None;
        }
        let value = queue.slot(head).with(|slot| {
            // SAFETY: the slot lies in head..tail: the producer wrote it and will not touch it until head moves.
            unsafe { (*slot).assume_init_read() }
        });
        // Release: our read is over before the producer sees the slot free.
        queue.head.0.store(head.wrapping_add(1), Ordering::Release);
        Some(value)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn first_in_first_out_and_bounded() {
        let (mut tx, mut rx) = channel(3);
        assert_eq!(tx.room(), 4);
        for i in 0..4 {
            assert_eq!(tx.push(i), Ok(()));
            assert_eq!(tx.room(), 3 - i);
        }
        assert_eq!(tx.push(9), Err(9));
        let out: Vec<_> = core::iter::from_fn(|| rx.pop()).collect();
        assert_eq!(out, [0, 1, 2, 3]);
        assert_eq!(tx.room(), 4);
    }

    #[test]
    fn counters_may_wrap_many_times_round_the_slots() {
        let (mut tx, mut rx) = channel(2);
        for i in 0..1000 {
            tx.push(i).unwrap();
            assert_eq!(rx.pop(), Some(i));
            assert_eq!(rx.pop(), None);
        }
    }

    #[test]
    fn values_left_behind_are_dropped_once() {
        let value = Arc::new(());
        let (mut tx, mut rx) = channel(4);
        for _ in 0..3 {
            tx.push(value.clone()).unwrap();
        }
        drop(rx.pop());
        drop((tx, rx));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
