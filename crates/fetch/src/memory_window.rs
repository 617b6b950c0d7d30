//! A window of memory over bytes that come in order: its reader gives memory in pieces, and has them back once it has read them.
//!
//! ```text
//! WindowReader::give ──pieces──> Window, which the engine fills
//! WindowReader::read <──bytes that are committed──
//! WindowReader::release: a piece that was read to its end is freed
//! ```
//!
//! What comes may be longer than any memory: the engine goes no further than there are pieces ([`MemoryBlock::has_room`]).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::fmt;
use wireboot_net::{Memory, MemoryBlock};
use wireboot_ring::{Block, PrefixReader, PrefixWriter, Receiver, Sender, channel};

/// Pieces that wait to be filled or read.
pub const PIECES: usize = 64;
/// Bytes that come once more are written here, so many at a time.
const AGAIN: usize = 2048;

/// The engine's end: memory of which only the pieces that were given are there.
pub struct Window {
    /// Size of all that is to come, in bytes; larger where it is not known.
    len: usize,
    given: Receiver<Memory>,
    /// Not full yet, in order. Where the first begins and the last ends, in bytes from the start of all.
    pieces: VecDeque<Memory>,
    start: usize,
    end: usize,
    /// Bytes before this one came through another window before.
    first: usize,
    again: Option<Box<[u8; AGAIN]>>,
}

impl Window {
    /// The piece that has the byte `at`, and which of its bytes that is.
    fn piece(&mut self, at: usize) -> Option<(&mut Memory, usize)> {
        while at >= self.end {
            self.take_piece()?;
        }
        let mut at = at.checked_sub(self.start)?;
        for piece in &mut self.pieces {
            let len = piece.len();
            if at < len {
                return Some((piece, at));
            }
            at -= len;
        }
        None
    }

    /// The next piece, for who fills one after the other by itself.
    pub(crate) fn next_piece(&mut self) -> Option<Memory> {
        self.given.pop()
    }

    fn take_piece(&mut self) -> Option<()> {
        let piece = self.given.pop()?;
        self.end = self.end.saturating_add(piece.len());
        self.pieces.push_back(piece);
        Some(())
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({} to {})", self.start, self.end)
    }
}

impl MemoryBlock for Window {
    fn len(&self) -> usize {
        self.len
    }

    /// Its reader has the bytes.
    fn rest(&self, _at: usize) -> &[u8] {
        &[]
    }

    fn rest_mut(&mut self, at: usize) -> &mut [u8] {
        if at < self.first {
            let len = (self.first - at).min(AGAIN);
            let again = self.again.get_or_insert_with(|| Box::new([0; AGAIN]));
            return again.get_mut(..len).unwrap_or_default();
        }
        let rest = self.len.saturating_sub(at);
        let piece = self.piece(at).map(|(piece, at)| piece.rest_mut(at));
        let piece = piece.unwrap_or_default();
        let len = piece.len().min(rest);
        piece.get_mut(..len).unwrap_or_default()
    }

    fn commit(&mut self, len: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            let Some(come) = len.checked_sub(self.start) else {
                return;
            };
            piece.commit(come);
            if come < piece.len() {
                return;
            }
            self.start += piece.len();
            self.pieces.pop_front();
        }
    }

    fn has_room(&mut self, len: usize) -> bool {
        while self.end < len && self.take_piece().is_some() {}
        self.end >= len
    }
}

/// The other end: who reads what comes.
pub struct WindowReader<B> {
    given: Sender<Memory>,
    pieces: VecDeque<Piece<B>>,
    /// Pieces at the start that are known to be full, and bytes that have come in them.
    full: usize,
    come: usize,
    /// Bytes that were released, and that there was memory for, from the start of all.
    released: u64,
    end: u64,
}

struct Piece<B> {
    reader: PrefixReader<B>,
    len: usize,
    /// Bytes at its start that are of no more use.
    done: usize,
}

