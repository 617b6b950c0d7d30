//! What a connection sends: from memory of the caller's, without a copy before the one into the transmit ring.

use crate::memory::Region;
use crate::parts::Parts;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A piece of what is to be sent: what a region holds from a byte on to one before another.
struct Source {
    region: Region,
    from: usize,
    to: usize,
}

impl Source {
    fn len(&self) -> usize {
        self.to - self.from
    }

    /// Copies what begins at `offset` to `to`, as far as both reach.
    fn copy(&self, offset: usize, to: &mut [u8]) -> usize {
        let len = self.len().saturating_sub(offset).min(to.len());
        self.region.with(self.from + offset, |bytes| {
            let bytes = bytes.get(..len).unwrap_or(bytes);
            Parts::new(&[bytes]).copy_to(to)
        })
    }
}

/// What is sent and not acknowledged, and what is not sent yet.
#[derive(Default)]
pub(crate) struct SendBuffer {
    sources: VecDeque<Source>,
    /// Bytes of the first one that were acknowledged.
    done: usize,
    len: usize,
}

impl SendBuffer {
    /// Bytes that were not acknowledged.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a copy of `bytes`.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let region = Region::new(Vec::from(bytes).into());
        self.push_region(region, 0, bytes.len());
    }

    /// Adds what `region` holds from `from` to before `to`, which must not change until it is acknowledged.
    pub(crate) fn push_region(&mut self, region: Region, from: usize, to: usize) {
        let to = to.min(region.end()).max(from);
        self.len += to - from;
        self.sources.push_back(Source { region, from, to });
    }

    /// So many bytes at the start were acknowledged.
    pub(crate) fn release(&mut self, count: usize) {
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
    pub(crate) fn fill(&self, offset: usize, mut to: &mut [u8]) {
        let mut offset = offset + self.done;
        for source in &self.sources {
            // A region may be in pieces.
            while offset < source.len() {
                let count = source.copy(offset, to);
                to = to.get_mut(count..).unwrap_or_default();
                if to.is_empty() || count == 0 {
                    return;
                }
                offset += count;
            }
            offset -= source.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use wireboot_ring::{HeapBlock, prefix};

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

    #[test]
    fn memory_in_pieces_is_sent_like_any_other() {
        let bytes: Vec<u8> = (0..50).collect();
        let (writer, _) = prefix(HeapBlock::in_pieces(&bytes, 10));
        let mut buffer = SendBuffer::default();
        buffer.push_region(Region::new(Memory::new(writer)), 3, 45);
        buffer.push(&bytes[45..]);
        for from in 0..buffer.len() {
            let mut to = alloc::vec![0xee; buffer.len() - from];
            buffer.fill(from, &mut to);
            assert_eq!(to, bytes[3 + from..]);
        }
    }

    /// Whoever gave the memory may take it back.
    #[test]
    fn what_is_no_longer_there_is_not_waited_for() {
        let region = Region::new(Memory::from(alloc::vec![7; 20]));
        let mut buffer = SendBuffer::default();
        buffer.push_region(region.clone(), 0, 20);
        drop(region.take());
        let mut to = [0xee; 8];
        buffer.fill(4, &mut to);
        assert_eq!(to, [0xee; 8]);
    }
}
