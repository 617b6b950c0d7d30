//! Destination memory: where a download ends up, handed over by message.

use crate::parts::Parts;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::ops::{Deref, DerefMut, Range};
use wireboot_nic::LentMemory;
use wireboot_ring::{Block, PrefixPart, PrefixWriter};

/// Memory that somebody allocated (pages of the firmware, a vector in a test) and lends to the engine.
pub trait MemoryBlock: Send {
    /// Size in bytes, of which some may be lent.
    fn len(&self) -> usize;
    /// True when it holds no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes from `at` on, up to the first that is lent or the end of their piece; none beyond the end.
    fn rest(&self, at: usize) -> &[u8];
    /// The same to be written; none where they are committed or lent, or beyond the end.
    fn rest_mut(&mut self, at: usize) -> &mut [u8];
    /// The first `len` bytes are what they shall be: the lender may read them from now on, and they are written no more.
    fn commit(&mut self, len: usize);
    /// Whether the first `len` bytes, which are not beyond the end, can be written to or are committed; some memory comes later.
    fn has_room(&mut self, len: usize) -> bool {
        len <= self.len()
    }
    /// A part of it for an engine on another AP (application processor), which fills it and drops it: from then on the bytes are here
    /// again. `None` where any of them is committed or lent already, and where the memory cannot be shared.
    fn lend(&mut self, _range: Range<usize>) -> Option<Memory> {
        None
    }
    /// The same for a device, where the part lies in one piece and a device may write there.
    fn lend_to_device(&mut self, _range: Range<usize>) -> Option<Box<dyn LentMemory>> {
        None
    }
    /// The first byte from `at` on that is lent, or the end.
    fn first_lent(&self, _at: usize) -> usize {
        self.len()
    }
    /// Whether `bytes` are those from `at` on, not a copy of them.
    fn is_at(&self, _at: usize, _bytes: &[u8]) -> bool {
        false
    }
}

impl MemoryBlock for Vec<u8> {
    fn len(&self) -> usize {
        Self::len(self)
    }
    fn rest(&self, at: usize) -> &[u8] {
        self.get(at..).unwrap_or_default()
    }
    fn rest_mut(&mut self, at: usize) -> &mut [u8] {
        self.get_mut(at..).unwrap_or_default()
    }
    /// The lender of a vector sees it when it is back.
    fn commit(&mut self, _len: usize) {}
}

impl<B: Block + 'static> MemoryBlock for PrefixWriter<B> {
    fn len(&self) -> usize {
        self.len()
    }
    fn rest(&self, at: usize) -> &[u8] {
        self.rest(at)
    }
    fn rest_mut(&mut self, at: usize) -> &mut [u8] {
        self.rest_mut(at)
    }
    fn commit(&mut self, len: usize) {
        self.commit(len);
    }
    fn lend(&mut self, range: Range<usize>) -> Option<Memory> {
        self.lend(range).map(Memory::new)
    }
    fn lend_to_device(&mut self, range: Range<usize>) -> Option<Box<dyn LentMemory>> {
        let part = self.lend(range)?;
        let address = part.device_address()?;
        Some(Box::new(DevicePart { part, address }))
    }
    fn first_lent(&self, at: usize) -> usize {
        self.first_lent(at)
    }
    fn is_at(&self, at: usize, bytes: &[u8]) -> bool {
        self.is_at(at, bytes)
    }
}

/// A part that a device fills.
struct DevicePart<B> {
    part: PrefixPart<B>,
    address: u64,
}

impl<B: Block> LentMemory for DevicePart<B> {
    fn device_address(&self) -> u64 {
        self.address
    }
    fn len(&self) -> usize {
        self.part.len()
    }
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.part.bytes(range)
    }
}

impl<B: Block + 'static> MemoryBlock for PrefixPart<B> {
    fn len(&self) -> usize {
        self.len()
    }
    fn rest(&self, at: usize) -> &[u8] {
        self.rest(at)
    }
    fn rest_mut(&mut self, at: usize) -> &mut [u8] {
        self.rest_mut(at)
    }
    /// The whole block is its writer's to commit.
    fn commit(&mut self, _len: usize) {}
}

/// Owned destination memory. Dropping it frees it.
pub struct Memory(Box<dyn MemoryBlock>);

impl Memory {
    /// Takes over a block, which is freed when this memory is dropped.
    pub fn new(block: impl MemoryBlock + 'static) -> Self {
        Self(Box::new(block))
    }

