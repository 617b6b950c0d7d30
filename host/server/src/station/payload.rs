//! What follows the headers of a frame, where it lies.

use std::collections::VecDeque;
use std::ops::Range;

use crate::content::Content;

/// Bytes of a file between two looks at whether it has changed.
const BETWEEN_LOOKS: u64 = 64 << 10;

/// A part of what a client gets.
#[derive(Debug)]
pub(super) enum Part {
    Bytes(Vec<u8>),
    File(Content, Range<u64>),
}

impl Part {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, range) => range.end - range.start,
        }
    }
}

/// A piece of a frame's payload.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Bytes that are in memory.
    Bytes(&'a [u8]),
    /// Bytes of a file.
    File {
        /// The file to read from.
        content: &'a Content,
        /// Where they begin in the file, in bytes.
        offset: u64,
        /// How many bytes, at least 1.
        len: usize,
        /// The file must be looked at when they have been read ([`Content::read_where_it_lies`]).
        looks: bool,
    },
}

impl Piece<'_> {
    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File { len, .. } => *len,
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The payload of a frame, in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Payload<'a> {
    parts: [&'a [Part]; 2],
    /// Bytes of the parts before it.
    offset: u64,
    len: usize,
}

impl<'a> Payload<'a> {
    pub(super) fn of(parts: &'a VecDeque<Part>, offset: u64, len: usize) -> Self {
        let (first, second) = parts.as_slices();
        Self {
            parts: [first, second],
            offset,
            len,
        }
    }

    /// Its pieces in order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'a>> + use<'a> {
        let (begin, end) = (self.offset, self.offset + self.len as u64);
        let mut at = 0;
        let parts = self.parts.into_iter().flatten();
        parts.filter_map(move |part| {
            let (first, behind) = (at, at + part.len());
            at = behind;
            let (from, to) = (
                begin.max(first) - first,
                end.min(behind).saturating_sub(first),
            );
            (from < to).then(|| piece(part, from, to)).flatten()
        })
    }
}

/// These bytes of a part.
fn piece(part: &Part, from: u64, to: u64) -> Option<Piece<'_>> {
    match part {
        Part::Bytes(bytes) => bytes.get(from as usize..to as usize).map(Piece::Bytes),
        Part::File(content, range) => {
            let (offset, end) = (range.start + from, range.start + to);
            Some(Piece::File {
                content,
                offset,
                len: (to - from) as usize,
                looks: end == range.end || offset / BETWEEN_LOOKS != end / BETWEEN_LOOKS,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(payload: &Payload<'_>) -> Vec<(u64, usize, bool)> {
        let shown = |piece| match piece {
            Piece::Bytes(bytes) => (u64::from(bytes[0]), bytes.len(), false),
            Piece::File {
                offset, len, looks, ..
            } => (offset, len, looks),
        };
        payload.pieces().map(shown).collect()
    }

    #[test]
    fn pieces_are_those_of_the_parts_in_order() {
        let content = Content::from_bytes(vec![0; 300_000]);
        let parts: VecDeque<Part> = [
            Part::Bytes(vec![1, 2, 3, 4]),
            Part::File(content, 1000..201_000),
            Part::Bytes(vec![9; 5]),
        ]
        .into();
        let of = |offset, len| shown(&Payload::of(&parts, offset, len));
        assert_eq!(of(1, 2), [(2, 2, false)]);
        assert_eq!(of(2, 12), [(3, 2, false), (1000, 10, false)]);
        assert_eq!(of(4 + 100, 1000), [(1100, 1000, false)]);
        // Across 64 KiB of the file, and at its end.
        assert_eq!(of(4 + 64_000, 1000), [(65_000, 1000, true)]);
        assert_eq!(of(4 + 199_900, 103), [(200_900, 100, true), (9, 3, false)]);
        assert_eq!(of(4 + 199_900, 99), [(200_900, 99, false)]);
        assert_eq!(of(0, 0), []);
    }
}
