//! The poller with a guest that shares a file with it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use wireboot_card::model::{Bus, Picos, Rate};
use wireboot_card::{Beyond, GuestMemory, Pace, Queue, RingFault, RingLayout, RingStart, feature};
use wireboot_namespace::{inside, sh};

use super::*;
use crate::memory::Place;
use crate::program::tests::program;
use crate::program::{Filter, Hook, PairOf};
use crate::wires::{Dgram, HostWire, Tap};

const SIZE: u16 = 8;
const LAYOUT: RingLayout = RingLayout {
    size: SIZE,
    descriptors: 0,
    available: 0x1000,
    used: 0x2000,
};
const TRANSMIT: PairQueue = PairQueue {
    pair: 0,
    queue: Queue::Transmit,
};
/// Where the frames lie.
const FRAMES: u64 = 0x3000;
const FRAME: u32 = 72;
const PATIENCE: Duration = Duration::from_secs(60);

/// A guest that sends.
struct Guest {
    memory: Mapping,
    poller: Poller,
    handle: Handle,
    features: u64,
    kick: OwnedFd,
    call: OwnedFd,
    error: OwnedFd,
    avail: u16,
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// How often it was rung.
fn rung(event: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    match rustix::io::read(event, &mut bytes) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => 0,
    }
}

impl Guest {
    fn new(features: u64) -> Self {
        let data_path = || DataPath::new(HostWire::None, Pace::default(), None);
        Self::before(vec![data_path(), data_path()], features)
    }

    fn before(data_paths: Vec<DataPath>, features: u64) -> Self {
        Self::polled(data_paths, features, Polling::default())
    }

    fn polled(data_paths: Vec<DataPath>, features: u64, polling: Polling) -> Self {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 0x4000).unwrap();
        let mapping = || {
            let place = Place {
                guest: 0,
                len: 0x4000,
                offset: 0,
            };
            Mapping::new(&[(place, &file)]).unwrap()
        };
        let poller = Poller::start(
            "card".into(),
            data_paths,
            Lies::default(),
            Beyond::default(),
            polling,
        )
        .unwrap();
        let mut handle = poller.handle();
        handle.set_memory(Some(mapping()));
        let guest = Self {
            memory: mapping(),
            poller,
            handle,
            features: features | feature::VERSION_1,
            kick: event(),
            call: event(),
            error: event(),
            avail: 0,
        };
        for n in 0..u64::from(SIZE) {
            let at = 16 * n;
            let address = FRAMES + 0x80 * n;
            guest.memory.write(at, &address.to_le_bytes()).unwrap();
            guest.memory.write(at + 8, &FRAME.to_le_bytes()).unwrap();
        }
        guest
    }

    fn start(&mut self, base: u16) {
        self.start_pair(TRANSMIT, base);
    }

    fn start_pair(&mut self, queue: PairQueue, base: u16) {
        let ring = RunningRing {
            start: RingStart {
                layout: LAYOUT,
                base,
                features: self.features,
            },
            kick: self.kick.try_clone().unwrap(),
            call: Some(self.call.try_clone().unwrap()),
            error: Some(self.error.try_clone().unwrap()),
            discards: false,
        };
        self.handle.start(queue, ring);
    }

    fn used(&self) -> u16 {
        self.memory.load(LAYOUT.used + 2, Acquire).unwrap()
    }

    /// Sends a frame, and rings if the card asks for that.
    fn send(&mut self) {
        let entry = LAYOUT.available + 4 + 2 * u64::from(self.avail % SIZE);
        self.memory
            .store(entry, self.avail % SIZE, Relaxed)
            .unwrap();
        let before = self.avail;
        self.avail = self.avail.wrapping_add(1);
        self.memory
            .store(LAYOUT.available + 2, self.avail, Release)
            .unwrap();
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let wanted = if self.features & feature::EVENT_IDX == 0 {
            self.memory.load(LAYOUT.used, Relaxed).unwrap() & 1 == 0
        } else {
            let event = LAYOUT.used + 4 + 8 * u64::from(SIZE);
            self.memory.load(event, Relaxed).unwrap() == before
        };
        if wanted {
            ring(self.kick.as_fd());
        }
    }

    /// Waits until all is sent.
    fn sent(&self) {
        let begun = Instant::now();
        while self.used() != self.avail {
            assert!(begun.elapsed() < PATIENCE, "a frame waits for ever");
            std::thread::yield_now();
        }
    }
}

