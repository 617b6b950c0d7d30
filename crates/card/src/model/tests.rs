use alloc::string::ToString;
use proptest::collection::vec;
use proptest::prelude::*;
use std::format;
use std::vec::Vec;

use super::host::{Costs, Host, Notice};
use super::line::{Cable, Fate};
use super::receive::{ReceivingCard, receive};
use super::receive_offload::{Cost, FRAGMENTS};
use super::send::{SendingCard, send};
use super::traffic::{Frames, Mix, flows, stream};
use super::*;
use crate::coalesce::Limits;

const GIGABIT: Line = Line::PRESETS[0].1;
const JUMBO: Line = Line {
    mtu: 9100,
    ..GIGABIT
};
const PAYLOAD: u32 = 1498;

/// A card that transfers so many frames at once, however long they take to come.
fn gathering(bus: Bus, frames: usize) -> ReceivingCard {
    ReceivingCard {
        bus,
        offload: ReceiveOffload::Chunks,
        limits: Limits {
            frames,
            bytes: 65_536,
            wait: Picos::MAX,
        },
        memory: 1 << 17,
    }
}

#[test]
fn times_and_rates_are_shown_rounded() {
    let time = Picos::new(6_077_811);
    assert_eq!(
        format!("{time} {time:.0} {time:.1} {time:.6}"),
        "6.078 6 6.1 6.077811"
    );
    assert_eq!(format!("{time:.9}"), "6.077811");
    let throughput = Throughput {
        bytes: 1_000_625,
        time: Picos::micros(8_000),
    };
    assert_eq!(
        format!("{throughput} {throughput:.0} {throughput:.2}"),
        "1000.6250 1001 1000.63"
    );
    assert_eq!(
        Throughput {
            bytes: 1,
            time: Picos::ZERO
        }
        .to_string(),
        "0.0000"
    );
    assert_eq!(Picos::MAX + Picos::new(1), Picos::MAX);
    assert_eq!(Rate::new(0).time_of(1), Picos::MAX);
    assert_eq!(Rate::new(1).time_of(u64::MAX), Picos::MAX);
    assert_eq!(Rate::new(3_000_000_000_000).time_of(1), Picos::new(3));
}

#[test]
fn throughputs_are_compared_as_ratios() {
    let of = |bytes, time| Throughput {
        bytes,
        time: Picos::new(time),
    };
    assert_eq!(of(2, 4), of(1, 2));
    assert!(of(1, 2) > of(1, 3) && of(u64::MAX, 1) > of(u64::MAX, u64::MAX));
    assert_eq!(Throughput::NONE, of(0, 7));
}

#[test]
fn the_line_limits_what_a_payload_gets() {
    for (payload, expected) in [
        (754, "952.0202"),
        (1010, "963.7405"),
        (1498, "975.2604"),
        (9058, "995.8223"),
        (9054, "995.8205"),
        (46, "547.6190"),
        // Padded.
        (20, "238.0952"),
    ] {
        assert_eq!(GIGABIT.limit(payload).to_string(), expected);
        let faster = Line::named("100g").unwrap().limit(payload);
        assert_eq!(faster.bytes, u64::from(payload));
        assert_eq!(faster.time.times(100), GIGABIT.frame(payload));
    }
}

#[test]
fn card_to_card_is_the_limit() {
    for (payload, expected) in [(1498, "975.2604"), (9054, "995.8205")] {
        let arrivals = stream(JUMBO, payload, 1000, Picos::ZERO, 0);
        assert_eq!(arrivals.len(), 1000);
        let time = arrivals[999].at.since(arrivals[0].at);
        let bytes = u64::from(payload) * 999;
        assert_eq!(Throughput { bytes, time }.to_string(), expected);
    }
    assert_eq!(stream(GIGABIT, 9054, 10, Picos::ZERO, 0), []);
}