impl<B: Block> Piece<B> {
    fn ready(&self) -> usize {
        let mut end = self.done;
        loop {
            let more = self.reader.committed(end).len();
            if more == 0 {
                return end.min(self.len) - self.done;
            }
            end += more;
        }
    }
}

impl<B: Block + 'static> WindowReader<B> {
    /// The end for the engine, over `len` bytes, and this one.
    #[must_use]
    pub fn new(len: usize) -> (Window, Self) {
        let (sender, receiver) = channel(PIECES);
        let reader = Self {
            given: sender,
            pieces: VecDeque::new(),
            full: 0,
            come: 0,
            released: 0,
            end: 0,
        };
        (Window::new(len, receiver, 0), reader)
    }

    /// Another end for an engine that begins anew with the same bytes, over `len` bytes. The former one must be gone. What has come stays,
    /// and is not written again.
    pub fn renew(&mut self, len: usize) -> Window {
        let ready = self.ready();
        for piece in &mut self.pieces {
            piece.len = piece.done + piece.ready();
        }
        self.pieces.retain(|piece| piece.len > piece.done);
        (self.full, self.come) = (self.pieces.len(), ready);
        self.end = self.released + ready as u64;
        let (sender, receiver) = channel(PIECES);
        self.given = sender;
        Window::new(len, receiver, usize::try_from(self.end).unwrap_or(len))
    }

    /// Gives it a piece of memory.
    pub fn give(&mut self, (writer, reader): (PrefixWriter<B>, PrefixReader<B>)) {
        let len = MemoryBlock::len(&writer);
        if len > 0 && self.given.push(Memory::new(writer)).is_ok() {
            let done = 0;
            self.pieces.push_back(Piece { reader, len, done });
            self.end += len as u64;
        }
    }

    /// Pieces that wait to be filled or read.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Where the memory that was given ends, in bytes from the start of all.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes that were released.
    #[must_use]
    pub fn released(&self) -> u64 {
        self.released
    }

    /// Bytes that have come and were not released.
    pub fn ready(&mut self) -> usize {
        loop {
            let Some(piece) = self.pieces.get(self.full) else {
                return self.come;
            };
            let ready = piece.ready();
            if piece.done + ready < piece.len {
                return self.come + ready;
            }
            self.full += 1;
            self.come += ready;
        }
    }

    /// Copies bytes that have come, from the one `at` bytes behind the first that was not released on. Returns how many.
    pub fn read(&self, mut at: usize, to: &mut [u8]) -> usize {
        let mut count = 0;
        for piece in &self.pieces {
            let left = piece.len - piece.done;
            while at < left {
                let Some(to) = to.get_mut(count..) else {
                    return count;
                };
                let from = piece.reader.committed(piece.done + at);
                let now = from.len().min(to.len()).min(left - at);
                if let (Some(to), Some(from)) = (to.get_mut(..now), from.get(..now)) {
                    to.copy_from_slice(from);
                }
                if now == 0 {
                    return count;
                }
                count += now;
                at += now;
            }
            at -= left;
        }
        count
    }

    /// The first `count` bytes that have come are of no more use.
    pub fn release(&mut self, count: usize) {
        let mut left = count.min(self.ready());
        self.released += left as u64;
        while let Some(first) = self.pieces.front_mut() {
            let now = left.min(first.len - first.done);
            first.done += now;
            left -= now;
            if self.full > 0 {
                self.come -= now;
            }
            if first.done < first.len {
                return;
            }
            self.full = self.full.saturating_sub(1);
            self.pieces.pop_front();
        }
    }
}

