//! Downloads over TCP from a smoltcp server, on a simulated wire in simulated time.

use crate::smoltcp_device::Port;
use crate::tcp::Connections;
use crate::{Engine, Ipv4Address, Ipv4Cidr, Ipv4Config, Memory, NetError};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::SocketAddrV4;
use proptest::prelude::*;
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::vec;
use std::vec::Vec;
use wireboot_nic::sim::{self, LinkConfig, NicConfig, SimNic};
use wireboot_nic::{Frame, Nic, Offload, Receive, Transmit};

const CLIENT: Ipv4Address = Ipv4Address::new(10, 0, 0, 1);
const SERVER: Ipv4Address = Ipv4Address::new(10, 0, 0, 2);
/// ARP has no checksum, and a corrupted answer stays in the cache for a minute: a wire that flips bits unseen
/// asks for patience.
const PATIENCE: Duration = Duration::from_secs(200);
const REQUEST: &[u8] = b"give me the file";

/// A server that answers one request with a file and closes: plain smoltcp, nothing of ours on its way.
struct FileServer {
    nic: SimNic,
    iface: Interface,
    sockets: SocketSet<'static>,
    handle: smoltcp::iface::SocketHandle,
    file: Vec<u8>,
    sent: usize,
    heard: Vec<u8>,
    resets_after: Option<usize>,
    scratch: Vec<u8>,
}

impl FileServer {
    fn new(mut nic: SimNic, file: Vec<u8>) -> Self {
        let mac = nic.properties().mac;
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
        let mut port = Port {
            frame: None,
            transmit: nic.split().1,
            connections: &mut Connections::default(),
            scratch: &mut Vec::new(),
            mtu: 1500,
            offload: false,
        };
        let mut iface = Interface::new(config, &mut port, Instant::ZERO);
        iface.update_ip_addrs(|a| a.push(IpCidr::new(SERVER.into(), 24)).unwrap());
        let mut socket = tcp::Socket::new(
            tcp::SocketBuffer::new(vec![0; 4096]),
            tcp::SocketBuffer::new(vec![0; 256 * 1024]),
        );
        socket.listen(80).unwrap();
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self {
            nic,
            iface,
            sockets,
            handle,
            file,
            sent: 0,
            heard: Vec::new(),
            resets_after: None,
            scratch: Vec::new(),
        }
    }

    fn poll(&mut self, now: Instant) -> bool {
        let (rx, tx) = self.nic.split();
        let (iface, sockets, scratch) = (&mut self.iface, &mut self.sockets, &mut self.scratch);
        let mut none = Connections::default();
        let mut port = Port {
            frame: None,
            transmit: tx,
            connections: &mut none,
            scratch,
            mtu: 1500,
            offload: false,
        };
        let got = rx
            .burst(64, |frame: Frame<'_>| {
                let whole: Vec<u8> = frame.parts.concat();
                // The engine verifies transport checksums before smoltcp; so must this server.
                if matches!(
                    crate::ethernet::parse(&frame, [2, 0, 0, 0, 0, 0x0b]),
                    crate::ethernet::Received::Drop
                ) {
                    return;
                }
                let mut port = Port {
                    frame: Some(&whole),
                    transmit: &mut *port.transmit,
                    connections: &mut *port.connections,
                    scratch: &mut *port.scratch,
                    mtu: 1500,
                    offload: false,
                };
                iface.poll_ingress_single(now, &mut port, sockets);
            })
            .unwrap();
        let socket = sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        if socket.can_recv() {
            socket
                .recv(|bytes| {
                    self.heard.extend_from_slice(bytes);
                    (bytes.len(), ())
                })
                .unwrap();
        }
        if self.heard == REQUEST && socket.can_send() {
            self.sent += socket.send_slice(&self.file[self.sent..]).unwrap();
            // smoltcp does not send a FIN again whose segment's data was acknowledged without it, so the FIN goes alone.
            if self.sent == self.file.len() && socket.send_queue() == 0 {
                socket.close();
            }
        }
        if self.resets_after.is_some_and(|after| self.sent > after) {
            socket.abort();
            self.resets_after = None;
            self.sent = self.file.len();
        }
        while iface.poll_egress(now, &mut port, sockets) != PollResult::None {}
        port.transmit.flush().unwrap();
        got > 0
    }
}

