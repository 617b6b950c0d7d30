//! The service on a network of which only IPv6 answers, frame by frame.

use super::*;
use crate::leases::{self, News};
use crate::service::{Command, Event, Service};
use crate::{Job, Leases};
use alloc::rc::Rc;
use core::cell::RefCell;
use std::boxed::Box;
use std::collections::VecDeque;
use std::eprintln;
use wireboot_net::Engine;
use wireboot_nic::sim::{self, LinkConfig, SimNic};
use wireboot_nic::{Nic, Offload, Receive, Transmit};
use wireboot_ring::channel;

const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];
const ICMPV6: u8 = 58;
const UDP: u8 = 17;
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 0);
const JOB: Job = 3;

/// The Internet checksum of a transport segment behind its pseudo header.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, segment: &[u8]) -> u16 {
    let mut bytes = [source.octets(), destination.octets()].concat();
    bytes.extend((segment.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes.extend(segment);
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A frame from the server or router; the checksum is `at` in the segment.
fn frame(to: ([u8; 6], Ipv6Addr), protocol: u8, mut segment: Vec<u8>, at: usize) -> Vec<u8> {
    let sum = checksum(SERVER, to.1, protocol, &segment);
    segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut frame = [to.0, SERVER_MAC].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((segment.len() as u16).to_be_bytes());
    frame.extend([protocol, 255]);
    frame.extend(SERVER.octets());
    frame.extend(to.1.octets());
    frame.extend(segment);
    frame
}

/// A router's advertisement with these flags, a prefix for addresses, and a name server.
fn router_advertisement(flags: u8) -> Vec<u8> {
    let mut segment = vec![134, 0, 0, 0, 64, flags, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    segment.extend([1, 1]);
    segment.extend(SERVER_MAC);
    segment.extend([
        3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0,
    ]);
    segment.extend(PREFIX.octets());
    segment.extend([25, 3, 0, 0, 0, 0, 0x0e, 0x10]);
    segment.extend(SERVER.octets());
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    frame(([0x33, 0x33, 0, 0, 0, 1], all_nodes), ICMPV6, segment, 2)
}

/// A neighbour's word that it has an address.
fn claim(target: Ipv6Addr) -> Vec<u8> {
    let mut segment = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    segment.extend(target.octets());
    segment.extend([2, 1, 2, 0, 0, 0, 0, 0x0c]);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    frame(([0x33, 0x33, 0, 0, 0, 1], all_nodes), ICMPV6, segment, 2)
}

/// The network: what it answers with, and what it has seen, in microseconds.
struct Network {
    /// Flags of its router, if there is one.
    router: Option<u8>,
    /// What the DHCPv6 server says to a message of a kind.
    replies: Vec<(MessageType, Reply)>,
    solicits: Vec<i64>,
    discovers: Vec<i64>,
    kinds: Vec<MessageType>,
    /// Addresses that a neighbour has.
    neighbors: Vec<Ipv6Addr>,
    /// When one says that it has [`ADDRESS`], though it has not answered the question for it.
    objects_at: Option<i64>,
    /// Addresses that the server has been told of. It gives another one then, unless it insists.
    declined: Vec<Ipv6Addr>,
    insists: bool,
}

impl Network {
    fn new(router: Option<u8>, replies: Vec<(MessageType, Reply)>) -> Self {
        Self {
            router,
            replies,
            solicits: vec![],
            discovers: vec![],
            kinds: vec![],
            neighbors: vec![],
            objects_at: None,
            declined: vec![],
            insists: false,
        }
    }

    fn hear(&mut self, bytes: &[u8], now: i64) -> Vec<Vec<u8>> {
        let mac: [u8; 6] = bytes[6..12].try_into().unwrap();
        if bytes[12..14] == [8, 0] {
            self.discovers.push(now);
        }
        if bytes[12..14] != [0x86, 0xdd] {
            return vec![];
        }
        let (protocol, segment) = (bytes[20], &bytes[54..]);
        let source = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[22..38]).unwrap());
        let destination = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[38..54]).unwrap());
        match protocol {
            ICMPV6 if segment[0] == 133 => {
                let answer = self.router.map(router_advertisement);
                answer.into_iter().collect()
            }
            ICMPV6 if segment[0] == 135 && source.is_unspecified() => {
                let target = Ipv6Addr::from(<[u8; 16]>::try_from(&segment[8..24]).unwrap());
                let taken = self.neighbors.contains(&target);
                taken.then(|| claim(target)).into_iter().collect()
            }
            UDP if segment[2..4] == [2, 35] => {
                assert_eq!(segment[..2], [2, 34], "from port 546");
                assert_eq!(destination, ALL_SERVERS);
                assert_eq!(bytes[..6], [0x33, 0x33, 0, 1, 0, 2]);
                assert!(source.is_unicast_link_local());
                let message = Message::parse(&segment[8..]).unwrap();
                self.kinds.push(message.kind);
                if message.kind == MessageType::Solicit {
                    self.solicits.push(now);
                }
                if message.kind == MessageType::Decline {
                    let associations = message.options.ia_na();
                    let addresses = associations.flat_map(|ia| ia.options.ia_addresses());
                    self.declined.extend(addresses.map(|one| one.address));
                }
                let reply = self.replies.iter().find(|(kind, _)| *kind == message.kind);
                let Some((_, reply)) = reply else {
                    return vec![];
                };
                let client_id = message.options.client_id().unwrap();
                let mut reply = reply.clone();
                if !self.insists && self.declined.contains(&ADDRESS) {
                    reply.addresses = vec![SECOND_ADDRESS];
                }
                if let Some(ia) = message.options.ia_na().next() {
                    reply.iaid = ia.iaid;
                }
                let payload = reply.bytes(message.transaction_id, client_id);
                let mut out = vec![2, 35, 2, 34];
                out.extend((payload.len() as u16 + 8).to_be_bytes());
                out.extend([0, 0]);
                out.extend(payload);
                vec![frame((mac, source), UDP, out, 6)]
            }
            _ => vec![],
        }
    }
}

