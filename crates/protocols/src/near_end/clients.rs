//! Models of loaders that read by TFTP, an engine, a wire with faults, and a server: each gets the same with the near end as without.

mod datagrams;
mod server;

use super::*;
use crate::near_end::download::Download;
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::Ipv4Addr;
use proptest::prelude::*;
use server::{FaultyTftpScript, Stop, serve};
use std::vec;
use wireboot_fetch::{Command, Event, Job, Lease, LeaseSource, Service};
use wireboot_net::{Duration, Engine, Ipv4Cidr, Ipv4Config, tap};
use wireboot_nic::Nic;
use wireboot_nic::sim::{self, Clock, LinkConfig, SimNic};
use wireboot_ring::{HeapBlock, Receiver, Sender, channel, prefix};
use wireboot_wire::tftp::{ErrorCode, Options, Packet, Request, TransferOptions};

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 2000;
const SECOND: i64 = 1_000_000;
/// Memory for a file.
const MOST: u64 = 128 << 10;
/// A loader says again how far it is, and gives up.
const REPEAT: i64 = 400_000;
const PATIENCE: i64 = 20 * SECOND;

/// The engine, and its downloads for the near end.
struct World {
    service: Service<SimNic>,
    commands: Sender<Command>,
    events: Receiver<Event>,
    clock: Clock,
    downloads: Vec<(Job, Download<HeapBlock>)>,
    opened: u32,
}

fn piece(bytes: usize) -> Option<download::Piece<HeapBlock>> {
    Some(prefix(HeapBlock::in_pieces(&vec![0xee; bytes], 999)))
}

impl World {
    fn turn(&mut self) -> bool {
        let now = Instant::from_micros(self.clock.now());
        let busy = self.service.poll(now).unwrap();
        while let Some(event) = self.events.pop() {
            let (Event::NeedMemory { job, .. }
            | Event::Progress { job, .. }
            | Event::Done { job, .. }
            | Event::Exchange { job, .. }
            | Event::Lease { job, .. }) = event
            else {
                continue;
            };
            let Some((_, one)) = self.downloads.iter_mut().find(|(of, _)| *of == job) else {
                continue;
            };
            match event {
                Event::NeedMemory { .. } => {
                    let command = match one.begin(piece) {
                        Some(memory) => Command::Memory { job, memory },
                        None => Command::NoMemory { job },
                    };
                    self.commands.push(command).unwrap();
                }
                Event::Progress { total, .. } => one.tell(total),
                Event::Done { result, .. } => one.finish(result.as_ref().map(|file| file.len)),
                _ => {}
            }
        }
        self.downloads
            .iter_mut()
            .for_each(|(_, one)| one.give(piece));
        busy
    }
}

#[derive(Clone)]
struct Net(Rc<RefCell<World>>);

impl Net {
    fn with<R>(&self, job: Job, f: impl FnOnce(&mut Download<HeapBlock>) -> R) -> R {
        let mut world = self.0.borrow_mut();
        let (_, one) = world
            .downloads
            .iter_mut()
            .find(|(of, _)| *of == job)
            .unwrap();
        f(one)
    }
}

impl Files for Net {
    type File = Job;

    fn now(&self) -> Instant {
        Instant::from_micros(self.0.borrow().clock.now())
    }

    fn open(&mut self, client: IpAddr, url: &Url) -> Option<Job> {
        let world = &mut *self.0.borrow_mut();
        if client != IpAddr::V4(US) {
            return None;
        }
        world.opened += 1;
        let job = world.opened;
        let (url, patience) = (url.as_str().into(), Duration::ZERO);
        world
            .commands
            .push(Command::Get { job, url, patience })
            .unwrap();
        world.downloads.push((job, Download::new(MOST)));
        Some(job)
    }

    fn progress(&mut self, job: &Job) -> Progress {
        self.with(*job, Download::progress)
    }

