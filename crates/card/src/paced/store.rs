//! Frames that are on their way.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use crate::header::Header;
use crate::model::Picos;

/// Frames in order, in memory that is as large as it will ever be.
#[derive(Debug)]
pub(super) struct Store {
    bytes: Box<[u8]>,
    frames: VecDeque<Stored>,
}

/// A frame in the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    /// When it is there.
    pub at: Picos,
    pub header: Header,
    /// Link header included.
    pub len: usize,
    start: usize,
}

impl Store {
    /// Room for so many bytes of frames, and for so many frames as are of usual length.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes: vec![0; bytes].into_boxed_slice(),
            frames: VecDeque::with_capacity(bytes / 64),
        }
    }

    /// True when there is a place for a frame of `len` bytes.
    pub(super) fn has_place(&self, len: usize) -> bool {
        self.place(len).is_some()
    }

    /// Where a frame of `len` bytes goes: its bytes lie side by side, behind those of the frame before, or at the beginning again.
    fn place(&self, len: usize) -> Option<usize> {
        if self.frames.len() == self.frames.capacity() {
            return None;
        }
        let (Some(first), Some(last)) = (self.frames.front(), self.frames.back()) else {
            return (len <= self.bytes.len()).then_some(0);
        };
        let end = last.start + last.len;
        if last.start < first.start {
            return (end + len <= first.start).then_some(end);
        }
        if end + len <= self.bytes.len() {
            Some(end)
        } else {
            (len <= first.start).then_some(0)
        }
    }

    /// Keeps a frame of `len` bytes, not 0, which `write` writes. False when there is no place, or `write` says no.
    pub(super) fn put(
        &mut self,
        at: Picos,
        header: Header,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        let Some(start) = self.place(len) else {
            return false;
        };
        let written = self.bytes.get_mut(start..start + len).is_some_and(write);
        if written {
            self.frames.push_back(Stored {
                at,
                header,
                len,
                start,
            });
        }
        written
    }

    /// The oldest frame and its bytes.
    pub(super) fn first(&self) -> Option<(Stored, &[u8])> {
        let frame = *self.frames.front()?;
        let bytes = self.bytes.get(frame.start..frame.start + frame.len)?;
        Some((frame, bytes))
    }

    /// Forgets the oldest frame.
    pub(super) fn pop(&mut self) {
        self.frames.pop_front();
    }

    /// Forgets all. How many there were.
    pub(super) fn clear(&mut self) -> usize {
        let count = self.frames.len();
        self.frames.clear();
        count
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec;

    use super::*;

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(steps in vec((0..3u8, 1..300usize), 1..400)) {
            let mut store = Store::new(1024);
            let mut expected: VecDeque<(u64, std::vec::Vec<u8>)> = VecDeque::new();
            for (n, (step, len)) in steps.into_iter().enumerate() {
                if step == 0 {
                    let first = store.first().map(|(frame, bytes)| (frame.at.get(), bytes.to_vec()));
                    prop_assert_eq!(first, expected.pop_front());
                    store.pop();
                } else {
                    let has_place = store.has_place(len);
                    let put = store.put(Picos::new(n as u64), Header::default(), len, |place| {
                        place.fill(n as u8);
                        true
                    });
                    prop_assert_eq!(put, has_place);
                    if put {
                        expected.push_back((n as u64, vec![n as u8; len]));
                    } else {
                        // Room is left at the end and in front of the first one, in neither place enough.
                        let held: usize = expected.iter().map(|(_, bytes)| bytes.len()).sum();
                        prop_assert!(held + len + 300 > 1024 || expected.len() >= 16);
                    }
                }
            }
        }
    }
}
