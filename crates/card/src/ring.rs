//! The split virtqueue (virtio 1.2, section 2.7), device side.
//!
//! ```text
//!   guest --> [available ring] --> available, chain --> (card) --> put_used --> [used ring] --> guest
//!                                                                  publish: one index, one call at most
//! ```
//!
//! What [`Ring::put_used`] writes the guest sees after [`Ring::publish`], all at once.

mod chain;
mod fault;
mod lies;
mod suppression;

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use crate::feature;
use crate::memory::{GuestMemory, Span};
pub(crate) use chain::Chain;
pub use fault::RingFault;
pub(crate) use lies::Liar;
pub use lies::{Lie, Lies};

/// The longest ring. Monitors have none that is longer.
pub const MAX_RING: u16 = 1024;

const DESCRIPTOR_LEN: u32 = 16;

/// Which way a ring's buffers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    FromGuest,
    ToGuest,
}

/// Where a ring lies, by guest physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// Entries of each table: a power of two, at most [`MAX_RING`].
    pub size: u16,
    /// The descriptor table (virtio 1.2, section 2.7.5): a multiple of 16.
    pub descriptors: u64,
    /// The available ring, which the guest writes (section 2.7.6): a multiple of 2.
    pub available: u64,
    /// The used ring, which the card writes (section 2.7.8): a multiple of 4.
    pub used: u64,
}

impl RingLayout {
    /// The three tables, each with its event index.
    fn tables(&self) -> [Span; 3] {
        let size = u32::from(self.size);
        let table = |address, len| Span { address, len };
        [
            table(self.descriptors, DESCRIPTOR_LEN * size),
            table(self.available, 6 + 2 * size),
            table(self.used, 6 + 8 * size),
        ]
    }

    fn available_index(&self) -> u64 {
        self.available + 2
    }

    /// Its size is a power of two.
    fn slot(&self, index: u16) -> u64 {
        u64::from(index & self.size.wrapping_sub(1))
    }

    fn available_entry(&self, index: u16) -> u64 {
        self.available + 4 + 2 * self.slot(index)
    }

    /// Behind the available ring: when the guest wants to be called.
    fn used_event(&self) -> u64 {
        self.available + 4 + 2 * u64::from(self.size)
    }

    fn used_index(&self) -> u64 {
        self.used + 2
    }

    fn used_entry(&self, index: u16) -> u64 {
        self.used + 4 + 8 * self.slot(index)
    }

    /// Behind the used ring: when the card wants a doorbell.
    fn available_event(&self) -> u64 {
        self.used + 4 + 8 * u64::from(self.size)
    }
}

/// How a ring starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingStart {
    /// Where its parts lie in the guest's memory.
    pub layout: RingLayout,
    /// The index of the first buffer to take.
    pub base: u16,
    /// What was agreed on.
    pub features: u64,
}

/// A ring in use.
#[derive(Debug)]
pub struct Ring {
    layout: RingLayout,
    direction: Direction,
    event_idx: bool,
    indirect: bool,
    /// Free-running index of the next buffer to take.
    next: u16,
    /// The guest's index behind the last buffer, when last looked at.
    seen: u16,
    /// Free-running index of the next used entry.
    used: u16,
    /// The same as the guest knows it.
    published: u16,
    /// The used index when the guest was last asked whether it wants calls.
    signalled: Option<u16>,
    /// Does wrong on purpose.
    pub(crate) liar: Option<Box<Liar>>,
}

impl Ring {
    /// A ring whose tables lie in the guest's memory.
    ///
    /// # Errors
    /// [`RingFault`].
    pub(crate) fn start<M: GuestMemory>(
        memory: &M,
        start: RingStart,
        direction: Direction,
    ) -> Result<Self, RingFault> {
        let layout = start.layout;
        if !layout.size.is_power_of_two() || layout.size > MAX_RING {
            return Err(RingFault::Size);
        }
        if !layout.descriptors.is_multiple_of(16)
            || !layout.available.is_multiple_of(2)
            || !layout.used.is_multiple_of(4)
        {
            return Err(RingFault::Misaligned);
        }
        if !layout
            .tables()
            .into_iter()
            .all(|span| memory.contains(span))
        {
            return Err(RingFault::Unmapped);
        }
        let used = memory.load(layout.used_index(), Ordering::Relaxed)?;
        Ok(Self {
            layout,
            direction,
            event_idx: start.features & feature::EVENT_IDX != 0,
            indirect: start.features & feature::INDIRECT_DESC != 0,
            next: start.base,
            seen: start.base,
            used,
            published: used,
            signalled: None,
            liar: None,
        })
    }

    /// True when a buffer is to come back that nobody rings for.
    pub(crate) fn keeps(&self) -> bool {
        self.liar.as_ref().is_some_and(|liar| liar.keeps())
    }

    /// How many descriptors it has.
    pub(crate) fn size(&self) -> u16 {
        self.layout.size
    }

    /// The index of the first buffer that the guest has not been told to be used: where the ring is to start again.
    pub(crate) fn base(&self) -> u16 {
        self.next
            .wrapping_sub(self.used.wrapping_sub(self.published))
    }

    /// Buffers that the guest has made available and nobody has taken, so many that `wanted` are there if the guest has them.
    #[inline]
    pub(crate) fn available<M: GuestMemory>(
        &mut self,
        memory: &M,
        wanted: u16,
    ) -> Result<u16, RingFault> {
        let known = self.seen.wrapping_sub(self.next);
        if self.liar.as_ref().is_some_and(|liar| liar.is_silent()) {
            return Ok(0);
        }
        if known >= wanted {
            return Ok(known);
        }
        let seen = memory.load(self.layout.available_index(), Ordering::Acquire)?;
        let count = seen.wrapping_sub(self.next);
        if count > self.layout.size {
            return Err(RingFault::AvailableIndex);
        }
        self.seen = seen;
        Ok(count)
    }

    /// Marks buffers as taken.
    #[inline]
    pub(crate) fn take(&mut self, count: u16) {
        self.next = self.next.wrapping_add(count);
    }

    /// Gives a buffer back, of which `len` bytes were written. The guest sees it after [`Self::publish`].
    #[inline]
    pub(crate) fn put_used<M: GuestMemory>(
        &mut self,
        memory: &M,
        head: u16,
        len: u32,
    ) -> Result<(), RingFault> {
        if let Some(liar) = &mut self.liar {
            liar.put(self.layout.size, head, len);
            return Ok(());
        }
        self.write_used(memory, head.into(), len)
    }

    #[inline]
    fn write_used<M: GuestMemory>(
        &mut self,
        memory: &M,
        id: u32,
        len: u32,
    ) -> Result<(), RingFault> {
        memory.write_words(self.layout.used_entry(self.used), [id, len])?;
        self.used = self.used.wrapping_add(1);
        Ok(())
    }

    /// Shows the guest all that was given back. True when it wants to be called for that.
    #[inline]
    pub(crate) fn publish<M: GuestMemory>(&mut self, memory: &M) -> Result<bool, RingFault> {
        if self.liar.is_some() {
            return self.publish_lies(memory);
        }
        if self.used == self.published {
            return Ok(false);
        }
        memory.store(self.layout.used_index(), self.used, Ordering::Release)?;
        self.published = self.used;
        self.wants_call(memory)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
mod tests;
