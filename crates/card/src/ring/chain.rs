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
    #[inline]
    fn read<M: GuestMemory>(memory: &M, table: u64, number: u16) -> Result<Self, RingFault> {
        let address = table
            .checked_add(u64::from(number) * u64::from(DESCRIPTOR_LEN))
            .ok_or(RingFault::Unmapped)?;
        let [low, high, len, last] = memory.read_words(address)?;
        Ok(Self {
            address: u64::from(high) << 32 | u64::from(low),
            len,
            flags: last as u16,
            next: (last >> 16) as u16,
        })
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl Ring {
    /// Appends the buffers of the `n`th available chain to `spans`, up to `most` in all. There is one, as [`Self::available`] told. Buffers of
    /// no bytes are left out. All buffers lie in the guest's memory.
    #[inline]
    pub(crate) fn chain<M: GuestMemory>(
        &self,
        memory: &M,
        n: u16,
        spans: &mut Vec<Span>,
        most: usize,
    ) -> Result<Chain, RingFault> {
        let entry = self.layout.available_entry(self.next.wrapping_add(n));
        let head = memory.load(entry, core::sync::atomic::Ordering::Relaxed)?;
        if head >= self.layout.size {
            return Err(RingFault::Descriptor);
        }
        let first = Descriptor::read(memory, self.layout.descriptors, head)?;
        let span = Span {
            address: first.address,
            len: first.len,
        };
        let alone = !first.has(NEXT | INDIRECT) && span.len != 0 && spans.len() < most;
        if alone && self.goes_right(&first) && memory.contains(span) {
            spans.push(span);
            let len = span.len;
            return Ok(Chain { head, len });
        }
        self.walk(memory, head, first, spans, most)
    }

    fn goes_right(&self, descriptor: &Descriptor) -> bool {
        descriptor.has(WRITE) == (self.direction == Direction::ToGuest)
    }

    /// The same for the chain that begins with this descriptor, as far as it goes.
    fn walk<M: GuestMemory>(
        &self,
        memory: &M,
        head: u16,
        first: Descriptor,
        spans: &mut Vec<Span>,
        most: usize,
    ) -> Result<Chain, RingFault> {
        let mut descriptor = first;
        let mut table = (self.layout.descriptors, self.layout.size);
        let mut len = 0u32;
        let mut left = self.layout.size;
        let mut inside = false;
        loop {
            let number;
            if descriptor.has(INDIRECT) {
                if !self.indirect || inside || descriptor.has(NEXT) {
                    return Err(RingFault::Indirect);
                }
                table = (descriptor.address, entries(descriptor.len)?);
                number = 0;
                inside = true;
            } else {
                if !self.goes_right(&descriptor) {
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
                    if spans.len() >= most {
                        return Err(RingFault::ChainTooLong);
                    }
                    spans.push(span);
                }
                if !descriptor.has(NEXT) {
                    return Ok(Chain { head, len });
                }
                number = descriptor.next;
            }
            if number >= table.1 {
                return Err(RingFault::Descriptor);
            }
            descriptor = Descriptor::read(memory, table.0, number)?;
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
