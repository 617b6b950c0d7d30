//! The addresses to give, and who has them.
//!
//! A client's address follows from what it is known by, so that it gets the same one again even after everything was forgotten, unless
//! another client's has the same place.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::leases::Lease;

/// How long an offered address is kept for the client that did not take it yet.
const OFFER_TIME: Duration = Duration::from_secs(60);
/// How long one is kept at least where all addresses are taken: firmware waits 4 s for other offers before it takes one.
const LEAST_OFFER_TIME: Duration = Duration::from_secs(10);
/// How long an address is left alone that a client found in use.
const DECLINED_TIME: Duration = Duration::from_secs(600);

/// An address of either version.
pub(crate) trait Address: Copy + Eq + Hash + Ord {
    /// The address as a number.
    fn number(self) -> u128;
    /// The address of a number that [`Address::number`] gave, or of one between two such.
    fn from_number(number: u128) -> Self;
}

impl Address for Ipv4Addr {
    fn number(self) -> u128 {
        u32::from(self).into()
    }

    fn from_number(number: u128) -> Self {
        Self::from(number as u32)
    }
}

impl Address for Ipv6Addr {
    fn number(self) -> u128 {
        self.into()
    }

    fn from_number(number: u128) -> Self {
        number.into()
    }
}

/// What a client is known by.
pub(crate) type Client = Vec<u8>;

/// Addresses in a range, one for each client.
#[derive(Debug)]
pub(crate) struct Pool<A> {
    first: A,
    last: A,
    /// Those of the range that nobody is given.
    excluded: BTreeSet<A>,
    /// How many there are to give.
    count: u128,
    lease_time: Duration,
    by_client: HashMap<Client, A>,
    by_address: HashMap<A, Holding>,
    /// What is held, or was, of the addresses to give, by its end: a range that is full is not searched.
    ends: BTreeSet<(Instant, A)>,
    /// What of it is only offered.
    offers: BTreeSet<(Instant, A)>,
    #[cfg(test)]
    searches: usize,
    /// Of which a lease has begun or ended since [`Pool::changed`].
    changed: BTreeSet<A>,
}

#[derive(Debug)]
struct Holding {
    /// `None`: in use by somebody, as its client found.
    client: Option<Client>,
    until: Instant,
    right: Right,
}

/// Why an address is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Offered,
    Leased,
    /// Somebody was found to use it, whom this server did not give it.
    InUse,
}

impl<A: Address> Pool<A> {
    /// The addresses of `range` but for those of `excluded`.
    pub(crate) fn new(
        range: RangeInclusive<A>,
        excluded: impl IntoIterator<Item = A>,
        lease_time: Duration,
    ) -> Self {
        let excluded = excluded.into_iter();
        let excluded: BTreeSet<A> = excluded.filter(|one| range.contains(one)).collect();
        let (first, last) = range.into_inner();
        let all = last.number().saturating_sub(first.number()) + 1;
        Self {
            first,
            last,
            count: all.saturating_sub(excluded.len() as u128),
            excluded,
            lease_time,
            by_client: HashMap::new(),
            by_address: HashMap::new(),
            ends: BTreeSet::new(),
            offers: BTreeSet::new(),
            #[cfg(test)]
            searches: 0,
            changed: BTreeSet::new(),
        }
    }

    /// The pool with leases that were made before.
    pub(crate) fn with(mut self, mut leases: Vec<Lease<A>>) -> Self {
        // Of a client that had several, the last one counts.
        leases.sort_by_key(|(.., until)| *until);
        for (address, client, until) in leases {
            if self.gives(address) {
                self.hold(address, &client, until, Right::Leased);
            }
        }
        self
    }