    fn read(&self, job: &Job, at: u64, to: &mut [u8]) -> usize {
        self.with(*job, |one| one.read(at, to))
    }

    fn release(&mut self, job: &Job, at: u64) {
        self.with(*job, |one| one.release(at));
    }

    fn close(&mut self, job: Job) {
        let world = &mut *self.0.borrow_mut();
        let index = world
            .downloads
            .iter()
            .position(|(of, _)| *of == job)
            .unwrap();
        let (_, one) = world.downloads.swap_remove(index);
        if !one.is_over() {
            world.commands.push(Command::Cancel { job }).unwrap();
        }
    }
}

/// How a read ends for its loader.
#[derive(Clone, Debug, PartialEq)]
enum ReadEnd {
    Whole,
    Error(u16, Vec<u8>),
    Silence,
    /// It has cancelled.
    Cancelled,
}

/// How a loader reads.
#[derive(Clone, Copy, Debug)]
struct Client {
    /// As they stand in its request.
    options: &'static [u8],
    /// It reads so fast: microseconds from a block to its acknowledgement.
    pause: i64,
    /// Sends an error behind so many blocks.
    cancels: Option<usize>,
}

const GRUB: Client = Client::of(b"blksize\x001024\0tsize\x000\0");
const IPXE: Client = Client::of(b"blksize\x001432\0tsize\x000\0");
const FREEBSD: Client = Client::of(b"");
const WINDOWS: Client =
    Client::of(b"tsize\x000\0blksize\x001456\0windowsize\x004\0msftwindow\x0031416\0");
const CLIENTS: [Client; 4] = [GRUB, IPXE, FREEBSD, WINDOWS];

impl Client {
    const fn of(options: &'static [u8]) -> Self {
        Self {
            options,
            pause: 0,
            cancels: None,
        }
    }

    fn request(&self) -> Vec<u8> {
        let mut request = Vec::new();
        let (filename, mode) = ("boot/file", "octet");
        let options = Options::new(self.options);
        Packet::Rrq(Request {
            filename,
            mode,
            options,
        })
        .emit(&mut request);
        request
    }
}

/// What a loader got.
#[derive(Clone, Debug, PartialEq)]
struct Got {
    file: Vec<u8>,
    size: Option<u64>,
    end: ReadEnd,
}

/// Faults of the wire, and between a loader and its card: one frame in so many is lost or comes twice.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    wire: LinkConfig,
    near: u64,
    seed: u64,
}

struct Fixture {
    net: Net,
    clock: Clock,
    link: Box<dyn Link>,
    server: Engine<SimNic>,
    header: [u8; 14],
    faults: Faults,
}

impl Fixture {
    fn new(near_end: bool, script: FaultyTftpScript, faults: Faults) -> Self {
        let (near, far) = sim::link(faults.wire, faults.wire, faults.seed);
        let clock = near.clock();
        let (mac, far_mac) = (near.properties().mac, far.properties().mac);
        let (mut commands, inbox) = channel(64);
        let (outbox, events) = channel(64);
        let service = Service::new(near, [1; 32], inbox, outbox);
        let lease = Lease::new(Ipv4Cidr::new(US, 24), LeaseSource::Firmware);
        commands.push(Command::Configure(lease)).unwrap();
        let (engines, port) = tap(1500);
        commands.push(Command::Tap(Box::new(engines))).unwrap();
        let net = Net(Rc::new(RefCell::new(World {
            service,
            commands,
            events,
            clock: clock.clone(),
            downloads: Vec::new(),
            opened: 0,
        })));
        let mut link: Box<dyn Link> = if near_end {
            Box::new(NearEnd::new(port, net.clone(), 1514, [3; 32]))
        } else {
            Box::new(port)
        };
        link.set_up(true);
        let mut server = Engine::new(far, [2; 32]);
        server.stack().configure(&Ipv4Config {
            address: Ipv4Cidr::new(SERVER, 24),
            router: None,
            routes: Vec::new(),
            mtu: None,
        });
        let stack = server.stack();
        server.spawn(serve(stack, script));
        let mut header = [8; 14];
        // As the server's frames begin: answers turn the addresses round.
        header[..6].copy_from_slice(&mac);
        header[6..12].copy_from_slice(&far_mac);
        header[12..].copy_from_slice(&[8, 0]);
        Self {
            net,
            clock,
            link,
            server,
            header,
            faults,
        }
    }