#[test]
fn two_points_make_the_bus() {
    let [short, long] = bus::MEASURED;
    assert_eq!(Bus::fit(short, long), Some(Bus::PCI32_33));
    for (bytes, expected) in [(1512, "665.6390"), (9072, "922.8537")] {
        assert_eq!(Bus::PCI32_33.limit(bytes, bytes).to_string(), expected);
    }
    // No such bus: shorter or equal transfers, or a rate that falls with length.
    assert_eq!(Bus::fit(long, short), None);
    assert_eq!(Bus::fit(short, short), None);
    let slow = bus::Measured {
        in_100_bit_s: 1,
        ..long
    };
    assert_eq!(Bus::fit(short, slow), None);
    let too_fast = bus::Measured {
        in_100_bit_s: u32::MAX,
        bytes: 1513,
    };
    assert_eq!(Bus::fit(short, too_fast), None);
}

#[test]
fn presets_scale_the_rate_alone() {
    for (name, factor) in [
        ("pci32-33", 1),
        ("pci64-33", 2),
        ("pci32-66", 2),
        ("pci64-66", 4),
    ] {
        let bus = Bus::named(name).unwrap();
        assert_eq!(bus.per_transfer, Bus::PCI32_33.per_transfer);
        assert_eq!(bus.rate.get(), Bus::PCI32_33.rate.get() * factor);
    }
    assert_eq!(Bus::named("pci"), None);
    assert_eq!(Line::named("1G"), None);
}

/// Frames of a transfer, and payload through bus and line in Mbit/s.
const FRAMES_A_TRANSFER: [(u32, &str); 9] = [
    (1, "659.4757"),
    (2, "791.9061"),
    (4, "880.2927"),
    (8, "932.3220"),
    (16, "960.7133"),
    (24, "970.5653"),
    (31, "975.0811"),
    (32, "975.2604"),
    (43, "975.2604"),
];

#[test]
fn the_receiving_card_gets_the_slower_of_bus_and_line() {
    let arrivals = stream(GIGABIT, PAYLOAD, 4000, Picos::ZERO, 0);
    for (frames, expected) in FRAMES_A_TRANSFER {
        let frames = frames as usize;
        let bus = Bus::PCI32_33;
        let limit = bus.limit(on_bus(PAYLOAD) * frames, PAYLOAD as usize * frames);
        let limit = limit.min(GIGABIT.limit(PAYLOAD));
        assert_eq!(limit.to_string(), expected);
        let outcome = receive(&gathering(bus, frames), &arrivals);
        assert_eq!(outcome.throughput.to_string(), expected, "{frames} frames");
        assert_eq!(outcome.delivered + outcome.dropped, 4000);
        // In between the card's memory lasts for longer than the frames come.
        if frames <= 8 {
            assert!(outcome.dropped > 0);
        } else if frames >= 32 {
            assert_eq!(outcome.dropped, 0);
        }
    }
}

#[test]
fn the_sending_card_gets_the_slower_of_bus_and_line() {
    for (fragments, expected) in FRAMES_A_TRANSFER {
        let card = SendingCard {
            bus: Bus::PCI32_33,
            fragments,
        };
        let sent = send(&card, GIGABIT, PAYLOAD, 50, 0);
        assert_eq!(sent.arrivals.len(), 50 * fragments as usize);
        // From the last frame of a transfer to that of the last one.
        let each = fragments as usize;
        let time = sent
            .arrivals
            .last()
            .unwrap()
            .at
            .since(sent.arrivals[10 * each - 1].at);
        let bytes = u64::from(PAYLOAD) * 40 * u64::from(fragments);
        assert_eq!(
            Throughput { bytes, time }.to_string(),
            expected,
            "{fragments} fragments"
        );
    }
}

#[test]
fn the_sending_card_holds_two_transfers() {
    let slow = Line {
        rate: Rate::new(100_000_000),
        ..GIGABIT
    };
    let card = SendingCard {
        bus: Bus::PCI32_33,
        fragments: 2,
    };
    let sent = send(&card, slow, PAYLOAD, 9, 0);
    let transfer = Bus::PCI32_33.transfer(2 * on_bus(PAYLOAD));
    // The third one waits until the first one's frames have gone, and its own until those of the second.
    let frame = slow.frame(PAYLOAD);
    assert_eq!(sent.arrivals[0].at, transfer + frame);
    assert_eq!(sent.latencies.worst(), Some(frame.times(4)));
}

