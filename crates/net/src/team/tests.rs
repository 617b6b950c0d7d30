//! Engines of one team on a card that steers as it says, or does not.

use super::team;
use crate::ipv6::ndisc::NeighborSolicitation;
use crate::ipv6::{multicast_mac, solicited_node};
use crate::output::Path;
use crate::packet::PROTOCOL_TCP;
use crate::tcp::flows::Flow;
use crate::tests::datagrams::icmp;
use crate::tests::forged::{arp, frame6, here};
use crate::tests::path_mtu::{router, too_big};
use crate::tests::server::Host;
use crate::tests::{
    CLIENT, CLIENT_MAC, CLIENT6, FileServer, IpVersion, PATIENCE, REQUEST, SERVER, SERVER_MAC,
    SERVER6, pattern,
};
use crate::{Engine, Ipv4Cidr, Ipv4Config, Memory, NetError, Region, Route, Stack};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::net::{IpAddr, SocketAddr};
use std::vec;
use std::vec::Vec;
use wireboot_nic::sim::multiqueue::{Pair, PairSelection, multiqueue};
use wireboot_nic::sim::{self, Clock, LinkConfig, NicConfig, SimNic};
use wireboot_nic::{MacAddress, Nic, Offload, Receive, Steering, Transmit};
use wireboot_tcp::{Duration, Instant};

/// The engines of a card with so many pairs, and the other end of its cable. The leader has an address, the others know the way to the
/// server.
fn engines(
    version: IpVersion,
    pairs: usize,
    wire: LinkConfig,
    coalesce: bool,
    selection: PairSelection,
) -> (Vec<Engine<Pair>>, SimNic, Clock) {
    let (mut near, far) = sim::link(wire, wire, 5);
    near.configure(NicConfig {
        receive_frames: 512,
        coalesce,
        part_len: coalesce.then_some(700),
        ..NicConfig::new(CLIENT_MAC)
    });
    let clock = near.clock();
    let steering = Steering::by_port(pairs);
    let (leader, workers) = team(&steering);
    let places = core::iter::once(leader).chain(workers);
    let engines = multiqueue(near, steering, selection)
        .into_iter()
        .zip(places)
        .enumerate()
        .map(|(index, (pair, place))| {
            let mut engine = Engine::new(pair, [index as u8; 32]);
            engine.join(place);
            engine
        });
    let mut engines: Vec<_> = engines.collect();
    let (leader, workers) = engines.split_first_mut().unwrap();
    version.configure_before_start(leader);
    let remote = version.server().ip();
    let route = leader
        .stack()
        .state()
        .interface
        .route(remote, Instant::ZERO)
        .unwrap();
    for worker in workers {
        worker.stack().take_route(route);
    }
    (engines, far, clock)
}

/// What the server sends after the request, up to so many bytes.
async fn receive(stack: &Stack, server: SocketAddr, len: usize) -> Result<Memory, NetError> {
    let mut stream = stack.connect(server, PATIENCE).await?;
    stream.set_idle_timeout(PATIENCE);
    stream.write_all(REQUEST).await?;
    let region = Region::new(Memory::from(vec![0; len]));
    stream.read_into(&region, 0).await?;
    stream.close();
    Ok(region.take())
}

#[test]
fn each_engine_has_its_connections_whatever_queue_their_frames_come_to() {
    let rough = LinkConfig {
        loss: 0.01,
        reorder: 0.02,
        duplicate: 0.01,
        corrupt: 0.002,
        ..LinkConfig::default()
    };
    for (wire, coalesce, selection) in [
        (LinkConfig::default(), false, PairSelection::Steered),
        (LinkConfig::default(), false, PairSelection::Missteered(1)),
        // Of joined segments the checksum field is stale: the device's word must come along.
        (LinkConfig::default(), true, PairSelection::Missteered(2)),
        // Here it must not be taken for granted.
        (rough, false, PairSelection::Missteered(3)),
        (rough, true, PairSelection::Missteered(4)),
    ] {
        for version in IpVersion::BOTH {
            each_has_its_connections(version, wire, coalesce, selection);
        }
    }
}

