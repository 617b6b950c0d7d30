//! Downloads over TCP from smoltcp, over both IP versions.

use super::forged::{Bench, tcp};
use super::server::{FileServer, FileServerEnd};
use super::{CLIENT, IpVersion, PATIENCE, REQUEST, SERVER, pattern};
use crate::{Engine, Ipv4Addr, Ipv6Addr, Memory, NetError, Region};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;
use wireboot_nic::sim::{self, LinkConfig, NicConfig};
use wireboot_nic::{Nic, Offload, Receive, Transmit};
use wireboot_ring::{HeapBlock, prefix};
use wireboot_tcp::{Duration, Flags, Instant};

struct Case {
    version: IpVersion,
    file: Vec<u8>,
    wire: LinkConfig,
    nic: NicConfig,
    seed: u64,
    /// Lengths of the reads into memory; the rest is read without a destination.
    reads: Vec<usize>,
    end: FileServerEnd,
    patience: Duration,
    /// Most bytes that the server has on their way.
    server_buffer: usize,
    /// Microseconds between two turns while something arrives.
    turn: i64,
    /// A card that places payload forgets all at these parts of the file, of a thousand.
    forgets: Vec<u64>,
}

/// What was received, how it ended, and when, in microseconds.
struct Outcome {
    bytes: Vec<u8>,
    end: Result<(), NetError>,
    micros: i64,
    /// When half of the file was there, and all of it.
    half: i64,
    all: i64,
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
    fn new(version: IpVersion, file: Vec<u8>) -> Self {
        Self {
            version,
            nic: NicConfig {
                receive_frames: 512,
                ..NicConfig::new([2, 0, 0, 0, 0, 0x0a])
            },
            reads: vec![file.len()],
            file,
            wire: LinkConfig::default(),
            seed: 1,
            end: FileServerEnd::Fin,
            patience: PATIENCE,
            server_buffer: 256 * 1024,
            turn: 5,
            forgets: Vec::new(),
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
        self.version.configure_before_start(&mut client);
        let done = Rc::new(RefCell::new(None));
        let out = done.clone();
        let counter = Rc::new(RefCell::new(Rc::default()));
        let count = counter.clone();
        let (reads, patience) = (self.reads.clone(), self.patience);
        let server_at = self.version.server();
        client.spawn(async move {
            let mut bytes = Vec::new();
            let end = download(&stack, server_at, &reads, patience, &count, &mut bytes).await;
            *out.borrow_mut() = Some((bytes, end));
        });
        let (mut idle, mut forgot) = (0, false);
        let (mut half, mut all) = (None, None);
        let mut forgets = self.forgets.iter().copied().peekable();
        while done.borrow().is_none() {
            assert!(clock.now() < 900_000_000, "the download does not end");
            let now = Instant::from_micros(clock.now());
            let busy = client.poll(now).unwrap() | server.poll(now);
            idle = if busy { 0 } else { idle + 1 };
            let received = counter.borrow().get();
            if forgets
                .next_if(|part| received * 1000 >= part * self.file.len() as u64)
                .is_some()
            {
                client.nic_mut().forget_memory();
            }
            if received >= self.file.len() as u64 / 2 {
                half = half.or(Some(clock.now()));
            }
            if received == self.file.len() as u64 {
                all = all.or(Some(clock.now()));
            }
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
            half: half.unwrap_or_default(),
            all: all.unwrap_or_default(),
            forgot,
        }
    }
}

async fn download(
    stack: &crate::Stack,
    server: SocketAddr,
    reads: &[usize],
    patience: Duration,
    counter: &RefCell<Rc<Cell<u64>>>,
    all: &mut Vec<u8>,
) -> Result<(), NetError> {
    let mut stream = stack.connect(server, patience).await?;
    stream.set_idle_timeout(patience);
    *counter.borrow_mut() = stream.received();
    stream.write_all(REQUEST).await?;
    for &len in reads {
        let (memory, _) = prefix(HeapBlock::from(vec![0xee; len + 20]));
        let region = Region::new(Memory::new(memory));
        let part = region.part(10 + len).by_device();
        let result = stream.read_into(&part, 10).await;
        let count = result?;
        let memory = region.take();
        let bytes = memory.rest(0);
        assert_eq!(&bytes[..10], [0xee; 10]);
        // Without what a card still has, where the read ended early.
        let behind = bytes.get(10 + len..).unwrap_or_default();
        assert!(behind.iter().all(|&b| b == 0xee));
        all.extend_from_slice(&bytes[10..10 + count]);
        assert_eq!(stream.received().get(), all.len() as u64);
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

#[test]
fn a_clean_wire_is_filled() {
    for version in IpVersion::BOTH {
        let case = Case::new(version, pattern(4_000_000));
        let outcome = case.run();
        assert!(outcome.whole() == case.file);
        // 32 ms of wire time at 1 Gbit/s.
        assert!(outcome.micros < 40_000, "{} us", outcome.micros);
    }
}

/// The first unit comes before there is a destination, and is longer than what is held without one. What does not fit is a gap like
/// any other.
#[test]
fn a_first_unit_beyond_the_buffer_costs_one_repair() {
    for version in IpVersion::BOTH {
        let mut case = Case::new(version, pattern(238_157));
        case.wire.latency_micros = 8208;
        case.nic.coalesce = true;
        case.nic.receive_frames = 24;
        case.turn = 20;
        let outcome = case.run();
        assert!(outcome.whole() == case.file);
        assert!(outcome.micros < 2_000_000, "{} us", outcome.micros);
    }
}

#[test]
fn large_units_and_scattered_parts_arrive_whole() {
    for version in IpVersion::BOTH {
        let mut case = Case::new(version, pattern(2_000_000));
        case.nic.coalesce = true;
        case.nic.part_len = Some(4096);
        assert!(case.run().whole() == case.file);
    }
}

#[test]
fn a_reset_is_an_error_after_what_came_before() {
    for version in IpVersion::BOTH {
        let mut case = Case::new(version, pattern(2_000_000));
        case.end = FileServerEnd::Reset(1_000_000);
        let outcome = case.run();
        assert_eq!(outcome.end, Err(NetError::Reset));
    }
}

/// Buffers that a NIC may have are counted until they turn out to be missing.
#[test]
fn receive_frames_to_probe_are_counted_until_they_are_lost() {
    for (told, before, after) in [
        (Some((64, 192)), (true, 256), (false, 64)),
        (Some((64, 0)), (false, 64), (false, 64)),
        (None, (false, 512), (false, 512)),
    ] {
        let (mut near, _far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
        near.configure(NicConfig {
            receive_frames: 512,
            receive_frames_reported: told,
            ..NicConfig::new([2, 0, 0, 0, 0, 0x0a])
        });
        let stack = Engine::new(near, [1; 32]).stack();
        assert_eq!(
            (stack.probes_receive_frames(), stack.receive_frames()),
            before
        );
        stack.stop_probing();
        assert_eq!(
            (stack.probes_receive_frames(), stack.receive_frames()),
            after
        );
    }
}

#[test]
fn a_lone_connection_fills_a_long_path() {
    for version in IpVersion::BOTH {
        // 1 Gbit/s and 100 ms: 12.5 MB under way.
        let mut case = Case::new(version, pattern(40_000_000));
        case.wire.latency_micros = 50_000;
        case.wire.queue_frames = 20_000;
        case.nic.receive_frames = 256;
        case.server_buffer = 20 << 20;
        case.turn = 50;
        let outcome = case.run();
        assert!(outcome.whole() == case.file);
        // 320 ms for the bytes, and their headers: once the window is open the wire is never idle.
        let payload = match version {
            IpVersion::V4 => 1460,
            IpVersion::V6 => 1440,
        };
        let wire = 320_000 * 1514 / payload;
        let took = outcome.all - outcome.half;
        assert!(took < wire / 2 * 101 / 100, "{took} us");
        // Four round trips come on top: for the neighbour, the connection, the request, and the FIN, which this server sends when
        // all is acknowledged.
        let most = wire * 101 / 100 + 400_000;
        assert!(outcome.micros < most, "{} us", outcome.micros);
    }
}

#[test]
fn four_connections_do_not_overrun_a_small_ring() {
    IpVersion::BOTH.into_iter().for_each(four_connections);
}

fn four_connections(version: IpVersion) {
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
    version.configure_before_start(&mut client);
    let done = Rc::new(RefCell::new(Vec::new()));
    for begin in 0..4 {
        let (stack, out, len) = (stack.clone(), done.clone(), file.len());
        client.spawn(async move {
            // The first has all of the ring before the others come.
            stack.sleep(Duration::from_millis(begin * 7)).await;
            let mut bytes = Vec::new();
            let count = RefCell::default();
            let end = download(
                &stack,
                version.server(),
                &[len],
                PATIENCE,
                &count,
                &mut bytes,
            )
            .await;
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
    let silent4 = Ipv4Addr::new(10, 0, 0, 9).into();
    let silent6 = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9).into();
    for (version, silent) in [(IpVersion::V4, silent4), (IpVersion::V6, silent6)] {
        let (near, far) = sim::link(LinkConfig::default(), LinkConfig::default(), 1);
        let clock = near.clock();
        let mut server = FileServer::new(far, Vec::new(), 1, 4096);
        let mut client = Engine::new(near, [3; 32]);
        let stack = client.stack();
        let log = Rc::new(RefCell::new(Vec::new()));
        let out = log.clone();
        client.spawn(async move {
            let patience = Duration::from_secs(2);
            let server = version.server();
            let note = |result: Result<crate::TcpStream, NetError>| {
                out.borrow_mut().push(result.map(drop));
            };
            note(stack.connect(server, patience).await);
            version.configure(&stack);
            let closed = SocketAddr::new(server.ip(), 81);
            note(stack.connect(closed, patience).await);
            let silent = SocketAddr::new(silent, 80);
            note(stack.connect(silent, patience).await);
            note(stack.connect(server, patience).await);
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
                tx.send(answer.len(), Offload::None, &mut |room| {
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

fn version(v6: bool) -> IpVersion {
    if v6 { IpVersion::V6 } else { IpVersion::V4 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn whatever_the_wire_does_the_bytes_are_right(
        seed in any::<u64>(), len in 1usize..400_000, loss in 0.0..0.05, reorder in 0.0..0.1,
        duplicate in 0.0..0.05, corrupt in 0.0..0.01, coalesce in any::<bool>(), scatter in any::<bool>(),
        cuts in prop::collection::vec(1usize..100_000, 0..5), latency in 1u32..3000, v6 in any::<bool>(),
    ) {
        let mut case = Case::new(version(v6), pattern(len));
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

    /// With a destination and without one, on the same wire: same bytes, same end.
    #[test]
    fn with_and_without_a_destination_it_ends_alike(
        seed in any::<u64>(), len in 100_000usize..1_500_000, loss in 0.0..0.03, reorder in 0.0..0.05,
        duplicate in 0.0..0.03, corrupt in 0.0..0.002, coalesce in any::<bool>(), frames in 24usize..512,
        at in 0.0..1.0, end in 0..4, latency in 1u32..20_000, v6 in any::<bool>(), places in any::<bool>(),
        mut forgets in prop::collection::vec(0..1000_u64, 0..4),
    ) {
        let mut case = Case::new(version(v6), pattern(len));
        let at = (len as f64 * at) as usize;
        case.seed = seed;
        case.wire = LinkConfig { loss, reorder, duplicate, corrupt, latency_micros: latency, ..LinkConfig::default() };
        case.nic.coalesce = coalesce;
        case.nic.receive_frames = frames;
        case.nic.places = places;
        forgets.sort_unstable();
        case.forgets = forgets;
        case.turn = 20;
        match end {
            0 => {
                // A reset is sent once: nothing may swallow it.
                case.end = FileServerEnd::Reset(at);
                (case.wire.loss, case.wire.corrupt) = (0.0, 0.0);
                case.nic.receive_frames = 512;
            }
            1 => {
                case.end = FileServerEnd::Silence(at);
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
            FileServerEnd::Fin => prop_assert!(short.bytes == case.file && alone.bytes == case.file),
            // Without a destination all that came in order is handed over, and nothing came twice.
            FileServerEnd::Silence(at) => prop_assert!(alone.bytes == case.file[..at]),
            FileServerEnd::Reset(_) => prop_assert!(case.file.starts_with(&alone.bytes)),
        }
    }
}

/// The windows of all connections together promise no more than the ring has room for, but for the two segments that each may have.
#[test]
fn a_newcomer_gets_what_the_others_leave_of_the_ring() {
    for version in IpVersion::BOTH {
        // 38 of 40 buffers are TCP's, of 1460 bytes each: less than the file.
        let mut bench = Bench::by_a_small_ring(version, 40);
        let (_, first) = bench.window();
        assert!(first > 38 * 1460 * 3 / 4, "{first}");
        let (stack, server) = (
            bench.stack.clone(),
            SocketAddr::new(version.server().ip(), 81),
        );
        bench.engine.spawn(async move {
            let _ = stack.connect(server, PATIENCE).await;
        });
        bench.run_until_idle();
        let syn = bench
            .heard
            .iter()
            .filter_map(|frame| tcp(frame))
            .find(|(_, to, ..)| *to == server);
        let (_, _, (_, _, flags, window, _), _) = syn.unwrap();
        assert!(flags.contains(Flags::SYN));
        let left = (38 * 1460 - first).max(2 * 1460);
        assert_eq!(u32::from(window), left);
    }
}

/// Found by chance: a gap behind a window that was used up, of which the peer was told 0. It probed a byte each 8 s, and the window stayed closed for the gap.
#[test]
fn a_gap_keeps_no_window_closed() {
    let mut case = Case::new(IpVersion::V6, pattern(208_577));
    case.seed = 2_314_615_565_424_925_397;
    case.wire = LinkConfig {
        loss: 0.018494588540240078,
        reorder: 0.029852823479526575,
        duplicate: 0.03161541760058999,
        corrupt: 5.2222157900487155e-5,
        latency_micros: 598,
        ..LinkConfig::default()
    };
    case.reads = vec![30_984, 89_288];
    let outcome = case.run();
    assert!(outcome.whole() == case.file);
}
