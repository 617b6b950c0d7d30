//! Multicast listener discovery, version 2, the listener's side (RFC 3810), and version 1 (RFC 2710) where a querier speaks that: switches
//! that snoop deliver a group only to who has reported it.
//!
//! A query that concerns us is answered for all our groups, whichever it asked for.

use super::header::{ICMP, Packet, packet, router_alert};
use super::source::scope;
use super::{ALL_NODES, ALL_ROUTERS, icmp};
use crate::membership::{CHANGE_TO_INCLUDE, Membership};
use crate::packet::{array, be128};
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use wireboot_tcp::{Duration, Instant};

/// Who hears reports: ff02::16.
const ALL_MLD_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
pub(crate) const QUERY: u8 = 130;
const REPORT_1: u8 = 131;
const DONE_1: u8 = 132;
const REPORT: u8 = 143;
/// Length of a query of version 1.
const QUERY_1_LEN: usize = 24;
/// Older Version Querier Present Timeout (RFC 3810, section 9.12).
const OLDER: Duration = Duration::from_secs(260);

/// The groups that a station listens to, told to routers and switches.
#[derive(Default)]
pub struct Mld {
    groups: Membership<Ipv6Addr>,
    /// When a querier of version 1 was last heard.
    one: Option<Instant>,
    /// What is still to be reported by version 1, which takes a packet for each group; the newest of each.
    waiting: Vec<(u8, Ipv6Addr)>,
}

impl Mld {
    /// The groups listened to are now these. Of those that are not reported, none is told.
    pub fn set(&mut self, groups: impl Iterator<Item = Ipv6Addr>, now: Instant) {
        let reported =
            |group: &Ipv6Addr| group.is_multicast() && *group != ALL_NODES && scope(*group) > 1;
        self.groups.set(groups.filter(reported), now);
    }

    /// Whether no group is listened to, and there is nothing more to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.waiting.is_empty()
    }

    /// True for groups that packets are taken from.
    pub(crate) fn listens_to(&self, group: Ipv6Addr) -> bool {
        group == ALL_NODES || self.groups.has(group)
    }

    /// Hears a packet, from its IPv6 header on, which may be a query. `random` spreads the answers of many hosts.
    pub fn hear(&mut self, packet: &[u8], random: u16, now: Instant) {
        let Some(packet) = Packet::parse(packet) else {
            return;
        };
        let right = packet.upper().is_ok_and(|upper| {
            upper.protocol == ICMP && icmp::verify(packet.source, packet.destination, upper.payload)
        });
        if right {
            self.heard(&packet, random, now);
        }
    }

    /// Hears the query in a packet (its checksum is right). `random` spreads the answers of many hosts.
    pub(crate) fn heard(&mut self, packet: &Packet<'_>, random: u16, now: Instant) {
        let Some((group, delay, is_old)) = query(packet) else {
            return;
        };
        if is_old {
            self.one = Some(now);
        }
        if group.is_unspecified() || self.listens_to(group) {
            self.groups.asked(delay, random, now);
        }
    }

    /// The report to be sent now, from our link-local address `source` (or none, RFC 3590). To be asked for again in the next turn.
    pub fn due(&mut self, source: Ipv6Addr, random: u16, now: Instant) -> Option<Vec<u8>> {
        let records = self.groups.due(random, now);
        if self.one.is_some_and(|heard| now < heard + OLDER) {
            for (kind, group) in records {
                match self.waiting.iter_mut().find(|(_, one)| *one == group) {
                    Some(waiting) => waiting.0 = kind,
                    None => self.waiting.push((kind, group)),
                }
            }
        } else if !records.is_empty() {
            return Some(report(source, &records));
        }
        if self.waiting.is_empty() {
            return None;
        }
        let (kind, group) = self.waiting.remove(0);
        Some(report_1(source, kind, group))
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        if self.waiting.is_empty() {
            self.groups.poll_at()
        } else {
            // At once.
            self.one
        }
    }
}

/// The group asked for, the longest delay of the answer, and whether version 1 asks, when all is right by sections 5.1.14 and 6.2.
fn query(packet: &Packet<'_>) -> Option<(Ipv6Addr, Duration, bool)> {
    let upper = packet.upper().ok()?;
    let message = upper.payload;
    let [kind, _, _, _, code_high, code_low, _, _] = array(message, 0)?;
    let group = Ipv6Addr::from(be128(message, 8)?);
    let is_old = message.len() == QUERY_1_LEN;
    let right = upper.protocol == ICMP
        && kind == QUERY
        && packet.source.is_unicast_link_local()
        && packet.hop_limit == 1
        && upper.router_alert
        && !upper.fragmented
        && (is_old || message.len() >= 28);
    let code = u32::from(u16::from_be_bytes([code_high, code_low]));
    let millis = match code {
        _ if code < 0x8000 || is_old => code,
        _ => (code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3),
    };
    right.then_some((group, Duration::from_millis(millis.into()), is_old))
}

