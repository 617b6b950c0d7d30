//! The congestion window (RFC 5681), by bytes that were acknowledged (RFC 3465).

/// Largest congestion window: more than the largest send window.
const MAX: u32 = 1 << 30;

/// cwnd and ssthresh, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    pub cwnd: u32,
    ssthresh: u32,
    /// Bytes acknowledged in congestion avoidance since the window grew.
    counted: u32,
}

impl Congestion {
    /// The initial window (RFC 6928).
    pub(crate) fn new(mss: u16) -> Self {
        let mss = u32::from(mss);
        Self {
            cwnd: (10 * mss).min(14_600.max(2 * mss)),
            ssthresh: MAX,
            counted: 0,
        }
    }

    /// `acked` new bytes were acknowledged while `flight` were under way. A window that is not used does not grow.
    pub(crate) fn acknowledged(&mut self, acked: u32, flight: u32, mss: u32) {
        if flight < self.cwnd / 2 {
            return;
        }
        if self.cwnd < self.ssthresh {
            self.cwnd = self.cwnd.saturating_add(acked).min(MAX);
            return;
        }
        self.counted = self.counted.saturating_add(acked);
        if self.counted >= self.cwnd {
            self.counted -= self.cwnd;
            self.cwnd = self.cwnd.saturating_add(mss).min(MAX);
        }
    }

    /// Loss was seen with `flight` bytes under way: half of that from now on (RFC 5681, equation 4).
    pub(crate) fn loss(&mut self, flight: u32, mss: u32) {
        self.ssthresh = (flight / 2).max(2 * mss);
        self.cwnd = self.ssthresh;
        self.counted = 0;
    }

    /// The retransmission timer expired; `first` for the segment that waits.
    pub(crate) fn timeout(&mut self, flight: u32, mss: u32, first: bool) {
        if first {
            self.loss(flight, mss);
        }
        self.cwnd = mss;
        self.counted = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_and_shrinks_as_the_rfc_says() {
        let mss = 1460;
        let mut window = Congestion::new(1460);
        assert_eq!(window.cwnd, 14_600);
        window.acknowledged(14_600, 14_600, mss);
        assert_eq!(window.cwnd, 29_200, "slow start doubles");
        window.acknowledged(14_600, 14_599, mss);
        assert_eq!(window.cwnd, 29_200, "a window that is not used");
        window.loss(29_200, mss);
        assert_eq!(window.cwnd, 14_600);
        window.acknowledged(14_599, 14_600, mss);
        assert_eq!(window.cwnd, 14_600, "congestion avoidance");
        window.acknowledged(1, 14_600, mss);
        assert_eq!(window.cwnd, 16_060, "one segment a window");
        window.timeout(16_060, mss, true);
        assert_eq!(window.cwnd, mss, "loss window");
        window.timeout(mss, mss, false);
        window.acknowledged(6 * mss, mss, mss);
        assert_eq!(
            window.cwnd,
            7 * mss,
            "slow start up to half of what was under way"
        );
        window.acknowledged(mss, 7 * mss, mss);
        assert_eq!(window.cwnd, 7 * mss);
        // What is counted beyond a window counts for the next one.
        window.acknowledged(7 * mss, 7 * mss, mss);
        assert_eq!(window.cwnd, 8 * mss);
        window.acknowledged(7 * mss, 8 * mss, mss);
        assert_eq!(window.cwnd, 9 * mss);
        window.acknowledged(9 * mss - 1, 9 * mss, mss);
        assert_eq!(window.cwnd, 9 * mss);
        // Half of the window in use is enough to grow, and less than two segments are never left.
        window.acknowledged(9 * mss, 9 * mss / 2, mss);
        assert_eq!(window.cwnd, 10 * mss);
        window.loss(3 * mss, mss);
        assert_eq!(window.cwnd, 2 * mss);
        let mut tiny = Congestion::new(1);
        tiny.loss(1, 1);
        assert_eq!(tiny.cwnd, 2);
        assert_eq!(Congestion::new(9000).cwnd, 18_000);
    }
}
