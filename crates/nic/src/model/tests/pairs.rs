//! Several queue pairs.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Barrier;
use std::thread;

use super::*;
use crate::Steering;
use crate::platform::PciFunction;
use crate::virtio::{SpreadError, VirtioPair};

type Pair = VirtioPair<ModelPci>;

const MULTIQUEUE: u64 = feature::MQ | feature::CTRL_VQ;

/// A device with so many pairs, all of them started.
fn start_pairs(pairs: u16) -> (Model, Driver, Vec<Pair>) {
    start_config(ModelConfig::with_pairs(pairs))
}

fn start_config(config: ModelConfig) -> (Model, Driver, Vec<Pair>) {
    let model = Model::new(config);
    let mut nic = VirtioNet::with_pairs(model.pci(), 8).unwrap();
    let others = nic.take_pairs();
    assert_eq!(others.len() + 1, nic.pairs());
    (model, nic, others)
}

fn refused_pairs(pairs: usize, change: impl FnOnce(&mut ModelConfig)) -> InitError {
    let mut config = ModelConfig::with_pairs(4);
    change(&mut config);
    let model = Model::new(config);
    let Err(error) = VirtioNet::with_pairs(model.pci(), pairs) else {
        panic!("the driver should refuse");
    };
    assert!(!model.is_running() && !model.freed_while_running());
    assert_eq!(model.blocks(), 0);
    error
}

/// A frame of TCP or UDP.
fn packet(protocol: u8, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut frame = vec![0; 12];
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 0, protocol, 0, 0]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, protocol, 0]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        _ => panic!("two IP versions"),
    }
    frame.extend([from.port().to_be_bytes(), to.port().to_be_bytes()].concat());
    frame.extend([0; 22]);
    frame
}

/// A server's address and ours, of both IP versions.
const ADDRESSES: [[IpAddr; 2]; 2] = [
    [
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)),
    ],
    [
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9)),
    ],
];

const TCP: u8 = 6;
const UDP: u8 = 17;

fn send(nic: &mut impl Nic, frame: &[u8]) {
    let (_, mut tx) = nic.split();
    tx.send(frame.len(), Offload::None, &mut |out| {
        out.copy_from_slice(frame)
    })
    .unwrap();
    tx.flush().unwrap();
}

#[test]
fn with_one_pair_all_is_as_on_a_device_that_has_no_more() {
    let only = |features: u64| {
        let mut config = ModelConfig::with_pairs(4);
        config.features &= !features;
        config
    };
    let one = |config: ModelConfig, pairs| {
        let model = Model::new(config);
        let mut nic = VirtioNet::with_pairs(model.pci(), pairs).unwrap();
        assert_eq!(model.accepted(), feature::KNOWN);
        assert_eq!((nic.pairs(), model.blocks()), (1, 5));
        assert!(nic.take_pairs().is_empty());
        assert_eq!(nic.spread(1), Ok(Steering::by_port(1)));
        for wanted in [0, 2] {
            let error = SpreadError::NoSuchPairs { wanted, there: 1 };
            assert_eq!(nic.spread(wanted), Err(error));
        }
        nic.stop();
        assert_eq!(nic.spread(1), Err(Fault::Removed.into()));
    };
    one(ModelConfig::with_pairs(4), 1);
    one(ModelConfig::with_pairs(4), 0);
    one(only(feature::MQ), 4);
    one(only(feature::CTRL_VQ), 4);
    one(ModelConfig::with_pairs(1), 4);
    // A number that nobody asked for.
    one(
        ModelConfig {
            pairs_reported: Some(0),
            ..ModelConfig::with_pairs(4)
        },
        1,
    );
}

#[test]
fn pairs_are_started_and_not_used() {
    for (wanted, there, pairs) in [(2, 4, 2), (4, 4, 4), (usize::MAX, 3, 3), (70_000, 2, 2)] {
        let model = Model::new(ModelConfig::with_pairs(there));
        let mut nic = VirtioNet::with_pairs(model.pci(), wanted).unwrap();
        assert_eq!(nic.pairs(), pairs);
        assert_eq!(model.accepted(), feature::KNOWN | MULTIQUEUE | feature::RSS);
        let others = nic.take_pairs();
        assert!(nic.take_pairs().is_empty());
        assert_eq!(others.len(), pairs - 1);
        for (n, other) in others.iter().enumerate() {
            assert_eq!(other.properties(), nic.properties());
            assert_eq!(model.receive_buffers_of(n + 1), 256);
        }
        // Queues and buffers of each pair, and of the control queue.
        assert_eq!(model.blocks(), 5 * pairs + 2);
        assert_eq!(model.pairs_used(), 1);
    }
}

