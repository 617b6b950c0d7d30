//! The clock: the time-stamp counter, calibrated once.
//!
//! Reading it is one instruction and a multiplication, and works on any processor.

use core::arch::x86_64::{__cpuid, _rdtsc};
#[cfg(any(test, feature = "testing"))]
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use uefi::boot;

/// Turns the time-stamp counter into microseconds since [`Clock::calibrate`] was called.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: u64,
    hertz: u64,
    /// Microseconds per tick, times 2^32.
    scale: u64,
    /// Its own counter, and by how much that goes on with each look at it; else the processor's.
    #[cfg(any(test, feature = "testing"))]
    steps: Option<(&'static AtomicU64, u64)>,
}

/// How long the counter is compared with the firmware's timer, where the processor does not tell its frequency.
const CALIBRATION: Duration = Duration::from_millis(1);
/// How often at least, and at most.
const CALIBRATIONS: usize = 5;
const MOST_CALIBRATIONS: usize = 100;
/// All of them together take no longer than so many that were not interrupted.
const LONGEST_CALIBRATION: u64 = 200;
/// So many stalls that were not interrupted differ by a part of the shortest, one in this, at most.
const ALIKE: usize = 3;
const DIFFERENCE: u64 = 64;
/// For [`Clock::calibrate_finely`], beside stalls of [`CALIBRATION`].
const FINE_CALIBRATION: Duration = Duration::from_millis(5);
const FINE_CALIBRATIONS: usize = 3;
/// What a stall of [`CALIBRATION`] takes beside its time is at most a part of it, one in this.
const OVERHEAD: u64 = 32;

impl Clock {
    /// Starts the clock at 0. Where the processor does not tell the counter's frequency, it takes 5 ms; where stalls are interrupted, 0.2 s more at most, if one was not.
    #[must_use]
    pub fn calibrate() -> Self {
        let start = ticks();
        Self::at(
            start,
            frequency_by_cpuid().unwrap_or_else(frequency_by_stall),
        )
    }

    /// The same for programs that measure: where the processor does not tell the counter's frequency, it takes 20 ms, and where
    /// stalls are interrupted as much more as [`Clock::calibrate`].
    /// Under emulation the frequency is 0.3 % off then, instead of 0.9 %.
    #[must_use]
    pub fn calibrate_finely() -> Self {
        let start = ticks();
        Self::at(
            start,
            frequency_by_cpuid().unwrap_or_else(frequency_by_stalls),
        )
    }

    fn at(start: u64, hertz: u64) -> Self {
        Self {
            start,
            hertz,
            scale: scale(hertz),
            #[cfg(any(test, feature = "testing"))]
            steps: None,
        }
    }

    /// What the counter that this clock goes by says: in tests it may be one of its own.
    #[inline]
    fn read(&self) -> u64 {
        #[cfg(any(test, feature = "testing"))]
        if let Some((counter, step)) = self.steps {
            return counter.fetch_add(step, Ordering::Relaxed);
        }
        ticks()
    }

    /// One that goes on its own, as if the counter ticked so often in a second.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn ticking(hertz: u64) -> Self {
        Self::at(ticks(), hertz)
    }

    /// One that goes on by so many microseconds with each look at it.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn stepping(micros: u64) -> Self {
        let counter = alloc::boxed::Box::leak(alloc::boxed::Box::default());
        Self {
            steps: Some((counter, micros)),
            ..Self::at(0, 1_000_000)
        }
    }

    /// How often the counter ticks in a second.
    #[must_use]
    pub fn hertz(&self) -> u64 {
        self.hertz
    }

    /// Ticks of the counter since the start.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.since_start(self.read())
    }

    /// Of what [`ticks`] told, the ticks since the start; 0 where an AP (application processor) told it whose counter is behind.
    #[inline]
    pub(crate) fn since_start(&self, counted: u64) -> u64 {
        let passed = counted.wrapping_sub(self.start).cast_signed();
        passed.max(0).cast_unsigned()
    }

    /// Microseconds from when the counter was zero to the start: since the machine's reset, where that sets it to zero.
    #[must_use]
    pub fn began_micros(&self) -> u64 {
        convert(self.start, self.scale)
    }

    /// Nanoseconds from when the counter was zero: since the machine's reset, where that sets it to zero.
    #[must_use]
    pub fn nanos_since_reset(&self) -> u64 {
        nanos(self.read(), self.scale)
    }

    /// Microseconds that so many ticks take, rounded down.
    #[must_use]
    pub fn micros_of(&self, ticks: u64) -> u64 {
        convert(ticks, self.scale)
    }

    /// Nanoseconds that so many ticks take, rounded down.
    #[must_use]
    pub fn nanos_of(&self, ticks: u64) -> u64 {
        nanos(ticks, self.scale)
    }

    /// Ticks that so many microseconds take, rounded down.
    #[must_use]
    pub fn ticks_of(&self, micros: u64) -> u64 {
        (u128::from(micros) * u128::from(self.hertz) / 1_000_000) as u64
    }

    /// Microseconds since the start.
    #[inline]
    #[must_use]
    pub fn micros(&self) -> u64 {
        convert(self.ticks(), self.scale)
    }
}