fn each_has_its_connections(
    version: IpVersion,
    wire: LinkConfig,
    coalesce: bool,
    selection: PairSelection,
) {
    let (mut engines, far, clock) = engines(version, 3, wire, coalesce, selection);
    let file = pattern(700_000);
    let mut server = FileServer::new(far, file.clone(), 3, 64 * 1024);
    let done = Rc::new(RefCell::new(Vec::new()));
    for engine in &mut engines {
        let (stack, out, len) = (engine.stack(), done.clone(), file.len());
        engine.spawn(async move {
            let result = receive(&stack, version.server(), len).await;
            out.borrow_mut().push(result);
        });
    }
    while done.borrow().len() < 3 {
        assert!(clock.now() < 900_000_000, "the downloads do not end");
        let now = Instant::from_micros(clock.now());
        let mut busy = server.poll(now);
        for engine in &mut engines {
            busy |= engine.poll(now).unwrap();
        }
        clock.advance(if busy { 5 } else { 100 });
    }
    for result in done.borrow_mut().drain(..) {
        assert!(result.unwrap().rest(0) == file);
    }
    let forwarded = engines.iter().map(|engine| engine.forwarded());
    let (frames, lost) = forwarded.fold((0, 0), |sum, f| (sum.0 + f.frames, sum.1 + f.lost));
    // The answers to the workers' requests for the server, and little else.
    let few = frames <= 12;
    assert_eq!(few, selection == PairSelection::Steered, "{frames} frames");
    assert!(lost == 0 || selection != PairSelection::Steered);
}

/// Sends `frame` and returns what comes back.
fn answers(version: IpVersion, frame: &[u8], selection: PairSelection) -> Vec<Vec<u8>> {
    let (mut engines, mut far, clock) =
        engines(version, 4, LinkConfig::default(), false, selection);
    let (_, tx) = far.split();
    tx.send(frame.len(), Offload::None, &mut |room| {
        room.copy_from_slice(frame)
    })
    .unwrap();
    tx.flush().unwrap();
    let mut answers = Vec::new();
    for _ in 0..20 {
        for engine in &mut engines {
            engine.poll(Instant::from_micros(clock.now())).unwrap();
        }
        clock.advance(50);
        let (rx, _) = far.split();
        rx.burst(8, |frame| answers.push(frame.parts.concat()))
            .unwrap();
    }
    answers
}

#[test]
fn the_station_answers_once_wherever_the_question_arrives() {
    let mut asks4 = arp(1, SERVER_MAC, SERVER, CLIENT);
    asks4[..6].fill(0xff);
    let solicitation = NeighborSolicitation {
        target: CLIENT6,
        source_link: Some(SERVER_MAC),
        nonce: None,
    };
    let group = solicited_node(CLIENT6);
    let asks6 = frame6(multicast_mac(group), &solicitation.packet(SERVER6, group));
    for (version, question, answer) in [
        (IpVersion::V4, asks4, [8, 6, 0, 2]),
        (IpVersion::V6, asks6, [0x86, 0xdd, 136, 0]),
    ] {
        // The operation; type and code.
        let place = match version {
            IpVersion::V4 => 20..22,
            IpVersion::V6 => 54..56,
        };
        let right =
            |frame: &&Vec<u8>| frame[12..14] == answer[..2] && frame[place.clone()] == answer[2..];
        for seed in 0..8 {
            let answers = answers(version, &question, PairSelection::Missteered(seed));
            assert_eq!(answers.iter().filter(right).count(), 1);
        }
    }
}

/// Three engines, each of which has sent data to a host that says no more.
struct Uploads {
    version: IpVersion,
    engines: Vec<Engine<Pair>>,
    host: Host,
    clock: Clock,
}

impl Uploads {
    fn new(version: IpVersion, selection: PairSelection) -> Self {
        let (mut engines, far, clock) =
            engines(version, 3, LinkConfig::default(), false, selection);
        let connected = Rc::new(Cell::new(0));
        for engine in &mut engines {
            let (stack, connected) = (engine.stack(), connected.clone());
            engine.spawn(async move {
                let mut stream = stack.connect(version.server(), PATIENCE).await.unwrap();
                connected.set(connected.get() + 1);
                while connected.get() < 3 {
                    stack.next_turn().await;
                }
                let region = Region::new(Memory::from(pattern(60_000)));
                stream.send_from(&region, 0, 60_000).await.unwrap();
            });
        }
        let mut host = Host::new(far);
        for _ in 0..3 {
            host.listen(4096, 4096);
        }
        let mut uploads = Self {
            version,
            engines,
            host,
            clock,
        };
        while connected.get() < 3 {
            assert!(uploads.clock.now() < 1_000_000, "no connections");
            uploads.turns(1);
            let now = Instant::from_micros(uploads.clock.now());
            uploads.host.poll(now, |_| ());
        }
        uploads.turns(3);
        uploads
    }

