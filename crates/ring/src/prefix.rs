//! A block of memory that one processor fills from its start while another reads what is filled.
//!
//! `settled` counts the bytes at the start that are final. The writer alone moves it, and only onwards; it hands out bytes for
//! writing behind it alone, the reader bytes before it. So neither ever has a reference to what the other may touch.

use alloc::sync::Arc;
use core::ptr::NonNull;
use core::slice;

#[cfg(not(loom))]
use core::sync::atomic::{AtomicUsize, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};

/// Memory at one place.
///
/// # Safety
/// While the value lives, the `len` bytes at `start` are at the same place, initialised, and nobody else refers to them.
pub unsafe trait Block: Send {
    /// The first byte.
    fn start(&self) -> NonNull<u8>;
    /// Size in bytes.
    fn len(&self) -> usize;
    /// True when it holds no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

struct Shared<B> {
    block: B,
    settled: AtomicUsize,
}

/// The end that fills the block.
pub struct PrefixWriter<B>(Arc<Shared<B>>);

/// The end that reads what is settled.
pub struct PrefixReader<B>(Arc<Shared<B>>);

// SAFETY: of the block itself, only its place is asked for through the shared reference; its bytes are divided between the two
// ends (see the module's text), and the last end drops it.
unsafe impl<B: Block> Send for PrefixWriter<B> {}
// SAFETY: as above.
unsafe impl<B: Block> Send for PrefixReader<B> {}

/// Divides a block between two ends. It is dropped with the last of them.
#[must_use]
pub fn prefix<B: Block>(block: B) -> (PrefixWriter<B>, PrefixReader<B>) {
    let shared = Arc::new(Shared {
        block,
        settled: AtomicUsize::new(0),
    });
    (PrefixWriter(shared.clone()), PrefixReader(shared))
}

impl<B: Block> PrefixWriter<B> {
    /// All bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        let block = &self.0.block;
        // SAFETY: `Block` vouches for the bytes. Only this end writes any, which takes it exclusively.
        unsafe { slice::from_raw_parts(block.start().as_ptr(), block.len()) }
    }

    /// The bytes from `at` on; none where they are settled, or beyond the end.
    #[must_use]
    pub fn rest_mut(&mut self, at: usize) -> &mut [u8] {
        let Shared { block, settled } = &*self.0;
        // Relaxed: nobody else writes it.
        if at < settled.load(Ordering::Relaxed) {
            return &mut [];
        }
        let Some(len) = block.len().checked_sub(at) else {
            return &mut [];
        };
        // SAFETY: within the block. The reader has no reference to bytes behind what is settled, which does not change
        // while this end is borrowed.
        unsafe { slice::from_raw_parts_mut(block.start().add(at).as_ptr(), len) }
    }

    /// The first `len` bytes are final.
    pub fn settle(&mut self, len: usize) {
        let Shared { block, settled } = &*self.0;
        let len = len.min(block.len());
        if len > settled.load(Ordering::Relaxed) {
            // Release: the bytes are written before the reader learns of them.
            settled.store(len, Ordering::Release);
        }
    }
}

impl<B: Block> PrefixReader<B> {
    /// The bytes that are settled.
    #[must_use]
    pub fn settled(&self) -> &[u8] {
        // Acquire: they were written before.
        let len = self.0.settled.load(Ordering::Acquire);
        // SAFETY: `Block` vouches for the bytes, of which there are at least so many, and none of them is written any more.
        unsafe { slice::from_raw_parts(self.0.block.start().as_ptr(), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;

    struct Bytes(NonNull<[u8]>);

    impl Bytes {
        fn new(len: usize) -> Self {
            Self(Box::leak(vec![0; len].into_boxed_slice()).into())
        }
    }

    impl Drop for Bytes {
        fn drop(&mut self) {
            // SAFETY: leaked by `new`, and no end is left.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }

    // SAFETY: leaked for as long as the value lives.
    unsafe impl Block for Bytes {
        fn start(&self) -> NonNull<u8> {
            self.0.cast()
        }
        fn len(&self) -> usize {
            self.0.len()
        }
    }

    // SAFETY: the value owns its bytes.
    unsafe impl Send for Bytes {}

    #[cfg(not(loom))]
    #[test]
    fn settled_bytes_are_read_and_not_written() {
        let (mut writer, reader) = prefix(Bytes::new(10));
        assert!(reader.settled().is_empty());
        assert_eq!(writer.rest_mut(3).len(), 7);
        writer.rest_mut(0)[..4].copy_from_slice(b"abcd");
        writer.settle(3);
        assert_eq!(reader.settled(), b"abc");
        assert!(writer.rest_mut(2).is_empty());
        writer.rest_mut(3)[0] = b'D';
        // Neither back nor beyond the end.
        writer.settle(1);
        assert_eq!(reader.settled(), b"abc");
        writer.settle(usize::MAX);
        assert_eq!(reader.settled(), b"abcD\0\0\0\0\0\0");
        assert_eq!(reader.settled(), writer.as_slice());
        assert!(writer.rest_mut(10).is_empty());
        assert!(writer.rest_mut(11).is_empty());
        drop(writer);
        assert_eq!(reader.settled().len(), 10);
    }

    fn fill(writer: &mut PrefixWriter<Bytes>, step: usize) {
        for at in (0..writer.as_slice().len()).step_by(step) {
            let room = writer.rest_mut(at);
            let len = step.min(room.len());
            room[..len].fill(at as u8 + 1);
            writer.settle(at + len);
        }
    }

    #[cfg(not(loom))]
    #[test]
    fn a_thread_sees_only_what_is_there() {
        extern crate std;
        let (mut writer, reader) = prefix(Bytes::new(200));
        let thread = std::thread::spawn(move || fill(&mut writer, 1));
        let mut seen = 0;
        while seen < 200 {
            let bytes = reader.settled();
            assert!(bytes.iter().enumerate().all(|(at, &b)| b == at as u8 + 1));
            assert!(bytes.len() >= seen);
            seen = bytes.len();
        }
        thread.join().unwrap();
    }

    #[cfg(loom)]
    #[test]
    fn in_every_order_only_what_is_there_is_seen() {
        loom::model(|| {
            let (mut writer, reader) = prefix(Bytes::new(4));
            let thread = loom::thread::spawn(move || fill(&mut writer, 2));
            for _ in 0..2 {
                let bytes = reader.settled();
                let want: &[u8] = &[1, 1, 3, 3];
                assert!(bytes.len() % 2 == 0 && want.starts_with(bytes));
            }
            thread.join().unwrap();
        });
    }
}