/// The time-stamp counter of the calling processor.
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and firmware runs where it is permitted.
    unsafe { _rdtsc() }
}

fn scale(hertz: u64) -> u64 {
    ((1_000_000u128 << 32) / u128::from(hertz.max(1))) as u64
}

#[inline]
fn convert(ticks: u64, scale: u64) -> u64 {
    ((u128::from(ticks) * u128::from(scale)) >> 32) as u64
}

/// The scale has 32 binary places, of microseconds: a part in 10^6 at 4 GHz.
fn nanos(ticks: u64, scale: u64) -> u64 {
    ((u128::from(ticks) * u128::from(scale) * 1000) >> 32) as u64
}

/// Leaf 0x15 gives the ratio of the counter to the core crystal, and the crystal's frequency where the
/// processor knows it. Virtual machines that leave it zero are measured instead.
fn frequency_by_cpuid() -> Option<u64> {
    if __cpuid(0).eax < 0x15 {
        return None;
    }
    let leaf = __cpuid(0x15);
    let (denominator, numerator, crystal) = (
        u64::from(leaf.eax),
        u64::from(leaf.ebx),
        u64::from(leaf.ecx),
    );
    if denominator == 0 || numerator == 0 || crystal == 0 {
        return None;
    }
    let hertz = crystal * numerator / denominator;
    (100_000_000..=20_000_000_000)
        .contains(&hertz)
        .then_some(hertz)
}

fn frequency_by_stall() -> u64 {
    per_second(uninterrupted(|| stall(CALIBRATION)), CALIBRATION)
}

/// By the difference of long and short stalls: what a stall takes beside its time is in both.
fn frequency_by_stalls() -> u64 {
    let short = uninterrupted(|| stall(CALIBRATION));
    let long = shortest(FINE_CALIBRATIONS, || stall(FINE_CALIBRATION));
    finer(short, long)
}

/// The frequency by the ticks of a short and a long stall. Where the long one cannot be right, all of them were interrupted, and the short one tells
/// alone.
fn finer(short: u64, long: u64) -> u64 {
    let plain = per_second(short, CALIBRATION);
    let length = FINE_CALIBRATION.saturating_sub(CALIBRATION);
    let fine = per_second(long.saturating_sub(short), length);
    if (plain - plain / OVERHEAD..=plain).contains(&fine) {
        fine
    } else {
        plain
    }
}

fn per_second(ticks: u64, length: Duration) -> u64 {
    let in_a_second = 1_000_000 / length.as_micros().max(1) as u64;
    ticks.saturating_mul(in_a_second).max(1)
}

/// Ticks that a stall takes.
fn stall(length: Duration) -> u64 {
    let before = ticks();
    boot::stall(length);
    ticks().wrapping_sub(before)
}

/// The shortest of several stalls: a host or firmware that interrupts one makes it longer, never shorter.
fn shortest(count: usize, mut stall: impl FnMut() -> u64) -> u64 {
    (0..count).fold(u64::MAX, |shortest, _| shortest.min(stall()))
}

