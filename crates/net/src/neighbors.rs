//! The neighbour cache (RFC 4861, section 7.3), for both IP versions: who has which Ethernet address. ARP drives the same
//! machine (RFC 826; a reply is a solicited advertisement with override, RFC 1122, section 2.3.2.1).
//!
//! An entry comes from asking alone: what nobody asked for never makes one, and changes one only as section 7.2.5 says. An answer
//! counts as solicited only while a question is open, whatever its flag says.

use crate::packet::is_somebodys;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use wireboot_nic::MacAddress;
use wireboot_tcp::{Duration, Instant};

/// Requests for a neighbour before it is said not to answer.
const REQUESTS: u8 = 3;
/// Time between the first of them: one that is lost shall not hold up a boot for a second.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long the last one is waited for, and from then until the next one, where somebody still wants the neighbour. Together they are the
/// second between requests of RFC 1122, section 2.3.2.1, and RFC 4861 (RETRANS_TIMER): switches close the port of who asks much more often.
const PATIENCE: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(700);
/// REACHABLE_TIME and DELAY_FIRST_PROBE_TIME of RFC 4861, section 10.
const REACHABLE_TIME: Duration = Duration::from_secs(30);
const DELAY: Duration = Duration::from_secs(5);
/// Entries, and those of them that nobody has answered for yet.
const ENTRIES: usize = 32;
const INCOMPLETE: usize = 8;
/// An entry used within this time gives way to no other. So long it is remembered, too, that a neighbour was asked in vain.
const IN_USE: Duration = Duration::from_secs(10);

/// The reachability state of a neighbour (RFC 4861, section 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReachabilityState {
    /// Nobody has answered yet.
    Incomplete { asked: u8, next: Instant },
    /// Answered until then.
    Reachable { until: Instant },
    /// Not known to be right, and not used.
    Stale,
    /// Used: is confirmed until then, or asked.
    Delay { until: Instant },
    /// Asked at its Ethernet address; the last question goes to all.
    Probe { asked: u8, next: Instant },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: IpAddr,
    /// Meaningless while incomplete.
    mac: MacAddress,
    state: ReachabilityState,
    used: Instant,
}

/// What a neighbour says of an address: a neighbour advertisement about its *target*; ARP about its sender; a solicitation's
/// or router advertisement's source link-layer address about the source (not solicited, with override).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeighborUpdate {
    pub address: IpAddr,
    pub mac: Option<MacAddress>,
    pub solicited: bool,
    pub override_: bool,
}

