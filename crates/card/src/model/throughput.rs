//! Rates, and what came through.

use core::cmp::Ordering;
use core::fmt;

use super::time::{Picos, decimal};

/// Bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// So many bits a second.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// So many bits a second.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// How long so many bytes take, to the nearest picosecond; for ever at no rate.
    #[must_use]
    pub fn time_of(self, bytes: u64) -> Picos {
        let rate = u128::from(self.0);
        let bits = u128::from(bytes) * 8 * 1_000_000_000_000;
        (bits + rate / 2)
            .checked_div(rate)
            .and_then(|picos| u64::try_from(picos).ok())
            .map_or(Picos::MAX, Picos::new)
    }
}

/// Bytes and how long they took: an exact ratio. Shown in Mbit/s with four digits behind the point, or as many as the format says up to
/// that.
///
/// Equal are two of the same ratio. What took no time is no throughput at all.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    /// What came through.
    pub bytes: u64,
    /// How long that took, in virtual time.
    pub time: Picos,
}

impl Throughput {
    /// Nothing came through.
    pub const NONE: Self = Self {
        bytes: 0,
        time: Picos::new(1),
    };

    /// In hundreds of bits a second: Mbit/s with four digits behind the point, without the point.
    #[must_use]
    pub fn in_100_bit_s(self) -> u64 {
        self.scaled(10_000)
    }

    /// In Mbit/s, times `factor`.
    fn scaled(self, factor: u128) -> u64 {
        let time = u128::from(self.time.get());
        let bits = u128::from(self.bytes) * 8 * 1_000_000 * factor;
        let rounded = (bits + time / 2).checked_div(time).unwrap_or_default();
        u64::try_from(rounded).unwrap_or(u64::MAX)
    }
}

impl Default for Throughput {
    fn default() -> Self {
        Self::NONE
    }
}

impl Ord for Throughput {
    fn cmp(&self, other: &Self) -> Ordering {
        let cross = |bytes: u64, time: Picos| u128::from(bytes) * u128::from(time.get());
        cross(self.bytes, other.time).cmp(&cross(other.bytes, self.time))
    }
}

impl PartialOrd for Throughput {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Throughput {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Throughput {}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(4).min(4);
        let value = self.scaled(10u128.pow(digits as u32));
        decimal(f, value, digits)
    }
}
