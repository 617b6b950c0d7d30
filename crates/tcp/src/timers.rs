//! The retransmission time-out (RFC 6298).

use crate::time::{Duration, Instant};

/// The time-out before a round trip was measured.
const INITIAL: Duration = Duration::from_secs(1);
/// Shortest time-out. RFC 6298 asks for a second; what matters is that it is longer than a peer delays its acknowledgements
/// (200 ms in Linux), as RFC 8961 allows.
const MIN: Duration = Duration::from_millis(300);
/// Longest time-out, backed off or not.
const MAX: Duration = Duration::from_secs(60);
/// Clock granularity, G.
const GRANULARITY: Duration = Duration::from_millis(1);

/// SRTT, RTTVAR and RTO, and when the timer expires.
#[derive(Clone, Debug)]
pub(crate) struct Retransmission {
    srtt: Option<Duration>,
    rttvar: Duration,
    rto: Duration,
    /// How often the time-out was doubled since something new was acknowledged.
    pub backoffs: u32,
    /// When the timer expires, if it runs.
    pub expires: Option<Instant>,
    /// What is timed: the acknowledgement that ends it, and when its segment left.
    timing: Option<(u32, Instant)>,
    /// The shortest round trip that was measured.
    pub shortest: Option<Duration>,
}

impl Default for Retransmission {
    fn default() -> Self {
        Self {
            srtt: None,
            rttvar: Duration::ZERO,
            rto: INITIAL,
            backoffs: 0,
            expires: None,
            timing: None,
            shortest: None,
        }
    }
}

impl Retransmission {
    /// A segment that ends before `end` leaves for the first time.
    pub(crate) fn sent(&mut self, end: u32, now: Instant) {
        if self.timing.is_none() {
            self.timing = Some((end, now));
        }
        self.start(now);
    }

    /// A segment leaves again: an answer to one of two equal segments measures nothing (Karn).
    pub(crate) fn resent(&mut self, now: Instant) {
        self.timing = None;
        self.start(now);
    }

    /// Runs, if it does not already; for a segment, or for a window that is closed.
    pub(crate) fn start(&mut self, now: Instant) {
        if self.expires.is_none() {
            self.expires = Some(now + self.rto());
        }
    }

    /// What begins at `seq` did not leave; `more` is under way.
    pub(crate) fn taken_back(&mut self, seq: u32, more: bool) {
        if self
            .timing
            .is_some_and(|(end, _)| crate::sequence::after(end, seq))
        {
            self.timing = None;
        }
        if !more {
            self.stop();
        }
    }

    /// Everything before `ack` is acknowledged, which is news; `more` is still under way.
    pub(crate) fn acknowledged(&mut self, ack: u32, more: bool, now: Instant) {
        if let Some((end, left)) = self.timing
            && crate::sequence::at_or_after(ack, end)
        {
            self.measured(now - left);
            self.timing = None;
        }
        self.backoffs = 0;
        self.expires = more.then(|| now + self.rto());
    }

    /// A round trip was measured (RFC 6298, section 2).
    fn measured(&mut self, round_trip: Duration) {
        self.shortest = Some(self.shortest.map_or(round_trip, |s| s.min(round_trip)));
        let srtt = match self.srtt {
            None => {
                self.rttvar = round_trip / 2;
                round_trip
            }
            Some(srtt) => {
                let error = (srtt - round_trip).max(round_trip - srtt);
                self.rttvar = (self.rttvar * 3 + error) / 4;
                (srtt * 7 + round_trip) / 8
            }
        };
        self.srtt = Some(srtt);
        self.rto = (srtt + GRANULARITY.max(self.rttvar * 4)).clamp(MIN, MAX);
    }

    /// The time-out as it is now, backed off.
    fn rto(&self) -> Duration {
        (self.rto * (1 << self.backoffs.min(10))).min(MAX)
    }

    /// The timer has expired: it is doubled and runs again.
    pub(crate) fn back_off(&mut self, now: Instant) {
        self.timing = None;
        self.backoffs = self.backoffs.saturating_add(1);
        self.expires = Some(now + self.rto());
    }

    /// Nothing is under way that could be sent again.
    pub(crate) fn stop(&mut self) {
        self.expires = None;
        self.timing = None;
        self.backoffs = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    /// RFC 6298, section 2, by hand: SRTT 400, RTTVAR 200, RTO 1200; then R' = 800: RTTVAR 250, SRTT 450, RTO 1450.
    #[test]
    fn the_rfcs_formulas() {
        let mut timer = Retransmission::default();
        timer.sent(10, at(0));
        assert_eq!(timer.expires, Some(at(1000)), "(2.1)");
        timer.sent(20, at(100));
        assert_eq!(timer.expires, Some(at(1000)), "(5.1): it runs already");
        timer.acknowledged(10, true, at(400));
        assert_eq!(timer.expires, Some(at(1600)), "(2.2), (5.3)");
        timer.sent(30, at(400));
        timer.acknowledged(30, true, at(1200));
        assert_eq!(timer.expires, Some(at(2650)), "(2.3)");
        assert_eq!(timer.shortest, Some(Duration::from_millis(400)));
        timer.acknowledged(40, false, at(1300));
        assert_eq!(timer.expires, None, "(5.2)");
    }

    #[test]
    fn an_answer_to_one_of_two_measures_nothing() {
        let mut timer = Retransmission::default();
        timer.sent(10, at(0));
        timer.back_off(at(1000));
        timer.resent(at(1000));
        assert_eq!(timer.expires, Some(at(3000)), "(5.5)");
        timer.acknowledged(10, false, at(1001));
        assert_eq!(timer.shortest, None);
        timer.sent(20, at(2000));
        timer.resent(at(2100));
        timer.acknowledged(20, false, at(2101));
        assert_eq!(timer.shortest, None);
        // Half of what was timed is no answer to it.
        timer.sent(30, at(3000));
        timer.acknowledged(25, true, at(3001));
        assert_eq!(timer.shortest, None);
    }

    #[test]
    fn what_did_not_leave_is_not_timed() {
        let mut timer = Retransmission::default();
        timer.sent(10, at(0));
        timer.taken_back(10, true);
        assert_eq!(timer.expires, Some(at(1000)), "what is before it left");
        timer.acknowledged(10, true, at(100));
        assert_eq!(timer.shortest, Some(Duration::from_millis(100)));
        timer.sent(20, at(100));
        timer.taken_back(15, true);
        timer.acknowledged(20, false, at(101));
        assert_eq!(timer.shortest, Some(Duration::from_millis(100)));
        timer.sent(30, at(200));
        timer.taken_back(20, false);
        assert_eq!(timer.expires, None, "nothing is under way");
    }

    #[test]
    fn it_doubles_up_to_a_minute_and_begins_anew() {
        let mut timer = Retransmission::default();
        timer.sent(10, at(0));
        let mut now = at(0);
        for expected in [2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
            timer.back_off(now);
            assert_eq!(timer.expires, Some(now + Duration::from_millis(expected)));
            now = timer.expires.unwrap();
        }
        timer.acknowledged(10, true, now);
        assert_eq!(timer.expires, Some(now + INITIAL));
    }

    #[test]
    fn the_shortest_time_out_outlasts_a_delayed_acknowledgement() {
        let mut timer = Retransmission::default();
        timer.sent(10, at(0));
        timer.acknowledged(10, true, at(1));
        assert_eq!(timer.expires, Some(at(301)));
    }
}
