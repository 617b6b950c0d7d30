//! Which network card is examined: the one that this program came by; where it came otherwise, the first that has a link. How it is taken.

use crate::error::Error;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::{OnceCell, RefCell};
use wireboot_boot::card::{Card, Taken};
use wireboot_boot::driver::Driver;
use wireboot_boot::error::Error as BootError;
use wireboot_nic::{MacAddress, Nic};
use wireboot_platform::Clock;

/// As many cards are looked at, the first of them.
pub(crate) const MOST: usize = 4;
/// How long the link may take to come up, in microseconds.
pub(crate) const LINK: u64 = 5_000_000;

/// A card that has a link.
struct LinkedCard {
    /// Its device path.
    path: Box<[u8]>,
    mac: MacAddress,
}

/// The card that has a link, once one was found.
#[derive(Default)]
pub(crate) struct Linked {
    card: OnceCell<LinkedCard>,
    /// Whose drivers' cards were looked at in vain: 5 s each, which another look would take again.
    in_vain: RefCell<Vec<Option<Driver>>>,
}

impl Linked {
    /// The link of this card came up.
    pub(crate) fn found(&self, path: &[u8], mac: MacAddress) {
        let path = path.into();
        // The first that was found stays.
        let _ = self.card.set(LinkedCard { path, mac });
    }

    /// Whether it is known to be the card at this path.
    pub(crate) fn is(&self, path: &[u8]) -> bool {
        let card = self.card.get();
        card.is_some_and(|card| is_one_card(&card.path, path))
    }

    /// Its Ethernet address.
    pub(crate) fn mac(&self) -> Option<MacAddress> {
        self.card.get().map(|card| card.mac)
    }

    /// Of `cards` the one that has a link, else the first. Where that is not known, several are looked at first. `driver`: whose was asked
    /// for when they were listed.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn choose(
        &self,
        cards: Vec<Card>,
        driver: Option<Driver>,
        clock: Clock,
    ) -> Result<Card, BootError> {
        if cards.len() > 1 {
            self.search(driver, || look(&cards, clock));
        }
        let at = cards.iter().position(|card| self.is(card.path()));
        let mut cards = cards.into_iter();
        cards.nth(at.unwrap_or(0)).ok_or(BootError::NoInterface)
    }

    /// Looks, unless a card is known, or this driver's were looked at in vain.
    fn search(&self, driver: Option<Driver>, look: impl FnOnce() -> Option<LinkedCard>) {
        if self.card.get().is_some() || self.in_vain.borrow().contains(&driver) {
            return;
        }
        match look() {
            Some(LinkedCard { path, mac }) => self.found(&path, mac),
            None => self.in_vain.borrow_mut().push(driver),
        }
    }
}

/// Looks at the first cards, one after the other.
fn look(cards: &[Card], clock: Clock) -> Option<LinkedCard> {
    let mut cards = cards.iter().take(MOST);
    cards.find_map(|card| linked(card, clock))
}

/// Takes a card from the firmware, and gives it back. `None` where it has no link.
fn linked(card: &Card, clock: Clock) -> Option<LinkedCard> {
    match take(card, clock) {
        Ok(mut taken) => {
            let mac = taken.nic.properties().mac;
            taken.nic.stop();
            let path = card.path().into();
            Some(LinkedCard { path, mac })
        }
        Err(error) => {
            log::info!("{error}");
            None
        }
    }
}

/// Takes a card from the firmware, and waits for its link.
pub(crate) fn take(card: &Card, clock: Clock) -> Result<Taken, Error> {
    let mut taken = card.take(1, clock)?;
    let end = clock.micros() + LINK;
    while !taken.nic.link_up() {
        if clock.micros() > end {
            taken.nic.stop();
            return Err(BootError::NoLink(card.to_string()).into());
        }
    }
    Ok(taken)
}

/// Whether two device paths are of one card: of its PCI function, or of an interface that the firmware's driver made of that.
fn is_one_card(one: &[u8], other: &[u8]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTION: [u8; 6] = [1, 1, 6, 0, 0, 3];
    const OTHER: [u8; 6] = [1, 1, 6, 0, 0, 4];
    const MAC: MacAddress = [2, 0, 0, 0, 0, 3];
    const OTHER_MAC: MacAddress = [2, 0, 0, 0, 0, 4];

    #[test]
    fn a_card_is_known_by_its_function_and_by_its_interface() {
        let interface = [1, 1, 6, 0, 0, 3, 3, 11];
        for found in [&FUNCTION[..], &interface] {
            let linked = Linked::default();
            assert!(!linked.is(&FUNCTION));
            assert_eq!(linked.mac(), None);
            linked.found(found, MAC);
            linked.found(&OTHER, OTHER_MAC);
            assert!(linked.is(&FUNCTION) && linked.is(&interface));
            assert!(!linked.is(&OTHER));
            assert_eq!(linked.mac(), Some(MAC));
        }
    }

    #[test]
    fn a_look_in_vain_is_not_the_last() {
        let linked = Linked::default();
        let found = || {
            let path = FUNCTION.into();
            Some(LinkedCard { path, mac: MAC })
        };
        linked.search(None, || None);
        // The same driver's cards are not looked at again.
        linked.search(None, found);
        assert_eq!(linked.mac(), None);
        // Another's are.
        linked.search(Some(Driver::Snp), found);
        assert!(linked.is(&FUNCTION));
        // Who knows a card does not look for one.
        linked.search(Some(Driver::Undi), || unreachable!());
        // Whoever hears of a link later tells.
        let linked = Linked::default();
        linked.search(None, || None);
        linked.found(&FUNCTION, MAC);
        assert!(linked.is(&FUNCTION));
    }
}
