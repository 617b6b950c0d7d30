use super::*;
use crate::fault::{FaultConfig, inject};
use crate::sim::{LinkConfig, NicConfig, SimNic, link};
use crate::{Counters, Receive, SendError, Transmit};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::thread;

/// A NIC with a relay, and the other end of its cable.
struct Fixture {
    driver_end: DriverEnd<SimNic>,
    engine_end: EngineEnd,
    peer: SimNic,
}

impl Fixture {
    fn new(configure: impl FnOnce(&mut NicConfig)) -> Self {
        let quick = LinkConfig {
            queue_frames: usize::MAX,
            ..LinkConfig::default()
        };
        let (mut nic, mut peer) = link(quick, quick, 1);
        let [mut config, mut roomy] = [&nic, &peer].map(|nic| NicConfig::new(nic.properties().mac));
        // Neither loses a frame that nobody has looked at yet.
        config.receive_frames = 100_000;
        roomy.receive_frames = 100_000;
        configure(&mut config);
        nic.configure(config);
        peer.configure(roomy);
        let (driver_end, engine_end) = relay(nic);
        Self {
            driver_end,
            engine_end,
            peer,
        }
    }

    /// The peer sends a frame with `number` in it, and it arrives.
    fn peer_sends(&mut self, number: u32) {
        send(&mut self.peer, number).unwrap();
        self.peer.clock().advance(1000);
    }

    /// What has come out at the peer.
    fn peer_sees(&mut self) -> Vec<u32> {
        self.peer.clock().advance(10_000);
        seen(&mut self.peer, usize::MAX).unwrap()
    }
}

fn send(nic: &mut impl Nic, number: u32) -> Result<(), SendError> {
    let (_, mut tx) = nic.split();
    // Lengths differ, too.
    tx.send(60 + number as usize % 1000, Offload::None, &mut |frame| {
        frame.fill(number as u8);
        frame[..4].copy_from_slice(&number.to_be_bytes());
    })?;
    tx.flush()?;
    Ok(())
}

/// The numbers in what a burst lends, whose content must be as it was sent.
fn seen(nic: &mut impl Nic, budget: usize) -> Result<Vec<u32>, Fault> {
    let mut numbers = Vec::new();
    let (mut rx, _) = nic.split();
    let lent = rx.burst(budget, |frame| {
        let bytes = frame.parts.concat();
        let number = u32::from_be_bytes(*bytes.first_chunk().unwrap());
        assert_eq!(bytes.len(), 60 + number as usize % 1000);
        assert_eq!(bytes.len(), frame.len);
        assert!(bytes[4..].iter().all(|&byte| byte == number as u8));
        numbers.push(number);
    })?;
    assert_eq!(lent, numbers.len());
    Ok(numbers)
}

#[test]
fn what_the_nic_is_the_engine_end_is() {
    let mut fixture = Fixture::new(|config| config.transmit_checksum = true);
    let nic = fixture.driver_end.into_nic();
    assert_eq!(fixture.engine_end.properties(), nic.properties());
    assert!(fixture.engine_end.link_up());
    let fixture = Fixture::new(|config| config.transmit_unit = 60_000);
    assert_eq!(
        fixture.engine_end.properties().transmit_unit,
        0,
        "it cuts nothing"
    );
}

#[test]
fn frames_go_both_ways_again_and_again() {
    let mut fixture = Fixture::new(|_| {});
    // More than there are buffers.
    for number in 0..1000 {
        fixture.peer_sends(number);
        assert!(fixture.driver_end.turn());
        assert_eq!(seen(&mut fixture.engine_end, 8), Ok([number].into()));
        send(&mut fixture.engine_end, number).unwrap();
        assert!(fixture.driver_end.turn());
        assert_eq!(fixture.peer_sees(), [number]);
    }
    assert!(!fixture.driver_end.turn());
    let (driver_end, engine_end) = (fixture.driver_end.counters(), fixture.engine_end.counters());
    assert_eq!(driver_end.receive_units, engine_end.receive_units);
    assert_eq!(driver_end.receive_bytes, engine_end.receive_bytes);
    assert_eq!(driver_end.transmit_frames, engine_end.transmit_frames);
    assert_eq!(driver_end.transmit_bytes, engine_end.transmit_bytes);
}