/// With pauses of all lengths, so that the card is found turning, on its way to sleep and asleep.
fn wakes_for_each_frame(features: u64) {
    let mut guest = Guest::new(features);
    guest.start(0);
    for n in 0..3000u32 {
        guest.send();
        guest.sent();
        let begun = Instant::now();
        let pause = Duration::from_micros(u64::from(n * 7 % 120));
        while begun.elapsed() < pause {
            std::hint::spin_loop();
        }
    }
    let statistics = guest.poller.statistics().unwrap();
    assert_eq!(statistics.card.sent.units, 3000);
    assert_eq!(guest.handle.stop(TRANSMIT), 3000);
}

#[test]
fn a_card_asleep_is_woken_by_flag() {
    wakes_for_each_frame(0);
}

#[test]
fn a_card_asleep_is_woken_by_event_index() {
    wakes_for_each_frame(feature::EVENT_IDX);
}

#[test]
fn a_queue_that_is_stopped_is_touched_no_more_and_goes_on_where_it_was() {
    let mut guest = Guest::new(0);
    guest.start(0);
    guest.send();
    guest.sent();
    assert_eq!(guest.handle.stop(TRANSMIT), 1);
    guest.send();
    ring(guest.kick.as_fd());
    // The poller is there, and has had its turn.
    guest.poller.statistics().unwrap();
    assert_eq!(guest.used(), 1);
    guest.start(1);
    guest.sent();
    assert_eq!(guest.handle.stop(TRANSMIT), 2);
}

#[test]
fn the_guest_is_called_if_it_wants_to_be() {
    let mut guest = Guest::new(0);
    guest.start(0);
    guest.send();
    guest.sent();
    guest.handle.stop(TRANSMIT);
    assert_eq!(rung(&guest.call), 1);
    guest.memory.store(LAYOUT.available, 1, Relaxed).unwrap();
    guest.start(1);
    guest.send();
    guest.sent();
    guest.handle.stop(TRANSMIT);
    assert_eq!(rung(&guest.call), 0);
}

#[test]
fn another_descriptor_for_calls_is_rung_at_once() {
    let mut guest = Guest::new(0);
    guest.start(0);
    let call = event();
    let other = Some(call.try_clone().unwrap());
    guest.handle.set_call(TRANSMIT, other);
    guest.send();
    guest.sent();
    guest.handle.stop(TRANSMIT);
    assert!(rung(&call) >= 2);
    assert_eq!(rung(&guest.call), 0);
}

#[test]
fn a_broken_ring_is_told_to_the_monitor() {
    let mut guest = Guest::new(0);
    guest.start(0);
    // An index beyond the ring.
    guest
        .memory
        .store(LAYOUT.available + 2, SIZE + 1, Release)
        .unwrap();
    ring(guest.kick.as_fd());
    let mut polled = [PollFd::new(&guest.error, PollFlags::IN)];
    poll(&mut polled, None).unwrap();
    let stopped: Vec<_> = guest.poller.statistics().unwrap().card.stopped().collect();
    assert_eq!(stopped, [(RingFault::AvailableIndex, 1)]);
    // Started anew it works.
    assert_eq!(guest.handle.stop(TRANSMIT), 0);
    guest
        .memory
        .store(LAYOUT.available + 2, 0, Relaxed)
        .unwrap();
    guest.start(0);
    guest.send();
    guest.sent();
}

#[test]
fn a_doorbell_that_is_gone_is_waited_for_no_more() {
    let mut guest = Guest::new(0);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let broken = std::mem::replace(&mut guest.kick, theirs.into());
    guest.start(0);
    drop(ours);
    guest.kick = broken;
    // It answers still, and sleeps in between.
    let waits = |guest: &Guest| guest.poller.statistics().unwrap().waits;
    waits(&guest);
    std::thread::sleep(Duration::from_millis(20));
    let before = waits(&guest);
    std::thread::sleep(Duration::from_millis(50));
    assert!(waits(&guest) - before < 4);
    guest.handle.stop(TRANSMIT);
}