#[test]
fn frames_are_lost_as_often_as_the_line_says() {
    let lossy = Line {
        loss: 10_000,
        ..GIGABIT
    };
    let arrived = stream(lossy, PAYLOAD, 100_000, Picos::ZERO, 7);
    assert!(
        (98_800..99_200).contains(&arrived.len()),
        "{}",
        arrived.len()
    );
    assert_eq!(stream(lossy, PAYLOAD, 100_000, Picos::ZERO, 7), arrived);
    assert_ne!(stream(lossy, PAYLOAD, 100_000, Picos::ZERO, 8), arrived);
    assert_eq!(stream(GIGABIT, PAYLOAD, 1000, Picos::ZERO, 7).len(), 1000);
    let all = Line {
        loss: 1_000_000,
        ..GIGABIT
    };
    assert_eq!(stream(all, PAYLOAD, 1000, Picos::ZERO, 7), []);
}

#[test]
fn a_frame_waits_for_the_one_before_it_and_for_the_way() {
    let far = Line {
        delay: Picos::micros(5),
        ..GIGABIT
    };
    let mut cable = Cable::new(far, 0);
    let frame = Picos::new(12_288_000);
    assert_eq!(
        cable.send(PAYLOAD, Picos::micros(1)),
        Fate::Arrives(Picos::micros(6) + frame)
    );
    assert_eq!(cable.send(1501, Picos::micros(1)), Fate::TooLong);
    assert_eq!(
        cable.send(PAYLOAD, Picos::micros(1)),
        Fate::Arrives(Picos::micros(6) + frame.times(2))
    );
    assert_eq!(cable.free(), Picos::micros(1) + frame.times(2));
}

#[test]
fn the_timer_bounds_what_sparse_frames_wait() {
    let micros = Picos::micros;
    let arrivals: Vec<_> = (0..100)
        .map(|n| Arrival::new(micros(100 * n), PAYLOAD))
        .collect();
    let card = ReceivingCard {
        limits: Limits {
            frames: 42,
            bytes: 65_536,
            wait: micros(250),
        },
        ..gathering(Bus::PCI32_33, 42)
    };
    let outcome = receive(&card, &arrivals);
    // Three at a time: the first waits for the timer, the third for 50 us.
    let transfer = Bus::PCI32_33.transfer(3 * on_bus(PAYLOAD));
    assert_eq!(outcome.longest_move, transfer);
    assert_eq!((outcome.delivered, outcome.cost.transfers), (100, 34));
    let latencies = &outcome.latencies;
    assert_eq!(latencies.median(), Some(micros(150) + transfer));
    assert_eq!(latencies.percentile_99(), latencies.worst());
    assert_eq!(latencies.worst(), Some(micros(250) + transfer));
}

#[test]
fn a_frame_is_dropped_when_the_card_is_full() {
    let arrivals: Vec<_> = (0..10)
        .map(|_| Arrival::new(Picos::micros(1), PAYLOAD))
        .collect();
    let card = ReceivingCard {
        memory: 4 * on_bus(PAYLOAD) + 1511,
        ..gathering(Bus::PCI32_33, 2)
    };
    let outcome = receive(&card, &arrivals);
    assert_eq!((outcome.delivered, outcome.dropped), (4, 6));
    let full = ReceivingCard {
        memory: 4 * on_bus(PAYLOAD),
        ..card
    };
    assert_eq!(receive(&full, &arrivals).delivered, 4);
    // Those of a transfer under way count until its end.
    let later = Picos::micros(1) + Bus::PCI32_33.transfer(2 * on_bus(PAYLOAD));
    let fifth = |at| {
        let mut arrivals = arrivals[..4].to_vec();
        arrivals.push(Arrival::new(at, PAYLOAD));
        receive(&card, &arrivals).dropped
    };
    assert_eq!(fifth(Picos::new(later.get() - 1)), 1);
    assert_eq!(fifth(later), 0);
}

#[test]
fn latencies_are_ranks() {
    let of = |times: &[u64]| Latencies::new(times.iter().map(|time| Picos::new(*time)).collect());
    let hundred = of(&(1..=100).rev().collect::<Vec<_>>());
    let ranks = [hundred.median(), hundred.percentile_99(), hundred.worst()];
    assert_eq!(ranks, [50, 99, 100].map(|rank| Some(Picos::new(rank))));
    assert_eq!(of(&[7]).median(), Some(Picos::new(7)));
    let none = of(&[]);
    assert_eq!(
        [none.median(), none.percentile_99(), none.worst()],
        [None; 3]
    );
}

