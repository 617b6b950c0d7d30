//! When a message is sent again (RFC 8415 section 15).

use wireboot_net::{Duration, Instant};

/// The timer of one exchange.
#[derive(Clone, Debug)]
pub(super) struct Retransmission {
    /// Initial and maximum retransmission time.
    irt: Duration,
    mrt: Duration,
    /// Retransmission time, once a message was sent.
    rt: Option<Duration>,
    /// When the next message leaves.
    pub(super) next: Instant,
    /// How often the message was sent, the first time included.
    pub(super) count: u32,
}

impl Retransmission {
    /// The first message leaves at `next`: machines that boot are not switched on by a router's advertisement, so there is no
    /// initial delay (section 18.2.1).
    pub(super) fn new(irt: Duration, mrt: Duration, next: Instant) -> Self {
        Self {
            irt,
            mrt,
            rt: None,
            next,
            count: 0,
        }
    }

    /// A message has left. `first` is the range of RAND in thousandths for the first one.
    pub(super) fn sent(&mut self, now: Instant, first: Rand, random: u32) {
        let rt = match self.rt {
            None => first.of(self.irt, random),
            Some(rt) => {
                // 2 * RTprev + RAND * RTprev.
                let rt = rt + Rand::AROUND.of(rt, random);
                if rt > self.mrt {
                    Rand::AROUND.of(self.mrt, random)
                } else {
                    rt
                }
            }
        };
        self.rt = Some(rt);
        self.next = now + rt;
        self.count += 1;
    }
}

/// The range of the random factor, in thousandths more or less.
#[derive(Clone, Copy)]
pub(super) struct Rand {
    least: u64,
    values: u64,
}

impl Rand {
    /// From -0.1 to 0.1.
    pub(super) const AROUND: Self = Self {
        least: 900,
        values: 201,
    };
    /// Above 0, as for the first Solicit (section 18.2.1).
    pub(super) const ABOVE: Self = Self {
        least: 1001,
        values: 100,
    };

    fn of(self, time: Duration, random: u32) -> Duration {
        let factor = self.least + u64::from(random) % self.values;
        Duration::from_micros(time.total_micros() * factor / 1000)
    }
}
