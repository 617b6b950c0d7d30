//! What routers say of the network (RFC 4861, RFC 4191, RFC 8106): who they are, which prefixes are on the link, what is
//! sent where.
//!
//! Who is on the link can forge a router's words, and nothing here can tell. What is bounded: nothing grows by a flood, a router is removed by
//! itself alone (or when it no longer answers, never by a neighbour advertisement without the router flag), the hop limit is
//! not taken over, and the MTU stays between 1280 and the card's.

use super::lifetime::TimedList;
use super::ndisc::{Redirect, RouterAdvertisement, router_solicitation};
use super::{icmp, same_prefix};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use wireboot_nic::MacAddress;
use wireboot_tcp::{Duration, Instant};

/// How many are kept of each.
const ROUTERS: usize = 4;
const PREFIXES: usize = 8;
const SERVERS: usize = 4;
const NAMES: usize = 8;
const REDIRECTS: usize = 16;
/// RTR_SOLICITATION_INTERVAL (RFC 4861, section 10). Routers are asked until one is heard (RFC 7559), as a switch port may forward nothing
/// for most of a minute. Not ever less often: a boot is short.
const INTERVAL: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug)]
struct Router {
    address: Ipv6Addr,
    until: Instant,
    preference: i8,
    /// Did not answer when it was last asked for.
    failed: bool,
}

pub(crate) struct Routers {
    mac: MacAddress,
    nic_mtu: u16,
    routers: Vec<Router>,
    /// Until `told`, what [`Self::given`] supposes.
    on_link: TimedList<(Ipv6Addr, u8)>,
    /// A router or a prefix was heard of.
    told: bool,
    pub dns: TimedList<Ipv6Addr>,
    pub search: TimedList<String>,
    /// Destination and the first hop to it.
    redirects: Vec<(Ipv6Addr, Ipv6Addr)>,
    mtu: Option<u16>,
    /// When the next solicitation is sent, as long as no router was heard.
    next: Option<Instant>,
    /// Addresses by DHCPv6, as the last advertisement said.
    pub managed: bool,
    /// Other things by DHCPv6, as the last advertisement said.
    pub other: bool,
    pub heard_at: Option<Instant>,
}

impl Routers {
    pub(crate) fn new(mac: MacAddress, nic_mtu: u16, now: Instant) -> Self {
        Self {
            mac,
            nic_mtu,
            routers: Vec::new(),
            on_link: TimedList::new(PREFIXES),
            told: false,
            dns: TimedList::new(SERVERS),
            search: TimedList::new(NAMES),
            redirects: Vec::new(),
            mtu: None,
            next: Some(now),
            managed: false,
            other: false,
            heard_at: None,
        }
    }

    /// Takes a checked advertisement.
    pub(crate) fn heard(&mut self, source: Ipv6Addr, said: &RouterAdvertisement, now: Instant) {
        self.heard_at = Some(now);
        self.managed = said.managed;
        self.other = said.other;
        let mtu = said.mtu.and_then(|mtu| u16::try_from(mtu).ok());
        let possible = icmp::MIN_MTU..=self.nic_mtu;
        self.mtu = mtu.filter(|mtu| possible.contains(mtu)).or(self.mtu);
        if !self.told && (said.router_lifetime != 0 || !said.prefixes.is_empty()) {
            self.told = true;
            self.on_link = TimedList::new(PREFIXES);
        }
        self.heard_router(source, said, now);
        for prefix in &said.prefixes {
            let of_use = !prefix.prefix.is_unicast_link_local() && !prefix.prefix.is_multicast();
            if prefix.on_link && of_use {
                let key = (prefix.prefix, prefix.prefix_len);
                self.on_link.hear(key, prefix.valid_lifetime, now);
            }
        }
        for (server, lifetime) in &said.dns {
            self.dns.hear(*server, *lifetime, now);
        }
        for (name, lifetime) in &said.search {
            self.search.hear(name.clone(), *lifetime, now);
        }
    }

