//! The tables for a model checker: the memory is loom's own, and loom sees each access.

use alloc::vec::Vec;
use core::ptr::NonNull;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, Ordering};

/// A clone is the device's end.
#[derive(Clone)]
pub(crate) struct Tables(pub Arc<Parts>);

/// What the memory holds.
pub struct Parts {
    descriptors: Vec<UnsafeCell<[u32; 4]>>,
    /// Flags, index, elements, and when the driver wants to be called.
    pub avail: Vec<AtomicU16>,
    /// Flags, index, and when the device wants a doorbell.
    pub used: [AtomicU16; 3],
    elements: Vec<UnsafeCell<(u32, u32)>>,
}

// SAFETY: loom complains when cells are accessed by two threads at once.
unsafe impl Sync for Parts {}

/// The device's end.
impl Parts {
    /// The words of a descriptor.
    pub fn descriptor(&self, id: usize) -> [u32; 4] {
        // SAFETY: loom tells when another thread writes it.
        self.descriptors[id].with(|words| unsafe { *words })
    }

    /// Writes number and length of a used buffer.
    pub fn put_used(&self, at: usize, element: (u32, u32)) {
        // SAFETY: loom tells when another thread reads it.
        self.elements[at].with_mut(|to| unsafe { *to = element });
    }
}

impl Tables {
    /// # Safety
    /// None is needed: the memory is not used.
    pub(crate) unsafe fn new(_: NonNull<u8>, size: u16) -> Self {
        Tables(Arc::new(Parts {
            descriptors: (0..size).map(|_| UnsafeCell::new([0; 4])).collect(),
            avail: (0..size + 3).map(|_| AtomicU16::new(0)).collect(),
            used: [(); 3].map(|()| AtomicU16::new(0)),
            elements: (0..size).map(|_| UnsafeCell::new((0, 0))).collect(),
        }))
    }

    pub(crate) fn set_avail_flags(&self, flags: u16) {
        self.0.avail[0].store(flags, Ordering::Relaxed);
    }

    pub(crate) fn set_avail_index(&self, index: u16, ordering: Ordering) {
        self.0.avail[1].store(index, ordering);
    }

    pub(crate) fn set_avail(&self, at: u16, id: u16) {
        let slot = usize::from(at) % self.0.descriptors.len();
        self.0.avail[2 + slot].store(id, Ordering::Relaxed);
    }

    pub(crate) fn used_flags(&self) -> u16 {
        self.0.used[0].load(Ordering::Relaxed)
    }

    pub(crate) fn used_index(&self, ordering: Ordering) -> u16 {
        self.0.used[1].load(ordering)
    }

    pub(crate) fn used(&self, at: u16) -> (u32, u32) {
        let slot = usize::from(at) % self.0.elements.len();
        // SAFETY: loom tells when another thread writes it.
        self.0.elements[slot].with(|element| unsafe { *element })
    }

    pub(crate) fn set_descriptor(&self, id: u16, words: [u32; 4]) {
        let slot = usize::from(id) % self.0.descriptors.len();
        // SAFETY: loom tells when another thread reads it.
        self.0.descriptors[slot].with_mut(|descriptor| unsafe { *descriptor = words });
    }
}
