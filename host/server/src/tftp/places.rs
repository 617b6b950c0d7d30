//! Who has one of the places for transfers, and who waits for one.
//!
//! A request can be forged, an acknowledgement hardly: a transfer that nobody has answered gives way when all places are taken. No host has
//! more than its share, and the next place is for the host that has the fewest.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Path;

/// Transfers at a time. Each holds a thread, a socket and a buffer of 64 KiB.
const MAX_TRANSFERS: usize = 512;
/// Transfers of one host at a time; several machines may share an address.
const MAX_OF_HOST: usize = 128;
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
    /// Later.
    Full,
}

impl Places {
    fn taken(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Taken>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, if there is one. If there is none, the transfer that has gone unanswered for the longest time is told to give up its own.
    pub fn claim(&self, client: SocketAddr, now: Instant) -> Claim {
        let mut taken = self.taken();
        if taken.contains_key(&client) {
            return Claim::Repeated;
        }
        let of_host = |one: &&SocketAddr| one.ip() == client.ip();
        let share_is_left = taken.keys().filter(of_host).count() < MAX_OF_HOST;
        if taken.len() >= MAX_TRANSFERS || !share_is_left {
            let may_go = |(address, one): &(&SocketAddr, &Arc<Taken>)| {
                !one.answered.load(Ordering::Relaxed)
                    && !one.revoked.load(Ordering::Relaxed)
                    && (share_is_left || address.ip() == client.ip())
            };
            let oldest = taken.iter().filter(may_go).min_by_key(|(_, one)| one.since);
            if let Some((_, oldest)) = oldest {
                oldest.revoked.store(true, Ordering::Relaxed);
            }
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
    pub fn answered(&self) {
        self.taken.answered.store(true, Ordering::Relaxed);
    }

    /// True when another client needs the place more.
    pub fn is_revoked(&self) -> bool {
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
    pub fn push(&mut self, path: Path, request: &[u8]) {
        let waits = self.0.iter().any(|(other, _)| other.client == path.client);
        if !waits && self.0.len() < MAX_WAITING {
            self.0.push_back((path, request.to_vec()));
        }
    }

    /// The request whose turn it is, if there is a place for it.
    pub fn next(&mut self, places: &Places) -> Option<(Path, Vec<u8>)> {
        if self.0.is_empty() {
            return None;
        }
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
        assert!(waiting.next(&places).is_none());
        waiting.push(path(client(2, 2)), b"two");
        assert_eq!(waiting.next(&places).unwrap().1, b"two");
        drop(of_one);
        assert_eq!(waiting.next(&places).unwrap().1, b"one");
        assert!(waiting.next(&places).is_none());
        assert!(!other.is_revoked());
    }

    /// 700 forged requests, each from a port or host of its own, shut nobody out.
    #[test]
    fn the_longest_unanswered_transfer_gives_way() {
        let (places, now) = (Places::default(), Instant::now());
        let real = granted(&places, client(1, 1), now);
        real.answered();
        let at = |n: usize| now + Duration::from_millis(n as u64);
        let forged: Vec<_> = (1..MAX_TRANSFERS)
            .map(|n| granted(&places, client(2 + (n / 100) as u8, n), at(n)))
            .collect();
        for n in 0..2 {
            assert!(forged.iter().filter(|one| one.is_revoked()).count() == n);
            assert!(matches!(
                places.claim(client(200, 1 + n), at(0)),
                Claim::Full
            ));
        }
        assert!(!real.is_revoked());
        let revoked: Vec<_> = forged.iter().map(Place::is_revoked).collect();
        assert_eq!(revoked[..3], [true, true, false]);
        drop(forged);
        granted(&places, client(200, 1), at(0));
    }

    #[test]
    fn the_host_with_the_fewest_places_is_next() {
        let (places, now) = (Places::default(), Instant::now());
        let _place = granted(&places, client(1, 1), now);
        let mut waiting = Waiting::default();
        for (host, port) in [(1, 2), (2, 1), (2, 1), (3, 1)] {
            waiting.push(path(client(host, port)), &[host]);
        }
        let order: Vec<_> = std::iter::from_fn(|| waiting.next(&places)).collect();
        let order: Vec<_> = order.iter().map(|(_, request)| request[0]).collect();
        assert_eq!(order, [2, 3, 1]);
    }
}
