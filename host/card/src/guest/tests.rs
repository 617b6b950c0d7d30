//! Our driver and engine on our card, over a socket, without a virtual machine.

mod faults;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use tempfile::TempDir;
use wireboot_card::coalesce::Limits;
use wireboot_card::{Beyond, Counters, Lies, Pace, feature};
use wireboot_fetch::Event;
use wireboot_server::directory::Directory;
use wireboot_server::event::Events;
use wireboot_server::station::Station;

use super::*;
use crate::control::Control;
use crate::data_path::DataPath;
use crate::listener::Listener;
use crate::outage::Outages;
use crate::poller::Polling;
use crate::port::{Offer, Plan, Port};
use crate::vhost::{Connection, Request, RingEvent};
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
    beyond: Beyond {
        chunks: None,
        placement: false,
    },
    polling: Polling::Learnt,
};

/// All that it does, for these offloads.
fn offer(offloads: u64, chunks: Option<Limits<Duration>>) -> Offer {
    Offer {
        offloads,
        beyond: Beyond {
            chunks,
            placement: true,
        },
        polling: Polling::default(),
    }
}

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
        self.fetch_from(machine, scheme, "10.77.0.1");
    }

    fn fetch_from(&self, machine: &mut Machine<'_>, scheme: &str, host: &str) {
        let file = machine.fetch(&format!("{scheme}://{host}/file"));
        assert!(file.unwrap().content() == self.bytes, "a wrong byte");
    }
}

/// A card that serves a directory.
struct Card(Control);

impl Card {
    fn start(files: &Path, socket: &Path, offer: Offer, lies: Lies) -> Self {
        let directory = Directory::open(files, None).unwrap();
        let station = Station::new(directory, Events::default(), 0, [1; 18]);
        let wire = HostWire::Server(Box::new(ServerWire::new(station).unwrap()));
        let plan = Plan {
            socket: socket.to_owned(),
            data_paths: vec![DataPath::new(wire, Pace::default(), None)],
            lies,
            outages: Outages::new(Vec::new(), 1),
        };
        let listener = Listener::bind(socket).unwrap();
        let port = Port::start("card".into(), listener, plan, offer).unwrap();
        Self(Control::start(port).unwrap())
    }

    /// Ends it. What it did.
    fn end(mut self) -> Counters {
        self.0.hang_up();
        self.0.end().statistics.card
    }
}

/// A machine with an address.
fn machine(guest: &Guest) -> Machine<'_> {
    let mut machine = Machine::start(guest, SEED, Some(0x1234)).unwrap();
    machine.lease(PATIENCE, Some(Version::V4)).unwrap();
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
            let offer = offer(offloads, chunks);
            let socket = served.socket("card");
            let card = Card::start(&served.files(), &socket, offer, Lies::default());
            let guest = Guest::connect(&socket, MAC).unwrap();
            let mut machine = machine(&guest);
            served.fetch(&mut machine, "tftp");
            served.fetch(&mut machine, "http");
            let agreed = machine.agreed().map(|hello| hello.features);
            let long = offloads & feature::GUEST_UFO != 0;
            let places = offloads & feature::GUEST_CSUM != 0;
            let expected =
                u32::from(long) | u32::from(chunks.is_some()) << 1 | u32::from(places) << 2;
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