    fn heard_router(&mut self, source: Ipv6Addr, said: &RouterAdvertisement, now: Instant) {
        let lives = said.router_lifetime != 0;
        self.routers
            .retain(|router| now < router.until && (lives || router.address != source));
        if !lives {
            self.redirects.retain(|(_, hop)| *hop != source);
            return;
        }
        self.next = None;
        let router = Router {
            address: source,
            until: now + Duration::from_secs(said.router_lifetime.into()),
            preference: said.preference,
            failed: false,
        };
        let room = self.routers.len() < ROUTERS;
        let mut routers = self.routers.iter_mut();
        match routers.find(|known| known.address == source) {
            Some(known) => *known = router,
            None if room => self.routers.push(router),
            None => {}
        }
    }

    /// DHCPv6 has given `address`. That implies no prefix (RFC 5942, section 4), but a network may have no router advertisements and a
    /// boot server on the link. As the last resort, where all would be unreachable otherwise, the /64 of the address counts as on the link,
    /// until a router or a prefix is heard of.
    pub(crate) fn given(&mut self, address: Ipv6Addr, now: Instant) {
        if !self.told {
            self.on_link.hear((address, 64), u32::MAX, now);
        }
    }

    /// Takes a checked redirect. False when it is not from the first hop to that destination (RFC 4861, section 8.1).
    pub(crate) fn heard_redirect(
        &mut self,
        source: Ipv6Addr,
        redirect: &Redirect,
        now: Instant,
    ) -> bool {
        let of_router = self.routers.iter().any(|router| router.address == source);
        if !of_router || self.next_hop(redirect.destination, now) != Some(source) {
            return false;
        }
        self.redirects.retain(|(to, _)| *to != redirect.destination);
        if self.redirects.len() == REDIRECTS {
            self.redirects.remove(0);
        }
        self.redirects.push((redirect.destination, redirect.target));
        true
    }

    /// A neighbour did not answer: another router is tried, redirects to it are forgotten.
    pub(crate) fn unreachable(&mut self, neighbor: Ipv6Addr) {
        self.redirects.retain(|(_, hop)| *hop != neighbor);
        for router in &mut self.routers {
            router.failed |= router.address == neighbor;
        }
    }

    /// Whom a packet to the unicast address `destination` is handed to.
    pub(crate) fn next_hop(&self, destination: Ipv6Addr, now: Instant) -> Option<Ipv6Addr> {
        let mut on_link = self.on_link.iter(now);
        if destination.is_unicast_link_local()
            || on_link.any(|(prefix, len)| same_prefix(*prefix, destination, *len))
        {
            return Some(destination);
        }
        if let Some((_, hop)) = self.redirects.iter().find(|(to, _)| *to == destination) {
            return Some(*hop);
        }
        // The first of the best.
        let live = self.routers.iter().filter(|router| now < router.until);
        live.rev()
            .max_by_key(|router| (!router.failed, router.preference))
            .map(|router| router.address)
    }

    /// Whether there is a router, or a prefix on the link that one has told: more than link-local addresses can be reached.
    pub(crate) fn has_route(&self, now: Instant) -> bool {
        let routers = || self.routers.iter().any(|router| now < router.until);
        self.told && (self.on_link.iter(now).next().is_some() || routers())
    }

