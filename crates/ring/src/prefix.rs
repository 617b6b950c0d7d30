//! A block of memory that one processor fills from its start while another reads what is filled, and of which it may lend ranges to
//! further processors, which fill them.
//!
//! `committed` counts the bytes at the start that are final. The writer alone moves it, and only onwards; it hands out bytes for
//! writing behind it alone, the reader bytes before it. A lent range lies behind it too, and is the borrower's alone until the
//! [`PrefixPart`] is dropped: the writer keeps a list of what is out, and neither hands out nor commits any of it. So no end
//! ever has a reference to what another may touch.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::NonNull;
use core::slice;

#[cfg(not(loom))]
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Memory, in one piece or in several at different places.
///
/// # Safety
/// While the value lives, its `len` bytes stay where `place` says, each at a place of its own, are initialised, and nobody else refers
/// to them.
pub unsafe trait Block: Send {
    /// Where byte `at` lies, and how many bytes of its piece there are from it on. Not asked for bytes beyond the end.
    fn place(&self, at: usize) -> (NonNull<u8>, usize);
    /// Size in bytes.
    fn len(&self) -> usize;
    /// True when it holds no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Where a device finds byte `at`, and the others of its piece behind it; `None` where no device may write there.
    fn device_address(&self, _at: usize) -> Option<u64> {
        None
    }
}

/// The block, and how much of it is final: what both ends and all parts share.
struct PrefixBlock<B> {
    block: B,
    committed: AtomicUsize,
}

impl<B: Block> PrefixBlock<B> {
    /// Where the bytes from `at` to before `end`, which is not beyond the block's, lie, and how many of them are in one piece.
    #[inline]
    fn piece(&self, at: usize, end: usize) -> (NonNull<u8>, usize) {
        if at >= end {
            return (NonNull::dangling(), 0);
        }
        let (start, len) = self.block.place(at);
        (start, len.min(end - at))
    }
}

/// A range that was lent.
struct Lent {
    range: Range<usize>,
    /// Set when the borrower is through with it.
    back: Arc<AtomicBool>,
}

impl Lent {
    fn is_out(&self) -> bool {
        // Acquire: what the borrower wrote, and its last use of the range, come before.
        !self.back.load(Ordering::Acquire)
    }
}

/// The end that fills the block.
pub struct PrefixWriter<B> {
    shared: Arc<PrefixBlock<B>>,
    /// Disjoint; what is back leaves the list with the next loan.
    lent: Vec<Lent>,
}

/// A range of the block that another processor fills. Dropping it gives the range back to the writer; as long as it lives, so does
/// the block.
pub struct PrefixPart<B> {
    shared: Arc<PrefixBlock<B>>,
    range: Range<usize>,
    back: Arc<AtomicBool>,
}

/// The end that reads what is committed.
pub struct PrefixReader<B>(Arc<PrefixBlock<B>>);

// SAFETY: of the block itself, only its place is asked for through the shared reference; its bytes are divided between the
// ends (see the module's text), and the last end drops it.
unsafe impl<B: Block> Send for PrefixWriter<B> {}
// SAFETY: as above.
unsafe impl<B: Block> Send for PrefixReader<B> {}
// SAFETY: as above.
unsafe impl<B: Block> Send for PrefixPart<B> {}

/// Divides a block between two ends. It is dropped with the last of them.
#[must_use]
pub fn prefix<B: Block>(block: B) -> (PrefixWriter<B>, PrefixReader<B>) {
    let shared = Arc::new(PrefixBlock {
        block,
        committed: AtomicUsize::new(0),
    });
    let writer = PrefixWriter {
        shared: shared.clone(),
        lent: Vec::new(),
    };
    (writer, PrefixReader(shared))
}

