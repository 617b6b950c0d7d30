//! The examples, as Debian 12's clang has compiled them. Packets are etherparse's.

use etherparse::PacketBuilder;

use super::super::{PairOf, Program};
use super::filter::Rig;

macro_rules! example {
    ($name:literal) => {
        include_bytes!(concat!("../../../../../docs/card/programs/", $name, ".o"))
    };
}

pub(super) const COUNT: &[u8] = example!("count-protocols");
pub(super) const LOSE: &[u8] = example!("lose-third-offer");
const FLIP: &[u8] = example!("flip-bit");
const DELAY: &[u8] = example!("delay-acks");
const DROP: &[u8] = example!("drop-mac");
const CHOOSE: &[u8] = example!("choose-pair");
pub(super) const EXAMPLES: [(&str, &[u8]); 6] = [
    ("count-protocols", COUNT),
    ("lose-third-offer", LOSE),
    ("flip-bit", FLIP),
    ("delay-acks", DELAY),
    ("drop-mac", DROP),
    ("choose-pair", CHOOSE),
];

const OTHER: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x57];

fn rig(bytes: &[u8]) -> Rig {
    Rig::new(Program::parse(bytes).unwrap())
}

fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(OTHER, [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(ports.0, ports.1)
        .write(&mut frame, payload)
        .unwrap();
    frame
}

/// A message of DHCP of this type (RFC 2132, section 9.6).
fn dhcp(kind: u8) -> Vec<u8> {
    let mut message = vec![0; 236];
    message[0] = 2;
    message.extend([99, 130, 83, 99, 53, 1, kind, 255]);
    udp((67, 68), &message)
}

fn map(rig: &Rig, name: &str) -> Vec<u64> {
    let maps = rig.counters().maps;
    maps.into_iter().find(|(of, _)| of == name).unwrap().1
}

fn tcp(to: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(OTHER, [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(80, to, 1, 1000)
        .write(&mut frame, b"data")
        .unwrap();
    frame
}

#[test]
fn connections_are_spread_over_the_pairs() {
    let program = Program::parse(CHOOSE).unwrap();
    let mut rig = Rig::of(program, PairOf { pair: 1, pairs: 3 });
    let frames = [
        tcp(3000),
        tcp(3001),
        tcp(3002),
        tcp(3003),
        udp((80, 3000), b"data"),
    ];
    let passed = rig.receive(&frames.each_ref().map(Vec::as_slice), 0);
    assert_eq!(passed, [tcp(3001), udp((80, 3000), b"data")]);
    let diverted = rig.filter.take_diverted();
    let pairs: Vec<usize> = diverted.iter().map(|frame| frame.pair).collect();
    assert_eq!(pairs, [0, 2, 0]);
    assert_eq!(map(&rig, "frames"), [2, 1, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn the_third_offer_is_lost() {
    let mut rig = rig(LOSE);
    // Offers and ACKs.
    let frames = [2, 5, 2, 5, 2, 5, 2, 2].map(dhcp);
    let frames = frames.each_ref().map(Vec::as_slice);
    let passed = rig.receive(&frames, 0);
    let kinds: Vec<u8> = passed.iter().map(|frame| frame[284]).collect();
    assert_eq!(kinds, [2, 5, 2, 5, 5, 2, 2]);
    assert_eq!(map(&rig, "offers"), [5]);
    // What the guest sends has no hook.
    assert_eq!(rig.send(&dhcp(2), 0), [dhcp(2)]);
}

#[test]
fn each_16th_block_has_a_wrong_bit() {
    let mut rig = rig(FLIP);
    for n in 1..=40u16 {
        let block = [&[0, 3][..], &n.to_be_bytes(), &[0xaa; 512]].concat();
        let frame = udp((50000, 2000), &block);
        let mut expected = frame.clone();
        if n % 16 == 0 {
            expected[46] = 0xab;
        }
        assert_eq!(rig.receive(&[&frame], 0), [expected], "{n}");
        // No block: an error, an empty last one, and something else.
        for (port, other) in [
            (50000, &[0, 5, 0, 0, 0][..]),
            (50000, &[0, 3, 0, 9]),
            (53, &[0, 3, 0, 9, 9]),
        ] {
            let frame = udp((port, 2000), other);
            assert_eq!(rig.receive(&[&frame], 0), [frame]);
        }
    }
    assert_eq!(map(&rig, "blocks"), [40]);
}

#[test]
fn each_tenth_ack_is_late() {
    let mut rig = rig(DELAY);
    let tcp = |syn: bool, payload: &[u8]| {
        let builder = PacketBuilder::ethernet2([2; 6], OTHER)
            .ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64)
            .tcp(40000, 80, 7, 1000)
            .ack(9);
        let builder = if syn { builder.syn() } else { builder };
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        // Short frames are padded.
        frame.resize(frame.len().max(60), 0);
        frame
    };
    for n in 1..=20 {
        let ack = tcp(false, &[]);
        let at = n * 100_000;
        if n % 10 == 0 {
            assert_eq!(rig.send(&ack, at), [[0; 0]; 0], "{n}");
            assert_eq!(rig.sent(at + 19_999), [[0; 0]; 0], "{n}");
            assert_eq!(rig.sent(at + 20_000), [ack], "{n}");
        } else {
            assert_eq!(rig.send(&ack, at), [ack], "{n}");
        }
        for other in [tcp(true, &[]), tcp(false, b"GET")] {
            assert_eq!(rig.send(&other, at + 50_000), [other]);
        }
    }
    assert_eq!(map(&rig, "acks"), [20]);
}

#[test]
fn what_comes_from_an_address_is_dropped() {
    let mut rig = rig(DROP);
    let from = |last| {
        let mut frame = udp((1, 2), &[]);
        frame[11] = last;
        frame
    };
    let frames = [from(0x56), from(0x57), from(0x56)];
    let passed = rig.receive(&frames.each_ref().map(Vec::as_slice), 0);
    assert_eq!(passed, [from(0x57)]);
    assert_eq!(map(&rig, "dropped"), [2]);
}

#[test]
fn protocols_are_counted() {
    let mut rig = rig(COUNT);
    let mut v6 = Vec::new();
    PacketBuilder::ethernet2(OTHER, [2; 6])
        .ipv6([1; 16], [2; 16], 64)
        .icmpv6_echo_request(1, 2)
        .write(&mut v6, &[])
        .unwrap();
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 28]].concat();
    for frame in [&udp((1, 2), &[]), &udp((3, 4), &[]), &v6, &arp] {
        assert_eq!(rig.send(frame, 0).len(), 1);
    }
    assert_eq!(rig.receive(&[&v6, &arp, &arp], 0).len(), 3);
    for (name, expected) in [
        ("from_guest", [(17, 2), (58, 1), (256, 1)].as_slice()),
        ("from_wire", &[(58, 1), (256, 2)]),
    ] {
        let mut values = vec![0; 257];
        for (n, count) in expected {
            values[*n] = *count;
        }
        assert_eq!(map(&rig, name), values, "{name}");
    }
}
