//! Which transfers are admitted: who has one of the slots for them, and who waits for one.
//!
//! A request can be forged, an acknowledgement hardly: a transfer that nobody has answered gives way when all slots are taken. So does one
//! that hardly goes on. No host has more than its share, and the next slot is for the host that has the fewest. When too many requests wait,
//! the host with the most loses one.
//!
//! A client whose transfer goes on may start anew and ask from the same port. Its request then waits until the transfer has ended, which it
//! does after a second without a word from the client.

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
/// Requests that wait for a slot.
const MAX_WAITING: usize = 4096;
/// How long a transfer goes on without a word from its client, once the client has asked anew.
pub(crate) const ABANDONED_AFTER: Duration = Duration::from_secs(1);

/// The slots that are taken.
#[derive(Clone, Debug, Default)]
pub(super) struct TransferSlots(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    taken: HashMap<SocketAddr, Arc<Taken>>,
    /// Requests of clients that have started anew, now that their transfers have ended.
    asked_anew: Vec<(Path, Vec<u8>)>,
}

#[derive(Debug)]
struct Taken {
    progress: Mutex<Progress>,
    revoked: AtomicBool,
    asked_anew: Mutex<Option<AskedAnew>>,
}

/// What came from a client's port though the client has answered. It may have started anew; or the request is forged, or late.
#[derive(Debug)]
struct AskedAnew {
    path: Path,
    request: Vec<u8>,
    /// When the first such request came.
    since: Instant,
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

    fn asked_anew(&self) -> MutexGuard<'_, Option<AskedAnew>> {
        let asked_anew = self.asked_anew.lock();
        asked_anew.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a request that may be the client's new one. The last one counts.
    fn ask_anew(&self, path: Path, request: &[u8], now: Instant) {
        let mut asked_anew = self.asked_anew();
        let since = asked_anew.as_ref().map_or(now, |former| former.since);
        *asked_anew = Some(AskedAnew {
            path,
            request: request.to_vec(),
            since,
        });
    }
}

/// What became of a request for a slot.
#[derive(Debug)]
pub(super) enum Claim {
    /// It has one, until this is dropped.
    Granted(TransferSlot),
    /// The client has one already.
    Repeated,
    Full,
}

impl TransferSlots {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the client's transfer of a request from the same port. False when there is none. Before the client has answered, it only repeats
    /// itself.
    pub(super) fn tell(&self, path: Path, request: &[u8], now: Instant) -> bool {
        let table = self.table();
        let Some(taken) = table.taken.get(&path.client) else {
            return false;
        };
        if taken.progress().answered {
            taken.ask_anew(path, request, now);
        }
        true
    }

    /// The requests of clients that have started anew, whose transfers have ended since the last call.
    fn take_asked_anew(&self) -> Vec<(Path, Vec<u8>)> {
        std::mem::take(&mut self.table().asked_anew)
    }

    /// A slot, if there is one.
    pub(super) fn claim(&self, client: SocketAddr) -> Claim {
        let taken = &mut self.table().taken;
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
            asked_anew: Mutex::new(None),
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
        let taken = &self.table().taken;
        let shares = shares(taken);
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
        let taken = &self.table().taken;
        (shares(taken), taken.len() >= MAX_TRANSFERS)
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

    /// The client has said something to this transfer, so it has not started anew.
    pub(super) fn goes_on(&self) {
        *self.taken.asked_anew() = None;
    }

    /// The server had nothing for the client for so long: that is no silence of the client's.
    pub(super) fn kept_waiting(&self, took: Duration) {
        if let Some(asked) = &mut *self.taken.asked_anew() {
            asked.since += took;
        }
    }

    /// True when the client has asked anew, and has said nothing to this transfer since.
    pub(super) fn is_abandoned(&self, now: Instant) -> bool {
        let asked_anew = self.taken.asked_anew();
        let since = asked_anew.as_ref().map(|asked| asked.since);
        since.is_some_and(|since| now.saturating_duration_since(since) >= ABANDONED_AFTER)
    }
}

impl Drop for TransferSlot {
    fn drop(&mut self) {
        let mut table = self.slots.table();
        table.taken.remove(&self.client);
        let asked_anew = self.taken.asked_anew().take();
        let request = asked_anew.map(|asked| (asked.path, asked.request));
        table.asked_anew.extend(request);
    }
}

/// Requests that wait for a slot.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Those of each host that has any, in the order in which they came.
    of_hosts: HashMap<IpAddr, VecDeque<WaitingRequest>>,
    /// How many wait.
    count: usize,
    /// The number of the next one.
    next: u64,
}