#[test]
fn each_pair_runs_for_itself() {
    let mut guest = Guest::new(0);
    let second = PairQueue {
        pair: 1,
        ..TRANSMIT
    };
    guest.start_pair(second, 0);
    // Asleep, too.
    for _ in 0..20 {
        guest.send();
        guest.sent();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(guest.handle.stop(TRANSMIT), 0);
    guest.send();
    guest.sent();
    let statistics = guest.poller.statistics().unwrap();
    let sent: Vec<_> = statistics
        .pairs
        .iter()
        .map(|pair| pair.sent.units)
        .collect();
    assert_eq!(sent, [0, 21]);
    assert_eq!(statistics.card.sent.units, 21);
    assert_eq!(guest.handle.stop(second), 21);
    // There is no third one.
    let third = PairQueue {
        pair: 2,
        ..TRANSMIT
    };
    guest.start_pair(third, 0);
    assert_eq!(guest.handle.stop(third), 0);
}

/// A guest that uses some of its pairs only must not lose what the kernel would give to others.
#[test]
fn a_queue_of_a_tap_is_in_use_while_its_pair_receives() {
    if !inside("poller::tests::a_queue_of_a_tap_is_in_use_while_its_pair_receives") {
        return;
    }
    sh("ip tuntap add dev card0 mode tap vnet_hdr multi_queue");
    let taps = Tap::open("card0", 2).unwrap();
    let data_paths = taps
        .into_iter()
        .map(|tap| DataPath::new(HostWire::Tap(tap), Pace::default(), None));
    let mut guest = Guest::before(data_paths.collect(), 0);
    let uses = |guest: &Guest, queues, others| {
        // The poller has done what it was told.
        guest.poller.statistics().unwrap();
        sh(&format!(
            "ip -details link show card0 | grep 'numqueues {queues} numdisabled {others}'"
        ));
    };
    uses(&guest, 1, 1);
    for queue in [Queue::Transmit, Queue::Receive] {
        let second = PairQueue { pair: 1, queue };
        guest.start_pair(second, 0);
        let queues = if queue == Queue::Receive { 2 } else { 1 };
        uses(&guest, queues, 2 - queues);
        guest.handle.stop(second);
        uses(&guest, 1, 1);
    }
}

#[test]
fn a_card_that_always_looks_waits_for_no_doorbell_and_counts_each() {
    let data_path = DataPath::new(HostWire::None, Pace::default(), None);
    let mut guest = Guest::polled(vec![data_path], 0, Polling::Always);
    guest.start(0);
    for _ in 0..100 {
        guest.send();
        guest.sent();
        std::thread::sleep(Duration::from_micros(100));
    }
    let statistics = guest.poller.statistics().unwrap();
    assert_eq!(statistics.card.sent.units, 100);
    // The first frame may be there before the card says that it looks.
    let first = statistics.doorbells;
    assert!(statistics.waits == 0 && first <= 1, "{first} doorbells");
    // A guest that rings all the same, and one that says that it has rung very often.
    let often = u64::MAX - 3;
    for (rung, all) in [
        (1, first + 1),
        (3, first + 4),
        (often, u64::MAX),
        (often, u64::MAX),
    ] {
        rustix::io::write(&guest.kick, &u64::to_ne_bytes(rung)).unwrap();
        let statistics = guest.poller.statistics().unwrap();
        let counted = (statistics.doorbells, statistics.transmit_doorbells);
        assert_eq!(counted, (all, all));
    }
    guest.handle.stop(TRANSMIT);
}

#[test]
fn a_card_that_never_looks_in_vain_waits_for_doorbells() {
    let data_path = DataPath::new(HostWire::None, Pace::default(), None);
    let mut guest = Guest::polled(vec![data_path], 0, Polling::For(Duration::ZERO));
    guest.start(0);
    let waits = || guest.poller.statistics().unwrap().waits;
    // It waits once it has begun.
    let (begun, before) = (Instant::now(), waits());
    while waits() == before {
        assert!(begun.elapsed() < PATIENCE, "it never waits");
    }
    // A frame may be there before the card has said that it waits.
    while guest.poller.statistics().unwrap().doorbells == 0 {
        assert!(begun.elapsed() < PATIENCE, "it waits for no doorbell");
        guest.send();
        guest.sent();
    }
    guest.handle.stop(TRANSMIT);
}

/// The bus takes them one after the other, and nobody rings for those that have to stay with the guest.
#[test]
fn a_card_asleep_wakes_when_the_bus_is_free() {
    let bus = Bus {
        per_transfer: Picos::micros(5000),
        rate: Rate::new(1_000_000_000_000),
    };
    let pace = Pace {
        bus: Some(bus),
        ..Pace::default()
    };
    let mut guest = Guest::before(vec![DataPath::new(HostWire::None, pace, None)], 0);
    let begun = Instant::now();
    for _ in 0..SIZE {
        guest.send();
    }
    rung(&guest.kick);
    guest.start(0);
    guest.sent();
    // The last was taken while the one before was on the bus.
    let least = Duration::from_micros(5000 * u64::from(SIZE - 2));
    assert!(begun.elapsed() >= least);
    let statistics = guest.poller.statistics().unwrap();
    assert_eq!(statistics.doorbells, 0);
    guest.handle.stop(TRANSMIT);
}

/// A program sends all by the second pair. While the guest does not use that one, they go by the first.
#[test]
fn a_frame_goes_by_the_pair_that_a_program_chooses() {
    let folder = tempfile::tempdir().unwrap();
    let remote = |n: usize| {
        let socket = UnixDatagram::bind(folder.path().join(format!("remote{n}"))).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let remotes = [remote(0), remote(1)];
    let program = program(Hook::Guest, "mov r2, 1\nstxh [r1+22], r2\nmov r0, 0\nexit");
    let data_path = |pair: u16| {
        let [local, remote] =
            ["local", "remote"].map(|name| folder.path().join(format!("{name}{pair}")));
        let wire = HostWire::Dgram(Dgram::open(&local, &remote, 1500).unwrap());
        let filter = Filter::new(wire, Some(program.clone()), PairOf { pair, pairs: 2 });
        DataPath::new(filter, Pace::default(), None)
    };
    let mut guest = Guest::before(vec![data_path(0), data_path(1)], 0);
    let came = |n: usize| remotes[n].recv(&mut [0; 100]).is_ok();
    let comes = |n: usize| {
        let begun = Instant::now();
        while !came(n) {
            assert!(begun.elapsed() < PATIENCE, "nothing comes by pair {n}");
            std::thread::yield_now();
        }
    };
    guest.start(0);
    guest.send();
    comes(0);
    let second = PairQueue {
        pair: 1,
        queue: Queue::Transmit,
    };
    // The same ring: both send what is in it.
    guest.start_pair(second, 1);
    // What is sent before the card has seen that goes by the first.
    guest.poller.statistics().unwrap();
    guest.send();
    comes(1);
    comes(1);
    assert!(!came(0));
    let statistics = guest.poller.statistics().unwrap();
    assert_eq!(statistics.program.unwrap().diverted, 2);
    guest.handle.stop(second);
    guest.handle.stop(TRANSMIT);
}

/// A frame that a program delays is not for a queue that is stopped meanwhile.
#[test]
fn what_waits_for_a_receive_queue_is_forgotten_when_it_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let [local, remote] = ["local", "remote"].map(|name| folder.path().join(name));
    let wire = HostWire::Dgram(Dgram::open(&local, &remote, 1500).unwrap());
    let sender = UnixDatagram::bind(&remote).unwrap();
    let program = program(Hook::Wire, "stw [r1+16], 1000000\nmov r0, 0\nexit");
    let filter = Filter::new(wire, Some(program), PairOf::ONLY);
    let mut guest = Guest::before(vec![DataPath::new(filter, Pace::default(), None)], 0);
    // One buffer, to be written to.
    guest.memory.write(8, &0x800u32.to_le_bytes()).unwrap();
    guest.memory.write(12, &2u16.to_le_bytes()).unwrap();
    let queue = PairQueue {
        pair: 0,
        queue: Queue::Receive,
    };
    guest.start_pair(queue, 0);
    guest.send();
    // What comes before it has started is thrown away.
    guest.poller.statistics().unwrap();
    sender.send_to(&[0; 60], &local).unwrap();
    let begun = Instant::now();
    let program = |guest: &Guest| guest.poller.statistics().unwrap().program.unwrap();
    while program(&guest).delayed == 0 {
        assert!(begun.elapsed() < PATIENCE, "no frame comes");
    }
    guest.handle.stop(queue);
    assert_eq!(program(&guest).forgotten, 1);
}

/// A frame that a program delays comes as much later as the machine was paused.
#[test]
fn the_clock_stands_still_while_no_queue_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let [local, remote] = ["local", "remote"].map(|name| folder.path().join(name));
    let wire = HostWire::Dgram(Dgram::open(&local, &remote, 1500).unwrap());
    let receiver = UnixDatagram::bind(&remote).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let program = program(Hook::Guest, "stw [r1+16], 300000\nmov r0, 0\nexit");
    let filter = Filter::new(wire, Some(program), PairOf::ONLY);
    let mut guest = Guest::before(vec![DataPath::new(filter, Pace::default(), None)], 0);
    guest.start(0);
    let begun = Instant::now();
    guest.send();
    guest.sent();
    let base = guest.handle.stop(TRANSMIT);
    std::thread::sleep(Duration::from_millis(600));
    guest.start(base);
    receiver.recv(&mut [0; 100]).unwrap();
    // Less a little, for a thread that had to wait for a processor.
    let (took, least) = (begun.elapsed(), Duration::from_millis(800));
    assert!(took >= least, "{took:?}");
    guest.handle.stop(TRANSMIT);
}

