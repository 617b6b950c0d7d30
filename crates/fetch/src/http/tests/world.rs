//! A client's engine and a scripted server on a simulated link.

use core::net::{IpAddr, Ipv6Addr};
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::string::{String, ToString};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::vec;
use std::vec::Vec;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy;
use smoltcp::socket::tcp;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use wireboot_net::{Engine, Instant, Ipv4Addr, Ipv4Cidr, Ipv4Config, Memory, Stack};
use wireboot_nic::sim::multiqueue::{Pair, PairSelection, multiqueue};
use wireboot_nic::sim::{self, Clock, LinkConfig, NicConfig, SimNic};
use wireboot_nic::{Nic, Offload, Receive, Steering, Transmit};

use crate::destination::{Destination, DestinationError};
use crate::http::team::{Workers, team};
use crate::http::{Connections, Fetched, HttpError, get};
use crate::pace::Limits;
use crate::resolve::{Resolve, Unresolved};
use crate::testing;
use crate::url::Url;
use crate::worker::Worker;

pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xb);
/// Who passes on what goes to a server that is not on the link.
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
/// Virtual time after which a test has failed, in microseconds: "every wait ends".
const END: i64 = 400_000_000;

/// One request as the server got it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Counts all requests, from 0.
    pub number: usize,
    /// Counts all connections, from 0.
    pub connection: usize,
    /// The address that was asked.
    pub server: IpAddr,
    /// The request head.
    pub text: String,
}

impl Request {
    pub(super) fn target(&self) -> &str {
        self.text.split(' ').nth(1).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.text.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// What the server does after it sent all bytes of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Waits for the next request.
    Listen,
    /// Ends its side: a FIN.
    Close,
    /// Drops the connection: a RST.
    Reset,
    /// Keeps the connection and says nothing more on it.
    Hang,
    /// Dies and starts again after so many microseconds: connections are refused in between.
    Restart(i64),
}

#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub bytes: Vec<u8>,
    pub then: Then,
    /// After so many bytes one comes at a time, in so many microseconds.
    pub drip: Option<(usize, i64)>,
}

pub(super) fn reply(head: &str, body: &[u8], then: Then) -> Reply {
    let mut bytes = head.replace('\n', "\r\n").into_bytes();
    bytes.extend_from_slice(body);
    Reply {
        bytes,
        then,
        drip: None,
    }
}

/// The server's NIC, the longest frame that the path takes, and the resets that have come.
struct Port<'a>(&'a mut SimNic, usize, &'a mut usize);
struct Rx(Vec<u8>);
struct Tx<'a>(&'a mut SimNic, usize);

impl phy::Device for Port<'_> {
    type RxToken<'b>
        = Rx
    where
        Self: 'b;
    type TxToken<'b>
        = Tx<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Rx, Tx<'_>)> {
        let mut bytes = Vec::new();
        let lent = self
            .0
            .split()
            .0
            .burst(1, |frame| bytes = frame.parts.concat());
        *self.2 += usize::from(is_reset(&bytes));
        (lent == Ok(1)).then_some((Rx(bytes), Tx(self.0, self.1)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Tx<'_>> {
        Some(Tx(self.0, self.1))
    }

    fn capabilities(&self) -> phy::DeviceCapabilities {
        let mut capabilities = phy::DeviceCapabilities::default();
        capabilities.medium = phy::Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

/// Whether a frame is a TCP reset over IPv4.
fn is_reset(frame: &[u8]) -> bool {
    const RST: u8 = 4;
    let is_tcp = frame.len() >= 54 && frame[12..15] == [0x08, 0x00, 0x45] && frame[23] == 6;
    is_tcp && frame[47] & RST != 0
}

impl phy::RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        if len <= self.1 {
            let (_, tx) = self.0.split();
            tx.send(len, Offload::None, &mut |room| room.copy_from_slice(&frame))
                .unwrap();
            tx.flush().unwrap();
        }
        result
    }
}

struct Peer {
    handle: SocketHandle,
    port: u16,
    /// The number of the connection, while there is one.
    connection: Option<usize>,
    request: Vec<u8>,
    output: VecDeque<u8>,
    then: Then,
    drip: Option<(usize, i64)>,
    sent: usize,
    /// When the next byte drips.
    next: i64,
}