#[test]
fn what_a_device_says_of_its_pairs_is_not_believed() {
    for told in [0, 0x8000, 0x8001, u16::MAX] {
        let error = refused_pairs(2, |config| config.pairs_reported = Some(told));
        assert!(matches!(error, InitError::Misbehaved(_)));
    }
    // More than there are: the control queue is missing, or a pair before it.
    let missing = |pairs, told| refused_pairs(pairs, |config| config.pairs_reported = Some(told));
    let (control, pair) = (missing(2, 8), missing(8, 8));
    assert_eq!(control, InitError::QueueSize { queue: 16, size: 0 });
    // Number 8 is the control queue of four pairs, and has a doorbell; number 9 is none.
    assert_eq!(pair, InitError::QueueSize { queue: 9, size: 0 });
    let small = refused_pairs(4, |config| config.control_size = 2);
    assert_eq!(small, InitError::QueueSize { queue: 8, size: 2 });
    let odd = refused_pairs(4, |config| config.control_size = 5);
    assert!(matches!(odd, InitError::Misbehaved(_)));
    // A doorbell beyond its registers.
    let far = refused_pairs(4, |config| config.config_lies = vec![(0x60, 16), (0x61, 0)]);
    assert!(matches!(far, InitError::Misbehaved(_)));
}

#[test]
fn a_device_that_cannot_hash_as_we_need_is_not_asked_to() {
    for rss in [
        (39, 128, 0x1ff),
        (40, 127, 0x1ff),
        (40, 128, 0x1fd),
        (40, 128, 0x1ef),
    ] {
        let (model, mut nic, _others) = start_config(ModelConfig {
            rss,
            ..ModelConfig::with_pairs(2)
        });
        assert_eq!(model.accepted(), feature::KNOWN | MULTIQUEUE);
        assert_eq!(nic.spread(2), Ok(Steering::by_port(2)));
    }
}

#[test]
fn with_rss_the_device_steers_as_we_tell() {
    let (model, mut nic, mut others) = start_pairs(3);
    assert_eq!(nic.spread(3), Ok(Steering::by_hash(3)));
    assert_eq!(model.pairs_used(), 3);
    let steering = nic.spread(2).unwrap();
    assert_eq!((steering.pairs(), model.pairs_used()), (2, 2));
    for [remote, local] in ADDRESSES {
        let remote = SocketAddr::new(remote, 80);
        let mut met = [0; 2];
        for port in 49_152..49_280 {
            let local = SocketAddr::new(local, port);
            let frame = packet(TCP, remote, local);
            let pair = steering.pair(remote, local);
            assert_eq!(model.arrive(plain(), &frame), Some(pair));
            let units = match pair {
                0 => receive(&mut nic, 8),
                pair => receive(&mut others[pair - 1], 8),
            };
            assert_eq!(units.unwrap()[0].bytes, frame);
            met[pair] += 1;
            // DHCP and TFTP are the first pair's.
            assert_eq!(model.arrive(plain(), &packet(UDP, remote, local)), Some(0));
            assert_eq!(receive(&mut nic, 8).unwrap().len(), 1);
        }
        assert!(met.iter().all(|met| *met > 32));
    }
    // Back to the first alone.
    assert_eq!(nic.spread(1), Ok(Steering::by_port(1)));
    assert_eq!(model.pairs_used(), 1);
}

#[test]
fn without_rss_the_device_follows_what_it_was_sent() {
    let mut config = ModelConfig::with_pairs(4);
    config.features &= !feature::RSS;
    let (model, mut nic, mut others) = start_config(config);
    let steering = nic.spread(4).unwrap();
    assert_eq!(steering, Steering::by_port(4));
    let mut sent = [0; 4];
    for [remote, local] in ADDRESSES {
        let remote = SocketAddr::new(remote, 80);
        for port in 50_000..50_016 {
            let local = SocketAddr::new(local, port);
            let pair = steering.pair(remote, local);
            let frame = packet(TCP, local, remote);
            sent[pair] += frame.len() as u64;
            match pair {
                0 => send(&mut nic, &frame),
                pair => send(&mut others[pair - 1], &frame),
            }
            assert_eq!(model.collect_from(pair)[0].frame, frame);
            let answer = packet(TCP, remote, local);
            assert_eq!(model.arrive(plain(), &answer), Some(pair));
        }
    }
    assert_eq!(receive(&mut nic, 16).unwrap().len(), 8);
    for (other, sent) in others.iter_mut().zip(&sent[1..]) {
        assert_eq!(receive(other, 16).unwrap().len(), 8);
        assert_eq!(other.counters().receive_units, 8);
        assert_eq!(other.counters().transmit_frames, 8);
        assert_eq!(other.counters().transmit_bytes, *sent);
    }
}

