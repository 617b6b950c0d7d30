//! Numbers that an observer of the network cannot foretell.

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// A generator of such numbers (ChaCha12).
pub struct Random(ChaCha12Rng);

impl Random {
    /// One whose numbers follow from `seed`.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    /// Another one, whose numbers are its own.
    pub(crate) fn fork(&mut self) -> Self {
        let mut seed = [0; 32];
        self.fill(&mut seed);
        Self::new(seed)
    }

    /// Fills all of `bytes`.
    // The generator's code is large: it is in the program once.
    #[inline(never)]
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// The low half of the next 32 bits.
    #[must_use]
    pub fn next_u16(&mut self) -> u16 {
        self.next_u32() as u16
    }

    /// The next 32 bits.
    #[must_use]
    pub fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// The next 64 bits.
    #[must_use]
    pub fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn numbers_follow_from_the_seed_and_do_not_repeat() {
        let numbers = |mut random: Random| [(); 4].map(|()| random.next_u64());
        let one = numbers(Random::new([1; 32]));
        assert_eq!(numbers(Random::new([1; 32])), one);
        let mut parent = Random::new([1; 32]);
        let child = numbers(parent.fork());
        let all = [one, numbers(Random::new([2; 32])), child, numbers(parent)].concat();
        let different: BTreeSet<u64> = all.iter().copied().collect();
        assert_eq!(different.len(), all.len());
    }
}
