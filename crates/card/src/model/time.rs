//! Virtual time, counted in picoseconds.

use core::fmt;
use core::ops::Add;

use crate::coalesce::Time;

/// A moment of virtual time, or a time between two, in picoseconds. A bit takes ten of them at 100 Gbit/s.
///
/// Sums end at the latest moment. Shown in microseconds, with three digits behind the point unless the format says how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(u64);

impl Picos {
    /// The first moment; no time.
    pub const ZERO: Self = Self(0);
    /// The latest moment, after seven months.
    pub const MAX: Self = Self(u64::MAX);

    /// So many picoseconds.
    #[must_use]
    pub const fn new(picos: u64) -> Self {
        Self(picos)
    }

    /// So many microseconds.
    #[must_use]
    pub const fn micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000_000))
    }

    /// The number of picoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; none if it is yet to come.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// So many times as long.
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl Add for Picos {
    type Output = Self;

    fn add(self, time: Self) -> Self {
        Self(self.0.saturating_add(time.0))
    }
}

impl Time for Picos {
    fn plus(self, time: Self) -> Self {
        self + time
    }
}

impl fmt::Display for Picos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(3).min(6);
        let unit = 10u64.pow(6 - digits as u32);
        decimal(f, self.0.saturating_add(unit / 2) / unit, digits)
    }
}

/// Writes `value` in units of the last of so many digits behind the point.
pub(super) fn decimal(f: &mut fmt::Formatter<'_>, value: u64, digits: usize) -> fmt::Result {
    let unit = 10u64.saturating_pow(digits as u32);
    write!(f, "{}", value / unit)?;
    if digits > 0 {
        write!(f, ".{:0digits$}", value % unit)?;
    }
    Ok(())
}