#[test]
fn after_a_refusal_the_device_goes_on() {
    let (model, mut nic, mut others) = start_pairs(2);
    // Any answer but 0 is a refusal.
    for commands in [Commands::Refuse, Commands::Lie { id: 0, ack: 255 }] {
        model.set_commands(commands);
        assert_eq!(nic.spread(2), Err(SpreadError::Refused(2)));
        assert_eq!(nic.spread(1), Err(SpreadError::Refused(1)));
        assert_eq!(model.pairs_used(), 1);
        assert!(model.deliver(plain(), &pattern(60)));
        assert_eq!(receive(&mut nic, 8).unwrap().len(), 1);
        assert_eq!(receive(&mut others[0], 8), Ok(vec![]));
    }
    model.set_commands(Commands::RefuseHash);
    assert_eq!(nic.spread(2), Ok(Steering::by_port(2)));
    model.set_commands(Commands::Obey);
    // The ring of four wraps.
    for _ in 0..20 {
        assert_eq!(nic.spread(2), Ok(Steering::by_hash(2)));
        assert_eq!(nic.spread(1), Ok(Steering::by_port(1)));
    }
    assert!(nic.link_up() && others[0].link_up());
}

/// Has the device lie about a command and expects the fault, for good, from all pairs.
fn fault_at_spread(lie: impl FnOnce(&Model)) -> Fault {
    let (model, mut nic, mut others) = start_pairs(3);
    lie(&model);
    let Err(SpreadError::Fault(fault)) = nic.spread(3) else {
        panic!("it should be a fault");
    };
    assert!(!model.is_running());
    assert_eq!(nic.spread(1), Err(fault.into()));
    assert_eq!(receive(&mut nic, 8), Err(fault));
    for other in &mut others {
        assert_eq!(receive(other, 8), Err(fault));
        assert_eq!(other.split().1.flush(), Err(fault));
        assert!(!other.link_up());
    }
    drop(others);
    drop(nic);
    assert_eq!(model.blocks(), 0);
    fault
}

#[test]
fn each_lie_about_a_command_is_a_fault() {
    // Buffers of the command that are not its first, and none of the queue.
    for id in [1, 2, 3, 4, u32::MAX] {
        let fault = fault_at_spread(|model| model.set_commands(Commands::Lie { id, ack: 0 }));
        assert!(matches!(fault, Fault::Misbehaved(_)));
    }
    for step in [2, 5, u16::MAX] {
        let fault = fault_at_spread(|model| model.lie_index(6, step));
        assert!(matches!(fault, Fault::Misbehaved(_)));
    }
    let fault = fault_at_spread(|model| model.lie_used(6, 7, 0));
    assert!(matches!(fault, Fault::Misbehaved(_)));
}

#[test]
#[cfg_attr(miri, ignore = "a million looks")]
fn a_device_that_does_not_answer_is_given_up() {
    let fault = fault_at_spread(|model| model.set_commands(Commands::Ignore));
    assert!(matches!(fault, Fault::Misbehaved(_)));
    assert_eq!(fault_at_spread(Model::remove), Fault::Removed);
    let fault = fault_at_spread(|model| {
        model.set_commands(Commands::Ignore);
        model.set_status(0x4f);
    });
    assert_eq!(fault, Fault::NeedsReset);
    // It has four pairs and tells of two, so what is taken for the control queue is a receive queue.
    let (model, mut nic, others) = start_config(ModelConfig {
        pairs_reported: Some(2),
        ..ModelConfig::with_pairs(4)
    });
    assert!(matches!(nic.spread(2), Err(SpreadError::Fault(_))));
    assert!(!model.is_running());
    drop((others, nic));
}

