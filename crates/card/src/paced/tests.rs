//! In virtual time, to the nanosecond that an owner can see.

use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::card::Card;
use crate::feature;
use crate::model::Rate;
use crate::testing::packets::{Link, TcpFields, tcp};
use crate::testing::{Guest, Script, VecMemory};

const BASE: u64 = 0x1000;
const ROOM: Span = Span {
    address: BASE,
    len: 0x2_0000,
};
/// Where units of the guest's lie.
const UNIT: u64 = BASE + ROOM.len as u64;
/// On pci32-33: 6.077811 us and 1514 bytes at 1000.148738 Mbit/s.
const FRAME_ON_BUS: u64 = 18_188_010;
/// At 1 Gbit/s: 1538 bytes.
const FRAME_ON_LINE: u64 = 12_304_000;

const LINK: Link = Link {
    v6: false,
    tagged: false,
    id: 0,
    host: 1,
};
const FIELDS: TcpFields = TcpFields {
    port: 80,
    sequence: 0,
    flags: 0x10,
    options: false,
};

struct Fixture {
    memory: VecMemory,
    paced: Paced<Script>,
}

impl Fixture {
    fn new(bus: &str, line: Option<Line>) -> Self {
        let pace = Pace {
            bus: Bus::named(bus),
            line,
            seed: 7,
        };
        Self {
            memory: VecMemory::new(BASE, 2 * ROOM.len as usize),
            paced: Paced::new(Script::default(), pace),
        }
    }

    fn has(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let coming = &mut self.paced.wire_mut().coming;
        coming.extend(frames.into_iter().map(|frame| (Header::default(), frame)));
    }

    fn advance(&mut self, now: u64) {
        self.paced.advance(&self.memory, Duration::from_nanos(now));
    }

    fn send(&mut self, header: Header, bytes: &[u8], now: u64) -> bool {
        self.memory.write(UNIT, bytes).unwrap();
        let unit = Unit {
            header,
            head: &[],
            spans: &[Span {
                address: UNIT,
                len: bytes.len() as u32,
            }],
            len: bytes.len(),
        };
        let sent = self
            .paced
            .send(&self.memory, &unit, Duration::from_nanos(now));
        // The buffer is the guest's again.
        self.memory.write(UNIT, &vec![0xee; bytes.len()]).unwrap();
        sent
    }

    fn receive(&mut self, now: u64) -> Option<(Header, Vec<u8>)> {
        self.advance(now);
        let now = Duration::from_nanos(now);
        match self.paced.receive(&self.memory, &[ROOM], now) {
            Received::Unit { header, len } => {
                let mut bytes = vec![0; len];
                self.memory.read(ROOM.address, &mut bytes).unwrap();
                Some((header, bytes))
            }
            other => {
                assert_eq!(other, Received::Nothing);
                None
            }
        }
    }

    fn sent(&self) -> usize {
        self.paced.wire().sent.len()
    }
}

fn gigabit() -> Line {
    Line::named("1g").unwrap()
}

