//! When frames that are gathered for one transfer are to go.

use core::time::Duration;

/// A moment of the owner's clock, or a time between two.
pub trait Time: Copy + Ord {
    /// So much later; the latest moment where there is none so late.
    #[must_use]
    fn plus(self, time: Self) -> Self;
}

impl Time for Duration {
    fn plus(self, time: Self) -> Self {
        self.saturating_add(time)
    }
}

/// What ends the gathering. Whatever comes first does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits<T> {
    /// So many frames have come.
    pub frames: usize,
    /// So many bytes have come, or the next frame would make them more.
    pub bytes: usize,
    /// The first frame has waited so long.
    pub wait: T,
}

/// Frames that go together: the oldest ones, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// How many there are; not 0.
    pub frames: usize,
    /// The sum of their lengths.
    pub bytes: usize,
}

/// Counts frames and decides which go together, and when. The frames themselves are its owner's.
///
/// Its owner may take them later than they are due, when there was no way before; frames that come meanwhile go with them, within the
/// limits. A frame is never refused: one that is longer than the limit goes alone.
#[derive(Clone, Copy, Debug)]
pub struct Coalescer<T> {
    limits: Limits<T>,
    waiting: Batch,
    due: Option<T>,
}

impl<T: Time> Coalescer<T> {
    /// Nothing waits yet.
    pub fn new(limits: Limits<T>) -> Self {
        Self {
            limits,
            waiting: Batch::default(),
            due: None,
        }
    }

    /// A frame has come. Where it does not go with those that wait, they are to go before it, and wait no longer.
    #[inline]
    #[must_use]
    pub fn add(&mut self, len: usize, now: T) -> Option<Batch> {
        let fits = self.waiting.frames < self.limits.frames
            && self.waiting.bytes.saturating_add(len) <= self.limits.bytes;
        let before = if fits { None } else { self.take() };
        self.waiting.frames += 1;
        self.waiting.bytes = self.waiting.bytes.saturating_add(len);
        let due = self.due.unwrap_or_else(|| now.plus(self.limits.wait));
        self.due = Some(if self.is_full() { due.min(now) } else { due });
        before
    }

    /// So many frames or bytes wait that no more are to join them.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting.frames >= self.limits.frames || self.waiting.bytes >= self.limits.bytes
    }

    /// The moment from which those that wait are to go; none when nothing waits.
    #[must_use]
    pub fn due(&self) -> Option<T> {
        self.due
    }

    /// Those that wait are due now.
    pub fn expire(&mut self, now: T) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// Those that wait, which wait no longer.
    pub fn take(&mut self) -> Option<Batch> {
        self.due.take()?;
        Some(core::mem::take(&mut self.waiting))
    }
}

#[cfg(test)]
mod tests;
