//! Verdicts from UEFI 2.10, section 24.1, and from what the stock driver answers where that is silent.

use super::*;
use std::boxed::Box;
use std::vec;
use wireboot_net::{Engine, Instant, tap};
use wireboot_nic::sim::{Clock, LinkConfig, NicConfig, SimNic, link};
use wireboot_nic::{Nic, Offload, Receive, Transmit};

const US: MacAddress = [2, 0, 0, 0, 0, 1];
const HOST: MacAddress = [2, 0, 0, 0, 0, 2];
const ALL: MacAddress = [0xff; 6];
const GROUP: MacAddress = [1, 0, 0x5e, 0, 0, 5];

struct World {
    engine: Engine<SimNic>,
    far: SimNic,
    clock: Clock,
    snp: SimpleNetwork<Box<dyn Link>>,
}

impl World {
    fn new() -> Self {
        let (mut near, far) = link(LinkConfig::default(), LinkConfig::default(), 1);
        near.configure(NicConfig::new(US));
        let clock = near.clock();
        let mut engine = Engine::new(near, [7; 32]);
        let (tap, port) = tap(1500);
        engine.set_tap(tap);
        Self {
            engine,
            far,
            clock,
            snp: SimpleNetwork::new(Box::new(port), US, 1500),
        }
    }

    fn initialized() -> Self {
        let mut world = Self::new();
        world.snp.start().unwrap();
        world.snp.initialize().unwrap();
        world.turn();
        world
    }

    /// Frames that the host has received.
    fn turn(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for _ in 0..4 {
            self.clock.advance(60);
            let now = Instant::from_micros(self.clock.now());
            self.engine.poll(now).unwrap();
            self.clock.advance(60);
            let (rx, _) = self.far.split();
            rx.burst(256, |frame| frames.push(frame.parts.concat()))
                .unwrap();
        }
        frames
    }

    fn arrives(&mut self, to: MacAddress) -> Vec<u8> {
        let frame = [&to[..], &HOST, &[0x88, 0xb5], &[9; 50]].concat();
        let (_, tx) = self.far.split();
        tx.send(frame.len(), Offload::None, &mut |room| {
            room.copy_from_slice(&frame)
        })
        .unwrap();
        tx.flush().unwrap();
        self.turn();
        frame
    }

    fn receives(&mut self, to: MacAddress) -> bool {
        let frame = self.arrives(to);
        let waits = self.snp.waits();
        let too_small = self
            .snp
            .receive(|_| Err::<(), _>(Refusal::BufferTooSmall(60)));
        let got = self.snp.receive(|frame| Ok(frame.to_vec()));
        assert_eq!(waits, Ok(got.is_ok()));
        assert!(too_small.is_err());
        assert_eq!(self.snp.waits(), Ok(false));
        match got {
            Ok(bytes) => {
                assert_eq!(bytes, frame);
                true
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::NotReady);
                false
            }
        }
    }
}

/// What each call answers in each state, in the order Stopped, Started, Initialized.
#[test]
fn each_call_has_its_states() {
    use Refusal::{AlreadyStarted, DeviceError, NotReady, NotStarted};
    type Call = fn(&mut SimpleNetwork<Box<dyn Link>>) -> Result<(), Refusal>;
    let not_initialized = [Err(NotStarted), Err(DeviceError)];
    let [stopped, started] = not_initialized;
    let calls: [(Call, [Result<(), Refusal>; 3]); 11] = [
        (
            |snp| snp.start(),
            [Ok(()), Err(AlreadyStarted), Err(AlreadyStarted)],
        ),
        (|snp| snp.stop(), [stopped, Ok(()), Err(DeviceError)]),
        (|snp| snp.initialize(), [stopped, Ok(()), Err(DeviceError)]),
        (|snp| snp.reset(), [stopped, started, Ok(())]),
        (|snp| snp.shutdown(), [stopped, started, Ok(())]),
        (
            |snp| snp.receive_filters(1, 0, false, &[]),
            [stopped, started, Ok(())],
        ),
        (|snp| snp.station_address(None), [stopped, started, Ok(())]),
        (
            |snp| snp.statistics(false).map(drop),
            [stopped, started, Ok(())],
        ),
        (|snp| snp.status(true).map(drop), [stopped, started, Ok(())]),
        (
            |snp| snp.transmit(None, &[0; 60], 1),
            [stopped, started, Ok(())],
        ),
        (
            |snp| snp.receive(|_| Ok(())),
            [stopped, started, Err(NotReady)],
        ),
    ];
    for (index, (call, expected)) in calls.into_iter().enumerate() {
        for (state, expected) in expected.into_iter().enumerate() {
            let mut world = World::new();
            let steps: [Call; 2] = [|snp| snp.start(), |snp| snp.initialize()];
            for step in &steps[..state] {
                step(&mut world.snp).unwrap();
            }
            assert_eq!(world.snp.state() as usize, state);
            assert_eq!(
                call(&mut world.snp),
                expected,
                "call {index} in state {state}"
            );
        }
    }
}

