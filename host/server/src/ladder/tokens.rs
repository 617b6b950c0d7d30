//! Who asks in a stranger's name never hears the stranger's token, so that nothing is sent to who has not asked.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long a token is given out. It is good for as long again.
const AGE: Duration = Duration::from_secs(600);

/// Makes them and knows them again, without keeping any.
#[derive(Debug)]
pub(super) struct Tokens {
    /// Unpredictable.
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

    /// An address's.
    pub(super) fn of(&self, address: IpAddr, now: Instant) -> u64 {
        self.of_age(address, self.age(now))
    }

    /// Whether it is that address's.
    pub(super) fn is_of(&self, token: u64, address: IpAddr, now: Instant) -> bool {
        let age = self.age(now);
        let ages = [Some(age), age.checked_sub(1)];
        ages.into_iter()
            .flatten()
            .any(|age| self.of_age(address, age) == token)
    }

    fn age(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_secs() / AGE.as_secs()
    }

    fn of_age(&self, address: IpAddr, age: u64) -> u64 {
        self.keys.hash_one((address, age))
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
        let after = |ages: u32| begun + AGE * ages;
        assert!(tokens.is_of(token, one, after(2) - Duration::from_secs(1)));
        assert!(!tokens.is_of(token, one, after(2)));
        let next = tokens.of(one, after(1));
        assert!(next != token && tokens.is_of(next, one, after(2)));
    }
}
