//! A simulated NIC that writes payload to where it belongs ([`crate::placer`]), of one connection at a time.

use std::boxed::Box;
use std::ptr;
use std::vec::Vec;

use super::Unit;
use crate::placer::Ends;
use crate::{Frame, LentMemory, Placer, SendError};

/// What it was lent.
#[derive(Default)]
pub(super) struct Placing {
    ends: Option<Ends>,
    /// The next byte of the stream that belongs to a region.
    next: u32,
    regions: Vec<Region>,
    /// Bytes of payload that it has written to regions.
    pub placed: u64,
    /// It gives nothing back that is not full.
    pub keeps: bool,
    /// It places nothing more, like a card that was started again and knows of no region.
    pub forgets: bool,
}

struct Region {
    sequence: u32,
    memory: Box<dyn LentMemory>,
}

impl Region {
    fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.memory.len() as u32)
    }
}

impl Placer for Placing {
    fn place(
        &mut self,
        ends: &Ends,
        sequence: u32,
        memory: Box<dyn LentMemory>,
    ) -> Result<(), SendError> {
        let follows = self.regions.last().map(Region::end) == Some(sequence);
        if !follows || self.ends != Some(*ends) {
            self.regions.clear();
            self.next = sequence;
            self.forgets = false;
        }
        self.ends = Some(*ends);
        self.regions.push(Region { sequence, memory });
        Ok(())
    }

    fn has(&self, ends: &Ends) -> bool {
        self.ends == Some(*ends) && !self.regions.is_empty()
    }

    fn leave(&mut self, ends: &Ends) -> Result<(), SendError> {
        if self.ends == Some(*ends) && !self.keeps {
            self.regions.clear();
        }
        Ok(())
    }
}

impl Placing {
    /// Lends a frame whose payload it has put to its place; false when that has none.
    pub(super) fn lend(&mut self, unit: &Unit, sink: &mut impl FnMut(Frame<'_>)) -> bool {
        let frame = unit.bytes.as_slice();
        let Some((ends, sequence, head)) = segment(frame) else {
            return false;
        };
        let end = sequence.wrapping_add((frame.len() - head) as u32);
        let behind = |a: u32, b: u32| a.wrapping_sub(b) as i32 > 0;
        if self.forgets
            || self.regions.is_empty()
            || self.ends != Some(ends)
            || !behind(end, self.next)
        {
            return false;
        }
        let last = self.regions.last().map_or(self.next, Region::end);
        if behind(sequence, self.next) || behind(end, last) {
            self.regions.clear();
            return false;
        }
        let own = head + self.next.wrapping_sub(sequence) as usize;
        let (first, mut rest) = frame.split_at(own);
        let mut parts = std::vec![first];
        for region in &self.regions {
            let at = self.next.wrapping_sub(region.sequence) as usize;
            let count = rest.len().min(region.memory.len().saturating_sub(at));
            if count == 0 {
                continue;
            }
            let place = region.memory.device_address() as usize + at;
            // SAFETY: who lends memory to a device says where it lies and how long it is, refers to none of it until it was filled, and
            // has exposed where that is. Here the device's addresses are the processor's.
            unsafe {
                let place = ptr::with_exposed_provenance_mut(place);
                ptr::copy_nonoverlapping(rest.as_ptr(), place, count);
            }
            parts.push(region.memory.bytes(at..at + count));
            rest = &rest[count..];
            self.next = self.next.wrapping_add(count as u32);
            self.placed += count as u64;
        }
        sink(Frame {
            parts: &parts,
            len: frame.len(),
            checksum: unit.checksum,
            udp_segment: None,
        });
        let next = self.next;
        self.regions.retain(|region| behind(region.end(), next));
        true
    }
}

/// The ends of a segment, its sequence number and where its payload begins.
fn segment(frame: &[u8]) -> Option<(Ends, u32, usize)> {
    let (at, len, version) = match frame.get(12..15)? {
        [8, 0, 0x45] => (34, 4, 26),
        [0x86, 0xdd, _] => (54, 16, 22),
        _ => return None,
    };
    let tcp = frame.get(at..at + 20)?;
    let protocol = if len == 4 { frame[23] } else { frame[20] };
    (protocol == 6).then_some(())?;
    let address = |at: usize| {
        let mut all = [0; 16];
        if len == 4 {
            all[10..12].fill(0xff);
        }
        all[16 - len..].copy_from_slice(&frame[at..at + len]);
        all
    };
    let ends = Ends {
        remote: address(version),
        local: address(version + len),
        remote_port: u16::from_be_bytes([tcp[0], tcp[1]]),
        local_port: u16::from_be_bytes([tcp[2], tcp[3]]),
    };
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let head = at + usize::from(tcp[12] >> 4) * 4;
    (head <= frame.len()).then_some((ends, sequence, head))
}