#[test]
fn buffers_keep_what_the_device_said_of_a_unit() {
    let mut buffer = Buffer::new(200);
    let frame = |parts| Frame {
        parts,
        len: 0,
        checksum: Checksum::Trusted,
        udp_segment: Some(9),
    };
    assert!(buffer.fill(&frame(&[&[1; 128], &[2; 72]])));
    assert_eq!(buffer.content(), [[1; 128].as_slice(), &[2; 72]].concat());
    assert_eq!(buffer.checksum, Checksum::Trusted);
    assert_eq!(buffer.udp_segment, Some(9));
    assert!(!buffer.fill(&frame(&[&[1; 128], &[2; 73]])));
}

#[test]
fn without_free_buffers_frames_stay_with_the_driver() {
    let mut fixture = Fixture::new(|_| {});
    let count = UNITS as u32 + 100;
    for number in 0..count {
        fixture.peer_sends(number);
    }
    while fixture.driver_end.turn() {}
    assert_eq!(fixture.driver_end.counters().receive_units, UNITS as u64);
    let mut numbers = Vec::new();
    while numbers.len() < count as usize {
        numbers.extend(seen(&mut fixture.engine_end, 10).unwrap());
        fixture.driver_end.turn();
    }
    assert!(numbers.into_iter().eq(0..count));
}

#[test]
fn an_engine_end_that_nobody_looks_after_is_full() {
    let mut fixture = Fixture::new(|_| {});
    let (_, mut tx) = fixture.engine_end.split();
    assert_eq!(tx.room(), FRAMES);
    for number in 0..FRAMES as u32 {
        send(&mut fixture.engine_end, number).unwrap();
    }
    assert_eq!(send(&mut fixture.engine_end, 0), Err(SendError::Full));
    assert_eq!(fixture.engine_end.counters().transmit_full, 1);
    fixture.driver_end.turn();
    let (_, mut tx) = fixture.engine_end.split();
    assert_eq!(tx.room(), BURST);
    assert_eq!(
        tx.send(1519, Offload::None, &mut |_| ()),
        Err(SendError::TooLong)
    );
    let cut = Offload::TcpSegmentation {
        start: 34,
        header_len: 54,
        mss: 536,
    };
    assert_eq!(tx.send(1500, cut, &mut |_| ()), Err(SendError::TooLong));
    assert_eq!(tx.room(), BURST);
}

#[test]
fn a_full_driver_gets_the_frames_later_in_order() {
    let mut fixture = Fixture::new(|config| config.transmit_frames = 3);
    for number in 0..10 {
        send(&mut fixture.engine_end, number).unwrap();
    }
    let mut numbers = Vec::new();
    for _ in 0..4 {
        fixture.driver_end.turn();
        numbers.extend(fixture.peer_sees());
    }
    assert!(numbers.into_iter().eq(0..10));
}

#[test]
fn idle_means_that_all_has_left() {
    let mut fixture = Fixture::new(|config| config.transmit_frames = 1);
    let idle = |engine_end: &mut EngineEnd| engine_end.split().1.idle();
    assert!(idle(&mut fixture.engine_end));
    send(&mut fixture.engine_end, 1).unwrap();
    send(&mut fixture.engine_end, 2).unwrap();
    assert!(!idle(&mut fixture.engine_end));
    fixture.driver_end.turn();
    // One is leaving; the driver had no room for the other.
    assert!(!idle(&mut fixture.engine_end));
    fixture.peer.clock().advance(1000);
    fixture.driver_end.turn();
    assert!(!idle(&mut fixture.engine_end));
    fixture.peer.clock().advance(1000);
    // Behind the question.
    send(&mut fixture.engine_end, 3).unwrap();
    fixture.driver_end.turn();
    fixture.peer.clock().advance(1000);
    fixture.driver_end.turn();
    assert!(!idle(&mut fixture.engine_end));
    fixture.driver_end.turn();
    assert!(idle(&mut fixture.engine_end));
    assert_eq!(fixture.peer_sees(), [1, 2, 3]);
}

#[test]
fn faults_come_behind_the_frames_and_stay() {
    let (nic, mut peer) = link(LinkConfig::default(), LinkConfig::default(), 1);
    let config = FaultConfig {
        // A turn flushes and bursts.
        fault: Some((2, Fault::NeedsReset)),
        ..FaultConfig::default()
    };
    let (mut driver_end, mut engine_end) = relay(inject(nic, config, 1));
    send(&mut peer, 7).unwrap();
    peer.clock().advance(1000);
    assert!(driver_end.turn());
    assert!(!driver_end.turn());
    assert!(!driver_end.turn());
    assert_eq!(seen(&mut engine_end, 8), Err(Fault::NeedsReset));
    assert_eq!(seen(&mut engine_end, 8), Err(Fault::NeedsReset));
    let refused = Err(SendError::Fault(Fault::NeedsReset));
    assert_eq!(send(&mut engine_end, 1), refused);
    let (_, mut tx) = engine_end.split();
    assert_eq!(tx.flush(), Err(Fault::NeedsReset));
    assert!(tx.idle());
    assert!(!engine_end.link_up());
    assert_eq!(engine_end.counters().receive_units, 1);
}

