//! Frames in a bounded memory, written where the firmware may interrupt the writer at any time.
//!
//! ```text
//! words of a frame:  time-stamp counter | meta | Ethernet header (2 words) | what is kept of the rest
//! meta:              length (32) | bytes kept of the rest (16) | interface (8) | sent (1), finished (1)
//! ```
//!
//! Who writes takes its words first, by one atomic step. So a frame that comes by an interrupt, while another is being written, lies behind that.

use super::{Frame, Keep};
use alloc::vec::Vec;
use core::iter;
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes of an Ethernet header.
pub(super) const HEADER: usize = 14;

/// Words before what is kept of the rest.
const BEFORE: usize = 4;

const SENT: u64 = 1;
const FINISHED: u64 = 2;

/// The frames, and what there was no room for.
pub(super) struct Recorder<M> {
    words: M,
    keep: Keep,
    used: AtomicUsize,
    lost: AtomicU64,
    spent: AtomicU64,
}

/// A frame that has been written, and does not count yet.
pub(super) struct Entry<'a> {
    ticks: &'a AtomicU64,
    meta: &'a AtomicU64,
}

impl Entry<'_> {
    /// From now on the frame counts, with the time-stamp counter at which it passed.
    pub(super) fn finish(self, ticks: u64) {
        self.ticks.store(ticks, Ordering::Relaxed);
        self.meta.fetch_or(FINISHED, Ordering::Release);
    }
}

impl<M: Deref<Target = [AtomicU64]>> Recorder<M> {
    pub(super) fn new(words: M, keep: Keep) -> Self {
        Self {
            words,
            keep,
            used: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            spent: AtomicU64::new(0),
        }
    }

    /// Writes a frame. `None` where there is no room: it is counted.
    pub(super) fn begin(
        &self,
        interface: usize,
        sent: bool,
        header: &[u8; HEADER],
        body: &[u8],
    ) -> Option<Entry<'_>> {
        let kept = (self.keep)(header, body).min(usize::from(u16::MAX));
        let kept = body.get(..kept).unwrap_or(body);
        let size = BEFORE + kept.len().div_ceil(8);
        let take = |used: usize| {
            used.checked_add(size)
                .filter(|end| *end <= self.words.len())
        };
        let taken = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, take);
        let place = taken.ok().and_then(|at| self.words.get(at..at + size));
        let Some([ticks, meta, first, second, rest @ ..]) = place else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let length = u64::from(u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX));
        let sent = if sent { SENT } else { 0 };
        let said = length << 32 | (kept.len() as u64) << 16 | (interface as u64 & 0xff) << 8 | sent;
        meta.store(said, Ordering::Relaxed);
        let (low, high) = header.split_at(8);
        first.store(word(low), Ordering::Relaxed);
        second.store(word(high), Ordering::Relaxed);
        let (words, tail) = kept.as_chunks::<8>();
        for (place, bytes) in rest.iter().zip(words) {
            place.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if let Some(place) = rest.get(words.len()) {
            place.store(word(tail), Ordering::Relaxed);
        }
        Some(Entry { ticks, meta })
    }

    /// Adds ticks that watching took.
    pub(super) fn spent(&self, ticks: u64) {
        self.spent.fetch_add(ticks, Ordering::Relaxed);
    }

    pub(super) fn ticks_spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Forgets all frames and counts.
    pub(super) fn forget(&self) {
        self.used.store(0, Ordering::Release);
        self.lost.store(0, Ordering::Relaxed);
        self.spent.store(0, Ordering::Relaxed);
    }

    /// The frames that are finished, with the counter as it was. For when nobody writes.
    pub(super) fn frames(&self) -> impl Iterator<Item = Frame> {
        let used = self.used.load(Ordering::Acquire);
        let mut rest = self.words.get(..used).unwrap_or_default();
        iter::from_fn(move || {
            loop {
                let [ticks, meta, first, second, behind @ ..] = rest else {
                    return None;
                };
                let meta = meta.load(Ordering::Acquire);
                let kept = (meta >> 16 & 0xffff) as usize;
                let (words, next) = behind.split_at_checked(kept.div_ceil(8))?;
                rest = next;
                if meta & FINISHED == 0 {
                    continue;
                }
                let bytes_of = |word: &AtomicU64| word.load(Ordering::Relaxed).to_le_bytes();
                let mut bytes: Vec<u8> = [first, second].into_iter().flat_map(bytes_of).collect();
                bytes.truncate(HEADER);
                bytes.extend(words.iter().flat_map(bytes_of).take(kept));
                return Some(Frame {
                    ticks: ticks.load(Ordering::Relaxed),
                    interface: (meta >> 8 & 0xff) as usize,
                    sent: meta & SENT != 0,
                    length: (meta >> 32) as usize,
                    bytes,
                });
            }
        })
    }
}

/// Up to eight bytes as a word, the rest 0.
fn word(bytes: &[u8]) -> u64 {
    let shifted = bytes.iter().zip((0..64).step_by(8));
    shifted.fold(0, |word, (byte, shift)| word | u64::from(*byte) << shift)
}