pub(super) struct Server {
    nic: SimNic,
    iface: Interface,
    sockets: SocketSet<'static>,
    peers: Vec<Peer>,
    handler: Box<dyn FnMut(&Request) -> Reply>,
    pub requests: Rc<RefCell<Vec<Request>>>,
    connections: usize,
    down_until: i64,
    /// Most bytes handed to TCP at a time.
    piece: usize,
    longest: usize,
    resets: usize,
}

impl Server {
    pub(super) fn new(
        mut nic: SimNic,
        wire: Wire,
        handler: impl FnMut(&Request) -> Reply + 'static,
    ) -> Self {
        let mac = HardwareAddress::Ethernet(EthernetAddress(nic.properties().mac));
        let mut config = Config::new(mac);
        config.random_seed = wire.seed;
        let mut iface = Interface::new(
            config,
            &mut Port(&mut nic, wire.longest, &mut 0),
            smoltcp::time::Instant::ZERO,
        );
        iface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(SERVER.into(), 24)).unwrap();
            let second = if wire.routed {
                IpCidr::new(ROUTER.into(), 24)
            } else {
                IpCidr::new(SERVER6.into(), 64)
            };
            addresses.push(second).unwrap();
        });
        let mut sockets = SocketSet::new(Vec::new());
        let peers = [80; 32]
            .into_iter()
            .chain([8080])
            .map(|port| {
                let mut socket = tcp::Socket::new(
                    tcp::SocketBuffer::new(vec![0; 4096]),
                    tcp::SocketBuffer::new(vec![0; 65535]),
                );
                socket.set_congestion_control(if wire.congestion {
                    tcp::CongestionControl::Reno
                } else {
                    tcp::CongestionControl::None
                });
                Peer {
                    handle: sockets.add(socket),
                    port,
                    connection: None,
                    request: Vec::new(),
                    output: VecDeque::new(),
                    then: Then::Listen,
                    drip: None,
                    sent: 0,
                    next: 0,
                }
            })
            .collect();
        Self {
            nic,
            iface,
            sockets,
            peers,
            handler: Box::new(handler),
            requests: Rc::default(),
            connections: 0,
            down_until: 0,
            piece: wire.piece,
            longest: wire.longest,
            resets: 0,
        }
    }

    pub(super) fn poll(&mut self, now: Instant) {
        let time = smoltcp::time::Instant::from_micros(now.total_micros());
        self.iface.poll(
            time,
            &mut Port(&mut self.nic, self.longest, &mut self.resets),
            &mut self.sockets,
        );
        let down = now.total_micros() < self.down_until;
        let mut restart = None;
        for peer in &mut self.peers {
            let socket = self.sockets.get_mut::<tcp::Socket>(peer.handle);
            if !socket.is_open() && !down {
                peer.connection = None;
                peer.request.clear();
                peer.output.clear();
                peer.then = Then::Listen;
                socket.listen(peer.port).unwrap();
            }
            if socket.state() != tcp::State::Established && socket.state() != tcp::State::CloseWait
            {
                continue;
            }
            let connection = *peer.connection.get_or_insert_with(|| {
                self.connections += 1;
                self.connections - 1
            });
            if socket.can_recv() {
                let _ = socket.recv(|bytes| {
                    peer.request.extend_from_slice(bytes);
                    (bytes.len(), ())
                });
            }
            if peer.output.is_empty() && peer.then == Then::Listen {
                let text = String::from_utf8(peer.request.clone()).unwrap();
                if let Some((head, rest)) = text.split_once("\r\n\r\n") {
                    peer.request = rest.as_bytes().to_vec();
                    let request = Request {
                        number: self.requests.borrow().len(),
                        connection,
                        server: socket.local_endpoint().unwrap().addr.into(),
                        text: head.to_string(),
                    };
                    self.requests.borrow_mut().push(request.clone());
                    let reply = (self.handler)(&request);
                    peer.output = reply.bytes.into();
                    peer.then = reply.then;
                    peer.drip = reply.drip;
                    peer.sent = 0;
                } else if !socket.may_recv() {
                    socket.close();
                }
            }
            let mut piece = self.piece.min(peer.output.len());
            if let Some((fast, every)) = peer.drip {
                piece = piece.min(fast.saturating_sub(peer.sent));
                if piece == 0 && now.total_micros() >= peer.next && !peer.output.is_empty() {
                    piece = 1;
                    peer.next = now.total_micros() + every;
                }
            }
            if piece > 0 && socket.can_send() {
                let (bytes, _) = peer.output.as_slices();
                let sent = socket.send_slice(&bytes[..piece.min(bytes.len())]).unwrap();
                peer.output.drain(..sent);
                peer.sent += sent;
            }
            if peer.output.is_empty() && socket.send_queue() == 0 {
                match peer.then {
                    Then::Listen | Then::Hang => {}
                    Then::Close => socket.close(),
                    Then::Reset => socket.abort(),
                    Then::Restart(micros) => restart = Some(micros),
                }
            }
        }
        if let Some(micros) = restart {
            self.down_until = now.total_micros() + micros;
            for peer in &self.peers {
                self.sockets.get_mut::<tcp::Socket>(peer.handle).abort();
            }
        }
        self.iface.poll(
            time,
            &mut Port(&mut self.nic, self.longest, &mut self.resets),
            &mut self.sockets,
        );
    }
}