#[derive(Debug)]
struct WaitingRequest {
    /// The later it came, the higher.
    number: u64,
    path: Path,
    datagram: Vec<u8>,
}

impl Waiting {
    /// Lets a request wait. When too many do, the host with the most loses its last one. If that host would then have fewer than this one, it
    /// is this request that is lost. Its client will ask again.
    pub(super) fn push(&mut self, path: Path, request: &[u8]) {
        let host = path.client.ip();
        let is_it = |other: &WaitingRequest| other.path.client == path.client;
        let of_host = self.of_hosts.get(&host);
        if of_host.is_some_and(|of_host| of_host.iter().any(is_it)) {
            return;
        }
        let own = of_host.map_or(0, VecDeque::len);
        if self.count >= MAX_WAITING && !self.drop_one(own + 1) {
            return;
        }
        let waiting = WaitingRequest {
            number: self.next,
            path,
            datagram: request.to_vec(),
        };
        self.of_hosts.entry(host).or_default().push_back(waiting);
        self.next += 1;
        self.count += 1;
    }

    /// Drops the last request of the host with the most, if that has more than so many. False if not.
    fn drop_one(&mut self, more_than: usize) -> bool {
        let of_hosts = self.of_hosts.values_mut();
        match of_hosts.max_by_key(|of_host| of_host.len()) {
            Some(most) if most.len() > more_than => {
                most.pop_back();
                self.count -= 1;
                true
            }
            _ => false,
        }
    }

    /// The request whose turn it is, if there is a slot for it. Else room is made.
    pub(super) fn next(&mut self, slots: &TransferSlots, now: Instant) -> Option<(Path, Vec<u8>)> {
        for (path, request) in slots.take_asked_anew() {
            self.push(path, &request);
        }
        if self.of_hosts.is_empty() {
            return None;
        }
        let (shares, all_taken) = slots.shares();
        let first = |(host, of_host): (&IpAddr, &VecDeque<WaitingRequest>)| {
            let share = shares.get(host).copied().unwrap_or(0);
            Some((share, of_host.front()?.number, *host))
        };
        let (share, _, host) = self.of_hosts.iter().filter_map(first).min()?;
        if !all_taken && share < MAX_OF_HOST {
            return self.pop(host);
        }
        self.make_room(slots, &shares, all_taken, now);
        None
    }

    /// The first request of this host.
    fn pop(&mut self, host: IpAddr) -> Option<(Path, Vec<u8>)> {
        let of_host = self.of_hosts.get_mut(&host)?;
        let first = of_host.pop_front()?;
        if of_host.is_empty() {
            self.of_hosts.remove(&host);
        }
        self.count -= 1;
        Some((first.path, first.datagram))
    }

