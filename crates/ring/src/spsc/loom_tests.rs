//! Every interleaving of the two ends.

use super::*;
use loom::thread;

#[test]
fn every_value_arrives_in_order_under_every_interleaving() {
    loom::model(|| {
        let (mut tx, mut rx) = channel(2);
        let producer = thread::spawn(move || {
            for i in 0..3 {
                let mut value = i;
                while let Err(back) = tx.push(value) {
                    value = back;
                    thread::yield_now();
                }
            }
        });
        for expected in 0..3 {
            loop {
                if let Some(value) = rx.pop() {
                    assert_eq!(value, expected);
                    break;
                }
                thread::yield_now();
            }
        }
        producer.join().unwrap();
        assert_eq!(rx.pop(), None);
    });
}

#[test]
fn the_last_end_drops_what_is_left() {
    loom::model(|| {
        let (mut tx, rx) = channel(2);
        let value = Arc::new(());
        let sent = value.clone();
        let producer = thread::spawn(move || tx.push(sent).is_ok());
        drop(rx);
        assert!(producer.join().unwrap());
        assert_eq!(Arc::strong_count(&value), 1);
    });
}