/// How the wire is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    pub link: LinkConfig,
    pub seed: u64,
    /// Coalescing NIC with scattered buffers at the client.
    pub coalesce: bool,
    /// Most bytes that the server hands to its TCP at a time.
    pub piece: usize,
    /// The server takes loss for congestion (Reno), as servers do.
    pub congestion: bool,
    /// Engines of the client, each on a queue pair of its own.
    pub engines: usize,
    /// The client's NIC does not keep to its steering.
    pub missteered: bool,
    /// Longest frame of the server's that gets through, in bytes.
    pub longest: usize,
    /// The server is behind a router, which it plays itself. It has no IPv6 then.
    pub routed: bool,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            link: LinkConfig::default(),
            seed: 1,
            coalesce: false,
            piece: usize::MAX,
            congestion: false,
            engines: 1,
            missteered: false,
            longest: usize::MAX,
            routed: false,
        }
    }
}

wireboot_nic::nic_enum! {
    enum SimOrPair {
        Sim(SimNic),
        Pair(Pair),
    }
}

pub(super) struct World {
    engine: Engine<SimOrPair>,
    pub workers: Vec<Helper>,
    pub team: Rc<Workers>,
    server: Server,
    clock: Clock,
    pub connections: Rc<Connections>,
    pub requests: Rc<RefCell<Vec<Request>>>,
}

/// A worker, and when it falls silent and when it is gone, in microseconds.
pub(super) struct Helper {
    pub worker: Option<Worker<Pair>>,
    pub silent: i64,
    pub gone: i64,
    /// Turns in which it had work.
    pub busy: usize,
}

impl Helper {
    fn poll(&mut self, now: i64) {
        if now >= self.gone {
            self.worker = None;
        }
        if now < self.silent
            && let Some(worker) = &mut self.worker
        {
            let busy = worker.poll(Instant::from_micros(now)).unwrap();
            self.busy += usize::from(busy);
        }
    }

    fn next_delivery(&mut self, now: i64) -> Option<i64> {
        let worker = self.worker.as_mut().filter(|_| now < self.silent)?;
        worker.nic_mut().next_delivery()
    }
}

/// `address` in the network of the server, or alone on its link with a router.
fn config(address: Ipv4Addr, routed: bool) -> Ipv4Config {
    Ipv4Config {
        address: Ipv4Cidr::new(address, if routed { 32 } else { 24 }),
        router: routed.then_some(ROUTER),
        routes: Vec::new(),
        mtu: None,
    }
}

