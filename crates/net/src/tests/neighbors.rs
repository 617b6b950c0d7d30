//! ARP, neighbour discovery and router advertisements that lie, at the wire of the running engine.

use super::forged::{Bench, arp, frame6, has, transport_checksum};
use super::{CLIENT, CLIENT_MAC, CLIENT6, IpVersion, SERVER, SERVER_MAC, SERVER6};
use crate::ipv6::ndisc::{NeighborAdvertisement, NeighborSolicitation};
use crate::ipv6::{ALL_NODES, header, icmp, multicast_mac, solicited_node};
use crate::packet::{BROADCAST, put};
use crate::{Engine, IpAddr, Ipv4Addr, Ipv4Cidr, Ipv4Config, Ipv6Addr, NetError, SocketAddr};
use alloc::rc::Rc;
use core::cell::RefCell;
use std::vec;
use std::vec::Vec;
use wireboot_nic::sim::{self, LinkConfig, NicConfig};
use wireboot_nic::{MacAddress, Nic, Offload, Receive, Transmit};
use wireboot_tcp::{Duration, Instant};

const EVIL_MAC: MacAddress = [2, 0, 0, 0, 0, 0x66];
/// What is nobody's Ethernet address: that of all, none, and groups.
const NOBODY: [MacAddress; 5] = [
    [0xff; 6],
    [0; 6],
    [1, 0, 0x5e, 0, 0, 1],
    [0x33, 0x33, 0, 0, 0, 1],
    [3, 0, 0, 0, 0, 0x0b],
];
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe);
const GLOBAL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe);

/// An engine that has asked for the host's Ethernet address and wants to send a SYN there.
fn asking(version: IpVersion) -> Bench {
    let mut bench = Bench::silent(version);
    bench.answers = false;
    let stack = bench.stack.clone();
    bench.engine.spawn(async move {
        let _ = stack
            .connect(version.server(), Duration::from_secs(60))
            .await;
    });
    bench.run_until_idle();
    bench
}

#[test]
fn an_answer_that_names_no_station_is_none() {
    for version in IpVersion::BOTH {
        let mut bench = asking(version);
        // An answer to ARP may name a group.
        let wrong = match version {
            IpVersion::V4 => 2,
            IpVersion::V6 => NOBODY.len(),
        };
        for mac in NOBODY.into_iter().take(wrong) {
            let answer = bench.here(mac);
            bench.send(&answer);
            bench.run_until_idle();
            assert_eq!(bench.us.port(), 0, "no SYN leaves");
        }
        let answer = bench.here(SERVER_MAC);
        bench.send(&answer);
        bench.run_until_idle();
        assert_ne!(bench.us.port(), 0);
    }
}

/// Microsoft's Network Load Balancing with multicast answers so.
#[test]
fn a_cluster_is_reached_by_the_group_that_its_answer_names() {
    let (group, other) = ([3, 0xbf, 10, 0, 0, 2], [1, 0, 0x5e, 0, 0, 2]);
    let mut bench = Bench::silent(IpVersion::V4);
    bench.answers = false;
    let socket = bench.stack.udp_on(5000);
    let sent = |bench: &Bench, text: &[u8]| {
        let frames = bench.heard.iter().filter(|frame| frame.ends_with(text));
        let to = frames.map(|frame| MacAddress::try_from(&frame[..6]).unwrap());
        to.collect::<Vec<_>>()
    };
    socket.send_to((SERVER, 69).into(), b"first").unwrap();
    bench.run_until_idle();
    // A request and an announcement are no answers.
    bench.send(&arp(1, group, SERVER, CLIENT));
    bench.send(&arp(1, group, SERVER, SERVER));
    bench.run_until_idle();
    assert!(sent(&bench, b"first").is_empty());
    bench.send(&arp(2, group, SERVER, CLIENT));
    bench.run_until_idle();
    assert_eq!(sent(&bench, b"first"), [group]);
    // Nobody has asked again.
    bench.send(&arp(2, other, SERVER, CLIENT));
    bench.run_until_idle();
    socket.send_to((SERVER, 69).into(), b"second").unwrap();
    bench.run_until_idle();
    assert_eq!(sent(&bench, b"second"), [group]);
}

