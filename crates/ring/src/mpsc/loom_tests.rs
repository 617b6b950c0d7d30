//! Producers and the consumer: every interleaving, or of three processors those with few interruptions.

use super::*;
use alloc::vec::Vec;
use loom::thread;

/// Three processors: every interleaving in which none is interrupted more than three times.
fn model_of_three(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// Pushes each value, waiting for room.
fn push_all(tx: &SharedSender<u32>, values: &[u32]) {
    for &value in values {
        while tx.push(value).is_err() {
            thread::yield_now();
        }
    }
}

/// Pops so many values, waiting for each.
fn pop_all(rx: &mut SharedReceiver<u32>, count: usize) -> Vec<u32> {
    let mut out = Vec::new();
    while out.len() < count {
        match rx.pop() {
            Some(value) => out.push(value),
            None => thread::yield_now(),
        }
    }
    out
}

/// Three values through two slots, so that one is used again.
#[test]
fn a_slot_is_handed_over_and_back_in_every_interleaving() {
    loom::model(|| {
        let (tx, mut rx) = shared_channel(2);
        let producer = thread::spawn(move || push_all(&tx, &[1, 2, 3]));
        assert_eq!(pop_all(&mut rx, 3), [1, 2, 3]);
        producer.join().unwrap();
        assert_eq!(rx.pop(), None);
    });
}

#[test]
fn each_producer_is_heard_in_its_own_order() {
    model_of_three(|| {
        let (tx, mut rx) = shared_channel(4);
        let other = tx.clone();
        let first = thread::spawn(move || push_all(&tx, &[10, 11]));
        let second = thread::spawn(move || push_all(&other, &[20]));
        let out = pop_all(&mut rx, 3);
        first.join().unwrap();
        second.join().unwrap();
        let of_first: Vec<_> = out.iter().filter(|value| **value < 20).collect();
        assert_eq!(of_first, [&10, &11]);
        assert_eq!(rx.pop(), None);
    });
}

#[test]
fn a_full_queue_refuses_and_loses_nothing() {
    model_of_three(|| {
        let (tx, mut rx) = shared_channel(2);
        let other = tx.clone();
        let producers = [
            thread::spawn(move || (0..2).filter(|i| tx.push(*i).is_ok()).count()),
            thread::spawn(move || (2..4).filter(|i| other.push(*i).is_ok()).count()),
        ];
        // The first push finds room, whoever it is by.
        let taken = pop_all(&mut rx, 1).len();
        let accepted: usize = producers.map(|p| p.join().unwrap()).iter().sum();
        let left = core::iter::from_fn(|| rx.pop()).count();
        assert_eq!(accepted, taken + left);
        assert!((2..=3).contains(&accepted));
    });
}