const HOST: Host = Host {
    costs: Costs {
        interrupt: Picos::micros(12),
        look: Picos::micros(1),
        packet: Picos::micros(24),
    },
    ring: 256,
    queue: 64,
    burst: 64,
};

/// Frames a second, when one comes each `gap`.
fn worked(notice: Notice, gap: Picos) -> u64 {
    let load = HOST.load(notice, gap, 20_000);
    load.worked * 1_000_000_000_000 / load.time.get()
}

#[test]
fn a_host_that_is_interrupted_for_each_frame_ends_up_with_nothing_else() {
    let within = |value: u64, expected: u64| value.abs_diff(expected) <= expected / 200 + 5;
    // Below what it can take, it takes all.
    assert!(within(
        worked(Notice::Interrupts, Picos::micros(50)),
        20_000
    ));
    // 30,303 come: 12 us of 33 are interrupts, the rest is work.
    assert!(within(
        worked(Notice::Interrupts, Picos::micros(33)),
        26_515
    ));
    assert!(within(
        worked(Notice::Interrupts, Picos::micros(16)),
        10_416
    ));
    assert_eq!(worked(Notice::Interrupts, Picos::micros(12)), 0);
    // Who looks is limited by the work alone: 64 frames cost a look more.
    assert!(within(worked(Notice::Polling, Picos::micros(50)), 20_000));
    assert!(within(worked(Notice::Polling, Picos::micros(12)), 41_639));
    // 32 frames for an interrupt.
    let limits = Limits {
        frames: 32,
        bytes: usize::MAX,
        wait: Picos::micros(1000),
    };
    assert!(within(
        worked(Notice::Coalescing(limits), Picos::micros(50)),
        20_000
    ));
    assert!(within(
        worked(Notice::Coalescing(limits), Picos::micros(12)),
        40_365
    ));
}

#[test]
fn what_has_no_room_is_dropped() {
    let limits = Limits {
        frames: 2,
        bytes: usize::MAX,
        wait: Picos::micros(1000),
    };
    let ways = [
        Notice::Interrupts,
        Notice::Polling,
        Notice::Coalescing(limits),
    ];
    let dropped = |host: Host| ways.map(|notice| host.load(notice, Picos::micros(100), 50).dropped);
    assert_eq!(dropped(HOST), [0; 3]);
    assert_eq!(dropped(Host { ring: 0, ..HOST }), [50; 3]);
    // Only interrupts put frames there.
    assert_eq!(dropped(Host { queue: 0, ..HOST }), [50, 0, 50]);
}

#[test]
fn a_host_with_time_takes_frames_at_once() {
    let latencies = |notice| HOST.load(notice, Picos::micros(200), 1000).latencies;
    let micros = |micros| Some(Picos::micros(micros));
    let interrupts = latencies(Notice::Interrupts);
    assert_eq!([interrupts.median(), interrupts.worst()], [micros(36); 2]);
    // Whole microseconds: it looks when the frame is there.
    assert_eq!(latencies(Notice::Polling).worst(), micros(25));
    let limits = Limits {
        frames: 32,
        bytes: usize::MAX,
        wait: Picos::micros(300),
    };
    let coalesced = latencies(Notice::Coalescing(limits));
    // One that comes as the timer ends goes with the others.
    let exact = Limits {
        wait: Picos::micros(200),
        ..limits
    };
    let pairs = latencies(Notice::Coalescing(exact));
    assert_eq!([pairs.median(), pairs.worst()], [micros(60), micros(236)]);
    // Two for each timer: 300 + 12 + 24, and 100 + 12 + 24 behind the first.
    assert_eq!(
        [coalesced.median(), coalesced.worst()],
        [micros(160), micros(336)]
    );
}

/// As fast as the line.
fn mix(flows: u32, of: Frames, frames: u32) -> Mix {
    Mix {
        flows,
        of,
        frames,
        percent: 100,
    }
}