    /// The link's MTU in bytes: what a router has said, else the NIC's.
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu.unwrap_or(self.nic_mtu)
    }

    /// The solicitation to be sent now. `source`: our link-local address and whether it is optimistic.
    pub(crate) fn due(
        &mut self,
        source: Option<(Ipv6Addr, bool)>,
        now: Instant,
    ) -> Option<Vec<u8>> {
        if self.next.is_none_or(|at| now < at) {
            return None;
        }
        self.next = Some(now + INTERVAL);
        let mac = matches!(source, Some((_, false))).then_some(self.mac);
        let source = source.map_or(Ipv6Addr::UNSPECIFIED, |(address, _)| address);
        Some(router_solicitation(source, mac))
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::super::ndisc::PrefixInformation;
    use super::*;
    use std::vec;

    const MAC: MacAddress = [2, 0, 0, 0, 0, 1];

    fn at(second: i64) -> Instant {
        Instant::from_secs(second)
    }

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn router(last: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last)
    }

    fn lives(router_lifetime: u16) -> RouterAdvertisement {
        RouterAdvertisement {
            router_lifetime,
            ..RouterAdvertisement::default()
        }
    }

    fn routers() -> Routers {
        Routers::new(MAC, 1500, at(0))
    }

    fn hop(routers: &Routers, destination: &str, second: i64) -> Option<Ipv6Addr> {
        routers.next_hop(ip(destination), at(second))
    }

    #[test]
    fn solicitations_until_a_router_is_heard() {
        let mut quiet = routers();
        let times: Vec<i64> = (0..60)
            .filter(|second| quiet.due(Some((router(9), false)), at(*second)).is_some())
            .collect();
        assert!(times.iter().copied().eq((0..60).step_by(4)), "{times:?}");
        assert_eq!(quiet.poll_at(), Some(at(60)));
        let mut heard = routers();
        assert!(heard.due(None, at(0)).is_some());
        // One who is no router does not end it (section 6.3.7).
        heard.heard(router(1), &lives(0), at(1));
        assert_eq!(heard.poll_at(), Some(at(4)));
        heard.heard(router(1), &lives(60), at(1));
        assert_eq!(heard.due(None, at(4)), None);
    }

    #[test]
    fn a_solicitation_names_the_card_only_for_a_unique_address() {
        let asked = |source| routers().due(source, at(0)).unwrap();
        assert_eq!(
            asked(None),
            router_solicitation(Ipv6Addr::UNSPECIFIED, None)
        );
        let us = router(9);
        assert_eq!(asked(Some((us, true))), router_solicitation(us, None));
        assert_eq!(asked(Some((us, false))), router_solicitation(us, Some(MAC)));
    }

    #[test]
    fn the_best_router_that_answers() {
        let mut routers = routers();
        assert_eq!(hop(&routers, "2001:db8::1", 0), None);
        let with = |preference| RouterAdvertisement {
            preference,
            ..lives(100)
        };
        for (last, preference) in [(1, -1), (2, 0), (3, 0)] {
            routers.heard(router(last), &with(preference), at(0));
        }
        assert_eq!(hop(&routers, "2001:db8::1", 0), Some(router(2)));
        assert_eq!(hop(&routers, "fe80::77", 0), Some(ip("fe80::77")));
        routers.unreachable(router(2));
        assert_eq!(hop(&routers, "2001:db8::1", 0), Some(router(3)));
        routers.unreachable(router(3));
        assert_eq!(hop(&routers, "2001:db8::1", 0), Some(router(1)));
        routers.heard(router(3), &with(0), at(50));
        assert_eq!(hop(&routers, "2001:db8::1", 100), Some(router(3)));
        assert_eq!(hop(&routers, "2001:db8::1", 149), Some(router(3)));
        assert_eq!(hop(&routers, "2001:db8::1", 150), None);
    }

    /// A router is removed by its own words alone, and a flood of routers does not drive one out.
    #[test]
    fn spoofed_routers() {
        let mut routers = routers();
        routers.heard(router(1), &lives(100), at(0));
        routers.heard(router(2), &lives(0), at(1));
        for last in 2..100 {
            routers.heard(router(last), &lives(u16::MAX), at(1));
        }
        assert_eq!(routers.routers.len(), ROUTERS);
        assert_eq!(hop(&routers, "2001:db8::1", 2), Some(router(1)));
        routers.heard(router(1), &lives(0), at(2));
        assert_ne!(hop(&routers, "2001:db8::1", 2), Some(router(1)));
    }

    #[test]
    fn spoofed_parameters() {
        let mut routers = routers();
        let mut hear = |mtu| {
            let said = RouterAdvertisement {
                mtu: Some(mtu),
                ..lives(9)
            };
            routers.heard(router(1), &said, at(0));
            routers.mtu()
        };
        assert_eq!(hear(1279), 1500);
        assert_eq!(hear(1501), 1500);
        assert_eq!(hear(1280), 1280);
        assert_eq!(hear(65536 + 1400), 1280);
        assert_eq!(hear(1500), 1500);
    }

    #[test]
    fn prefixes_on_the_link() {
        let mut routers = routers();
        let hear = |routers: &mut Routers, prefix, prefix_len, on_link, valid_lifetime| {
            let information = PrefixInformation {
                prefix: ip(prefix),
                prefix_len,
                on_link,
                autonomous: false,
                valid_lifetime,
                preferred_lifetime: 0,
            };
            let said = RouterAdvertisement {
                prefixes: vec![information],
                ..lives(1000)
            };
            routers.heard(router(1), &said, at(0));
        };
        hear(&mut routers, "2001:db8:1::", 48, true, 100);
        hear(&mut routers, "2001:db8:2::", 64, false, 100);
        for wrong in ["ff00::", "fe80::"] {
            hear(&mut routers, wrong, 0, true, 100);
        }
        let near = ip("2001:db8:1:5::9");
        assert_eq!(hop(&routers, "2001:db8:1:5::9", 99), Some(near));
        assert_eq!(hop(&routers, "2001:db8:1:5::9", 100), Some(router(1)));
        assert_eq!(hop(&routers, "2001:db8:2::9", 0), Some(router(1)));
        hear(&mut routers, "2001:db8:1::", 48, true, 0);
        assert_eq!(hop(&routers, "2001:db8:1:5::9", 0), Some(router(1)));
    }

    /// A router that is none for us leads nowhere (RFC 4861, section 6.3.4).
    #[test]
    fn what_leads_beyond_the_link() {
        let mut routers = routers();
        routers.heard(router(1), &lives(0), at(0));
        assert!(routers.heard_at.is_some() && !routers.has_route(at(0)));
        routers.heard(router(2), &lives(10), at(0));
        assert!(routers.has_route(at(9)) && !routers.has_route(at(10)));
        let information = PrefixInformation {
            prefix: ip("2001:db8::"),
            prefix_len: 64,
            on_link: true,
            autonomous: false,
            valid_lifetime: 5,
            preferred_lifetime: 0,
        };
        let said = RouterAdvertisement {
            prefixes: vec![information],
            ..lives(0)
        };
        routers.heard(router(1), &said, at(20));
        assert!(routers.has_route(at(24)) && !routers.has_route(at(25)));
    }

    /// The last resort of RFC 5942's hosts: no router and no prefix was ever heard of.
    #[test]
    fn the_network_of_an_address_is_on_the_link_while_nobody_tells_of_one() {
        let prefix = |on_link| PrefixInformation {
            prefix: ip("2001:db8::"),
            prefix_len: 64,
            on_link,
            autonomous: false,
            valid_lifetime: 5,
            preferred_lifetime: 0,
        };
        let with = |prefixes, router_lifetime| RouterAdvertisement {
            managed: true,
            prefixes,
            ..lives(router_lifetime)
        };
        let (near, local) = (ip("fd00::1"), ip("fd00:0:0:2::1"));
        for (said, beyond) in [
            (with(vec![], 10), Some(router(1))),
            (with(vec![prefix(true)], 0), None),
            (with(vec![prefix(false)], 0), None),
        ] {
            let mut routers = routers();
            assert_eq!(hop(&routers, "fd00::1", 0), None);
            for address in ["fd00::ffff:1:2:3", "fd00:0:0:2::1000"] {
                routers.given(ip(address), at(0));
            }
            // One who is no router and tells of no prefix.
            routers.heard(router(2), &with(vec![], 0), at(1));
            assert_eq!(hop(&routers, "fd00::1", 1_000_000), Some(near));
            assert_eq!(hop(&routers, "fd00:0:0:2::1", 1), Some(local));
            assert_eq!(hop(&routers, "fd00:0:0:1::1", 1), None);
            assert_eq!(hop(&routers, "2001:db8::1", 1), None);
            assert!(!routers.has_route(at(1)), "routers are waited for");
            routers.heard(router(1), &said, at(2));
            routers.given(ip("fd00::1000"), at(3));
            assert_eq!(hop(&routers, "fd00::1", 3), beyond);
            // Not even when what was heard of has ended.
            assert_eq!(hop(&routers, "fd00::1", 20), None);
        }
    }

    #[test]
    fn name_servers_and_names() {
        let mut routers = routers();
        let said = RouterAdvertisement {
            managed: true,
            other: true,
            dns: (1..9).map(|last| (router(last), 10)).collect(),
            search: vec![("example".into(), 20)],
            ..lives(9)
        };
        routers.heard(router(1), &said, at(0));
        assert_eq!(routers.dns.iter(at(9)).count(), SERVERS);
        assert_eq!(routers.dns.iter(at(10)).count(), 0);
        assert_eq!(routers.search.iter(at(19)).collect::<Vec<_>>(), ["example"]);
        assert!(routers.managed && routers.other);
        routers.heard(router(1), &lives(9), at(1));
        assert!(!routers.managed && !routers.other);
        assert_eq!(routers.heard_at, Some(at(1)));
    }

    #[test]
    fn spoofed_redirects() {
        let mut routers = routers();
        let redirect = |target, destination| Redirect {
            target,
            destination,
            target_link: None,
        };
        let (far, other) = (ip("2001:db8::1"), ip("2001:db8::2"));
        let better = redirect(router(7), far);
        // From nobody, from a host, from a router that is not the first hop.
        assert!(!routers.heard_redirect(router(1), &better, at(0)));
        routers.heard(router(1), &lives(100), at(0));
        routers.heard(router(2), &lives(100), at(0));
        assert!(!routers.heard_redirect(router(2), &better, at(0)));
        assert!(!routers.heard_redirect(router(7), &better, at(0)));
        assert_eq!(routers.next_hop(far, at(0)), Some(router(1)));
        // A host's own address, for which the host is the first hop.
        assert!(!routers.heard_redirect(router(8), &redirect(router(7), router(8)), at(0)));
        assert!(routers.heard_redirect(router(1), &better, at(0)));
        assert_eq!(routers.next_hop(far, at(0)), Some(router(7)));
        assert_eq!(routers.next_hop(other, at(0)), Some(router(1)));
        // The first hop is another one now, and no router.
        assert!(!routers.heard_redirect(router(1), &better, at(0)));
        assert!(!routers.heard_redirect(router(7), &redirect(router(6), far), at(0)));
        routers.unreachable(router(7));
        assert_eq!(routers.next_hop(far, at(0)), Some(router(1)));
        // To another router, which knows a better one; then that one is a router no longer.
        assert!(routers.heard_redirect(router(1), &redirect(router(2), far), at(0)));
        assert!(routers.heard_redirect(router(2), &better, at(0)));
        assert_eq!(routers.next_hop(far, at(0)), Some(router(7)));
        routers.heard(router(7), &lives(0), at(0));
        assert_eq!(routers.next_hop(far, at(0)), Some(router(1)));
        for last in 0..100 {
            let destination = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, last);
            assert!(routers.heard_redirect(router(1), &redirect(router(7), destination), at(0)));
        }
        assert_eq!(routers.redirects.len(), REDIRECTS);
        // An expired router's word counts no longer.
        assert!(!routers.heard_redirect(router(1), &redirect(router(7), far), at(100)));
    }
}
