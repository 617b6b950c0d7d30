//! Frames that wait for their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use wireboot_card::{Header, LONGEST_UNIT};

/// Frames that wait, at most.
const MOST: usize = 512;

/// Frames by when they are due, those of the same time in order. Each has a place as long as the longest; the kernel gives memory for what was
/// written.
#[derive(Debug)]
pub(super) struct Waiting {
    bytes: Box<[u8]>,
    frames: BinaryHeap<Reverse<Frame>>,
    free: Vec<usize>,
    count: u64,
}

/// By time and number first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    due: Duration,
    number: u64,
    place: usize,
    len: usize,
    times: u32,
    header: ByNumber,
}

/// Numbers differ, so headers are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ByNumber(Header);

impl PartialOrd for ByNumber {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByNumber {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; MOST * LONGEST_UNIT].into_boxed_slice(),
            frames: BinaryHeap::with_capacity(MOST),
            free: (0..MOST).rev().collect(),
            count: 0,
        }
    }

    /// Keeps a frame of `len` bytes, which `write` writes, until it is due; it then goes so many times. False when there is no place, or `write`
    /// says no.
    pub(super) fn put(
        &mut self,
        (due, times): (Duration, u32),
        header: Header,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        let Some(place) = self.free.last().copied().filter(|_| len <= LONGEST_UNIT) else {
            return false;
        };
        let start = place * LONGEST_UNIT;
        if !self.bytes.get_mut(start..start + len).is_some_and(write) {
            return false;
        }
        self.free.pop();
        self.count += 1;
        self.frames.push(Reverse(Frame {
            due,
            number: self.count,
            place,
            len,
            times,
            header: ByNumber(header),
        }));
        true
    }

    /// When the first is due.
    pub(super) fn due(&self) -> Option<Duration> {
        self.frames.peek().map(|Reverse(frame)| frame.due)
    }

    /// The first, if it is due.
    pub(super) fn first(&self, now: Duration) -> Option<(Header, &[u8])> {
        let Reverse(frame) = self.frames.peek()?;
        let start = frame.place * LONGEST_UNIT;
        let bytes = self.bytes.get(start..start + frame.len)?;
        (frame.due <= now).then_some((frame.header.0, bytes))
    }

    /// The first has gone once.
    pub(super) fn pop(&mut self) {
        let Some(mut first) = self.frames.peek_mut() else {
            return;
        };
        if first.0.times > 1 {
            first.0.times -= 1;
        } else {
            self.free.push(first.0.place);
            std::collections::binary_heap::PeekMut::pop(first);
        }
    }

    /// Forgets all. How many there were.
    pub(super) fn clear(&mut self) -> usize {
        let count = self.frames.len();
        self.frames.clear();
        self.free.clear();
        self.free.extend((0..MOST).rev());
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(waiting: &mut Waiting, due: u64, times: u32, byte: u8) -> bool {
        let due = Duration::from_micros(due);
        let fill = |place: &mut [u8]| {
            place.fill(byte);
            true
        };
        waiting.put(
            (due, times),
            Header::default(),
            60 + usize::from(byte),
            fill,
        )
    }

    fn take(waiting: &mut Waiting, now: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some((_, frame)) = waiting.first(Duration::from_micros(now)) {
            assert_eq!(frame.len(), 60 + usize::from(frame[0]));
            bytes.push(frame[0]);
            waiting.pop();
        }
        bytes
    }

    #[test]
    fn frames_go_when_they_are_due_and_otherwise_in_order() {
        let mut waiting = Waiting::new();
        for (due, times, byte) in [(20, 1, 1), (10, 2, 2), (20, 1, 3), (10, 1, 4)] {
            assert!(put(&mut waiting, due, times, byte));
        }
        assert_eq!(waiting.due(), Some(Duration::from_micros(10)));
        assert_eq!(take(&mut waiting, 9), [0u8; 0]);
        assert_eq!(take(&mut waiting, 10), [2, 2, 4]);
        assert_eq!(take(&mut waiting, 100), [1, 3]);
        assert_eq!(waiting.due(), None);
    }

    #[test]
    fn there_are_as_many_places_as_there_are_again_and_again() {
        let mut waiting = Waiting::new();
        let no = waiting.put((Duration::ZERO, 1), Header::default(), 60, |_| false);
        assert!(!no);
        for _ in 0..3 {
            let kept = (0..MOST + 9).filter(|n| put(&mut waiting, 5, 1, *n as u8));
            assert_eq!(kept.count(), MOST);
            assert_eq!(take(&mut waiting, 5).len(), MOST);
            assert!(put(&mut waiting, 5, 1, 0));
            assert_eq!(waiting.clear(), 1);
        }
        let long = |len| {
            move |waiting: &mut Waiting| {
                waiting.put((Duration::ZERO, 1), Header::default(), len, |_| true)
            }
        };
        assert!(long(LONGEST_UNIT)(&mut waiting));
        assert!(!long(LONGEST_UNIT + 1)(&mut waiting));
    }
}
