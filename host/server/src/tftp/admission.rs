//! Which transfers are admitted: who has one of the slots for them, and who waits for one.
//!
//! A request can be forged, an acknowledgement hardly: a transfer that nobody has answered gives way when all slots are taken. So does one
//! that hardly goes on. No host has more than its share, and the next slot is for the host that has the fewest.

use std::cmp::Reverse;
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
/// How long a transfer keeps its slot, when others wait, until its client has answered.
const TIME_TO_ANSWER: Duration = Duration::from_millis(500);
/// When all slots are taken and others wait, a client that has not acknowledged [`LEAST`] bytes in this time loses its slot.
const SLOW: Duration = Duration::from_secs(120);
const LEAST: u64 = 256 * 1024;
/// Requests that wait for a slot. One that comes then is dropped.
const MAX_WAITING: usize = 4096;

/// The slots that are taken.
#[derive(Clone, Debug, Default)]
pub(super) struct TransferSlots(Arc<Mutex<HashMap<SocketAddr, Arc<Taken>>>>);

#[derive(Debug)]
struct Taken {
    progress: Mutex<Progress>,
    revoked: AtomicBool,
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Something has been acknowledged.
    answered: bool,
    /// When it began, or was last far enough. `None` while the server looks for the file, which is not the client's fault.
    since: Option<Instant>,
    /// Bytes that were acknowledged then.
    acknowledged: u64,
}

impl Progress {
    /// Whether its slot is for another client who waits.
    fn gives_way(&self, now: Instant) -> bool {
        let patience = if self.answered { SLOW } else { TIME_TO_ANSWER };
        self.since
            .is_some_and(|since| now.saturating_duration_since(since) >= patience)
    }
}

impl Taken {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a request for a slot.
#[derive(Debug)]
pub(super) enum Claim {
    /// It has one, until this is dropped.
    Granted(TransferSlot),
    /// The client has one already, or waits for it.
    Repeated,
    Full,
}

impl TransferSlots {
    fn taken(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Taken>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot, if there is one.
    pub(super) fn claim(&self, client: SocketAddr) -> Claim {
        let mut taken = self.taken();
        if taken.contains_key(&client) {
            return Claim::Repeated;
        }
        let of_host = taken.keys().filter(|one| one.ip() == client.ip());
        if taken.len() >= MAX_TRANSFERS || of_host.count() >= MAX_OF_HOST {
            return Claim::Full;
        }
        let slot = Arc::new(Taken {
            progress: Mutex::new(Progress {
                answered: false,
                since: None,
                acknowledged: 0,
            }),
            revoked: AtomicBool::new(false),
        });
        taken.insert(client, slot.clone());
        Claim::Granted(TransferSlot {
            slots: self.clone(),
            client,
            taken: slot,
        })
    }

    /// Tells transfers of such hosts to give up their slots, at most `wanted`: those that nobody answers, the oldest first; then those that
    /// hardly go on, of the hosts with the most slots first.
    fn revoke(&self, wanted: usize, of: impl Fn(IpAddr) -> bool, now: Instant) {
        let taken = self.taken();
        let shares = shares(&taken);
        let may_go = |(client, one): (&SocketAddr, &Arc<Taken>)| {
            let progress = *one.progress();
            let share = shares.get(&client.ip()).copied().unwrap_or(0);
            // Who forges requests may forge each from an address of its own.
            let share = if progress.answered { share } else { 0 };
            let order = (progress.answered, Reverse(share), progress.since);
            progress.gives_way(now).then(|| (order, one.clone()))
        };
        let of_such = taken.iter().filter(|(client, _)| of(client.ip()));
        let mut may_go: Vec<_> = of_such.filter_map(may_go).collect();
        may_go.sort_by_key(|(order, _)| *order);
        for (_, one) in may_go.into_iter().take(wanted) {
            one.revoked.store(true, Ordering::Relaxed);
        }
    }

    /// How many each host has, and whether that is all that there are.
    fn shares(&self) -> (HashMap<IpAddr, usize>, bool) {
        let taken = self.taken();
        (shares(&taken), taken.len() >= MAX_TRANSFERS)
    }
}

fn shares(taken: &HashMap<SocketAddr, Arc<Taken>>) -> HashMap<IpAddr, usize> {
    let mut shares = HashMap::new();
    for client in taken.keys() {
        *shares.entry(client.ip()).or_default() += 1;
    }
    shares
}

/// A client's slot; given up when dropped.
#[derive(Debug)]
pub(super) struct TransferSlot {
    slots: TransferSlots,
    client: SocketAddr,
    taken: Arc<Taken>,
}

impl TransferSlot {
    /// The file is there, and is sent from now on.
    pub(super) fn file_found(&self, now: Instant) {
        self.taken.progress().since = Some(now);
    }

    /// The client has acknowledged something, so it is there: in all so many bytes.
    pub(super) fn acknowledged(&self, bytes: u64, now: Instant) {
        let mut progress = self.taken.progress();
        if !progress.answered || bytes >= progress.acknowledged.saturating_add(LEAST) {
            *progress = Progress {
                answered: true,
                since: Some(now),
                acknowledged: bytes,
            };
        }
    }