fn report(source: Ipv6Addr, records: &[(u8, Ipv6Addr)]) -> Vec<u8> {
    let mut message = Vec::from([REPORT, 0, 0, 0, 0, 0, 0, records.len() as u8]);
    for (kind, group) in records {
        message.extend([*kind, 0, 0, 0]);
        message.extend(group.octets());
    }
    sealed(source, ALL_MLD_ROUTERS, message)
}

/// What version 1 says of a group.
fn report_1(source: Ipv6Addr, kind: u8, group: Ipv6Addr) -> Vec<u8> {
    let (to, kind) = match kind {
        CHANGE_TO_INCLUDE => (ALL_ROUTERS, DONE_1),
        _ => (group, REPORT_1),
    };
    let mut message = Vec::from([kind, 0, 0, 0, 0, 0, 0, 0]);
    message.extend(group.octets());
    sealed(source, to, message)
}

/// The packet of a message whose checksum is still zero.
fn sealed(source: Ipv6Addr, to: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    icmp::seal(source, to, &mut message);
    message.splice(0..0, router_alert(ICMP));
    packet(source, to, 0, 1, &message)
}

#[cfg(test)]
mod tests {
    use super::super::header;
    use super::*;
    use crate::membership::GROUPS;
    use crate::packet::PROTOCOL_UDP;
    use proptest::prelude::*;
    use std::vec;