/// Questions for the Ethernet address of `host` that were heard.
fn questions(bench: &Bench, host: IpAddr) -> usize {
    let asks = |frame: &&Vec<u8>| match host {
        IpAddr::V4(host) => frame[12..14] == [8, 6] && frame[38..42] == host.octets(),
        IpAddr::V6(host) => {
            frame.get(54) == Some(&135) && frame.get(62..78) == Some(&host.octets())
        }
    };
    bench.heard.iter().filter(asks).count()
}

fn run_until(bench: &mut Bench, micros: i64) {
    while bench.clock.now() < micros {
        bench.clock.advance(10_000);
        bench.turn();
    }
}

/// While a connection waits for it. Switches that inspect ARP close the port of who asks 15 times in a second.
#[test]
fn a_silent_neighbour_is_asked_soon_and_then_once_a_second() {
    for version in IpVersion::BOTH {
        let mut bench = asking(version);
        let host = version.server().ip();
        for (until, asked) in [(0, 1), (150_000, 2), (1_000_000, 3)] {
            run_until(&mut bench, until);
            assert_eq!(questions(&bench, host), asked);
        }
        run_until(&mut bench, 10_000_000);
        let asked = questions(&bench, host);
        assert!((11..=13).contains(&asked), "{asked}");
    }
}

#[test]
fn a_neighbour_that_appears_late_is_found_within_a_second() {
    for version in IpVersion::BOTH {
        let mut bench = asking(version);
        run_until(&mut bench, 3_000_000);
        assert_eq!(bench.us.port(), 0);
        bench.answers = true;
        run_until(&mut bench, 4_050_000);
        assert_ne!(bench.us.port(), 0);
    }
}

/// [`Bench`] watches that all goes to the host's Ethernet address.
#[test]
fn a_download_stays_with_its_host() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::downloading(version);
        let answers = NOBODY.map(|mac| bench.here(mac));
        bench.ignores("nobody's Ethernet address", answers);
        bench.go_on();
        bench.finishes();
    }
}

#[test]
fn arp_from_addresses_that_nobody_can_have() {
    let mut bench = asking(IpVersion::V4);
    let zero = Ipv4Addr::UNSPECIFIED;
    for sender in [
        zero,
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 1),
        CLIENT,
    ] {
        for operation in [1, 2] {
            bench.send(&arp(operation, EVIL_MAC, sender, CLIENT));
        }
    }
    // Not ARP for IPv4 over Ethernet, no known operation.
    for (at, byte) in [(15, 6), (16, 9), (18, 8), (19, 16), (21, 3)] {
        let mut wrong = arp(2, EVIL_MAC, SERVER, CLIENT);
        wrong[at] = byte;
        bench.send(&wrong);
    }
    bench.run_until_idle();
    assert_eq!(bench.us.port(), 0);
    assert_eq!(bench.stack.address().unwrap().address(), CLIENT);
}

/// Sends what neighbour discovery must be: `hop_limit` 255.
fn says(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8, message: Vec<u8>) -> Vec<u8> {
    let mac = if destination.is_multicast() {
        multicast_mac(destination)
    } else {
        CLIENT_MAC
    };
    frame6(mac, &icmp::packet(source, destination, hop_limit, message))
}

/// A router advertisement of a default router and the prefix 2001:db8:1::/64.
fn advertisement() -> Vec<u8> {
    let mut message = vec![134, 0, 0, 0, 64, 0xc0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    message.extend([1, 1]);
    message.extend(EVIL_MAC);
    message.extend([3, 4, 64, 0xc0, 0, 0, 0x70, 8, 0, 0, 0x70, 8, 0, 0, 0, 0]);
    message.extend(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0).octets());
    message
}

