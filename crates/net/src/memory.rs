//! Destination memory: where a download ends up, handed over by message.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// Memory that somebody allocated (pages of the firmware, a vector in a test) and lends to the engine.
pub trait MemoryBlock: Send {
    /// The bytes.
    fn as_slice(&self) -> &[u8];
    /// The bytes, to be written.
    fn as_mut_slice(&mut self) -> &mut [u8];
}

impl MemoryBlock for Vec<u8> {
    fn as_slice(&self) -> &[u8] {
        self
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self
    }
}

/// Owned destination memory. Dropping it frees it.
pub struct Memory(Box<dyn MemoryBlock>);

impl Memory {
    /// Wraps a block.
    pub fn new(block: impl MemoryBlock + 'static) -> Self {
        Self(Box::new(block))
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_slice().len()
    }

    /// True when it holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.as_mut_slice()
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.len())
    }
}