#[test]
fn what_one_pair_meets_all_return() {
    // Met by another pair: the first resets the device.
    let (model, mut nic, mut others) = start_pairs(3);
    model.lie_used(4, 300, 100);
    let fault = receive(&mut others[1], 8).unwrap_err();
    assert!(matches!(fault, Fault::Misbehaved(_)));
    // A second fault changes nothing.
    model.lie_index(2, 1000);
    assert_eq!(receive(&mut others[0], 8), Err(fault));
    let (_, mut tx) = others[0].split();
    assert_eq!(tx.send(60, Offload::None, &mut |_| ()), Err(fault.into()));
    assert_eq!((tx.room(), tx.idle()), (0, true));
    assert!(model.is_running(), "only the first may reset it");
    assert_eq!(nic.split().1.flush(), Err(fault));
    assert!(!model.is_running());
    let resets = model.resets();
    nic.stop();
    drop((others, nic));
    assert_eq!((model.resets(), model.blocks()), (resets, 0));

    // Met by the first.
    let (model, mut nic, mut others) = start_pairs(3);
    model.lie_used(0, 300, 100);
    let fault = receive(&mut nic, 8).unwrap_err();
    assert!(!model.is_running());
    for other in &mut others {
        assert_eq!(receive(other, 8), Err(fault));
    }
    drop((others, nic));

    // Noticed by another pair's question for its health, and by the first when it is stopped or dropped.
    for stop in [true, false] {
        let (model, mut nic, mut others) = start_pairs(2);
        model.set_status(0x4f);
        assert!(!others[0].link_up());
        if stop {
            nic.stop();
            assert!(!model.is_running());
            assert_eq!(receive(&mut nic, 8), Err(Fault::NeedsReset));
        }
        drop((others, nic));
        assert!(!model.is_running() && !model.freed_while_running());
        assert_eq!(model.blocks(), 0);
    }
}

#[test]
fn who_comes_first_is_right() {
    let in_a_burst = |meanwhile: fn(&Model, &mut Driver, &mut Pair)| {
        let (model, mut nic, mut others) = start_pairs(3);
        let mut other = others.pop().unwrap();
        assert!(model.deliver_to(1, plain(), &pattern(60)));
        model.lie_used(2, 300, 100);
        let (mut rx, _) = others[0].split();
        let result = rx.burst(8, |_| meanwhile(&model, &mut nic, &mut other));
        (result, receive(&mut nic, 8))
    };
    let (own, _) = in_a_burst(|_, _, _| ());
    let (another, first) = in_a_burst(|model, _, other| {
        model.lie_index(4, 1000);
        assert!(receive(other, 8).is_err());
    });
    assert!(own.is_err() && another.is_err() && own != another);
    assert_eq!(first, another.map(|_| vec![]));
    let stopped = in_a_burst(|_, nic, _| nic.stop());
    assert_eq!(stopped, (Ok(0), Ok(vec![])));
}

#[test]
fn a_pair_stops_alone_and_the_first_stops_all() {
    let (model, mut nic, mut others) = start_pairs(3);
    nic.spread(3).unwrap();
    let resets = model.resets();
    let (_, mut tx) = others[0].split();
    tx.send(60, Offload::None, &mut |frame| frame.fill(1))
        .unwrap();
    others[0].stop();
    assert_eq!(model.collect_from(1).len(), 1, "its last frame goes out");
    assert_eq!(model.resets(), resets);
    let stopped = |pair: &mut Pair| {
        assert_eq!(receive(pair, 8), Ok(vec![]));
        let (_, mut tx) = pair.split();
        let sent = tx.send(60, Offload::None, &mut |_| ());
        assert_eq!(sent, Err(SendError::Fault(Fault::Removed)));
        assert_eq!(tx.flush(), Err(Fault::Removed));
        assert!(!pair.link_up());
    };
    stopped(&mut others[0]);
    assert!(others[1].link_up() && nic.link_up());
    send(&mut others[1], &pattern(60));
    assert!(model.deliver(plain(), &pattern(60)));
    assert_eq!(receive(&mut nic, 8).unwrap().len(), 1);

    nic.stop();
    assert!(!model.is_running());
    others.iter_mut().for_each(stopped);
    drop((others, nic));
    assert_eq!(model.blocks(), 0);
}