/// A redirect of packets for the host to another station: `target`, which is there.
fn redirect(target: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![137, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    message.extend(SERVER6.octets());
    message.extend([2, 1]);
    message.extend(EVIL_MAC);
    message
}

#[test]
fn router_advertisements_from_afar() {
    let mut bench = Bench::downloading(IpVersion::V6);
    let broken = |mut frame: Vec<u8>| {
        *frame.last_mut().unwrap() ^= 1;
        frame
    };
    let good = || says(ROUTER, ALL_NODES, 255, advertisement());
    let of_len_0 = || {
        let mut message = advertisement();
        message[17] = 0;
        message
    };
    let mut fragment = vec![58, 0, 0, 0, 0, 0, 0, 1];
    let whole = good();
    fragment.extend(&whole[54..]);
    let packet = crate::ipv6::header::packet(ROUTER, ALL_NODES, 44, 255, &fragment);
    let ospf = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 5);
    let to_another = icmp::packet(ROUTER, SERVER6, 255, advertisement());
    bench.ignores(
        "router advertisements",
        [
            says(ROUTER, ALL_NODES, 254, advertisement()),
            says(ROUTER, ALL_NODES, 64, advertisement()),
            says(GLOBAL, ALL_NODES, 255, advertisement()),
            says(Ipv6Addr::UNSPECIFIED, ALL_NODES, 255, advertisement()),
            says(ALL_NODES, ALL_NODES, 255, advertisement()),
            says(CLIENT6, ALL_NODES, 255, advertisement()),
            says(ROUTER, ALL_NODES, 255, of_len_0()),
            // To groups that we are not in, or to another host.
            says(ROUTER, ospf, 255, advertisement()),
            frame6(multicast_mac(ALL_NODES), &to_another),
            broken(good()),
            // RFC 6980.
            frame6(multicast_mac(ALL_NODES), &packet),
        ],
    );
    assert_eq!(bench.stack.router(), None);
    // One that is right is believed, and what is on the link stays there.
    bench.send(&good());
    bench.run_until_idle();
    assert!(bench.stack.router().is_some());
    let far = Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 1);
    assert!(bench.stack.source(far.into()).is_some());
    assert_eq!(bench.stack.addresses6().len(), 2);
    bench.finishes();
}

/// RFC 6085: a packet to a group may come in a frame to one station.
#[test]
fn what_a_group_is_told_may_come_in_a_frame_to_us_alone() {
    let mut bench = Bench::silent(IpVersion::V6);
    let said = icmp::packet(ROUTER, ALL_NODES, 255, advertisement());
    bench.send(&frame6(CLIENT_MAC, &said));
    bench.run_until_idle();
    assert!(bench.stack.router().is_some() && bench.stack.has_ipv6_route());
    bench.heard.clear();
    let asks = NeighborSolicitation {
        target: CLIENT6,
        source_link: Some(SERVER_MAC),
        nonce: None,
    };
    let packet = asks.packet(SERVER6, solicited_node(CLIENT6));
    bench.send(&frame6(CLIENT_MAC, &packet));
    bench.run_until_idle();
    let answers = bench.heard.iter().filter(|frame| says_where_we_are(frame));
    assert_eq!(answers.count(), 1);
}

/// Whether a frame is our neighbour advertisement to the host.
fn says_where_we_are(frame: &[u8]) -> bool {
    frame.starts_with(&SERVER_MAC) && frame.get(54) == Some(&136)
}

#[test]
fn redirects_of_who_is_no_router() {
    let mut bench = Bench::downloading(IpVersion::V6);
    let to = |target, source, hop_limit| says(source, CLIENT6, hop_limit, redirect(target));
    let from = |source, hop_limit| to(ROUTER, source, hop_limit);
    // That the host itself is elsewhere.
    let moved = |source| to(SERVER6, source, 255);
    bench.ignores(
        "redirects",
        [
            from(ROUTER, 255),
            from(SERVER6, 255),
            from(CLIENT6, 255),
            from(GLOBAL, 255),
            moved(ROUTER),
            moved(SERVER6),
        ],
    );
    bench.send(&says(ROUTER, ALL_NODES, 255, advertisement()));
    bench.run_until_idle();
    // A router now, but not the first hop to a host on the link.
    bench.ignores(
        "redirects",
        [from(ROUTER, 255), from(ROUTER, 254), moved(ROUTER)],
    );
    // Where the host is, is looked up once a second. [`Bench`] watches where it all goes.
    bench.clock.advance(2_000_000);
    bench.go_on();
    bench.finishes();
}