/// Each offload of IPv6, on and off. No datagram is longer than the MTU.
#[test]
fn files_come_whole_over_ipv6() {
    let served = Served::new((1 << 20) + 123);
    let segments = feature::GUEST_CSUM | feature::GUEST_TSO6;
    let ipv4_segments = feature::GUEST_CSUM | feature::GUEST_TSO4;
    for offloads in [
        0,
        feature::GUEST_CSUM,
        segments,
        ipv4_segments,
        feature::KNOWN,
    ] {
        let offer = offer(offloads, None);
        let socket = served.socket("card");
        let card = Card::start(&served.files(), &socket, offer, Lies::default());
        let guest = Guest::connect(&socket, MAC).unwrap();
        let mut machine = Machine::start(&guest, SEED, None).unwrap();
        machine.ask_for_lease(PATIENCE);
        let given = loop {
            if let Some(Event::Lease { result, .. }) = machine.turn().unwrap()
                && let Some(lease) = result.unwrap().v6
            {
                break lease.addresses;
            }
        };
        assert!(
            given[0]
                .octets()
                .starts_with(&[0xfd, 0, 0, 0x77, 0, 0, 0, 0])
        );
        served.fetch_from(&mut machine, "tftp", "[fd00:77::1]");
        let before = machine.counters();
        served.fetch_from(&mut machine, "http", "[fd00:77::1]");
        let after = machine.counters();
        drop(machine);
        assert_eq!(card.end().faults, Counters::default().faults);
        let bytes = after.receive_bytes - before.receive_bytes;
        let units = after.receive_units - before.receive_units;
        let large = [segments, feature::KNOWN].contains(&offloads);
        assert_eq!(
            bytes / units > 2000,
            large,
            "{offloads:#x}: {bytes} in {units}"
        );
    }
}

/// A driver that ends in the middle of a transfer, as at a reset of the machine, and another one that comes.
/// Most of a file is placed, and what a server sends over a line that loses frames comes whole as well.
#[test]
fn payload_is_placed() {
    let served = Served::new(24 << 20);
    for chunks in [None, Some(CHUNKS)] {
        let offer = offer(feature::KNOWN, chunks);
        let socket = served.socket("card");
        let card = Card::start(&served.files(), &socket, offer, Lies::default());
        let guest = Guest::connect(&socket, MAC).unwrap();
        let mut machine = machine(&guest);
        for _ in 0..2 {
            served.fetch(&mut machine, "http");
        }
        drop(machine);
        let card = card.end();
        assert!(card.placed.bytes > 36 << 20, "{card:?}");
    }
}

#[test]
fn who_begins_anew_in_mid_transfer_gets_all() {
    // More than the driver has buffers for, so that it does not come in one turn.
    let served = Served::new(6 << 20);
    let socket = served.socket("card");
    for offloads in [0, feature::KNOWN] {
        let chunks = Some(CHUNKS);
        let offer = offer(offloads, chunks);
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

/// Another's card, which says what it was told.
fn recorded(features: u64, protocol: u64, drive: impl FnOnce(&Path) + Send) -> Vec<Request> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("card");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drive(&socket));
        let (stream, _) = listener.accept().unwrap();
        let mut connection = Connection::new(stream).unwrap();
        let mut told = Vec::new();
        loop {
            let mut polled = [PollFd::new(&connection, PollFlags::IN)];
            poll(&mut polled, None).unwrap();
            let message = match connection.receive() {
                Ok(Some(message)) => message,
                Ok(None) => continue,
                Err(_) => return told,
            };
            let answer = match &message.request {
                Request::GetFeatures => Some(features),
                Request::GetProtocolFeatures => Some(protocol),
                Request::GetQueueNumber => Some(1),
                Request::GetRingBase { ring } => Some(*ring as u64),
                _ => message.need_reply.then_some(0),
            };
            if let Some(answer) = answer {
                let answer = answer.to_le_bytes();
                connection.reply(message.number, &answer).unwrap();
            }
            let fds = match &message.request {
                Request::SetMemoryTable(_) | Request::SetRingEvent { .. } => 1,
                _ => 0,
            };
            assert_eq!(message.fds.len(), fds, "{:?}", message.request);
            told.push(message.request);
        }
    })
}

fn start_and_stop(socket: &Path) {
    let guest = Guest::connect(socket, MAC).unwrap();
    drop(Machine::start(&guest, SEED, None).unwrap());
    assert!(guest.take_failure().is_none());
}

