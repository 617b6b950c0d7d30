//! Guest memory in a vector.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::vec::Vec;

use crate::memory::{GuestMemory, Span, Unmapped};

/// Memory of a guest that begins at an address above 0.
#[derive(Debug)]
pub struct VecMemory {
    base: u64,
    bytes: Vec<Cell<u8>>,
}

impl VecMemory {
    /// So many zeros from `base` on.
    #[must_use]
    pub fn new(base: u64, len: usize) -> Self {
        let bytes = std::iter::repeat_n(Cell::new(0), len).collect();
        Self { base, bytes }
    }

    /// The address of the first byte.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// All bytes as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        self.bytes.iter().map(Cell::get).collect()
    }

    fn at(&self, address: u64, len: usize) -> Result<&[Cell<u8>], Unmapped> {
        let start = address.checked_sub(self.base).ok_or(Unmapped)?;
        let start = usize::try_from(start).map_err(|_| Unmapped)?;
        let end = start.checked_add(len).ok_or(Unmapped)?;
        self.bytes.get(start..end).ok_or(Unmapped)
    }
}

impl GuestMemory for VecMemory {
    fn contains(&self, span: Span) -> bool {
        self.at(span.address, span.len as usize).is_ok()
    }

    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Unmapped> {
        let bytes = self.at(address, to.len())?;
        to.iter_mut()
            .zip(bytes)
            .for_each(|(to, byte)| *to = byte.get());
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        let bytes = self.at(address, from.len())?;
        bytes
            .iter()
            .zip(from)
            .for_each(|(byte, from)| byte.set(*from));
        Ok(())
    }

    fn load(&self, address: u64, _: Ordering) -> Result<u16, Unmapped> {
        if !address.is_multiple_of(2) {
            return Err(Unmapped);
        }
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    fn store(&self, address: u64, value: u16, _: Ordering) -> Result<(), Unmapped> {
        if !address.is_multiple_of(2) {
            return Err(Unmapped);
        }
        self.write(address, &value.to_le_bytes())
    }
}
