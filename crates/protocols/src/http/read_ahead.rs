//! Bytes of a body before a caller has a buffer for them.
//!
//! Some callers read a body by buffers of a few kilobytes. The engine, which may run on another processor, is asked for larger pieces
//! meanwhile, and a caller's buffer is filled from them: one more copy in the place of a question and an answer for each buffer. A buffer
//! that is as large as a piece is filled straight from the wire.

use super::{News, Verdict};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wireboot_net::Memory;

/// Bytes of a piece. Two are held at most: one is read, one is on its way.
const PIECE: usize = 256 << 10;
const PIECES: usize = 2;

/// The body of one exchange.
#[derive(Debug, Default)]
pub struct ReadAhead {
    /// A small buffer was there: what is still to come comes in pieces.
    in_pieces: bool,
    /// A caller's buffer, and how many bytes are in it.
    wanted: Option<(Memory, usize)>,
    /// Pieces that have come, oldest first, and the bytes of each.
    pieces: VecDeque<(Memory, usize)>,
    /// Bytes of the first that were read.
    read: usize,
    /// A piece is on its way.
    asked: bool,
    /// Pieces that are read, to be filled again.
    spare: Vec<Memory>,
    allocated: usize,
    news: VecDeque<News>,
    end: Option<Result<(), Verdict>>,
    end_is_told: bool,
}

impl ReadAhead {
    /// Takes a caller's buffer for the next bytes. Returns memory that the engine is to fill.
    pub fn give(&mut self, memory: Memory) -> Option<Memory> {
        if !self.in_pieces {
            if memory.len() >= PIECE {
                return Some(memory);
            }
            let Some(piece) = self.piece() else {
                return Some(memory);
            };
            self.in_pieces = true;
            self.spare.push(piece);
        }
        self.wanted = Some((memory, 0));
        self.fill();
        self.next_piece()
    }

    /// Takes memory back, at the start of which `len` bytes of the body are. Returns memory that is to be filled next.
    pub fn came(&mut self, memory: Memory, len: usize) -> Option<Memory> {
        if !self.in_pieces {
            self.news.push_back(News::Body(len));
            return None;
        }
        self.asked = false;
        self.pieces.push_back((memory, len));
        self.fill();
        self.next_piece()
    }

    /// The caller's buffer is its own again: what comes is not written there any more.
    pub fn give_back(&mut self) {
        self.wanted = None;
    }

    /// Nothing more comes: the body is whole, or why not. What was told first stays.
    pub fn ended(&mut self, end: Result<(), Verdict>) {
        self.end.get_or_insert(end);
        self.fill();
    }

    /// Whether that was told.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// What a caller is to be told next. The end comes behind all bytes that came before it.
    pub fn news(&mut self) -> Option<News> {
        let behind_all = self.news.is_empty() && self.pieces.is_empty() && self.wanted.is_none();
        if behind_all && !self.end_is_told {
            self.end_is_told = self.end.is_some();
            return self.end.map(News::Ended);
        }
        self.news.pop_front()
    }

    /// Tells something that came before the body.
    pub fn tell(&mut self, news: News) {
        self.news.push_back(news);
    }