/// Every order in which the first and two other pairs, and a stop, may come to their ends.
#[test]
#[cfg_attr(miri, ignore = "leaks on purpose")]
fn memory_is_given_back_by_the_first_alone_and_never_under_a_pair() {
    #[derive(Clone, Copy, PartialEq)]
    enum ShutdownStep {
        Stop,
        First,
        Other(usize),
    }
    let steps = [
        ShutdownStep::Stop,
        ShutdownStep::First,
        ShutdownStep::Other(0),
        ShutdownStep::Other(1),
    ];
    let mut orders = Vec::new();
    for a in steps {
        for b in steps {
            for c in steps {
                for d in steps {
                    let order = [a, b, c, d];
                    if steps.iter().all(|step| order.contains(step)) {
                        orders.push(order);
                    }
                }
            }
        }
    }
    assert_eq!(orders.len(), 24);
    for order in orders {
        let (model, nic, others) = start_pairs(3);
        let blocks = model.blocks();
        let mut nic = Some(nic);
        let mut others: Vec<_> = others.into_iter().map(Some).collect();
        let mut expected = blocks;
        for step in order {
            match step {
                ShutdownStep::Stop => nic.iter_mut().for_each(Nic::stop),
                ShutdownStep::Other(n) => others[n] = None,
                ShutdownStep::First => {
                    nic = None;
                    assert!(!model.is_running());
                    if others.iter().all(Option::is_none) {
                        expected = 0;
                    }
                }
            }
            assert_eq!(model.blocks(), expected);
            // Whoever is left touches its memory.
            for other in others.iter_mut().flatten() {
                let _ = receive(other, 8);
                let (_, mut tx) = other.split();
                let _ = tx.send(60, Offload::None, &mut |frame| frame.fill(1));
                let _ = tx.flush();
                assert_eq!(other.link_up(), model.is_running());
            }
        }
        assert!(!model.freed_while_running());
    }
}

#[test]
fn pairs_that_nobody_took_are_no_hindrance() {
    let model = Model::new(ModelConfig::with_pairs(3));
    let nic = VirtioNet::with_pairs(model.pci(), 3).unwrap();
    drop(nic);
    assert!(!model.is_running() && !model.freed_while_running());
    assert_eq!(model.blocks(), 0);
}

/// The frames of one pair: received, answered, and the answer looked at, until the pair is of no more use.
fn serve(model: &Model, pair: usize, nic: &mut impl Nic, rounds: usize) -> Result<usize, Fault> {
    let mut served = 0;
    for round in 0..rounds {
        let frame = vec![(pair * 100 + round % 100) as u8; 60 + round % 1000];
        if !model.deliver_to(pair, plain(), &frame) {
            // In reset.
            nic.split().0.burst(8, |_| ())?;
            return Ok(served);
        }
        let (mut rx, mut tx) = nic.split();
        rx.burst(8, |unit| {
            assert_eq!(unit.parts.concat(), frame);
            let _ = tx.send(unit.len, Offload::None, &mut |out| {
                out.copy_from_slice(unit.parts[0]);
            });
            served += 1;
        })?;
        tx.flush()?;
        for sent in model.collect_from(pair) {
            assert_eq!(sent.frame, frame);
        }
    }
    Ok(served)
}

const ROUNDS: usize = if cfg!(miri) { 10 } else { 3000 };

#[test]
fn pairs_on_threads_of_their_own_move_frames_at_the_same_time() {
    let (model, mut nic, mut others) = start_pairs(3);
    nic.spread(3).unwrap();
    let together = Barrier::new(3);
    thread::scope(|scope| {
        for (n, other) in others.iter_mut().enumerate() {
            let (model, together) = (&model, &together);
            scope.spawn(move || {
                together.wait();
                assert_eq!(serve(model, n + 1, other, ROUNDS), Ok(ROUNDS));
            });
        }
        together.wait();
        assert_eq!(serve(&model, 0, &mut nic, ROUNDS), Ok(ROUNDS));
    });
    for counters in others.iter().map(Nic::counters).chain([nic.counters()]) {
        assert_eq!(counters.receive_units, ROUNDS as u64);
        assert_eq!(counters.transmit_frames, ROUNDS as u64);
    }
    drop((others, nic));
    assert_eq!(model.blocks(), 0);
}

#[test]
fn a_fault_on_one_thread_ends_the_others() {
    let (model, mut nic, mut others) = start_pairs(3);
    nic.spread(3).unwrap();
    let faults = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (n, other) in others.iter_mut().enumerate() {
            let model = &model;
            threads.push(scope.spawn(move || {
                serve(model, n + 1, other, 20).ok();
                if n == 0 {
                    model.lie_used(3, 300, 0);
                }
                loop {
                    if let Err(fault) = serve(model, n + 1, other, 1) {
                        return fault;
                    }
                }
            }));
        }
        // Resets the device, perhaps while others are in the middle of a burst.
        let met = loop {
            if let Err(fault) = serve(&model, 0, &mut nic, 1) {
                break fault;
            }
        };
        assert!(!model.is_running());
        let mut faults: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        faults.push(met);
        faults
    });
    assert!(matches!(faults[0], Fault::Misbehaved(_)));
    assert!(faults.iter().all(|fault| *fault == faults[0]));
    drop((others, nic));
    assert!(!model.freed_while_running());
    assert_eq!(model.blocks(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "leaks on purpose")]