impl NeighborUpdate {
    /// A neighbour says of itself or another what nobody asked for.
    pub(crate) fn unasked(address: Ipv6Addr, mac: MacAddress) -> Self {
        Self {
            address: address.into(),
            mac: Some(mac),
            solicited: false,
            override_: true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Somebody is to be asked: all who may have the address, or the one that had it.
    Ask(IpAddr, Option<MacAddress>),
    /// Nobody has answered; removed.
    Failed(IpAddr),
}

#[derive(Default)]
pub(crate) struct Cache {
    /// Sorted by address.
    entries: Vec<Entry>,
    /// Neighbours asked in vain and removed, the latest last: how their questions go on when they are wanted again.
    unanswered: Vec<Entry>,
}

impl Cache {
    /// The Ethernet address to send to.
    pub(crate) fn lookup(&mut self, address: IpAddr, now: Instant) -> Option<MacAddress> {
        let entry = self.find(address)?;
        entry.used = now;
        match entry.state {
            ReachabilityState::Incomplete { .. } => return None,
            ReachabilityState::Reachable { until } if now < until => {}
            ReachabilityState::Reachable { .. } | ReachabilityState::Stale => {
                entry.state = ReachabilityState::Delay { until: now + DELAY };
            }
            ReachabilityState::Delay { .. } | ReachabilityState::Probe { .. } => {}
        }
        Some(entry.mac)
    }

    /// Somebody wants to send to `address`, a unicast address on the link. `ours`: it is our own, which nobody is asked for. False when
    /// there is no room.
    pub(crate) fn want(&mut self, address: IpAddr, ours: bool, now: Instant) -> bool {
        if ours || self.find(address).is_some() {
            return !ours;
        }
        let idle = |entry: &Entry| now >= entry.used + IN_USE;
        let waiting = self.incomplete();
        if waiting >= INCOMPLETE || self.entries.len() >= ENTRIES {
            let entries = self.entries.iter().enumerate();
            // A known one makes room for an unknown one when it is not in use; an unknown one always.
            let may_go = entries.filter(|(_, entry)| match incomplete(entry) {
                true => true,
                false => waiting < INCOMPLETE && idle(entry),
            });
            let oldest = may_go.min_by_key(|(_, entry)| (incomplete(entry), entry.used));
            let Some((index, _)) = oldest else {
                return false;
            };
            self.remove(index);
        }
        let mut unanswered = self.unanswered.iter();
        let before = unanswered.position(|entry| entry.address == address);
        let before = before.map(|index| self.unanswered.remove(index));
        let fresh = ReachabilityState::Incomplete {
            asked: 0,
            next: now,
        };
        let entry = Entry {
            address,
            mac: [0; 6],
            state: before
                .filter(|entry| !idle(entry))
                .map_or(fresh, |entry| entry.state),
            used: now,
        };
        let place = self
            .entries
            .partition_point(|entry| entry.address < address);
        self.entries.insert(place, entry);
        true
    }

    /// Removes an entry. Who was asked in vain is not asked again at once when it is wanted again.
    fn remove(&mut self, index: usize) {
        let mut entry = self.entries.remove(index);
        match entry.state {
            ReachabilityState::Incomplete {
                asked: REQUESTS,
                next,
            }
            | ReachabilityState::Probe {
                asked: REQUESTS,
                next,
            } => {
                entry.state = ReachabilityState::Incomplete {
                    asked: REQUESTS - 1,
                    next: next + PAUSE,
                };
            }
            ReachabilityState::Incomplete { asked: 1.., .. } => {}
            _ => return,
        }
        if self.unanswered.len() == ENTRIES {
            self.unanswered.remove(0);
        }
        self.unanswered.push(entry);
    }

    /// Takes in what a neighbour says (RFC 4861, section 7.2.5). `ours`: the address is our own, about which others are not believed.
    pub(crate) fn update(&mut self, update: &NeighborUpdate, ours: bool, now: Instant) {
        if ours {
            return;
        }
        let late = |entry: &Entry| entry.address == update.address && now < entry.used + IN_USE;
        if update.solicited && self.unanswered.iter().any(late) && self.has_room_for(update.address)
        {
            self.want(update.address, ours, now);
        }
        let Some(entry) = self.find(update.address) else {
            return;
        };
        let open = matches!(
            entry.state,
            ReachabilityState::Incomplete { .. } | ReachabilityState::Probe { .. }
        );
        let solicited = update.solicited && open;
        // Clusters answer ARP with the address of a group, which only routers must not believe (RFC 1812, section 3.3.2).
        let group = solicited && update.address.is_ipv4();
        if update.mac.is_some_and(|mac| !is_somebodys(mac, group)) {
            return;
        }
        let reachable = ReachabilityState::Reachable {
            until: now + REACHABLE_TIME,
        };
        let incomplete = matches!(entry.state, ReachabilityState::Incomplete { .. });
        let changes = update.mac.is_some_and(|mac| mac != entry.mac);
        match update.mac {
            None if incomplete => {}
            _ if changes && !update.override_ && !incomplete => {
                if matches!(entry.state, ReachabilityState::Reachable { .. }) {
                    entry.state = ReachabilityState::Stale;
                }
            }
            mac => {
                entry.mac = mac.unwrap_or(entry.mac);
                if solicited {
                    entry.state = reachable;
                } else if changes {
                    entry.state = ReachabilityState::Stale;
                }
            }
        }
    }

    /// A connection got forward by this neighbour (RFC 4861, section 7.3.1).
    pub(crate) fn confirm(&mut self, address: IpAddr, now: Instant) {
        if let Some(entry) = self.find(address)
            && !matches!(entry.state, ReachabilityState::Incomplete { .. })
        {
            entry.state = ReachabilityState::Reachable {
                until: now + REACHABLE_TIME,
            };
        }
    }

    /// What is to be done now; to be called until there is nothing.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Due> {
        let due = |entry: &Entry| next(entry).is_some_and(|at| now >= at);
        let index = self.entries.iter().position(due)?;
        let entry = self.entries.get_mut(index)?;
        let (asked, at) = match entry.state {
            ReachabilityState::Incomplete { asked, .. } => (asked, None),
            ReachabilityState::Probe { asked, .. } => (asked, Some(entry.mac)),
            _ => (0, Some(entry.mac)),
        };
        let address = entry.address;
        if asked == REQUESTS {
            self.remove(index);
            return Some(Due::Failed(address));
        }
        let asked = asked + 1;
        let is_last = asked == REQUESTS;
        let next = now + if is_last { PATIENCE } else { INTERVAL };
        entry.state = match at {
            None => ReachabilityState::Incomplete { asked, next },
            Some(_) => ReachabilityState::Probe { asked, next },
        };
        // Another one may have the address now.
        Some(Due::Ask(address, at.filter(|_| !is_last)))
    }

    /// The request that was due for `address` cannot be sent before `until`.
    pub(crate) fn postpone(&mut self, address: IpAddr, until: Instant) {
        if let Some(entry) = self.find(address)
            && let ReachabilityState::Incomplete { asked, next }
            | ReachabilityState::Probe { asked, next } = &mut entry.state
        {
            *asked = asked.saturating_sub(1);
            *next = until;
        }
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.entries.iter().filter_map(next).min()
    }

    /// Whether `address` is known or asked for.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.entries.iter().any(|entry| entry.address == address)
    }

