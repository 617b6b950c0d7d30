//! Frames that wait for the loader, in memory that is used again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Frames that have been taken, of which the memory is kept.
const SPARE: usize = 64;

#[derive(Default)]
pub(super) struct Frames {
    waiting: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Frames {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Memory for a frame of `len` bytes, with any content.
    pub(super) fn room(&mut self, len: usize) -> Vec<u8> {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.resize(len, 0);
        frame
    }

    pub(super) fn push(&mut self, frame: Vec<u8>) {
        self.waiting.push_back(frame);
    }

    pub(super) fn front(&self) -> Option<&[u8]> {
        self.waiting.front().map(Vec::as_slice)
    }

    /// Forgets the first. False when there is none.
    pub(super) fn skip(&mut self) -> bool {
        let Some(frame) = self.waiting.pop_front() else {
            return false;
        };
        if self.spare.len() < SPARE {
            self.spare.push(frame);
        }
        true
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}
