//! Downloads over TCP from a smoltcp server, on a simulated wire in simulated time.

use crate::testing::{Port, instant};
use crate::{Engine, Ipv4Addr, Ipv4Cidr, Ipv4Config, Memory, NetError, Region};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::SocketAddr;
use proptest::prelude::*;
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::vec;
use std::vec::Vec;
use wireboot_nic::sim::{self, LinkConfig, NicConfig, SimNic};
use wireboot_nic::{Frame, Nic, Offload, Receive, Transmit};
use wireboot_tcp::{Duration, Instant};

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// ARP has no checksum, and a corrupted answer stays in the cache for a minute: a wire that flips bits unseen
/// asks for patience.
pub const PATIENCE: Duration = Duration::from_secs(200);
pub const REQUEST: &[u8] = b"give me the file";

/// A server that answers one request on each connection with a file and closes: plain smoltcp, nothing of ours on its way.
pub struct FileServer {
    nic: SimNic,
    iface: Interface,
    sockets: SocketSet<'static>,
    peers: Vec<Peer>,
    file: Vec<u8>,
    end: End,
}

struct Peer {
    handle: smoltcp::iface::SocketHandle,
    sent: usize,
    heard: Vec<u8>,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Fin,
    /// A reset when so many bytes are on their way.
    Reset(usize),
    /// Nothing more after so many bytes.
    Silence(usize),
}

impl FileServer {
    pub fn new(mut nic: SimNic, file: Vec<u8>, peers: usize, buffer: usize) -> Self {
        let mac = nic.properties().mac;
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
        let mut port = Port {
            frame: None,
            transmit: nic.split().1,
            mtu: 1500,
        };
        let mut iface = Interface::new(config, &mut port, instant(Instant::ZERO));
        iface.update_ip_addrs(|a| a.push(IpCidr::new(SERVER.into(), 24)).unwrap());
        let mut sockets = SocketSet::new(Vec::new());
        let peers = (0..peers).map(|_| {
            let mut socket = tcp::Socket::new(
                tcp::SocketBuffer::new(vec![0; 4096]),
                tcp::SocketBuffer::new(vec![0; buffer]),
            );
            // What it does with a loss shall not depend on which features of smoltcp other crates' tests ask for.
            socket.set_congestion_control(tcp::CongestionControl::None);
            socket.listen(80).unwrap();
            Peer {
                handle: sockets.add(socket),
                sent: 0,
                heard: Vec::new(),
            }
        });
        let peers = peers.collect();
        Self {
            nic,
            iface,
            sockets,
            peers,
            file,
            end: End::Fin,
        }
    }

    pub fn poll(&mut self, now: Instant) -> bool {
        let (rx, tx) = self.nic.split();
        let (iface, sockets) = (&mut self.iface, &mut self.sockets);
        let now = instant(now);
        let mut port = Port {
            frame: None,
            transmit: tx,
            mtu: 1500,
        };
        let got = rx
            .burst(64, |frame: Frame<'_>| {
                let whole: Vec<u8> = frame.parts.concat();
                let mut port = Port {
                    frame: Some(&whole),
                    transmit: &mut *port.transmit,
                    mtu: 1500,
                };
                iface.poll_ingress_single(now, &mut port, sockets);
            })
            .unwrap();
        let limit = match self.end {
            End::Silence(after) => after.min(self.file.len()),
            _ => self.file.len(),
        };
        for peer in &mut self.peers {
            let socket = sockets.get_mut::<tcp::Socket<'_>>(peer.handle);
            if socket.can_recv() {
                socket
                    .recv(|bytes| {
                        peer.heard.extend_from_slice(bytes);
                        (bytes.len(), ())
                    })
                    .unwrap();
            }
            if peer.heard == REQUEST && socket.can_send() {
                peer.sent += socket.send_slice(&self.file[peer.sent..limit]).unwrap();
                // smoltcp does not send a FIN again whose segment's data was acknowledged without it, so the FIN goes alone.
                if peer.sent == self.file.len() && socket.send_queue() == 0 {
                    socket.close();
                }
            }
            if matches!(self.end, End::Reset(after) if peer.sent > after) {
                socket.abort();
                self.end = End::Fin;
            }
        }
        while iface.poll_egress(now, &mut port, sockets) != PollResult::None {}
        port.transmit.flush().unwrap();
        got > 0
    }
}

impl FileServer {
    /// After three equal acknowledgements behind its FIN, smoltcp has forgotten that the FIN may have been lost.
    fn forgot_its_end(&mut self, now: Instant) -> bool {
        let waits = |peer: &Peer| {
            let socket = self.sockets.get::<tcp::Socket<'_>>(peer.handle);
            socket.state() == tcp::State::FinWait1
        };
        self.peers.iter().any(waits) && self.iface.poll_at(instant(now), &self.sockets).is_none()
    }
}

