//! Our driver and engine on our card, over a socket, without a virtual machine.

mod faults;

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;
use wireboot_card::coalesce::Limits;
use wireboot_card::{Counters, Lies, Pace, feature};
use wireboot_fetch::Event;
use wireboot_server::directory::Directory;
use wireboot_server::event::Events;
use wireboot_server::station::Station;

use super::*;
use crate::listener::Listener;
use crate::mishap::Mishaps;
use crate::port::{Offer, Plan, Port};
use crate::stage::Stage;
use crate::wires::{HostWire, ServerWire};

const MAC: MacAddress = [0x52, 0x54, 0, 1, 2, 3];
const SEED: [u8; 32] = [7; 32];
const PATIENCE: Duration = Duration::from_secs(60);
const CHUNKS: Limits<Duration> = Limits {
    frames: 43,
    bytes: 65_536,
    wait: Duration::ZERO,
};
const PLAIN: Offer = Offer {
    offloads: 0,
    chunks: None,
};

/// A directory with a file, as a card serves it.
struct Served {
    folder: TempDir,
    bytes: Vec<u8>,
}

impl Served {
    fn new(len: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut bytes = vec![0; len];
        random.fill(&mut bytes);
        fs::create_dir(folder.path().join("files")).unwrap();
        fs::write(folder.path().join("files/file"), &bytes).unwrap();
        Self { folder, bytes }
    }

    fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Downloads the file, and compares it.
    fn fetch(&self, machine: &mut Machine<'_>, scheme: &str) {
        let file = machine.fetch(&format!("{scheme}://10.77.0.1/file"));
        assert!(file.unwrap().content() == self.bytes, "a wrong byte");
    }
}

/// A card of its own thread, which serves a directory.
struct Card {
    end: UnixStream,
    thread: JoinHandle<Counters>,
}

impl Card {
    fn start(files: &Path, socket: &Path, offer: Offer, lies: Lies) -> Self {
        let directory = Directory::open(files, None).unwrap();
        let station = Station::new(directory, Events::default(), 0, [1; 18]);
        let wire = HostWire::Server(Box::new(ServerWire::new(station)));
        let plan = Plan {
            socket: socket.to_owned(),
            stages: vec![Stage::new(wire, Pace::default(), None)],
            lies,
            mishaps: Mishaps::new(Vec::new(), 1),
        };
        let listener = Listener::bind(socket).unwrap();
        let mut port = Port::start("card".into(), listener, plan, offer).unwrap();
        let (end, ended) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || {
            loop {
                let woken = {
                    let [listener, monitor] = port.descriptors();
                    let there = |fd: Option<_>| fd.unwrap_or_else(|| ended.as_fd());
                    let fds = [ended.as_fd(), there(listener), there(monitor)];
                    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
                    let second = Timespec {
                        tv_sec: 1,
                        tv_nsec: 0,
                    };
                    poll(&mut polled, Some(&second)).unwrap();
                    polled.map(|fd| !fd.revents().is_empty())
                };
                if woken[0] {
                    port.hang_up();
                    return port.statistics().unwrap().statistics.card;
                }
                port.look([woken[1], woken[2]]).unwrap();
            }
        });
        Self { end, thread }
    }

    /// Ends it. What it did.
    fn end(mut self) -> Counters {
        self.end.write_all(b"x").unwrap();
        self.thread.join().unwrap()
    }
}

/// A machine with an address.
fn machine(guest: &Guest) -> Machine<'_> {
    let mut machine = Machine::start(guest, SEED, Some(0x1234)).unwrap();
    machine.lease(PATIENCE).unwrap();
    machine
}

