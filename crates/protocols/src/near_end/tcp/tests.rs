//! A loader with somebody else's TCP, an engine, a wire with faults, and a server: the loader gets the same with the near end as without.

use super::*;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::RefCell;
use proptest::prelude::*;
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::vec;
use wireboot_fetch::socket::socket;
use wireboot_fetch::{Command, Event, Job, Lease, LeaseSource, Service};
use wireboot_net::{Ipv4Addr, Ipv4Cidr, TapPort, tap};
use wireboot_nic::sim::{self, Clock, LinkConfig, SimNic};
use wireboot_nic::{Frame, Nic, Offload, Receive as _, Transmit as _};
use wireboot_ring::{HeapBlock, Receiver, Sender, channel, prefix};

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 80;
/// Of a piece of memory, of which a connection has four at most.
const PIECE: usize = 40_000;
const SECOND: i64 = 1_000_000;
/// A client that hears nothing for so long takes the server for gone.
const PATIENCE: i64 = 400 * SECOND;

/// The engine, and its connections for the near end.
struct World {
    service: Service<SimNic>,
    commands: Sender<Command>,
    _events: Receiver<Event>,
    clock: Clock,
    ports: Vec<(Job, SocketPort<HeapBlock>)>,
    opened: u32,
}

#[derive(Clone)]
struct Net(Rc<RefCell<World>>);

impl Net {
    fn port<R>(&self, job: Job, f: impl FnOnce(&mut SocketPort<HeapBlock>) -> R) -> R {
        let mut world = self.0.borrow_mut();
        let (_, port) = world.ports.iter_mut().find(|one| one.0 == job).unwrap();
        f(port)
    }
}

impl Streams for Net {
    type Stream = Job;

    fn now(&self) -> Instant {
        Instant::from_micros(self.0.borrow().clock.now())
    }

    fn connect(&mut self, local: IpAddr, remote: SocketAddr) -> Option<Job> {
        let world = &mut *self.0.borrow_mut();
        if local != IpAddr::V4(US) {
            return None;
        }
        world.opened += 1;
        let job = world.opened;
        let (socket, port) = socket();
        world.ports.push((job, port));
        let command = Command::Connect {
            job,
            remote,
            socket,
        };
        world.commands.push(command).unwrap();
        Some(job)
    }

    fn status(&mut self, job: &Job) -> Status {
        self.port(*job, |port| {
            port.turn();
            while port.wants_memory() {
                port.give(prefix(HeapBlock::in_pieces(&[0xee; PIECE], 999)));
            }
            Status::of(port)
        })
    }

    fn read(&self, job: &Job, at: usize, to: &mut [u8]) -> usize {
        self.port(*job, |port| port.read(at, to))
    }

    fn release(&mut self, job: &Job, count: usize) {
        self.port(*job, |port| port.release(count));
    }

    fn room(&self, job: &Job) -> usize {
        self.port(*job, |port| port.room())
    }

    fn write(&mut self, job: &Job, bytes: &[u8]) {
        self.port(*job, |port| {
            assert!(bytes.len() <= port.room());
            port.write(bytes);
        });
    }

    fn finish(&mut self, job: &Job) {
        self.port(*job, SocketPort::finish);
    }

    fn close(&mut self, job: Job) {
        let world = &mut *self.0.borrow_mut();
        let index = world.ports.iter().position(|one| one.0 == job).unwrap();
        let (_, mut port) = world.ports.swap_remove(index);
        port.turn();
        if !port.is_finished() {
            world.commands.push(Command::Cancel { job }).unwrap();
        }
    }
}

/// Loses and repeats some of what passes between a loader and its card.
struct Faulty {
    link: std::boxed::Box<dyn Link>,
    one_in: u64,
    state: u64,
}

impl Faulty {
    fn strikes(&mut self) -> bool {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005) + 1;
        self.one_in > 0 && (self.state >> 33).is_multiple_of(self.one_in)
    }
}

/// smoltcp on something that carries frames.
struct Host {
    iface: Interface,
    sockets: SocketSet<'static>,
}

/// What smoltcp may touch during a call into it.
#[derive(Default)]
struct Wires {
    arrived: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

struct Rx(Vec<u8>);
struct Tx<'a>(&'a mut Vec<Vec<u8>>);

impl phy::RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push(frame);
        result
    }
}