fn frame(len: usize, n: usize) -> Vec<u8> {
    let mut frame = vec![n as u8; len];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// The first nanosecond behind so many picoseconds.
fn behind(picos: u64) -> u64 {
    picos.div_ceil(1000)
}

#[test]
fn a_frame_is_at_the_wire_when_bus_and_line_have_carried_it() {
    let mut fixture = Fixture::new("pci32-33", Some(gigabit()));
    fixture.advance(5000);
    assert!(fixture.send(Header::default(), &frame(1514, 3), 5000));
    let there = behind(5_000_000 + FRAME_ON_BUS + FRAME_ON_LINE);
    assert_eq!(
        fixture.paced.due().from_guest,
        Some(Duration::from_nanos(there)),
        "{:?}",
        fixture.paced.due()
    );
    fixture.advance(there - 1);
    assert_eq!((fixture.sent(), fixture.paced.wire().flushes), (0, 0));
    fixture.advance(there);
    assert_eq!((fixture.sent(), fixture.paced.wire().flushes), (1, 1));
    assert_eq!(fixture.paced.wire().sent[0].1, frame(1514, 3));
    assert_eq!(fixture.paced.due().from_guest, None);
}

#[test]
fn frames_wait_for_a_busy_wire_and_units_with_the_guest_behind_them() {
    let mut fixture = Fixture::new("pci32-33", Some(gigabit()));
    fixture.paced.wire_mut().is_busy = true;
    let mut sent = 0;
    let mut now = 0;
    let takes = |fixture: &Fixture| Wire::<VecMemory>::takes(&fixture.paced);
    while takes(&fixture) && sent < 10_000 {
        assert!(fixture.send(Header::default(), &frame(1514, sent), now));
        sent += 1;
        now += 2 * behind(FRAME_ON_BUS);
        fixture.advance(now);
    }
    assert_eq!((fixture.sent(), fixture.paced.counters().lost()), (0, 0));
    fixture.paced.wire_mut().is_busy = false;
    fixture.advance(now);
    assert_eq!((fixture.sent(), fixture.paced.counters().lost()), (sent, 0));
    assert!(takes(&fixture));
}

#[test]
fn a_frame_is_at_the_guest_when_line_and_bus_have_carried_it() {
    let line = Line {
        delay: Picos::micros(100),
        ..gigabit()
    };
    let mut fixture = Fixture::new("pci32-33", Some(line));
    fixture.has([frame(1514, 3)]);
    assert_eq!(fixture.receive(5000), None);
    let card = 5_000_000 + FRAME_ON_LINE + 100_000_000;
    let to_guest = fixture.paced.due().to_guest;
    assert_eq!(to_guest, Some(Duration::from_nanos(behind(card))));
    let there = behind(card + FRAME_ON_BUS);
    assert_eq!(fixture.receive(there - 1), None);
    let to_guest = fixture.paced.due().to_guest;
    assert_eq!(to_guest, Some(Duration::from_nanos(there)));
    let received = fixture.receive(there);
    assert_eq!(received, Some((Header::default(), frame(1514, 3))));
    assert_eq!(fixture.paced.due().to_guest, None);
}

/// One frame in a transfer: 659.5 Mbit/s of payload, however seldom and irregularly somebody looks.
#[test]
fn who_looks_late_changes_no_rate() {
    let mut fixture = Fixture::new("pci32-33", Some(gigabit()));
    fixture.has((0..2000).map(|n| frame(1514, n)));
    let (mut now, mut got) = (0, 0);
    let mut last = 0;
    while got < 2000 {
        while let Some((_, bytes)) = fixture.receive(now) {
            assert_eq!(bytes, frame(1514, got));
            got += 1;
            last = now;
        }
        if got < 1980 {
            now += 1000 + (got as u64 * 7919) % 300_000;
        } else {
            now += 1;
        }
    }
    let exact = FRAME_ON_LINE + 2000 * FRAME_ON_BUS;
    assert_eq!(last, behind(exact));
    let rate = 2000.0 * 1500.0 * 8.0 / (exact as f64 / 1e6);
    assert!((659.3..659.8).contains(&rate), "{rate}");
    assert_eq!(fixture.paced.counters(), PacedCounters::default());
}

/// With units of 43 segments the line is the limit: 975.26 Mbit/s of payload.
#[test]
fn large_units_reach_the_lines_rate() {
    let mut fixture = Fixture::new("pci32-33", Some(gigabit()));
    fixture.paced.wire_mut().offloads = feature::KNOWN & !feature::RINGS;
    let payload = vec![0x5a; 43 * 1460];
    let unit = tcp(LINK, FIELDS, &payload);
    let header = Header {
        flags: 1,
        gso_type: 1,
        hdr_len: 54,
        gso_size: 1460,
        csum_start: 34,
        csum_offset: 16,
    };
    let on_bus = 6_077_811 + (unit.len() as u64 * 8_000_000_000_000 + 500_074_369) / 1_000_148_738;
    let (mut now, mut sent) = (0, 0);
    while sent < 50 {
        fixture.advance(now);
        while sent < 50 && Wire::<VecMemory>::takes(&fixture.paced) {
            assert!(fixture.send(header, &unit, now));
            sent += 1;
        }
        now = fixture.paced.due().from_guest.unwrap().as_nanos() as u64;
    }
    let last = behind(on_bus + 50 * 43 * FRAME_ON_LINE);
    fixture.advance(last - 1);
    assert_eq!(fixture.sent(), 50 * 43 - 1);
    fixture.advance(last);
    assert_eq!(fixture.sent(), 50 * 43);
    assert!(
        fixture
            .paced
            .wire()
            .sent
            .iter()
            .all(|(_, frame)| frame.len() == 1514)
    );
}

/// Ten segments through the card, looked at so often. How many were joined each time.
fn joined(step: u64) -> Vec<usize> {
    let mut fixture = Fixture::new("pci32-33", Some(gigabit()));
    Wire::<VecMemory>::agree(&mut fixture.paced, feature::KNOWN);
    // The wire has frames for the line.
    assert_eq!(
        fixture.paced.wire().agreed,
        feature::RINGS | feature::CSUM | feature::GUEST_CSUM
    );
    let segment = |n: u32| {
        let fields = TcpFields {
            sequence: 1000 * n,
            ..FIELDS
        };
        let link = Link {
            id: n as u16,
            ..LINK
        };
        tcp(link, fields, &[n as u8; 1000])
    };
    fixture.has((0..10).map(segment));
    let mut lens = Vec::new();
    for now in (0..=500_000).step_by(step as usize) {
        while let Some((_, bytes)) = fixture.receive(now) {
            lens.push((bytes.len() - 54) / 1000);
        }
    }
    lens
}

/// 14.5 us on the bus for the first, 8.6 us on the line for each that comes meanwhile; however late somebody looks.
#[test]
fn what_came_while_the_bus_was_busy_is_joined() {
    let lens = joined(100);
    assert_eq!(lens.iter().sum::<usize>(), 10, "{lens:?}");
    assert_eq!(lens[..3], [1, 1, 2], "{lens:?}");
    for step in [1000, 50_000, 250_000] {
        assert_eq!(joined(step), lens);
    }
}

#[test]
fn a_frame_behind_a_unit_comes_though_nothing_follows() {
    let mut fixture = Fixture::new("pci32-33", Some(gigabit()));
    Wire::<VecMemory>::agree(&mut fixture.paced, feature::KNOWN);
    let segment = |port| tcp(LINK, TcpFields { port, ..FIELDS }, &[1; 1000]);
    fixture.has([segment(1), segment(1), segment(2)]);
    let mut got = 0;
    for now in (0..1_000_000).step_by(100) {
        got += usize::from(fixture.receive(now).is_some());
    }
    assert_eq!(got, 3);
    assert_eq!(
        fixture.paced.due(),
        Due {
            wire: true,
            ..Due::default()
        }
    );
}

#[test]
fn units_out_take_the_bus_one_after_the_other() {
    let mut fixture = Fixture::new("pci32-33", None);
    fixture.advance(0);
    for n in 0..2 {
        assert!(fixture.send(Header::default(), &frame(1514, n), 0));
    }
    let both = behind(2 * FRAME_ON_BUS);
    fixture.advance(both - 1);
    assert_eq!(fixture.sent(), 1);
    fixture.advance(both);
    assert_eq!(fixture.sent(), 2);
}

/// Without a line the wire waits, and nothing is dropped.
#[test]
fn a_wire_waits_for_the_bus() {
    let mut fixture = Fixture::new("pci32-33", None);
    fixture.has((0..100).map(|n| frame(60_000, n)));
    for n in 0..100 {
        let mut got = None;
        while got.is_none() {
            let due = fixture.paced.due().to_guest.unwrap_or_default();
            got = fixture.receive(due.as_nanos() as u64);
        }
        assert_eq!(got.unwrap().1, frame(60_000, n));
    }
    assert_eq!(fixture.paced.counters(), PacedCounters::default());
}

#[test]
fn what_the_bus_does_not_take_stays_in_the_guests_ring() {
    let mut guest = Guest::new(16, feature::VERSION_1);
    let pace = Pace {
        bus: Some(Bus {
            per_transfer: Picos::micros(1000),
            rate: Rate::new(1_000_000_000_000),
        }),
        ..Pace::default()
    };
    let mut card = Card::new(Paced::new(Script::default(), pace));
    guest.start(&mut card).unwrap();
    while guest.send(Header::default(), &frame(60, 1), &[], false) {}
    guest.transmit.publish(&guest.memory);
    card.turn(&guest.memory, Duration::ZERO);
    // One is on the bus, and one waits for it.
    assert_eq!(guest.transmit.returned(&guest.memory), 2);
    // Nothing to do before the bus is free.
    assert!(!card.arm(&guest.memory).work);
    card.turn(&guest.memory, Duration::from_millis(1));
    assert_eq!(guest.transmit.returned(&guest.memory), 3);
}

#[test]
fn a_bus_alone_carries_the_wires_units_as_they_are() {
    let mut fixture = Fixture::new("pci32-33", None);
    fixture.paced.wire_mut().offloads = feature::KNOWN & !feature::RINGS;
    assert_ne!(
        Wire::<VecMemory>::offloads(&fixture.paced) & feature::GUEST_TSO4,
        0
    );
    fixture.has([frame(65_000, 1)]);
    let there = behind(6_077_811 + (65_000 * 8_000_000_000_000 + 500_074_369) / 1_000_148_738);
    assert_eq!(fixture.receive(0), None);
    assert_eq!(fixture.receive(there - 1), None);
    assert_eq!(fixture.receive(there).unwrap().1, frame(65_000, 1));
}

#[test]
fn both_directions_share_the_bus() {
    let mut fixture = Fixture::new("pci32-33", None);
    fixture.has([frame(1514, 1)]);
    fixture.advance(0);
    assert!(fixture.send(Header::default(), &frame(1514, 2), 0));
    let there = behind(2 * FRAME_ON_BUS);
    assert_eq!(fixture.receive(0), None);
    assert_eq!(fixture.receive(there - 1), None);
    assert!(fixture.receive(there).is_some());
}

/// By hand: a share of 2 % of 5000 frames, more or less; the same ones for the same seed, others the other way.
#[test]
fn the_line_loses_as_many_as_it_is_to() {
    let line = Line {
        loss: 20_000,
        ..gigabit()
    };
    let lost_home = || {
        let mut fixture = Fixture::new("", Some(line));
        fixture.has((0..5000).map(|n| frame(60, n)));
        let mut got = Vec::new();
        for now in 0..5000 * 7 {
            while let Some((_, bytes)) = fixture.receive(now * 100) {
                got.push(bytes);
            }
        }
        let lost = fixture.paced.counters().line_lost;
        assert_eq!(got.len() as u64 + lost, 5000);
        (lost, got)
    };
    let (lost, got) = lost_home();
    assert!((60..140).contains(&lost), "{lost}");
    assert_eq!(lost_home(), (lost, got.clone()));
    let mut fixture = Fixture::new("", Some(line));
    for n in 0..5000 {
        let now = n as u64 * 10_000;
        fixture.advance(now);
        assert!(fixture.send(Header::default(), &frame(60, n), now));
    }
    fixture.advance(100_000_000);
    let counters = fixture.paced.counters();
    assert_eq!(fixture.sent() as u64 + counters.line_lost, 5000);
    let sent: Vec<_> = fixture
        .paced
        .wire()
        .sent
        .iter()
        .map(|(_, frame)| frame.clone())
        .collect();
    assert_ne!(sent, got);
}

#[test]
fn what_is_longer_than_the_mtu_is_counted() {
    let line = Line {
        mtu: 1000,
        ..gigabit()
    };
    let mut fixture = Fixture::new("", Some(line));
    fixture.has([frame(1015, 1), frame(1014, 2)]);
    assert_eq!(fixture.receive(0), None);
    assert_eq!(fixture.receive(1_000_000).unwrap().1, frame(1014, 2));
    assert_eq!(fixture.receive(1_000_000), None);
    assert!(!fixture.send(Header::default(), &frame(1015, 1), 1_000_000));
    assert_eq!(fixture.paced.counters().line_too_long, 2);
}

/// A bus that takes a second for a transfer: the card holds 1 MiB of what comes meanwhile.
#[test]
fn a_card_whose_memory_is_full_drops_what_comes() {
    let mut fixture = Fixture::new("", Some(Line::named("10g").unwrap()));
    fixture.paced.bus = Some(Bus {
        per_transfer: Picos::new(1_000_000_000_000),
        rate: Rate::new(1_000_000_000_000),
    });
    fixture.has((0..1000).map(|n| frame(1514, n)));
    let mut got = Vec::new();
    for now in (0..3_000_000).step_by(10_000) {
        got.extend(fixture.receive(now));
    }
    assert!(got.is_empty());
    let second = 1_000_000_000;
    for n in 1..900 {
        got.extend(fixture.receive(n * second + 100_000_000));
    }
    // One was on the bus, so many were in the card: the first ones.
    let held = (1 << 20) / 1514;
    assert_eq!(got.len(), 1 + held);
    assert!(
        got.iter()
            .enumerate()
            .all(|(n, (_, bytes))| *bytes == frame(1514, n))
    );
    assert_eq!(fixture.paced.counters().no_room, 1000 - 1 - held as u64);
}

#[test]
fn units_for_which_the_line_has_no_time_stay_with_the_guest() {
    let line = Line {
        rate: Rate::new(8_000_000),
        ..gigabit()
    };
    let mut fixture = Fixture::new("", Some(line));
    fixture.advance(0);
    let mut sent = 0;
    while Wire::<VecMemory>::takes(&fixture.paced) {
        assert!(fixture.send(Header::default(), &frame(1514, sent), 0));
        sent += 1;
        assert!(sent < 1000, "no end");
    }
    // Two units of 65,553 bytes wait, a byte takes a microsecond.
    assert_eq!(sent, 86);
    let again = (86 * 1538 - 2 * 65_553) * 1000;
    assert_eq!(
        fixture.paced.due().from_guest,
        Some(Duration::from_nanos(again))
    );
    fixture.advance(again - 1);
    assert!(!Wire::<VecMemory>::takes(&fixture.paced));
    fixture.advance(again);
    assert!(Wire::<VecMemory>::takes(&fixture.paced));
    assert_eq!(fixture.paced.counters(), PacedCounters::default());
}

#[test]
fn a_wire_whose_line_is_busy_is_not_asked() {
    let line = Line {
        rate: Rate::new(8_000_000),
        ..gigabit()
    };
    let mut fixture = Fixture::new("", Some(line));
    assert!(fixture.paced.due().wire);
    fixture.has((0..100).map(|n| frame(1514, n)));
    for left in [100 - 64, 100 - 86, 100 - 86] {
        assert_eq!(fixture.receive(0), None);
        assert_eq!(fixture.paced.wire().coming.len(), left);
    }
    let due = fixture.paced.due();
    assert!(!due.wire, "{due:?}");
    assert_eq!(
        due.to_guest,
        Some(Duration::from_nanos((86 * 1538 - 2 * 65_553) * 1000))
    );
}

#[test]
fn a_guest_that_begins_anew_gets_nothing_of_what_was_under_way() {
    let mut fixture = Fixture::new("pci32-33", Some(gigabit()));
    fixture.has((0..5).map(|n| frame(1514, n)));
    // One is on the bus, four are on the line.
    assert_eq!(fixture.receive(0), None);
    assert_eq!(fixture.receive(behind(FRAME_ON_LINE)), None);
    Wire::<VecMemory>::agree(&mut fixture.paced, 0);
    assert_eq!(fixture.receive(1_000_000), None);
    assert_eq!(fixture.paced.counters().forgotten, 5);
    fixture.has([frame(60, 9)]);
    assert_eq!(fixture.receive(1_000_000), None);
    assert_eq!(fixture.receive(2_000_000).unwrap().1, frame(60, 9));
}

proptest! {
    /// Whatever comes when: order holds, each byte is the same, and what is not there is counted.
    #[test]
    fn frames_in_are_frames_out_and_counted_losses(
        steps in vec((0..3u8, 60..1600usize, 0..100_000u64), 1..200),
        loss in prop::sample::select(vec![0, 100_000]),
        bus in prop::sample::select(vec!["", "pci32-33"]),
    ) {
        let line = Line { loss, delay: Picos::micros(30), ..gigabit() };
        let mut fixture = Fixture::new(bus, Some(line));
        let (mut now, mut arrived, mut sent) = (0, 0, 0);
        let mut got = Vec::new();
        for (step, len, time) in steps {
            now += time;
            fixture.advance(now);
            match step {
                0 => {
                    fixture.has([frame(len, arrived)]);
                    arrived += 1;
                }
                1 if Wire::<VecMemory>::takes(&fixture.paced) => {
                    fixture.send(Header::default(), &frame(len, sent), now);
                    sent += 1;
                }
                _ => got.extend(fixture.receive(now)),
            }
        }
        // An owner that looks when it is told to misses nothing.
        let mut idle = 0;
        loop {
            match fixture.receive(now) {
                Some(unit) => got.push(unit),
                None => {
                    let due = fixture.paced.due();
                    let next = due.from_guest.into_iter().chain(due.to_guest).min();
                    let Some(next) = next else { break };
                    let next = next.as_nanos() as u64;
                    idle = if next > now { 0 } else { idle + 1 };
                    prop_assert!(idle < 3, "due, and nothing happens: {:?}", due);
                    now = now.max(next);
                }
            }
        }
        let counters = fixture.paced.counters();
        prop_assert_eq!(got.len() + fixture.sent() + counters.lost() as usize, arrived + sent);
        for frames in [got, fixture.paced.wire().sent.clone()] {
            let mut before = None;
            for (_, bytes) in frames {
                let n = bytes[0];
                prop_assert_eq!(&bytes, &frame(bytes.len(), n.into()));
                prop_assert!(before.is_none_or(|before| before < n));
                before = Some(n);
            }
        }
    }
}
