//! Which network card is examined: the one that this program came by; where it came otherwise, the first that has a link.

use crate::throughput;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::OnceCell;
use wireboot_boot::card::Card;
use wireboot_boot::error::Error as BootError;
use wireboot_nic::Nic;
use wireboot_platform::Clock;

/// As many cards are looked at, the first of them.
pub(crate) const MOST: usize = 4;

/// The device path of the card that has a link, once it was looked for: `None` where none of those that were looked at has one.
#[derive(Default)]
pub(crate) struct Linked(OnceCell<Option<Box<[u8]>>>);

impl Linked {
    /// The link of the card at this path came up.
    pub(crate) fn found(&self, path: &[u8]) {
        // The first that was found stays.
        let _ = self.0.set(Some(path.into()));
    }

    /// Whether it is known to be the card at this path.
    pub(crate) fn is(&self, path: &[u8]) -> bool {
        let linked = self.0.get().and_then(Option::as_deref);
        linked.is_some_and(|linked| is_one_card(linked, path))
    }

    /// Of `cards` the one that has a link, else the first. Where that is not known, several are looked at first.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn choose(&self, cards: Vec<Card>, clock: Clock) -> Result<Card, BootError> {
        if cards.len() > 1 && self.0.get().is_none() {
            self.look(&cards, clock);
        }
        let at = cards.iter().position(|card| self.is(card.path()));
        let mut cards = cards.into_iter();
        cards.nth(at.unwrap_or(0)).ok_or(BootError::NoInterface)
    }

    /// Looks at the first cards, one after the other.
    fn look(&self, cards: &[Card], clock: Clock) {
        let mut cards = cards.iter().take(MOST);
        let found = cards.find(|card| has_link(card, clock));
        let _ = self.0.set(found.map(|card| card.path().into()));
    }
}

/// Takes a card from the firmware, and gives it back.
fn has_link(card: &Card, clock: Clock) -> bool {
    match throughput::take(card, clock) {
        Ok(mut taken) => {
            taken.nic.stop();
            true
        }
        Err(error) => {
            log::info!("{error}");
            false
        }
    }
}

/// Whether two device paths are of one card: of its PCI function, or of an interface that the firmware's driver made of that.
fn is_one_card(one: &[u8], other: &[u8]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_known_by_its_function_and_by_its_interface() {
        let function = [1, 1, 6, 0, 0, 3];
        let interface = [1, 1, 6, 0, 0, 3, 3, 11];
        let other = [1, 1, 6, 0, 0, 4];
        for found in [&function[..], &interface] {
            let linked = Linked::default();
            assert!(!linked.is(&function));
            linked.found(found);
            linked.found(&other);
            assert!(linked.is(&function) && linked.is(&interface));
            assert!(!linked.is(&other));
        }
    }
}