/// A connection must not go on from an address that is not ours.
#[test]
fn a_connection_ends_when_its_address_is_somebody_elses() {
    let (mut near, mut far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
    near.configure(NicConfig::new(CLIENT_MAC));
    let clock = near.clock();
    let mut engine = Engine::new(near, [3; 32]);
    let stack = engine.stack();
    stack.ipv6_up();
    let end = Rc::new(RefCell::new(None));
    let out = end.clone();
    let task = engine.stack();
    engine.spawn(async move {
        let server = IpVersion::V6.server();
        let result = task.connect(server, Duration::from_secs(60)).await;
        *out.borrow_mut() = Some(result.map(drop));
    });
    let mut turn = || {
        engine.poll(Instant::from_micros(clock.now())).unwrap();
        clock.advance(1_000);
    };
    turn();
    assert!(stack.is_optimistic(CLIENT6) && !stack.is_duplicate(CLIENT6));
    let claim = NeighborAdvertisement {
        solicited: false,
        override_: true,
        target: CLIENT6,
        target_link: Some(EVIL_MAC),
    };
    let claim = frame6(multicast_mac(ALL_NODES), &claim.packet(CLIENT6, ALL_NODES));
    let (_, tx) = far.split();
    let mut copy = |room: &mut [u8]| room.copy_from_slice(&claim);
    tx.send(claim.len(), Offload::None, &mut copy).unwrap();
    tx.flush().unwrap();
    for _ in 0..4 {
        turn();
    }
    assert!(!stack.is_optimistic(CLIENT6) && stack.is_duplicate(CLIENT6));
    assert_eq!(stack.link_local(), None);
    assert_eq!(*end.borrow(), Some(Err(NetError::Reset)));
}

#[test]
fn neighbor_advertisements_from_afar_or_about_us() {
    let mut bench = Bench::downloading(IpVersion::V6);
    // Duplicate address detection has ended: the address is ours.
    bench.clock.advance(1_100_000);
    bench.run_until_idle();
    let evil = |target: Ipv6Addr, solicited| NeighborAdvertisement {
        solicited,
        override_: true,
        target,
        target_link: Some(EVIL_MAC),
    };
    let sent = |target, source, to, hop_limit: u8| {
        let mut packet = evil(target, false).packet(source, to);
        put(&mut packet, 7, [hop_limit]);
        let mac = if to == CLIENT6 {
            CLIENT_MAC
        } else {
            multicast_mac(to)
        };
        frame6(mac, &packet)
    };
    bench.ignores(
        "neighbour advertisements",
        [
            sent(SERVER6, SERVER6, CLIENT6, 254),
            sent(SERVER6, Ipv6Addr::UNSPECIFIED, CLIENT6, 255),
            sent(SERVER6, ALL_NODES, CLIENT6, 255),
            sent(CLIENT6, SERVER6, CLIENT6, 255),
            sent(CLIENT6, CLIENT6, ALL_NODES, 255),
            sent(ALL_NODES, SERVER6, CLIENT6, 255),
        ],
    );
    assert_eq!(bench.stack.link_local(), Some(CLIENT6));
    bench.finishes();
}

/// RFC 4429: an address is used at once, and given up when somebody has it.
#[test]
fn an_address_that_somebody_has_is_given_up() {
    let mut bench = Bench::silent(IpVersion::V6);
    let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);
    let is_there = |bench: &Bench| {
        let addresses = bench.stack.addresses6();
        addresses.iter().any(|cidr| cidr.address() == address)
    };
    assert!(bench.stack.add_ipv6(address));
    bench.turn();
    assert!(is_there(&bench));
    let theirs = NeighborAdvertisement {
        solicited: false,
        override_: true,
        target: address,
        target_link: Some(EVIL_MAC),
    };
    bench.send(&frame6(
        multicast_mac(ALL_NODES),
        &theirs.packet(address, ALL_NODES),
    ));
    bench.run_until_idle();
    assert!(!is_there(&bench));
}

