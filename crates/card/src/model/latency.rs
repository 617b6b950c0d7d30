//! How long frames took.

use alloc::vec::Vec;

use super::time::Picos;

/// Times of frames, shortest first.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Picos>);

impl Latencies {
    /// Of these, in any order.
    #[must_use]
    pub fn new(mut times: Vec<Picos>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// Half of the frames took at most so long; none without frames.
    #[must_use]
    pub fn median(&self) -> Option<Picos> {
        self.percentile(50)
    }

    /// 99 % of the frames took at most so long.
    #[must_use]
    pub fn percentile_99(&self) -> Option<Picos> {
        self.percentile(99)
    }

    /// All took at most so long.
    #[must_use]
    pub fn worst(&self) -> Option<Picos> {
        self.percentile(100)
    }

    /// The nearest rank.
    fn percentile(&self, percent: usize) -> Option<Picos> {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.checked_sub(1)?).copied()
    }
}