    fn strikes(&mut self) -> bool {
        let Faults { near, seed, .. } = &mut self.faults;
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *near > 0 && (*seed >> 33).is_multiple_of(*near)
    }

    fn turn(&mut self) {
        let mut busy = self.net.0.borrow_mut().turn();
        let now = Instant::from_micros(self.clock.now());
        busy |= self.server.poll(now).unwrap();
        self.clock.advance(if busy { 10 } else { 200 });
    }

    fn send(&mut self, port: u16, bytes: &[u8]) {
        self.send_to((SERVER, port).into(), bytes);
    }

    fn send_to(&mut self, to: SocketAddr, bytes: &[u8]) {
        let us = SocketAddr::from((US, PORT));
        let frame = datagram::answer(
            &mut Frames::default(),
            &self.header,
            us,
            to,
            bytes.len(),
            |place| {
                place.copy_from_slice(bytes);
            },
        );
        let (header, packet) = frame.split_first_chunk().unwrap();
        for _ in 0..1 + u8::from(self.strikes()) {
            self.link.send(header, packet);
        }
    }

    /// The next datagram from the server: its port, and its payload.
    fn receive(&mut self) -> Option<(u16, Vec<u8>)> {
        while let Some(frame) = self.link.peek().map(<[u8]>::to_vec) {
            self.link.skip();
            let (header, packet) = frame.split_first_chunk().unwrap();
            if let Some(datagram) = datagram::parse(header, packet)
                && datagram.source.ip() == IpAddr::V4(SERVER)
                && datagram.destination.port() == PORT
                && !self.strikes()
            {
                return Some((datagram.source.port(), datagram.payload.to_vec()));
            }
        }
        None
    }

    fn wait(&mut self, micros: i64) {
        let end = self.clock.now() + micros;
        while self.clock.now() < end {
            self.turn();
        }
    }

    /// Reads the file as RFC 1350, 2347 and 7440 say.
    fn read(&mut self, client: &Client) -> Got {
        let request = client.request();
        self.send(tftp::PORT, &request);
        let mut got = Got {
            file: Vec::new(),
            size: None,
            end: ReadEnd::Silence,
        };
        let (mut block_size, mut window) = (512, 1);
        let (mut server, mut next, mut since) = (None, 1_u16, 0);
        let (mut told, mut progress) = (self.clock.now(), self.clock.now());
        let mut blocks = 0;
        loop {
            let now = self.clock.now();
            if now > progress + PATIENCE {
                return got;
            }
            let acknowledgement = |next: u16| {
                let mut bytes = Vec::new();
                Packet::Ack {
                    block: next.wrapping_sub(1),
                }
                .emit(&mut bytes);
                bytes
            };
            let Some((port, bytes)) = self.receive() else {
                if now > told + REPEAT {
                    told = now;
                    match server {
                        Some(port) => self.send(port, &acknowledgement(next)),
                        None => self.send(tftp::PORT, &request.clone()),
                    }
                }
                self.turn();
                continue;
            };
            if *server.get_or_insert(port) != port {
                continue;
            }
            match Packet::parse(&bytes).unwrap() {
                Packet::Oack(granted) => {
                    assert!(granted.into_iter().all(|(name, _)| name != "msftwindow"));
                    let granted = TransferOptions::from_acknowledgement(granted).unwrap();
                    block_size = granted.block_size.unwrap_or(512);
                    window = granted.window_size.unwrap_or(1);
                    got.size = granted.transfer_size;
                    told = now;
                    self.send(port, &acknowledgement(1));
                }
                Packet::Data { block, payload } if block == next => {
                    progress = self.clock.now();
                    got.file.extend(payload);
                    next = next.wrapping_add(1);
                    (since, blocks) = (since + 1, blocks + 1);
                    if client.cancels == Some(blocks) {
                        let mut bytes = Vec::new();
                        let (code, text) = (ErrorCode::UNDEFINED, &b""[..]);
                        Packet::Error { code, text }.emit(&mut bytes);
                        self.send(port, &bytes);
                        got.end = ReadEnd::Cancelled;
                        return got;
                    }
                    let last = payload.len() < block_size.into();
                    if last || since >= window {
                        since = 0;
                        self.wait(client.pause);
                        told = self.clock.now();
                        self.send(port, &acknowledgement(next));
                    }
                    if last {
                        got.end = ReadEnd::Whole;
                        return got;
                    }
                }
                Packet::Data { .. } if window > 1 => {
                    // A gap (RFC 7440, section 4).
                    since = 0;
                    if now > told + 1000 {
                        told = now;
                        self.send(port, &acknowledgement(next));
                    }
                }
                Packet::Error { code, text } => {
                    got.end = ReadEnd::Error(code.0, text.to_vec());
                    return got;
                }
                _ => {}
            }
        }
    }
}