/// In the order of QEMU, but features before rings are enabled: there are cards that want it so.
fn told(agreed: u64, enable: bool, requests: &[Request]) {
    let [Request::SetMemoryTable(table), ..] = &requests[1..] else {
        panic!("{requests:?}");
    };
    let [region] = table[..] else {
        panic!("{table:?}");
    };
    let mut expected = vec![Request::SetFeatures(agreed), requests[1].clone()];
    let (size, fd) = (256, true);
    for ring in 0..2 {
        let addresses = requests.iter().find_map(|request| match request {
            Request::SetRingAddresses {
                ring: of,
                descriptors,
                used,
                available,
            } if *of == ring => Some([*descriptors, *available, *used]),
            _ => None,
        });
        let [descriptors, available, used] = addresses.unwrap();
        // As virtio 1.2, section 2.7, has their lengths.
        let ends = [
            (descriptors, 16 * 256),
            (available, 6 + 2 * 256),
            (used, 6 + 8 * 256),
        ];
        for (table, len) in ends {
            let offset = table.checked_sub(region.user).unwrap();
            assert!(offset + len <= region.len, "{ends:?}");
        }
        let event = |event| Request::SetRingEvent { ring, event, fd };
        expected.extend([
            Request::SetRingSize { ring, size },
            Request::SetRingBase { ring, base: 0 },
            Request::SetRingAddresses {
                ring,
                descriptors,
                used,
                available,
            },
            event(RingEvent::Call),
            event(RingEvent::Kick),
        ]);
    }
    let enabled = |enable| [0, 1].map(|ring| Request::SetRingEnable { ring, enable });
    if enable {
        expected.extend(enabled(true));
        expected.extend(enabled(false));
    }
    expected.extend([0, 1].map(|ring| Request::GetRingBase { ring }));
    assert_eq!(requests, expected);
}

#[test]
fn a_card_is_told_all_and_gives_its_rings_back() {
    // vhost-user's own bit, and what the driver knows of what is offered; MTU, MQ and a queue for control are not passed on.
    let own = 1 << 30;
    let agreed = feature::VERSION_1 | feature::CSUM;
    let offered = agreed | own | 1 << 3 | 1 << 17 | feature::MQ;
    let hello = [
        Request::GetFeatures,
        Request::GetProtocolFeatures,
        Request::SetProtocolFeatures(9),
        Request::GetQueueNumber,
        Request::SetOwner,
    ];
    let requests = recorded(offered, 0xffff, start_and_stop);
    let (first, rest) = requests.split_at(hello.len());
    assert_eq!(first, hello);
    told(agreed | own, true, rest);
    // Without acknowledgements.
    let requests = recorded(offered, 0, start_and_stop);
    let hello = [
        Request::GetFeatures,
        Request::GetProtocolFeatures,
        Request::SetProtocolFeatures(0),
        Request::SetOwner,
    ];
    let (first, rest) = requests.split_at(hello.len());
    assert_eq!(first, hello);
    told(agreed | own, true, rest);
    // Without protocol features, rings need not be enabled.
    let requests = recorded(agreed, 0, start_and_stop);
    let (first, rest) = requests.split_at(2);
    assert_eq!(first, [Request::GetFeatures, Request::SetOwner]);
    told(agreed, false, rest);
}

/// Bytes of a card that knows no protocol, or another one.
#[test]
fn a_card_that_answers_wrong_is_refused() {
    let answered = |bytes: &'static [u8]| {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("card");
        let listener = UnixListener::bind(&socket).unwrap();
        let card = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 12]).unwrap();
            stream.write_all(bytes).unwrap();
        });
        let error = Guest::connect(&socket, MAC).err().unwrap();
        card.join().unwrap();
        error.to_string()
    };
    let header = |request: u8, flags: u8, len: u8| [request, 0, 0, 0, flags, 0, 0, 0, len, 0, 0, 0];
    for (bytes, why) in [
        (vec![], "closed the connection"),
        (header(1, 5, 8).to_vec(), "closed the connection"),
        (
            header(2, 5, 8).to_vec(),
            "answered request 1 of vhost-user by an answer to 2 of 8 bytes",
        ),
        (header(1, 5, 4).to_vec(), "an answer to 1 of 4 bytes"),
        (header(1, 1, 8).to_vec(), "a request where an answer is due"),
        (header(1, 6, 8).to_vec(), "another version"),
        (vec![0xff; 12], "vhost-user"),
    ] {
        let error = answered(bytes.leak());
        assert!(error.contains(why), "{error}");
    }
}