#[test]
fn stopped_at_the_engine_end_the_device_stops() {
    let mut fixture = Fixture::new(|_| {});
    fixture.peer_sends(1);
    fixture.driver_end.turn();
    fixture.engine_end.stop();
    fixture.engine_end.stop();
    assert_eq!(seen(&mut fixture.engine_end, 8), Ok(Vec::new()));
    assert_eq!(
        send(&mut fixture.engine_end, 1),
        Err(SendError::Fault(Fault::Removed))
    );
    assert!(fixture.engine_end.split().1.idle());
    fixture.driver_end.turn();
    fixture.peer_sends(2);
    assert!(!fixture.driver_end.turn());
    let mut nic = fixture.driver_end.into_nic();
    assert_eq!(send(&mut nic, 1), Err(SendError::Fault(Fault::Removed)));
}

#[test]
fn the_link_is_as_the_driver_end_last_saw_it() {
    let mut fixture = Fixture::new(|_| {});
    fixture.peer.set_link_up(false);
    assert!(fixture.engine_end.link_up());
    fixture.driver_end.turn();
    assert!(!fixture.engine_end.link_up());
    fixture.peer.set_link_up(true);
    fixture.driver_end.turn();
    assert!(fixture.engine_end.link_up());
}

#[test]
fn ends_may_be_on_two_processors() {
    const COUNT: u32 = 5000;
    let mut fixture = Fixture::new(|_| {});
    let (mut engine_end, mut peer) = (fixture.engine_end, fixture.peer);
    let engine = thread::spawn(move || {
        let mut expected = 0;
        while expected < COUNT {
            for number in seen(&mut engine_end, 16).unwrap() {
                assert_eq!(number, expected);
                expected += 1;
                while send(&mut engine_end, number) == Err(SendError::Full) {
                    thread::yield_now();
                }
            }
            thread::yield_now();
        }
        while !engine_end.split().1.idle() {
            thread::yield_now();
        }
        engine_end
    });
    for number in 0..COUNT {
        send(&mut peer, number).unwrap();
    }
    peer.clock().advance(1_000_000);
    let mut numbers = Vec::new();
    while !engine.is_finished() {
        fixture.driver_end.turn();
        peer.clock().advance(100);
        numbers.extend(seen(&mut peer, usize::MAX).unwrap());
    }
    let engine_end = engine.join().unwrap();
    peer.clock().advance(1_000_000);
    numbers.extend(seen(&mut peer, usize::MAX).unwrap());
    assert!(numbers.into_iter().eq(0..COUNT));
    assert_eq!(engine_end.counters().receive_units, u64::from(COUNT));
}

#[derive(Clone, Debug)]
enum Step {
    PeerSends(u8),
    DriverTurns,
    EngineReceives(u8),
    EngineSends(u8),
    EngineAsks,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..60_u8).prop_map(Step::PeerSends),
        Just(Step::DriverTurns),
        (0..80_u8).prop_map(Step::EngineReceives),
        (0..100_u8).prop_map(Step::EngineSends),
        Just(Step::EngineAsks),
    ]
}