/// RFC 4429, section 3.2, and RFC 4861, section 7.2.2: while our address may be somebody else's nobody is asked, and who is asked then
/// learns our Ethernet address.
#[test]
fn neighbors_are_asked_once_our_address_is_settled() {
    let (near, mut far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
    let clock = near.clock();
    let mut engine = Engine::new(near, [3; 32]);
    let stack = engine.stack();
    stack.ipv6_up();
    engine.spawn(async move {
        let server = IpVersion::V6.server();
        let _ = stack.connect(server, Duration::from_secs(1)).await;
    });
    let mut asked = Vec::new();
    while clock.now() < 30_000 {
        let now = Instant::from_micros(clock.now());
        engine.poll(now).unwrap();
        let frames = far.split().0.burst(8, |frame| {
            let bytes = frame.parts.concat();
            // A neighbour solicitation for the server.
            if bytes.get(54) == Some(&135) && bytes.get(62..78) == Some(&SERVER6.octets()) {
                asked.push((clock.now(), bytes[78..].to_vec()));
            }
        });
        frames.unwrap();
        clock.advance(100);
    }
    let [(when, options)] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert!((20_000..21_000).contains(when), "{when} us");
    let source_link = [&[1, 1][..], &CLIENT_MAC].concat();
    assert_eq!(*options, source_link);
}

/// RFC 826: who is asked for answers, and nobody else.
#[test]
fn a_request_for_our_address_is_answered() {
    let mut bench = Bench::silent(IpVersion::V4);
    bench.run_until_idle();
    bench.heard.clear();
    let other = Ipv4Addr::new(10, 0, 0, 77);
    for (operation, target) in [(1, other), (2, CLIENT), (2, other)] {
        bench.send(&arp(operation, SERVER_MAC, SERVER, target));
        bench.run_until_idle();
    }
    assert!(bench.heard.is_empty());
    let question = arp(1, SERVER_MAC, SERVER, CLIENT);
    bench.send(&question);
    bench.run_until_idle();
    let mut answer = [
        &SERVER_MAC[..],
        &CLIENT_MAC,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2],
    ]
    .concat();
    answer.extend(
        [
            &CLIENT_MAC[..],
            &CLIENT.octets(),
            &SERVER_MAC,
            &SERVER.octets(),
        ]
        .concat(),
    );
    assert_eq!(bench.heard, [answer.clone()]);
    // Many questions in a burst leave room for what this machine has to say.
    bench.heard.clear();
    for _ in 0..40 {
        bench.send(&question);
    }
    bench.clock.advance(200);
    bench.run_until_idle();
    assert_eq!(bench.heard, vec![answer; 16]);
}

/// RFC 4861, section 7.3.1: a connection that gets forward says as much as an answer would.
#[test]
fn who_sends_a_file_is_not_asked_whether_he_is_there() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::downloading(version);
        let questions = |bench: &Bench| {
            let asks = |frame: &&Vec<u8>| match version {
                IpVersion::V4 => frame[12..14] == [8, 6],
                IpVersion::V6 => frame[..6] == SERVER_MAC && frame[20] == 58 && frame[54] == 135,
            };
            bench.heard.iter().filter(asks).count()
        };
        let second = |bench: &mut Bench| {
            bench.clock.advance(1_000_000);
            bench.run_until_idle();
        };
        for _ in 0..45 {
            bench.go_on();
            second(&mut bench);
        }
        assert_eq!(questions(&bench), 0);
        // One that is silent is asked, 30 seconds later and 5 more.
        for _ in 0..40 {
            second(&mut bench);
        }
        assert_ne!(questions(&bench), 0);
        bench.finishes();
    }
}

/// RFC 4861, section 7.2.2: what waits for a neighbour that does not answer is dropped.
#[test]
fn a_neighbour_that_does_not_answer_takes_along_what_waits_for_it_and_no_more() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        bench.answers = false;
        let socket = bench.stack.udp_on(5000);
        let (stranger, host) = (version.stranger(), version.server().ip());
        let sent = |bench: &Bench, text: &[u8]| {
            let frames = bench.heard.iter().filter(|frame| frame.ends_with(text));
            frames.count()
        };
        socket.send_to((stranger, 69).into(), b"first").unwrap();
        bench.run_until_idle();
        // Given up after half a second.
        for _ in 0..4 {
            bench.clock.advance(100_000);
            bench.turn();
        }
        socket.send_to((host, 69).into(), b"other").unwrap();
        bench.turn();
        bench.clock.advance(100_000);
        bench.turn();
        bench.send(&bench.here(SERVER_MAC));
        bench.run_until_idle();
        assert_eq!(sent(&bench, b"other"), 1);
        socket.send_to((stranger, 69).into(), b"second").unwrap();
        bench.run_until_idle();
        bench.send(&has(stranger, [2, 0, 0, 0, 0, 0x77]));
        bench.run_until_idle();
        assert_eq!((sent(&bench, b"first"), sent(&bench, b"second")), (0, 1));
    }
}

