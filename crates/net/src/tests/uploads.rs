//! Sending in bulk to smoltcp, over both IP versions.

use super::server::Host;
use super::{IpVersion, PATIENCE, pattern};
use crate::{Engine, Memory, NetError, Region};
use alloc::rc::Rc;
use core::cell::RefCell;
use proptest::prelude::*;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use std::vec::Vec;
use wireboot_nic::sim::{self, LinkConfig, NicConfig, SimNic};
use wireboot_nic::{Counters, Nic};
use wireboot_tcp::Instant;

/// A host that takes what comes and says that it ends when it has so many bytes.
struct Sink {
    host: Host,
    handle: SocketHandle,
    bytes: Vec<u8>,
    expected: usize,
}

impl Sink {
    fn new(nic: SimNic, expected: usize, buffer: usize) -> Self {
        let mut host = Host::new(nic);
        let handle = host.listen(buffer, 4096);
        Self {
            host,
            handle,
            bytes: Vec::new(),
            expected,
        }
    }

    fn poll(&mut self, now: Instant) -> bool {
        let (handle, bytes) = (self.handle, &mut self.bytes);
        self.host.poll(now, |sockets| {
            let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
            while socket.can_recv() {
                let take = |new: &mut [u8]| {
                    bytes.extend_from_slice(new);
                    (new.len(), ())
                };
                socket.recv(take).unwrap();
            }
            if bytes.len() >= self.expected {
                socket.close();
            }
        })
    }
}

struct Case {
    version: IpVersion,
    file: Vec<u8>,
    wire: LinkConfig,
    nic: NicConfig,
    /// Most bytes that the sink holds.
    buffer: usize,
    seed: u64,
}

struct Outcome {
    end: Result<(), NetError>,
    bytes: Vec<u8>,
    counters: Counters,
    micros: i64,
}

impl Case {
    fn new(version: IpVersion, file: Vec<u8>) -> Self {
        Self {
            version,
            file,
            wire: LinkConfig::default(),
            nic: NicConfig::new(super::CLIENT_MAC),
            buffer: 512 * 1024,
            seed: 1,
        }
    }

    /// Lets the card cut units and complete checksums.
    fn by_tso(mut self) -> Self {
        self.nic.transmit_checksum = true;
        self.nic.transmit_unit = 65_535;
        self
    }

    fn run(&self) -> Outcome {
        let (mut near, far) = sim::link(self.wire, self.wire, self.seed);
        near.configure(self.nic);
        let clock = near.clock();
        let mut sink = Sink::new(far, self.file.len(), self.buffer);
        let mut client = Engine::new(near, [3; 32]);
        let stack = client.stack();
        self.version.configure_before_start(&mut client);
        let (server, file) = (self.version.server(), self.file.clone());
        let done = Rc::new(RefCell::new(None));
        let out = done.clone();
        client.spawn(async move {
            let upload = async {
                let mut stream = stack.connect(server, PATIENCE).await?;
                stream.set_idle_timeout(PATIENCE);
                let len = file.len();
                let region = Region::new(Memory::from(file));
                // A part of it first, so that one segment has bytes of two.
                stream.send_from(&region, 0, len / 3).await?;
                stream.send_from(&region, len / 3, len).await?;
                stream.close();
                Ok(())
            };
            *out.borrow_mut() = Some(upload.await);
        });
        let mut idle = 0;
        while done.borrow().is_none() {
            assert!(clock.now() < 900_000_000, "the upload does not end");
            let now = Instant::from_micros(clock.now());
            let busy = client.poll(now).unwrap() | sink.poll(now);
            idle = if busy { 0 } else { idle + 1 };
            clock.advance(match idle {
                0 => 5,
                1..10_000 => 50,
                _ => 10_000,
            });
        }
        Outcome {
            end: done.borrow_mut().take().unwrap(),
            bytes: sink.bytes,
            counters: client.nic_mut().counters(),
            micros: clock.now(),
        }
    }
}

#[test]
fn a_file_arrives_as_it_is() {
    for version in IpVersion::BOTH {
        let case = Case::new(version, pattern(2_000_000));
        let outcome = case.run();
        assert_eq!(outcome.end, Ok(()));
        assert!(outcome.bytes == case.file);
        // 17 ms of wire time at 1 Gbit/s, and slow start.
        assert!(outcome.micros < 25_000, "{} us", outcome.micros);
    }
}

#[test]
fn a_card_that_cuts_gets_few_units() {
    for version in IpVersion::BOTH {
        let case = Case::new(version, pattern(2_000_000)).by_tso();
        let outcome = case.run();
        assert_eq!(outcome.end, Ok(()));
        assert!(outcome.bytes == case.file);
        assert!(outcome.micros < 25_000, "{} us", outcome.micros);
        // 1370 segments.
        let units = outcome.counters.transmit_frames;
        assert!(units < 300, "{units}");
    }
}

/// What a card that cuts does not take in one turn is not lost.
#[test]
fn a_long_path_is_filled() {
    for tso in [false, true] {
        for version in IpVersion::BOTH {
            let mut case = Case::new(version, pattern(20_000_000));
            if tso {
                case = case.by_tso();
            }
            case.wire.latency_micros = 5_000;
            case.wire.queue_frames = 20_000;
            case.buffer = 4 << 20;
            let outcome = case.run();
            assert_eq!(outcome.end, Ok(()));
            assert!(outcome.bytes == case.file);
            // 168 ms of wire time, three round trips before the first byte and seven of slow start.
            assert!(outcome.micros < 270_000, "{tso} {} us", outcome.micros);
            assert_eq!(
                outcome.counters.transmit_full > 0,
                tso,
                "of eight units a turn"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_the_wire_does_the_sink_has_the_bytes(
        seed in any::<u64>(), len in 1usize..300_000, loss in 0.0..0.05, reorder in 0.0..0.1,
        duplicate in 0.0..0.05, corrupt in 0.0..0.01, latency in 1u32..3000, tso in any::<bool>(), v6 in any::<bool>(),
    ) {
        let version = if v6 { IpVersion::V6 } else { IpVersion::V4 };
        let mut case = Case::new(version, pattern(len));
        if tso {
            case = case.by_tso();
        }
        case.seed = seed;
        case.wire = LinkConfig { loss, reorder, duplicate, corrupt, latency_micros: latency, ..LinkConfig::default() };
        let outcome = case.run();
        prop_assert_eq!(outcome.end, Ok(()));
        prop_assert!(outcome.bytes == case.file);
    }
}
