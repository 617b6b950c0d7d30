//! Offers: which are kept, and which one is taken.

use alloc::vec::Vec;

use super::lease::Lease6;

/// ADVERTISEs kept of a network with many servers; later ones are dropped.
const MAX_OFFERS: usize = 16;

/// What a server's ADVERTISE offers, and how it compares with others'.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    /// The DUID of the server.
    pub(super) server: Vec<u8>,
    pub(super) preference: u8,
    pub(super) lease: Lease6,
}

/// Offers with addresses, and the boot information that came beside them.
#[derive(Debug, Default)]
pub(super) struct Offers {
    kept: Vec<Offer>,
    /// Boot information of a server that has no addresses to give.
    pub(super) proxy: Option<Lease6>,
    /// The DUIDs of servers that gave no lease for a Request (RFC 8415 section 18.2.2 leaves it to the client which is asked then).
    pub(super) failed: Vec<Vec<u8>>,
}

impl Offers {
    /// Keeps the first offer of each server.
    pub(super) fn keep(&mut self, offer: Offer) {
        let known = self.kept.iter().any(|kept| kept.server == offer.server);
        if self.kept.len() < MAX_OFFERS && !known {
            self.kept.push(offer);
        }
    }

    /// Drops those with addresses. Boot information stays.
    pub(super) fn clear_kept(&mut self) {
        self.kept.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether one need not wait for a better one: by its preference (RFC 8415 section 18.2.1), or as it has all that was asked for.
    pub(super) fn decided(&self, want_boot_file: bool) -> bool {
        self.kept.iter().any(|offer| {
            let complete = offer.preference == u8::MAX
                || !want_boot_file
                || offer.lease.boot_file.is_some()
                || self.proxy.is_some();
            complete && !self.failed.contains(&offer.server)
        })
    }

    /// Takes the best, the first of equals. None are left.
    pub(super) fn take_best(&mut self) -> Option<Offer> {
        let kept = core::mem::take(&mut self.kept);
        let rank = |offer: &Offer| {
            let new = !self.failed.contains(&offer.server);
            (new, offer.lease.boot_file.is_some(), offer.preference)
        };
        kept.into_iter().reduce(|best, offer| {
            if rank(&offer) > rank(&best) {
                offer
            } else {
                best
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dhcp_request::LeaseSource;

    fn offer(server: u8, preference: u8) -> Offer {
        Offer {
            server: Vec::from([server]),
            preference,
            lease: Lease6::new(LeaseSource::Dhcp),
        }
    }

    /// Whoever sends many, under one name or many, takes no more memory than this, and no other server's place.
    #[test]
    fn the_first_of_each_server_is_kept_and_of_many_servers_the_first() {
        let mut offers = Offers::default();
        offers.keep(offer(1, 5));
        offers.keep(offer(1, 200));
        assert_eq!(offers.kept.len(), 1);
        for server in 2..=255 {
            offers.keep(offer(server, 0));
        }
        assert_eq!(offers.kept.len(), MAX_OFFERS);
        let best = offers.take_best().unwrap();
        assert_eq!((best.server, best.preference), (Vec::from([1]), 5));
        assert!(offers.is_empty());
    }
}