impl<B: Block> PrefixWriter<B> {
    /// Size of the block in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.block.len()
    }

    /// True when there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `at` on, up to the first that is lent or the end of their piece; none beyond the end.
    #[must_use]
    pub fn rest(&self, at: usize) -> &[u8] {
        let (start, len) = self.shared.piece(at, self.bound(at));
        // SAFETY: `Block` vouches for the bytes. Nobody else may write any that is not lent: this end does, and lends, only when
        // it is borrowed exclusively.
        unsafe { slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// The bytes from `at` on, up to the first that is lent or the end of their piece; none where they are committed or lent, or beyond
    /// the end.
    #[must_use]
    pub fn rest_mut(&mut self, at: usize) -> &mut [u8] {
        // Relaxed: nobody else writes it.
        if at < self.shared.committed.load(Ordering::Relaxed) {
            return &mut [];
        }
        let (start, len) = self.shared.piece(at, self.bound(at));
        // SAFETY: within the block. The reader has no reference to bytes behind what is committed, which does not change
        // while this end is borrowed; and no borrower has one before the bound.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    /// The first `len` bytes are final. Bytes from the first that is lent on are not.
    pub fn commit(&mut self, len: usize) {
        let len = len.min(self.bound(0));
        let committed = &self.shared.committed;
        if len > committed.load(Ordering::Relaxed) {
            // Release: the bytes are written before the reader learns of them; those of borrowers too, whose ranges are
            // back.
            committed.store(len, Ordering::Release);
        }
    }

    /// Lends a range, to be written by whoever gets the part, until that is dropped. `None` for one that is empty, has bytes that
    /// are committed or lent already, or ends beyond the block.
    #[must_use]
    pub fn lend(&mut self, range: Range<usize>) -> Option<PrefixPart<B>> {
        self.lent.retain(Lent::is_out);
        let free = self
            .lent
            .iter()
            .all(|lent| range.end <= lent.range.start || lent.range.end <= range.start);
        // Relaxed: nobody else writes it.
        let committed = self.shared.committed.load(Ordering::Relaxed);
        if !free || range.is_empty() || range.start < committed || range.end > self.len() {
            return None;
        }
        let back = Arc::new(AtomicBool::new(false));
        self.lent.push(Lent {
            range: range.clone(),
            back: back.clone(),
        });
        Some(PrefixPart {
            shared: self.shared.clone(),
            range,
            back,
        })
    }

    /// The first byte from `at` on that is lent, or the end of the block.
    #[must_use]
    pub fn first_lent(&self, at: usize) -> usize {
        self.bound(at)
    }

    /// Whether `bytes` are the block's from `at` on, not a copy of them.
    #[must_use]
    pub fn is_at(&self, at: usize, bytes: &[u8]) -> bool {
        let (start, len) = self.shared.piece(at, self.len());
        bytes.as_ptr() == start.as_ptr() && bytes.len() <= len
    }

    #[inline]
    fn bound(&self, at: usize) -> usize {
        let end = self.shared.block.len();
        if self.lent.is_empty() {
            return end;
        }
        self.bound_by_loans(at, end)
    }

    #[inline(never)]
    fn bound_by_loans(&self, at: usize, end: usize) -> usize {
        self.lent
            .iter()
            .filter(|lent| at < lent.range.end && lent.is_out())
            .fold(end, |bound, lent| bound.min(lent.range.start.max(at)))
    }
}

impl<B: Block> PrefixPart<B> {
    /// Size of the range in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// True when there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The range's bytes from `at` on, up to the end of their piece.
    #[must_use]
    pub fn rest(&self, at: usize) -> &[u8] {
        let (start, len) = self.place(at);
        // SAFETY: `lend` has seen to it that the range lies in the block, is not committed, and is lent to nobody else; the writer
        // touches nothing of it until `back` is set, which is when this value is dropped.
        unsafe { slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// The same, to be written.
    #[must_use]
    pub fn rest_mut(&mut self, at: usize) -> &mut [u8] {
        let (start, len) = self.place(at);
        // SAFETY: as above, and this value is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    /// Those of the range's bytes; none where they do not lie in one piece.
    #[must_use]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        let (start, len) = self.place(range.start);
        if range.len() > len {
            return &[];
        }
        // SAFETY: as of `rest`.
        unsafe { slice::from_raw_parts(start.as_ptr(), range.len()) }
    }

    /// Where a device finds the range, if it lies in one piece, and a device may write there.
    #[must_use]
    pub fn device_address(&self) -> Option<u64> {
        let (_, len) = self.place(0);
        let address = self.shared.block.device_address(self.range.start);
        address.filter(|_| len == self.len())
    }

    fn place(&self, at: usize) -> (NonNull<u8>, usize) {
        let at = self.range.start.saturating_add(at);
        self.shared.piece(at, self.range.end)
    }
}

impl<B> Drop for PrefixPart<B> {
    fn drop(&mut self) {
        // Release: all that was done to the range comes before the writer has it again.
        self.back.store(true, Ordering::Release);
    }
}

impl<B: Block> PrefixReader<B> {
    /// The bytes from `at` on that are committed, up to the end of their piece.
    #[must_use]
    pub fn committed(&self, at: usize) -> &[u8] {
        // Acquire: they were written before.
        let committed = self.0.committed.load(Ordering::Acquire);
        let (start, len) = self.0.piece(at, committed);
        // SAFETY: `Block` vouches for the bytes, of which there are at least so many, and none of them is written any more.
        unsafe { slice::from_raw_parts(start.as_ptr(), len) }
    }
}

/// A block on the heap.
pub struct HeapBlock {
    bytes: NonNull<[u8]>,
    /// Bytes of a piece, which the next one follows at once: tests want pieces.
    piece: usize,
}

impl HeapBlock {
    /// A copy of `bytes`, in pieces of so many bytes.
    #[must_use]
    pub fn in_pieces(bytes: &[u8], piece: usize) -> Self {
        Self {
            bytes: NonNull::from(Box::<[u8]>::leak(bytes.into())),
            piece: piece.max(1),
        }
    }
}

impl From<Vec<u8>> for HeapBlock {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            bytes: Box::leak(bytes.into_boxed_slice()).into(),
            piece: usize::MAX,
        }
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        // SAFETY: leaked when the value was made, and whoever drops it has no reference left.
        drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
    }
}

// SAFETY: leaked for as long as the value lives.
unsafe impl Block for HeapBlock {
    #[inline]
    fn place(&self, at: usize) -> (NonNull<u8>, usize) {
        let piece = self.piece - at % self.piece;
        // SAFETY: nobody asks for bytes beyond the end.
        let start = unsafe { self.bytes.cast::<u8>().add(at) };
        (start, piece.min(self.bytes.len() - at))
    }
    fn len(&self) -> usize {
        self.bytes.len()
    }
    /// A device made of software sees it where it is.
    fn device_address(&self, at: usize) -> Option<u64> {
        Some(self.place(at).0.as_ptr().expose_provenance() as u64)
    }
}

// SAFETY: the value owns its bytes.
unsafe impl Send for HeapBlock {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec;

    fn block(len: usize) -> HeapBlock {
        vec![0; len].into()
    }

    #[test]
    fn committed_bytes_are_read_and_not_written() {
        let (mut writer, reader) = prefix(block(10));
        assert!(reader.committed(0).is_empty());
        assert_eq!(writer.rest_mut(3).len(), 7);
        writer.rest_mut(0)[..4].copy_from_slice(b"abcd");
        writer.commit(3);
        assert_eq!(reader.committed(0), b"abc");
        assert!(writer.rest_mut(2).is_empty());
        writer.rest_mut(3)[0] = b'D';
        // Neither back nor beyond the end.
        writer.commit(1);
        assert_eq!(reader.committed(0), b"abc");
        writer.commit(usize::MAX);
        assert_eq!(reader.committed(0), b"abcD\0\0\0\0\0\0");
        assert_eq!(reader.committed(0), writer.rest(0));
        assert!(writer.rest_mut(10).is_empty());
        assert!(writer.rest_mut(11).is_empty());
        drop(writer);
        assert_eq!(reader.committed(0).len(), 10);
    }

    #[test]
    fn only_a_block_without_bytes_is_empty() {
        for len in [0, 1, 2] {
            let block = block(len);
            assert_eq!((block.len(), block.is_empty()), (len, len == 0));
            let (writer, _) = prefix(block);
            assert_eq!((writer.len(), writer.is_empty()), (len, len == 0));
        }
    }

    #[test]
    fn what_is_lent_is_the_borrowers_until_it_is_back() {
        let (mut writer, reader) = prefix(block(20));
        writer.commit(2);
        // Committed, empty, beyond the end.
        for range in [1..4, 4..4, Range { start: 7, end: 3 }, 15..21, 20..21] {
            assert!(writer.lend(range).is_none());
        }
        // From the first byte that is not committed.
        drop(writer.lend(2..4).unwrap());
        let mut part = writer.lend(8..12).unwrap();
        let last = writer.lend(16..20).unwrap();
        for range in [8..12, 7..9, 11..13, 9..10, 5..20, 19..20] {
            assert!(writer.lend(range).is_none());
        }
        assert_eq!(writer.len(), 20);
        assert_eq!(writer.rest(0).len(), 8);
        let rest: [usize; 20] = core::array::from_fn(|at| writer.rest_mut(at).len());
        assert_eq!(
            rest,
            [0, 0, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]
        );
        writer.commit(20);
        assert_eq!(reader.committed(0).len(), 8);
        part.rest_mut(0).copy_from_slice(b"part");
        assert_eq!(part.rest(0), b"part");
        drop(part);
        assert_eq!(&writer.rest(0)[8..], b"part\0\0\0\0");
        assert_eq!(writer.rest_mut(8).len(), 8);
        // The last one outlives its writer, and the block with it.
        writer.commit(20);
        assert_eq!(reader.committed(0).len(), 16);
        let again = writer.lend(16..17);
        assert!(again.is_none());
        drop((writer, reader));
        assert_eq!(last.rest(0), [0; 4]);
    }

    #[test]
    fn pieces_are_filled_and_read_one_after_the_other() {
        let (mut writer, reader) = prefix(HeapBlock::in_pieces(&[0; 21], 7));
        assert_eq!(writer.len(), 21);
        let mut part = writer.lend(4..16).unwrap();
        assert_eq!(part.len(), 12);
        let rests: [usize; 14] = core::array::from_fn(|at| part.rest_mut(at).len());
        assert_eq!(rests, [3, 2, 1, 7, 6, 5, 4, 3, 2, 1, 2, 1, 0, 0]);
        let rests: [usize; 22] = core::array::from_fn(|at| writer.rest_mut(at).len());
        assert_eq!(rests[..5], [4, 3, 2, 1, 0]);
        assert_eq!(rests[15..], [0, 5, 4, 3, 2, 1, 0]);
        for at in 0..12 {
            part.rest_mut(at)[0] = at as u8 + 4;
        }
        assert_eq!(part.rest(3), [7, 8, 9, 10, 11, 12, 13]);
        drop(part);
        for at in (0..4).chain(16..21) {
            writer.rest_mut(at)[0] = at as u8;
        }
        writer.commit(18);
        assert_eq!(reader.committed(0), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(reader.committed(8), [8, 9, 10, 11, 12, 13]);
        assert_eq!(reader.committed(14), [14, 15, 16, 17]);
        assert!(reader.committed(18).is_empty() && reader.committed(22).is_empty());
        assert_eq!(writer.rest(15), [15, 16, 17, 18, 19, 20]);
        assert!(writer.rest(21).is_empty() && writer.rest(22).is_empty());
        assert!(writer.rest_mut(17).is_empty());
    }

    #[test]
    fn a_thread_sees_only_what_is_there() {
        extern crate std;
        let (mut writer, reader) = prefix(block(200));
        let thread = std::thread::spawn(move || {
            for at in 0..writer.len() {
                writer.rest_mut(at)[0] = at as u8 + 1;
                writer.commit(at + 1);
            }
        });
        let mut seen = 0;
        while seen < 200 && !thread.is_finished() {
            let bytes = reader.committed(0);
            assert!(bytes.iter().enumerate().all(|(at, &b)| b == at as u8 + 1));
            assert!(bytes.len() >= seen);
            seen = bytes.len();
        }
        thread.join().unwrap();
        assert_eq!(reader.committed(0).len(), 200);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