    /// Writes `bytes` from `at` on, in as many pieces as it takes, up to the first byte that is committed or lent, or the end. Returns
    /// how many it has written.
    #[inline(always)]
    pub fn write(&mut self, at: usize, bytes: Parts<'_>) -> usize {
        let written = bytes.copy_to(self.rest_mut(at));
        if written == bytes.len() {
            return written;
        }
        self.write_on(at, bytes, written)
    }

    /// Goes on in the next pieces.
    #[inline(never)]
    fn write_on(&mut self, at: usize, bytes: Parts<'_>, mut written: usize) -> usize {
        while written < bytes.len() {
            let count = bytes
                .slice(written, usize::MAX)
                .copy_to(self.rest_mut(at + written));
            if count == 0 {
                break;
            }
            written += count;
        }
        written
    }
}

impl Deref for Memory {
    type Target = dyn MemoryBlock;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.len())
    }
}

/// Memory that connections fill, each its own part. A clone is the same part; [`Region::part`] makes another one.
#[derive(Clone, Debug)]
pub struct Region {
    memory: Rc<RefCell<Memory>>,
    end: Rc<Cell<usize>>,
    /// A device may fill this part.
    by_device: bool,
    /// Memory of any part was lent.
    lent: Rc<Cell<bool>>,
}

