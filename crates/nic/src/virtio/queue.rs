//! The split virtqueue (virtio 1.2, section 2.7), driver side, without interrupts.
//!
//! Each descriptor belongs to one buffer for good, so a buffer is handed over by writing its number to the
//! available ring and comes back as a number and a length in the used ring:
//!
//! ```text
//!   driver --offer--> [available ring] --> device --> [used ring] --take--> driver
//!                       publish (one index, one doorbell at most)
//! ```

use alloc::boxed::Box;
use alloc::vec;
use core::ptr::NonNull;

use super::tables::{Ordering, Tables, fence};
use crate::Fault;

/// Descriptor flag: the buffer goes on in another.
const VIRTQ_DESC_F_NEXT: u16 = 1;
/// Descriptor flag: the device writes to the buffer (else it reads).
pub(super) const VIRTQ_DESC_F_WRITE: u16 = 2;
const VIRTQ_AVAIL_F_NO_INTERRUPT: u16 = 1;
const VIRTQ_USED_F_NO_NOTIFY: u16 = 1;

/// One queue. Its size is a power of two.
pub(super) struct Queue {
    tables: Tables,
    size: u16,
    /// Which buffers the device has: what it returns is believed only if it had it.
    lent: Box<[bool]>,
    /// Free-running index behind the last offered buffer.
    offered: u16,
    /// The same for the last one that the device has been told of.
    published: u16,
    /// Free-running index of the next used element.
    taken: u16,
}

impl Queue {
    /// Takes over zeroed memory as a queue of `size` (a power of two, at most 32768) buffers.
    ///
    /// # Safety
    /// `base`, aligned to 16 bytes, must be valid for reads and writes of `Layout::new(size).len` bytes for
    /// the life of the queue, and referenced by no Rust reference.
    pub(super) unsafe fn new(base: NonNull<u8>, size: u16) -> Self {
        debug_assert!(size.is_power_of_two());
        // SAFETY: the caller's promise.
        let tables = unsafe { Tables::new(base, size) };
        tables.set_avail_flags(VIRTQ_AVAIL_F_NO_INTERRUPT);
        Self {
            tables,
            size,
            lent: vec![false; size.into()].into_boxed_slice(),
            offered: 0,
            published: 0,
            taken: 0,
        }
    }

    /// One of `size` buffers, and what the device sees of it.
    #[cfg(loom)]
    pub(super) fn in_loom_memory(
        size: u16,
    ) -> (Self, loom::sync::Arc<super::tables::loom_tables::Parts>) {
        // SAFETY: under loom, no memory is used.
        let queue = unsafe { Self::new(NonNull::dangling(), size) };
        let device = queue.tables.0.clone();
        (queue, device)
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Describes buffer `id` to the device. `id` is below the size.
    pub(super) fn describe(&mut self, id: u16, address: u64, len: u32, flags: u16) {
        self.write_descriptor(id, address, len, flags, 0);
    }

    /// The same for a buffer that the device reads and that goes on in buffer `next`.
    pub(super) fn describe_chained(&mut self, id: u16, address: u64, len: u32, next: u16) {
        self.write_descriptor(id, address, len, VIRTQ_DESC_F_NEXT, next);
    }

    fn write_descriptor(&mut self, id: u16, address: u64, len: u32, flags: u16, next: u16) {
        let flags_and_next = u32::from(flags) | u32::from(next) << 16;
        let words = [address as u32, (address >> 32) as u32, len, flags_and_next];
        self.tables.set_descriptor(id, words);
    }

    /// Puts buffer `id` into the available ring; the device sees it after [`Self::publish`].
    /// `id` is below the size and not lent.
    #[inline]
    pub(super) fn offer(&mut self, id: u16) {
        if let Some(lent) = self.lent.get_mut(usize::from(id)) {
            *lent = true;
        }
        self.tables.set_avail(self.offered, id);
        self.offered = self.offered.wrapping_add(1);
    }

    /// Shows the device all that was offered. True when it asks for a doorbell.
    pub(super) fn publish(&mut self) -> bool {
        if self.offered == self.published {
            return false;
        }
        self.published = self.offered;
        self.tables.set_avail_index(self.offered, Ordering::Release);
        // The index must be out before the device's wish is read, else both sides may wait for each other.
        fence(Ordering::SeqCst);
        let flags = self.tables.used_flags();
        flags & VIRTQ_USED_F_NO_NOTIFY == 0
    }

    /// How many buffers the device has returned and nobody has taken.
    #[inline]
    pub(super) fn returned(&self) -> Result<u16, &'static Fault> {
        let index = self.tables.used_index(Ordering::Acquire);
        let returned = index.wrapping_sub(self.taken);
        if returned > self.published.wrapping_sub(self.taken) {
            return Err(&Fault::Misbehaved(
                "its used index is beyond the buffers it was given",
            ));
        }
        Ok(returned)
    }

    /// The buffer number and written length of the next returned buffer; there is one, as [`Self::returned`]
    /// told. The number is that of a lent buffer; the length is the device's word.
    pub(super) fn peek(&self) -> Result<(u16, u32), &'static Fault> {
        let (id, len) = self.tables.used(self.taken);
        match self.lent.get(id as usize) {
            Some(true) => Ok((id as u16, len)),
            _ => Err(&Fault::Misbehaved(
                "it returned a buffer that it was not given",
            )),
        }
    }

    /// Takes back the next returned buffer, which [`Self::peek`] has told to be `id`.
    pub(super) fn take(&mut self, id: u16) {
        if let Some(lent) = self.lent.get_mut(usize::from(id)) {
            *lent = false;
        }
        self.taken = self.taken.wrapping_add(1);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