/// A router need not be in the network of our address, as in clouds that give 10.0.0.1/32.
#[test]
fn a_router_outside_of_our_network_is_asked_for() {
    let mut bench = Bench::silent(IpVersion::V4);
    let router = Ipv4Addr::new(172, 31, 1, 1);
    let far = Ipv4Cidr::new(Ipv4Addr::new(192, 0, 2, 0), 24);
    bench.stack.configure(&Ipv4Config {
        address: Ipv4Cidr::new(CLIENT, 32),
        router: None,
        routes: vec![(far, router)],
        mtu: None,
    });
    let socket = bench.stack.udp_on(5000);
    let to = ([192, 0, 2, 9], 69).into();
    socket.send_to(to, b"far").unwrap();
    bench.run_until_idle();
    let asks = |frame: &&Vec<u8>| frame[12..14] == [8, 6] && frame[38..42] == router.octets();
    assert_eq!(bench.heard.iter().filter(asks).count(), 1);
    bench.send(&has(router.into(), SERVER_MAC));
    bench.run_until_idle();
    assert!(bench.heard.iter().any(|frame| frame.ends_with(b"far")));
}

/// Who is asked for is asked again, though routers have said meanwhile that nobody is on the link.
#[test]
fn a_neighbour_is_asked_for_without_a_route_to_it() {
    let mut bench = Bench::silent(IpVersion::V6);
    bench.send(&says(ROUTER, ALL_NODES, 255, advertisement()));
    bench.run_until_idle();
    // Our address there is settled.
    bench.clock.advance(30_000);
    bench.run_until_idle();
    let neighbour = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5);
    let questions = |bench: &Bench| {
        let asks = |frame: &&Vec<u8>| {
            frame.get(54) == Some(&135) && frame.get(62..78) == Some(&neighbour.octets())
        };
        bench.heard.iter().filter(asks).count()
    };
    let socket = bench.stack.udp_on(5000);
    socket.send_to((neighbour, 69).into(), b"hello").unwrap();
    bench.run_until_idle();
    assert_eq!(questions(&bench), 1);
    // The lifetimes of the router and of its prefix.
    let mut goodbye = advertisement();
    put(&mut goodbye, 6, [0; 2]);
    put(&mut goodbye, 28, [0; 8]);
    bench.send(&says(ROUTER, ALL_NODES, 255, goodbye));
    bench.run_until_idle();
    assert!(!bench.stack.has_ipv6_route());
    bench.clock.advance(100_000);
    bench.run_until_idle();
    assert_eq!(questions(&bench), 2);
}

/// So many are asked for at once (`INCOMPLETE`): what waits for the first of more is dropped, and its socket has that room again.
#[test]
fn what_waits_for_a_neighbour_that_gives_way_is_dropped() {
    let mut bench = Bench::silent(IpVersion::V4);
    bench.answers = false;
    let socket = bench.stack.udp_on(5000);
    let to = |last: u8| SocketAddr::from(([10, 0, 0, last], 69));
    while socket.send_to(to(100), b"first").is_ok() {}
    bench.turn();
    for last in 101..109 {
        assert_eq!(socket.send_to(to(last), b"other"), Err(NetError::Full));
        assert!(!bench.stack.resolves([10, 0, 0, last].into()));
    }
    bench.turn();
    assert_eq!(socket.send_to(to(101), b"other"), Ok(()));
}

/// As many datagrams as may wait do not keep the question for their next hop from being asked.
#[test]
fn a_burst_to_a_neighbour_that_is_not_known_yet_arrives() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        bench.answers = false;
        let socket = bench.stack.udp_on(5000);
        let to = (version.server().ip(), 69).into();
        let queued = (0..1000)
            .take_while(|_| socket.send_to(to, b"burst").is_ok())
            .count();
        assert!((1..1000).contains(&queued));
        bench.run_until_idle();
        assert!(bench.heard.iter().all(|frame| !frame.ends_with(b"burst")));
        bench.answers = true;
        bench.clock.advance(100_000);
        bench.run_until_idle();
        let arrived = bench.heard.iter().filter(|frame| frame.ends_with(b"burst"));
        assert_eq!(arrived.count(), queued);
    }
}