impl Region {
    /// All of `memory`.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self {
            end: Rc::new(Cell::new(memory.len())),
            lent: Rc::new(Cell::new(memory.first_lent(0) < memory.len())),
            memory: Rc::new(RefCell::new(memory)),
            by_device: false,
        }
    }

    /// Another part of the same memory, to be filled up to `end`.
    #[must_use]
    pub fn part(&self, end: usize) -> Self {
        let end = end.min(self.len());
        Self {
            memory: self.memory.clone(),
            end: Rc::new(Cell::new(end)),
            by_device: false,
            lent: self.lent.clone(),
        }
    }

    /// The same part, which a device may fill where there is one that does. Its end does not move, and nobody else fills anything before it.
    #[must_use]
    pub fn by_device(self) -> Self {
        Self {
            by_device: true,
            ..self
        }
    }

    /// Size of the memory in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.borrow().len()
    }

    /// True when there is no memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where this part ends, in bytes from the start of the memory.
    #[must_use]
    pub fn end(&self) -> usize {
        self.end.get()
    }

    /// Moves the end of this part, even while it is being filled.
    pub fn set_end(&self, end: usize) {
        self.end.set(end.min(self.len()));
    }

    /// Commits the first `len` bytes of the memory ([`MemoryBlock::commit`]), which no part may reach into that is still being filled.
    pub fn commit(&self, len: usize) {
        self.memory.borrow_mut().commit(len);
    }

    /// A part of the memory for an engine on another AP ([`MemoryBlock::lend`]). No part of this engine's may reach
    /// into it.
    #[must_use]
    pub fn lend(&self, range: Range<usize>) -> Option<Memory> {
        self.memory.borrow_mut().lend(range)
    }

    /// Lends a device so many bytes from `at` on, or what of them lies in one piece; `None` where it may fill none.
    pub(crate) fn lend_to_device(&self, at: usize, len: usize) -> Option<Box<dyn LentMemory>> {
        if !self.by_device {
            return None;
        }
        let len = self.with(at, |room| room.len()).min(len);
        let lent = self.memory.borrow_mut().lend_to_device(at..at + len);
        self.lent.set(self.lent.get() || lent.is_some());
        lent
    }

    /// Whether a device may still have memory of any part.
    pub(crate) fn may_be_lent(&self) -> bool {
        self.lent.get()
    }

    /// Bytes from `at` on that can be written to, or are where `payload` has them: its next bytes, if those are what a device has put there.
    pub(crate) fn reach(&self, at: usize, payload: Parts<'_>) -> usize {
        let memory = self.memory.borrow();
        let end = self.end.get();
        let mut reach = memory.first_lent(at).min(end);
        let ahead = payload.slice(reach.saturating_sub(at), usize::MAX);
        for bytes in ahead.chunks().filter(|bytes| !bytes.is_empty()) {
            if !memory.is_at(reach, bytes) {
                break;
            }
            reach += bytes.len();
        }
        reach.min(end).saturating_sub(at)
    }

    /// The first byte from `at` on that is lent, or the end of this part.
    pub(crate) fn first_lent(&self, at: usize) -> usize {
        self.memory.borrow().first_lent(at).min(self.end.get())
    }

    /// Takes the memory back. Whoever still has a part of it finds that without room.
    #[must_use]
    pub fn take(&self) -> Memory {
        core::mem::replace(&mut *self.memory.borrow_mut(), Vec::new().into())
    }

    /// Writes `bytes` to this part from `at` on ([`Memory::write`]).
    #[inline(always)]
    pub(crate) fn write(&self, at: usize, bytes: Parts<'_>) -> usize {
        let written = self.with(at, |room| bytes.copy_to(room));
        if written == bytes.len() {
            return written;
        }
        self.write_on(at, bytes, written)
    }

    /// Goes on in the next pieces.
    #[inline(never)]
    fn write_on(&self, at: usize, bytes: Parts<'_>, written: usize) -> usize {
        let bytes = bytes.slice(0, self.end.get().saturating_sub(at));
        self.memory.borrow_mut().write_on(at, bytes, written)
    }

    /// Calls `write` with this part's bytes from `at` on, up to the end of their piece. It must not use the memory in another way.
    #[inline(always)]
    pub(crate) fn with<R>(&self, at: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut memory = self.memory.borrow_mut();
        let rest = memory.rest_mut(at);
        let len = self.end.get().saturating_sub(at).min(rest.len());
        write(rest.get_mut(..len).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use wireboot_ring::{HeapBlock, prefix};

    #[test]
    fn bytes_go_on_in_the_next_piece() {
        let whole: Vec<u8> = (1..=40).collect();
        let parts: [&[u8]; 3] = [&whole[..7], &whole[7..25], &whole[25..]];
        let bytes = Parts::new(&parts);
        for (at, end, written) in [
            (0, 35, 35),
            (5, 45, 40),
            (8, 30, 22),
            (30, 30, 0),
            (46, 99, 4),
        ] {
            let (writer, _) = prefix(HeapBlock::in_pieces(&[0; 50], 10));
            let region = Region::new(Memory::new(writer)).part(end);
            assert_eq!(region.write(at, bytes), written);
            let memory = region.take();
            let mut expected = [0; 50];
            expected[at..at + written].copy_from_slice(&whole[..written]);
            let all: Vec<u8> = (0..50).map(|at| memory.rest(at)[0]).collect();
            assert_eq!(all, expected);
        }
    }

    #[test]
    fn memory_in_pieces_is_written_as_one() {
        let (writer, _) = prefix(HeapBlock::in_pieces(&[0; 50], 10));
        let mut memory = Memory::new(writer);
        assert_eq!(memory.write(7, Parts::new(&[&[1; 20], &[2; 4]])), 24);
        let all: Vec<u8> = (0..50).map(|at| memory.rest(at)[0]).collect();
        let expected = [&[0; 7][..], &[1; 20], &[2; 4], &[0; 19]].concat();
        assert_eq!(all, expected);
    }

    #[test]
    fn nothing_is_written_to_what_is_lent() {
        let (writer, _) = prefix(HeapBlock::from(alloc::vec![0; 20]));
        let mut memory = Memory::new(writer);
        let part = memory.lend(8..12);
        assert_eq!(memory.write(2, Parts::new(&[&[1; 18]])), 6);
        drop(part);
        assert_eq!(
            memory.rest(0),
            [[0; 2].as_slice(), &[1; 6], &[0; 12]].concat()
        );
    }

    #[test]
    fn a_region_is_as_long_as_its_memory() {
        for len in [0, 1, 2] {
            let memory = Memory::from(vec![0; len]);
            assert_eq!((memory.len(), memory.is_empty()), (len, len == 0));
            let region = Region::new(memory);
            assert_eq!((region.len(), region.is_empty()), (len, len == 0));
        }
    }

    #[test]
    fn a_part_that_is_lent_comes_back_and_is_committed() {
        let (writer, reader) = prefix(HeapBlock::from(vec![0; 10]));
        let region = Region::new(Memory::new(writer));
        assert_eq!((region.len(), region.end()), (10, 10));
        let mut part = region.lend(6..10).unwrap();
        assert_eq!((part.len(), part.rest_mut(1).len()), (4, 3));
        part.rest_mut(0).copy_from_slice(b"ghij");
        assert_eq!(part.rest(0), b"ghij");
        // What is lent is not written here, so the engine's own part ends before it.
        region.set_end(6);
        region.with(0, |bytes| bytes.copy_from_slice(b"abcdef"));
        region.commit(2);
        assert_eq!(reader.committed(0), b"ab");
        drop(part);
        region.commit(10);
        assert_eq!(reader.committed(0), b"abcdefghij");
    }
}