/// Asks for a lease: what comes of it, when, and what the network has seen.
fn asked(
    router: Option<u8>,
    replies: Vec<(MessageType, Reply)>,
    request: DhcpRequest,
) -> (Result<Box<Leases>, String>, i64, Network) {
    let (near, mut far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
    let clock = near.clock();
    let (mut commands, inbox) = channel(16);
    let (outbox, mut events) = channel(16);
    let mut service = Service::new(near, [1; 32], inbox, outbox);
    let mut network = Network::new(router, replies);
    let mut waiting = VecDeque::new();
    assert!(commands.push(Command::Dhcp { job: JOB, request }).is_ok());
    loop {
        let now = clock.now();
        assert!(now < 100_000_000, "no lease and no error");
        service.poll(Instant::from_micros(now)).unwrap();
        while let Some(event) = events.pop() {
            match event {
                Event::Lease { job: JOB, result } => {
                    let result = result.map_err(|error| error.to_string());
                    return (result, now, network);
                }
                other => eprintln!("{other:?}"),
            }
        }
        poll(&mut far, &mut network, &mut waiting, now);
        clock.advance(100);
    }
}

fn poll(far: &mut SimNic, network: &mut Network, out: &mut VecDeque<Vec<u8>>, now: i64) {
    let mut frames = Vec::new();
    far.split()
        .0
        .burst(64, |frame| frames.push(frame.parts.concat()))
        .unwrap();
    for frame in frames {
        out.extend(network.hear(&frame, now));
    }
    if network.objects_at.take_if(|at| now >= *at).is_some() {
        out.push_back(claim(ADDRESS));
    }
    let (_, tx) = far.split();
    while let Some(frame) = out.pop_front() {
        tx.send(frame.len(), Offload::None, &mut |memory| {
            memory.copy_from_slice(&frame)
        })
        .unwrap();
    }
    tx.flush().unwrap();
}

fn rapid() -> Reply {
    Reply {
        rapid: true,
        ..reply().url()
    }
}

#[test]
fn a_network_without_ipv4_gives_a_lease_at_once() {
    for router in [None, Some(0x80), Some(0xc0)] {
        let replies = vec![
            (MessageType::Solicit, advertise().url()),
            (MessageType::Request, reply()),
        ];
        let (result, micros, network) = asked(router, replies, request());
        let leases = result.unwrap();
        assert_eq!(leases.v4, None);
        let lease = leases.v6.unwrap();
        assert_eq!(lease.addresses, [ADDRESS]);
        assert_eq!(lease.boot_file.as_deref(), Some(URL));
        assert_eq!(lease.server, Some(SERVER));
        assert!(micros < 10_000, "{micros} us");
        // Both versions were asked in the same turn.
        assert_eq!(network.solicits, network.discovers);
        assert_eq!(network.kinds, [MessageType::Solicit, MessageType::Request]);
    }
}

#[test]
fn a_stateless_network_gives_addresses_by_prefix_and_the_rest_by_dhcp() {
    let replies = vec![(
        MessageType::InformationRequest,
        Reply {
            addresses: vec![],
            ..reply().url()
        },
    )];
    let (result, micros, network) = asked(Some(0x40), replies, request());
    let lease = result.unwrap().v6.unwrap();
    assert_eq!(lease.boot_file.as_deref(), Some(URL));
    has_one_of_the_prefix(&lease);
    assert!(micros < 20_000, "{micros} us");
    let kinds = [MessageType::Solicit, MessageType::InformationRequest];
    assert_eq!(network.kinds, kinds);
}

#[test]
fn a_router_alone_gives_an_address() {
    let wanted = plain_request();
    let (result, micros, _) = asked(Some(0), vec![], wanted);
    let lease = result.unwrap().v6.unwrap();
    assert_eq!(lease.addresses.len(), 1);
    assert!((500_000..600_000).contains(&micros), "{micros} us");
}

fn has_one_of_the_prefix(lease: &Lease6) {
    let [address] = lease.addresses[..] else {
        panic!("{:?}", lease.addresses);
    };
    assert_eq!(address.octets()[..8], PREFIX.octets()[..8]);
}

/// As `wireboot serve --proxy` is, beside a router alone.
#[test]
fn a_router_gives_an_address_and_a_server_without_addresses_the_rest() {
    let replies = vec![(MessageType::Solicit, proxy())];
    let (result, micros, network) = asked(Some(0), replies, request());
    let lease = result.unwrap().v6.unwrap();
    assert_eq!(lease.boot_file.as_deref(), Some(URL));
    has_one_of_the_prefix(&lease);
    assert!((500_000..600_000).contains(&micros), "{micros} us");
    // The second leaves when the router has spoken: the first may have been lost.
    assert_eq!(network.kinds, [MessageType::Solicit; 2]);
}

#[test]
fn two_silent_versions_are_both_told() {
    let (result, _, _) = asked(None, vec![], request());
    let error = result.unwrap_err();
    assert!(
        error.contains("no DHCP server answered 6 DISCOVERs"),
        "{error}"
    );
    assert!(error.contains("no DHCPv6 server answered"), "{error}");
}

/// What becomes known in so many virtual microseconds on a network with these neighbours, and when; the engine, and what the network has
/// seen.
fn known(
    network: &mut Network,
    request: DhcpRequest,
    micros: i64,
) -> (Vec<(i64, News)>, Engine<SimNic>) {
    let (near, mut far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
    let clock = near.clock();
    let mut engine = Engine::new(near, [1; 32]);
    let stack = engine.stack();
    stack.ipv6_up();
    let news = Rc::new(RefCell::new(Vec::new()));
    let out = news.clone();
    engine.spawn(async move {
        let report = |one| out.borrow_mut().push((stack.now().total_micros(), one));
        leases::discover(&stack, &request, report).await;
    });
    let mut waiting = VecDeque::new();
    while clock.now() < micros {
        let now = clock.now();
        engine.poll(Instant::from_micros(now)).unwrap();
        poll(&mut far, network, &mut waiting, now);
        clock.advance(100);
    }
    (news.take(), engine)
}

fn in_use(engine: &Engine<SimNic>) -> Vec<Ipv6Addr> {
    let addresses = engine.stack().addresses6();
    addresses.iter().map(|cidr| cidr.address()).collect()
}

#[test]
fn for_an_address_that_a_neighbour_has_comes_another_one() {
    let done = Reply {
        addresses: vec![],
        status: Some(StatusCode::SUCCESS),
        ..reply()
    };
    let replies = vec![
        (MessageType::Solicit, rapid()),
        (MessageType::Decline, done),
    ];
    let mut network = Network::new(None, replies);
    network.neighbors = vec![ADDRESS];
    let (news, engine) = known(&mut network, plain_request(), 3_000_000);
    let [
        (first, News::V6(one)),
        (decided, News::Decided(Ok(leases))),
        (second, News::V6(other)),
        (told, News::Followed(all)),
    ] = &news[..]
    else {
        panic!("{} news", news.len());
    };
    assert_eq!((told, all.v6.as_ref()), (second, Some(other)));
    // Nobody waits for objections.
    assert!(*first < 10_000 && first == decided);
    assert_eq!(leases.v6.as_ref(), Some(one));
    assert_eq!(one.addresses, [ADDRESS]);
    // As after any setback: not sooner than the second SOLICIT would have left.
    assert!((1_000_000..1_200_000).contains(second), "{second} us");
    assert_eq!(other.addresses, [SECOND_ADDRESS]);
    assert_eq!(network.declined, [ADDRESS]);
    let kinds = [
        MessageType::Solicit,
        MessageType::Decline,
        MessageType::Solicit,
    ];
    assert_eq!(network.kinds, kinds);
    assert!(in_use(&engine).contains(&SECOND_ADDRESS));
    assert!(!in_use(&engine).contains(&ADDRESS));
}

/// For a second an objection counts (RFC 4862, section 5.4), though the address is in use by then.
#[test]
fn a_late_objection_is_told_the_server() {
    let replies = vec![(MessageType::Solicit, rapid())];
    for (at, counts) in [(500_000, true), (1_100_000, false)] {
        let mut network = Network::new(None, replies.clone());
        network.objects_at = Some(at);
        let (_, engine) = known(&mut network, plain_request(), 3_000_000);
        assert_eq!(network.declined.contains(&ADDRESS), counts);
        assert_eq!(in_use(&engine).contains(&ADDRESS), !counts);
    }
}

/// The server insists on the address: no lease is told of a second time, and in the end the user hears why.
#[test]
fn the_same_address_again_is_no_lease() {
    let mut network = Network::new(None, vec![(MessageType::Solicit, rapid())]);
    network.neighbors = vec![ADDRESS];
    network.insists = true;
    let (news, engine) = known(&mut network, plain_request(), 45_000_000);
    let leases = news.iter().filter(|(_, one)| matches!(one, News::V6(_)));
    assert_eq!(leases.count(), 1);
    assert!(network.declined.len() >= 8, "{:?}", network.kinds);
    assert!(!in_use(&engine).contains(&ADDRESS));
}

#[test]
fn an_address_of_a_prefix_that_a_neighbour_has_is_not_used() {
    let wanted = plain_request();
    let mut network = Network::new(Some(0), vec![]);
    let (news, _) = known(&mut network, wanted.clone(), 2_000_000);
    let Some((_, News::V6(lease))) = news.first() else {
        panic!("{} news", news.len());
    };
    let [address] = lease.addresses[..] else {
        panic!("{:?}", lease.addresses);
    };
    network.neighbors = vec![address];
    let (news, engine) = known(&mut network, wanted, 2_000_000);
    assert_eq!(news.len(), 0);
    assert!(engine.stack().is_duplicate(address));
    // The link-local address alone.
    assert_eq!(in_use(&engine).len(), 1);
    // There is no server whose address it would be.
    assert_eq!(network.declined, [] as [Ipv6Addr; 0]);
}