#[test]
fn states_follow_each_other() {
    let mut snp = World::initialized().snp;
    assert_eq!(snp.state(), State::Initialized);
    snp.shutdown().unwrap();
    assert_eq!((snp.state(), snp.filters()), (State::Started, 0));
    snp.initialize().unwrap();
    snp.abandon();
    assert_eq!(snp.state(), State::Stopped);
}

#[test]
fn filters_are_obeyed() {
    let mut world = World::initialized();
    let seen = |world: &mut World| [US, ALL, GROUP].map(|to| world.receives(to));
    assert_eq!(seen(&mut world), [true, true, false]);
    for (bits, expected) in [
        (0x01, [true, false, false]),
        (0x04, [false, true, false]),
        (0x05, [true, true, false]),
        (0x08, [true, true, true]),
        (0x10, [false, false, true]),
        (0x00, [false, false, false]),
    ] {
        world
            .snp
            .receive_filters(bits, 0x1f & !bits, false, &[])
            .unwrap();
        assert_eq!(world.snp.filters(), bits);
        assert_eq!(seen(&mut world), expected, "{bits:#x}");
    }
    let other = [1, 0, 0x5e, 0, 0, 6];
    world.snp.receive_filters(0x02, 0, false, &[other]).unwrap();
    assert_eq!(seen(&mut world), [false, false, false]);
    world
        .snp
        .receive_filters(0x02, 0, false, &[other, GROUP])
        .unwrap();
    assert_eq!(world.snp.multicast(), [other, GROUP]);
    assert_eq!(seen(&mut world), [false, false, true]);
    let six = [0x33, 0x33, 0, 0, 0, 1];
    world.snp.receive_filters(0x02, 0, false, &[six]).unwrap();
    assert!(world.receives(six) && !world.receives(GROUP));
    world.snp.receive_filters(0, 0x02, false, &[]).unwrap();
    assert_eq!(seen(&mut world), [false, false, false]);
    world.snp.receive_filters(0x02, 0, false, &[GROUP]).unwrap();
    world.snp.receive_filters(0, 0, true, &[]).unwrap();
    assert_eq!((world.snp.filters(), world.snp.multicast().len()), (0, 0));
}

#[test]
fn wrong_filters_change_nothing() {
    let mut world = World::initialized();
    let many = [GROUP; MAX_MULTICAST + 1];
    for (enable, disable, list) in [
        (0x20, 0, &[][..]),
        (0, 0x20, &[]),
        (0x20, 0x20, &[]),
        (0x02, 0, &[]),
        (0x02, 0, &[US]),
        (0x02, 0, &[GROUP, US]),
        (0x02, 0, &many),
    ] {
        let result = world.snp.receive_filters(enable, disable, false, list);
        assert_eq!(result, Err(Refusal::InvalidParameter));
        assert_eq!(
            (world.snp.filters(), world.snp.multicast().len()),
            (0x05, 0)
        );
    }
    world
        .snp
        .receive_filters(0x02, 0, false, &many[1..])
        .unwrap();
}

#[test]
fn frames_are_sent_and_their_buffers_come_back_in_order() {
    let mut world = World::initialized();
    let frame = [&HOST[..], &US, &[8, 6], &[1; 46]].concat();
    for address in [0x1000, 0x2000, 0x3000] {
        world.snp.transmit(None, &frame, address).unwrap();
    }
    assert_eq!(world.turn(), vec![frame.clone(); 3]);
    assert_eq!(world.snp.status(false), Ok((interrupt::TRANSMIT, None)));
    for address in [0x1000, 0x2000, 0x3000] {
        assert_eq!(
            world.snp.status(true),
            Ok((interrupt::TRANSMIT, Some(address)))
        );
    }
    assert_eq!(world.snp.status(true), Ok((0, None)));
    world.arrives(US);
    assert_eq!(world.snp.status(true), Ok((interrupt::RECEIVE, None)));
    assert_eq!(world.snp.status(true), Ok((interrupt::RECEIVE, None)));

    // The header is the caller's, or ours.
    let header = |source| {
        Some(Header {
            source,
            destination: ALL,
            protocol: 0x0806,
        })
    };
    world.snp.transmit(header(None), &frame, 1).unwrap();
    world.snp.transmit(header(Some(GROUP)), &frame, 1).unwrap();
    let expected = |source: MacAddress| [&ALL[..], &source, &[8, 6], &[1; 46]].concat();
    assert_eq!(world.turn(), [expected(US), expected(GROUP)]);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let mut world = World::initialized();
    let snp = &mut world.snp;
    assert_eq!(
        snp.transmit(None, &[0; 13], 1),
        Err(Refusal::BufferTooSmall(14))
    );
    assert_eq!(
        snp.transmit(None, &[0; 1515], 1),
        Err(Refusal::InvalidParameter)
    );
    assert_eq!(snp.transmit(None, &[0; 1514], 1), Ok(()));
    let mut tagged = vec![0; 1518];
    tagged[12] = 0x81;
    assert_eq!(snp.transmit(None, &tagged, 1), Ok(()));
    for _ in 0..62 {
        assert_eq!(snp.transmit(None, &[0; 60], 1), Ok(()));
    }
    assert_eq!(snp.transmit(None, &[0; 60], 1), Err(Refusal::NotReady));
    // The simulated card takes no tags.
    assert_eq!(world.turn().len(), 63);
    // There is room on the wire; the caller has to ask for its buffers.
    assert_eq!(
        world.snp.transmit(None, &[0; 60], 1),
        Err(Refusal::NotReady)
    );
    world.snp.status(true).unwrap();
    assert_eq!(world.snp.transmit(None, &[0; 60], 1), Ok(()));
}