/// A program that fails on the third frame. Its guest's queue is stopped, and works when it is started anew.
#[test]
fn a_program_gone_wild_stops_its_queue() {
    // The first byte of a frame is the verdict.
    let program = program(Hook::Guest, "ldxb r0, [r1+24]\nexit");
    let data_path = || {
        let filter = Filter::new(HostWire::None, Some(program.clone()), PairOf::ONLY);
        DataPath::new(filter, Pace::default(), None)
    };
    let mut guest = Guest::before(vec![data_path(), data_path()], 0);
    // Behind the header of 12 bytes: pass, drop, and what is neither.
    for (n, verdict) in [0u8, 1, 7, 0].into_iter().enumerate() {
        guest
            .memory
            .write(FRAMES + 0x80 * n as u64 + 12, &[verdict])
            .unwrap();
    }
    guest.start(0);
    guest.send();
    guest.send();
    guest.sent();
    assert_eq!(rung(&guest.error), 0);
    guest.send();
    let begun = Instant::now();
    while rung(&guest.error) == 0 {
        assert!(begun.elapsed() < PATIENCE, "the guest is not told");
        std::thread::yield_now();
    }
    let statistics = guest.poller.statistics().unwrap();
    let stopped: Vec<_> = statistics.card.stopped().collect();
    assert_eq!(stopped, [(RingFault::Program, 1)]);
    let counters = statistics.program.unwrap();
    assert_eq!(
        (counters.seen, counters.dropped, counters.failed),
        ([3, 0], 1, 1)
    );
    guest.send();
    let base = guest.handle.stop(TRANSMIT);
    assert_eq!(base, 3);
    guest.start(base);
    guest.sent();
    let counters = guest.poller.statistics().unwrap().program.unwrap();
    assert_eq!((counters.seen, counters.failed), ([4, 0], 1));
    // Those of the second pair are added.
    let base = guest.handle.stop(TRANSMIT);
    let second = PairQueue {
        pair: 1,
        ..TRANSMIT
    };
    guest.start_pair(second, base);
    guest.send();
    guest.sent();
    let counters = guest.poller.statistics().unwrap().program.unwrap();
    assert_eq!(counters.seen, [5, 0]);
    guest.handle.stop(second);
}
