use super::super::header::Packet;
use super::super::ndisc::{Message, parse, router_solicitation};
use super::*;

const MAC: MacAddress = [2, 0, 0, 0, 0, 1];
const OTHER: MacAddress = [2, 0, 0, 0, 0, 2];
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xff);
const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xee);
const NOBODY: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

fn at(second: i64) -> Instant {
    Instant::from_secs(second)
}

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn start() -> Slaac {
    Slaac::new(MAC, 1500, [3; 6], at(0))
}

fn prefix(prefix: &str, preferred_lifetime: u32, valid_lifetime: u32) -> PrefixInformation {
    PrefixInformation {
        prefix: ip(prefix),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime,
        preferred_lifetime,
    }
}

fn hear(slaac: &mut Slaac, prefixes: &[PrefixInformation], second: i64) {
    let said = RouterAdvertisement {
        router_lifetime: 1800,
        prefixes: prefixes.to_vec(),
        ..RouterAdvertisement::default()
    };
    slaac.heard_ra(ROUTER, &said, at(second));
}

/// What is sent at that time.
fn sent(slaac: &mut Slaac, second: i64) -> Vec<Vec<u8>> {
    core::iter::from_fn(|| slaac.due(at(second))).collect()
}

fn read(bytes: &[u8]) -> (Ipv6Addr, Ipv6Addr, Message) {
    let packet = Packet::parse(bytes).unwrap();
    let message = parse(&packet, packet.payload);
    (packet.source, packet.destination, message.unwrap())
}

fn addresses(slaac: &Slaac, second: i64) -> Vec<Ipv6Addr> {
    let candidates = slaac.candidates(at(second));
    candidates.map(|candidate| candidate.address).collect()
}

/// Whether the address is to be avoided; `None` when it is not ours.
fn deprecated(slaac: &Slaac, address: Ipv6Addr, second: i64) -> Option<bool> {
    let mut candidates = slaac.candidates(at(second));
    let candidate = candidates.find(|candidate| candidate.address == address);
    candidate.map(|candidate| candidate.deprecated)
}

fn asks(target: Ipv6Addr) -> NeighborSolicitation {
    NeighborSolicitation {
        target,
        source_link: None,
        nonce: None,
    }
}

fn has(target: Ipv6Addr) -> NeighborAdvertisement {
    NeighborAdvertisement {
        solicited: false,
        override_: true,
        target,
        target_link: Some(OTHER),
    }
}

#[test]
fn the_first_second() {
    let mut slaac = start();
    let us = ip("fe80::ff:fe00:1");
    assert_eq!(slaac.link_local(at(0)), Some(us));
    assert_eq!(slaac.poll_at(at(0)), Some(at(0)));
    let first = sent(&mut slaac, 0);
    let (source, destination, Message::NeighborSolicitation(probe)) = read(&first[0]) else {
        panic!("{first:?}");
    };
    assert_eq!((source, destination), (NOBODY, solicited_node(us)));
    assert_eq!((probe.target, probe.source_link), (us, None));
    // An optimistic source does not tell its Ethernet address.
    assert_eq!(first[1..], [router_solicitation(us, None)]);
    assert_eq!(deprecated(&slaac, us, 0), Some(true));
    let until = Instant::from_millis(20);
    assert_eq!(slaac.optimistic_until(us, at(0)), Some(until));
    assert_eq!(slaac.optimistic_until(us, until), None);
    assert_eq!(slaac.poll_at(at(0)), Some(at(1)));
    assert!(sent(&mut slaac, 1).is_empty());
    assert_eq!(deprecated(&slaac, us, 1), Some(false));
    assert_eq!(slaac.optimistic_until(us, at(1)), None);
    assert_eq!(
        slaac.groups(at(1)).collect::<Vec<_>>(),
        [solicited_node(us)]
    );
    let again = sent(&mut slaac, 4);
    assert_eq!(again, [router_solicitation(us, Some(MAC))]);
}

#[test]
fn addresses_of_several_prefixes() {
    let mut slaac = start();
    let mut other = prefix("2001:db8:2::", 10, 20);
    other.autonomous = false;
    let mut short = prefix("2001:db8:3::", 10, 20);
    short.prefix_len = 56;
    let prefixes = [
        prefix("2001:db8:1::", 10, 20),
        other,
        short,
        prefix("fe80::", 10, 20),
        prefix("2001:db8:4::", 21, 20),
        prefix("2001:db8:5::", 0, 0),
        prefix("ff02::", 10, 20),
        prefix("fd00::", u32::MAX, u32::MAX),
    ];
    hear(&mut slaac, &prefixes, 0);
    hear(&mut slaac, &prefixes, 0);
    let (global, local) = (ip("2001:db8:1::ff:fe00:1"), ip("fd00::ff:fe00:1"));
    let link_local = ip("fe80::ff:fe00:1");
    assert_eq!(addresses(&slaac, 0), [link_local, global, local]);
    assert_eq!(slaac.addresses.len(), 3);
    // All are optimistic.
    assert!(
        slaac
            .candidates(at(0))
            .all(|candidate| candidate.deprecated)
    );
    assert_eq!(sent(&mut slaac, 0).len(), 3);
    sent(&mut slaac, 1);
    assert_eq!(deprecated(&slaac, global, 9), Some(false));
    assert_eq!(deprecated(&slaac, global, 10), Some(true));
    assert_eq!(slaac.optimistic_until(global, at(10)), None);
    assert_eq!(slaac.poll_at(at(10)), Some(at(20)));
    assert_eq!(deprecated(&slaac, global, 20), None);
    assert_eq!(addresses(&slaac, 20), [link_local, local]);
    // No router has a say in this one.
    assert_eq!(deprecated(&slaac, link_local, 1_000_000), Some(false));
    let candidates: Vec<_> = slaac.candidates(at(10)).collect();
    assert!(candidates[1].deprecated && !candidates[2].deprecated);
    assert_eq!(slaac.groups(at(20)).count(), 2);
}

