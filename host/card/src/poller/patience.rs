//! How long the card is turned in vain before it waits.
//!
//! A turn in vain takes a processor that the guest or whoever is behind the wire may need; a wait costs them a doorbell and a wake-up. So waits
//! teach: where one was over sooner than [`LONGEST`], it would have been better to turn, where it took longer, not. Linux's KVM does the same for
//! a processor that halts (`halt_poll_ns`).

use std::time::Duration;

/// The longest.
const LONGEST: Duration = Duration::from_micros(50);
/// The shortest but none.
const SHORTEST: Duration = Duration::from_micros(5);

/// How long a card is turned in vain before it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Polling {
    /// What past waits teach.
    #[default]
    Learnt,
    /// For so long.
    For(Duration),
    /// It never waits.
    Always,
}

/// It knows from past waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    polling: Polling,
    learnt: Duration,
}

impl Patience {
    /// Without experience.
    pub(super) fn new(polling: Polling) -> Self {
        Self {
            polling,
            learnt: LONGEST,
        }
    }

    /// Whether there is any end of it.
    pub(super) fn may_end(self) -> bool {
        self.polling != Polling::Always
    }

    /// True when the card has been turned in vain long enough.
    pub(super) fn is_over(self, idle: Duration) -> bool {
        match self.polling {
            Polling::Learnt => idle >= self.learnt,
            Polling::For(time) => idle >= time,
            Polling::Always => false,
        }
    }

    /// Learns from a wait that took so long.
    pub(super) fn learn(&mut self, waited: Duration) {
        self.learnt = if waited < LONGEST {
            (self.learnt * 2).clamp(SHORTEST, LONGEST)
        } else if self.learnt < SHORTEST * 2 {
            Duration::ZERO
        } else {
            self.learnt / 2
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(49);

    #[test]
    fn long_waits_end_turns_in_vain_and_short_ones_bring_them_back() {
        let mut patience = Patience::new(Polling::Learnt);
        assert!(!patience.is_over(SHORT) && patience.is_over(LONGEST));
        let mut waits = 0;
        while !patience.is_over(Duration::ZERO) {
            patience.learn(LONGEST);
            waits += 1;
        }
        assert_eq!(waits, 4);
        patience.learn(LONGEST);
        assert!(patience.is_over(Duration::ZERO));
        patience.learn(SHORT);
        assert!(!patience.is_over(Duration::from_micros(4)) && patience.is_over(SHORTEST));
        for _ in 0..4 {
            patience.learn(SHORT);
        }
        assert_eq!(patience, Patience::new(Polling::Learnt));
    }

    #[test]
    fn what_is_said_is_not_learnt() {
        let mut fixed = Patience::new(Polling::For(SHORT));
        let mut always = Patience::new(Polling::Always);
        for waited in [LONGEST, LONGEST, SHORT, Duration::ZERO] {
            assert!(fixed.is_over(SHORT) && !fixed.is_over(SHORT - SHORTEST));
            assert!(!always.is_over(Duration::MAX));
            fixed.learn(waited);
            always.learn(waited);
        }
        assert!(fixed.may_end() && !always.may_end());
        assert!(Patience::new(Polling::For(Duration::ZERO)).is_over(Duration::ZERO));
    }
}
