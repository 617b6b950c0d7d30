//! What a connection has received and where it goes: straight to its destination, or into a buffer until somebody reads it.

use crate::memory::Region;
use crate::parts::Parts;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use wireboot_nic::LentMemory;
use wireboot_tcp::PayloadRange;

/// Memory that a reader has handed over.
pub(crate) struct Destination {
    region: Region,
    /// First byte to fill, and the next one.
    start: usize,
    at: usize,
    /// Where the region ended when it was last looked at.
    end: usize,
    /// A device may have some of what is ahead.
    may_be_lent: bool,
    /// Behind what this connection has lent to a device.
    lent_to: usize,
}

/// Bytes that a device is lent at once, and at least. The lender sees what has come when all of it has.
const LOAN: usize = 2 << 20;
const LEAST_LOAN: usize = 16 << 10;

impl Destination {
    /// Bytes that can still be filled.
    #[inline]
    fn room(&self) -> usize {
        self.region.end().saturating_sub(self.at)
    }

    /// The same where some are at their place already: of the next `payload` too.
    #[inline]
    fn room_for(&mut self, payload: Parts<'_>) -> usize {
        if self.may_be_lent {
            self.room_beside_loans(0, payload)
        } else {
            self.room()
        }
    }

    /// The same from the next byte on, where `payload` begins so far ahead.
    #[inline(never)]
    fn room_beside_loans(&mut self, ahead: usize, payload: Parts<'_>) -> usize {
        self.may_be_lent = self.is_lent();
        ahead.saturating_add(self.region.reach(self.at.saturating_add(ahead), payload))
    }

    /// Whether somebody has memory of the region's, filled or not.
    fn is_lent(&self) -> bool {
        self.region.first_lent(0) < self.region.end()
    }

    /// Lends a device what lies `edge` bytes ahead, or follows the last loan. How far ahead that is.
    fn lend(&mut self, edge: usize) -> Option<(usize, Box<dyn LentMemory>)> {
        let edge = self.at.saturating_add(edge);
        let is_out = self.lent_to > self.at && self.region.first_lent(self.at) < self.lent_to;
        let start = if is_out { self.lent_to } else { edge };
        let left = self.region.end().saturating_sub(start);
        // What the peer may be sending already comes as ever.
        if start < edge || start - edge >= LOAN || left < LEAST_LOAN {
            return None;
        }
        let memory = self.region.lend_to_device(start, left.min(LOAN))?;
        self.may_be_lent = true;
        Some((start - self.at, memory))
    }

    /// Copies the next bytes, which fit ([`ReceiveBuffer::direct`]), to their place.
    #[inline(always)]
    pub(crate) fn append(&mut self, payload: Parts<'_>) {
        self.region.write(self.at, payload);
        self.at += payload.len();
    }
}

/// Bytes in order that nobody has read yet, and what lies behind gaps after them, in a ring.
struct Held {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Held {
    fn free(&self) -> usize {
        self.bytes.len().saturating_sub(self.len)
    }

    /// Writes `payload` so many bytes behind the last one in order.
    fn write(&mut self, offset: usize, payload: Parts<'_>) {
        let capacity = self.bytes.len();
        let mut at = self.len + offset;
        if capacity == 0 || at + payload.len() > capacity {
            return;
        }
        at = (self.start + at) % capacity;
        let first = payload.len().min(capacity - at);
        payload
            .slice(0, first)
            .copy_to(self.bytes.get_mut(at..).unwrap_or_default());
        payload.slice(first, usize::MAX).copy_to(&mut self.bytes);
    }

    /// The first bytes, `len` at most, in one piece, whether they are in order or not.
    fn front(&self, len: usize) -> &[u8] {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        rest.get(..len).unwrap_or(rest)
    }