    /// The host is silent.
    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            for engine in &mut self.engines {
                let now = Instant::from_micros(self.clock.now());
                engine.poll(now).unwrap();
            }
            self.clock.advance(50);
        }
    }

    /// The connection of an engine.
    fn with<T>(&self, index: usize, show: impl FnOnce(&Flow) -> T) -> T {
        let stack = self.engines[index].stack();
        show(stack.state().flows.get(0).unwrap())
    }

    /// What a router says of a packet of an engine's connection: that it was longer than 1300 bytes.
    fn too_big(&self, index: usize) -> Vec<u8> {
        let version = self.version;
        let (kind, code, headers) = too_big(version);
        let (ends, sequence) = self.with(index, |flow| (flow.ends, flow.connection.snd_una()));
        let path = Path {
            station: CLIENT_MAC,
            next_hop: SERVER_MAC,
            local: ends.local_end().ip(),
            remote: ends.remote_end().ip(),
        };
        let mut frame = vec![0; 14 + headers];
        path.write(&mut frame, PROTOCOL_TCP, 1500 - headers);
        frame.extend(ends.local_end().port().to_be_bytes());
        frame.extend(ends.remote_end().port().to_be_bytes());
        frame.extend(sequence.to_be_bytes());
        frame.extend([0; 12]);
        icmp(version, router(version), kind, code, 1300, &frame[14..])
    }

    fn mss(&self) -> Vec<u16> {
        (0..3)
            .map(|index| self.with(index, |flow| flow.connection.mss()))
            .collect()
    }

    /// The Ethernet addresses that the engines send to the host at.
    fn neighbors(&self) -> Vec<MacAddress> {
        let now = Instant::from_micros(self.clock.now());
        let (local, remote) = (self.version.client(), self.version.server().ip());
        let engines = self.engines.iter().map(|engine| {
            let path = engine.stack().state().interface.path(local, remote, now);
            path.unwrap().next_hop
        });
        engines.collect()
    }
}

#[test]
fn who_sent_a_packet_too_big_hears_of_it() {
    for version in IpVersion::BOTH {
        let headers = too_big(version).2 as u16 + 20;
        for selection in [
            PairSelection::Steered,
            PairSelection::Missteered(1),
            PairSelection::Missteered(2),
        ] {
            let mut uploads = Uploads::new(version, selection);
            let before = uploads.mss();
            for index in 0..3 {
                assert_eq!(uploads.mss()[index..], before[index..]);
                let said = uploads.too_big(index);
                uploads.host.say(&said);
                // To a worker, to the leader, to another worker.
                uploads.turns(4);
                assert_eq!(
                    uploads.mss()[index],
                    1300 - headers,
                    "{version:?} {selection:?}"
                );
            }
        }
    }
}

#[test]
fn each_engine_hears_that_a_neighbour_has_moved() {
    const OTHER_MAC: MacAddress = [2, 0, 0, 0, 0, 0x0c];
    for version in IpVersion::BOTH {
        for selection in [
            PairSelection::Steered,
            PairSelection::Missteered(1),
            PairSelection::Missteered(2),
        ] {
            let mut uploads = Uploads::new(version, selection);
            assert_eq!(uploads.neighbors(), [SERVER_MAC; 3]);
            uploads.host.say(&here(version, OTHER_MAC));
            uploads.turns(4);
            assert_eq!(
                uploads.neighbors(),
                [OTHER_MAC; 3],
                "{version:?} {selection:?}"
            );
        }
    }
}