/// So many neighbours are asked for at once (`INCOMPLETE`), however many datagrams wait for them.
#[test]
fn all_neighbours_that_a_burst_goes_to_are_asked_for_at_once() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        bench.answers = false;
        bench.run_until_idle();
        let socket = bench.stack.udp_on(5000);
        let hosts = (100..108_u8).map(|last| match version {
            IpVersion::V4 => IpAddr::from([10, 0, 0, last]),
            IpVersion::V6 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last.into()).into(),
        });
        for host in hosts.clone().cycle() {
            if socket.send_to((host, 69).into(), b"burst").is_err() {
                break;
            }
        }
        bench.heard.clear();
        bench.turn();
        for host in hosts {
            let target = match host {
                IpAddr::V4(host) => host.octets().to_vec(),
                IpAddr::V6(host) => host.octets().to_vec(),
            };
            // Where ARP and a solicitation have it.
            let at = if version == IpVersion::V4 { 38 } else { 62 };
            let asks = |frame: &&Vec<u8>| frame.get(at..at + target.len()) == Some(&target[..]);
            assert_eq!(bench.heard.iter().filter(asks).count(), 1, "{host}");
        }
    }
}

/// Whoever asks for us hears that we are here, also while a socket sends all that it may.
#[test]
fn who_asks_for_us_is_answered_while_datagrams_wait() {
    let mut bench = Bench::silent(IpVersion::V4);
    bench.answers = false;
    let socket = bench.stack.udp_on(5000);
    let to = (IpVersion::V4.stranger(), 69).into();
    while socket.send_to(to, b"burst").is_ok() {}
    bench.turn();
    bench.send(&arp(1, SERVER_MAC, SERVER, CLIENT));
    bench.run_until_idle();
    let answer = arp(2, CLIENT_MAC, CLIENT, SERVER);
    let answers = bench
        .heard
        .iter()
        .filter(|heard| heard[14..32] == answer[14..32]);
    assert_eq!(answers.count(), 1);
}

/// A neighbour that has not answered yet does not hold up what goes to others.
#[test]
fn what_waits_for_a_neighbour_holds_up_no_other() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let socket = bench.stack.udp_on(5000);
        let (known, unknown) = (version.server().ip(), version.stranger());
        socket.send_to((known, 69).into(), b"first").unwrap();
        bench.run_until_idle();
        for (turn, host) in (0..4).zip([unknown, known].into_iter().cycle()) {
            let text = [b"turn", &[turn][..]].concat();
            socket.send_to((host, 69).into(), &text).unwrap();
        }
        bench.run_until_idle();
        let sent = |turn| {
            let text = [b"turn", &[turn][..]].concat();
            let frames = bench.heard.iter().filter(|frame| frame.ends_with(&text));
            frames.count()
        };
        assert_eq!([0, 1, 2, 3].map(sent), [0, 1, 0, 1]);
    }
}

#[test]
fn a_datagram_that_no_packet_holds_is_refused() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let socket = bench.stack.udp_on(5000);
        let to = (version.server().ip(), 69).into();
        let most = 1500 - if version == IpVersion::V4 { 28 } else { 48 };
        for (len, sent) in [
            (most, Ok(())),
            (most + 1, Err(NetError::TooLong)),
            (1 << 16, Err(NetError::TooLong)),
        ] {
            assert_eq!(socket.send_to(to, &vec![0; len]), sent);
        }
        bench.run_until_idle();
    }
}

#[test]
fn datagrams_to_two_neighbours_by_turns_go_to_each() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let socket = bench.stack.udp_on(5000);
        let other = (version.stranger(), [2, 0, 0, 0, 0, 0x77]);
        let both = [(version.server().ip(), SERVER_MAC), other];
        for (address, _) in both {
            socket.send_to((address, 69).into(), b"first").unwrap();
        }
        bench.run_until_idle();
        bench.send(&has(other.0, other.1));
        bench.run_until_idle();
        for turn in 0..6 {
            let text = [b"turn", &[turn][..]].concat();
            let (address, _) = both[usize::from(turn) % 2];
            socket.send_to((address, 69).into(), &text).unwrap();
        }
        bench.run_until_idle();
        for turn in 0..6 {
            let text = [b"turn", &[turn][..]].concat();
            let mut sent = bench.heard.iter().filter(|frame| frame.ends_with(&text));
            let (_, mac) = both[usize::from(turn) % 2];
            assert_eq!(sent.next().unwrap()[..6], mac);
            assert_eq!(sent.next(), None);
        }
    }
}