    fn skip(&mut self, count: usize) {
        self.len = self.len.saturating_sub(count);
        self.start = (self.start + count) % self.bytes.len().max(1);
    }
}

/// Where a connection's bytes go.
pub(crate) struct ReceiveBuffer {
    destination: Option<Destination>,
    held: Held,
}

impl ReceiveBuffer {
    /// A buffer that holds so many bytes without a destination.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            destination: None,
            held: Held {
                bytes: vec![0; capacity],
                start: 0,
                len: 0,
            },
        }
    }

    /// Whether there is a destination.
    pub(crate) fn has_destination(&self) -> bool {
        self.destination.is_some()
    }

    /// Bytes from RCV.NXT on that can be stored.
    pub(crate) fn room(&self) -> usize {
        let destination = match &self.destination {
            // Before what is held goes first.
            Some(destination) if self.held.len == 0 => destination.room(),
            _ => 0,
        };
        destination.saturating_add(self.held.free())
    }

    /// The destination, if that is where the next bytes go.
    #[inline(always)]
    pub(crate) fn direct(&mut self, payload: Parts<'_>) -> Option<&mut Destination> {
        let destination = self.destination.as_mut()?;
        let fits = payload.len() <= destination.room_for(payload);
        (self.held.len == 0 && fits).then_some(destination)
    }

    /// As far from RCV.NXT on as `payload`, which begins so far ahead, can be stored now.
    pub(crate) fn room_for(&mut self, ahead: usize, payload: Parts<'_>) -> usize {
        match &mut self.destination {
            // What is held goes first.
            Some(destination) if destination.may_be_lent && self.held.len == 0 => {
                destination.room_beside_loans(ahead, payload)
            }
            _ => self.room(),
        }
    }

    /// Whether a device may have memory that the next bytes belong to.
    pub(crate) fn may_be_lent(&self) -> bool {
        let destination = self.destination.as_ref();
        destination.is_some_and(|destination| destination.may_be_lent)
    }

    /// Whether a device has some of the destination's memory, filled or not.
    pub(crate) fn is_lent(&self) -> bool {
        let destination = self.destination.as_ref();
        destination.is_some_and(|destination| destination.may_be_lent && destination.is_lent())
    }

    /// Bytes of the destination before the first that a device has.
    pub(crate) fn readable(&self) -> usize {
        self.destination.as_ref().map_or(0, |destination| {
            let first = destination.region.first_lent(0);
            first.saturating_sub(destination.start)
        })
    }

    /// Lends a device memory for what comes `edge` bytes behind RCV.NXT, or later. How much later, and the memory.
    pub(crate) fn lend(&mut self, edge: usize) -> Option<(usize, Box<dyn LentMemory>)> {
        let destination = self.destination.as_mut()?;
        (self.held.len == 0).then(|| destination.lend(edge))?
    }

    /// The device has taken so many bytes from there on.
    pub(crate) fn lent(&mut self, ahead: usize, len: usize) {
        if let Some(destination) = &mut self.destination {
            destination.lent_to = destination.at + ahead + len;
        }
    }

    /// Copies what a segment brings to its place. Returns how many bytes the destination has now in order that it had not before.
    pub(crate) fn place(&mut self, range: &PayloadRange, payload: Parts<'_>) -> usize {
        let payload = payload.slice(range.skip, range.len);
        let at = range.at as usize;
        let advance = range.advance as usize;
        let Some(destination) = self.destination.as_mut().filter(|_| self.held.len == 0) else {
            self.held.write(at, payload);
            self.held.len += advance;
            return 0;
        };
        let room = destination.room();
        let here = payload.slice(0, room.saturating_sub(at));
        if !here.is_empty() {
            let at = destination.at.saturating_add(at);
            destination.region.write(at, here);
        }
        let beyond = payload.slice(here.len(), usize::MAX);
        if !beyond.is_empty() {
            self.held
                .write((at + here.len()).saturating_sub(room), beyond);
        }
        let taken = advance.min(room);
        destination.at += taken;
        self.held.len += advance - taken;
        taken
    }

    /// Takes a destination, which what is held goes to, `behind` bytes behind RCV.NXT too. Returns how many bytes it has now in order.
    pub(crate) fn set_destination(&mut self, region: Region, at: usize, behind: usize) -> usize {
        let end = region.end();
        self.destination = Some(Destination {
            start: at,
            at,
            end,
            may_be_lent: region.may_be_lent(),
            lent_to: 0,
            region,
        });
        self.drain(behind)
    }

    /// Moves what is held to the destination, unless a device has some of its place.
    pub(crate) fn drain(&mut self, behind: usize) -> usize {
        let Some(destination) = &mut self.destination else {
            return 0;
        };
        let mut span = (self.held.len + behind).min(destination.room());
        // All or nothing: what lies behind a gap has its place behind what is held.
        if destination.may_be_lent
            && destination.region.first_lent(destination.at) < destination.at + span
        {
            return 0;
        }
        destination.end = destination.region.end();
        let in_order = self.held.len.min(span);
        let mut to = destination.at;
        while span > 0 {
            let front = self.held.front(span);
            let count = destination.region.write(to, Parts::new(&[front]));
            if count == 0 {
                break;
            }
            self.held.skip(count);
            span -= count;
            to += count;
        }
        destination.at += in_order;
        in_order
    }

    /// Whether the region's end has moved and takes some of the `behind` bytes behind RCV.NXT. What lies beyond the new end may be in
    /// somebody else's part. What lay beyond the former one is held, and not where the longer region has its place.
    pub(crate) fn end_takes(&mut self, behind: usize) -> bool {
        self.destination.as_mut().is_some_and(|destination| {
            let end = destination.region.end();
            let former = core::mem::replace(&mut destination.end, end);
            end != former && behind > end.min(former).saturating_sub(destination.at)
        })
    }

    /// Bytes that the destination has in order, and whether it is full.
    pub(crate) fn filled(&self) -> Option<(usize, bool)> {
        let destination = self.destination.as_ref()?;
        let filled = destination.at - destination.start;
        Some((filled, destination.room() == 0))
    }

    /// Gives the destination back. True when what lies behind a gap is lost by that.
    pub(crate) fn leave_destination(&mut self) -> bool {
        self.destination
            .take()
            .is_some_and(|destination| destination.room() > 0)
    }

    /// Bytes in order that wait for a reader.
    pub(crate) fn held(&self) -> usize {
        self.held.len
    }

    /// Shows the first bytes that wait to `consume`, which returns how many it took.
    pub(crate) fn read(&mut self, consume: impl FnOnce(&[u8]) -> usize) -> usize {
        let bytes = self.held.front(self.held.len);
        let count = consume(bytes).min(bytes.len());
        self.held.skip(count);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use wireboot_ring::{HeapBlock, prefix};

    fn place(at: u32, len: usize, advance: u32) -> PayloadRange {
        PayloadRange {
            skip: 0,
            len,
            at,
            advance,
        }
    }

    /// Bytes 0, 1, 2, ... of a stream arrive out of order over the edge between held bytes, destination and what is behind it.
    #[test]
    fn every_byte_finds_its_place_whatever_is_set_when() {
        let stream: Vec<u8> = (0..200).collect();
        let piece = |from: usize, to: usize| [&stream[from..to]];
        for early in [0, 5, 20] {
            let mut buffer = ReceiveBuffer::new(64);
            // 0..10 in order, 15..25 behind a gap.
            buffer.place(&place(0, 10, 10), Parts::new(&piece(0, 10)));
            assert_eq!(buffer.room(), 54);
            buffer.place(&place(5, 10, 0), Parts::new(&piece(15, 25)));
            let mut read = Vec::new();
            let taken = buffer.read(|bytes| {
                read.extend_from_slice(&bytes[..early.min(bytes.len())]);
                early
            });
            assert_eq!(taken, early.min(10));
            let region = Region::new(Memory::from(vec![0xee; 30]));
            // Room for 20 bytes: what is left of the first ten, the gap, and a part of what is behind.
            assert_eq!(buffer.set_destination(region.part(22), 2, 15), 10 - taken);
            assert_eq!(buffer.held(), 0);
            // The gap and all behind it up to 40.
            let filled = buffer.place(&place(0, 5, 15), Parts::new(&piece(10, 15)));
            let end = taken + 20;
            assert_eq!(filled, end.min(25) - 10);
            buffer.place(&place(0, 15, 15), Parts::new(&piece(25, 40)));
            assert_eq!(buffer.filled(), Some((20, true)));
            assert!(
                !buffer.leave_destination(),
                "nothing lies behind a gap in it"
            );
            let memory = region.take();
            assert_eq!(&memory.rest(0)[2..22], &stream[taken..end]);
            assert_eq!(&memory.rest(0)[..2], [0xee; 2]);
            assert_eq!(&memory.rest(0)[22..], [0xee; 8]);
            while buffer.held() > 0 {
                buffer.read(|bytes| {
                    read.extend_from_slice(bytes);
                    bytes.len()
                });
            }
            let expected: Vec<u8> = stream[..taken]
                .iter()
                .chain(&stream[end..40])
                .copied()
                .collect();
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn an_end_that_moves_takes_what_lies_beyond_it() {
        let region = Region::new(Memory::from(vec![0; 30]));
        let part = region.part(20);
        let mut buffer = ReceiveBuffer::new(8);
        buffer.set_destination(part.clone(), 2, 0);
        assert_eq!(buffer.room(), 26);
        for (end, behind, takes) in [
            (20, 26, false),
            (15, 0, false),
            (12, 10, false),
            (10, 9, true),
            // It is told once.
            (10, 9, false),
            // It grows, and shrinks again.
            (18, 8, false),
            (10, 8, false),
            // What lay beyond the former end is held.
            (18, 9, true),
            (1, 1, true),
        ] {
            part.set_end(end);
            assert_eq!(buffer.end_takes(behind), takes, "{end} {behind}");
        }
        part.set_end(10);
        assert_eq!(buffer.room(), 16);
        assert!(buffer.leave_destination());
        assert!(!buffer.has_destination());
    }

    #[test]
    fn what_finds_no_room_is_written_nowhere() {
        let bytes: [&[u8]; 1] = [&[1; 9]];
        let mut buffer = ReceiveBuffer::new(8);
        buffer.place(&place(0, 4, 4), Parts::new(&[&[7; 4]]));
        buffer.place(&place(0, 5, 0), Parts::new(&bytes));
        buffer.place(&place(3, 2, 0), Parts::new(&bytes));
        let mut read = Vec::new();
        buffer.read(|bytes| {
            read.extend_from_slice(bytes);
            bytes.len()
        });
        assert_eq!(read, [7; 4]);
        // As many as there is room for, round the end.
        buffer.place(&place(0, 8, 8), Parts::new(&bytes));
        assert_eq!((buffer.held(), buffer.room()), (8, 0));
        for _ in 0..2 {
            buffer.read(|bytes| {
                assert_eq!(bytes, [1; 4]);
                bytes.len()
            });
        }
        let mut none = ReceiveBuffer::new(0);
        none.place(&place(0, 1, 0), Parts::new(&bytes));
        assert_eq!((none.held(), none.room()), (0, 0));
    }

    /// What is held lies round the end of its ring; nothing of what lay there before comes along.
    #[test]
    fn no_byte_more_is_moved_than_is_held() {
        let mut buffer = ReceiveBuffer::new(8);
        buffer.place(&place(0, 8, 8), Parts::new(&[&[7; 8]]));
        assert_eq!(buffer.read(|bytes| bytes.len().min(6)), 6);
        buffer.place(&place(0, 2, 2), Parts::new(&[&[1; 2]]));
        let region = Region::new(Memory::from(vec![0xee; 30]));
        assert_eq!(buffer.set_destination(region.part(30), 0, 0), 4);
        assert_eq!((buffer.held(), buffer.room()), (0, 26 + 8));
        let memory = region.take();
        assert_eq!(memory.rest(0)[..5], [7, 7, 1, 1, 0xee]);
    }

    /// Memory that a device was lent by way of another connection, in the same region or before that was made.
    #[test]
    fn nothing_is_stored_where_a_device_may_write() {
        for anew in [false, true] {
            let (writer, _) = prefix(HeapBlock::from(vec![0; 30]));
            let mut region = Region::new(Memory::new(writer)).by_device();
            let lent = region.lend_to_device(10, 10).unwrap();
            if anew {
                region = Region::new(region.take());
            }
            let mut buffer = ReceiveBuffer::new(0);
            buffer.set_destination(region.part(30), 0, 0);
            let bytes: [&[u8]; 1] = [&[7; 12]];
            let payload = Parts::new(&bytes);
            assert!(buffer.direct(payload).is_none());
            assert_eq!(buffer.room_for(0, payload), 10);
            assert_eq!(buffer.room_for(4, payload), 10);
            assert_eq!(buffer.room_for(12, payload), 12);
            assert_eq!(buffer.room_for(20, payload), 30);
            buffer
                .direct(payload.slice(0, 8))
                .unwrap()
                .append(payload.slice(0, 8));
            assert!(buffer.direct(payload.slice(0, 3)).is_none());
            drop(lent);
            buffer.direct(payload).unwrap().append(payload);
            assert_eq!(buffer.filled(), Some((20, false)));
            assert_eq!(
                region.take().rest(0)[..21],
                [[7; 20].as_slice(), &[0]].concat()
            );
        }
    }

    /// What was held comes to the destination when a device has given that back, and not before; what comes meanwhile is held behind it.
    #[test]
    fn what_is_held_waits_for_the_memory() {
        let (writer, _) = prefix(HeapBlock::from(vec![0xee; 30]));
        let region = Region::new(Memory::new(writer)).by_device();
        let lent = region.lend_to_device(10, 10).unwrap();
        let mut buffer = ReceiveBuffer::new(20);
        buffer.place(&place(0, 8, 8), Parts::new(&[&[1; 8]]));
        // Behind a gap of one.
        buffer.place(&place(1, 4, 0), Parts::new(&[&[3; 4]]));
        assert_eq!(buffer.set_destination(region.clone(), 5, 5), 0);
        assert_eq!((buffer.held(), buffer.filled()), (8, Some((0, false))));
        assert_eq!(buffer.room_for(0, Parts::new(&[&[9; 9]])), 12);
        assert_eq!(buffer.drain(5), 0);
        drop(lent);
        buffer.place(&place(0, 1, 5), Parts::new(&[&[2]]));
        assert_eq!(buffer.drain(0), 13);
        assert_eq!(buffer.held(), 0);
        let memory = region.take();
        let expected = [[1; 8].as_slice(), &[2], &[3; 4], &[0xee; 2]].concat();
        assert_eq!(memory.rest(5)[..15], expected);
    }
}