    /// The leases that have begun or ended since the last call.
    pub(crate) fn changed(&mut self) -> Vec<Lease<A>> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let lease = |address| {
            let holding = self.by_address.get(&address)?;
            Some((address, holding.client.clone()?, holding.until))
        };
        changed.filter_map(lease).collect()
    }

    /// The address to offer a client: the one it had, else the one it wishes, else a free one, else one that was offered to somebody who does
    /// not take it. `None`: all are taken.
    pub(crate) fn offer(&mut self, client: &[u8], wish: Option<A>, now: Instant) -> Option<A> {
        let had = self.had_by(client);
        let mut wishes = [had, wish].into_iter().flatten();
        let wished = wishes.find(|&address| self.is_free_for(address, client, now));
        let free = wished.or_else(|| self.free_one(client, now));
        let address = free.or_else(|| self.not_taken(now))?;
        // A renewed discovery must not shorten a lease that runs.
        let held = self
            .by_address
            .get(&address)
            .filter(|held| held.until > now && held.client.as_deref() == Some(client));
        let (until, right) = held.map_or((now, Right::Offered), |held| (held.until, held.right));
        self.hold(address, client, until.max(now + OFFER_TIME), right);
        Some(address)
    }

    /// An address that nobody ever had, the next from the client's own place on, else the one whose time has been over longest.
    fn free_one(&mut self, client: &[u8], now: Instant) -> Option<A> {
        if self.ends.len() as u128 >= self.count {
            let (end, address) = self.ends.first()?;
            return (*end <= now).then_some(*address);
        }
        #[cfg(test)]
        {
            self.searches += 1;
        }
        let is_new = |address: &A| {
            let is_held = self.by_address.contains_key(address);
            !is_held && !self.excluded.contains(address)
        };
        self.in_order_for(client).find(is_new)
    }

    /// The address that was offered longest ago and not taken: one host that asks in many names does not shut out all others.
    fn not_taken(&self, now: Instant) -> Option<A> {
        let (end, address) = self.offers.first()?;
        let latest = now + OFFER_TIME.saturating_sub(LEAST_OFFER_TIME);
        (*end <= latest).then_some(*address)
    }

    /// Gives the client the address; false when it is not to be had.
    pub(crate) fn lease(&mut self, client: &[u8], address: A, now: Instant) -> bool {
        let free = self.is_free_for(address, client, now);
        if free {
            self.hold(address, client, now + self.lease_time, Right::Leased);
            self.changed.insert(address);
        }
        free
    }

    /// Whether the address is one of the range.
    pub(crate) fn gives(&self, address: A) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// The address that the client has, or was offered, or had last.
    pub(crate) fn had_by(&self, client: &[u8]) -> Option<A> {
        self.by_client.get(client).copied()
    }

    /// The address that the client has, or was offered, and whose time is not over.
    pub(crate) fn held_by(&self, client: &[u8], now: Instant) -> Option<A> {
        let address = self.by_client.get(client)?;
        let holding = self.by_address.get(address)?;
        (holding.until > now).then_some(*address)
    }

    /// The client does not use its address any more. It is kept for the client as long as nobody else needs it.
    pub(crate) fn release(&mut self, client: &[u8], now: Instant) {
        if let Some(&address) = self.by_client.get(client)
            && let Some(holding) = self.let_go(address)
        {
            let until = now;
            self.put(address, Holding { until, ..holding });
            self.changed.insert(address);
        }
    }

    /// The client found somebody else at the address.
    pub(crate) fn decline(&mut self, client: &[u8], address: A, now: Instant) {
        if self.by_client.get(client) == Some(&address) {
            self.by_client.remove(client);
            let until = now + DECLINED_TIME;
            self.put(
                address,
                Holding {
                    client: None,
                    until,
                    right: Right::InUse,
                },
            );
        }
    }

    /// `client`, who did not ask here, has `address`: it is given to nobody else for a while, unless somebody has leased it. True when that is
    /// new.
    pub(crate) fn occupy(&mut self, address: A, client: &[u8], now: Instant) -> bool {
        let held = self.by_address.get(&address);
        let held = held.filter(|held| held.until > now);
        let known = held.is_some_and(|held| held.client.as_deref() == Some(client));
        let leased = held.is_some_and(|held| held.right == Right::Leased);
        if known || leased || !self.gives(address) || self.excluded.contains(&address) {
            return false;
        }
        self.keep(address, client, now + DECLINED_TIME, Right::InUse);
        self.by_client.entry(client.to_vec()).or_insert(address);
        true
    }

    fn hold(&mut self, address: A, client: &[u8], until: Instant, right: Right) {
        self.keep(address, client, until, right);
        if let Some(former) = self.by_client.insert(client.to_vec(), address)
            && former != address
        {
            self.let_go(former);
        }
    }

    /// Takes `address` from who had it.
    fn keep(&mut self, address: A, client: &[u8], until: Instant, right: Right) {
        let holding = Holding {
            client: Some(client.to_vec()),
            until,
            right,
        };
        if let Some(Holding {
            client: Some(former),
            ..
        }) = self.put(address, holding)
            && former != *client
            && self.by_client.get(&former) == Some(&address)
        {
            self.by_client.remove(&former);
        }
    }

    /// Notes who holds the address, in place of who did, which is returned.
    fn put(&mut self, address: A, holding: Holding) -> Option<Holding> {
        let former = self.let_go(address);
        if !self.excluded.contains(&address) {
            let end = (holding.until, address);
            self.ends.insert(end);
            if holding.right == Right::Offered {
                self.offers.insert(end);
            }
        }
        self.by_address.insert(address, holding);
        former
    }

    /// Notes that nobody holds the address; returns who did.
    fn let_go(&mut self, address: A) -> Option<Holding> {
        let former = self.by_address.remove(&address)?;
        let end = (former.until, address);
        self.ends.remove(&end);
        self.offers.remove(&end);
        Some(former)
    }

    fn is_free_for(&self, address: A, client: &[u8], now: Instant) -> bool {
        let in_range = self.gives(address) && !self.excluded.contains(&address);
        in_range
            && self.by_address.get(&address).is_none_or(|holding| {
                holding.client.as_deref() == Some(client) || holding.until <= now
            })
    }

    /// All addresses of the range, from the client's own place on.
    fn in_order_for(&self, client: &[u8]) -> impl Iterator<Item = A> {
        let mut hasher = DefaultHasher::new();
        client.hash(&mut hasher);
        let (first, last) = (self.first.number(), self.last.number());
        let count = last.saturating_sub(first) + 1;
        let start = first + u128::from(hasher.finish()) % count;
        (start..=last).chain(first..start).map(A::from_number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 12);

    fn pool() -> Pool<Ipv4Addr> {
        let range = Ipv4Addr::new(10, 0, 0, 10)..=Ipv4Addr::new(10, 0, 0, 13);
        Pool::new(range, [SERVER], Duration::from_secs(3600))
    }

    fn client(n: u8) -> Client {
        vec![1, 2, 0, 0, 0, 0, n]
    }

    #[test]
    fn a_client_keeps_its_address_and_a_restart_changes_nothing() {
        let now = Instant::now();
        let address = pool().offer(&client(1), None, now).unwrap();
        let mut pool = pool();
        assert_eq!(pool.offer(&client(1), None, now), Some(address));
        assert!(pool.lease(&client(1), address, now));
        pool.release(&client(1), now);
        assert_eq!(
            pool.offer(&client(1), Some(Ipv4Addr::new(10, 0, 0, 13)), now),
            Some(address)
        );
    }

    #[test]
    fn of_a_clients_earlier_leases_the_last_one_counts() {
        let now = Instant::now();
        let (low, high) = (Ipv4Addr::new(10, 0, 0, 10), Ipv4Addr::new(10, 0, 0, 13));
        let until = |seconds| now + Duration::from_secs(seconds);
        for (last, first) in [(low, high), (high, low)] {
            let pool = pool().with(vec![
                (low, client(1), until(if last == low { 60 } else { 50 })),
                (high, client(1), until(if last == high { 60 } else { 50 })),
            ]);
            assert_eq!(pool.held_by(&client(1), now), Some(last));
            assert!(pool.is_free_for(first, &client(2), now));
            assert!(!pool.is_free_for(last, &client(2), now));
        }
    }

    #[test]
    fn a_wish_is_granted_when_it_can_be() {
        let now = Instant::now();
        let mut pool = pool();
        let wish = Ipv4Addr::new(10, 0, 0, 13);
        assert_eq!(pool.offer(&client(1), Some(wish), now), Some(wish));
        assert_ne!(pool.offer(&client(2), Some(wish), now), Some(wish));
        for not_to_be_had in [
            SERVER,
            Ipv4Addr::new(10, 0, 0, 14),
            Ipv4Addr::new(192, 168, 0, 1),
        ] {
            assert!(!pool.lease(&client(3), not_to_be_had, now));
        }
    }

    #[test]
    fn when_all_are_taken_expired_ones_are_used_again() {
        let now = Instant::now();
        let mut pool = pool();
        for n in 1..=3 {
            let address = pool.offer(&client(n), None, now).unwrap();
            assert!(pool.lease(&client(n), address, now));
        }
        assert_eq!(pool.offer(&client(4), None, now), None);
        let later = now + Duration::from_secs(3600);
        let address = pool.offer(&client(4), None, later).unwrap();
        assert!(pool.lease(&client(4), address, later));
        assert!((1..=3).any(|n| !pool.lease(&client(n), address, later)));
    }

    #[test]
    fn who_asks_in_many_names_and_takes_nothing_shuts_nobody_out_for_long() {
        let now = Instant::now();
        let mut pool = pool();
        let mine = pool.offer(&client(1), None, now).unwrap();
        assert!(pool.lease(&client(1), mine, now));
        let first = pool.offer(&client(2), None, now).unwrap();
        let second = now + Duration::from_secs(1);
        pool.offer(&client(3), None, second).unwrap();
        let early = now + LEAST_OFFER_TIME - Duration::from_millis(1);
        assert_eq!(pool.offer(&client(4), None, early), None);
        let then = now + LEAST_OFFER_TIME;
        assert_eq!(pool.offer(&client(4), None, then), Some(first));
        assert_eq!(
            pool.offer(&client(5), None, then),
            None,
            "one second too early"
        );
        assert!(!pool.lease(&client(2), first, then), "it is another's");
        assert!(pool.lease(&client(4), first, then));
    }

    #[test]
    fn what_is_leased_or_in_use_is_not_taken_away() {
        let now = Instant::now();
        let mut pool = pool();
        let leased = pool.offer(&client(1), None, now).unwrap();
        assert!(pool.lease(&client(1), leased, now));
        for n in 10..=13 {
            pool.occupy(Ipv4Addr::new(10, 0, 0, n), &client(n), now);
        }
        let before_the_end = now + DECLINED_TIME - Duration::from_secs(1);
        assert_eq!(pool.offer(&client(2), None, before_the_end), None);
        let end = now + DECLINED_TIME;
        assert!(
            pool.offer(&client(2), None, end)
                .is_some_and(|one| one != leased)
        );
    }

    #[test]
    fn a_full_range_is_not_searched() {
        let now = Instant::now();
        let mut pool = pool();
        let leased = [1, 2, 3].map(|n| {
            let address = pool.offer(&client(n), None, now).unwrap();
            assert!(pool.lease(&client(n), address, now));
            address
        });
        let searches = pool.searches;
        for n in 4..=9 {
            assert_eq!(pool.offer(&client(n), Some(SERVER), now), None);
        }
        for (n, address) in (1..=3).zip(leased) {
            assert_eq!(pool.offer(&client(n), None, now), Some(address));
        }
        // What is free again is found all the same: what was given back,
        pool.release(&client(1), now);
        assert_eq!(pool.offer(&client(4), None, now), Some(leased[0]));
        assert!(pool.lease(&client(4), leased[0], now));
        // what was left alone for a while,
        pool.decline(&client(2), leased[1], now);
        let end = now + DECLINED_TIME;
        let early = end - Duration::from_millis(1);
        assert_eq!(pool.offer(&client(5), None, early), None);
        assert_eq!(pool.offer(&client(5), None, end), Some(leased[1]));
        // what was not taken,
        assert_eq!(pool.offer(&client(6), None, end), None);
        let then = end + LEAST_OFFER_TIME;
        assert_eq!(pool.offer(&client(6), None, then), Some(leased[1]));
        assert_eq!(pool.searches, searches);
        // and what its client left for another.
        let over = now + Duration::from_secs(3600);
        assert!(pool.lease(&client(6), leased[2], over));
        assert_eq!(pool.offer(&client(7), None, over), Some(leased[1]));
        assert_eq!(pool.searches, searches + 1);
    }

    #[test]
    fn what_is_excluded_is_given_to_nobody() {
        let now = Instant::now();
        let at = |last| Ipv4Addr::new(10, 0, 0, last);
        let hour = Duration::from_secs(3600);
        let excluded = [at(11), at(12), at(99)];
        let mut pool = Pool::new(at(10)..=at(13), excluded, hour);
        assert!(!pool.lease(&client(1), at(11), now));
        assert!(!pool.occupy(at(11), &client(1), now));
        // It was to be had once.
        pool = pool.with(vec![(at(11), client(1), now + hour)]);
        let mut offered = [1, 2].map(|n| pool.offer(&client(n), Some(at(11)), now).unwrap());
        offered.sort();
        assert_eq!(offered, [at(10), at(13)]);
        assert_eq!(pool.offer(&client(3), None, now), None);
    }

    #[test]
    fn an_address_that_nobody_had_comes_before_one_whose_time_is_over() {
        let now = Instant::now();
        let later = now + Duration::from_secs(4000);
        for n in 2..50 {
            let mut pool = pool();
            let former = pool.offer(&client(1), None, now).unwrap();
            assert!(pool.lease(&client(1), former, now));
            let address = pool.offer(&client(n), None, later).unwrap();
            assert_ne!(address, former, "client {n}");
            // So the first one finds its own again.
            assert_eq!(pool.offer(&client(1), None, later), Some(former));
        }
    }

    #[test]
    fn a_declined_address_is_left_alone() {
        let now = Instant::now();
        let mut pool = pool();
        let address = pool.offer(&client(1), None, now).unwrap();
        pool.decline(&client(2), address, now);
        assert_eq!(
            pool.offer(&client(1), None, now),
            Some(address),
            "only its holder can decline it"
        );
        pool.decline(&client(1), address, now);
        assert_ne!(pool.offer(&client(1), Some(address), now), Some(address));
        assert!(pool.lease(&client(1), address, now + DECLINED_TIME));
    }

    #[test]
    fn an_address_that_somebody_has_is_given_to_nobody_else() {
        let now = Instant::now();
        let mut pool = pool();
        let offered = pool.offer(&client(1), None, now).unwrap();
        let owner = client(9);
        assert!(pool.occupy(offered, &owner, now));
        assert!(!pool.occupy(offered, &owner, now), "that is known");
        assert!(!pool.lease(&client(1), offered, now));
        let other = pool.offer(&client(1), None, now).unwrap();
        assert_ne!(other, offered);
        assert!(pool.lease(&client(1), other, now));
        assert!(!pool.occupy(other, &owner, now), "it is leased");
        assert!(pool.lease(&client(1), other, now));
        let outside = Ipv4Addr::new(10, 0, 0, 9);
        assert!(!pool.occupy(outside, &owner, now));
        // After a restart of this server, a machine gets the address that it still has.
        assert_eq!(pool.offer(&owner, None, now), Some(offered));
        assert!(pool.lease(&owner, offered, now));
        let later = now + Duration::from_secs(3600);
        assert!(pool.occupy(offered, &client(8), later), "the lease is over");
        assert!(!pool.lease(&owner, offered, later));
        let much_later = later + DECLINED_TIME;
        assert!(pool.lease(&client(2), offered, much_later));
    }

    #[test]
    fn a_machine_with_two_addresses_keeps_what_it_leased() {
        let now = Instant::now();
        let mut pool = pool();
        let leased = pool.offer(&client(1), None, now).unwrap();
        assert!(pool.lease(&client(1), leased, now));
        let free = |address: &Ipv4Addr| *address != leased && *address != SERVER;
        let second = (10..=13)
            .map(|n| Ipv4Addr::new(10, 0, 0, n))
            .find(free)
            .unwrap();
        assert!(pool.occupy(second, &client(1), now));
        assert_eq!(pool.held_by(&client(1), now), Some(leased));
        let later = now + DECLINED_TIME;
        assert!(pool.lease(&client(2), second, later));
        assert_eq!(pool.held_by(&client(1), later), Some(leased));
    }

    #[test]
    fn leases_outlive_the_pool() {
        let now = Instant::now();
        let mut before = pool();
        let offered = before.offer(&client(1), None, now).unwrap();
        assert!(before.changed().is_empty(), "an offer is no lease");
        assert!(before.lease(&client(1), offered, now));
        let end = now + Duration::from_secs(3600);
        let leases = before.changed();
        assert_eq!(leases, [(offered, client(1), end)]);
        assert!(before.changed().is_empty());
        let mut after = pool().with(leases.clone());
        assert_eq!(after.held_by(&client(1), now), Some(offered));
        assert!(!after.lease(&client(2), offered, now));
        assert!(after.lease(&client(2), offered, end));

        let outside = (Ipv4Addr::new(10, 0, 0, 99), client(1), end);
        assert_eq!(pool().with(vec![outside]).held_by(&client(1), now), None);
        before.release(&client(1), now);
        assert_eq!(before.changed(), [(offered, client(1), now)]);
    }

    #[test]
    fn a_range_may_lie_anywhere_among_ipv6_addresses() {
        let now = Instant::now();
        let at = |last| Ipv6Addr::new(0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, last);
        let mut pool = Pool::new(at(0xfffe)..=at(0xffff), [at(1)], Duration::from_secs(60));
        let first = pool.offer(&[1], None, now).unwrap();
        let second = pool.offer(&[2], None, now).unwrap();
        assert_ne!(first, second);
        assert!(first.max(second) == at(0xffff) && first.min(second) == at(0xfffe));
        assert_eq!(pool.offer(&[3], None, now), None);
        assert_eq!(pool.held_by(&[1], now), Some(first));
        assert_eq!(pool.held_by(&[1], now + OFFER_TIME), None);
        assert_eq!(pool.held_by(&[3], now), None);
    }

    proptest! {
        /// No two clients ever hold the same address, nor anybody the server's.
        #[test]
        fn addresses_are_never_shared(steps in prop::collection::vec((0u8..8, 0u8..5, 0u8..8, 0u64..5000), 0..200)) {
            let mut pool = pool();
            let mut now = Instant::now();
            let mut held: HashMap<Ipv4Addr, (u8, Instant)> = HashMap::new();
            for (who, what, last, seconds) in steps {
                let wish = Ipv4Addr::new(10, 0, 0, 8 + last);
                match what {
                    0 => if pool.offer(&client(who), Some(wish), now).is_none() {
                        let mut all = (10..=13).map(|last| Ipv4Addr::new(10, 0, 0, last));
                        prop_assert!(!all.any(|address| pool.is_free_for(address, b"a stranger", now)));
                    },
                    1 => if pool.lease(&client(who), wish, now) {
                        prop_assert_ne!(wish, SERVER);
                        if let Some((other, until)) = held.get(&wish) { prop_assert!(*other == who || *until <= now); }
                        held.retain(|_, (holder, _)| *holder != who);
                        held.insert(wish, (who, now + Duration::from_secs(3600)));
                    },
                    2 => { pool.release(&client(who), now); held.retain(|_, (holder, _)| *holder != who); }
                    3 => { pool.occupy(wish, &client(who), now); }
                    _ => now += Duration::from_secs(seconds),
                }
                prop_assert!(pool.by_address.len() <= 4 && pool.by_client.len() <= 4);
                let ends: BTreeSet<_> = pool.by_address.iter().map(|(address, held)| (held.until, *address)).collect();
                prop_assert_eq!(&pool.ends, &ends);
            }
        }
    }
}