struct Case {
    file: Vec<u8>,
    wire: LinkConfig,
    nic: NicConfig,
    seed: u64,
    /// Lengths of the reads into memory; the rest is read without a destination, so that all bytes go through smoltcp.
    reads: Vec<usize>,
    end: End,
    patience: Duration,
    /// Most bytes that the server has on their way.
    server_buffer: usize,
    /// Microseconds between two turns while something arrives.
    turn: i64,
}

/// What was received, how it ended, and when, in microseconds.
struct Outcome {
    bytes: Vec<u8>,
    end: Result<(), NetError>,
    micros: i64,
    /// The server will never say again that the file ended: it proves nothing about the client.
    forgot: bool,
}

impl Outcome {
    #[track_caller]
    fn whole(&self) -> &[u8] {
        self.end.unwrap();
        &self.bytes
    }
}

impl Case {
    fn new(file: Vec<u8>) -> Self {
        Self {
            nic: NicConfig {
                receive_frames: 512,
                ..NicConfig::new([2, 0, 0, 0, 0, 0x0a])
            },
            reads: vec![file.len()],
            file,
            wire: LinkConfig::default(),
            seed: 1,
            end: End::Fin,
            patience: PATIENCE,
            server_buffer: 256 * 1024,
            turn: 5,
        }
    }

    fn run(&self) -> Outcome {
        let (mut near, far) = sim::link(self.wire, self.wire, self.seed);
        near.configure(self.nic);
        let clock = near.clock();
        let mut server = FileServer::new(far, self.file.clone(), 1, self.server_buffer);
        server.end = self.end;
        let mut client = Engine::new(near, [3; 32]);
        let stack = client.stack();
        stack.configure(&Ipv4Config {
            address: Ipv4Cidr::new(CLIENT, 24),
            router: None,
            routes: Vec::new(),
            mtu: None,
        });
        let done = Rc::new(RefCell::new(None));
        let out = done.clone();
        let (reads, patience) = (self.reads.clone(), self.patience);
        client.spawn(async move {
            let mut bytes = Vec::new();
            let end = download(&stack, &reads, patience, &mut bytes).await;
            *out.borrow_mut() = Some((bytes, end));
        });
        let (mut idle, mut forgot) = (0, false);
        while done.borrow().is_none() {
            assert!(clock.now() < 900_000_000, "the download does not end");
            let now = Instant::from_micros(clock.now());
            let busy = client.poll(now).unwrap() | server.poll(now);
            idle = if busy { 0 } else { idle + 1 };
            clock.advance(match idle {
                0 => self.turn,
                1..10_000 => 100,
                // Nothing is on the wire: a time-out runs.
                _ => {
                    forgot |= server.forgot_its_end(now);
                    10_000
                }
            });
        }
        let (bytes, end) = done.borrow_mut().take().unwrap();
        Outcome {
            bytes,
            end,
            micros: clock.now(),
            forgot,
        }
    }
}

async fn download(
    stack: &crate::Stack,
    reads: &[usize],
    patience: Duration,
    all: &mut Vec<u8>,
) -> Result<(), NetError> {
    let server = SocketAddr::new(SERVER.into(), 80);
    let mut stream = stack.connect(server, patience).await?;
    stream.set_idle_timeout(patience);
    stream.write_all(REQUEST).await?;
    for &len in reads {
        let region = Region::new(Memory::from(vec![0xee; len + 20]));
        let result = stream.read_into(&region.part(10 + len), 10).await;
        let count = result?;
        let memory = region.take();
        let bytes = memory.as_slice();
        assert_eq!(&bytes[..10], [0xee; 10]);
        assert!(bytes[10 + len..].iter().all(|&b| b == 0xee));
        all.extend_from_slice(&bytes[10..10 + count]);
        assert_eq!(stream.progress(), all.len() as u64);
    }
    loop {
        let count = stream
            .read(|bytes| {
                all.extend_from_slice(bytes);
                bytes.len()
            })
            .await?;
        if count == 0 {
            stream.close();
            return Ok(());
        }
    }
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 253) as u8).collect()
}

#[test]
fn a_clean_wire_is_filled() {
    let case = Case::new(pattern(4_000_000));
    let outcome = case.run();
    assert!(outcome.whole() == case.file);
    // 32 ms of wire time at 1 Gbit/s.
    assert!(outcome.micros < 40_000, "{} us", outcome.micros);
}

/// The first unit, which acknowledges the request and so goes to smoltcp, is longer than smoltcp's buffer. What it
/// drops is a gap like any other, not data that it may still hold.
#[test]
fn a_first_unit_beyond_the_buffer_costs_one_repair() {
    let mut case = Case::new(pattern(238_157));
    case.wire.latency_micros = 8208;
    case.nic.coalesce = true;
    case.nic.receive_frames = 24;
    case.turn = 20;
    let outcome = case.run();
    assert!(outcome.whole() == case.file);
    assert!(outcome.micros < 2_000_000, "{} us", outcome.micros);
}

