//! Memory of a loader's with guards around it, and memory of the firmware's.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

/// Bytes on either side.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;
/// What memory holds that its owner has freed.
const FREED: u8 = 0xdd;

/// Some bytes of a loader's, which are written through pointers.
pub(super) struct Guarded {
    bytes: Vec<u8>,
    at: usize,
    len: usize,
    freed: bool,
}

impl Guarded {
    /// `len` bytes that begin at a multiple of 16, or `skew` bytes behind one.
    pub(super) fn new(len: usize, skew: usize) -> Self {
        let bytes = vec![GUARD_BYTE; GUARD + 32 + len + GUARD];
        let address = bytes.as_ptr().addr() + GUARD;
        let at = GUARD + address.next_multiple_of(16) - address + skew % 16;
        let mut new = Self {
            bytes,
            at,
            len,
            freed: false,
        };
        new.fill(0);
        new
    }

    /// The same with these contents.
    pub(super) fn of(contents: &[u8], skew: usize) -> Self {
        let mut new = Self::new(contents.len(), skew);
        let place = new.bytes.get_mut(new.at..new.at + new.len);
        if let Some(place) = place {
            place.copy_from_slice(contents);
        }
        new
    }

    pub(super) fn as_mut_ptr<T>(&mut self) -> *mut T {
        // Once for all pointers, as those that were given out before stay in use.
        self.bytes.as_mut_ptr().wrapping_add(self.at).cast()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes
            .get(self.at..self.at + self.len)
            .unwrap_or_default()
    }

    pub(super) fn fill(&mut self, byte: u8) {
        if let Some(bytes) = self.bytes.get_mut(self.at..self.at + self.len) {
            bytes.fill(byte);
        }
    }

    /// Its owner has freed it: nobody may write to it any more.
    pub(super) fn free(&mut self) {
        self.fill(FREED);
        self.freed = true;
    }

    /// Whether nobody has written where nobody may.
    pub(super) fn is_intact(&self) -> bool {
        let outside = |range: Option<&[u8]>| {
            range.is_some_and(|bytes| bytes.iter().all(|byte| *byte == GUARD_BYTE))
        };
        outside(self.bytes.get(..self.at))
            && outside(self.bytes.get(self.at + self.len..))
            && (!self.freed || self.bytes().iter().all(|byte| *byte == FREED))
    }
}

fn layout(size: usize) -> Layout {
    // The specification's alignment of pool memory.
    let layout = Layout::from_size_align(size.max(1), 8);
    layout.unwrap_or(Layout::new::<u64>())
}

/// Memory of the firmware's pool.
pub(super) fn allocate(size: usize) -> *mut u8 {
    let layout = layout(size);
    // SAFETY: not of no bytes.
    let at = unsafe { alloc(layout) };
    match NonNull::new(at) {
        Some(at) => at.as_ptr(),
        None => handle_alloc_error(layout),
    }
}

/// # Safety
/// Allocated by [`allocate`] with this size, and not freed.
pub(super) unsafe fn free(at: *mut u8, size: usize) {
    // SAFETY: the caller's word.
    unsafe { dealloc(at, layout(size)) };
}
