//! Two connections against each other over a faulty wire, on a virtual clock.

use crate::*;
use alloc::collections::BTreeMap;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

mod rules;

/// One end of a connection and its caller: what it sends, and what it has received into memory of limited size.
struct TcpPeer {
    connection: Connection,
    /// What is still to be queued, and the send buffer.
    source: Vec<u8>,
    queued: usize,
    released: usize,
    sink: Vec<u8>,
    taken: usize,
    buffer: usize,
    read: usize,
    closes: bool,
    unit: u32,
}

/// A segment on its way.
#[derive(Clone, Debug)]
struct Packet {
    seq: u32,
    ack: u32,
    flags: Flags,
    wnd: u16,
    options: Vec<u8>,
    payload: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Wire {
    latency: u64,
    loss: f64,
    late: f64,
    twice: f64,
    /// Payload beyond this is swallowed.
    mtu: usize,
}

const PLAIN: Wire = Wire {
    latency: 1000,
    loss: 0.0,
    late: 0.0,
    twice: 0.0,
    mtu: 1460,
};

impl TcpPeer {
    fn new(connection: Connection, source: Vec<u8>, buffer: usize) -> Self {
        Self {
            connection,
            source,
            queued: 0,
            released: 0,
            sink: Vec::new(),
            taken: 0,
            buffer,
            read: usize::MAX,
            closes: true,
            unit: 0,
        }
    }

    fn room(&self) -> u32 {
        // Of what was read nothing takes room any more.
        (self.buffer - (self.taken - self.taken.min(self.read_so_far()))) as u32
    }

    fn read_so_far(&self) -> usize {
        self.read
    }

    fn hears(&mut self, packet: &Packet, now: Instant) {
        let segment = Segment {
            seq: packet.seq,
            ack: packet.ack,
            flags: packet.flags,
            wnd: packet.wnd,
            options: &packet.options,
            len: packet.payload.len(),
        };
        let room = self.room();
        if let Some(place) = self.connection.receive(now, &segment, room) {
            assert!(
                place.at as usize + place.len <= room as usize,
                "beyond the room"
            );
            let at = self.taken + place.at as usize;
            if self.sink.len() < at + place.len {
                self.sink.resize(at + place.len, 0xee);
            }
            let payload = &packet.payload[place.skip..place.skip + place.len];
            self.sink[at..at + place.len].copy_from_slice(payload);
            self.taken += place.advance as usize;
            assert!(self.taken <= self.sink.len());
        }
        self.released += self.connection.acknowledged() as usize;
    }

    fn turn(&mut self, now: Instant, mut send: impl FnMut(Packet)) {
        let open = matches!(
            self.connection.state(),
            State::Established | State::CloseWait
        );
        if open && self.queued < self.source.len() {
            let more = (self.source.len() - self.queued).min(100_000);
            self.connection.queue(more as u32);
            self.queued += more;
        } else if open && self.closes {
            self.connection.close();
        }
        let limits = Limits {
            window: 1 << 20,
            room: self.room(),
            unit: self.unit,
        };
        let mut turns = 0;
        while let Some(out) = self.connection.transmit(now, &limits) {
            turns += 1;
            assert!(
                turns < 10_000,
                "it never stops: {out:?} {:?}",
                self.connection
            );
            let at = self.released + out.offset as usize;
            let whole = self.source.get(at..at + out.len).unwrap_or(&[]);
            assert_eq!(whole.len(), out.len, "payload that was never queued");
            let mut seq = out.seq;
            let mut rest = whole;
            loop {
                let cut = rest.len().min(usize::from(out.mss.max(1)));
                let (payload, behind) = rest.split_at(cut);
                let last = behind.is_empty();
                send(Packet {
                    seq,
                    ack: out.ack,
                    flags: if last { out.flags } else { Flags::ACK },
                    wnd: out.wnd,
                    options: out.options.as_slice().to_vec(),
                    payload: payload.to_vec(),
                });
                seq = seq.wrapping_add(cut as u32);
                rest = behind;
                if last {
                    break;
                }
            }
        }
    }
}

struct World {
    ends: [TcpPeer; 2],
    wire: Wire,
    random: u64,
    under_way: BTreeMap<(u64, u64), (usize, Packet)>,
    count: u64,
    now: u64,
    sent: u64,
}

impl World {
    fn random(&mut self) -> f64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn carry(&mut self, to: usize, packet: Packet) {
        self.sent += 1;
        if packet.payload.len() > self.wire.mtu || self.random() < self.wire.loss {
            return;
        }
        let copies = 1 + usize::from(self.random() < self.wire.twice);
        for _ in 0..copies {
            let late = self.random() < self.wire.late;
            let extra = if late {
                (self.random() * 5000.0) as u64
            } else {
                0
            };
            self.count += 1;
            let at = self.now + self.wire.latency + extra;
            self.under_way
                .insert((at, self.count), (to, packet.clone()));
        }
    }

