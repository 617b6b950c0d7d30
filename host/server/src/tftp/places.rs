//! Who has one of the places for transfers, and who waits for one.
//!
//! A request can be forged, an acknowledgement hardly: a transfer that nobody has answered gives way when all places are taken. No host has
//! more than its share, and the next place is for the host that has the fewest.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::listen::Path;

/// Transfers at a time. Each holds a thread, a socket and a buffer of 64 KiB.
const MAX_TRANSFERS: usize = 512;
/// Transfers of one host at a time; several machines may share an address.
const MAX_OF_HOST: usize = 128;
/// How long a transfer keeps its place, when others wait, until its client has answered.
const TIME_TO_ANSWER: Duration = Duration::from_millis(500);
/// Requests that wait.
const MAX_WAITING: usize = 4096;

/// The places that are taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<HashMap<SocketAddr, Arc<Taken>>>>);

#[derive(Debug)]
struct Taken {
    since: Instant,
    answered: AtomicBool,
    revoked: AtomicBool,
}

/// What became of a request for a place.
#[derive(Debug)]
pub(super) enum Claim {
    /// It has one.
    Granted(Place),
    /// The client has one already, or waits for it.
    Repeated,
    Full,
}

impl Places {
    fn taken(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Taken>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, if there is one.
    pub(super) fn claim(&self, client: SocketAddr, now: Instant) -> Claim {
        let mut taken = self.taken();
        if taken.contains_key(&client) {
            return Claim::Repeated;
        }
        let of_host = taken.keys().filter(|one| one.ip() == client.ip());
        if taken.len() >= MAX_TRANSFERS || of_host.count() >= MAX_OF_HOST {
            return Claim::Full;
        }
        let place = Arc::new(Taken {
            since: now,
            answered: AtomicBool::new(false),
            revoked: AtomicBool::new(false),
        });
        taken.insert(client, place.clone());
        Claim::Granted(Place {
            places: self.clone(),
            client,
            taken: place,
        })
    }

    /// Tells the transfers of which nobody has answered for a while to give up their places, the oldest first and at most `wanted`.
    fn revoke(&self, wanted: usize, now: Instant) {
        let taken = self.taken();
        let may_go = |one: &&Arc<Taken>| {
            !one.answered.load(Ordering::Relaxed)
                && now.saturating_duration_since(one.since) >= TIME_TO_ANSWER
        };
        let mut unanswered: Vec<_> = taken.values().filter(may_go).collect();
        unanswered.sort_by_key(|one| one.since);
        for one in unanswered.into_iter().take(wanted) {
            one.revoked.store(true, Ordering::Relaxed);
        }
    }

    /// How many each host has; `None` while there is none to give.
    fn shares(&self) -> Option<HashMap<IpAddr, usize>> {
        let taken = self.taken();
        let mut shares = HashMap::new();
        for client in taken.keys() {
            *shares.entry(client.ip()).or_default() += 1;
        }
        (taken.len() < MAX_TRANSFERS).then_some(shares)
    }
}

/// A client's place; given up when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    client: SocketAddr,
    taken: Arc<Taken>,
}

impl Place {
    /// The client has acknowledged something, so it is there.
    pub(super) fn answered(&self) {
        self.taken.answered.store(true, Ordering::Relaxed);
    }

    /// True when another client needs the place more.
    pub(super) fn is_revoked(&self) -> bool {
        self.taken.revoked.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().remove(&self.client);
    }
}

/// Requests that wait for a place, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiting(VecDeque<(Path, Vec<u8>)>);

impl Waiting {
    /// Lets a request wait. It is lost when too many do: its client will ask again.
    pub(super) fn push(&mut self, path: Path, request: &[u8]) {
        let waits = self.0.iter().any(|(other, _)| other.client == path.client);
        if !waits && self.0.len() < MAX_WAITING {
            self.0.push_back((path, request.to_vec()));
        }
    }

    /// The request whose turn it is, if there is a place for it. Else room is made.
    pub(super) fn next(&mut self, places: &Places, now: Instant) -> Option<(Path, Vec<u8>)> {
        if self.0.is_empty() {
            return None;
        }
        let next = self.with_a_place(places);
        if next.is_none() {
            places.revoke(self.0.len(), now);
        }
        next
    }