/// Frames that all come at once, by their numbers, and what became of them.
fn at_once(offload: ReceiveOffload, frames: &[(u32, u64)]) -> (Cost, super::receive::Outcome) {
    let arrivals: Vec<_> = frames
        .iter()
        .map(|(flow, number)| Arrival {
            data: 1460,
            flow: *flow,
            number: *number,
            ..Arrival::new(Picos::micros(1), 1500)
        })
        .collect();
    let limits = Limits {
        wait: Picos::micros(100),
        ..gathering(Bus::PCI32_33, 43).limits
    };
    let card = ReceivingCard {
        offload,
        limits,
        ..gathering(Bus::PCI32_33, 43)
    };
    let outcome = receive(&card, &arrivals);
    (outcome.cost, outcome)
}

/// The cost of transfers of so many bytes each.
fn cost(transfers: &[usize], buffers: u64, headers: u64, copied: u64) -> Cost {
    let times = transfers.iter().map(|bytes| Bus::PCI32_33.transfer(*bytes));
    Cost {
        time: times.fold(Picos::ZERO, |sum, time| sum + time),
        transfers: transfers.len() as u64,
        buffers,
        headers,
        copied,
    }
}

#[test]
fn each_offload_costs_what_it_moves() {
    let three = [(0, 0), (0, 1), (0, 2)];
    for (offload, expected) in [
        (ReceiveOffload::Single, cost(&[1514; 3], 3, 3, 4380)),
        (ReceiveOffload::Chunks, cost(&[4542], 1, 3, 4380)),
        (ReceiveOffload::Segments, cost(&[4434], 3, 1, 4380)),
        (ReceiveOffload::Placement, cost(&[4380, 162], 1, 3, 0)),
    ] {
        let (cost, outcome) = at_once(offload, &three);
        assert_eq!(cost, expected, "{offload:?}");
        assert_eq!((outcome.delivered, outcome.data), (3, 4380), "{offload:?}");
    }
}

#[test]
fn only_what_continues_a_flow_is_joined() {
    // A gap, an old one, another flow.
    let (segments, _) = at_once(
        ReceiveOffload::Segments,
        &[(0, 1), (0, 2), (0, 4), (1, 5), (0, 5), (0, 3)],
    );
    assert_eq!((segments.transfers, segments.headers), (4, 4));
    let (chunks, _) = at_once(
        ReceiveOffload::Chunks,
        &[(0, 1), (0, 2), (0, 4), (1, 5), (0, 5), (0, 3)],
    );
    assert_eq!((chunks.transfers, chunks.headers), (1, 6));
}

#[test]
fn each_flow_has_a_timer_and_is_apart() {
    let (cost, _) = at_once(ReceiveOffload::Segments, &[(0, 0), (1, 1)]);
    assert_eq!(cost.transfers, 2);
    let of = |flow, at| Arrival {
        flow,
        ..Arrival::new(Picos::micros(at), 1500)
    };
    let card = ReceivingCard {
        offload: ReceiveOffload::Segments,
        limits: Limits {
            frames: 43,
            bytes: 65_536,
            wait: Picos::micros(100),
        },
        ..gathering(Bus::PCI32_33, 43)
    };
    for flows in [[0, 1], [1, 0]] {
        let outcome = receive(&card, &[of(flows[0], 1), of(flows[1], 90)]);
        assert_eq!(
            outcome.longest_wait,
            Picos::micros(100) + outcome.longest_move
        );
    }
}

#[test]
fn joined_segments_are_as_long_as_their_data() {
    let line = mix(1, Frames::Segments(1500), 45);
    let card = ReceivingCard {
        offload: ReceiveOffload::Segments,
        limits: Limits {
            frames: usize::MAX,
            ..gathering(Bus::PCI32_33, 1).limits
        },
        ..gathering(Bus::PCI32_33, 1)
    };
    // 44 times 1460 bytes are less than 65536, 44 frames are more.
    let arrivals = flows(GIGABIT, line, 0);
    assert_eq!(
        receive(&card, &arrivals).longest_move,
        Bus::PCI32_33.transfer(54 + 44 * 1460)
    );
}

