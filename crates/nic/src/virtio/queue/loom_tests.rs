//! Driver and device: every interleaving of the two.

use super::*;
use crate::virtio::tables::loom_tables::Parts;
use loom::thread;

/// The device tells that it is done with buffer 0.
fn put_used(device: &Parts, len: u32) {
    device.put_used(0, (0, len));
    device.used[1].store(1, Ordering::Release);
}

#[test]
fn the_device_sees_a_whole_descriptor() {
    loom::model(|| {
        let (mut queue, device) = Queue::in_loom_memory(2);
        let device = thread::spawn(move || {
            while device.avail[1].load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            assert_eq!(device.avail[2].load(Ordering::Relaxed), 1);
            assert_eq!(device.descriptor(1), [0x5678, 0x1234, 60, 2]);
        });
        queue.describe(1, 0x1234_0000_5678, 60, VIRTQ_DESC_F_WRITE);
        queue.offer(1);
        assert!(queue.publish());
        device.join().unwrap();
    });
}

#[test]
fn the_driver_sees_what_the_device_returned() {
    loom::model(|| {
        let (mut queue, device) = Queue::in_loom_memory(2);
        queue.offer(0);
        queue.publish();
        let device = thread::spawn(move || put_used(&device, 77));
        while queue.returned() != Ok(1) {
            thread::yield_now();
        }
        assert_eq!(queue.peek(), Ok((0, 77)));
        device.join().unwrap();
    });
}

/// The device asks for doorbells, then looks once more: it is told of a buffer one way or the other.
#[test]
fn no_doorbell_is_missed() {
    loom::model(|| {
        let (mut queue, device) = Queue::in_loom_memory(2);
        device.used[0].store(VIRTQ_USED_F_NO_NOTIFY, Ordering::Relaxed);
        let device = thread::spawn(move || {
            device.used[0].store(0, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            device.avail[1].load(Ordering::Relaxed) == 1
        });
        queue.offer(0);
        let rings = queue.publish();
        let seen = device.join().unwrap();
        assert!(rings || seen, "both wait");
    });
}