    const US: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const NONE: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    fn group(last: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, last)
    }

    /// The records of a report, all of it checked.
    fn records(bytes: &[u8]) -> Vec<(u8, Ipv6Addr)> {
        let packet = Packet::parse(bytes).unwrap();
        assert_eq!((packet.source, packet.destination), (US, ALL_MLD_ROUTERS));
        assert_eq!(packet.hop_limit, 1);
        let upper = packet.upper().unwrap();
        assert!(upper.router_alert && upper.protocol == ICMP);
        assert!(icmp::verify(
            packet.source,
            packet.destination,
            upper.payload
        ));
        let (head, rest) = upper.payload.split_at(8);
        assert_eq!((head[0], usize::from(head[7])), (143, rest.len() / 20));
        let records = rest.chunks(20).map(|record| {
            assert_eq!(record[1..4], [0; 3]);
            (record[0], Ipv6Addr::from(array::<16>(record, 4).unwrap()))
        });
        records.collect()
    }

    fn due(mld: &mut Mld, ms: i64) -> Option<Vec<(u8, Ipv6Addr)>> {
        mld.due(US, 0x8000, at(ms)).map(|bytes| records(&bytes))
    }

    /// The next report of version 1, all of it checked: its type, whom it goes to, and its group.
    fn due_1(mld: &mut Mld, ms: i64) -> Option<(u8, Ipv6Addr, Ipv6Addr)> {
        let bytes = mld.due(US, 0x8000, at(ms))?;
        let packet = Packet::parse(&bytes).unwrap();
        let (to, message) = (packet.destination, packet.upper().unwrap().payload);
        assert!(icmp::verify(US, to, message));
        assert_eq!((message.len(), packet.hop_limit), (24, 1));
        let group = Ipv6Addr::from(array::<16>(message, 8).unwrap());
        Some((message[0], to, group))
    }

    fn query(group: Ipv6Addr, code: u16, len: usize) -> Vec<u8> {
        let mut message = vec![130, 0, 0, 0];
        message.extend(code.to_be_bytes());
        message.extend([0, 0]);
        message.extend(group.octets());
        message.resize(len, 0);
        [&router_alert(ICMP)[..], &message].concat()
    }

    fn hear(mld: &mut Mld, payload: &[u8]) {
        let bytes = header::packet(ROUTER, ALL_NODES, 0, 1, payload);
        mld.heard(&Packet::parse(&bytes).unwrap(), 0x8000, at(10_000));
    }

    /// Two groups, reported.
    fn listener() -> Mld {
        let mut mld = Mld::default();
        mld.set([group(1), group(2)].into_iter(), at(0));
        assert!(due(&mut mld, 0).is_some() && due(&mut mld, 9000).is_some());
        assert_eq!(mld.poll_at(), None);
        mld
    }

    #[test]
    fn changes_are_told_twice() {
        let mut mld = Mld::default();
        let joins = [(4, group(1)), (4, group(2))];
        let local = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1);
        let all = [group(2), group(1), ALL_NODES, local, group(1)];
        mld.set(all.into_iter(), at(0));
        assert_eq!(due(&mut mld, 0), Some(joins.to_vec()));
        assert_eq!((due(&mut mld, 499), mld.poll_at()), (None, Some(at(500))));
        assert_eq!(due(&mut mld, 500), Some(joins.to_vec()));
        mld.set(all.into_iter(), at(600));
        assert_eq!(mld.poll_at(), None);
        assert!(mld.listens_to(group(1)) && mld.listens_to(ALL_NODES));
        assert!(!mld.listens_to(group(3)));
        mld.set([group(2), group(3)].into_iter(), at(1000));
        assert!(!mld.listens_to(group(1)));
        let changes = [(3, group(1)), (4, group(3))].to_vec();
        assert_eq!(due(&mut mld, 1000), Some(changes.clone()));
        assert_eq!(due(&mut mld, 1500), Some(changes));
        assert_eq!(due(&mut mld, 9999), None);
        // Left and joined again before anybody was told twice.
        mld.set([group(2)].into_iter(), at(2000));
        due(&mut mld, 2000);
        mld.set([group(2), group(3)].into_iter(), at(2001));
        assert_eq!(due(&mut mld, 2001), Some(vec![(4, group(3))]));
    }

    #[test]
    fn no_more_groups_than_fit() {
        let mut mld = Mld::default();
        let many = (0..100).map(|last| group(last / 2));
        mld.set(many, at(0));
        assert_eq!(due(&mut mld, 0).unwrap().len(), GROUPS);
    }

    #[test]
    fn queries_are_answered() {
        let answer = [(2, group(1)), (2, group(2))].to_vec();
        // Group, maximum response code, length; half of the delay.
        for (asked, code, len, delay) in [
            (NONE, 1000, 28, 500),
            (group(1), 1000, 28, 500),
            (NONE, 0x8000, 28, 16_384),
            (NONE, 0x9fff, 28, 0x1fff << 3),
        ] {
            let mut mld = listener();
            hear(&mut mld, &query(asked, code, len));
            assert_eq!(mld.poll_at(), Some(at(10_000 + delay)));
            assert_eq!(due(&mut mld, 10_000 + delay - 1), None);
            assert_eq!(due(&mut mld, 10_000 + delay), Some(answer.clone()));
            assert_eq!(mld.poll_at(), None);
        }
        // A later query does not put off an answer.
        let mut mld = listener();
        hear(&mut mld, &query(NONE, 1000, 28));
        hear(&mut mld, &query(NONE, 30_000, 28));
        assert_eq!(mld.poll_at(), Some(at(10_500)));
    }

    /// RFC 3810, section 8.2.1: for 260 s all speak version 1 (RFC 2710), which has a packet for each group.
    #[test]
    fn who_asks_by_version_1_is_answered_by_it() {
        let mut mld = listener();
        let heard = |mld: &mut Mld, ms: i64| {
            let mut heard: Vec<_> = core::iter::from_fn(|| due_1(mld, ms)).collect();
            heard.sort_unstable();
            heard
        };
        let (one, two) = (group(1), group(2));
        let joined = [(131, one, one), (131, two, two)];
        for (code, delay) in [(1000, 500), (0x9ffe, 0x4fff)] {
            hear(&mut mld, &query(NONE, code, 24));
            assert_eq!(mld.poll_at(), Some(at(10_000 + delay)));
            assert!(heard(&mut mld, 10_000 + delay - 1).is_empty());
            assert_eq!(heard(&mut mld, 10_000 + delay), joined);
            assert_eq!(mld.poll_at(), None);
        }
        mld.set([one].into_iter(), at(50_000));
        for ms in [50_000, 51_000] {
            assert_eq!(heard(&mut mld, ms), [(132, ALL_ROUTERS, two)]);
        }
        mld.set([one, two, group(3)].into_iter(), at(60_000));
        assert!(mld.due(US, 0x8000, at(60_000)).is_some());
        // The other packet is due in the next turn.
        assert!(mld.poll_at().is_some_and(|due| due <= at(60_000)));
        assert_eq!(heard(&mut mld, 60_000).len(), 1);
        assert_eq!(heard(&mut mld, 269_999).len(), 2);
        hear(&mut mld, &query(NONE, 1000, 28));
        let all = [(2, one), (2, two), (2, group(3))].to_vec();
        assert_eq!(due(&mut mld, 270_000), Some(all));
    }

    /// Each group waits once, and has its turn.
    #[test]
    fn a_flood_of_queries_of_version_1_has_no_more_answers_than_groups() {
        let mut mld = listener();
        for round in 0..100 {
            hear(&mut mld, &query(NONE, 0, 24));
            let group = group(1 + round % 2);
            assert_eq!(due_1(&mut mld, 10_000), Some((131, group, group)));
        }
        assert_eq!(mld.waiting.len(), 1);
    }

    #[test]
    fn all_that_waits_by_version_1_is_told_as_it_is_now() {
        let (one, two) = (group(1), group(2));
        let left = |group| Some((132, ALL_ROUTERS, group));
        let joined = |group| Some((131, group, group));
        let leaving = || {
            let mut mld = listener();
            hear(&mut mld, &query(NONE, 0, 24));
            while due_1(&mut mld, 10_000).is_some() {}
            mld.set(core::iter::empty(), at(20_000));
            mld
        };
        let mut mld = leaving();
        for ms in [20_000, 21_000] {
            for group in [one, two] {
                assert!(!mld.is_empty());
                assert_eq!(due_1(&mut mld, ms), left(group));
            }
        }
        assert!(mld.is_empty());
        // Joined again before both were told.
        let mut mld = leaving();
        assert_eq!(due_1(&mut mld, 20_000), left(one));
        mld.set([one, two].into_iter(), at(20_000));
        for expected in [joined(two), joined(one), None] {
            assert_eq!(due_1(&mut mld, 20_000), expected);
        }
    }

    #[test]
    fn wrong_queries_are_not() {
        let right = query(NONE, 1000, 28);
        let bytes = |source, hop_limit, payload: &[u8]| {
            header::packet(source, ALL_NODES, 0, hop_limit, payload)
        };
        let global = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        let mut no_alert = right.clone();
        no_alert[2] = 1;
        let mut report = right.clone();
        report[8] = 143;
        let mut udp = right.clone();
        udp[0] = PROTOCOL_UDP;
        let mut fragmented = right.clone();
        fragmented[0] = 44;
        fragmented.splice(8..8, [ICMP, 0, 0, 0, 0, 0, 0, 0]);
        for wrong in [
            bytes(global, 1, &right),
            bytes(NONE, 1, &right),
            bytes(ROUTER, 2, &right),
            bytes(ROUTER, 1, &no_alert),
            bytes(ROUTER, 1, &report),
            bytes(ROUTER, 1, &udp),
            bytes(ROUTER, 1, &fragmented),
            bytes(ROUTER, 1, &query(NONE, 1000, 23)),
            bytes(ROUTER, 1, &query(NONE, 1000, 27)),
            bytes(ROUTER, 1, &query(group(3), 1000, 28)),
            bytes(ROUTER, 1, &query(global, 1000, 28)),
        ] {
            let mut mld = listener();
            mld.heard(&Packet::parse(&wrong).unwrap(), 0, at(10_000));
            assert_eq!(mld.poll_at(), None, "{wrong:?}");
        }
    }

    #[test]
    fn whole_packets_are_heard_when_their_sum_is_right() {
        let mut message = query(NONE, 1000, 28)[8..].to_vec();
        icmp::seal(ROUTER, ALL_NODES, &mut message);
        let payload = [&router_alert(ICMP)[..], &message].concat();
        let right = header::packet(ROUTER, ALL_NODES, 0, 1, &payload);
        for spoiled in [None, Some(0), Some(30), Some(70)] {
            let mut bytes = right.clone();
            if let Some(place) = spoiled {
                bytes[place] ^= 0x10;
            }
            let mut mld = listener();
            mld.hear(&bytes, 0, at(10_000));
            let heard = mld.poll_at().is_some();
            assert_eq!(heard, spoiled.is_none(), "{spoiled:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(payload: Vec<u8>, random: u16) {
            let mut mld = listener();
            let bytes = header::packet(ROUTER, ALL_NODES, 0, 1, &payload);
            mld.heard(&Packet::parse(&bytes).unwrap(), random, at(0));
            let alert = [&router_alert(ICMP)[..], &[130, 0], &payload].concat();
            let bytes = header::packet(ROUTER, ALL_NODES, 0, 1, &alert);
            mld.heard(&Packet::parse(&bytes).unwrap(), random, at(0));
            mld.due(US, random, at(10_000_000));
        }
    }
}
