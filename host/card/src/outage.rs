//! Outages of a card as a whole, on purpose.

use std::time::Duration;

use wireboot_card::model::Random;

/// How often the card is looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(5);
/// Units that the guest receives before it happens, at most.
const UNITS: u64 = 128;

/// What fails, each time when a guest has received some units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// The connection to the monitor ends: the guest's link goes down. It is up again when the monitor has come back.
    Flap,
    /// The process ends, and leaves its socket.
    Death,
}

/// Outages of a card.
#[derive(Debug)]
pub(crate) struct Outages {
    kinds: Vec<Outage>,
    random: Random,
    /// Units that the card has given to guests when the next happens.
    at: Option<u64>,
}

impl Outages {
    /// These, one after the other; the same seed has them at the same places.
    pub(crate) fn new(kinds: Vec<Outage>, seed: u64) -> Self {
        Self {
            kinds,
            random: Random::new(seed),
            at: None,
        }
    }

    /// True when the card is to be looked at.
    pub(crate) fn are_coming(&self) -> bool {
        !self.kinds.is_empty()
    }

    /// What happens now that guests have received so many units in all.
    pub(crate) fn look(&mut self, received: u64) -> Option<Outage> {
        let at = match self.at {
            Some(at) => at,
            None => received + 1 + self.random.below(UNITS),
        };
        self.at = Some(at);
        if received < at {
            return None;
        }
        self.at = None;
        let kind = *self.kinds.first()?;
        self.kinds.rotate_left(1);
        Some(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_happens_at_places_of_the_seed() {
        let places = |seed| {
            let mut outages = Outages::new(vec![Outage::Flap, Outage::Death], seed);
            let looks = (0..1000).filter_map(|n| Some((n, outages.look(n)?)));
            looks.collect::<Vec<_>>()
        };
        let first = places(1);
        assert_eq!(first, places(1));
        assert_ne!(first, places(2));
        assert!(first.len() >= 1000 / 128, "{first:?}");
        assert!(first.windows(2).all(|pair| pair[0].1 != pair[1].1));
        assert!(first.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 129));
    }

    #[test]
    fn a_card_without_has_none() {
        let mut none = Outages::new(Vec::new(), 1);
        assert!(!none.are_coming());
        assert!((0..1000).all(|n| none.look(n).is_none()));
    }
}
