//! Engines of one team on a card that steers as it says, or does not.

use super::team;
use crate::tests::{CLIENT, FileServer, PATIENCE, REQUEST, SERVER, pattern};
use crate::{Engine, Ipv4Cidr, Ipv4Config, Memory, NetError, Region, Stack};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::SocketAddr;
use std::vec;
use std::vec::Vec;
use wireboot_nic::sim::fan::{Manner, Pair, fan};
use wireboot_nic::sim::{self, Clock, LinkConfig, NicConfig, SimNic};
use wireboot_nic::{Nic, Offload, Receive, Steering, Transmit};
use wireboot_tcp::{Duration, Instant};

/// The engines of a card with so many pairs, and the other end of its cable.
fn engines(
    pairs: usize,
    wire: LinkConfig,
    coalesce: bool,
    manner: Manner,
) -> (Vec<Engine<Pair>>, SimNic, Clock) {
    let (mut near, far) = sim::link(wire, wire, 5);
    near.configure(NicConfig {
        receive_frames: 512,
        coalesce,
        part_len: coalesce.then_some(700),
        ..NicConfig::new([2, 0, 0, 0, 0, 0x0a])
    });
    let clock = near.clock();
    let steering = Steering::by_port(pairs);
    let (lead, assistants) = team(&steering);
    let places = core::iter::once(lead).chain(assistants);
    let engines = fan(near, steering, manner)
        .into_iter()
        .zip(places)
        .enumerate()
        .map(|(index, (pair, place))| {
            let mut engine = Engine::new(pair, [index as u8; 32]);
            engine.join(place);
            engine.stack().configure(&Ipv4Config {
                address: Ipv4Cidr::new(CLIENT, 24),
                router: None,
                routes: Vec::new(),
                mtu: None,
            });
            engine
        });
    (engines.collect(), far, clock)
}

/// What the server sends after the request, up to so many bytes.
async fn receive(stack: &Stack, len: usize) -> Result<Memory, NetError> {
    let server = SocketAddr::new(SERVER.into(), 80);
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
    for (wire, coalesce, manner) in [
        (LinkConfig::default(), false, Manner::Faithful),
        (LinkConfig::default(), false, Manner::Astray(1)),
        // Of joined segments the checksum field is stale: the device's word must come along.
        (LinkConfig::default(), true, Manner::Astray(2)),
        // Here it must not be taken for granted.
        (rough, false, Manner::Astray(3)),
        (rough, true, Manner::Astray(4)),
    ] {
        let (mut engines, far, clock) = engines(3, wire, coalesce, manner);
        let file = pattern(700_000);
        let mut server = FileServer::new(far, file.clone(), 3, 64 * 1024);
        let done = Rc::new(RefCell::new(Vec::new()));
        for engine in &mut engines {
            let (stack, out, len) = (engine.stack(), done.clone(), file.len());
            engine.spawn(async move {
                let result = receive(&stack, len).await;
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
            assert!(result.unwrap().as_slice() == file);
        }
        let forwarded = engines.iter().map(|engine| engine.forwarded());
        let (frames, lost) = forwarded.fold((0, 0), |sum, f| (sum.0 + f.frames, sum.1 + f.lost));
        // The answers to the assistants' ARP requests, and little else.
        let few = frames <= 12;
        assert_eq!(few, manner == Manner::Faithful, "{frames} frames");
        assert!(lost == 0 || manner != Manner::Faithful);
    }
}

/// Sends `frame` and returns what comes back.
fn answers(frame: &[u8], manner: Manner) -> Vec<Vec<u8>> {
    let (mut engines, mut far, clock) = engines(4, LinkConfig::default(), false, manner);
    let (_, tx) = far.split();
    tx.send(frame.len(), Offload::None, |room| {
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
    let mut arp = vec![0xff; 6];
    arp.extend([2, 0, 0, 0, 0, 0xb, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.extend([2, 0, 0, 0, 0, 0xb]);
    arp.extend(SERVER.octets());
    arp.extend([0; 6]);
    arp.extend(CLIENT.octets());
    for seed in 0..8 {
        let answers = answers(&arp, Manner::Astray(seed));
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0][20..22], [0, 2]);
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