fn the_first_may_be_dropped_while_others_work() {
    let (model, mut nic, others) = start_pairs(3);
    nic.spread(3).unwrap();
    let blocks = model.blocks();
    let together = Barrier::new(3);
    thread::scope(|scope| {
        for (n, mut other) in others.into_iter().enumerate() {
            let (model, together) = (&model, &together);
            scope.spawn(move || {
                serve(model, n + 1, &mut other, 20).unwrap();
                together.wait();
                // Until it finds the device in reset.
                while serve(model, n + 1, &mut other, 1) == Ok(1) {}
                together.wait();
                assert_eq!(receive(&mut other, 8), Ok(vec![]));
                assert!(!other.link_up());
            });
        }
        together.wait();
        drop(nic);
        together.wait();
    });
    assert!(!model.is_running() && !model.freed_while_running());
    assert_eq!(model.blocks(), blocks, "lost, as it was in use");
}

#[test]
fn what_goes_to_other_processors_may() {
    fn may<T: Send>() {}
    may::<Driver>();
    may::<Pair>();
    may::<Steering>();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "minutes")]
    fn the_device_hashes_as_we_do(
        pairs in 2u16..7,
        flows in prop::collection::vec((any::<[u128; 2]>(), any::<[u16; 2]>()), 1..40),
    ) {
        let (model, mut nic, _others) = start_pairs(pairs);
        let steering = nic.spread(pairs.into()).unwrap();
        for (addresses, [port, local_port]) in flows {
            let of4 = addresses.map(|bits| IpAddr::from(Ipv4Addr::from(bits as u32)));
            let of6 = addresses.map(|bits| IpAddr::from(Ipv6Addr::from(bits)));
            for [remote, local] in [of4, of6] {
                let remote = SocketAddr::new(remote, port);
                let local = SocketAddr::new(local, local_port);
                let pair = steering.pair(remote, local);
                let frame = packet(TCP, remote, local);
                prop_assert_eq!(model.arrive(plain(), &frame), Some(pair));
            }
        }
    }

    #[test]
    fn no_device_breaks_its_pairs(
        kind in 0u8..0x10, how in 0u8..4, data in prop::collection::vec(any::<u8>(), 0..400)
    ) {
        // Three pairs of four, with and without RSS or limits to it.
        let mut all = vec![kind | 0x10, 2, 3, how];
        all.extend(data);
        fuzz_virtio(&all);
    }
}

#[test]
fn a_command_that_comes_back_without_an_answer_is_refused() {
    let (model, mut nic, _others) = start_pairs(2);
    // The device returns the buffers, and writes nothing.
    model.lie_used(4, 0, 1);
    assert_eq!(nic.spread(1), Err(SpreadError::Refused(1)));
}

/// A device that fails when the driver has waited so many times.
struct Failing {
    pci: ModelPci,
    model: Model,
    after: u32,
    waits: Rc<Cell<u32>>,
}

impl PciFunction for Failing {
    type Dma = ModelMemory;
    type Bar = ModelBar;

    fn config32(&self, offset: u8) -> u32 {
        self.pci.config32(offset)
    }

    fn map_bar(&self, index: u8) -> Result<ModelBar, PlatformError> {
        self.pci.map_bar(index)
    }

    fn allocate(&self, len: usize) -> Result<ModelMemory, PlatformError> {
        self.pci.allocate(len)
    }

    fn stall_microsecond(&self) {
        self.waits.set(self.waits.get() + 1);
        if self.waits.get() == self.after {
            self.model.set_status(0x4f);
        }
        self.pci.stall_microsecond();
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of looks")]
fn a_device_that_fails_in_the_middle_of_a_command_is_given_up_soon() {
    let model = Model::new(ModelConfig::with_pairs(2));
    model.set_commands(Commands::Ignore);
    let waits = Rc::new(Cell::new(0));
    let device = Failing {
        pci: model.pci(),
        model: model.clone(),
        after: 5500,
        waits: waits.clone(),
    };
    let mut nic = VirtioNet::with_pairs(device, 2).unwrap();
    assert_eq!(nic.spread(2), Err(Fault::NeedsReset.into()));
    assert!((5500..=6500).contains(&waits.get()), "{waits:?}");
}