#[test]
fn large_units_and_scattered_parts_arrive_whole() {
    let mut case = Case::new(pattern(2_000_000));
    case.nic.coalesce = true;
    case.nic.part_len = Some(4096);
    assert!(case.run().whole() == case.file);
}

#[test]
fn a_reset_is_an_error_after_what_came_before() {
    let mut case = Case::new(pattern(2_000_000));
    case.end = End::Reset(1_000_000);
    let outcome = case.run();
    assert_eq!(outcome.end, Err(NetError::Reset));
}

#[test]
fn a_lone_connection_fills_a_long_path() {
    // 1 Gbit/s and 100 ms: 12.5 MB under way.
    let mut case = Case::new(pattern(40_000_000));
    case.wire.latency_micros = 50_000;
    case.wire.queue_frames = 20_000;
    case.nic.receive_frames = 256;
    case.server_buffer = 20 << 20;
    case.turn = 50;
    let outcome = case.run();
    assert!(outcome.whole() == case.file);
    // The wire takes 332 ms with all headers. Five round trips come on top: for ARP, the connection, the request, what
    // the window was before there was a destination, and the FIN, which this server sends when all is acknowledged.
    let most = 332_000 * 102 / 100 + 500_000;
    assert!(outcome.micros < most, "{} us", outcome.micros);
}

#[test]
fn four_connections_do_not_overrun_a_small_ring() {
    let wire = LinkConfig::default();
    let (mut near, far) = sim::link(wire, wire, 1);
    near.configure(NicConfig {
        receive_frames: 64,
        ..NicConfig::new([2, 0, 0, 0, 0, 0x0a])
    });
    let clock = near.clock();
    let file = pattern(1_000_000);
    let mut server = FileServer::new(far, file.clone(), 4, 256 * 1024);
    let mut client = Engine::new(near, [3; 32]);
    let stack = client.stack();
    stack.configure(&Ipv4Config {
        address: Ipv4Cidr::new(CLIENT, 24),
        router: None,
        routes: Vec::new(),
        mtu: None,
    });
    let done = Rc::new(RefCell::new(Vec::new()));
    for begin in 0..4 {
        let (stack, out, len) = (stack.clone(), done.clone(), file.len());
        client.spawn(async move {
            // The first has all of the ring before the others come.
            stack.sleep(Duration::from_millis(begin * 7)).await;
            let mut bytes = Vec::new();
            let end = download(&stack, &[len], PATIENCE, &mut bytes).await;
            out.borrow_mut().push((bytes, end));
        });
    }
    while done.borrow().len() < 4 {
        assert!(clock.now() < 10_000_000, "the downloads do not end");
        // For most of a millisecond nobody looks: at the wire's rate 80 frames could come.
        for _ in 0..50 {
            server.poll(Instant::from_micros(clock.now()));
            clock.advance(20);
        }
        client.poll(Instant::from_micros(clock.now())).unwrap();
    }
    assert!(
        done.borrow()
            .iter()
            .all(|(bytes, end)| end.is_ok() && *bytes == file)
    );
    let counters = client.nic_mut().counters();
    assert_eq!(counters.receive_dropped, 0, "{counters}");
    // The ring is used: 60 segments a millisecond would be 46 ms, and the first one begins alone.
    assert!(clock.now() < 120_000, "{} us", clock.now());
}