#[test]
fn rates_are_those_of_the_second_half() {
    let at = (0..50u64)
        .map(|n| 100 * n)
        .chain((0..100).map(|n| 5000 + 50 * n));
    let arrivals: Vec<_> = at
        .map(|at| Arrival::new(Picos::micros(at), PAYLOAD))
        .collect();
    let outcome = receive(&gathering(Bus::PCI32_33, 1), &arrivals);
    let expected = Throughput {
        bytes: PAYLOAD.into(),
        time: Picos::micros(50),
    };
    assert_eq!(outcome.throughput, expected);
}

#[test]
fn behind_a_gap_placement_pauses_for_a_transfer() {
    let (placed, outcome) = at_once(ReceiveOffload::Placement, &[(0, 1), (0, 2), (0, 4), (0, 5)]);
    assert_eq!(placed, cost(&[2920, 108, 3028], 2, 4, 2920));
    assert_eq!(outcome.delivered, 4);
    // The third transfer: data goes to its place again.
    let (placed, _) = at_once(ReceiveOffload::Placement, &[(0, 1), (0, 3), (0, 5)]);
    assert_eq!(placed.copied, 2920);
    let later = |at, number| Arrival {
        data: 1460,
        number,
        ..Arrival::new(Picos::micros(at), 1500)
    };
    let card = ReceivingCard {
        offload: ReceiveOffload::Placement,
        ..gathering(Bus::PCI32_33, 1)
    };
    let outcome = receive(&card, &[later(0, 1), later(100, 3), later(200, 4)]);
    assert_eq!(outcome.cost.copied, 1460);
    let fifty: Vec<_> = (1..=50)
        .map(|number| (0, number + u64::from(number > 1)))
        .collect();
    let (placed, _) = at_once(ReceiveOffload::Placement, &fifty);
    assert_eq!((placed.transfers, placed.copied), (2 + 1 + 2, 43 * 1460));
}

#[test]
fn a_datagram_comes_whole_or_not_at_all() {
    let count = FRAGMENTS * 3;
    let all = flows(GIGABIT, mix(1, Frames::Fragments, count), 0);
    assert_eq!(
        all.iter().map(|frame| u64::from(frame.data)).sum::<u64>(),
        3 * 65_507
    );
    let card = ReceivingCard {
        offload: ReceiveOffload::Datagrams,
        memory: 140_000,
        ..gathering(Bus::PCI32_33, 43)
    };
    let outcome = receive(&card, &all);
    assert_eq!((outcome.data, outcome.given_up), (3 * 65_507, 0));
    assert_eq!(outcome.cost, cost(&[65_549; 3], 3 * 33, 3, 3 * 65_507));
    // They come faster than the bus takes them.
    let at_once: Vec<_> = all
        .iter()
        .map(|frame| Arrival {
            at: Picos::ZERO,
            ..*frame
        })
        .collect();
    let roomy = ReceivingCard {
        memory: usize::MAX,
        ..card
    };
    let outcome = receive(&roomy, &at_once);
    assert_eq!((outcome.cost.transfers, outcome.given_up), (3, 0));
    // The last but one of the second is missing; then the last of the third.
    let mut holed = all.clone();
    holed.remove(88);
    let outcome = receive(&card, &holed);
    assert_eq!((outcome.delivered, outcome.given_up), (90, 44));
    assert_eq!(outcome.data, 2 * 65_507);
    let outcome = receive(&card, &all[..134]);
    assert_eq!((outcome.delivered, outcome.given_up), (90, 44));
    // What is given up leaves the card's memory.
    let mut holed = flows(GIGABIT, mix(1, Frames::Fragments, 6 * FRAGMENTS), 0);
    holed.retain(|frame| frame.number % u64::from(FRAGMENTS) != 7);
    let outcome = receive(&card, &holed);
    assert_eq!((outcome.dropped, outcome.given_up), (0, 6 * 44));
}