#[test]
fn a_route_comes_when_its_address_is_no_longer_optimistic() {
    let (near, _far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
    let mut engine = Engine::new(near, [1; 32]);
    let stack = engine.stack();
    let told = Rc::new(Cell::new(None));
    let out = told.clone();
    engine.poll(Instant::ZERO).unwrap();
    stack.ipv6_up();
    engine.spawn(async move {
        let nowhere = stack.route(SERVER.into()).await;
        assert_eq!(nowhere, None);
        out.set(stack.route(SERVER6.into()).await);
    });
    // Asked at once, and nobody objects for 20 ms.
    for millis in 0..20 {
        engine.poll(Instant::from_millis(millis)).unwrap();
        assert_eq!(told.get(), None);
    }
    for millis in [20, 21] {
        engine.poll(Instant::from_millis(millis)).unwrap();
    }
    let route = told.get().unwrap();
    assert_eq!(
        Some(route.local),
        engine.stack().link_local().map(IpAddr::V6)
    );
    assert_eq!((route.next_hop, route.mtu), (SERVER6.into(), 1500));
}

#[test]
fn a_worker_knows_what_it_was_told_and_nothing_else() {
    for version in IpVersion::BOTH {
        let (near, _far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
        let stack = Engine::new(near, [1; 32]).stack();
        let remote = version.server().ip();
        assert_eq!(stack.source(remote), None);
        stack.take_route(Route {
            remote,
            local: version.client(),
            next_hop: router(version),
            mtu: 1400,
        });
        assert_eq!(stack.source(remote), Some(version.client()));
        assert_eq!(stack.source(router(version)), None);
        assert_eq!(stack.path_mtu(remote), 1400);
        assert_eq!(stack.path_mtu(router(version)), 1500);
        // Neither may be longer than it turns out on the way.
        stack.set_path_mtu(remote, 1300);
        assert_eq!(stack.path_mtu(remote), 1300);
        assert!(stack.ring(remote) < stack.ring(router(version)));
        let state = stack.state();
        let way = state.interface.route(remote, Instant::ZERO).unwrap();
        assert_eq!(way.next_hop, router(version));
        assert!(state.interface.is_ours(version.client(), Instant::ZERO));
    }
}

#[test]
fn without_a_port_that_leads_home_there_is_no_connection() {
    let (near, _far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
    let clock = near.clock();
    let (_, mut places) = team(&Steering::by_port(2));
    let mut engine = Engine::new(near, [1; 32]);
    let mut place = places.remove(0);
    // A place that no port leads to.
    place.index = 2;
    engine.join(place);
    let stack = engine.stack();
    stack.configure(&Ipv4Config {
        address: Ipv4Cidr::new(CLIENT, 24),
        router: None,
        routes: Vec::new(),
        mtu: None,
    });
    let end = Rc::new(RefCell::new(None));
    let out = end.clone();
    engine.spawn(async move {
        let server = SocketAddr::new(SERVER.into(), 80);
        let result = stack.connect(server, Duration::from_secs(1)).await;
        *out.borrow_mut() = Some(result.err());
    });
    engine.poll(Instant::from_micros(clock.now())).unwrap();
    assert_eq!(*end.borrow(), Some(Some(NetError::NoPort)));
}

#[test]
fn a_turn_tells_whether_anything_came_from_the_card_or_from_the_team() {
    let wire = LinkConfig::default();
    let (mut engines, mut far, clock) =
        engines(IpVersion::V4, 2, wire, false, PairSelection::Steered);
    let mut turn = || -> Vec<bool> {
        clock.advance(200);
        let now = Instant::from_micros(clock.now());
        let busy = engines.iter_mut().map(|engine| engine.poll(now).unwrap());
        busy.collect()
    };
    assert_eq!(turn(), [false, false]);
    // The leader hears of a neighbour, and tells the other.
    let frame = here(IpVersion::V4, SERVER_MAC);
    let (_, tx) = far.split();
    let mut copy = |room: &mut [u8]| room.copy_from_slice(&frame);
    tx.send(frame.len(), Offload::None, &mut copy).unwrap();
    tx.flush().unwrap();
    assert_eq!(turn(), [true, true]);
    assert_eq!(turn(), [false, false]);
}

#[test]
fn what_a_worker_does_not_take_in_time_is_counted_as_lost() {
    let wire = LinkConfig::default();
    let (mut engines, mut far, clock) =
        engines(IpVersion::V4, 2, wire, false, PairSelection::Steered);
    let frame = here(IpVersion::V4, SERVER_MAC);
    for _ in 0..70 {
        let (_, tx) = far.split();
        let mut copy = |room: &mut [u8]| room.copy_from_slice(&frame);
        tx.send(frame.len(), Offload::None, &mut copy).unwrap();
        tx.flush().unwrap();
        clock.advance(200);
        let now = Instant::from_micros(clock.now());
        engines[0].poll(now).unwrap();
    }
    // Its ring has 64 places.
    let forwarded = engines[0].forwarded();
    assert_eq!((forwarded.frames, forwarded.lost), (64, 6));
}