    fn piece(&mut self) -> Option<Memory> {
        if let Some(piece) = self.spare.pop() {
            return Some(piece);
        }
        if self.allocated >= PIECES {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(PIECE).ok()?;
        bytes.resize(PIECE, 0_u8);
        self.allocated += 1;
        Some(bytes.into())
    }

    fn next_piece(&mut self) -> Option<Memory> {
        if self.asked || self.end.is_some() {
            return None;
        }
        let piece = self.piece()?;
        self.asked = true;
        Some(piece)
    }

    /// Fills the caller's buffer with what is there, and tells when it is full, or nothing more comes.
    fn fill(&mut self) {
        let Some((mut memory, mut filled)) = self.wanted.take() else {
            return;
        };
        let room = memory.len();
        while filled < room
            && let Some((piece, len)) = self.pieces.front()
        {
            let from = piece.rest(self.read);
            let left = from.len().min(len - self.read).min(room - filled);
            let copied = from
                .get(..left)
                .map_or(0, |from| copy(&mut memory, filled, from));
            filled += copied;
            self.read += copied;
            if self.read < *len && copied > 0 {
                continue;
            }
            self.read = 0;
            if let Some((piece, _)) = self.pieces.pop_front() {
                self.spare.push(piece);
            }
        }
        let over = self.end.is_some() && self.pieces.is_empty();
        if filled == room || over && filled > 0 {
            self.news.push_back(News::Body(filled));
        } else if !over {
            self.wanted = Some((memory, filled));
        }
    }
}

/// Copies to `memory` from `at` on. Returns how many bytes.
fn copy(memory: &mut Memory, at: usize, from: &[u8]) -> usize {
    let to = memory.rest_mut(at);
    let count = to.len().min(from.len());
    if let (Some(to), Some(from)) = (to.get_mut(..count), from.get(..count)) {
        to.copy_from_slice(from);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::{Arc, Mutex};
    use std::vec;

    /// A caller's buffer, which is looked at when it is full.
    struct Buffer(Vec<u8>, Arc<Mutex<Vec<u8>>>);

    impl wireboot_net::MemoryBlock for Buffer {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn rest(&self, at: usize) -> &[u8] {
            &self.0[at..]
        }
        fn rest_mut(&mut self, at: usize) -> &mut [u8] {
            &mut self.0[at..]
        }
        fn commit(&mut self, _: usize) {}
    }

    impl Drop for Buffer {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = core::mem::take(&mut self.0);
        }
    }

    /// An engine that has the rest of a body.
    struct Engine {
        body: Vec<u8>,
        at: usize,
        asked: Option<Memory>,
        questions: usize,
    }

    impl Engine {
        fn ask(&mut self, memory: Option<Memory>) {
            if let Some(memory) = memory {
                assert!(self.asked.replace(memory).is_none(), "two at a time");
                self.questions += 1;
            }
        }

        /// Fills what it was asked for, or ends.
        fn turn(&mut self, ahead: &mut ReadAhead) {
            if self.at == self.body.len() {
                ahead.ended(Ok(()));
            } else if let Some(mut memory) = self.asked.take() {
                let len = copy(&mut memory, 0, &self.body[self.at..]);
                self.at += len;
                let more = ahead.came(memory, len);
                self.ask(more);
            }
        }
    }

    #[test]
    fn a_buffer_that_was_given_back_is_not_written() {
        let content = Arc::<Mutex<Vec<u8>>>::default();
        let mut ahead = ReadAhead::default();
        let buffer = Memory::new(Buffer(vec![0; 8], content.clone()));
        let mut piece = ahead.give(buffer).unwrap();
        ahead.give_back();
        let len = copy(&mut piece, 0, &[7; 8]);
        ahead.came(piece, len);
        assert_eq!(*content.lock().unwrap(), [0; 8]);
    }

    /// Reads a body by buffers of these sizes, over and over. Returns it, and how often the engine was asked.
    fn read(body: &[u8], sizes: &[usize], eager: bool) -> (Vec<u8>, usize) {
        let mut engine = Engine {
            body: body.to_vec(),
            at: 0,
            asked: None,
            questions: 0,
        };
        let mut ahead = ReadAhead::default();
        let mut got = Vec::new();
        for size in sizes.iter().cycle() {
            let seen = Arc::default();
            let buffer = Buffer(vec![0; *size], Arc::clone(&seen));
            let asked = ahead.give(Memory::new(buffer));
            engine.ask(asked);
            let len = loop {
                match ahead.news() {
                    Some(News::Body(len)) => break len,
                    Some(News::Ended(Ok(()))) => return (got, engine.questions),
                    Some(other) => panic!("{other:?}"),
                    None => engine.turn(&mut ahead),
                }
            };
            let there = seen.lock().unwrap();
            got.extend(&there[..len]);
            let last = got.len() == body.len();
            assert!(len == *size || last, "{len} of {size}");
            drop(there);
            if eager {
                engine.turn(&mut ahead);
            }
        }
        unreachable!("there are sizes");
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 7 % 251) as u8).collect()
    }

    #[test]
    fn small_buffers_ask_the_engine_for_large_pieces() {
        let body = pattern(3_000_000);
        for eager in [true, false] {
            let (got, questions) = read(&body, &[9216], eager);
            assert!(got == body);
            assert!(questions <= 3_000_000 / PIECE + 2, "{questions}");
        }
    }

    #[test]
    fn large_buffers_are_filled_straight_from_the_wire() {
        let mut ahead = ReadAhead::default();
        let memory = ahead.give(vec![0; PIECE].into()).unwrap();
        assert_eq!(memory.len(), PIECE);
        assert!(ahead.came(memory, 5).is_none());
        assert!(matches!(ahead.news(), Some(News::Body(5))));
        assert!(ahead.news().is_none());
    }

    #[test]
    fn the_end_comes_once_and_behind_what_came_before() {
        let mut ahead = ReadAhead::default();
        let piece = ahead.give(vec![0; 10].into()).unwrap();
        let more = ahead.came(piece, 15).unwrap();
        assert_eq!(more.len(), PIECE);
        ahead.ended(Err(Verdict::ConnectionFin));
        ahead.ended(Ok(()));
        assert!(ahead.has_ended());
        assert!(matches!(ahead.news(), Some(News::Body(10))));
        assert!(ahead.news().is_none(), "five bytes are there");
        assert!(ahead.give(vec![0; 10].into()).is_none());
        assert!(matches!(ahead.news(), Some(News::Body(5))));
        let end = Err(Verdict::ConnectionFin);
        assert!(matches!(ahead.news(), Some(News::Ended(told)) if told == end));
        assert!(ahead.news().is_none());
    }

    #[test]
    fn what_nobody_reads_takes_two_pieces_of_memory() {
        let mut ahead = ReadAhead::default();
        let first = ahead.give(vec![0; 10].into()).unwrap();
        let second = ahead.came(first, PIECE).unwrap();
        assert!(ahead.came(second, PIECE).is_none());
    }

    proptest! {
        #[test]
        fn a_body_comes_whole_by_buffers_of_any_size(
            len in 0..900_000_usize,
            sizes in proptest::collection::vec(prop_oneof![1..20_000_usize, 200_000..400_000_usize], 1..5),
            eager: bool,
        ) {
            let body = pattern(len);
            let (got, _) = read(&body, &sizes, eager);
            prop_assert!(got == body);
        }
    }
}