#[test]
fn flows_are_mixed_and_numbered() {
    let frames = flows(GIGABIT, mix(8, Frames::Segments(1500), 8000), 1);
    assert_eq!(frames.len(), 8000);
    for flow in 0..8 {
        let of: Vec<_> = frames.iter().filter(|frame| frame.flow == flow).collect();
        assert!((800..1200).contains(&of.len()), "{}", of.len());
        assert!(
            of.iter()
                .enumerate()
                .all(|(n, frame)| frame.number == n as u64)
        );
    }
    assert!(
        frames
            .iter()
            .all(|frame| frame.payload == 1500 && frame.data == 1460)
    );
    let half = Mix {
        percent: 50,
        ..mix(1, Frames::Segments(1500), 2)
    };
    let half = flows(GIGABIT, half, 0);
    let frame = GIGABIT.frame(1500);
    assert_eq!([half[0].at, half[1].at], [frame, frame.times(3)]);
    assert_eq!(
        flows(GIGABIT, mix(0, Frames::Segments(20), 1), 1)[0].data,
        0
    );
}

proptest! {
    /// The bus is as fast as the line and starts at once: only then there is never more than one transfer to wait for.
    #[test]
    fn no_frame_waits_longer_than_timer_and_a_transfer(
        frames in vec((0..100_000u64, 46..1500u32), 1..300),
        limits in (1..43usize, 0..1000u64),
    ) {
        let line = GIGABIT;
        let card = ReceivingCard {
            offload: ReceiveOffload::Chunks,
            bus: Bus { per_transfer: Picos::ZERO, rate: line.rate },
            limits: Limits { frames: limits.0, bytes: 65_536, wait: Picos::micros(limits.1) },
            memory: usize::MAX,
        };
        let mut cable = Cable::new(line, 0);
        let mut now = Picos::ZERO;
        let mut arrivals = Vec::new();
        for (gap, payload) in frames {
            now = now.max(cable.free()) + Picos::new(gap * 1000);
            if let Fate::Arrives(at) = cable.send(payload, now) {
                arrivals.push(Arrival::new(at, payload));
            }
        }
        let outcome = receive(&card, &arrivals);
        prop_assert_eq!(outcome.delivered, arrivals.len() as u64);
        prop_assert_eq!(outcome.dropped, 0);
        // For the timer or for the transfer under way, which may end later; and for its own.
        let most = card.limits.wait.max(outcome.longest_move) + outcome.longest_move;
        prop_assert!(outcome.longest_wait <= most);
    }

    #[test]
    fn what_comes_is_delivered_or_dropped(
        gaps in vec(0..40_000u64, 0..300),
        (frames, wait, memory) in (0..43usize, 0..1000u64, 0..200_000usize),
    ) {
        let card = ReceivingCard {
            limits: Limits { frames, bytes: 65_536, wait: Picos::micros(wait) },
            memory,
            ..gathering(Bus::PCI32_33, 1)
        };
        let mut at = Picos::ZERO;
        let arrivals: Vec<_> = gaps.iter().map(|gap| {
            at = at + Picos::new(gap * 1000);
            Arrival::new(at, PAYLOAD)
        }).collect();
        let outcome = receive(&card, &arrivals);
        prop_assert_eq!(outcome.delivered + outcome.dropped, arrivals.len() as u64);
    }

    #[test]
    fn every_offload_accounts_for_each_frame(
        offload in proptest::sample::select(&ReceiveOffload::ALL[..]),
        (count, loss, seed) in (1..9u32, 0..200_000u32, any::<u64>()),
        (frames, wait, memory) in (0..50usize, 0..1000u64, 0..200_000usize),
    ) {
        let line = Line { loss, ..GIGABIT };
        let of = if offload == ReceiveOffload::Datagrams { Frames::Fragments } else { Frames::Segments(1500) };
        let arrivals = flows(line, mix(count, of, 400), seed);
        let card = ReceivingCard {
            offload,
            limits: Limits { frames, bytes: 65_536, wait: Picos::micros(wait) },
            memory,
            bus: Bus::PCI32_33,
        };
        let outcome = receive(&card, &arrivals);
        let frames = outcome.delivered + outcome.dropped + outcome.given_up;
        prop_assert_eq!(frames, arrivals.len() as u64);
        prop_assert!(outcome.cost.copied <= outcome.data);
        prop_assert!(outcome.cost.headers <= outcome.delivered);
        prop_assert!(outcome.given_up == 0 || offload == ReceiveOffload::Datagrams);
    }
}