    /// Lets time pass until `done`, or `limit` microseconds. Returns whether it was done.
    fn run(&mut self, limit: u64, done: impl Fn(&[TcpPeer; 2]) -> bool) -> bool {
        while self.now < limit {
            let now = Instant::from_micros(self.now as i64);
            while let Some(entry) = self.under_way.first_entry()
                && entry.key().0 <= self.now
            {
                let (to, packet) = entry.remove();
                self.ends[to].hears(&packet, now);
            }
            for from in 0..2 {
                let mut packets = Vec::new();
                self.ends[from].turn(now, |packet| packets.push(packet));
                for packet in packets {
                    self.carry(1 - from, packet);
                }
            }
            if done(&self.ends) {
                return true;
            }
            let timers = self.ends.iter().filter_map(|end| end.connection.poll_at());
            let timer = timers.map(|at| at.total_micros() as u64).min();
            let arrival = self.under_way.first_key_value().map(|(key, _)| key.0);
            let next = timer.into_iter().chain(arrival).min().unwrap_or(limit);
            self.now = next.max(self.now + 1);
        }
        false
    }
}

/// Payload of a full segment.
const MSS: u16 = 1460;

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 253 + seed) as u8).collect()
}

/// An active and a passive end.
fn world(files: [usize; 2], buffers: [usize; 2], iss: [u32; 2], wire: Wire, seed: u64) -> World {
    world_by(files, buffers, iss, wire, seed, true)
}

/// The same; without `options` the SYN comes without any, so that neither scales windows nor tells of what is behind gaps.
fn world_by(
    files: [usize; 2],
    buffers: [usize; 2],
    iss: [u32; 2],
    wire: Wire,
    seed: u64,
    options: bool,
) -> World {
    let now = Instant::ZERO;
    let mut active = Connection::connect(MSS, iss[0], now);
    let limits = Limits {
        window: 1 << 20,
        room: buffers[0] as u32,
        unit: 0,
    };
    let syn = active.transmit(now, &limits).unwrap();
    assert_eq!((syn.flags, syn.seq), (Flags::SYN, iss[0]));
    let told = syn.options;
    let syn = Segment {
        seq: syn.seq,
        ack: 0,
        flags: syn.flags,
        wnd: syn.wnd,
        options: if options { told.as_slice() } else { &[] },
        len: 0,
    };
    assert_eq!(listen(&syn), Listen::Accept);
    let passive = Connection::accept(MSS, iss[1], now, &syn);
    World {
        ends: [
            TcpPeer::new(active, bytes(files[0], 0), buffers[0]),
            TcpPeer::new(passive, bytes(files[1], 7), buffers[1]),
        ],
        wire,
        random: seed,
        under_way: BTreeMap::new(),
        count: 0,
        now: 0,
        sent: 0,
    }
}

fn over(ends: &[TcpPeer; 2]) -> bool {
    ends.iter()
        .all(|end| matches!(end.connection.state(), State::Closed | State::TimeWait))
}

fn whole(world: &World) {
    assert!(world.ends[1].sink == world.ends[0].source, "forth");
    assert!(world.ends[0].sink == world.ends[1].source, "back");
    assert!(
        world
            .ends
            .iter()
            .all(|end| end.connection.error().is_none())
    );
}

#[test]
fn both_ways_at_once_and_to_the_end() {
    let mut world = world(
        [300_000, 200_000],
        [70_000; 2],
        [1, u32::MAX - 1000],
        PLAIN,
        1,
    );
    assert!(world.run(60_000_000, over));
    whole(&world);
    let states = [0, 1].map(|i| world.ends[i].connection.state());
    assert!(states.contains(&State::TimeWait));
}

#[test]
fn a_path_that_swallows_large_segments_gets_smaller_ones() {
    let wire = Wire { mtu: 1220, ..PLAIN };
    let mut world = world([100_000, 0], [70_000; 2], [9, 9], wire, 1);
    assert!(world.run(60_000_000, over));
    whole(&world);
    assert_eq!(world.ends[0].connection.mss(), 1220);
    assert_eq!(world.ends[1].connection.mss(), 1460, "it sent none");
}

#[test]
fn a_window_that_was_closed_is_probed_and_opens() {
    let mut world = world([50_000, 0], [10_000; 2], [9, 9], PLAIN, 1);
    world.ends[1].read = 0;
    assert!(!world.run(250_000_000, |ends| ends[0].connection.error().is_some()));
    assert!(world.ends[1].taken <= 10_000);
    assert!(
        world.sent < 300,
        "{} segments to a closed window",
        world.sent
    );
    world.ends[1].read = usize::MAX;
    assert!(world.run(500_000_000, over));
    whole(&world);
}

