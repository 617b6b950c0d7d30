//! The chunked transfer coding (RFC 9112 section 7.1): everything but the data itself.

use super::head::HEAD_LIMIT;

/// Longest line with a chunk size, its extensions included, in bytes.
const LINE_LIMIT: usize = 4096;

/// Reads chunk sizes, extensions and trailers from a stream that may be cut anywhere, and takes no byte of
/// chunk data, which goes from the wire to its destination.
#[derive(Debug)]
pub(crate) struct ChunkReader {
    state: ChunkState,
    /// Bytes taken in the current line, or of all trailers.
    taken: usize,
}

/// Where in the syntax of a chunked body a [`ChunkReader`] is.
#[derive(Clone, Copy, Debug)]
enum ChunkState {
    /// In the digits of a size; none yet at `None`.
    Size(Option<u64>),
    /// Behind the size: extensions, which mean nothing here.
    Extension(u64),
    /// In the line end behind a chunk's data; true after its CR.
    DataEnd(bool),
    /// In trailers; true at the start of a line (but for a CR).
    Trailer(bool),
}

/// What follows in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More of what [`ChunkReader::push`] takes.
    More,
    /// So many bytes of data, at least 1; then [`ChunkReader::push`] again.
    Data(u64),
    /// Nothing: the body is complete.
    End,
}

impl ChunkReader {
    pub(crate) fn new() -> Self {
        Self {
            state: ChunkState::Size(None),
            taken: 0,
        }
    }

    /// Takes bytes from the stream. Returns how many were taken and what follows. After [`Next::Data`] the
    /// caller takes exactly that many bytes of data from the stream before the next call.
    pub(crate) fn push(&mut self, data: &[u8]) -> Result<(usize, Next), ChunkError> {
        for (index, &byte) in data.iter().enumerate() {
            self.taken += 1;
            let next = self.step(byte)?;
            if next != Next::More {
                return Ok((index + 1, next));
            }
        }
        Ok((data.len(), Next::More))
    }

    fn step(&mut self, byte: u8) -> Result<Next, ChunkError> {
        match (self.state, byte) {
            (ChunkState::Size(Some(size)) | ChunkState::Extension(size), b'\n') => {
                self.taken = 0;
                if size == 0 {
                    self.state = ChunkState::Trailer(true);
                } else {
                    self.state = ChunkState::DataEnd(false);
                    return Ok(Next::Data(size));
                }
            }
            (ChunkState::Size(Some(size)), b';' | b' ' | b'\t' | b'\r') => {
                self.state = ChunkState::Extension(size);
            }
            (ChunkState::Size(size), _) => {
                let digit = char::from(byte).to_digit(16).ok_or(ChunkError::Size)?;
                let size = size.unwrap_or(0).checked_mul(16).ok_or(ChunkError::Size)?;
                self.state = ChunkState::Size(Some(size | u64::from(digit)));
            }
            (ChunkState::Extension(_), _) => {}
            (ChunkState::DataEnd(_), b'\n') => {
                self.taken = 0;
                self.state = ChunkState::Size(None);
            }
            (ChunkState::DataEnd(false), b'\r') => self.state = ChunkState::DataEnd(true),
            (ChunkState::DataEnd(_), _) => return Err(ChunkError::DataEnd),
            (ChunkState::Trailer(true), b'\n') => return Ok(Next::End),
            (ChunkState::Trailer(true), b'\r') => {}
            (ChunkState::Trailer(_), _) => self.state = ChunkState::Trailer(byte == b'\n'),
        }
        let limit = match self.state {
            ChunkState::Trailer(_) => HEAD_LIMIT,
            _ => LINE_LIMIT,
        };
        if self.taken > limit {
            return Err(ChunkError::TooLong);
        }
        Ok(Next::More)
    }
}

/// A chunked body that breaks the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// Not hexadecimal, or over 64 bits.
    #[error("a chunk size is no hexadecimal number")]
    Size,
    /// A chunk holds more data than it announced.
    #[error("a chunk is longer than announced")]
    DataEnd,
    /// Extensions over 4 KiB or trailers over 16 KiB.
    #[error("chunk extensions or trailers are too long")]
    TooLong,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Decodes a whole stream given in pieces; the bytes left over, too.
    fn decode(stream: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, usize), ChunkError> {
        let mut reader = ChunkReader::new();
        let mut body = Vec::new();
        let mut rest = stream;
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let piece = cuts.next().map_or(rest.len(), |cut| (*cut).min(rest.len()));
            let (taken, next) = reader.push(&rest[..piece])?;
            rest = &rest[taken..];
            match next {
                Next::More => assert_eq!(taken, piece),
                Next::Data(size) => {
                    let size = usize::try_from(size).unwrap().min(rest.len());
                    body.extend_from_slice(&rest[..size]);
                    rest = &rest[size..];
                }
                Next::End => return Ok((body, rest.len())),
            }
        }
        panic!("cut short");
    }

    #[test]
    fn sizes_extensions_trailers() {
        let stream = b"5\r\nhello\r\n6 ; a=\"b\";c\r\n world\r\n00A\n0123456789\n0;last\r\nX: y\r\nZ:\r\n\r\nHTTP";
        assert_eq!(
            decode(stream, &[]),
            Ok((b"hello world0123456789".to_vec(), 4))
        );
    }

    #[test]
    fn broken_ones() {
        let error = |stream: &[u8]| decode(stream, &[1]).unwrap_err();
        assert_eq!(error(b"\r\n"), ChunkError::Size);
        assert_eq!(error(b"x\r\n"), ChunkError::Size);
        assert_eq!(error(b"-1\r\n"), ChunkError::Size);
        assert_eq!(error(b"0x5\r\n"), ChunkError::Size);
        assert_eq!(error(b"10000000000000000\r\n"), ChunkError::Size);
        assert_eq!(error(b"1\r\nab\r\n"), ChunkError::DataEnd);
        assert_eq!(error(b"1\r\na\r\r\n"), ChunkError::DataEnd);
        assert_eq!(error(&vec![b'0'; LINE_LIMIT + 1]), ChunkError::TooLong);
        let mut trailers = b"0\r\n".to_vec();
        trailers.extend(vec![b'a'; HEAD_LIMIT + 1]);
        assert_eq!(error(&trailers), ChunkError::TooLong);
    }

    #[test]
    fn the_longest_trailers() {
        let mut stream = b"0\r\n".to_vec();
        stream.extend(vec![b'a'; HEAD_LIMIT - 4]);
        stream.extend(b"\r\n\r\n");
        assert_eq!(decode(&stream, &[]), Ok((vec![], 0)));
    }

    #[test]
    fn the_largest_size() {
        let mut reader = ChunkReader::new();
        assert_eq!(
            reader.push(b"ffffFFFFffffFFFF\r\n"),
            Ok((18, Next::Data(u64::MAX)))
        );
    }

    proptest! {
        #[test]
        fn splits_do_not_matter(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..10),
            cuts in prop::collection::vec(1usize..30, 1..20),
        ) {
            let mut stream = Vec::new();
            for chunk in &chunks {
                stream.extend(alloc::format!("{:x};e\r\n", chunk.len()).bytes());
                stream.extend(chunk);
                stream.extend(b"\r\n");
            }
            stream.extend(b"0\r\nT: t\r\n\r\nrest");
            prop_assert_eq!(decode(&stream, &cuts), Ok((chunks.concat(), 4)));
        }
    }
}