impl World {
    pub(super) fn new(wire: Wire, handler: impl FnMut(&Request) -> Reply + 'static) -> Self {
        let (mut client, nic) = sim::link(wire.link, wire.link, wire.seed);
        if wire.coalesce {
            client.configure(NicConfig {
                coalesce: true,
                part_len: Some(700),
                ..NicConfig::new(client.properties().mac)
            });
        }
        let clock = client.clock();
        let server = Server::new(nic, wire, handler);
        let seed = wire.seed as u8;
        let mut workers = Vec::new();
        let (engine, team) = if wire.engines > 1 {
            let steering = Steering::by_port(wire.engines);
            let selection = if wire.missteered {
                PairSelection::Missteered(wire.seed)
            } else {
                PairSelection::Steered
            };
            let mut pairs = multiqueue(client, steering, selection).into_iter();
            let (leader, links) = team(&steering);
            let first = SimOrPair::Pair(pairs.next().unwrap());
            let mut engine = Engine::new(first, [seed; 32]);
            let (peer, team) = Workers::new(leader);
            engine.join(peer);
            for (number, (pair, link)) in pairs.zip(links).enumerate() {
                let mut seed = [seed; 32];
                seed[0] = number as u8 + 1;
                workers.push(Helper {
                    worker: Some(Worker::new(pair, seed, link)),
                    silent: i64::MAX,
                    gone: i64::MAX,
                    busy: 0,
                });
            }
            (engine, team)
        } else {
            let engine = Engine::new(SimOrPair::Sim(client), [seed; 32]);
            (engine, Workers::none())
        };
        engine.stack().configure(&config(CLIENT, wire.routed));
        engine.stack().ipv6_up();
        let requests = Rc::clone(&server.requests);
        Self {
            engine,
            workers,
            team: Rc::new(team),
            server,
            clock,
            connections: Rc::default(),
            requests,
        }
    }

    /// The client gets another address, as a service takes it on.
    pub(super) fn moves(&mut self, address: Ipv4Addr) {
        self.engine.stack().configure(&config(address, false));
        self.connections.clear();
    }

    /// Connections that the client has reset.
    pub(super) fn resets(&self) -> usize {
        self.server.resets
    }

    /// Virtual seconds since the start.
    pub(super) fn seconds(&self) -> f64 {
        self.clock.now() as f64 / 1e6
    }

    /// Lets time pass until `task` has ended.
    pub(super) fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        task: impl FnOnce(Stack) -> F,
    ) -> T {
        let result = Rc::new(RefCell::new(None));
        let future = task(self.engine.stack());
        let slot = Rc::clone(&result);
        self.engine.spawn(async move {
            let value = future.await;
            *slot.borrow_mut() = Some(value);
        });
        loop {
            let now = self.clock.now();
            assert!(now < END, "the download never ended");
            self.team.turn(Instant::from_micros(now));
            self.engine.poll(Instant::from_micros(now)).unwrap();
            for worker in &mut self.workers {
                worker.poll(now);
            }
            self.server.poll(Instant::from_micros(now));
            if let Some(value) = result.borrow_mut().take() {
                return value;
            }
            let near = match self.engine.nic_mut() {
                SimOrPair::Sim(nic) => nic.next_delivery(),
                SimOrPair::Pair(pair) => pair.next_delivery(),
            };
            let workers = self.workers.iter_mut();
            let next = [near, self.server.nic.next_delivery()]
                .into_iter()
                .chain(workers.map(|worker| worker.next_delivery(now)))
                .flatten()
                .fold(now + 1000, i64::min);
            self.clock.set(next.max(now + 1));
        }
    }

    pub(super) fn wait(&mut self, micros: u64) {
        self.run(|stack| async move {
            stack
                .sleep(wireboot_net::Duration::from_micros(micros))
                .await
        });
    }

    pub(super) fn get(&mut self, url: &str) -> Outcome {
        self.get_to(url, Pages::default())
    }

    pub(super) fn get_to(&mut self, url: &str, pages: Pages) -> Outcome {
        self.get_within(Hosts, Limits::default(), url, pages)
    }

    /// The same with so many seconds of patience.
    pub(super) fn get_patiently(&mut self, url: &str, seconds: u64) -> Outcome {
        self.get_within(Hosts, patient(seconds), url, Pages::default())
    }

    /// The same with a resolver that gives its first answer for 0, the next for 1, and so on.
    pub(super) fn get_by(
        &mut self,
        answers: impl Fn(usize) -> Result<Vec<IpAddr>, Unresolved> + 'static,
        url: &str,
        seconds: u64,
    ) -> Outcome {
        let resolver = Answers(Cell::new(0), answers);
        self.get_within(resolver, patient(seconds), url, Pages::default())
    }

    fn get_within<R: Resolve + 'static>(
        &mut self,
        resolver: R,
        limits: Limits,
        url: &str,
        mut pages: Pages,
    ) -> Outcome {
        let url = Url::parse(url).unwrap();
        let connections = Rc::clone(&self.connections);
        let team = Rc::clone(&self.team);
        let (result, pages) = self.run(|stack| async move {
            let result = get(
                &stack,
                &connections,
                &team,
                &resolver,
                &url,
                limits,
                &mut pages,
            )
            .await;
            (result, pages)
        });
        Outcome { result, pages }
    }
}

