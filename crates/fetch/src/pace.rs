//! Progress: a transfer that makes none ends, however much its peer sends.

use core::fmt;
use wireboot_net::{Duration, Instant};

/// The slowest transfer that goes on: so many bytes of the file in any such time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Bytes of the file that are new.
    pub bytes: u64,
    /// The time that they may take. A response head has as long.
    pub within: Duration,
}

/// TFTP with blocks of 512 bytes, one for each round trip of 200 ms, is the slowest that anybody boots by: 75 KiB in 30 s. A block
/// of 1468 bytes each 2 s is 22 KiB.
impl Default for Floor {
    fn default() -> Self {
        Self {
            bytes: 64 * 1024,
            within: Duration::from_secs(30),
        }
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes in {} s", self.bytes, self.within.secs())
    }
}

/// When a download is given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Below this rate a transfer ends.
    pub floor: Floor,
    /// How long a server is waited for that is busy, cannot be reached, hangs up or says nothing, or (by HTTP) whose name cannot be resolved. The usual attempts are made in any case.
    pub patience: Duration,
}

/// Whether a transfer keeps above a floor.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    floor: Floor,
    /// When the last bytes that were enough had come, and how many those made.
    since: Instant,
    position: u64,
}

impl Pace {
    /// A transfer that has `position` bytes.
    pub(crate) fn new(floor: Floor, position: u64, now: Instant) -> Self {
        Self {
            floor,
            since: now,
            position,
        }
    }

    pub(crate) fn floor(&self) -> Floor {
        self.floor
    }

    /// Whether it may go on, now that it has `position` bytes.
    pub(crate) fn holds(&mut self, position: u64, now: Instant) -> bool {
        if position >= self.position.saturating_add(self.floor.bytes) {
            self.position = position;
            self.since = now;
        }
        now < self.since + self.floor.within
    }

    /// Nobody waited for the peer since `then`.
    pub(crate) fn paused(&mut self, then: Instant, now: Instant) {
        self.since += now - then;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_in_any_span_is_enough() {
        let floor = Floor {
            bytes: 1000,
            within: Duration::from_secs(30),
        };
        let at = |seconds| Instant::from_secs(seconds);
        let mut pace = Pace::new(floor, 500, at(10));
        assert!(pace.holds(1499, at(39)));
        assert!(!pace.holds(1499, at(40)));
        assert!(pace.holds(1500, at(40)));
        // Counted from when the bytes were there.
        assert!(pace.holds(2499, at(69)));
        assert!(!pace.holds(2499, at(70)));
        pace.paused(at(60), at(65));
        assert!(pace.holds(2499, at(74)));
        assert!(!pace.holds(2499, at(75)));
    }
}