/// What a loader gets with the near end, which is what it gets without.
fn both(client: &Client, script: &FaultyTftpScript, faults: Faults) -> Got {
    let read = |near_end| {
        let mut fixture = Fixture::new(near_end, script.clone(), faults);
        let got = fixture.read(client);
        assert_eq!(fixture.net.0.borrow().opened > 0, near_end);
        fixture.wait(100_000);
        let open = fixture.net.0.borrow().downloads.len();
        if got.end != ReadEnd::Silence && faults.near == 0 {
            assert_eq!(open, 0, "a download is left");
        }
        got
    };
    let (with, without) = (read(true), read(false));
    assert_eq!(with.end, without.end, "{client:?}");
    assert_eq!(with.size, without.size, "{client:?}");
    for got in [&with, &without] {
        assert!(script.file.starts_with(&got.file), "{client:?}");
    }
    // Blocks before an error are as long as the wire's.
    let apart = with.file.len().abs_diff(without.file.len());
    let most = if with.end == ReadEnd::Whole {
        0
    } else {
        1500 * 8
    };
    assert!(apart <= most, "{client:?}: {apart}");
    with
}

#[test]
fn each_loader_gets_its_file() {
    for client in CLIENTS {
        for len in [0, 511, 512, 1024, 1432, 1456 * 4, 300_000] {
            let script = FaultyTftpScript::new(len);
            let got = both(&client, &script, Faults::default());
            assert_eq!(got.end, ReadEnd::Whole);
            assert!(got.file == script.file);
            let told = (!client.options.is_empty()).then_some(len as u64);
            assert_eq!(got.size, told);
        }
    }
}

/// It is longer than the memory for it, and the server does not wait for ever.
#[test]
fn a_slow_loader_gets_its_file() {
    for (client, pause) in [(GRUB, 3000), (IPXE, 60_000), (WINDOWS, 100_000)] {
        let client = Client { pause, ..client };
        let script = FaultyTftpScript::new(600_000);
        let got = both(&client, &script, Faults::default());
        assert_eq!(got.end, ReadEnd::Whole);
        assert!(got.file == script.file);
    }
}

#[test]
fn a_wrong_size_is_told_as_it_is() {
    for client in [GRUB, IPXE, WINDOWS] {
        for size in [0, 1, 99_999, 100_001, 5_000_000, u64::MAX] {
            let script = FaultyTftpScript {
                size: Some(size),
                ..FaultyTftpScript::new(100_000)
            };
            let got = both(&client, &script, Faults::default());
            assert_eq!((got.size, got.end), (Some(size), ReadEnd::Whole));
            assert!(got.file == script.file, "{size}");
        }
    }
}