pub(super) struct Outcome {
    pub result: Result<Fetched, HttpError>,
    pub pages: Pages,
}

impl Outcome {
    #[track_caller]
    pub(super) fn bytes(&self) -> Vec<u8> {
        match &self.result {
            Ok(fetched) => testing::content(&fetched.memory, fetched.len as usize),
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    pub(super) fn error(&self) -> &HttpError {
        match &self.result {
            Ok(fetched) => panic!("{} bytes instead of an error", fetched.len),
            Err(error) => error,
        }
    }
}

/// Memory on the heap, up to a limit.
pub(super) struct Pages {
    pub limit: u64,
    /// What was asked for.
    pub asked: Vec<u64>,
    pub last_progress: (u64, Option<u64>),
    /// Bytes that are committed in the last memory.
    pub committed: Arc<AtomicUsize>,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            limit: 64 << 20,
            asked: Vec::new(),
            last_progress: (0, None),
            committed: Arc::default(),
        }
    }
}

impl Destination for Pages {
    async fn memory(
        &mut self,
        bytes: u64,
        previous: Option<(Memory, u64)>,
    ) -> Result<Memory, DestinationError> {
        assert_ne!(bytes, 0);
        self.asked.push(bytes);
        if bytes > self.limit {
            return Err(DestinationError::NoMemory { bytes });
        }
        Ok(testing::memory(bytes, previous, &self.committed))
    }

    fn progress(&mut self, received: u64, total: Option<u64>) {
        assert!(total.is_none_or(|total| received <= total));
        self.last_progress = (received, total);
    }
}

fn patient(seconds: u64) -> Limits {
    Limits {
        patience: wireboot_net::Duration::from_secs(seconds),
        ..Limits::default()
    }
}

fn nobody() -> IpAddr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77).into()
}

/// The names of the server.
pub(super) struct Hosts;

impl Resolve for Hosts {
    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, Unresolved> {
        match host {
            "boot" | "mirror" => Ok(vec![SERVER.into()]),
            // The first address has nobody.
            "two" => Ok(vec![Ipv4Addr::new(10, 0, 0, 77).into(), SERVER.into()]),
            "six" => Ok(vec![SERVER6.into()]),
            "both" => Ok(vec![SERVER6.into(), SERVER.into()]),
            // Of each version one address, and one of them has nobody.
            "dead-six" => Ok(vec![nobody(), SERVER.into()]),
            "dead-four" => Ok(vec![Ipv4Addr::new(10, 0, 0, 77).into(), SERVER6.into()]),
            "none" => Ok(Vec::new()),
            _ => Err(Unresolved {
                reason: "no such name".into(),
                passing: false,
            }),
        }
    }
}

/// A resolver that counts its answers.
struct Answers<F>(Cell<usize>, F);

impl<F: Fn(usize) -> Result<Vec<IpAddr>, Unresolved>> Resolve for Answers<F> {
    async fn resolve(&self, _: &str) -> Result<Vec<IpAddr>, Unresolved> {
        let number = self.0.get();
        self.0.set(number + 1);
        (self.1)(number)
    }
}