impl phy::Device for Wires {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Rx, Tx<'_>)> {
        let frame = self.arrived.pop_front()?;
        Some((Rx(frame), Tx(&mut self.sent)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

impl Host {
    fn new(mac: [u8; 6], address: Ipv4Addr) -> Self {
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
        config.random_seed = 7;
        let now = smoltcp::time::Instant::ZERO;
        let mut iface = Interface::new(config, &mut Wires::default(), now);
        iface.update_ip_addrs(|all| all.push(IpCidr::new(address.into(), 24)).unwrap());
        Self {
            iface,
            sockets: SocketSet::new(Vec::new()),
        }
    }

    fn socket(&mut self, receive: usize, transmit: usize) -> SocketHandle {
        let mut socket = tcp::Socket::new(
            tcp::SocketBuffer::new(vec![0; receive]),
            tcp::SocketBuffer::new(vec![0; transmit]),
        );
        socket.set_nagle_enabled(false);
        self.sockets.add(socket)
    }

    fn get(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// Gives it frames, and returns what it sends.
    fn poll(&mut self, now: i64, arrived: VecDeque<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut wires = Wires {
            arrived,
            sent: Vec::new(),
        };
        let now = smoltcp::time::Instant::from_micros(now);
        while self.iface.poll(now, &mut wires, &mut self.sockets) != PollResult::None {}
        wires.sent
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Finished,
    Reset,
    Silent,
}

/// What the server of a connection does, and how it ends.
#[derive(Clone, Debug)]
struct TcpServerScript {
    /// It answers when it has heard so many bytes.
    request: usize,
    file: Vec<u8>,
    /// How it ends, behind so many bytes of the file.
    last: Last,
    stop: usize,
    listens: bool,
}

impl TcpServerScript {
    fn new(request: usize, len: usize) -> Self {
        Self {
            request,
            file: pattern(len, 3),
            last: Last::Finished,
            stop: len,
            listens: true,
        }
    }
}

fn pattern(len: usize, step: usize) -> Vec<u8> {
    (0..len).map(|n| (n * step / 7 % 251) as u8).collect()
}

/// What faults there are.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    wire: LinkConfig,
    near: u64,
    seed: u64,
}

/// A loader, the engine's machine, a wire, and a server.
struct Fixture {
    net: Net,
    clock: Clock,
    link: Faulty,
    client: Host,
    socket: SocketHandle,
    far: SimNic,
    server: Host,
    listener: SocketHandle,
    script: TcpServerScript,
    sent: usize,
    heard: Vec<u8>,
    /// The server has seen the client's FIN; a connection of its was reset.
    heard_fin: bool,
    was_open: bool,
    was_reset: bool,
    over: bool,
    got: Vec<u8>,
}

impl Fixture {
    fn new(near_end: bool, script: TcpServerScript, faults: Faults) -> Self {
        let (near, far) = sim::link(faults.wire, faults.wire, faults.seed);
        let clock = near.clock();
        let mac = near.properties().mac;
        let far_mac = far.properties().mac;
        let (mut commands, inbox) = channel(64);
        let (outbox, events) = channel(64);
        let service = Service::new(near, [1; 32], inbox, outbox);
        let lease = Lease::new(Ipv4Cidr::new(US, 24), LeaseSource::Firmware);
        commands.push(Command::Configure(lease)).unwrap();
        let (engines, port) = tap(1500);
        commands
            .push(Command::Tap(std::boxed::Box::new(engines)))
            .unwrap();
        let net = Net(Rc::new(RefCell::new(World {
            service,
            commands,
            _events: events,
            clock: clock.clone(),
            ports: Vec::new(),
            opened: 0,
        })));
        let mut link: std::boxed::Box<dyn Link> = if near_end {
            std::boxed::Box::new(NearTcp::<TapPort, Net>::new(
                port,
                net.clone(),
                1514,
                [3; 16],
            ))
        } else {
            std::boxed::Box::new(port)
        };
        link.set_up(true);
        let mut client = Host::new(mac, US);
        let socket = client.socket(8192, 2048);
        let mut server = Host::new(far_mac, SERVER);
        let listener = server.socket(4096, 64 << 10);
        if script.listens {
            server.get(listener).listen(PORT).unwrap();
        }
        Self {
            net,
            clock,
            link: Faulty {
                link,
                one_in: faults.near,
                state: faults.seed,
            },
            client,
            socket,
            far,
            server,
            listener,
            script,
            sent: 0,
            heard: Vec::new(),
            heard_fin: false,
            was_open: false,
            was_reset: false,
            over: false,
            got: Vec::new(),
        }
    }

    fn connect(&mut self) {
        let context = self.client.iface.context();
        let socket = self.client.sockets.get_mut::<tcp::Socket>(self.socket);
        socket
            .connect(context, (SERVER, PORT), 2000)
            .expect("a free socket");
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.client.get(self.socket)
    }

    /// A moment passes.
    fn turn(&mut self) {
        let now = self.clock.now();
        let mut busy = {
            let mut world = self.net.0.borrow_mut();
            world.service.poll(Instant::from_micros(now)).unwrap()
        };
        let mut arrived = VecDeque::new();
        while let Some(frame) = self.link.link.peek().map(<[u8]>::to_vec) {
            self.link.link.skip();
            if !self.link.strikes() {
                arrived.push_back(frame);
            }
            if arrived.len() > 20 {
                break;
            }
        }
        busy |= !arrived.is_empty();
        for frame in self.client.poll(now, arrived) {
            let (header, packet) = frame.split_first_chunk().unwrap();
            busy = true;
            for _ in 0..1 + u8::from(self.link.strikes()) {
                self.link.link.send(header, packet);
            }
        }
        busy |= self.serve(now);
        self.clock.advance(if busy { 20 } else { 500 });
    }

    fn serve(&mut self, now: i64) -> bool {
        let mut arrived = VecDeque::new();
        let (rx, tx) = self.far.split();
        rx.burst(64, |frame: Frame<'_>| {
            arrived.push_back(frame.parts.concat())
        })
        .unwrap();
        let busy = !arrived.is_empty();
        for frame in self.server.poll(now, arrived) {
            let _ = tx.send(frame.len(), Offload::None, &mut |room| {
                room.copy_from_slice(&frame);
            });
        }
        tx.flush().unwrap();
        let TcpServerScript {
            request,
            file,
            last,
            stop,
            ..
        } = &self.script;
        let heard = &mut self.heard;
        let socket = self.server.sockets.get_mut::<tcp::Socket>(self.listener);
        // A FIN may come with the first segment that it accepts.
        self.was_open |= matches!(
            socket.state(),
            tcp::State::Established | tcp::State::CloseWait
        );
        if self.was_open && !self.over && socket.state() == tcp::State::Closed {
            self.was_reset = true;
        }
        if socket.can_recv() {
            let _ = socket.recv(|bytes| {
                heard.extend_from_slice(bytes);
                (bytes.len(), ())
            });
        }
        if self.was_open && !socket.may_recv() && socket.state() != tcp::State::Closed {
            self.heard_fin = true;
        }
        if heard.len() >= *request && self.was_open {
            if self.sent < *stop {
                if let Ok(count) = socket.send_slice(&file[self.sent..*stop]) {
                    self.sent += count;
                }
            } else if !self.over {
                match last {
                    Last::Finished => {
                        socket.close();
                        self.over = true;
                    }
                    // What came before has arrived.
                    Last::Reset if socket.send_queue() == 0 => {
                        socket.abort();
                        self.over = true;
                    }
                    _ => {}
                }
            }
        }
        busy
    }

    /// Takes what the client has.
    fn take(&mut self) {
        let got = &mut self.got;
        let socket = self.client.sockets.get_mut::<tcp::Socket>(self.socket);
        if socket.can_recv() {
            let _ = socket.recv(|bytes| {
                got.extend_from_slice(bytes);
                (bytes.len(), ())
            });
        }
    }

    /// The client sends `request`, ends its side if it shall, and reads to the end.
    fn run(&mut self, request: &[u8], half_closes: bool) -> Last {
        self.connect();
        let (mut sent, mut closed) = (0, false);
        let (mut since, mut before) = (self.clock.now(), 0);
        loop {
            self.turn();
            self.take();
            let now = self.clock.now();
            if self.got.len() + sent > before {
                (before, since) = (self.got.len() + sent, now);
            }
            let socket = self.client.get(self.socket);
            if socket.may_send() {
                if sent < request.len() {
                    sent += socket.send_slice(&request[sent..]).unwrap_or(0);
                } else if half_closes && !closed {
                    socket.close();
                    closed = true;
                }
            }
            if now > since + PATIENCE {
                return Last::Silent;
            }
            let established = !matches!(
                socket.state(),
                tcp::State::SynSent | tcp::State::SynReceived | tcp::State::Closed
            );
            if established && !socket.may_recv() && !socket.can_recv() {
                socket.close();
                return Last::Finished;
            }
            if socket.state() == tcp::State::Closed {
                return if half_closes && self.got.len() == self.script.stop && self.over {
                    self.script.last
                } else {
                    Last::Reset
                };
            }
        }
    }

    fn run_for(&mut self, micros: i64) {
        let end = self.clock.now() + micros;
        while self.clock.now() < end {
            self.turn();
            self.take();
        }
    }

    fn open_ports(&self) -> usize {
        self.net.0.borrow().ports.len()
    }
}

/// The same with the near end and without.
fn both(script: &TcpServerScript, faults: Faults, half_closes: bool) -> (Last, Vec<u8>) {
    let request = pattern(script.request, 5);
    let mut results = Vec::new();
    for near_end in [true, false] {
        let mut fixture = Fixture::new(near_end, script.clone(), faults);
        let last = fixture.run(&request, half_closes);
        if last != Last::Silent {
            fixture.run_for(20 * SECOND);
        }
        let opened = fixture.net.0.borrow().opened;
        assert_eq!(opened > 0, near_end, "who connects");
        results.push((last, fixture.got, fixture.heard, fixture.heard_fin));
    }
    let without = results.pop().unwrap();
    let with = results.pop().unwrap();
    assert!(
        with == without,
        "{:?} {:?}",
        summary(&with),
        summary(&without)
    );
    assert!(with.2 == request || with.0 != Last::Finished);
    (with.0, with.1)
}

fn summary((last, got, heard, fin): &(Last, Vec<u8>, Vec<u8>, bool)) -> (Last, usize, usize, bool) {
    (*last, got.len(), heard.len(), *fin)
}

#[test]
fn a_file_comes_whole_and_ends_by_the_servers_fin() {
    for half_closes in [false, true] {
        let script = TcpServerScript::new(300, 700_000);
        let (last, got) = both(&script, Faults::default(), half_closes);
        assert_eq!(last, Last::Finished);
        assert!(got == script.file);
    }
}

#[test]
fn the_loader_may_send_more_than_it_gets() {
    let script = TcpServerScript::new(400_000, 10);
    let (last, got) = both(&script, Faults::default(), true);
    assert_eq!((last, got), (Last::Finished, script.file));
}

#[test]
fn a_server_that_resets_in_mid_file_resets() {
    let script = TcpServerScript {
        last: Last::Reset,
        stop: 60_000,
        ..TcpServerScript::new(30, 100_000)
    };
    let (last, got) = both(&script, Faults::default(), false);
    assert_eq!(last, Last::Reset);
    assert!(got == script.file[..60_000]);
}

#[test]
fn a_server_that_falls_silent_is_silent() {
    let script = TcpServerScript {
        last: Last::Silent,
        stop: 50_000,
        ..TcpServerScript::new(30, 100_000)
    };
    let (last, got) = both(&script, Faults::default(), false);
    assert_eq!(last, Last::Silent);
    assert!(got == script.file[..50_000]);
}

#[test]
fn a_server_that_refuses_refuses() {
    let script = TcpServerScript {
        listens: false,
        ..TcpServerScript::new(30, 10)
    };
    let (last, got) = both(&script, Faults::default(), false);
    assert_eq!((last, got.len()), (Last::Reset, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn faults_change_nothing(
        loss in 0.0..0.05,
        reorder in 0.0..0.1,
        duplicate in 0.0..0.1,
        near in prop_oneof![Just(0_u64), 10..100_u64],
        seed: u64,
        request in 1..5000_usize,
        len in 0..150_000_usize,
        half_closes: bool,
    ) {
        let wire = LinkConfig { loss, reorder, duplicate, reorder_micros: 300, ..LinkConfig::default() };
        let script = TcpServerScript::new(request, len);
        let (last, got) = both(&script, Faults { wire, near, seed }, half_closes);
        prop_assert_eq!(last, Last::Finished);
        prop_assert!(got == script.file);
    }
}

/// Nobody tells a loader that it is connected before its server is.
#[test]
fn a_server_that_does_not_answer_does_not_answer() {
    let mut fixture = Fixture::new(true, TcpServerScript::new(1, 1), Faults::default());
    fixture.connect();
    // The loader has the server's Ethernet address, and has sent its SYN.
    while fixture.open_ports() == 0 {
        fixture.turn();
    }
    fixture.far.set_link_up(false);
    fixture.run_for(60 * SECOND);
    assert_eq!(fixture.socket().state(), tcp::State::SynSent);
    assert_eq!(fixture.open_ports(), 1);
}

/// The server is not acknowledged beyond the memory that there is.
#[test]
fn a_loader_that_does_not_read_stops_the_server() {
    let script = TcpServerScript::new(1, 2_000_000);
    let file = script.file.clone();
    let mut fixture = Fixture::new(true, script, Faults::default());
    fixture.connect();
    for _ in 0..100_000 {
        fixture.turn();
        let socket = fixture.socket();
        if socket.may_send() && socket.send_queue() == 0 && fixture.heard.is_empty() {
            fixture.socket().send_slice(b"x").unwrap();
        }
    }
    let waiting = fixture.server.get(fixture.listener).send_queue();
    let acknowledged = fixture.sent - waiting;
    let most = 4 * PIECE + 256 * 1024 + 8192;
    assert!((8192..=most).contains(&acknowledged), "{acknowledged}");
    fixture.run_for(20 * SECOND);
    assert!(fixture.got == file, "{} bytes", fixture.got.len());
}

#[test]
fn a_loader_that_resets_resets_the_server() {
    let mut fixture = Fixture::new(true, TcpServerScript::new(1000, 10), Faults::default());
    fixture.connect();
    fixture.run_for(SECOND);
    assert!(fixture.was_open);
    fixture.socket().abort();
    fixture.run_for(SECOND);
    assert!(fixture.was_reset);
    assert_eq!(fixture.open_ports(), 0);
}

/// As when it was replaced by another that knows nothing of the connection; it takes frames, and says nothing.
#[test]
fn a_loader_that_vanishes_is_given_up() {
    let mut fixture = Fixture::new(true, TcpServerScript::new(1, 500_000), Faults::default());
    fixture.connect();
    fixture.run_for(SECOND);
    fixture.socket().send_slice(b"x").unwrap();
    fixture.turn();
    fixture.turn();
    // All that passes is lost.
    fixture.link.one_in = 1;
    let end = fixture.clock.now() + 300 * SECOND;
    while fixture.clock.now() < end && !fixture.was_reset {
        fixture.turn();
    }
    assert!(fixture.was_reset);
    assert_eq!(fixture.open_ports(), 0);
}

/// What it does meanwhile is its business: time that nobody looks is no silence of its.
#[test]
fn a_loader_that_is_busy_for_long_goes_on() {
    let script = TcpServerScript::new(1, 500_000);
    let file = script.file.clone();
    let mut fixture = Fixture::new(true, script, Faults::default());
    fixture.connect();
    fixture.run_for(SECOND);
    fixture.socket().send_slice(b"x").unwrap();
    for _ in 0..50 {
        fixture.turn();
    }
    for _ in 0..200 {
        fixture.clock.advance(2 * SECOND);
        let now = fixture.clock.now();
        let mut world = fixture.net.0.borrow_mut();
        world.service.poll(Instant::from_micros(now)).unwrap();
        drop(world);
        fixture.serve(now);
    }
    fixture.run_for(30 * SECOND);
    assert!(fixture.got == file, "{} bytes", fixture.got.len());
}

#[test]
fn a_link_that_goes_down_resets_the_server() {
    let mut fixture = Fixture::new(true, TcpServerScript::new(1000, 10), Faults::default());
    fixture.connect();
    fixture.run_for(SECOND);
    fixture.link.link.set_up(false);
    assert_eq!(fixture.open_ports(), 0);
    fixture.run_for(SECOND);
    assert!(fixture.was_reset);
}

proptest! {
    /// The body of the fuzz target, on SYNs and on segments that guess.
    #[test]
    fn no_segment_breaks_it(
        script: Vec<u8>,
        frames in proptest::collection::vec((any::<[u8; 20]>(), 0..60_usize, any::<bool>()), 0..20),
    ) {
        let mut body = Vec::new();
        for (header, len, opens) in frames {
            let mut tcp = header.to_vec();
            tcp[..4].copy_from_slice(&[7, 208, 0, 80]);
            tcp[12] = 0x50;
            if opens {
                tcp[13] = 2;
            }
            tcp.resize(20 + len, 0x77);
            let total = (20 + tcp.len()) as u8;
            let ip = [0x45, 0, 0, total, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 5, 10, 0, 0, 1];
            let frame = [&[2; 12][..], &[8, 0], &ip, &tcp].concat();
            body.push(frame.len() as u8);
            body.extend(frame);
        }
        let mut data = script;
        data.resize(body.len().div_ceil(3), 8);
        data.extend(body);
        crate::fuzzing::fuzz_near_tcp(&data);
    }
}

/// A wire that keeps each frame for a test to look at.
#[derive(Default)]
struct RecordingLink {
    sent: Vec<Vec<u8>>,
    arrived: VecDeque<Vec<u8>>,
}

impl Link for RecordingLink {
    fn set_up(&mut self, _: bool) {}

    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool {
        self.sent.push([&header[..], payload].concat());
        true
    }

    fn peek(&mut self) -> Option<&[u8]> {
        self.arrived.front().map(Vec::as_slice)
    }

    fn skip(&mut self) {
        self.arrived.pop_front();
    }
}

/// Connections that stay as they are.
struct Fixed(Status);

impl Streams for Fixed {
    type Stream = ();

    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn connect(&mut self, local: IpAddr, _: SocketAddr) -> Option<()> {
        (local == IpAddr::V4(US)).then_some(())
    }

    fn status(&mut self, (): &()) -> Status {
        self.0
    }

    fn read(&self, (): &(), _: usize, _: &mut [u8]) -> usize {
        0
    }

    fn release(&mut self, (): &(), _: usize) {}

    fn room(&self, (): &()) -> usize {
        1000
    }

    fn write(&mut self, (): &(), _: &[u8]) {}

    fn finish(&mut self, (): &()) {}

    fn close(&mut self, (): ()) {}
}

fn fixed(status: Status) -> NearTcp<RecordingLink, Fixed> {
    NearTcp::new(RecordingLink::default(), Fixed(status), 1514, [3; 16])
}

/// The frame of a segment without payload.
fn bare(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), flags: u8) -> Vec<u8> {
    let ip = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
    let ([a, b], [c, d]) = (from.1.to_be_bytes(), to.1.to_be_bytes());
    let tcp = [
        a, b, c, d, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0,
    ];
    let mut frame = [
        &[2; 12][..],
        &[8, 0],
        &ip,
        &from.0.octets(),
        &to.0.octets(),
        &tcp,
    ]
    .concat();
    let (header, packet) = frame.split_first_chunk_mut::<14>().unwrap();
    fill_checksums(header, packet);
    frame
}

fn pass(near: &mut NearTcp<RecordingLink, Fixed>, frame: &[u8]) {
    let (header, packet) = frame.split_first_chunk::<14>().unwrap();
    assert!(near.send(header, packet));
}

/// The control bits are those of RFC 9293, section 3.1: SYN 2, RST 4, ACK 16.
#[test]
fn what_cannot_be_split_goes_to_the_wire_as_it_is() {
    let to = (SERVER, PORT);
    // From another address than the engine's, and of a connection that was there before.
    let mut near = fixed(Status::Connecting);
    let others = [
        bare((Ipv4Addr::new(10, 0, 0, 9), 4001), to, 2),
        bare((US, 4002), to, 16),
    ];
    for frame in &others {
        pass(&mut near, frame);
    }
    assert_eq!(near.link.sent, others);
    // The engine finds no way.
    let mut near = fixed(Status::Unreachable);
    let syn = bare((US, 4000), to, 2);
    pass(&mut near, &syn);
    assert_eq!(near.link.sent, [syn]);
    // One more than there is memory for.
    let mut near = fixed(Status::Connecting);
    for port in 0..=CONNECTIONS as u16 {
        pass(&mut near, &bare((US, 3000 + port), to, 2));
    }
    let last = bare((US, 3000 + CONNECTIONS as u16), to, 2);
    assert_eq!(near.link.sent, [last]);
    assert_eq!(near.peek(), None);
}

/// The server knows the engine's connection, and not the loader's: what it says of that is not for the loader.
#[test]
fn what_the_wire_has_for_a_connection_of_ours_is_nobodys() {
    let mut near = fixed(Status::Connecting);
    pass(&mut near, &bare((US, 3000), (SERVER, PORT), 2));
    let reset = bare((SERVER, PORT), (US, 3000), 4);
    let other = bare((SERVER, PORT), (US, 3001), 4);
    near.link.arrived = [reset, other.clone()].into();
    assert_eq!(near.peek(), Some(&other[..]));
}