    /// Who has its share already waits for transfers of its own, the others for anybody's.
    fn make_room(
        &self,
        slots: &TransferSlots,
        shares: &HashMap<IpAddr, usize>,
        all_taken: bool,
        now: Instant,
    ) {
        let mut of_all = 0;
        for (host, of_host) in &self.of_hosts {
            let share = shares.get(host).copied().unwrap_or(0);
            let within_share = of_host.len().min(MAX_OF_HOST.saturating_sub(share));
            of_all += within_share;
            let of_their_own = of_host.len() - within_share;
            if of_their_own > 0 {
                slots.revoke(of_their_own, |other| other == *host, now);
            }
        }
        if all_taken {
            slots.revoke(of_all, |_| true, now);
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
    fn no_more_than_4096_requests_wait() {
        let (slots, now) = (TransferSlots::default(), Instant::now());
        let mut of_one = Waiting::default();
        let mut of_many = Waiting::default();
        for n in 1..=4097u16 {
            of_one.push(path(client(1, n.into())), b"one");
            let host = Ipv4Addr::from(0x0a00_0000 + u32::from(n));
            of_many.push(path((host, 1).into()), b"one");
        }
        assert_eq!(of_many.of_hosts.len(), 4096);
        let of_one = std::iter::from_fn(|| of_one.next(&slots, now));
        assert_eq!(of_one.count(), 4096);
    }

    #[test]
    fn when_too_many_wait_the_host_with_the_most_loses_its_last() {
        let (slots, now) = (TransferSlots::default(), Instant::now());
        let of_one: Vec<_> = (0..MAX_OF_HOST)
            .map(|port| granted(&slots, client(1, 10_000 + port), now))
            .collect();
        let mut waiting = Waiting::default();
        for port in 1..=MAX_WAITING {
            waiting.push(path(client(1, port)), b"one");
        }
        waiting.push(path(client(2, 1)), b"two");
        assert_eq!(waiting.next(&slots, now).unwrap().1, b"two");
        // There is one place again; the host that has the most gets no other.
        for port in [MAX_WAITING, 5000, 5001] {
            waiting.push(path(client(1, port)), b"one");
        }
        drop(of_one);
        let order = std::iter::from_fn(|| waiting.next(&slots, now));
        let ports = order.map(|(path, _)| usize::from(path.client.port()));
        assert!(ports.eq(1..=MAX_WAITING));
    }

    #[test]
    fn hosts_that_have_as_many_waiting_take_no_places_from_each_other() {
        let mut waiting = Waiting::default();
        for port in 1..=MAX_WAITING {
            waiting.push(path(client(1, port)), b"one");
        }
        let of_host = |waiting: &Waiting, host| waiting.of_hosts[&client(host, 1).ip()].len();
        for port in 1..=MAX_WAITING {
            waiting.push(path(client(2, port)), b"two");
        }
        for host in [1, 2] {
            assert_eq!(of_host(&waiting, host), MAX_WAITING / 2);
        }
        waiting.push(path(client(3, 1)), b"three");
        assert_eq!(of_host(&waiting, 3), 1);
        assert_eq!(waiting.count, MAX_WAITING);
    }

    /// One host keeps what it may have and fills the queue; the others' requests are forged, and come again and again.
    #[test]
    fn a_client_is_served_though_a_greedy_host_and_forged_requests_have_all() {
        let (slots, now) = (TransferSlots::default(), Instant::now());
        let greedy: Vec<_> = (0..MAX_OF_HOST)
            .map(|n| granted(&slots, client(1, 10_000 + n), now))
            .collect();
        greedy.iter().for_each(|slot| slot.acknowledged(0, now));
        let mut forged: Vec<_> = (MAX_OF_HOST..MAX_TRANSFERS)
            .map(|n| granted(&slots, client(1 + (n / MAX_OF_HOST) as u8, n), now))
            .collect();
        let mut waiting = Waiting::default();
        for port in 1..=MAX_WAITING {
            waiting.push(path(client(1, port)), b"greedy");
        }
        waiting.push(path(client(9, 9)), b"victim");
        let late = now + TIME_TO_ANSWER;
        let earlier = late - Duration::from_millis(1);
        assert!(waiting.next(&slots, earlier).is_none());
        assert!(!forged.iter().any(TransferSlot::is_revoked));
        assert!(waiting.next(&slots, late).is_none());
        let revoked = forged.iter().filter(|slot| slot.is_revoked()).count();
        assert_eq!(revoked, 1);
        forged.retain(|slot| !slot.is_revoked());
        for host in 2..=4 {
            waiting.push(path(client(host, 9999)), b"forged");
        }
        assert_eq!(waiting.next(&slots, late).unwrap().1, b"victim");
        assert!(!greedy.iter().any(TransferSlot::is_revoked));
    }

    #[test]
    fn a_transfer_whose_client_has_asked_anew_is_abandoned_after_a_second_of_silence() {
        let (slots, now) = (TransferSlots::default(), Instant::now());
        let at = |millis| now + Duration::from_millis(millis);
        let asked = path(client(1, 1));
        let mut waiting = Waiting::default();
        assert!(!slots.tell(asked, b"first", now), "it has no transfer");
        let slot = granted(&slots, client(1, 1), now);
        assert!(slots.tell(asked, b"first", now));
        assert!(!slot.is_abandoned(at(60_000)), "it repeats itself");
        slot.acknowledged(0, now);
        assert!(slots.tell(asked, b"anew", now));
        assert!(!slot.is_abandoned(at(999)));
        assert!(slot.is_abandoned(at(1000)));
        slot.kept_waiting(Duration::from_secs(5));
        assert!(
            !slot.is_abandoned(at(5999)),
            "the server had nothing for it"
        );
        assert!(slot.is_abandoned(at(6000)));
        slot.goes_on();
        assert!(!slot.is_abandoned(at(60_000)), "the request was forged");
        // Each time that it asks, it waits no longer.
        for (after, request) in [(2000, b"anew"), (2900, b"last")] {
            assert!(slots.tell(asked, request, at(after)));
        }
        assert!(slot.is_abandoned(at(3000)));
        assert!(waiting.next(&slots, now).is_none(), "it goes on as yet");
        drop(slot);
        assert_eq!(waiting.next(&slots, now).unwrap().1, b"last");
        assert!(waiting.next(&slots, now).is_none());
        // Nothing is left of a request that was forged.
        let slot = granted(&slots, client(1, 1), now);
        slot.acknowledged(0, now);
        assert!(slots.tell(asked, b"forged", now));
        slot.goes_on();
        drop(slot);
        assert!(waiting.next(&slots, now).is_none());
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