/// The same, until some are as short as each other: a host that has others to run may interrupt most of them.
fn uninterrupted(mut stall: impl FnMut() -> u64) -> u64 {
    let mut least = [u64::MAX; ALIKE];
    let mut all = 0u64;
    for count in 1..=MOST_CALIBRATIONS {
        // The longest of the least gives way.
        let mut ticks = stall();
        all = all.saturating_add(ticks);
        for known in &mut least {
            if ticks < *known {
                core::mem::swap(&mut ticks, known);
            }
        }
        let [first, .., last] = least;
        let is_alike = last - first <= first / DIFFERENCE;
        let is_long = all > first.saturating_mul(LONGEST_CALIBRATION);
        if count >= CALIBRATIONS && (is_alike || is_long) {
            break;
        }
    }
    let [first, ..] = least;
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found of stalls, and how many it takes.
    fn found(stalls: impl IntoIterator<Item = u64>) -> (u64, usize) {
        let (mut stalls, mut count) = (stalls.into_iter(), 0);
        let ticks = uninterrupted(|| {
            count += 1;
            stalls.next().unwrap()
        });
        (ticks, count)
    }

    #[test]
    fn an_interrupted_stall_does_not_count() {
        let mut stalls = [9_000, 2_600, 2_400, 40_000, 2_500].into_iter();
        assert_eq!(shortest(CALIBRATIONS, || stalls.next().unwrap()), 2_400);
        assert_eq!(stalls.next(), None);
    }

    #[test]
    fn on_an_idle_host_five_stalls_are_enough() {
        let stalls = [2_420_000, 2_410_000, 2_405_000, 9_000_000, 2_402_000, 1];
        assert_eq!(found(stalls), (2_402_000, 5));
    }

    #[test]
    fn on_a_busy_host_it_takes_until_three_were_not_interrupted() {
        // Interrupted for times that differ, as they do.
        let interrupted = |n: u64| 3_000_000 + (n * 7_919_333) % 5_000_000;
        let stalls = (0..60).map(|n| match n {
            20 | 41 => 2_400_000 + n,
            55 => 2_430_000,
            n => interrupted(n),
        });
        assert_eq!(found(stalls), (2_400_020, 56));
        // All of them are: there is an end, and the shortest counts.
        let longer = (0..200).map(|n| 3_000_000 + 100_000 * n);
        assert_eq!(found(longer), (3_000_000, 84));
        let others = [3_000_000, 3_050_000].into_iter();
        let others = others.chain([4_000_000; 200]);
        assert_eq!(found(others), (3_000_000, MOST_CALIBRATIONS));
    }

    #[test]
    fn the_difference_counts_where_it_can_be_right() {
        // 2.4 GHz, and 20 us more for each stall.
        let of = |millis: u64| millis * 2_400_000 + 48_000;
        assert_eq!(finer(of(1), of(5)), 2_400_000_000);
        // The long ones were interrupted, one too long, or the short ones more than they.
        assert_eq!(finer(of(1), of(9)), 2_448_000_000);
        assert_eq!(finer(of(2), of(3)), of(2) * 1000);
        assert_eq!(finer(of(5), of(1)), of(5) * 1000);
    }

    #[test]
    fn a_counter_that_stands_still_has_a_frequency() {
        assert_eq!(per_second(0, CALIBRATION), 1);
        assert_eq!(per_second(u64::MAX, CALIBRATION), u64::MAX);
        assert_eq!(per_second(2_400_000, CALIBRATION), 2_400_000_000);
    }

    #[test]
    fn a_counter_behind_the_start_tells_zero() {
        let behind = Clock {
            start: 5,
            ..Clock::stepping(2)
        };
        let told = [(); 5].map(|()| behind.micros());
        assert_eq!(told, [0, 0, 0, 1, 3]);
        assert_eq!((behind.since_start(4), behind.since_start(7)), (0, 2));
        // A counter that passes its end goes on.
        assert_eq!(Clock::at(u64::MAX, 1).since_start(2), 3);
    }

    #[test]
    fn converts_without_drift() {
        for hertz in [1_000_000_000, 2_399_999_000, 5_123_456_789u64] {
            let hour = convert(hertz * 3600, scale(hertz));
            assert!(hour.abs_diff(3_600_000_000) < 3_600, "{hertz}: {hour}");
            let hour = nanos(hertz * 3600, scale(hertz));
            assert!(
                hour.abs_diff(3_600_000_000_000) < 3_600_000,
                "{hertz}: {hour}"
            );
        }
    }
}