#[test]
fn files_come_whole_with_each_offload_and_chunks_on_and_off() {
    let served = Served::new((1 << 20) + 123);
    let segments = feature::GUEST_CSUM | feature::GUEST_TSO4;
    let datagrams = feature::GUEST_CSUM | feature::GUEST_UFO;
    let sending = feature::CSUM | feature::HOST_TSO4;
    for offloads in [
        0,
        feature::GUEST_CSUM,
        segments,
        datagrams,
        sending,
        feature::KNOWN,
    ] {
        for chunks in [None, Some(CHUNKS)] {
            let offer = Offer { offloads, chunks };
            let socket = served.socket("card");
            let card = Card::start(&served.files(), &socket, offer, Lies::default());
            let guest = Guest::connect(&socket, MAC).unwrap();
            let mut machine = machine(&guest);
            served.fetch(&mut machine, "tftp");
            served.fetch(&mut machine, "http");
            let agreed = machine.agreed().map(|hello| hello.features);
            let long = offloads & feature::GUEST_UFO != 0;
            let expected = u32::from(long) | u32::from(chunks.is_some()) << 1;
            assert_eq!(agreed, Some(expected));
            drop(machine);
            let card = card.end();
            assert_eq!(card.hellos, 1);
            assert_eq!(card.faults, Counters::default().faults);
            let large = [segments, datagrams, feature::KNOWN].contains(&offloads);
            let average = card.received.bytes / card.received.units;
            assert_eq!(average > 2000, large, "{offloads:#x}: {card:?}");
            // With units of 64 KB each way there is hardly a frame to be gathered.
            if offloads != feature::KNOWN {
                assert_eq!(card.received_chunks > 0, chunks.is_some());
            }
        }
    }
}

/// A driver that ends in the middle of a transfer, as at a reset of the machine, and another one that comes.
#[test]
fn who_begins_anew_in_mid_transfer_gets_all() {
    let served = Served::new(1 << 20);
    let socket = served.socket("card");
    for offloads in [0, feature::KNOWN] {
        let chunks = Some(CHUNKS);
        let offer = Offer { offloads, chunks };
        let card = Card::start(&served.files(), &socket, offer, Lies::default());
        // By the same connection, then by others.
        let guest = Guest::connect(&socket, MAC).unwrap();
        for scheme in ["tftp", "http"].repeat(4) {
            leave_in_mid_transfer(&guest, scheme);
        }
        served.fetch(&mut machine(&guest), "tftp");
        served.fetch(&mut machine(&guest), "http");
        drop(guest);
        for scheme in ["tftp", "http"].repeat(4) {
            leave_in_mid_transfer(&connect(&socket), scheme);
        }
        let guest = connect(&socket);
        served.fetch(&mut machine(&guest), "tftp");
        served.fetch(&mut machine(&guest), "http");
        assert_eq!(card.end().faults, Counters::default().faults);
    }
}

/// A connection, as soon as the card has seen the end of the one before.
fn connect(socket: &Path) -> Guest {
    let begun = Instant::now();
    loop {
        match Guest::connect(socket, MAC) {
            Ok(guest) => return guest,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn leave_in_mid_transfer(guest: &Guest, scheme: &str) {
    let mut machine = machine(guest);
    let before = machine.counters().receive_bytes;
    machine.begin(&format!("{scheme}://10.77.0.1/file"));
    while machine.counters().receive_bytes < before + 300_000 {
        if let Some(Event::Done { result, .. }) = machine.turn().unwrap() {
            panic!("over already: {result:?}");
        }
    }
}

#[test]
fn a_card_that_ends_is_told_of_and_so_is_none() {
    let served = Served::new(1 << 20);
    let socket = served.socket("card");
    let error = Guest::connect(&socket, MAC).err().unwrap();
    assert!(matches!(error, FrontEndError::Kernel(_)), "{error}");
    let card = Card::start(&served.files(), &socket, PLAIN, Lies::default());
    let guest = Guest::connect(&socket, MAC).unwrap();
    // It has one guest.
    let error = Guest::connect(&socket, MAC).err().unwrap();
    assert!(matches!(error, FrontEndError::Closed), "{error}");
    let mut machine = machine(&guest);
    machine.begin("tftp://10.77.0.1/file");
    card.end();
    let error = loop {
        match machine.turn() {
            Ok(Some(Event::Done { result, .. })) => panic!("it came: {result:?}"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, MachineError::Card(FrontEndError::Closed)),
        "{error}"
    );
}
