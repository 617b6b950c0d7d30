//! A token is a number that belongs to an address. It is sent there, so who asks in a stranger's name never hears it, and nothing is sent to
//! who has not asked.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long an address has one token. It is good for as long again, and no longer: the address may be another machine's then.
const PERIOD: Duration = Duration::from_secs(15);

/// Makes them and knows them again, without keeping any.
#[derive(Debug)]
pub(super) struct Tokens {
    /// Random, of this server's start: nobody makes a token without them.
    keys: RandomState,
    begun: Instant,
}

impl Tokens {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            keys: RandomState::new(),
            begun: now,
        }
    }

    /// The token that an address has now.
    pub(super) fn of(&self, address: IpAddr, now: Instant) -> u64 {
        self.in_period(address, self.period(now))
    }

    /// Whether the address has it now, or had it before that.
    pub(super) fn is_of(&self, token: u64, address: IpAddr, now: Instant) -> bool {
        let period = self.period(now);
        let periods = [Some(period), period.checked_sub(1)];
        periods
            .into_iter()
            .flatten()
            .any(|period| self.in_period(address, period) == token)
    }

    fn period(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_secs() / PERIOD.as_secs()
    }

    fn in_period(&self, address: IpAddr, period: u64) -> u64 {
        self.keys.hash_one((address, period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_address_and_grows_old() {
        let begun = Instant::now();
        let tokens = Tokens::new(begun);
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let token = tokens.of(one, begun);
        assert!(tokens.is_of(token, one, begun));
        assert!(!tokens.is_of(token, other, begun));
        assert!(!tokens.is_of(token ^ 1, one, begun));
        assert!(
            !Tokens::new(begun).is_of(token, one, begun),
            "another server's"
        );
        let after = |periods: u32| begun + PERIOD * periods;
        assert!(tokens.is_of(token, one, after(2) - Duration::from_secs(1)));
        assert!(!tokens.is_of(token, one, after(2)));
        let next = tokens.of(one, after(1));
        assert!(next != token && tokens.is_of(next, one, after(2)));
    }
}