/// RFC 4862, section 5.5.3 e: a forged advertisement does not end an address at once.
#[test]
fn the_two_hour_rule() {
    let hour = 3600;
    // Lifetime that was left, the one said, what comes of it; in seconds.
    for (left, said, becomes) in [
        (4 * hour, 3 * hour, 3 * hour),
        (4 * hour, 5 * hour, 5 * hour),
        (4 * hour, 1, 2 * hour),
        (4 * hour, 0, 2 * hour),
        (u32::MAX, hour, 2 * hour),
        (hour, 1, hour),
        (hour, hour + 1, hour + 1),
        (hour, u32::MAX, u32::MAX),
        (u32::MAX, u32::MAX, u32::MAX),
    ] {
        let mut slaac = start();
        hear(&mut slaac, &[prefix("2001:db8::", left, left)], 0);
        hear(&mut slaac, &[prefix("2001:db8::", 0, said)], 0);
        let known = slaac.addresses[1];
        assert_eq!(known.valid_until, end(becomes, at(0)), "{left} {said}");
        // The preferred lifetime is as it was said last.
        assert_eq!(known.preferred_until, Some(at(0)));
    }
}

#[test]
fn a_flood_of_prefixes() {
    let mut slaac = start();
    for network in 0..100 {
        let prefix = prefix(&std::format!("2001:db8:{network}::"), 10, 20);
        hear(&mut slaac, &[prefix], 0);
    }
    assert_eq!(addresses(&slaac, 0).len(), 1 + FROM_PREFIXES);
    // DHCPv6 still has its place, and what has ended gives way.
    assert!(slaac.add(ip("2001:db8::99"), at(0)));
    hear(&mut slaac, &[prefix("2001:db8:ffff::", 10, 20)], 20);
    assert_eq!(addresses(&slaac, 20).len(), 3);
}

#[test]
fn addresses_by_dhcp() {
    let mut slaac = start();
    let (first, second) = (ip("2001:db8::10"), ip("2001:db8::11"));
    for wrong in [ip("ff02::1"), NOBODY, Ipv6Addr::LOCALHOST] {
        assert!(!slaac.add(wrong, at(0)));
    }
    assert!(slaac.add(first, at(0)));
    assert!(slaac.add(second, at(0)));
    assert!(!slaac.add(ip("2001:db8::12"), at(0)));
    // An advertisement for the same network makes an address of its own and leaves this one alone.
    hear(&mut slaac, &[prefix("2001:db8::", 1000, 1000)], 0);
    assert_eq!(addresses(&slaac, 0).len(), 4);
    assert!(slaac.add(first, at(5)));
    assert_eq!(addresses(&slaac, 1000).len(), 3);
    assert!(slaac.optimistic_until(first, at(1000)).is_some());
    // The one that the advertisement made lasts for ever once DHCPv6 has given it.
    assert!(slaac.add(ip("2001:db8::ff:fe00:1"), at(6)));
    assert_eq!(addresses(&slaac, 1000).len(), 4);
    // Declined: a conflict is not forgotten.
    slaac.heard_na(&has(first), at(6));
    assert!(!slaac.is_ours(first, at(6)));
    assert!(!slaac.add(first, at(6)));
    // It makes room for another one.
    assert!(slaac.add(ip("2001:db8::12"), at(20)));
    assert_eq!(addresses(&slaac, 20).len(), 4);
}

#[test]
fn a_network_without_routers_is_that_of_the_address_by_dhcp() {
    let mut slaac = start();
    let (near, far) = (ip("fd00::1"), ip("fd00:0:0:1::1"));
    let hops = |slaac: &Slaac| [near, far].map(|to| slaac.routers.next_hop(to, at(1)));
    assert_eq!(hops(&slaac), [None, None]);
    // None that a station can have.
    assert!(!slaac.add(NOBODY, at(0)));
    assert!(slaac.add(ip("fd00::1000"), at(0)));
    assert_eq!(hops(&slaac), [Some(near), None]);
    // All is the router's now, however near it looks.
    hear(&mut slaac, &[], 1);
    assert_eq!(hops(&slaac), [Some(ROUTER), Some(ROUTER)]);
    assert!(slaac.add(ip("fd00::1001"), at(1)));
    assert_eq!(hops(&slaac), [Some(ROUTER), Some(ROUTER)]);
}

