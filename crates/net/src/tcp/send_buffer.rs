//! What a connection sends: from memory of the caller's, without a copy before the one into the transmit ring.

use crate::memory::Region;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A piece of what is to be sent.
enum Source {
    Bytes(Vec<u8>),
    /// A region, from a byte on to one before another.
    Region(Region, usize, usize),
}

impl Source {
    fn len(&self) -> usize {
        match self {
            Source::Bytes(bytes) => bytes.len(),
            Source::Region(_, from, to) => to - from,
        }
    }

    /// Copies what begins at `offset` to `to`, as far as both reach.
    fn copy(&self, offset: usize, to: &mut [u8]) -> usize {
        let copy = |bytes: &[u8], to: &mut [u8]| {
            let count = bytes.len().min(to.len());
            if let (Some(to), Some(from)) = (to.get_mut(..count), bytes.get(..count)) {
                to.copy_from_slice(from);
            }
            count
        };
        match self {
            Source::Bytes(bytes) => copy(bytes.get(offset..).unwrap_or_default(), to),
            Source::Region(region, from, end) => {
                let len = (end - from).saturating_sub(offset);
                region.with(from + offset, |bytes| {
                    copy(bytes.get(..len).unwrap_or(bytes), to)
                })
            }
        }
    }
}

/// What is sent and not acknowledged, and what is not sent yet.
#[derive(Default)]
pub struct SendBuffer {
    sources: VecDeque<Source>,
    /// Bytes of the first one that were acknowledged.
    done: usize,
    len: usize,
}

impl SendBuffer {
    /// Bytes that were not acknowledged.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a copy of `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        self.sources.push_back(Source::Bytes(bytes.into()));
    }

    /// Adds what `region` holds from `from` to before `to`, which must not change until it is acknowledged.
    pub fn push_region(&mut self, region: Region, from: usize, to: usize) {
        let to = to.min(region.end()).max(from);
        self.len += to - from;
        self.sources.push_back(Source::Region(region, from, to));
    }

    /// So many bytes at the start were acknowledged.
    pub fn release(&mut self, count: usize) {
        self.len = self.len.saturating_sub(count);
        self.done += count;
        while let Some(first) = self.sources.front()
            && self.done >= first.len()
        {
            self.done -= first.len();
            self.sources.pop_front();
        }
    }

    /// Writes what begins `offset` bytes behind the first one that was not acknowledged.
    pub fn fill(&self, offset: usize, mut to: &mut [u8]) {
        let mut offset = offset + self.done;
        for source in &self.sources {
            if offset >= source.len() {
                offset -= source.len();
                continue;
            }
            let count = source.copy(offset, to);
            to = to.get_mut(count..).unwrap_or_default();
            if to.is_empty() || count == 0 {
                return;
            }
            offset = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[test]
    fn it_is_one_stream_of_bytes() {
        let stream: Vec<u8> = (0..100).collect();
        let mut buffer = SendBuffer::default();
        buffer.push(&stream[..10]);
        let region = Region::new(Memory::from(stream.clone()));
        buffer.push_region(region.clone(), 10, 60);
        buffer.push_region(region.part(70), 60, 90);
        buffer.push(&stream[70..]);
        assert_eq!(buffer.len(), 100);
        for released in [0, 7, 3, 20, 40] {
            buffer.release(released);
            let first = 100 - buffer.len();
            for from in 0..buffer.len() {
                for len in [1, 9, 35, 100] {
                    let len = len.min(buffer.len() - from);
                    let mut to = alloc::vec![0xee; len];
                    buffer.fill(from, &mut to);
                    assert_eq!(to, stream[first + from..first + from + len]);
                }
            }
        }
        buffer.release(30);
        assert_eq!(buffer.len(), 0);
        assert!(buffer.sources.is_empty());
    }
}
