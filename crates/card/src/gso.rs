//! Frames of a unit that has come for a guest which does not take it whole: cut and completed by the card, as Linux' generic segmentation does.
//!
//! The unit is in the card's own memory, as there is no room for it in the guest's buffers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use crate::checksum::Sum;
use crate::datagram;
use crate::frame::{MAX_HEAD, put};
use crate::header::{GSO_NONE, GSO_UDP_L4, Header, NEEDS_CSUM};
use crate::host_side::LONGEST_UNIT;
use crate::memory::{GuestMemory, Span, scatter};
use crate::segment;
use crate::wire::Received;

/// Bytes of all frames of a unit: headers as long as the payload, and more.
const ROOM: usize = 2 * LONGEST_UNIT;

/// The frames of one unit, which the guest gets one by one.
#[derive(Debug)]
pub struct GsoFrames {
    bytes: Vec<u8>,
    ready: VecDeque<Range<usize>>,
}

impl Default for GsoFrames {
    fn default() -> Self {
        Self::new()
    }
}

impl GsoFrames {
    /// None so far.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(ROOM),
            ready: VecDeque::new(),
        }
    }

    /// Whether a guest that has agreed on these features takes such a unit of `len` bytes only so.
    #[must_use]
    pub fn are_needed(header: Header, features: u64, len: usize) -> bool {
        header.arriving(features, len).is_none()
    }

    /// Makes the frames of `unit`, whose header is this one, in place of those that are left of another. False when it has none: there are no
    /// frames then.
    pub fn make(&mut self, header: Header, unit: &[u8]) -> bool {
        self.clear();
        let made = self.try_make(header, unit).is_some();
        if !made {
            self.clear();
        }
        made
    }

    fn try_make(&mut self, header: Header, unit: &[u8]) -> Option<()> {
        let Self { bytes, ready } = self;
        let mut add = |header: Header, head: &[u8], payload: Range<usize>| {
            let start = bytes.len();
            let end = start + head.len() + payload.len();
            let payload = unit.get(payload).filter(|_| end <= ROOM)?;
            bytes.extend_from_slice(head);
            bytes.extend_from_slice(payload);
            complete(header, bytes.get_mut(start..end)?)?;
            ready.push_back(start..end);
            Some(())
        };
        if header.gso_type == GSO_NONE {
            return add(header, &[], 0..unit.len());
        }
        let head = unit.get(..unit.len().min(MAX_HEAD))?;
        let mut all = Some(());
        let each = |header: Header, head: &[u8], payload| {
            all = all.and_then(|()| add(header, head, payload));
        };
        if header.gso_type == GSO_UDP_L4 {
            datagram::split(header, head, unit.len(), 1, each)?;
        } else {
            segment::cut(header, head, unit.len(), 1, each)?;
        }
        all
    }

    /// Writes the next frame to the beginning of the room. `None` when there is none.
    pub fn next<M: GuestMemory>(&mut self, memory: &M, room: &[Span]) -> Option<Received> {
        let frame = self.bytes.get(self.ready.pop_front()?)?;
        Some(match scatter(memory, room, frame) {
            Ok(true) => Received::Unit {
                header: Header::default(),
                len: frame.len(),
            },
            _ => Received::TooLong,
        })
    }

    /// Those that are left are nobody's any more.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ready.clear();
    }
}

/// Completes the checksum of a frame, if its header asks for it. `None` when it lies beyond the frame.
fn complete(header: Header, frame: &mut [u8]) -> Option<()> {
    if header.flags & NEEDS_CSUM == 0 {
        return Some(());
    }
    let start = usize::from(header.csum_start);
    let mut sum = Sum::default();
    sum.add(frame.get(start..)?);
    // Of UDP, 0 would say that there is none; of TCP, both are the same number.
    let sum = match !sum.fold() {
        0 => 0xffff,
        sum => sum,
    };
    put(
        frame,
        start + usize::from(header.csum_offset),
        &sum.to_be_bytes(),
    )
}

#[cfg(test)]
mod tests;