    fn with_a_place(&mut self, places: &Places) -> Option<(Path, Vec<u8>)> {
        let shares = places.shares()?;
        let share = |path: &Path| shares.get(&path.client.ip()).copied().unwrap_or(0);
        let order = self.0.iter().enumerate();
        let (at, (path, _)) = order.min_by_key(|(at, (path, _))| (share(path), *at))?;
        (share(path) < MAX_OF_HOST).then_some(())?;
        self.0.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn client(host: u8, port: usize) -> SocketAddr {
        (Ipv4Addr::new(10, 0, 0, host), port as u16).into()
    }

    fn granted(places: &Places, client: SocketAddr, now: Instant) -> Place {
        match places.claim(client, now) {
            Claim::Granted(place) => place,
            other => panic!("{client}: {other:?}"),
        }
    }

    fn path(client: SocketAddr) -> Path {
        Path {
            client,
            local: client,
        }
    }

    #[test]
    fn a_client_has_one_transfer_at_a_time_and_all_have_a_limit() {
        let (places, now) = (Places::default(), Instant::now());
        let first = granted(&places, client(1, 1), now);
        assert!(matches!(places.claim(client(1, 1), now), Claim::Repeated));
        drop(first);
        let mut all: Vec<_> = (0..MAX_TRANSFERS)
            .map(|n| granted(&places, client((n / 100) as u8, 1 + n), now))
            .collect();
        assert!(matches!(places.claim(client(9, 9), now), Claim::Full));
        all.pop();
        granted(&places, client(9, 9), now);
    }

    #[test]
    fn a_host_has_no_more_than_its_share() {
        let (places, now) = (Places::default(), Instant::now());
        let of_one: Vec<_> = (0..MAX_OF_HOST)
            .map(|port| granted(&places, client(1, 1 + port), now))
            .collect();
        of_one.iter().for_each(Place::answered);
        assert!(matches!(places.claim(client(1, 999), now), Claim::Full));
        let other = granted(&places, client(2, 1), now);
        let mut waiting = Waiting::default();
        waiting.push(path(client(1, 999)), b"one");
        assert!(waiting.next(&places, now).is_none());
        waiting.push(path(client(2, 2)), b"two");
        assert_eq!(waiting.next(&places, now).unwrap().1, b"two");
        drop(of_one);
        assert_eq!(waiting.next(&places, now).unwrap().1, b"one");
        assert!(waiting.next(&places, now).is_none());
        assert!(!other.is_revoked());
    }

    /// 700 forged requests, each from a port or host of its own, shut nobody out.
    #[test]
    fn transfers_that_nobody_answers_give_way() {
        let (places, now) = (Places::default(), Instant::now());
        let real = granted(&places, client(1, 1), now);
        real.answered();
        let at = |n: usize| now + Duration::from_millis(n as u64);
        let forged: Vec<_> = (1..MAX_TRANSFERS)
            .map(|n| granted(&places, client(2 + (n / 100) as u8, n), at(n)))
            .collect();
        let revoked = || forged.iter().filter(|one| one.is_revoked()).count();
        let mut waiting = Waiting::default();
        let late = at(10_000);
        assert!(waiting.next(&places, late).is_none());
        assert_eq!(revoked(), 0, "nobody waits");
        waiting.push(path(client(200, 1)), b"one");
        assert!(waiting.next(&places, at(500)).is_none());
        assert_eq!(revoked(), 0, "they may still answer");
        assert!(waiting.next(&places, late).is_none());
        assert!(waiting.next(&places, late).is_none());
        assert_eq!(revoked(), 1);
        assert!(forged[0].is_revoked(), "the oldest");
        waiting.push(path(client(200, 2)), b"two");
        assert!(waiting.next(&places, late).is_none());
        assert_eq!(revoked(), 2);
        assert!(!real.is_revoked());
        drop(forged);
        assert_eq!(waiting.next(&places, late).unwrap().1, b"one");
    }

    #[test]
    fn the_host_with_the_fewest_places_is_next() {
        let (places, now) = (Places::default(), Instant::now());
        let _place = granted(&places, client(1, 1), now);
        let mut waiting = Waiting::default();
        for (host, port) in [(1, 2), (2, 1), (2, 1), (3, 1)] {
            waiting.push(path(client(host, port)), &[host]);
        }
        let order: Vec<_> = std::iter::from_fn(|| waiting.next(&places, now)).collect();
        let order: Vec<_> = order.iter().map(|(_, request)| request[0]).collect();
        assert_eq!(order, [2, 3, 1]);
    }
}
