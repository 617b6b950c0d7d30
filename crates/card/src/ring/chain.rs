//! Chains of descriptors (virtio 1.2, sections 2.7.5 and 2.7.7).

use alloc::vec::Vec;

use super::{DESCRIPTOR_LEN, Direction, Ring, RingFault};
use crate::memory::{GuestMemory, Span};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// A chain of buffers on loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Its number for [`Ring::put_used`].
    pub head: u16,
    /// Bytes of all its buffers.
    pub len: u32,
}

struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn read<M: GuestMemory>(memory: &M, table: u64, number: u16) -> Result<Self, RingFault> {
        let address = table
            .checked_add(u64::from(number) * u64::from(DESCRIPTOR_LEN))
            .ok_or(RingFault::Unmapped)?;
        let mut bytes = [0; DESCRIPTOR_LEN as usize];
        memory.read(address, &mut bytes)?;
        let word = u128::from_le_bytes(bytes);
        Ok(Self {
            address: word as u64,
            len: (word >> 64) as u32,
            flags: (word >> 96) as u16,
            next: (word >> 112) as u16,
        })
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl Ring {
    /// Appends the buffers of the `n`th available chain to `spans`. There is one, as [`Self::available`] told. Buffers of no bytes are left
    /// out. All buffers lie in the guest's memory.
    pub(crate) fn chain<M: GuestMemory>(
        &self,
        memory: &M,
        n: u16,
        spans: &mut Vec<Span>,
    ) -> Result<Chain, RingFault> {
        let entry = self.layout.available_entry(self.next.wrapping_add(n));
        let head = memory.load(entry, core::sync::atomic::Ordering::Relaxed)?;
        let mut table = (self.layout.descriptors, self.layout.size);
        let mut number = head;
        let mut len = 0u32;
        let mut left = self.layout.size;
        let mut inside = false;
        loop {
            if number >= table.1 {
                return Err(RingFault::Descriptor);
            }
            let descriptor = Descriptor::read(memory, table.0, number)?;
            if descriptor.has(INDIRECT) {
                if !self.indirect || inside || descriptor.has(NEXT) {
                    return Err(RingFault::Indirect);
                }
                table = (descriptor.address, entries(descriptor.len)?);
                number = 0;
                inside = true;
                continue;
            }
            if descriptor.has(WRITE) != (self.direction == Direction::ToGuest) {
                return Err(RingFault::Direction);
            }
            left = left.checked_sub(1).ok_or(RingFault::ChainTooLong)?;
            let span = Span {
                address: descriptor.address,
                len: descriptor.len,
            };
            if !memory.contains(span) {
                return Err(RingFault::Unmapped);
            }
            len = len.checked_add(span.len).ok_or(RingFault::ChainTooLong)?;
            if span.len != 0 {
                if spans.len() == spans.capacity() {
                    return Err(RingFault::ChainTooLong);
                }
                spans.push(span);
            }
            if !descriptor.has(NEXT) {
                return Ok(Chain { head, len });
            }
            number = descriptor.next;
        }
    }
}

/// The number of descriptors in an indirect table of `len` bytes.
fn entries(len: u32) -> Result<u16, RingFault> {
    if len == 0 || !len.is_multiple_of(DESCRIPTOR_LEN) {
        return Err(RingFault::Indirect);
    }
    u16::try_from(len / DESCRIPTOR_LEN).map_err(|_| RingFault::Indirect)
}