#[test]
fn a_closed_port_refuses_and_a_silent_host_times_out() {
    let (near, far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
    let clock = near.clock();
    let mut server = FileServer::new(far, Vec::new(), 1, 4096);
    let mut client = Engine::new(near, [3; 32]);
    let stack = client.stack();
    let log = Rc::new(RefCell::new(Vec::new()));
    let out = log.clone();
    client.spawn(async move {
        let patience = Duration::from_secs(2);
        let at = |host, port| SocketAddr::new(host, port);
        let note = |result: Result<_, NetError>| {
            out.borrow_mut().push(result.map(|_: crate::TcpStream| ()))
        };
        note(stack.connect(at(SERVER.into(), 80), patience).await);
        stack.configure(&Ipv4Config {
            address: Ipv4Cidr::new(CLIENT, 24),
            router: None,
            routes: Vec::new(),
            mtu: Some(1400),
        });
        note(stack.connect(at(SERVER.into(), 81), patience).await);
        note(
            stack
                .connect(at(Ipv4Addr::new(10, 0, 0, 9).into(), 80), patience)
                .await,
        );
        note(stack.connect(at(SERVER.into(), 80), patience).await);
    });
    while log.borrow().len() < 4 && clock.now() < 10_000_000 {
        let now = Instant::from_micros(clock.now());
        client.poll(now).unwrap();
        server.poll(now);
        clock.advance(100);
    }
    let want = [
        Err(NetError::Unreachable),
        Err(NetError::Refused),
        Err(NetError::TimedOut),
        Ok(()),
    ];
    assert_eq!(*log.borrow(), want);
}

#[test]
fn an_address_in_use_is_noticed() {
    let (near, mut far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
    let clock = near.clock();
    let mut client = Engine::new(near, [3; 32]);
    let stack = client.stack();
    let found = Rc::new(RefCell::new(None));
    let out = found.clone();
    client.spawn(async move {
        let used = stack.arp_probe(SERVER).await;
        let free = stack.arp_probe(CLIENT).await;
        *out.borrow_mut() = Some((used, free));
    });
    while found.borrow().is_none() && clock.now() < 1_000_000 {
        client.poll(Instant::from_micros(clock.now())).unwrap();
        let (rx, tx) = far.split();
        rx.burst(8, |frame| {
            // Answers for SERVER alone, as RFC 826 says.
            let mut answer = frame.parts.concat();
            if answer[12..14] == [8, 6] && answer[38..42] == SERVER.octets() {
                answer[20..22].copy_from_slice(&[0, 2]);
                answer[22..28].copy_from_slice(&[2, 0, 0, 0, 0, 0x0b]);
                answer[28..32].copy_from_slice(&SERVER.octets());
                tx.send(answer.len(), Offload::None, |room| {
                    room.copy_from_slice(&answer)
                })
                .unwrap();
            }
        })
        .unwrap();
        far.split().1.flush().unwrap();
        clock.advance(100);
    }
    assert_eq!(*found.borrow(), Some((Some([2, 0, 0, 0, 0, 0x0b]), None)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn whatever_the_wire_does_the_bytes_are_right(
        seed in any::<u64>(), len in 1usize..400_000, loss in 0.0..0.05, reorder in 0.0..0.1,
        duplicate in 0.0..0.05, corrupt in 0.0..0.01, coalesce in any::<bool>(), scatter in any::<bool>(),
        cuts in prop::collection::vec(1usize..100_000, 0..5), latency in 1u32..3000,
    ) {
        let mut case = Case::new(pattern(len));
        case.seed = seed;
        case.wire = LinkConfig { loss, reorder, duplicate, corrupt, latency_micros: latency, ..LinkConfig::default() };
        case.nic.coalesce = coalesce;
        case.nic.part_len = scatter.then_some(700);
        // Reads into memory first, of lengths that have nothing to do with segments; the rest without.
        let mut left = len;
        case.reads = cuts.iter().map(|&cut| { let c = cut.min(left); left -= c; c }).collect();
        let outcome = case.run();
        prop_assume!(!outcome.forgot);
        prop_assert!(outcome.whole() == case.file);
    }

    /// The short way, reassembly in the destination included, and smoltcp alone, on the same wire: same bytes, same end.
    #[test]
    fn the_short_way_and_smoltcp_alone_end_alike(
        seed in any::<u64>(), len in 100_000usize..1_500_000, loss in 0.0..0.03, reorder in 0.0..0.05,
        duplicate in 0.0..0.03, corrupt in 0.0..0.002, coalesce in any::<bool>(), frames in 24usize..512,
        at in 0.0..1.0, end in 0..4, latency in 1u32..20_000,
    ) {
        let mut case = Case::new(pattern(len));
        let at = (len as f64 * at) as usize;
        case.seed = seed;
        case.wire = LinkConfig { loss, reorder, duplicate, corrupt, latency_micros: latency, ..LinkConfig::default() };
        case.nic.coalesce = coalesce;
        case.nic.receive_frames = frames;
        case.turn = 20;
        match end {
            0 => {
                // A reset is sent once: nothing may swallow it.
                case.end = End::Reset(at);
                (case.wire.loss, case.wire.corrupt) = (0.0, 0.0);
                case.nic.receive_frames = 512;
            }
            1 => {
                case.end = End::Silence(at);
                case.wire.corrupt = 0.0;
                // smoltcp's server doubles its time-out with each loss, up to a minute, and data does not bring it down.
                case.patience = Duration::from_secs(70);
            }
            _ => {}
        }
        let short = case.run();
        case.reads = Vec::new();
        let alone = case.run();
        prop_assume!(!short.forgot && !alone.forgot);
        prop_assert_eq!(short.end, alone.end);
        match case.end {
            End::Fin => prop_assert!(short.bytes == case.file && alone.bytes == case.file),
            // Without a destination all that came in order is handed over, and nothing came twice.
            End::Silence(at) => prop_assert!(alone.bytes == case.file[..at]),
            End::Reset(_) => prop_assert!(case.file.starts_with(&alone.bytes)),
        }
    }
}
