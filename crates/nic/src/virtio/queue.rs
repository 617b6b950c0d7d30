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
use core::sync::atomic::{AtomicU16, Ordering, fence};

use crate::Fault;

// The rings are little endian, and so is every machine with UEFI: no conversions.
const _: () = assert!(cfg!(target_endian = "little"));

/// Descriptor flag: the buffer goes on in another.
const VIRTQ_DESC_F_NEXT: u16 = 1;
/// Descriptor flag: the device writes to the buffer (else it reads).
pub(super) const VIRTQ_DESC_F_WRITE: u16 = 2;
const VIRTQ_AVAIL_F_NO_INTERRUPT: u16 = 1;
const VIRTQ_USED_F_NO_NOTIFY: u16 = 1;

const DESCRIPTOR_LEN: usize = 16;
const USED_ELEMENT_LEN: usize = 8;
/// Flags and index, before the elements of either ring.
const RING_HEADER: usize = 4;

/// Where the parts of a queue lie in its memory, in bytes from the start (the descriptor table is first).
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// The available ring.
    pub avail: usize,
    /// The used ring, on a page of its own: the device writes it.
    pub used: usize,
    /// All of it.
    pub len: usize,
}

impl Layout {
    pub fn new(size: u16) -> Self {
        let size = usize::from(size);
        let avail = DESCRIPTOR_LEN * size;
        let used = (avail + RING_HEADER + 2 * size + 2).next_multiple_of(4096);
        let len = used + RING_HEADER + USED_ELEMENT_LEN * size + 2;
        Layout { avail, used, len }
    }
}

/// One queue. Its size is a power of two.
pub(super) struct Queue {
    base: NonNull<u8>,
    layout: Layout,
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

// SAFETY: the pointer leads to memory at a fixed place that any processor may use and that, on our side, is reached through this queue
// alone, so it may change processor as a whole.
unsafe impl Send for Queue {}

impl Queue {
    /// Takes over zeroed memory as a queue of `size` (a power of two, at most 32768) buffers.
    ///
    /// # Safety
    /// `base`, aligned to 16 bytes, must be valid for reads and writes of `Layout::new(size).len` bytes for
    /// the life of the queue, and referenced by no Rust reference.
    pub unsafe fn new(base: NonNull<u8>, size: u16) -> Self {
        debug_assert!(size.is_power_of_two());
        let queue = Queue {
            base,
            layout: Layout::new(size),
            size,
            lent: vec![false; size.into()].into_boxed_slice(),
            offered: 0,
            published: 0,
            taken: 0,
        };
        queue
            .atomic(queue.layout.avail)
            .store(VIRTQ_AVAIL_F_NO_INTERRUPT, Ordering::Relaxed);
        queue
    }

    pub fn size(&self) -> u16 {
        self.size
    }

    /// Describes buffer `id` to the device. `id` is below the size.
    pub fn describe(&mut self, id: u16, address: u64, len: u32, flags: u16) {
        self.write_descriptor(id, address, len, flags, 0);
    }

    /// The same for a buffer that the device reads and that goes on in buffer `next`.
    pub fn describe_chained(&mut self, id: u16, address: u64, len: u32, next: u16) {
        self.write_descriptor(id, address, len, VIRTQ_DESC_F_NEXT, next);
    }

    fn write_descriptor(&mut self, id: u16, address: u64, len: u32, flags: u16, next: u16) {
        let at = self.descriptor(id);
        // SAFETY: `descriptor` stays inside the descriptor table, which `new` was promised to be valid
        // and aligned; the device does not write it, and reads it only when `id` is in the available ring, or chained to what is.
        unsafe {
            at.cast::<u64>().write_volatile(address);
            at.add(8).cast::<u32>().write_volatile(len);
            at.add(12).cast::<u16>().write_volatile(flags);
            at.add(14).cast::<u16>().write_volatile(next);
        }
    }

    /// Puts buffer `id` into the available ring; the device sees it after [`Self::publish`].
    /// `id` is below the size and not lent.
    #[inline]
    pub fn offer(&mut self, id: u16) {
        if let Some(lent) = self.lent.get_mut(usize::from(id)) {
            *lent = true;
        }
        let slot = usize::from(self.offered & (self.size - 1));
        self.atomic(self.layout.avail + RING_HEADER + 2 * slot)
            .store(id, Ordering::Relaxed);
        self.offered = self.offered.wrapping_add(1);
    }

    /// Shows the device all that was offered. True when it asks for a doorbell.
    pub fn publish(&mut self) -> bool {
        if self.offered == self.published {
            return false;
        }
        self.published = self.offered;
        self.atomic(self.layout.avail + 2)
            .store(self.offered, Ordering::Release);
        // The index must be out before the device's wish is read, else both sides may wait for each other.
        fence(Ordering::SeqCst);
        let flags = self.atomic(self.layout.used).load(Ordering::Relaxed);
        flags & VIRTQ_USED_F_NO_NOTIFY == 0
    }

    /// How many buffers the device has returned and nobody has taken.
    #[inline]
    pub fn returned(&self) -> Result<u16, &'static Fault> {
        let index = self.atomic(self.layout.used + 2).load(Ordering::Acquire);
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
    pub fn peek(&self) -> Result<(u16, u32), &'static Fault> {
        let slot = usize::from(self.taken & (self.size - 1));
        let at = self.layout.used + RING_HEADER + USED_ELEMENT_LEN * slot;
        // SAFETY: the masked slot lies inside the used ring, which `new` was promised to be valid and aligned.
        // The device wrote the element before the index that `returned` read; a volatile read takes
        // whatever a liar writes later as plain data.
        let (id, len) = unsafe {
            let element = self.base.add(at).cast::<u32>();
            (element.read_volatile(), element.add(1).read_volatile())
        };
        match self.lent.get(id as usize) {
            Some(true) => Ok((id as u16, len)),
            _ => Err(&Fault::Misbehaved(
                "it returned a buffer that it was not given",
            )),
        }
    }

    /// Takes back the next returned buffer, which [`Self::peek`] has told to be `id`.
    pub fn take(&mut self, id: u16) {
        if let Some(lent) = self.lent.get_mut(usize::from(id)) {
            *lent = false;
        }
        self.taken = self.taken.wrapping_add(1);
    }

    fn descriptor(&self, id: u16) -> NonNull<u8> {
        let slot = usize::from(id & (self.size - 1));
        // SAFETY: the masked slot lies inside the descriptor table at the start of the memory.
        unsafe { self.base.add(DESCRIPTOR_LEN * slot) }
    }

    /// The 16-bit field of a ring at `offset`, which the device may access at the same time.
    fn atomic(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset + 2 <= self.layout.len);
        // SAFETY: the callers' offsets, made of the layout and masked slots, are even and inside the memory
        // that `new` was promised to be valid; atomics allow the device to write at the same time.
        unsafe { AtomicU16::from_ptr(self.base.add(offset).cast::<u16>().as_ptr()) }
    }
}