#[test]
fn a_server_that_knows_no_size_serves_large_files() {
    for client in [GRUB, IPXE, WINDOWS] {
        let script = FaultyTftpScript {
            size: Some(0),
            ..FaultyTftpScript::new(3_000_000)
        };
        let got = both(&client, &script, Faults::default());
        assert_eq!((got.size, got.end), (Some(0), ReadEnd::Whole));
        assert!(got.file == script.file);
    }
}

#[test]
fn a_server_that_stops_in_mid_file_is_seen_to() {
    for client in CLIENTS {
        let stops = |stop| {
            let script = FaultyTftpScript {
                stop: Some((70_000, stop)),
                ..FaultyTftpScript::new(400_000)
            };
            both(&client, &script, Faults::default())
        };
        let error = stops(Stop::Error);
        assert_eq!(error.end, ReadEnd::Error(2, b"no more of it".to_vec()));
        assert!(error.file.len() > 70_000 - 1500 * 8);
        assert_eq!(stops(Stop::Minute).end, ReadEnd::Silence);
    }
}

/// The engine asks again, where a loader could not.
#[test]
fn a_server_that_forgets_is_asked_again() {
    let script = FaultyTftpScript {
        stop: Some((70_000, Stop::Forgets)),
        ..FaultyTftpScript::new(400_000)
    };
    let mut fixture = Fixture::new(true, script.clone(), Faults::default());
    let got = fixture.read(&GRUB);
    assert_eq!(got.end, ReadEnd::Whole);
    assert!(got.file == script.file);
}

#[test]
fn a_loader_cancels() {
    for client in CLIENTS {
        let client = Client {
            cancels: Some(20),
            ..client
        };
        let got = both(&client, &FaultyTftpScript::new(600_000), Faults::default());
        assert_eq!(got.end, ReadEnd::Cancelled);
    }
}

/// By another router than the engine has, perhaps: the request goes to the wire, and said again it goes the same way.
#[test]
fn a_server_that_the_engine_cannot_reach_is_asked_by_the_wire() {
    let mut fixture = Fixture::new(true, FaultyTftpScript::new(10), Faults::default());
    for _ in 0..3 {
        let far = Ipv4Addr::new(10, 9, 9, 9);
        fixture.send_to((far, tftp::PORT).into(), &GRUB.request());
        fixture.wait(SECOND);
        assert!(fixture.receive().is_none());
    }
    let world = fixture.net.0.borrow();
    assert_eq!((world.opened, world.downloads.len()), (1, 0));
}

#[test]
fn a_server_without_options_or_sizes_gives_the_file() {
    for client in CLIENTS {
        for options in [false, true] {
            let script = FaultyTftpScript {
                options,
                size: None,
                ..FaultyTftpScript::new(300_000)
            };
            let mut fixture = Fixture::new(true, script.clone(), Faults::default());
            let got = fixture.read(&client);
            assert_eq!(got.end, ReadEnd::Whole);
            assert!(got.file == script.file);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn faults_change_nothing(
        loss in 0.0..0.04,
        reorder in 0.0..0.1,
        duplicate in 0.0..0.1,
        near in prop_oneof![Just(0_u64), 20..100_u64],
        seed: u64,
        which in 0..4_usize,
        len in 0..200_000_usize,
        pause in prop_oneof![Just(0_i64), 100..3000_i64],
    ) {
        let wire = LinkConfig { loss, reorder, duplicate, reorder_micros: 300, ..LinkConfig::default() };
        let client = Client { pause, ..CLIENTS[which] };
        let script = FaultyTftpScript::new(len);
        let got = both(&client, &script, Faults { wire, near, seed });
        prop_assert_eq!(got.end, ReadEnd::Whole);
        prop_assert!(got.file == script.file);
    }
}