impl Window {
    fn new(len: usize, given: Receiver<Memory>, first: usize) -> Self {
        Self {
            len,
            given,
            pieces: VecDeque::new(),
            start: first,
            end: first,
            first,
            again: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use wireboot_net::Parts;
    use wireboot_ring::{HeapBlock, prefix};

    fn piece(len: usize) -> (PrefixWriter<HeapBlock>, PrefixReader<HeapBlock>) {
        prefix(HeapBlock::in_pieces(&alloc::vec![0; len], 7))
    }

    fn bytes(range: core::ops::Range<usize>) -> Vec<u8> {
        range.map(|i| (i * 7) as u8).collect()
    }

    fn read(reader: &WindowReader<HeapBlock>, at: usize, len: usize) -> Vec<u8> {
        let mut to = alloc::vec![0; len];
        let count = reader.read(at, &mut to);
        to.truncate(count);
        to
    }

    #[test]
    fn pieces_are_filled_in_order_and_given_back() {
        let (window, mut reader) = WindowReader::new(100);
        let mut memory = Memory::new(window);
        assert_eq!((memory.len(), memory.has_room(1)), (100, false));
        assert!(memory.rest_mut(0).is_empty());
        reader.give(piece(10));
        reader.give(piece(20));
        assert!(memory.has_room(30) && !memory.has_room(31));
        assert_eq!(memory.write(0, Parts::new(&[&bytes(0..16)])), 16);
        assert_eq!(reader.ready(), 0);
        memory.commit(16);
        assert_eq!(reader.ready(), 16);
        assert_eq!(read(&reader, 0, 100), bytes(0..16));
        assert_eq!(read(&reader, 9, 3), bytes(9..12));
        // What is committed is not written again.
        assert!(memory.rest_mut(3).is_empty() && memory.rest_mut(12).is_empty());
        reader.release(12);
        assert_eq!(
            (reader.pieces(), reader.ready(), reader.released()),
            (1, 4, 12)
        );
        assert_eq!(read(&reader, 1, 100), bytes(13..16));
        // There is room for 14 more.
        assert_eq!(memory.write(16, Parts::new(&[&bytes(16..40)])), 14);
        memory.commit(30);
        assert_eq!(read(&reader, 0, 100), bytes(12..30));
        reader.release(100);
        assert_eq!((reader.pieces(), reader.ready(), reader.end()), (0, 0, 30));
        reader.give(piece(70));
        // Not beyond the end.
        assert_eq!(memory.write(30, Parts::new(&[&bytes(30..120)])), 70);
        memory.commit(100);
        assert_eq!(read(&reader, 0, 100), bytes(30..100));
    }

    #[test]
    fn another_window_goes_on_where_the_bytes_end() {
        let (window, mut reader) = WindowReader::new(10_000);
        let mut memory = Memory::new(window);
        reader.give(piece(100));
        reader.give(piece(5000));
        reader.give(piece(100));
        let whole = bytes(0..10_000);
        memory.write(0, Parts::new(&[&whole[..4000]]));
        memory.commit(3900);
        reader.release(50);
        drop(memory);
        let mut memory = Memory::new(reader.renew(10_000));
        assert_eq!(
            (reader.ready(), reader.released(), reader.end()),
            (3850, 50, 3900)
        );
        // The beginning comes again, and goes nowhere.
        assert!(memory.has_room(3900) && !memory.has_room(3901));
        let other = alloc::vec![9; 3000];
        assert_eq!(memory.write(0, Parts::new(&[&other])), 3000);
        memory.commit(3000);
        assert_eq!(memory.write(3000, Parts::new(&[&whole[3000..4000]])), 900);
        reader.give(piece(6000));
        assert_eq!(memory.write(3000, Parts::new(&[&whole[3000..9900]])), 6900);
        memory.commit(9900);
        assert_eq!(reader.ready(), 9850);
        assert!(read(&reader, 0, 10_000) == whole[50..9900]);
        // What is left of the piece in the midst can be read and released as any.
        reader.release(5000);
        assert!(read(&reader, 0, 10_000) == whole[5050..9900]);
        assert_eq!(reader.ready(), 4850);
    }

    #[test]
    fn so_many_pieces_and_no_more() {
        let (_window, mut reader) = WindowReader::new(usize::MAX);
        for _ in 0..PIECES + 5 {
            reader.give(piece(1));
        }
        assert_eq!((reader.pieces(), reader.end()), (PIECES, PIECES as u64));
        reader.give(piece(0));
        assert_eq!(reader.ready(), 0);
    }
}