/// However many addresses others have, the next one may be ours.
#[test]
fn an_address_of_somebody_else_makes_room() {
    let mut slaac = start();
    let given = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    for last in 1..9 {
        assert!(slaac.add(given(last), at(0)));
        slaac.heard_na(&has(given(last)), at(0));
        assert!(slaac.is_duplicate(given(last)));
        // Not made again, and not while it is the last.
        assert!(!slaac.add(given(last), at(0)));
    }
    assert!(!slaac.is_duplicate(given(6)) && slaac.is_duplicate(given(7)));
    assert!(slaac.add(given(10), at(0)));
    assert!(slaac.add(given(11), at(0)));
    assert!(!slaac.add(given(12), at(0)));
    let ours = addresses(&slaac, 0);
    assert_eq!(ours[1..], [given(10), given(11)]);
    assert!(!slaac.is_duplicate(given(10)) && !slaac.is_duplicate(given(12)));
}

#[test]
fn a_neighbour_asks() {
    let mut slaac = start();
    let us = slaac.link_local(at(0)).unwrap();
    let answer =
        |slaac: &mut Slaac, source, second| match slaac.heard_ns(source, &asks(us), at(second)) {
            Some(bytes) => read(&bytes),
            None => panic!("no answer"),
        };
    let advertisement = |solicited, override_| {
        Message::NeighborAdvertisement(NeighborAdvertisement {
            solicited,
            override_,
            target: us,
            target_link: Some(MAC),
        })
    };
    assert_eq!(slaac.heard_ns(HOST, &asks(HOST), at(0)), None);
    // While optimistic, nobody's cache is overridden.
    assert_eq!(
        answer(&mut slaac, HOST, 0),
        (us, HOST, advertisement(true, false))
    );
    sent(&mut slaac, 0);
    sent(&mut slaac, 1);
    assert_eq!(
        answer(&mut slaac, HOST, 1),
        (us, HOST, advertisement(true, true))
    );
    // Somebody wants to have it: it is defended.
    assert_eq!(
        answer(&mut slaac, NOBODY, 1),
        (us, ALL_NODES, advertisement(false, true))
    );
}

#[test]
fn somebody_has_it() {
    let us = start().link_local(at(0)).unwrap();
    for second in [0, 1] {
        let mut slaac = start();
        let (_, _, probe) = read(&sent(&mut slaac, 0)[0]);
        let Message::NeighborSolicitation(ours) = probe else {
            panic!("{probe:?}");
        };
        sent(&mut slaac, second);
        // Our own packets, looped back.
        let mut looped = has(us);
        looped.target_link = Some(MAC);
        if second == 0 {
            assert_eq!(slaac.heard_ns(NOBODY, &ours, at(0)), None);
            slaac.heard_na(&looped, at(0));
            slaac.heard_na(&has(HOST), at(0));
            assert_eq!(addresses(&slaac, 0), [us]);
            slaac.heard_na(&has(us), at(0));
            assert!(addresses(&slaac, 0).is_empty());
            assert_eq!(slaac.link_local(at(0)), None);
            // The router is asked from no address.
            let asked = sent(&mut slaac, 4);
            assert_eq!(asked, [router_solicitation(NOBODY, None)]);
        } else {
            // Unique: an advertisement does not take it away.
            slaac.heard_na(&has(us), at(1));
            assert_eq!(addresses(&slaac, 1), [us]);
        }
    }
    // Another one asks for the same address at the same time.
    for nonce in [Some([1; 6]), None] {
        let mut slaac = start();
        sent(&mut slaac, 0);
        let mut other = asks(us);
        other.nonce = nonce;
        assert_eq!(slaac.heard_ns(NOBODY, &other, at(0)), None);
        assert_eq!(slaac.link_local(at(0)), None);
    }
}

#[test]
fn an_address_of_somebody_else_is_not_made_again() {
    let mut slaac = start();
    hear(&mut slaac, &[prefix("2001:db8::", 1000, 1000)], 0);
    let mine = ip("2001:db8::ff:fe00:1");
    assert!(slaac.optimistic_until(mine, at(0)).is_some());
    slaac.heard_na(&has(mine), at(0));
    hear(&mut slaac, &[prefix("2001:db8::", 1000, 1000)], 100);
    assert_eq!(addresses(&slaac, 100), [ip("fe80::ff:fe00:1")]);
}

#[test]
fn ids_are_modified_eui_64() {
    // RFC 4291, appendix A, and RFC 2464, section 4.
    let mac = [0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde];
    let id = ip("fe80::3656:78ff:fe9a:bcde");
    assert_eq!(eui64(ip("fe80::"), mac), id);
    assert_eq!(eui64(ip("fe80::1:2:3:4"), mac), id);
}
