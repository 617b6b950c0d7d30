//! What a caller hands over.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use wireboot_net::MemoryBlock;

/// A structure of a caller's. `None` for a pointer that cannot lead to one: null, or not aligned.
///
/// # Safety
/// Any other pointer leads to what it says, which stays as it is meanwhile.
pub(crate) unsafe fn structure<'a, T>(at: *const T) -> Option<&'a T> {
    // SAFETY: the caller's word.
    (!at.is_null() && at.is_aligned()).then(|| unsafe { &*at })
}

/// `count` elements of a caller's; `None` for more than `most`, and where there can be none.
///
/// # Safety
/// As for [`structure`], for all elements.
pub(crate) unsafe fn array<'a, T>(at: *const T, count: usize, most: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    let len = count.min(most).checked_mul(size_of::<T>())?;
    let ends = len <= isize::MAX as usize && at.addr().checked_add(len).is_some();
    if count > most || !ends || at.is_null() || !at.is_aligned() {
        return None;
    }
    // SAFETY: the caller's word, for as many as can be.
    Some(unsafe { core::slice::from_raw_parts(at, count) })
}

/// A buffer of a caller's, for as long as its call lasts.
pub struct Buffer {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is the caller's, who does nothing with it during the call. Whoever fills it has let go of it when the call returns.
unsafe impl Send for Buffer {}

impl Buffer {
    /// # Safety
    /// Where the pointer is not null, `len` bytes behind it may be written, by any processor, until the buffer has been dropped.
    pub unsafe fn new(at: *mut c_void, len: u64) -> Option<Self> {
        let len = usize::try_from(len)
            .ok()
            .filter(|&len| len <= isize::MAX as usize)?;
        (at as usize).checked_add(len)?;
        Some(Self {
            at: NonNull::new(at.cast())?,
            len,
        })
    }

    /// The same memory once more.
    ///
    /// # Safety
    /// The new one is used for no byte before this one has been dropped.
    pub(crate) unsafe fn again(&self) -> Self {
        let Self { at, len } = *self;
        Self { at, len }
    }
}

impl Buffer {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when it holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies as much of `bytes` as fits to its start, unless that is where they are.
    pub fn fill(&mut self, bytes: &[u8]) {
        if ptr::eq(self.at.as_ptr(), bytes.as_ptr()) {
            return;
        }
        let count = bytes.len().min(self.len);
        if let (Some(to), Some(from)) = (self.rest_mut(0).get_mut(..count), bytes.get(..count)) {
            to.copy_from_slice(from);
        }
    }
}

impl MemoryBlock for Buffer {
    fn len(&self) -> usize {
        self.len
    }

    fn rest(&self, at: usize) -> &[u8] {
        // SAFETY: by `new`, and what is shared is not written meanwhile.
        let bytes = unsafe { core::slice::from_raw_parts(self.at.as_ptr(), self.len) };
        bytes.get(at..).unwrap_or_default()
    }

    fn rest_mut(&mut self, at: usize) -> &mut [u8] {
        // SAFETY: by `new`, and there is one owner.
        let bytes = unsafe { core::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) };
        bytes.get_mut(at..).unwrap_or_default()
    }

    fn commit(&mut self, _len: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_the_callers_memory() {
        let mut memory = [0_u8; 8];
        // SAFETY: the array outlives the buffer, which has all but its last byte.
        let mut buffer = unsafe { Buffer::new(memory.as_mut_ptr().cast(), 7) }.unwrap();
        assert_eq!((buffer.len(), buffer.is_empty()), (7, false));
        buffer.fill(b"abc");
        buffer.rest_mut(5).fill(b'x');
        assert_eq!(buffer.rest(1), b"bc\0\0xx");
        assert_eq!((buffer.rest(7), buffer.rest(8)), (&[][..], &[][..]));
        buffer.fill(b"0123456789");
        assert_eq!(&memory, b"0123456\0");
    }

    #[test]
    fn bytes_that_are_there_are_left_alone() {
        let mut memory = *b"file";
        // SAFETY: the array outlives the buffer.
        let buffer = unsafe { Buffer::new(memory.as_mut_ptr().cast(), 4) }.unwrap();
        // SAFETY: it is used for no byte.
        let mut again = unsafe { buffer.again() };
        again.fill(buffer.rest(0));
        assert_eq!(buffer.rest(0), b"file");
    }

    #[test]
    fn impossible_buffers_are_refused() {
        let at = core::ptr::without_provenance_mut(0x1000);
        // SAFETY: none of them is used.
        let none = |at, len| unsafe { Buffer::new(at, len) }.is_none();
        assert!(none(core::ptr::null_mut(), 5));
        assert!(none(at, u64::MAX));
        assert!(none(at, 1 << 63));
        assert!(none(core::ptr::without_provenance_mut(usize::MAX), 1));
        assert!(!none(at, 1));
    }

    #[test]
    fn structures_and_arrays_are_where_they_can_be() {
        let words = [1_u32, 2, 3];
        let at = words.as_ptr();
        let odd = at.cast::<u8>().wrapping_add(1).cast::<u32>();
        let end = core::ptr::without_provenance::<u32>(usize::MAX - 3);
        // SAFETY: the array's own elements, and pointers that are refused.
        unsafe {
            assert_eq!(structure(at), Some(&1));
            assert_eq!(structure(odd), None);
            assert_eq!(structure(core::ptr::null::<u32>()), None);
            assert_eq!(array(at, 3, 3), Some(&words[..]));
            assert_eq!(array(at, 4, 3), None);
            assert_eq!(array(odd, 1, 3), None);
            assert_eq!(array(end, 2, 3), None);
            assert_eq!(array(at, usize::MAX / 2, usize::MAX), None);
            assert_eq!(array(core::ptr::null::<u32>(), 1, 3), None);
            assert_eq!(array(core::ptr::null::<u32>(), 0, 3), Some(&[][..]));
        }
    }
}
