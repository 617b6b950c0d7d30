//! How long the card is turned in vain before it waits.
//!
//! A turn in vain takes a processor that the guest or whoever is behind the wire may need; a wait costs them a doorbell and a wake-up. So waits
//! teach: where one was over sooner than [`LONGEST`], it would have been better to turn, where it took longer, not. Linux's KVM does the same for
//! a processor that halts (`halt_poll_ns`).

use std::time::Duration;

const LONGEST: Duration = Duration::from_micros(50);
/// For a guest that has no room: longer than one takes to copy half of its buffers.
const NO_ROOM: Duration = Duration::from_micros(200);
/// The shortest but none.
const SHORTEST: Duration = Duration::from_micros(5);

/// How long a card is turned in vain before it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Polling {
    /// What past waits teach.
    #[default]
    Learnt,
    /// As long each time, whatever past waits were like.
    For(Duration),
    /// Without end: it never waits.
    Always,
}

/// It knows from past waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    polling: Polling,
    learnt: Duration,
}

impl Patience {
    /// Before anything was seen of the guest.
    pub(super) fn new(polling: Polling) -> Self {
        Self {
            polling,
            learnt: LONGEST,
        }
    }

    /// True when the card has been turned in vain long enough. Past waits say nothing of how long a guest takes to make room.
    pub(super) fn is_over(self, idle: Duration, no_room: bool) -> bool {
        match self.polling {
            Polling::Learnt if no_room => idle >= NO_ROOM,
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
        assert!(!patience.is_over(SHORT, false) && patience.is_over(LONGEST, false));
        let mut waits = 0;
        while !patience.is_over(Duration::ZERO, false) {
            patience.learn(LONGEST);
            waits += 1;
        }
        assert_eq!(waits, 4);
        patience.learn(LONGEST);
        assert!(patience.is_over(Duration::ZERO, false));
        patience.learn(SHORT);
        assert!(
            !patience.is_over(Duration::from_micros(4), false) && patience.is_over(SHORTEST, false)
        );
        for _ in 0..4 {
            patience.learn(SHORT);
        }
        assert_eq!(patience, Patience::new(Polling::Learnt));
    }

    #[test]
    fn a_guest_is_given_time_to_make_room() {
        let mut patience = Patience::new(Polling::Learnt);
        for _ in 0..5 {
            patience.learn(LONGEST);
        }
        assert!(patience.is_over(Duration::ZERO, false));
        assert!(!patience.is_over(LONGEST, true) && patience.is_over(NO_ROOM, true));
        assert!(Patience::new(Polling::For(SHORT)).is_over(SHORT, true));
        assert!(!Patience::new(Polling::Always).is_over(Duration::MAX, true));
    }

    #[test]
    fn what_is_said_is_not_learnt() {
        let mut fixed = Patience::new(Polling::For(SHORT));
        let mut always = Patience::new(Polling::Always);
        for waited in [LONGEST, LONGEST, SHORT, Duration::ZERO] {
            assert!(fixed.is_over(SHORT, false) && !fixed.is_over(SHORT - SHORTEST, false));
            assert!(!always.is_over(Duration::MAX, false));
            fixed.learn(waited);
            always.learn(waited);
        }
        assert!(Patience::new(Polling::For(Duration::ZERO)).is_over(Duration::ZERO, false));
    }
}