#[test]
fn a_peer_that_never_acknowledges_ends_the_connection() {
    let mut world = world([50_000, 0], [70_000; 2], [9, 9], PLAIN, 1);
    world.ends[0].closes = false;
    assert!(world.run(1_000_000, |ends| ends[1].taken == 50_000));
    world.wire.loss = 1.0;
    world.ends[0].source.extend([1; 1000]);
    assert!(world.run(400_000_000, |ends| ends[0].connection.error().is_some()));
    assert_eq!(world.ends[0].connection.error(), Some(Error::TimedOut));
    assert!(world.now > 100_000_000, "R2");
}

/// One segment in two hundred is lost, and the path is long: no retransmission waits for the timer.
#[test]
fn losses_are_repaired_within_round_trips() {
    let wire = Wire {
        latency: 20_000,
        loss: 0.005,
        ..PLAIN
    };
    let mut world = world([2_000_000, 0], [1 << 20; 2], [9, 9], wire, 3);
    world.ends[1].closes = false;
    assert!(world.run(30_000_000, |ends| ends[1].taken == 2_000_000));
    assert!(world.ends[1].sink == world.ends[0].source);
    assert!(world.now < 6_000_000, "{} us", world.now);
}

/// A peer without options: equal acknowledgements tell of a loss, and windows are of 64 KB at most (RFC 6582). Segments are of 536
/// bytes (RFC 9293, section 3.7.1).
#[test]
fn losses_are_repaired_without_sack() {
    let wire = Wire {
        latency: 10_000,
        loss: 0.01,
        ..PLAIN
    };
    let mut world = world_by([1_000_000, 0], [1 << 20; 2], [9, 9], wire, 3, false);
    world.ends[1].closes = false;
    assert!(world.run(60_000_000, |ends| ends[1].taken == 1_000_000));
    assert!(world.ends[1].sink == world.ends[0].source);
    // 1.1 s; with nothing but time-outs it takes 2.4 s.
    assert!(world.now < 1_700_000, "{} us", world.now);
}

#[test]
fn units_are_cut_by_the_device() {
    let mut plain = world([1_000_000, 0], [1 << 20; 2], [9, 9], PLAIN, 3);
    plain.ends[0].unit = 60_000;
    let mut units = 0;
    while plain.ends[1].taken < 1_000_000 {
        let limit = plain.now + 1000;
        plain.run(limit, |_| false);
        units += 1;
        assert!(units < 10_000);
    }
    assert!(plain.ends[1].sink == plain.ends[0].source);
}

#[test]
fn a_silent_peer_is_probed_and_given_up() {
    let mut world = world([10, 10], [70_000; 2], [9, 9], PLAIN, 1);
    let interval = Some(Duration::from_secs(5));
    world.ends[0].connection.set_keep_alive(interval);
    world.ends[0].closes = false;
    world.ends[1].closes = false;
    assert!(!world.run(100_000_000, |ends| ends[0].connection.error().is_some()));
    let state = world.ends[0].connection.state();
    assert_eq!(state, State::Established, "the peer answers");
    world.wire.loss = 1.0;
    assert!(world.run(200_000_000, |ends| ends[0].connection.error().is_some()));
    assert_eq!(world.ends[0].connection.error(), Some(Error::TimedOut));
}

#[test]
fn an_abort_resets_the_peer() {
    let mut world = world([1000, 0], [70_000; 2], [9, 9], PLAIN, 1);
    world.ends[0].closes = false;
    world.ends[1].closes = false;
    assert!(world.run(1_000_000, |ends| ends[1].taken == 1000));
    world.ends[0].connection.abort();
    let end = world.now + 100_000;
    world.run(end, |_| false);
    assert_eq!(world.ends[1].connection.error(), Some(Error::Reset));
    assert!(world.ends[0].connection.is_over());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_faulty_wire_loses_no_byte(
        files in (0usize..60_000, 0usize..60_000),
        buffers in (2000usize..100_000, 2000usize..100_000),
        iss in any::<(u32, u32)>(),
        (latency, loss, late, twice) in (10u64..50_000, 0.0..0.2, 0.0..0.3, 0.0..0.1),
        unit in prop_oneof![Just(0u32), 1500..65_000u32],
        seed: u64,
    ) {
        let wire = Wire { latency, loss, late, twice, mtu: 1460 };
        let mut world = world([files.0, files.1], [buffers.0, buffers.1], [iss.0, iss.1], wire, seed);
        world.ends[0].unit = unit;
        // What an end has not heard by the time-out of the other's last wait it never hears: over means that all bytes came.
        let all = |ends: &[TcpPeer; 2]| ends[0].taken == ends[1].source.len() && ends[1].taken == ends[0].source.len();
        prop_assert!(world.run(900_000_000, |ends| all(ends) && over(ends) || ends.iter().any(|e| e.connection.error().is_some())),
            "{:?} {:?}", world.ends[0].connection, world.ends[1].connection);
        prop_assert!(world.ends[1].sink == world.ends[0].source);
        prop_assert!(world.ends[0].sink == world.ends[1].source);
    }
}
