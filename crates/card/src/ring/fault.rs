//! What is wrong with a ring.

use crate::memory::Unmapped;

/// The guest broke the rules of its ring. The queue is not used until it is started anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// A size that is no power of two, or too long.
    #[error("a ring whose size is no power of two or above 1024")]
    Size,
    /// A table at an address that it must not have.
    #[error("a ring at an unaligned address")]
    Misaligned,
    /// A table or buffer outside the guest's memory.
    #[error("a table or buffer outside the guest's memory")]
    Unmapped,
    /// The available index is further on than the ring is long.
    #[error("an available index beyond the ring")]
    AvailableIndex,
    /// A descriptor number that is none.
    #[error("a descriptor number beyond the table")]
    Descriptor,
    /// More buffers in a chain than in the ring: perhaps a loop.
    #[error("a chain longer than its ring")]
    ChainTooLong,
    /// A buffer to read where one to write belongs, or the other way round.
    #[error("a buffer for the wrong direction")]
    Direction,
    /// A table of descriptors that was not agreed on, is empty, of an odd length, in another one, or not the end of its chain.
    #[error("a bad table of indirect descriptors")]
    Indirect,
    /// No room for the header.
    #[error("a buffer too short for the header")]
    TooShort,
    /// A header that asks for what was not agreed on, or for something beyond the frame.
    #[error("a header that asks for what was not agreed on")]
    Header,
    /// Not the guest's fault, but of what was put in the frames' way.
    #[error("the card's program failed on a frame")]
    Program,
}

impl RingFault {
    /// All of them, each at its [`Self::index`].
    pub const ALL: [Self; 11] = [
        Self::Size,
        Self::Misaligned,
        Self::Unmapped,
        Self::AvailableIndex,
        Self::Descriptor,
        Self::ChainTooLong,
        Self::Direction,
        Self::Indirect,
        Self::TooShort,
        Self::Header,
        Self::Program,
    ];

    /// Its place in [`Self::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

impl From<Unmapped> for RingFault {
    fn from(_: Unmapped) -> Self {
        Self::Unmapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_place() {
        for (place, fault) in RingFault::ALL.into_iter().enumerate() {
            assert_eq!(fault.index(), place);
        }
    }
}