struct Case {
    file: Vec<u8>,
    wire: LinkConfig,
    nic: NicConfig,
    seed: u64,
    /// Lengths of the reads into memory; the rest is read without a destination.
    reads: Vec<usize>,
    resets_after: Option<usize>,
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
            resets_after: None,
        }
    }

    fn run(&self) -> (Result<Vec<u8>, NetError>, i64) {
        let (mut near, far) = sim::link(self.wire, self.wire, self.seed);
        near.configure(self.nic);
        let clock = near.clock();
        let mut server = FileServer::new(far, self.file.clone());
        server.resets_after = self.resets_after;
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
        let reads = self.reads.clone();
        client.spawn(async move {
            *out.borrow_mut() = Some(download(&stack, &reads).await);
        });
        while done.borrow().is_none() {
            assert!(clock.now() < 900_000_000, "the download does not end");
            let now = Instant::from_micros(clock.now());
            let busy = client.poll(now).unwrap() | server.poll(now);
            clock.advance(if busy { 5 } else { 100 });
        }
        let result = done.borrow_mut().take().unwrap();
        (result, clock.now())
    }
}

async fn download(stack: &crate::Stack, reads: &[usize]) -> Result<Vec<u8>, NetError> {
    let server = SocketAddrV4::new(SERVER, 80);
    let mut stream = stack.connect(server, PATIENCE).await?;
    stream.set_idle_timeout(PATIENCE);
    stream.write_all(REQUEST).await?;
    let mut all = Vec::new();
    for &len in reads {
        let memory = Memory::from(vec![0xee; len + 20]);
        let (memory, result) = stream.read_into(memory, 10, len).await;
        let count = result?;
        let bytes = memory.as_slice();
        assert_eq!(&bytes[..10], [0xee; 10]);
        assert!(bytes[10 + count..].iter().all(|&b| b == 0xee));
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
            return Ok(all);
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 253) as u8).collect()
}

#[test]
fn a_clean_wire_is_filled() {
    let case = Case::new(pattern(4_000_000));
    let (result, micros) = case.run();
    assert!(result.unwrap() == case.file);
    // 32 ms of wire time at 1 Gbit/s.
    assert!(micros < 60_000, "{micros} us");
}

#[test]
fn large_units_and_scattered_parts_arrive_whole() {
    let mut case = Case::new(pattern(2_000_000));
    case.nic.coalesce = true;
    case.nic.part_len = Some(4096);
    assert!(case.run().0.unwrap() == case.file);
}

#[test]
fn a_reset_is_an_error_after_what_came_before() {
    let mut case = Case::new(pattern(2_000_000));
    case.resets_after = Some(1_000_000);
    assert_eq!(case.run().0, Err(NetError::Reset));
}

#[test]
fn a_closed_port_refuses_and_a_silent_host_times_out() {
    let (near, far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
    let clock = near.clock();
    let mut server = FileServer::new(far, Vec::new());
    let mut client = Engine::new(near, [3; 32]);
    let stack = client.stack();
    let log = Rc::new(RefCell::new(Vec::new()));
    let out = log.clone();
    client.spawn(async move {
        let patience = Duration::from_secs(2);
        let at = |host, port| SocketAddrV4::new(host, port);
        let note = |result: Result<_, NetError>| {
            out.borrow_mut().push(result.map(|_: crate::TcpStream| ()))
        };
        note(stack.connect(at(SERVER, 80), patience).await);
        stack.configure(&Ipv4Config {
            address: Ipv4Cidr::new(CLIENT, 24),
            router: None,
            routes: Vec::new(),
            mtu: Some(1400),
        });
        note(stack.connect(at(SERVER, 81), patience).await);
        note(
            stack
                .connect(at(Ipv4Address::new(10, 0, 0, 9), 80), patience)
                .await,
        );
        note(stack.connect(at(SERVER, 80), patience).await);
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
        let (result, _) = case.run();
        prop_assert!(result.unwrap() == case.file);
    }
}