proptest! {
    /// Whatever the order of turns: what was accepted comes out, once, whole and in order; `idle` never lies.
    #[test]
    fn nothing_is_lost_in_any_interleaving(
        steps in prop::collection::vec(step(), 1..60),
        driver_room in 1_usize..80,
    ) {
        let mut fixture = Fixture::new(|config| config.transmit_frames = driver_room);
        let (mut inbound, mut outbound) = (VecDeque::new(), VecDeque::new());
        let mut number = 0;
        for step in steps {
            match step {
                Step::PeerSends(count) => for _ in 0..count {
                    number += 1;
                    fixture.peer_sends(number);
                    inbound.push_back(number);
                },
                Step::DriverTurns => {
                    fixture.driver_end.turn();
                }
                Step::EngineReceives(budget) => {
                    let numbers = seen(&mut fixture.engine_end, budget.into()).unwrap();
                    prop_assert!(numbers.len() <= budget.into());
                    for number in numbers {
                        prop_assert_eq!(Some(number), inbound.pop_front());
                    }
                }
                Step::EngineSends(count) => for _ in 0..count {
                    number += 1;
                    let room = fixture.engine_end.split().1.room();
                    match send(&mut fixture.engine_end, number) {
                        Ok(()) => outbound.push_back(number),
                        Err(error) => {
                            prop_assert_eq!(error, SendError::Full);
                            prop_assert_eq!(room, 0);
                        }
                    }
                },
                Step::EngineAsks => {
                    let idle = fixture.engine_end.split().1.idle();
                    for number in fixture.peer_sees() {
                        prop_assert_eq!(Some(number), outbound.pop_front());
                    }
                    prop_assert!(!idle || outbound.is_empty());
                }
            }
        }
        while fixture.driver_end.turn() || !inbound.is_empty() {
            fixture.peer.clock().advance(1000);
            for number in seen(&mut fixture.engine_end, 64).unwrap() {
                prop_assert_eq!(Some(number), inbound.pop_front());
            }
        }
        for number in fixture.peer_sees() {
            prop_assert_eq!(Some(number), outbound.pop_front());
        }
        prop_assert!(outbound.is_empty());
    }
}

#[test]
fn a_fault_finds_room_behind_all_units() {
    let (nic, mut peer) = link(LinkConfig::default(), LinkConfig::default(), 1);
    let turns = (UNITS / BURST) as u64;
    let config = FaultConfig {
        // Each turn flushes and bursts.
        fault: Some((2 * turns, Fault::NeedsReset)),
        ..FaultConfig::default()
    };
    let (mut driver, mut engine) = relay(inject(nic, config, 1));
    let numbers: Vec<u32> = (0..UNITS as u32).collect();
    for &number in &numbers {
        send(&mut peer, number).unwrap();
    }
    peer.clock().advance(10_000);
    for _ in 0..turns {
        assert!(driver.turn());
    }
    assert!(!driver.turn());
    assert_eq!(seen(&mut engine, UNITS), Ok(numbers));
    assert_eq!(seen(&mut engine, UNITS), Err(Fault::NeedsReset));
}

#[test]
fn answers_find_room_behind_all_buffers() {
    let (nic, mut peer) = link(LinkConfig::default(), LinkConfig::default(), 1);
    let (mut driver, mut engine) = relay(nic);
    for number in 0..FRAMES as u32 {
        send(&mut engine, number).unwrap();
    }
    assert!(!engine.split().1.idle());
    assert!(engine.link_up());
    for _ in 0..FRAMES / BURST {
        assert!(driver.turn());
    }
    peer.clock().advance(10_000);
    peer.set_link_up(false);
    driver.turn();
    assert!(engine.split().1.idle());
    assert!(!engine.link_up());
    assert_eq!(engine.split().1.room(), FRAMES);
}

/// A NIC that says that its units are shorter than they are.
struct Modest(SimNic);

impl Nic for Modest {
    type Rx<'a> = <SimNic as Nic>::Rx<'a>;
    type Tx<'a> = <SimNic as Nic>::Tx<'a>;

    fn properties(&self) -> Properties {
        Properties {
            max_receive: 100,
            ..self.0.properties()
        }
    }

    fn link_up(&mut self) -> bool {
        self.0.link_up()
    }

    fn split(&mut self) -> (Self::Rx<'_>, Self::Tx<'_>) {
        self.0.split()
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }

    fn stop(&mut self) {
        self.0.stop();
    }
}

#[test]
fn units_that_no_buffer_holds_are_counted_as_dropped() {
    let (nic, mut peer) = link(LinkConfig::default(), LinkConfig::default(), 1);
    peer.configure(NicConfig {
        mtu: 9000,
        ..NicConfig::new(peer.properties().mac)
    });
    let (mut driver, mut engine) = relay(Modest(nic));
    let (_, tx) = peer.split();
    // The driver drops one, the relay two.
    for len in [2000, 101, 100, 1514] {
        tx.send(len, Offload::None, &mut |frame| frame.fill(1))
            .unwrap();
    }
    tx.flush().unwrap();
    peer.clock().advance(1000);
    assert!(driver.turn());
    assert_eq!(driver.counters().receive_dropped, 3);
    let mut lengths = Vec::new();
    let lent = engine.split().0.burst(8, |frame| lengths.push(frame.len));
    assert_eq!((lent, lengths), (Ok(1), [100].into()));
}