    /// True when another client needs the slot more.
    pub(super) fn is_revoked(&self) -> bool {
        self.taken.revoked.load(Ordering::Relaxed)
    }
}

impl Drop for TransferSlot {
    fn drop(&mut self) {
        self.slots.taken().remove(&self.client);
    }
}

/// Requests that wait for a slot, in the order in which they came.
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

    /// The request whose turn it is, if there is a slot for it. Else room is made.
    pub(super) fn next(&mut self, slots: &TransferSlots, now: Instant) -> Option<(Path, Vec<u8>)> {
        if self.0.is_empty() {
            return None;
        }
        let (shares, all_taken) = slots.shares();
        let share = |path: &Path| shares.get(&path.client.ip()).copied().unwrap_or(0);
        let order = self.0.iter().enumerate();
        let (at, (path, _)) = order.min_by_key(|(at, (path, _))| (share(path), *at))?;
        if !all_taken && share(path) < MAX_OF_HOST {
            return self.0.remove(at);
        }
        self.make_room(slots, shares, all_taken, now);
        None
    }

    /// Who has its share already waits for transfers of its own, the others for anybody's.
    fn make_room(
        &self,
        slots: &TransferSlots,
        mut shares: HashMap<IpAddr, usize>,
        all_taken: bool,
        now: Instant,
    ) {
        let mut of_all = 0;
        let mut of_their_own: HashMap<IpAddr, usize> = HashMap::new();
        for (path, _) in &self.0 {
            let host = path.client.ip();
            let share = shares.entry(host).or_default();
            *share += 1;
            if *share > MAX_OF_HOST {
                *of_their_own.entry(host).or_default() += 1;
            } else if all_taken {
                of_all += 1;
            }
        }
        slots.revoke(of_all, |_| true, now);
        for (host, wanted) in of_their_own {
            slots.revoke(wanted, |other| other == host, now);
        }
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

    fn granted(slots: &TransferSlots, client: SocketAddr, now: Instant) -> TransferSlot {
        let slot = looking_for(slots, client);
        slot.file_found(now);
        slot
    }

    /// A slot whose file is looked for.
    fn looking_for(slots: &TransferSlots, client: SocketAddr) -> TransferSlot {
        match slots.claim(client) {
            Claim::Granted(slot) => slot,
            other => panic!("{client}: {other:?}"),
        }
    }

    #[test]
    fn a_slow_disk_is_not_the_clients_fault() {
        let (slots, now) = (TransferSlots::default(), Instant::now());
        let looked_for = looking_for(&slots, client(1, 1));
        let _others: Vec<_> = (1..MAX_TRANSFERS)
            .map(|n| {
                let slot = granted(&slots, client(2 + (n / 100) as u8, n), now);
                slot.acknowledged(0, now + SLOW);
                slot
            })
            .collect();
        let mut waiting = Waiting::default();
        waiting.push(path(client(9, 9)), b"one");
        assert!(waiting.next(&slots, now + SLOW).is_none());
        assert!(!looked_for.is_revoked());
        looked_for.file_found(now);
        assert!(waiting.next(&slots, now + SLOW).is_none());
        assert!(looked_for.is_revoked());
    }

    fn path(client: SocketAddr) -> Path {
        Path {
            client,
            local: client,
        }
    }

    #[test]
    fn a_client_has_one_transfer_at_a_time_and_all_have_a_limit() {
        let (slots, now) = (TransferSlots::default(), Instant::now());
        let first = granted(&slots, client(1, 1), now);
        assert!(matches!(slots.claim(client(1, 1)), Claim::Repeated));
        drop(first);
        let mut all: Vec<_> = (0..MAX_TRANSFERS)
            .map(|n| granted(&slots, client((n / 100) as u8, 1 + n), now))
            .collect();
        assert!(matches!(slots.claim(client(9, 9)), Claim::Full));
        all.pop();
        granted(&slots, client(9, 9), now);
    }

    #[test]
    fn a_host_has_no_more_than_its_share() {
        let (slots, now) = (TransferSlots::default(), Instant::now());
        let of_one: Vec<_> = (0..MAX_OF_HOST)
            .map(|port| granted(&slots, client(1, 1 + port), now))
            .collect();
        of_one.iter().for_each(|slot| slot.acknowledged(0, now));
        assert!(matches!(slots.claim(client(1, 999)), Claim::Full));
        let other = granted(&slots, client(2, 1), now);
        let mut waiting = Waiting::default();
        waiting.push(path(client(1, 999)), b"one");
        let late = now + 2 * SLOW;
        assert!(waiting.next(&slots, late).is_none());
        assert!(!other.is_revoked(), "the host has what it may have");
        let revoked = of_one.iter().filter(|slot| slot.is_revoked());
        assert_eq!(revoked.count(), 1, "for itself it makes room");
        waiting.push(path(client(2, 2)), b"two");
        assert_eq!(waiting.next(&slots, now).unwrap().1, b"two");
        drop(of_one);
        assert_eq!(waiting.next(&slots, now).unwrap().1, b"one");
        assert!(waiting.next(&slots, now).is_none());
    }

    /// 700 forged requests, each from a port or host of its own, shut nobody out.
    #[test]
    fn transfers_that_nobody_answers_give_way() {
        let (slots, now) = (TransferSlots::default(), Instant::now());
        let real = granted(&slots, client(1, 1), now);
        real.acknowledged(0, now);
        let at = |n: usize| now + Duration::from_millis(n as u64);
        let forged: Vec<_> = (1..MAX_TRANSFERS)
            .map(|n| granted(&slots, client(2 + (n / 100) as u8, n), at(n)))
            .collect();
        let revoked = || forged.iter().filter(|one| one.is_revoked()).count();
        let mut waiting = Waiting::default();
        let late = at(10_000);
        assert!(waiting.next(&slots, late).is_none());
        assert_eq!(revoked(), 0, "nobody waits");
        waiting.push(path(client(200, 1)), b"one");
        assert!(waiting.next(&slots, at(500)).is_none());
        assert_eq!(revoked(), 0, "they may still answer");
        assert!(waiting.next(&slots, late).is_none());
        assert!(waiting.next(&slots, late).is_none());
        assert_eq!(revoked(), 1);
        assert!(forged[0].is_revoked(), "the oldest");
        waiting.push(path(client(200, 2)), b"two");
        assert!(waiting.next(&slots, late).is_none());
        assert_eq!(revoked(), 2);
        assert!(!real.is_revoked());
        drop(forged);
        assert_eq!(waiting.next(&slots, late).unwrap().1, b"one");
    }

    /// Hosts that acknowledge a little now and then shut nobody out either.
    #[test]
    fn transfers_that_hardly_go_on_give_way() {
        let (slots, now) = (TransferSlots::default(), Instant::now());
        let all: Vec<_> = (0..MAX_TRANSFERS)
            .map(|n| granted(&slots, client((n / 100) as u8, n), now))
            .collect();
        let after = |seconds| now + Duration::from_secs(seconds);
        all.iter().for_each(|slot| slot.acknowledged(512, now));
        for (at, slot) in all.iter().enumerate() {
            // The first goes on at just the pace, the others below it.
            slot.acknowledged(512 + LEAST - u64::from(at > 0), after(100));
        }
        let revoked = || all.iter().filter(|one| one.is_revoked()).count();
        let mut waiting = Waiting::default();
        assert!(waiting.next(&slots, after(120)).is_none());
        assert_eq!(revoked(), 0, "nobody waits");
        waiting.push(path(client(200, 1)), b"one");
        assert!(waiting.next(&slots, after(119)).is_none());
        assert_eq!(revoked(), 0, "there is time left");
        for port in 1..=MAX_TRANSFERS {
            waiting.push(path(client(200 + (port / 100) as u8, port)), b"more");
        }
        assert!(waiting.next(&slots, after(219)).is_none());
        assert_eq!(revoked(), MAX_TRANSFERS - 1);
        assert!(!all[0].is_revoked());
        assert!(waiting.next(&slots, after(220)).is_none());
        assert!(all[0].is_revoked());
    }

    #[test]
    fn of_those_that_hardly_go_on_the_greedy_give_way_first() {
        let (slots, now) = (TransferSlots::default(), Instant::now());
        let alone = granted(&slots, client(1, 1), now);
        let later = now + Duration::from_secs(1);
        let of_many: Vec<_> = (1..MAX_TRANSFERS)
            .map(|n| granted(&slots, client(2 + (n / 100) as u8, n), later))
            .collect();
        alone.acknowledged(0, now);
        of_many.iter().for_each(|slot| slot.acknowledged(0, later));
        let mut waiting = Waiting::default();
        // One more than a host may have.
        for port in 0..=MAX_OF_HOST {
            waiting.push(path(client(200, 1 + port)), b"one");
        }
        assert!(waiting.next(&slots, later + SLOW).is_none());
        let revoked = of_many.iter().filter(|slot| slot.is_revoked());
        assert_eq!(revoked.count(), MAX_OF_HOST);
        assert!(!alone.is_revoked());
    }

    #[test]
    fn the_host_with_the_fewest_slots_is_next() {
        let (slots, now) = (TransferSlots::default(), Instant::now());
        let _slot = granted(&slots, client(1, 1), now);
        let mut waiting = Waiting::default();
        for (host, port) in [(1, 2), (2, 1), (2, 1), (3, 1)] {
            waiting.push(path(client(host, port)), &[host]);
        }
        let order: Vec<_> = std::iter::from_fn(|| waiting.next(&slots, now)).collect();
        let order: Vec<_> = order.iter().map(|(_, request)| request[0]).collect();
        assert_eq!(order, [2, 3, 1]);
    }
}