/// RFC 5227, section 2.1.1: who has the address, and who probes it too. Such a probe goes to all; to us alone it is that of a switch which
/// looks whether we are there (Cisco's IP Device Tracking).
#[test]
fn who_claims_an_address_that_is_probed() {
    let (ours, other) = (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, 8));
    let nobody = Ipv4Addr::UNSPECIFIED;
    for (operation, sender, target, to, claims) in [
        (1, ours, SERVER, BROADCAST, true),
        (1, ours, SERVER, CLIENT_MAC, true),
        (2, ours, CLIENT, CLIENT_MAC, true),
        (2, ours, CLIENT, BROADCAST, true),
        (1, nobody, ours, BROADCAST, true),
        (1, nobody, ours, CLIENT_MAC, false),
        (1, nobody, other, BROADCAST, false),
        (1, other, ours, BROADCAST, false),
        (2, other, CLIENT, CLIENT_MAC, false),
    ] {
        let mut bench = Bench::silent(IpVersion::V4);
        let stack = bench.stack.clone();
        let end = Rc::new(RefCell::new(None));
        let out = end.clone();
        bench.engine.spawn(async move {
            *out.borrow_mut() = Some(stack.arp_probe(ours).await);
        });
        bench.turn();
        let mut frame = arp(operation, EVIL_MAC, sender, target);
        put(&mut frame, 0, to);
        bench.send(&frame);
        bench.run_until_idle();
        for _ in 0..3 {
            bench.clock.advance(5_000);
            bench.turn();
        }
        let expected = claims.then_some(EVIL_MAC);
        assert_eq!(
            *end.borrow(),
            Some(expected),
            "{operation} {sender} {target} {to:?}"
        );
    }
}

/// A router's general query for groups: that of MLDv1 (RFC 2710, section 3), and what `rest` adds to it.
fn group_query(delay: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![130, 0, 0, 0, 0, delay, 0, 0];
    message.extend([0; 16]);
    message.extend(rest);
    let ends = (ROUTER.into(), ALL_NODES.into());
    let sum = transport_checksum(ends, 58, &message);
    put(&mut message, 2, sum);
    // Hop-by-hop options: a router alert.
    let payload = [&[58, 0, 5, 2, 0, 0, 1, 0][..], &message].concat();
    let packet = header::packet(ROUTER, ALL_NODES, 0, 1, &payload);
    frame6(multicast_mac(ALL_NODES), &packet)
}

/// Waits until nothing more is reported unasked.
fn wait_until_silent(bench: &mut Bench) {
    for _ in 0..30 {
        bench.clock.advance(1_000_000);
        bench.run_until_idle();
    }
    bench.heard.clear();
}

/// Messages of this type that the engine has sent behind a router alert.
fn reports(bench: &Bench, kind: u8) -> usize {
    let report = |frame: &&Vec<u8>| frame[12..14] == [0x86, 0xdd] && frame.get(62) == Some(&kind);
    bench.heard.iter().filter(report).count()
}

/// A general query of MLDv2 (RFC 3810, section 5.1): the groups of our addresses are reported within its 100 ms.
#[test]
fn a_router_that_asks_for_groups_is_answered() {
    let mut bench = Bench::silent(IpVersion::V6);
    wait_until_silent(&mut bench);
    bench.send(&group_query(100, &[2, 125, 0, 0]));
    bench.run_until_idle();
    bench.clock.advance(100_000);
    bench.run_until_idle();
    assert_eq!(reports(&bench, 143), 1);
}

/// A packet for each group, of which one leaves each turn.
#[test]
fn a_router_that_asks_by_version_1_hears_of_each_group() {
    let mut bench = Bench::silent(IpVersion::V6);
    let other = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);
    assert!(bench.stack.add_ipv6(other));
    wait_until_silent(&mut bench);
    bench.send(&group_query(0, &[]));
    for reported in [1, 2, 2] {
        bench.turn();
        assert_eq!(reports(&bench, 131), reported);
    }
}
