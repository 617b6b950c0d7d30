//! The memory of a split virtqueue (virtio 1.2, section 2.7): descriptor table, available ring and used ring, which driver and device
//! access at the same time. In loom's form under loom, so that the same queue is model-checked and shipped.

#[cfg(loom)]
pub(super) mod loom_tables;

#[cfg(not(loom))]
use core::ptr::NonNull;
#[cfg(not(loom))]
pub(super) use core::sync::atomic::{Ordering, fence};
#[cfg(loom)]
pub(super) use {
    loom::sync::atomic::{Ordering, fence},
    loom_tables::Tables,
};

// The rings are little endian, and so is every machine with UEFI: no conversions.
const _: () = assert!(cfg!(target_endian = "little"));

const DESCRIPTOR_LEN: usize = 16;
const USED_ELEMENT_LEN: usize = 8;
/// Flags and index, before the elements of either ring.
const RING_HEADER: usize = 4;
/// The index, behind the flags.
#[cfg(not(loom))]
const INDEX: usize = 2;

/// Where the parts of a queue lie in its memory, in bytes from the start (the descriptor table is first).
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// The available ring, behind the descriptors: we write it.
    pub avail: usize,
    /// The used ring, on a page of its own: the device writes it.
    pub used: usize,
    /// Bytes of the memory, to the end of the used ring.
    pub len: usize,
}

impl Layout {
    pub(super) fn new(size: u16) -> Self {
        let size = usize::from(size);
        let avail = DESCRIPTOR_LEN * size;
        let used = (avail + RING_HEADER + 2 * size + 2).next_multiple_of(4096);
        let len = used + RING_HEADER + USED_ELEMENT_LEN * size + 2;
        Self { avail, used, len }
    }
}

/// A queue's tables. Places in them wrap at their size.
#[cfg(not(loom))]
pub(super) struct Tables {
    base: NonNull<u8>,
    layout: Layout,
    size: u16,
}

// SAFETY: the pointer leads to memory at a fixed place that any processor may use and that, on our side, is reached through these tables
// alone, so they may change processor as a whole.
#[cfg(not(loom))]
unsafe impl Send for Tables {}

#[cfg(not(loom))]
impl Tables {
    /// Takes over zeroed memory for `size` (a power of two, at most 32768) entries.
    ///
    /// # Safety
    /// `base`, aligned to 16 bytes, must be valid for reads and writes of `Layout::new(size).len` bytes for
    /// the life of the tables, and referenced by no Rust reference.
    pub(super) unsafe fn new(base: NonNull<u8>, size: u16) -> Self {
        debug_assert!(size.is_power_of_two());
        Self {
            base,
            layout: Layout::new(size),
            size,
        }
    }

    #[inline]
    pub(super) fn set_avail_flags(&self, flags: u16) {
        self.field(self.layout.avail)
            .store(flags, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn set_avail_index(&self, index: u16, ordering: Ordering) {
        self.field(self.layout.avail + INDEX).store(index, ordering);
    }

    /// Writes an element of the available ring.
    #[inline]
    pub(super) fn set_avail(&self, at: u16, id: u16) {
        self.field(self.layout.avail + RING_HEADER + 2 * self.slot(at))
            .store(id, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn used_flags(&self) -> u16 {
        self.field(self.layout.used).load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn used_index(&self, ordering: Ordering) -> u16 {
        self.field(self.layout.used + INDEX).load(ordering)
    }

    /// Reads an element of the used ring: a buffer's number and length.
    #[inline]
    pub(super) fn used(&self, at: u16) -> (u32, u32) {
        let offset = self.layout.used + RING_HEADER + USED_ELEMENT_LEN * self.slot(at);
        // SAFETY: the slot lies inside the used ring, which `new` was promised to be valid and aligned. An honest device wrote
        // the element before the index that told of it; a volatile read takes whatever a liar writes later as plain data.
        unsafe {
            let element = self.base.add(offset).cast::<u32>();
            (element.read_volatile(), element.add(1).read_volatile())
        }
    }

    /// Writes a descriptor that the device does not have: its words in order.
    #[inline]
    pub(super) fn set_descriptor(&self, id: u16, words: [u32; 4]) {
        // SAFETY: the slot lies inside the descriptor table at the start of the memory, which `new` was promised to be valid
        // and aligned; the device does not write it, and reads it only when `id` is in the available ring, or chained to what is.
        unsafe {
            let mut at = self.base.add(DESCRIPTOR_LEN * self.slot(id)).cast::<u32>();
            for word in words {
                at.write_volatile(word);
                at = at.add(1);
            }
        }
    }

    fn slot(&self, at: u16) -> usize {
        usize::from(at & (self.size - 1))
    }

    /// The 16-bit field of a ring at `offset`, which the device may access at the same time.
    fn field(&self, offset: usize) -> &core::sync::atomic::AtomicU16 {
        debug_assert!(offset + 2 <= self.layout.len);
        // SAFETY: the callers' offsets, made of the layout and wrapped slots, are even and inside the memory
        // that `new` was promised to be valid; atomics allow the device to write at the same time.
        unsafe {
            core::sync::atomic::AtomicU16::from_ptr(self.base.add(offset).cast::<u16>().as_ptr())
        }
    }
}
