//! IGMP version 3, the listener's side (RFC 3376), and what it falls back to where a querier speaks version 2 (RFC 2236) or 1: switches
//! that snoop deliver a group only to who has reported it.
//!
//! A query that concerns us is answered for all our groups, whichever it asked for.

use crate::checksum::compute;
use crate::membership::{CHANGE_TO_INCLUDE, Membership};
use crate::packet::{array, be16, put};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use wireboot_tcp::{Duration, Instant};

const IGMP: u8 = 2;
const QUERY: u8 = 0x11;
const REPORT_1: u8 = 0x12;
const REPORT_2: u8 = 0x16;
const LEAVE_2: u8 = 0x17;
const REPORT_3: u8 = 0x22;

/// Which everybody listens to, and nobody reports.
const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Who hears that a group of version 2 is left.
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Who hears reports of version 3.
const ALL_IGMP_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

/// Option of a packet that routers have to look at (RFC 2113).
const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
const HEADER: usize = 20;
/// Largest fragment offset and the flag that more follow.
const FRAGMENT: u16 = 0x3fff;
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];
/// Precedence of what networks send for themselves (RFC 3376, section 4).
const INTERNETWORK_CONTROL: u8 = 0xc0;

/// How long an answer to version 1 may take (RFC 2236, section 4).
const DELAY_1: Duration = Duration::from_secs(10);
/// Older Version Querier Present Timeout (RFC 3376, section 8.12).
const OLDER: Duration = Duration::from_secs(260);

#[derive(Clone, Copy, PartialEq, Eq)]
enum IgmpVersion {
    One,
    Two,
    Three,
}

struct Query {
    version: IgmpVersion,
    group: Ipv4Addr,
    delay: Duration,
}

/// The groups that a host without routing listens to, told to routers and switches.
#[derive(Default)]
pub struct Igmp {
    groups: Membership<Ipv4Addr>,
    /// Until when queriers of versions 1 and 2 are about.
    one: Option<Instant>,
    two: Option<Instant>,
}

impl Igmp {
    /// The groups listened to are now these.
    pub fn set(&mut self, groups: impl Iterator<Item = Ipv4Addr>, now: Instant) {
        let reported = |group: &Ipv4Addr| group.is_multicast() && *group != ALL_SYSTEMS;
        self.groups.set(groups.filter(reported), now);
    }

    /// Whether no group is listened to, and there is nothing more to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Hears a packet, from its IPv4 header on, which may be a query. `random` spreads the answers of many hosts.
    pub fn hear(&mut self, packet: &[u8], random: u16, now: Instant) {
        let Some(query) = query(packet) else { return };
        let until = Some(now + OLDER);
        match query.version {
            IgmpVersion::One => self.one = until,
            IgmpVersion::Two => self.two = until,
            IgmpVersion::Three => {}
        }
        if query.group.is_unspecified() || self.groups.has(query.group) {
            self.groups.asked(query.delay, random, now);
        }
    }

    /// The oldest version that a querier speaks (RFC 3376, section 7.2.1).
    fn version(&self, now: Instant) -> IgmpVersion {
        let lasts = |until: Option<Instant>| until.is_some_and(|until| now < until);
        match (lasts(self.one), lasts(self.two)) {
            (true, _) => IgmpVersion::One,
            (_, true) => IgmpVersion::Two,
            _ => IgmpVersion::Three,
        }
    }

    /// The packets to be sent now, from `source`, which may be unspecified.
    pub fn due(&mut self, source: Ipv4Addr, random: u16, now: Instant) -> Vec<Vec<u8>> {
        let records = self.groups.due(random, now);
        let version = self.version(now);
        let older = |&(kind, group): &(u8, Ipv4Addr)| {
            let (to, kind) = match (version, kind == CHANGE_TO_INCLUDE) {
                // Which has no such message.
                (IgmpVersion::One, true) => return None,
                (IgmpVersion::One, false) => (group, REPORT_1),
                (_, true) => (ALL_ROUTERS, LEAVE_2),
                (_, false) => (group, REPORT_2),
            };
            let [a, b, c, d] = group.octets();
            Some(packet(source, to, &[kind, 0, 0, 0, a, b, c, d]))
        };
        if records.is_empty() {
            return Vec::new();
        }
        if version != IgmpVersion::Three {
            return records.iter().filter_map(older).collect();
        }
        let mut report = Vec::from([REPORT_3, 0, 0, 0, 0, 0, 0, records.len() as u8]);
        for (kind, group) in records {
            report.extend([kind, 0, 0, 0]);
            report.extend(group.octets());
        }
        Vec::from([packet(source, ALL_IGMP_ROUTERS, &report)])
    }
}

/// The query in a packet, when all is right by RFC 3376, sections 4.1, 7.1 and 9.1.
fn query(packet: &[u8]) -> Option<Query> {
    let [first, _, _, _, _, _, _, _, ttl, protocol] = array(packet, 0)?;
    let whole = packet.get(..usize::from(be16(packet, 2)?))?;
    let (header, message) = whole.split_at_checked(usize::from(first & 0xf) * 4)?;
    let options = header.get(HEADER..)?;
    let [kind, code, _, _, group @ ..] = array::<8>(message, 0)?;
    let right = first >> 4 == 4
        && compute(0, header) == 0
        && be16(packet, 6)? & FRAGMENT == 0
        && ttl == 1
        && protocol == IGMP
        && compute(0, message) == 0
        && kind == QUERY;
    if !right {
        return None;
    }
    let tenths = |count: u64| Duration::from_millis(count * 100);
    let (version, delay) = match (message.len(), u64::from(code)) {
        (8, 0) => (IgmpVersion::One, DELAY_1),
        (8, code) => (IgmpVersion::Two, tenths(code)),
        (12.., code @ ..0x80) => (IgmpVersion::Three, tenths(code)),
        (12.., code) => (
            IgmpVersion::Three,
            tenths((code & 0xf | 0x10) << ((code >> 4 & 7) + 3)),
        ),
        _ => return None,
    };
    (version == IgmpVersion::One || alerts(options)).then_some(Query {
        version,
        group: group.into(),
        delay,
    })
}

/// Whether a header has the option Router Alert.
fn alerts(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    loop {
        options = match options {
            [] | [END, ..] => return false,
            [NO_OPERATION, rest @ ..] => rest,
            [kind, len, ..] if *len >= 2 => {
                if (*kind, *len) == (ROUTER_ALERT[0], ROUTER_ALERT[1]) {
                    return true;
                }
                options.get(usize::from(*len)..).unwrap_or_default()
            }
            _ => return false,
        };
    }
}

fn packet(source: Ipv4Addr, to: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let len = HEADER + ROUTER_ALERT.len();
    let mut bytes = Vec::from([0x46, INTERNETWORK_CONTROL]);
    bytes.extend(((len + message.len()) as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(DONT_FRAGMENT);
    bytes.extend([1, IGMP, 0, 0]);
    bytes.extend(source.octets());
    bytes.extend(to.octets());
    bytes.extend(ROUTER_ALERT);
    let sum = compute(0, &bytes);
    put(&mut bytes, 10, sum.to_be_bytes());
    bytes.extend_from_slice(message);
    put(&mut bytes, len + 2, compute(0, message).to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests;