#[test]
fn frames_are_counted() {
    let mut world = World::initialized();
    for to in [US, ALL, ALL, GROUP] {
        world.receives(to);
    }
    assert!(world.snp.transmit(None, &[0; 1515], 1).is_err());
    for to in [HOST, HOST, ALL, GROUP] {
        let frame = [&to[..], &US, &[8, 6], &[1; 46]].concat();
        world.snp.transmit(None, &frame, 1).unwrap();
    }
    let (received, sent) = world.snp.statistics(false).unwrap();
    let expected = Counts {
        frames: 3,
        dropped: 1,
        unicast: 1,
        broadcast: 2,
        multicast: 0,
        bytes: 3 * 64,
    };
    assert_eq!(received, expected);
    let expected = Counts {
        frames: 4,
        dropped: 1,
        unicast: 2,
        broadcast: 1,
        multicast: 1,
        bytes: 4 * 60,
    };
    assert_eq!(sent, expected);
    assert_eq!(world.snp.statistics(true), Ok(Default::default()));
}

#[test]
fn the_address_is_the_cards() {
    let mut snp = World::initialized().snp;
    assert_eq!(snp.station_address(None), Ok(()));
    assert_eq!(snp.station_address(Some(US)), Ok(()));
    assert_eq!(snp.station_address(Some(HOST)), Err(Refusal::Unsupported));
}

/// RFC 1112, section 6.4: the low 23 bits. RFC 2464, section 7: the low 32.
#[test]
fn groups_have_ethernet_addresses() {
    let mac = |group: &str| multicast_mac(group.parse().unwrap());
    assert_eq!(mac("224.128.1.2"), Ok([1, 0, 0x5e, 0, 1, 2]));
    assert_eq!(mac("239.255.255.250"), Ok([1, 0, 0x5e, 0x7f, 0xff, 0xfa]));
    assert_eq!(mac("ff02::1:ff00:7"), Ok([0x33, 0x33, 0xff, 0, 0, 7]));
    for none in ["10.0.0.1", "255.255.255.255", "fe80::1"] {
        assert_eq!(mac(none), Err(Refusal::InvalidParameter));
    }
}

/// A card that is busy.
struct Busy;

impl Link for Busy {
    fn set_up(&mut self, _: bool) {}

    fn send(&mut self, _: &[u8; 14], _: &[u8]) -> bool {
        false
    }

    fn peek(&mut self) -> Option<&[u8]> {
        None
    }

    fn skip(&mut self) {}
}

/// Transmit: EFI_NOT_READY where the interface is too busy; the buffer stays the caller's.
#[test]
fn what_a_busy_card_does_not_take_was_not_sent() {
    let mut snp = SimpleNetwork::new(Busy, US, 1500);
    snp.start().unwrap();
    snp.initialize().unwrap();
    let sent = snp.transmit(None, &[0; 60], 1);
    assert_eq!(sent, Err(Refusal::NotReady));
    assert_eq!(snp.status(true), Ok((0, None)));
    assert_eq!(snp.statistics(false), Ok(Default::default()));
}

/// Reset: "The transmit and receive queues are emptied and all pending interrupts are cleared."
#[test]
fn a_reset_forgets_frames_and_buffers() {
    let mut world = World::initialized();
    world.snp.transmit(None, &[0xff; 60], 1).unwrap();
    world.arrives(US);
    assert_eq!(world.snp.waits(), Ok(true));
    world.snp.reset().unwrap();
    assert_eq!(world.snp.status(true), Ok((0, None)));
}

/// Reset: "Receive filters, the station address, the statistics, and the multicast-IP-to-HW MAC addresses are not reset by this call."
#[test]
fn a_reset_keeps_filters_and_statistics() {
    let mut world = World::initialized();
    world.snp.receive_filters(0x02, 0, false, &[GROUP]).unwrap();
    world.snp.transmit(None, &[0xff; 60], 1).unwrap();
    let counts = world.snp.statistics(false);
    world.snp.reset().unwrap();
    assert_eq!(world.snp.filters(), 0x07);
    assert_eq!(world.snp.multicast(), [GROUP]);
    assert_eq!(world.snp.statistics(false), counts);
}
