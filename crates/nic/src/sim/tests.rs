use std::vec;
use std::vec::Vec;

use super::*;
use proptest::prelude::*;

fn send(nic: &mut SimNic, bytes: &[u8]) {
    let (_, tx) = nic.split();
    tx.send(bytes.len(), Offload::None, &mut |frame| {
        frame.copy_from_slice(bytes)
    })
    .unwrap();
    tx.flush().unwrap();
}

fn receive(nic: &mut SimNic) -> Vec<Vec<u8>> {
    let mut units = Vec::new();
    nic.split()
        .0
        .burst(usize::MAX, |frame| {
            assert_eq!(
                frame.len,
                frame.parts.iter().map(|p| p.len()).sum::<usize>()
            );
            assert!(frame.parts[0].len() >= frame.len.min(128));
            units.push(frame.parts.concat());
        })
        .unwrap();
    units
}

/// A valid Ethernet, IPv6 and TCP or UDP frame.
fn segment6(protocol: u8, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let ipv4 = segment(protocol, sequence, flags, payload);
    let (_, transport) = ipv4.split_at(34);
    let mut frame = ipv4[..12].to_vec();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((transport.len() as u16).to_be_bytes());
    frame.extend([protocol, 64]);
    for last in [1, 2] {
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend(transport);
    let field = if protocol == 6 { 16 } else { 6 };
    let pseudo = pseudo(&frame, 54);
    frame[54 + field..56 + field].copy_from_slice(&pseudo.to_be_bytes());
    checksum::complete(&mut frame, 54, field);
    frame
}

/// The pseudo-header sum of a frame, whose addresses are the last before its transport header.
fn pseudo(frame: &[u8], transport: usize) -> u16 {
    let (protocol, addresses) = match transport {
        34 => (frame[23], &frame[26..34]),
        _ => (frame[20], &frame[22..54]),
    };
    let rest = u32::from(protocol) + (frame.len() - transport) as u32;
    checksum::sum(&[], checksum::sum(addresses, 0) + rest) as u16
}

/// A valid Ethernet, IPv4 and TCP or UDP frame.
fn segment(protocol: u8, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let header = if protocol == 6 { 20 } else { 8 };
    let total = (20 + header + payload.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 8, 0];
    frame.extend([0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = !(checksum::sum(&frame[14..34], 0) as u16);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend([0, 80, 0x12, 0x34]);
    if protocol == 6 {
        frame.extend(sequence.to_be_bytes());
        frame.extend([0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    } else {
        frame.extend((total - 20).to_be_bytes());
        frame.extend([0, 0]);
    }
    frame.extend(payload);
    let field = if protocol == 6 { 16 } else { 6 };
    let pseudo = pseudo(&frame, 34);
    frame[34 + field..36 + field].copy_from_slice(&pseudo.to_be_bytes());
    checksum::complete(&mut frame, 34, field);
    frame
}

#[test]
fn a_frame_takes_wire_time_and_latency() {
    let config = LinkConfig {
        latency_micros: 100,
        bits_per_second: 8_000_000,
        ..LinkConfig::default()
    };
    let (mut a, mut b) = link(config, config, 0);
    send(&mut a, &[1; 1000]);
    send(&mut a, &[2; 1000]);
    assert_eq!(b.next_delivery(), Some(1100));
    a.clock().set(1099);
    assert!(receive(&mut b).is_empty());
    assert!(!a.split().1.idle());
    a.clock().advance(1);
    assert_eq!(receive(&mut b), [vec![1; 1000]]);
    assert_eq!(b.next_delivery(), Some(2100));
    a.clock().set(2100);
    assert_eq!(receive(&mut b), [vec![2; 1000]]);
    assert!(a.split().1.idle());
    assert_eq!(b.next_delivery(), None);
}

#[test]
fn nothing_leaves_before_flush_and_the_ring_fills() {
    let (mut a, mut b) = link(LinkConfig::default(), LinkConfig::default(), 0);
    a.configure(NicConfig {
        transmit_frames: 2,
        ..NicConfig::new([2; 6])
    });
    let (_, tx) = a.split();
    tx.send(60, Offload::None, &mut |_| ()).unwrap();
    tx.send(60, Offload::None, &mut |_| ()).unwrap();
    assert_eq!(
        tx.send(60, Offload::None, &mut |_| ()),
        Err(SendError::Full)
    );
    assert_eq!(
        tx.send(1515, Offload::None, &mut |_| ()),
        Err(SendError::TooLong)
    );
    assert_eq!(b.next_delivery(), None);
    tx.flush().unwrap();
    assert_eq!(tx.room(), 2);
    b.clock().set(1000);
    assert_eq!(receive(&mut b).len(), 2);
    let counters = a.counters();
    assert_eq!((counters.transmit_frames, counters.transmit_full), (2, 1));
    assert_eq!(counters.transmit_doorbells, 1);
}

#[test]
fn the_link_queue_and_the_receive_buffers_overflow() {
    let config = LinkConfig {
        queue_frames: 10,
        ..LinkConfig::default()
    };
    let (mut a, mut b) = link(config, config, 0);
    b.configure(NicConfig {
        receive_frames: 4,
        ..NicConfig::new([2; 6])
    });
    for _ in 0..12 {
        send(&mut a, &[0; 1000]);
    }
    assert_eq!(a.lost(), 2);
    a.clock().set(1_000_000);
    assert_eq!(receive(&mut b).len(), 4);
    assert_eq!(b.counters().receive_dropped, 6);
}

#[test]
fn the_budget_leaves_the_rest_for_the_next_burst() {
    let (mut a, mut b) = link(LinkConfig::default(), LinkConfig::default(), 0);
    for n in 0..5 {
        send(&mut a, &[n; 60]);
    }
    a.clock().set(1000);
    let mut seen = Vec::new();
    for expected in [2, 2, 1, 0] {
        let lent = b.split().0.burst(2, |frame| seen.push(frame.parts[0][0]));
        assert_eq!(lent, Ok(expected));
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
}

#[test]
fn the_cable_can_be_pulled_and_the_nic_stopped() {
    let (mut a, mut b) = link(LinkConfig::default(), LinkConfig::default(), 0);
    a.set_link_up(false);
    assert!(!a.link_up() && !b.link_up());
    send(&mut a, &[0; 60]);
    a.set_link_up(true);
    send(&mut a, &[1; 60]);
    a.clock().set(1000);
    assert_eq!(receive(&mut b), [vec![1; 60]]);
    a.stop();
    let sent = a.split().1.send(60, Offload::None, &mut |_| ());
    assert_eq!(sent, Err(SendError::Fault(Fault::Removed)));
    assert_eq!(a.split().0.burst(1, |_| ()), Ok(0));
}

#[test]
fn the_device_completes_checksums() {
    let (mut a, mut b) = link(LinkConfig::default(), LinkConfig::default(), 0);
    for (build, start) in VERSIONS {
        for (protocol, offset) in [(17, 6), (6, 16)] {
            let whole = build(protocol, 0, ACK, b"payload");
            let mut partial = whole.clone();
            let field = start + offset;
            partial[field..field + 2].copy_from_slice(&pseudo(&whole, start).to_be_bytes());
            assert_ne!(partial, whole);
            let offload = Offload::L4Checksum {
                start: start as u16,
                offset: offset as u16,
            };
            let (_, tx) = a.split();
            tx.send(partial.len(), offload, &mut |f| f.copy_from_slice(&partial))
                .unwrap();
            tx.flush().unwrap();
            a.clock().advance(1000);
            assert_eq!(receive(&mut b), [whole]);
        }
    }
}

type Build = fn(u8, u32, u8, &[u8]) -> Vec<u8>;

/// Both IP versions: how to build their frames, and where the TCP header is.
const VERSIONS: [(Build, usize); 2] = [(segment, 34), (segment6, 54)];

fn cutting() -> (SimNic, SimNic) {
    let (mut a, b) = link(LinkConfig::default(), LinkConfig::default(), 0);
    a.configure(NicConfig {
        transmit_unit: 60_000,
        ..NicConfig::new([2; 6])
    });
    assert_eq!(a.properties().transmit_unit, 60_000);
    (a, b)
}

/// Has `a` cut a frame whose checksum field holds the pseudo-header sum.
fn send_cut(a: &mut SimNic, unit: &[u8], start: usize, mss: u16) -> Result<(), SendError> {
    let offload = Offload::TcpSegmentation {
        start: start as u16,
        header_len: start as u16 + 20,
        mss,
    };
    a.split().1.send(unit.len(), offload, &mut |frame| {
        frame.copy_from_slice(unit);
        let at = start + 16;
        frame[at..at + 2].copy_from_slice(&pseudo(unit, start).to_be_bytes());
    })
}

#[test]
fn the_device_cuts_segments() {
    let payload: Vec<u8> = (0..5000u32).map(|n| (n % 251) as u8).collect();
    let first = u32::MAX - 1000;
    for (build, start) in VERSIONS {
        for (len, flags, mss) in [
            (5000, 0x19, 1400),
            (2800, 0x10, 1400),
            (10, 0x18, 1400),
            (0, 0x11, 1),
        ] {
            let payload = &payload[..len];
            let (mut a, mut b) = cutting();
            let unit = build(6, first, flags, payload);
            send_cut(&mut a, &unit, start, mss).unwrap();
            assert_eq!(b.next_delivery(), None);
            a.split().1.flush().unwrap();
            a.clock().set(1000);
            let pieces: Vec<&[u8]> = match payload {
                [] => vec![&[]],
                _ => payload.chunks(mss.into()).collect(),
            };
            let mut expected = Vec::new();
            for (n, piece) in pieces.iter().enumerate() {
                let last = n + 1 == pieces.len();
                let flags = if last { flags } else { flags & 0x10 };
                let sequence = first.wrapping_add(n as u32 * u32::from(mss));
                let mut frame = build(6, sequence, flags, piece);
                if start == 34 {
                    // The next number of the datagram, and the header's checksum with it.
                    frame[19] = n as u8;
                    frame[24..26].fill(0);
                    let sum = !(checksum::sum(&frame[14..34], 0) as u16);
                    frame[24..26].copy_from_slice(&sum.to_be_bytes());
                }
                expected.push(frame);
            }
            assert_eq!(receive(&mut b), expected);
            assert_eq!(a.counters().transmit_frames, 1);
        }
    }
}

#[test]
fn frames_to_be_cut_are_few_and_of_a_limited_length() {
    let (mut a, mut b) = cutting();
    let unit = segment(6, 0, ACK, &[7; 3000]);
    for _ in 0..UNITS {
        assert_eq!(send_cut(&mut a, &unit, 34, 1460), Ok(()));
    }
    assert_eq!(send_cut(&mut a, &unit, 34, 1460), Err(SendError::Full));
    // A small one still finds room.
    assert_eq!(a.split().1.send(60, Offload::None, &mut |_| ()), Ok(()));
    a.split().1.flush().unwrap();
    assert_eq!(send_cut(&mut a, &unit, 34, 1460), Ok(()));
    let long = segment(6, 0, ACK, &vec![7; 59_947]);
    assert_eq!(send_cut(&mut a, &long, 34, 1460), Err(SendError::TooLong));
    assert_eq!(
        send_cut(&mut b, &unit[..100], 34, 1460),
        Err(SendError::TooLong),
        "a device that does not cut"
    );
}

#[test]
fn what_contradicts_its_headers_is_lost() {
    for (build, start) in VERSIONS {
        let unit = build(6, 0, ACK, &[7; 3000]);
        // Length, EtherType, SYN, length of the TCP header.
        for (at, bit) in [
            (17, 1),
            (19, 1),
            (12, 1),
            (start + 13, 2),
            (start + 12, 0x10),
        ] {
            let (mut a, mut b) = cutting();
            let mut wrong = unit.clone();
            wrong[at] ^= bit;
            // Of IPv4 one is the length, of IPv6 the other; the other two bytes are the flow label's and the number's.
            let harmless = at == if start == 34 { 19 } else { 17 };
            send_cut(&mut a, &wrong, start, 1440).unwrap();
            a.split().1.flush().unwrap();
            a.clock().set(1000);
            assert_eq!(receive(&mut b).len(), if harmless { 3 } else { 0 }, "{at}");
        }
        // Nothing to cut into; the first two segments too long for the link.
        for (mss, arrive) in [(0, 0), (1461, 1)] {
            let (mut a, mut b) = cutting();
            send_cut(&mut a, &unit, start, mss).unwrap();
            a.split().1.flush().unwrap();
            a.clock().set(1000);
            assert_eq!(receive(&mut b).len(), arrive, "{mss}");
        }
    }
}

/// Sends the frames back to back to a coalescing NIC that scatters, and lists what it is lent.
fn coalesced(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, Checksum, Option<u16>)> {
    let (mut a, mut b) = link(LinkConfig::default(), LinkConfig::default(), 0);
    b.configure(NicConfig {
        coalesce: true,
        part_len: Some(700),
        ..NicConfig::new([2; 6])
    });
    for frame in frames {
        send(&mut a, frame);
    }
    a.clock().set(1_000_000);
    let mut units = Vec::new();
    let sink = |frame: Frame<'_>| {
        units.push((frame.parts.concat(), frame.checksum, frame.udp_segment));
    };
    b.split().0.burst(usize::MAX, sink).unwrap();
    units
}

#[test]
fn tcp_segments_in_order_coalesce() {
    let payload: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
    for (build, start) in VERSIONS {
        let frames: Vec<_> = payload
            .chunks(1440)
            .enumerate()
            .map(|(n, chunk)| build(6, n as u32 * 1440, ACK, chunk))
            .collect();
        let units = coalesced(&frames);
        assert_eq!(units.len(), 2);
        let received: Vec<u8> = units
            .iter()
            .flat_map(|u| u.0[start + 20..].to_vec())
            .collect();
        assert_eq!(received, payload);
        for (bytes, checksum, udp_segment) in &units {
            assert_eq!((*checksum, *udp_segment), (Checksum::Trusted, None));
            assert_eq!(ip_len(bytes), bytes.len() - 14);
        }
    }
}

/// What the header says of the length of an IP packet; an IPv4 header's checksum is right.
fn ip_len(frame: &[u8]) -> usize {
    let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    if frame[12] == 8 {
        assert_eq!(checksum::sum(&frame[14..34], 0), 0xffff);
        word(16)
    } else {
        40 + word(18)
    }
}

const ACK: u8 = 0x10;

#[test]
fn what_does_not_continue_stays_alone() {
    for (build, start) in VERSIONS {
        let gap = [build(6, 0, ACK, &[1; 100]), build(6, 200, ACK, &[2; 100])];
        assert_eq!(coalesced(&gap).len(), 2);
        let pushed = [
            build(6, 0, ACK | 8, &[1; 100]),
            build(6, 100, ACK, &[2; 100]),
        ];
        assert_eq!(coalesced(&pushed).len(), 2);
        // The last byte of each address, each port's.
        let address = if start == 34 { 4 } else { 16 };
        for at in [start - 1, start - 1 - address, start + 1, start + 3] {
            let mut other = build(6, 100, ACK, &[2; 100]);
            other[at] ^= 1;
            complete_again(&mut other, start);
            let units = coalesced(&[build(6, 0, ACK, &[1; 100]), other]);
            assert_eq!(units.len(), 2);
            assert_eq!(units[1].1, Checksum::Trusted);
        }
        let mut broken = build(6, 100, ACK, &[2; 100]);
        broken[100] ^= 1;
        let units = coalesced(&[build(6, 0, ACK, &[1; 100]), broken]);
        assert_eq!(units.len(), 2);
        assert_eq!(units[1].1, Checksum::Unverified);
    }
    // One after the other by their numbers, but of two IP versions.
    let two = [
        segment(6, 0, ACK, &[1; 100]),
        segment6(6, 100, ACK, &[2; 100]),
    ];
    assert_eq!(coalesced(&two).len(), 2);
    // A header between IPv6 and TCP.
    let mut extended = segment6(6, 0, ACK, &[1; 100]);
    extended[20] = 0;
    assert_eq!(coalesced(&[extended])[0].1, Checksum::Unverified);
}

/// Gives a TCP segment that was changed its right checksums.
fn complete_again(frame: &mut [u8], start: usize) {
    if start == 34 {
        frame[24..26].fill(0);
        let sum = !(checksum::sum(&frame[14..34], 0) as u16);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let pseudo = pseudo(frame, start);
    frame[start + 16..start + 18].copy_from_slice(&pseudo.to_be_bytes());
    checksum::complete(frame, start, 16);
}

#[test]
fn udp_datagrams_of_one_size_coalesce() {
    for (build, start) in VERSIONS {
        let frames = [
            build(17, 0, 0, &[1; 500]),
            build(17, 0, 0, &[2; 500]),
            build(17, 0, 0, &[3; 20]),
            build(17, 0, 0, &[4; 500]),
        ];
        let units = coalesced(&frames);
        assert_eq!(units.len(), 2);
        assert_eq!(units[0].0.len(), start + 8 + 1020);
        assert_eq!(units[0].2, Some(500));
        assert_eq!(units[0].0[start + 4..start + 6], 1028u16.to_be_bytes());
        assert_eq!(ip_len(&units[0].0), units[0].0.len() - 14);
        assert_eq!(units[1].2, None);
    }
}

/// All that reaches `b` of 50 numbered frames, with its time.
fn trace(config: LinkConfig, seed: u64) -> Vec<(i64, Vec<u8>)> {
    let (mut a, mut b) = link(config, config, seed);
    for n in 0..50 {
        send(&mut a, &[n; 60]);
    }
    let mut seen = Vec::new();
    while let Some(at) = b.next_delivery() {
        a.clock().set(at);
        seen.extend(receive(&mut b).into_iter().map(|frame| (at, frame)));
    }
    seen
}

proptest! {
    #[test]
    fn the_same_seed_gives_the_same_run(
        seed: u64, loss in 0.0..0.5, reorder in 0.0..0.5, duplicate in 0.0..0.5, corrupt in 0.0..0.5
    ) {
        let config = LinkConfig { loss, reorder, duplicate, corrupt, ..LinkConfig::default() };
        prop_assert_eq!(trace(config, seed), trace(config, seed));
    }

    #[test]
    fn each_trouble_does_what_it_says(seed: u64) {
        let quiet = LinkConfig::default();
        let ordered: Vec<u8> = (0..50).collect();
        let numbers = |config| -> Vec<u8> {
            trace(config, seed).into_iter().map(|(_, frame)| frame[0]).collect()
        };
        prop_assert_eq!(&numbers(quiet), &ordered);
        prop_assert_eq!(numbers(LinkConfig { loss: 1.0, ..quiet }), Vec::<u8>::new());
        prop_assert_eq!(numbers(LinkConfig { duplicate: 1.0, ..quiet }).len(), 100);
        let mut late = numbers(LinkConfig { reorder: 0.5, ..quiet });
        prop_assert_ne!(&late, &ordered);
        late.sort_unstable();
        prop_assert_eq!(&late, &ordered);
        let corrupt = trace(LinkConfig { corrupt: 1.0, ..quiet }, seed);
        for (n, (_, frame)) in corrupt.iter().enumerate() {
            let flipped: u32 = frame.iter().map(|byte| (byte ^ n as u8).count_ones()).sum();
            prop_assert_eq!(flipped, 1);
        }
    }
}

#[test]
fn a_fan_sorts_by_its_steering_or_not_at_all() {
    use crate::Steering;
    use multiqueue::{PairSelection, multiqueue};
    for selection in [PairSelection::Steered, PairSelection::Missteered(3)] {
        let (mut far, near) = link(LinkConfig::default(), LinkConfig::default(), 1);
        let clock = near.clock();
        let mut pairs = multiqueue(near, Steering::by_port(3), selection);
        let mut sent = Vec::new();
        for port in 0..60_u16 {
            let (build, start) = VERSIONS[usize::from(port / 30)];
            let mut frame = build(17, 0, 0, b"data");
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0xb]);
            frame[start + 2..start + 4].copy_from_slice(&port.to_be_bytes());
            send(&mut far, &frame);
            sent.push(frame);
        }
        // Neither whole nor IP.
        let mut fragment = sent[1].clone();
        fragment[20] = 0x20;
        sent.push(fragment);
        sent.push(vec![0xff; 60]);
        send(&mut far, &sent[60]);
        send(&mut far, &sent[61]);
        assert!(pairs[2].next_delivery().unwrap() > 0);
        clock.advance(1000);
        let mut seen = vec![Vec::new(); 3];
        for (pair, seen) in pairs.iter_mut().zip(&mut seen) {
            let (rx, tx) = pair.split();
            while rx
                .burst(4, |frame| {
                    // Sending in the middle of a burst is allowed.
                    tx.send(frame.len, Offload::None, &mut |room| room.fill(1))
                        .unwrap();
                    seen.push(frame.parts.concat());
                })
                .unwrap()
                > 0
            {}
        }
        assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), sent.len());
        let right = |(index, frames): (usize, &Vec<Vec<u8>>)| {
            frames.iter().all(|frame| {
                let at = sent.iter().position(|sent| sent == frame).unwrap();
                (if at < 60 { at % 3 } else { 0 }) == index
            })
        };
        assert_eq!(
            seen.iter().enumerate().all(right),
            selection == PairSelection::Steered
        );
        let received: u64 = pairs.iter().map(|p| p.counters().receive_units).sum();
        assert_eq!(received, 62);
    }
}

/// Code that is given a half on loan does what it would do to the half itself.
#[test]
fn a_loan_is_as_good_as_the_half() {
    fn sends(mut tx: impl Transmit) {
        let room = tx.room();
        assert!(room > 2 && tx.idle());
        let mut written = 0;
        let sent = tx.send(60, Offload::None, &mut |frame| written = frame.len());
        assert_eq!((sent, written), (Ok(()), 60));
        assert_eq!((tx.room(), tx.idle()), (room - 1, false));
        tx.flush().unwrap();
        assert_eq!(tx.room(), room);
    }
    fn receives(mut rx: impl Receive) -> Result<usize, Fault> {
        rx.burst(8, |frame| assert_eq!(frame.len, 60))
    }
    let (mut near, mut far) = link(LinkConfig::default(), LinkConfig::default(), 1);
    sends(near.split().1);
    near.clock().advance(1000);
    assert_eq!(receives(far.split().0), Ok(1));
    far.stop();
    assert_eq!(receives(far.split().0), Ok(0));
    near.stop();
    let mut tx = near.split().1;
    assert_eq!(Transmit::flush(&mut tx), Err(Fault::Removed));
}
