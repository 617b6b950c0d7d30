//! Time in microseconds, on whatever clock the caller has.

use core::ops::{Add, AddAssign, Div, Mul, Sub};

/// A point in time: microseconds since the caller's clock began. It saturates at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    micros: i64,
}

/// A length of time in microseconds. It saturates at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    micros: u64,
}

impl Instant {
    /// When the clock began.
    pub const ZERO: Self = Self { micros: 0 };

    /// So many microseconds after the clock began.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self { micros }
    }

    /// So many milliseconds after the clock began.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self::from_micros(millis.saturating_mul(1000))
    }

    /// So many seconds after the clock began.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self::from_micros(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the clock began.
    #[must_use]
    pub const fn total_micros(&self) -> i64 {
        self.micros
    }

    /// Whole milliseconds since the clock began.
    #[must_use]
    pub const fn total_millis(&self) -> i64 {
        self.micros / 1000
    }
}

impl Duration {
    /// 0 microseconds, the default.
    pub const ZERO: Self = Self { micros: 0 };
    /// The longest that can be told.
    pub const MAX: Self = Self { micros: u64::MAX };

    /// So many microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self { micros }
    }

    /// So many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self::from_micros(millis.saturating_mul(1000))
    }

    /// So many seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self::from_micros(secs.saturating_mul(1_000_000))
    }

    /// The time in microseconds.
    #[must_use]
    pub const fn total_micros(&self) -> u64 {
        self.micros
    }

    /// The time in whole milliseconds.
    #[must_use]
    pub const fn total_millis(&self) -> u64 {
        self.micros / 1000
    }

    /// The time in whole seconds.
    #[must_use]
    pub const fn secs(&self) -> u64 {
        self.micros / 1_000_000
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self::from_micros(self.micros.saturating_add_unsigned(duration.micros))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// The time since `earlier`; none if that is later.
    fn sub(self, earlier: Self) -> Duration {
        let micros = self.micros.saturating_sub(earlier.micros);
        Duration::from_micros(micros.max(0).unsigned_abs())
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::from_micros(self.micros.saturating_add(other.micros))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::from_micros(self.micros.saturating_sub(other.micros))
    }
}

impl Mul<u32> for Duration {
    type Output = Self;
    fn mul(self, factor: u32) -> Self {
        Self::from_micros(self.micros.saturating_mul(factor.into()))
    }
}

impl Div<u32> for Duration {
    type Output = Self;
    /// Division by zero is no time.
    fn div(self, divisor: u32) -> Self {
        Self::from_micros(self.micros.checked_div(divisor.into()).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_in_each_unit() {
        let at = Instant::from_secs(12);
        assert_eq!(at, Instant::from_millis(12_000));
        assert_eq!((at.total_micros(), at.total_millis()), (12_000_000, 12_000));
        let mut length = Duration::from_secs(12);
        assert_eq!(length.total_micros(), 12_000_000);
        assert_eq!(length.total_millis(), 12_000);
        assert_eq!(length.secs(), 12);
        length += Duration::from_millis(7);
        assert_eq!(length, Duration::from_micros(12_007_000));
    }

    #[test]
    fn it_saturates_instead_of_wrapping() {
        let end = Instant::from_micros(i64::MAX);
        assert_eq!(end + Duration::MAX, end);
        assert_eq!(Instant::ZERO - end, Duration::ZERO);
        assert_eq!(end - Instant::ZERO, Duration::from_micros(i64::MAX as u64));
        assert_eq!(Duration::MAX + Duration::MAX, Duration::MAX);
        assert_eq!(Duration::from_secs(1) / 0, Duration::ZERO);
        assert_eq!(Duration::from_millis(1500).secs(), 1);
        assert_eq!(Duration::from_micros(1_234_999).total_millis(), 1234);
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
        assert_eq!(
            Instant::from_millis(3) - Instant::from_millis(1),
            Duration::from_millis(2)
        );
        assert_eq!(
            Duration::from_millis(3) * 2 - Duration::from_millis(1),
            Duration::from_millis(5)
        );
        assert_eq!(Duration::from_millis(6) / 2, Duration::from_micros(3000));
    }
}