    /// The same, or can be asked for while all others still are.
    pub(crate) fn has_room_for(&self, address: IpAddr) -> bool {
        self.has(address) || self.incomplete() < INCOMPLETE
    }

    fn incomplete(&self) -> usize {
        self.entries
            .iter()
            .filter(|entry| incomplete(entry))
            .count()
    }

    fn find(&mut self, address: IpAddr) -> Option<&mut Entry> {
        let place = self
            .entries
            .binary_search_by_key(&address, |entry| entry.address);
        self.entries.get_mut(place.ok()?)
    }
}

fn incomplete(entry: &Entry) -> bool {
    matches!(entry.state, ReachabilityState::Incomplete { .. })
}

/// When there is something to do for an entry.
fn next(entry: &Entry) -> Option<Instant> {
    match entry.state {
        ReachabilityState::Incomplete { next, .. } | ReachabilityState::Probe { next, .. } => {
            Some(next)
        }
        ReachabilityState::Delay { until } => Some(until),
        ReachabilityState::Reachable { .. } | ReachabilityState::Stale => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    const A: MacAddress = [2, 0, 0, 0, 0, 0xa];
    const B: MacAddress = [2, 0, 0, 0, 0, 0xb];

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    fn ip(last: u16) -> IpAddr {
        match last % 2 {
            0 => Ipv4Addr::from_bits(0x0a00_0000 + u32::from(last)).into(),
            _ => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last).into(),
        }
    }

    fn says(last: u16, mac: MacAddress, solicited: bool, override_: bool) -> NeighborUpdate {
        NeighborUpdate {
            address: ip(last),
            mac: Some(mac),
            solicited,
            override_,
        }
    }

    fn all_due(cache: &mut Cache, now: Instant) -> Vec<Due> {
        core::iter::from_fn(|| cache.due(now)).collect()
    }

    /// A cache that has had an answer for `last`.
    fn knows(last: u16) -> Cache {
        let mut cache = Cache::default();
        assert!(cache.want(ip(last), false, at(0)));
        cache.due(at(0));
        cache.update(&says(last, A, true, true), false, at(0));
        assert_eq!(cache.lookup(ip(last), at(0)), Some(A));
        cache
    }

    fn state(cache: &mut Cache, last: u16) -> ReachabilityState {
        cache.find(ip(last)).unwrap().state
    }

    const REACHABLE: ReachabilityState = ReachabilityState::Reachable {
        until: Instant::from_millis(30_000),
    };

    #[test]
    fn each_neighbour_is_asked_for_at_once_again_soon_and_not_for_ever() {
        let mut cache = Cache::default();
        let ask = |last| Due::Ask(ip(last), None);
        for last in [8, 7, 7] {
            assert!(cache.want(ip(last), false, at(0)));
        }
        assert_eq!(all_due(&mut cache, at(0)), [ask(8), ask(7)]);
        assert_eq!(cache.lookup(ip(7), at(0)), None);
        assert_eq!(all_due(&mut cache, at(99)), []);
        cache.update(&says(8, A, true, true), false, at(99));
        let mut asked = Vec::new();
        for ms in 100..1000 {
            for due in all_due(&mut cache, at(ms)) {
                asked.push((ms, due));
            }
        }
        let failed = (500, Due::Failed(ip(7)));
        assert_eq!(asked, [(100, ask(7)), (200, ask(7)), failed]);
        assert_eq!(cache.lookup(ip(8), at(1000)), Some(A));
        assert_eq!(cache.poll_at(), None);
    }

    #[test]
    fn what_is_used_is_confirmed_or_asked() {
        let mut cache = knows(7);
        assert_eq!(cache.lookup(ip(7), at(29_999)), Some(A));
        assert_eq!(cache.poll_at(), None);
        assert_eq!(cache.lookup(ip(7), at(30_000)), Some(A));
        assert_eq!(cache.poll_at(), Some(at(35_000)));
        // A connection that gets forward saves the question.
        cache.confirm(ip(7), at(31_000));
        assert_eq!(cache.poll_at(), None);
        assert_eq!(cache.lookup(ip(7), at(61_000)), Some(A));
        let ask = Due::Ask(ip(7), Some(A));
        assert_eq!(all_due(&mut cache, at(66_000)), [ask]);
        assert_eq!(cache.lookup(ip(7), at(66_000)), Some(A));
        cache.update(&says(7, A, true, false), false, at(66_050));
        assert_eq!(cache.poll_at(), None);
        assert_eq!(cache.lookup(ip(7), at(100_000)), Some(A));
        let asked = (105_000..110_000).flat_map(|ms| all_due(&mut cache, at(ms)));
        let asked: Vec<_> = asked.collect();
        let ask_all = Due::Ask(ip(7), None);
        assert_eq!(asked, [ask, ask, ask_all, Due::Failed(ip(7))]);
        assert_eq!(cache.lookup(ip(7), at(110_000)), None);
        cache.confirm(ip(7), at(110_000));
        assert_eq!(cache.lookup(ip(7), at(110_000)), None);
    }

    #[test]
    fn who_has_moved_is_found_by_the_last_question() {
        let mut cache = knows(7);
        cache.lookup(ip(7), at(30_000));
        let asked = (35_000..35_201).flat_map(|ms| all_due(&mut cache, at(ms)));
        let asked: Vec<_> = asked.collect();
        let ask = |mac| Due::Ask(ip(7), mac);
        assert_eq!(asked, [ask(Some(A)), ask(Some(A)), ask(None)]);
        cache.update(&says(7, B, true, true), false, at(35_201));
        assert_eq!(cache.lookup(ip(7), at(35_201)), Some(B));
    }

    /// When a neighbour that is wanted at these milliseconds and does not answer is asked, and when it is said not to.
    fn in_vain(end: i64, wanted: fn(i64) -> bool) -> (Vec<i64>, Vec<i64>) {
        let mut cache = Cache::default();
        let (mut asked, mut failed) = (Vec::new(), Vec::new());
        for ms in 0..end {
            if wanted(ms) {
                assert!(cache.want(ip(7), false, at(ms)));
            }
            for due in all_due(&mut cache, at(ms)) {
                match due {
                    Due::Ask(..) => asked.push(ms),
                    Due::Failed(_) => failed.push(ms),
                }
            }
        }
        (asked, failed)
    }

    /// RFC 1122, section 2.3.2.1, and RETRANS_TIMER of RFC 4861, section 10.
    #[test]
    fn who_does_not_answer_is_asked_once_a_second() {
        let (asked, failed) = in_vain(5_000, |_| true);
        assert_eq!(asked, [0, 100, 200, 1200, 2200, 3200, 4200]);
        assert_eq!(failed, [500, 1500, 2500, 3500, 4500]);
        let (asked, failed) = in_vain(5_000, |ms| ms % 600 == 0);
        assert_eq!(asked, [0, 100, 200, 1200, 2200, 3200, 4200]);
        assert_eq!(failed, [500, 1500, 2500, 3500, 4500]);
        // Later it is asked at once, once; much later as for the first time.
        let (asked, failed) = in_vain(5_000, |ms| ms % 3_000 == 0);
        assert_eq!(asked, [0, 100, 200, 3000]);
        assert_eq!(failed, [500, 3300]);
        let (asked, _) = in_vain(11_000, |ms| ms % 10_000 == 0);
        assert_eq!(asked, [0, 100, 200, 10_000, 10_100, 10_200]);
    }

    /// So is one that had answered before.
    #[test]
    fn who_answers_no_more_is_asked_once_a_second() {
        let mut cache = knows(7);
        cache.lookup(ip(7), at(30_000));
        let mut asked = Vec::new();
        for ms in 35_000..38_000 {
            if cache.lookup(ip(7), at(ms)).is_none() {
                assert!(cache.want(ip(7), false, at(ms)));
            }
            let due = all_due(&mut cache, at(ms));
            asked.extend(due.iter().map(|due| (ms, *due)));
        }
        asked.retain(|(_, due)| *due != Due::Failed(ip(7)));
        let times: Vec<_> = asked.iter().map(|(ms, _)| ms - 35_000).collect();
        assert_eq!(times, [0, 100, 200, 1200, 2200]);
    }

    /// On a line whose round trip is longer than a question is waited for.
    #[test]
    fn an_answer_may_come_when_nobody_waits() {
        for (at_ms, solicited, ours, mac) in [
            (700, true, false, Some(A)),
            (9_999, true, false, Some(A)),
            (10_000, true, false, None),
            (700, false, false, None),
            (700, true, true, None),
        ] {
            let mut cache = Cache::default();
            cache.want(ip(7), false, at(0));
            for ms in 0..600 {
                all_due(&mut cache, at(ms));
            }
            assert!(!cache.has(ip(7)));
            cache.update(&says(7, A, solicited, true), ours, at(at_ms));
            assert_eq!(cache.lookup(ip(7), at(at_ms)), mac, "{at_ms}");
            assert_eq!(cache.has(ip(7)), mac.is_some());
        }
    }

    /// One more than may be asked for at once, all of them wanted each turn.
    #[test]
    fn who_gives_way_is_asked_no_more_often() {
        let mut cache = Cache::default();
        let mut asked = [0; INCOMPLETE + 1];
        for ms in 0..10_000 {
            for last in 0..=INCOMPLETE as u16 {
                if cache.lookup(ip(last), at(ms)).is_none() {
                    assert!(cache.want(ip(last), false, at(ms)));
                }
            }
            for due in all_due(&mut cache, at(ms)) {
                if let Due::Ask(address, _) = due {
                    let place = (0..).position(|last| ip(last) == address).unwrap();
                    asked[place] += 1;
                }
            }
        }
        assert!(asked.iter().all(|count| *count <= 12), "{asked:?}");
        assert!(asked.contains(&12), "{asked:?}");
    }

    /// Neighbour discovery and ARP spoofing: nothing that was not asked for makes an entry.
    #[test]
    fn spoofed_entries() {
        let mut cache = Cache::default();
        for (solicited, override_) in [(false, false), (false, true), (true, false), (true, true)] {
            cache.update(&says(7, A, solicited, override_), false, at(0));
        }
        assert_eq!(cache.lookup(ip(7), at(0)), None);
        // Our own address is neither asked for nor believed.
        assert!(!cache.want(ip(9), true, at(0)));
        assert_eq!(cache.due(at(0)), None);
        cache.want(ip(7), false, at(0));
        cache.update(&says(7, A, true, true), true, at(0));
        for wrong in [
            [0; 6],
            [0xff; 6],
            [0x33, 0x33, 0, 0, 0, 1],
            [1, 0, 0x5e, 0, 0, 1],
        ] {
            cache.update(&says(7, wrong, true, true), false, at(0));
        }
        // Without an Ethernet address; about another one.
        let mut without = says(7, A, true, true);
        without.mac = None;
        cache.update(&without, false, at(0));
        cache.update(&says(6, B, true, true), false, at(0));
        cache.confirm(ip(7), at(0));
        assert_eq!(cache.lookup(ip(7), at(0)), None);
        cache.update(&says(7, A, true, true), false, at(0));
        assert_eq!(cache.lookup(ip(7), at(0)), Some(A));
        cache.update(&says(7, [0xff; 6], true, true), false, at(0));
        assert_eq!(cache.lookup(ip(7), at(0)), Some(A));
    }

    /// A cluster's group, which is believed where it answers a question by ARP.
    #[test]
    fn an_answer_to_arp_may_name_a_group() {
        const GROUP: MacAddress = [3, 0xbf, 10, 0, 0, 8];
        let mut cache = Cache::default();
        cache.want(ip(8), false, at(0));
        cache.due(at(0));
        for (mac, solicited) in [(GROUP, false), ([0; 6], true), ([0xff; 6], true)] {
            cache.update(&says(8, mac, solicited, true), false, at(0));
            assert_eq!(cache.lookup(ip(8), at(0)), None);
        }
        cache.update(&says(8, GROUP, true, true), false, at(0));
        assert_eq!(cache.lookup(ip(8), at(0)), Some(GROUP));
        // Nobody asks any more.
        let other = [1, 0, 0x5e, 0, 0, 1];
        cache.update(&says(8, other, true, true), false, at(0));
        assert_eq!(cache.lookup(ip(8), at(0)), Some(GROUP));
    }

    /// RFC 4861, section 7.2.5, and its appendix C.
    #[test]
    fn an_entry_is_changed_by_the_rules() {
        let stale = ReachabilityState::Stale;
        // Ethernet address, solicited, override; what the entry is then, from reachable and from stale.
        for (mac, solicited, override_, mac_then, from_reachable, from_stale) in [
            (A, false, false, A, REACHABLE, stale),
            (A, false, true, A, REACHABLE, stale),
            (A, true, true, A, REACHABLE, stale),
            (B, false, false, A, stale, stale),
            (B, true, false, A, stale, stale),
            (B, false, true, B, stale, stale),
            // Nobody asked: it may be right, and is asked for when it is used.
            (B, true, true, B, stale, stale),
        ] {
            for (from, then) in [(REACHABLE, from_reachable), (stale, from_stale)] {
                let mut cache = knows(7);
                cache.find(ip(7)).unwrap().state = from;
                cache.update(&says(7, mac, solicited, override_), false, at(10));
                assert_eq!(
                    state(&mut cache, 7),
                    then,
                    "{mac:?} {solicited} {override_}"
                );
                assert_eq!(cache.find(ip(7)).unwrap().mac, mac_then);
            }
        }
        // While asked: confirmed by whoever may confirm.
        for (mac, solicited, override_, reachable) in [
            (A, true, false, true),
            (A, false, true, false),
            (B, true, true, true),
            (B, true, false, false),
        ] {
            let mut cache = knows(7);
            let probe = ReachabilityState::Probe {
                asked: 1,
                next: at(0),
            };
            cache.find(ip(7)).unwrap().state = probe;
            cache.update(&says(7, mac, solicited, override_), false, at(0));
            assert_eq!(
                state(&mut cache, 7) == REACHABLE,
                reachable,
                "{mac:?} {solicited}"
            );
        }
        let mut cache = Cache::default();
        cache.want(ip(7), false, at(0));
        cache.update(&says(7, A, false, false), false, at(0));
        assert_eq!(state(&mut cache, 7), stale);
        // Confirmed without an Ethernet address.
        let mut cache = knows(7);
        cache.find(ip(7)).unwrap().state = ReachabilityState::Probe {
            asked: 1,
            next: at(0),
        };
        let mut without = says(7, A, true, false);
        without.mac = None;
        cache.update(&without, false, at(0));
        assert_eq!(
            (state(&mut cache, 7), cache.lookup(ip(7), at(0))),
            (REACHABLE, Some(A))
        );
    }

    #[test]
    fn a_flood_of_unknown_neighbours_drives_out_none_in_use() {
        let mut cache = knows(1);
        for last in 100..200 {
            assert!(cache.want(ip(last), false, at(1)));
        }
        assert_eq!(cache.entries.len(), 1 + INCOMPLETE);
        assert_eq!(cache.lookup(ip(1), at(1)), Some(A));
        // The newest are asked for.
        assert!(cache.find(ip(199)).is_some() && cache.find(ip(100)).is_none());
        // Nor one that is not in use, while there is room for it.
        for last in 100..200 {
            assert!(cache.want(ip(last), false, at(20_000)));
        }
        assert!(cache.find(ip(1)).is_some());
        // All of the table known and in use: no room, until one is no longer used.
        let mut cache = Cache::default();
        for last in 0..ENTRIES as u16 {
            assert!(cache.want(ip(last), false, at(last.into())));
            cache.update(&says(last, A, true, true), false, at(last.into()));
        }
        assert!(!cache.want(ip(99), false, at(9_999)));
        assert!(cache.want(ip(99), false, at(10_000)));
        assert!(cache.find(ip(0)).is_none() && cache.find(ip(1)).is_some());
        assert_eq!(cache.entries.len(), ENTRIES);
        // One that is not in use goes before one that is still asked for, the one that was used first.
        assert_eq!(cache.lookup(ip(1), at(15_000)), Some(A));
        assert!(cache.want(ip(98), false, at(22_000)));
        assert!(cache.find(ip(99)).is_some() && cache.find(ip(1)).is_some());
        assert!(cache.find(ip(2)).is_none());
        for last in 3..32 {
            cache.lookup(ip(last), at(15_000));
        }
        assert!(cache.want(ip(97), false, at(30_000)));
        assert!(cache.find(ip(99)).is_some() && cache.find(ip(98)).is_some());
    }

    proptest! {
        #[test]
        fn it_stays_sorted_and_bounded(steps in prop::collection::vec((0..5_u8, 0..60_u16, any::<bool>(), any::<bool>()), 0..300)) {
            let mut cache = Cache::default();
            let mut now = 0;
            for (step, last, a, b) in steps {
                now += i64::from(last) * 10;
                match step {
                    0 => _ = cache.want(ip(last), false, at(now)),
                    1 => cache.update(&says(last, if a { A } else { B }, a, b), false, at(now)),
                    2 => _ = cache.lookup(ip(last), at(now)),
                    3 => cache.confirm(ip(last), at(now)),
                    _ => _ = all_due(&mut cache, at(now)),
                }
                prop_assert!(cache.entries.len() <= ENTRIES);
                prop_assert!(cache.entries.is_sorted_by(|a, b| a.address < b.address));
                prop_assert!(cache.unanswered.len() <= ENTRIES);
                prop_assert!(cache.unanswered.iter().all(|entry| !cache.has(entry.address)));
            }
        }
    }
}
