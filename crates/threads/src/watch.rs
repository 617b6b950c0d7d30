//! How long the BSP (bootstrap processor) has looked at an AP (application processor) in vain.

/// The longest time between two looks that counts, in microseconds.
const LONGEST_GAP: u64 = 20_000;

/// The time that passes while one looks again and again.
///
/// What passes between two looks counts up to 20 ms, two ticks of the firmware's timer. A machine that stands still for seconds (a hypervisor
/// pauses, saves or moves it) has both processors stand still. The first one that goes on must not hold the other for dead. The same holds for
/// SMM, where all processors wait for each other: on a busy host one call of a variable service may keep them there for 100 ms and more, and
/// a boot loader makes dozens of them in a row.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    last: u64,
    elapsed: u64,
}

impl Watch {
    /// Begins at the time `now`, in microseconds.
    #[must_use]
    pub const fn new(now: u64) -> Self {
        Self {
            last: now,
            elapsed: 0,
        }
    }

    /// A look at the time `now`, in microseconds. Returns how long it has been since the beginning, in microseconds.
    pub fn look(&mut self, now: u64) -> u64 {
        let gap = now.saturating_sub(self.last).min(LONGEST_GAP);
        self.last = now;
        self.elapsed = self.elapsed.saturating_add(gap);
        self.elapsed
    }
}

#[cfg(test)]
mod tests {
    use super::Watch;

    #[test]
    fn time_counts_while_one_looks() {
        let mut watch = Watch::new(1_000);
        let elapsed = (1..=200).map(|look| watch.look(1_000 + look * 15_000));
        assert_eq!(elapsed.last(), Some(3_000_000));
    }

    #[test]
    fn a_machine_that_stands_still_is_one_look() {
        let mut watch = Watch::new(0);
        assert_eq!(watch.look(20), 20);
        assert_eq!(watch.look(3_600_000_000), 20_020);
        assert_eq!(watch.look(3_600_000_005), 20_025);
    }

    #[test]
    fn a_burst_of_long_calls_is_no_silence() {
        // 40 calls of 150 ms each, with a look between.
        let mut watch = Watch::new(0);
        let elapsed = (1..=40).map(|look| watch.look(look * 150_000));
        assert_eq!(elapsed.last(), Some(800_000));
    }

    #[test]
    fn a_clock_that_goes_back_counts_nothing() {
        let mut watch = Watch::new(1_000);
        assert_eq!(watch.look(400), 0);
        assert_eq!(watch.look(410), 10);
    }
}
