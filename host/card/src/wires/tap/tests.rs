//! A tap in a network namespace of its own, with the kernel behind it.

mod fragments;

use std::net::UdpSocket;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use wireboot_card::testing::packets::{Link, TcpFields, completed, incomplete, is_right, tcp, udp};
use wireboot_card::{Offload, Wire};
use wireboot_namespace::{inside, sh};

use super::*;
use crate::memory::Place;
use crate::wires::HostWire;
use crate::wires::testing::kernel_knows_uso;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn memory() -> Mapping {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 0x8000).unwrap();
    let place = Place {
        guest: 0,
        len: 0x8000,
        offset: 0,
    };
    Mapping::new(&[(place, file)]).unwrap()
}

/// The only queue.
fn open(name: &str) -> Result<Tap, TapError> {
    Tap::open(name, 1).map(|mut taps| taps.remove(0))
}

/// The tap of a station at 10.9.0.2; the kernel is at 10.9.0.1.
fn tap() -> Tap {
    sh("ip tuntap add dev card0 mode tap vnet_hdr
        echo 1 > /proc/sys/net/ipv6/conf/card0/disable_ipv6
        ip link set card0 mtu 1400");
    let tap = open("card0").unwrap();
    // Once it has a carrier: one that comes later loses the first frames.
    sh("ip link set card0 up
        ip address add 10.9.0.1/24 dev card0
        ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev card0");
    tap
}

fn bytes(memory: &Mapping, spans: &[Span]) -> Vec<u8> {
    let mut all = Vec::new();
    for span in spans {
        let mut piece = vec![0; span.len as usize];
        memory.read(span.address, &mut piece).unwrap();
        all.extend(piece);
    }
    all
}

/// Waits for a unit.
fn receive(tap: &mut Tap, memory: &Mapping, room: &[Span]) -> Received {
    loop {
        let got = tap.receive(memory, room);
        if got != Received::Nothing {
            return got;
        }
        let file = tap.descriptor().expect("a tap without failure");
        poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::IN)], None).unwrap();
    }
}

/// Pieces of `len` bytes, apart from each other.
fn pieces(count: u64, len: u32) -> Vec<Span> {
    (0..count)
        .map(|n| Span {
            address: 0x100 + n * (u64::from(len) + 3),
            len,
        })
        .collect()
}

/// Has the kernel send a datagram to the station.
fn datagram(payload: &[u8]) {
    let socket = UdpSocket::bind("10.9.0.1:7").unwrap();
    socket.send_to(payload, "10.9.0.2:9").unwrap();
}

#[test]
fn frames_come_to_the_guests_buffers() {
    if !inside("wires::tap::tests::frames_come_to_the_guests_buffers") {
        return;
    }
    let (mut tap, memory) = (tap(), memory());
    assert_eq!(tap.max_unit(), 1418);
    assert_eq!(tap.receive(&memory, &pieces(1, 1500)), Received::Nothing);
    let payload: Vec<u8> = (0..1000u32).map(|n| n as u8).collect();
    // One buffer, several, and more than the kernel takes at once.
    for room in [pieces(1, 1418), pieces(8, 200), pieces(200, 8)] {
        datagram(&payload);
        let got = receive(&mut tap, &memory, &room);
        let len = 14 + 20 + 8 + payload.len();
        let header = Header::default();
        assert_eq!(got, Received::Unit { header, len });
        let frame = bytes(&memory, &room);
        assert_eq!(frame[..6], MAC);
        assert_eq!(frame[42..len], payload);
    }
    // What does not fit is lost, and the next one is whole.
    datagram(&payload);
    datagram(&payload[..50]);
    assert_eq!(
        receive(&mut tap, &memory, &pieces(1, 200)),
        Received::TooLong
    );
    let got = receive(&mut tap, &memory, &pieces(1, 200));
    assert!(matches!(got, Received::Unit { len: 92, .. }), "{got:?}");
}

#[test]
fn checksums_are_left_to_a_guest_that_takes_them() {
    if !inside("wires::tap::tests::checksums_are_left_to_a_guest_that_takes_them") {
        return;
    }
    let (mut tap, memory) = (tap(), memory());
    tap.agree(feature::GUEST_CSUM);
    datagram(&[0; 100]);
    let got = receive(&mut tap, &memory, &pieces(1, 1418));
    let Received::Unit { header, .. } = got else {
        panic!("{got:?}");
    };
    assert_eq!(
        (header.flags, header.csum_start, header.csum_offset),
        (1, 34, 6)
    );
}

#[test]
fn frames_of_the_guest_come_to_the_kernel() {
    if !inside("wires::tap::tests::frames_of_the_guest_come_to_the_kernel") {
        return;
    }
    let (mut tap, memory) = (tap(), memory());
    // Who has 10.9.0.1? Tell 10.9.0.2.
    let mut request = vec![0xff; 6];
    request.extend(MAC);
    request.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    request.extend(MAC);
    request.extend([10, 9, 0, 2, 0, 0, 0, 0, 0, 0, 10, 9, 0, 1]);
    for spans in [pieces(1, 42), pieces(42, 1), pieces(3, 14)] {
        let mut from = &request[..];
        for span in &spans {
            let (now, rest) = from.split_at(span.len as usize);
            memory.write(span.address, now).unwrap();
            from = rest;
        }
        let unit = Unit {
            header: Header::default(),
            head: &[],
            spans: &spans,
            len: request.len(),
        };
        assert!(tap.send(&memory, &unit));
        let room = pieces(1, 1418);
        receive(&mut tap, &memory, &room);
        let reply = bytes(&memory, &room);
        assert_eq!(reply[..6], MAC);
        assert_eq!(reply[20..22], [0, 2], "no reply");
        assert_eq!(reply[28..32], [10, 9, 0, 1]);
    }
    // Very many pieces, most of them empty frames' worth of padding.
    let spans = pieces(100, 1);
    for (span, byte) in spans.iter().zip(request.iter().chain([0; 58].iter())) {
        memory.write(span.address, &[*byte]).unwrap();
    }
    let unit = Unit {
        header: Header::default(),
        head: &[],
        spans: &spans,
        len: 100,
    };
    assert!(tap.send(&memory, &unit));
    let room = pieces(1, 1418);
    receive(&mut tap, &memory, &room);
    assert_eq!(bytes(&memory, &room)[20..22], [0, 2], "no reply");
    sh("ip link set card0 down");
    assert!(!tap.send(&memory, &unit));
    tap.tell_failure();
    assert_eq!(tap.sending, Sending::Told);
    // Once.
    assert!(!tap.send(&memory, &unit));
    assert_eq!(tap.sending, Sending::Told);
    sh("ip link set card0 up");
    assert!(tap.send(&memory, &unit));
    assert_eq!(tap.sending, Sending::Works);
}

#[test]
fn what_came_before_a_restart_is_nobodys() {
    if !inside("wires::tap::tests::what_came_before_a_restart_is_nobodys") {
        return;
    }
    let (mut tap, memory) = (tap(), memory());
    for len in [100, 200] {
        datagram(&vec![0; len]);
    }
    tap.restart();
    let room = pieces(1, 1418);
    assert_eq!(tap.receive(&memory, &room), Received::Nothing);
    datagram(&[0; 50]);
    let got = receive(&mut tap, &memory, &room);
    assert!(matches!(got, Received::Unit { len: 92, .. }), "{got:?}");
}

#[test]
fn what_is_no_tap_is_refused() {
    if !inside("wires::tap::tests::what_is_no_tap_is_refused") {
        return;
    }
    let missing = open("none0").unwrap_err();
    assert!(matches!(missing, TapError::Missing(_)));
    assert!(
        missing
            .to_string()
            .contains("ip tuntap add dev none0 mode tap vnet_hdr && ip link set none0 up")
    );
    for name in ["", "a/b", "longer-than-15-b"] {
        assert!(matches!(open(name), Err(TapError::Name(_))), "{name}");
    }
    let other = open("lo").unwrap_err();
    assert!(matches!(other, TapError::Kernel { .. }), "{other}");
    let _tap = tap();
    let busy = open("card0").unwrap_err();
    assert!(matches!(busy, TapError::Busy(_)), "{busy}");
    sh("ip tuntap add dev card1 mode tap vnet_hdr multi_queue");
    open("card1").unwrap();
}

/// Datagrams of a flow of its own each come to the first queue, or where its guest has sent last, if that one receives.
#[test]
fn flows_come_by_the_queue_that_has_sent_last_and_receives() {
    if !inside("wires::tap::tests::flows_come_by_the_queue_that_has_sent_last_and_receives") {
        return;
    }
    sh("ip tuntap add dev card0 mode tap vnet_hdr multi_queue
        echo 1 > /proc/sys/net/ipv6/conf/card0/disable_ipv6
        ip link set card0 mtu 1400 address 02:00:00:00:00:01");
    let mut taps = Tap::open("card0", 3).unwrap();
    sh("ip link set card0 up
        ip address add 10.9.0.1/24 dev card0
        ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev card0");
    let memory = memory();
    let socket = UdpSocket::bind("10.9.0.1:7").unwrap();
    // The queue by which a datagram to this port of the station comes.
    let comes_by = |taps: &mut [Tap], port: u16| {
        socket.send_to(&[0; 100], ("10.9.0.2", port)).unwrap();
        let room = pieces(1, 1418);
        loop {
            for (queue, tap) in taps.iter_mut().enumerate() {
                if tap.receive(&memory, &room) != Received::Nothing {
                    return queue;
                }
            }
        }
    };
    for port in 100..130 {
        assert_eq!(comes_by(&mut taps, port), 0);
    }
    for tap in &mut taps {
        tap.set_receiving(true);
        assert!(tap.descriptor().is_some(), "{:?}", tap.failure);
    }
    for port in 200..230 {
        let queue = usize::from(port) % 3;
        let mut frame = vec![2, 0, 0, 0, 0, 1];
        frame.extend(MAC);
        frame.extend([8, 0]);
        frame.extend(ipv4_udp(port, 7));
        send(&mut taps[queue], &memory, Header::default(), &frame);
        assert_eq!(comes_by(&mut taps, port), queue, "port {port}");
    }
    for tap in &mut taps {
        tap.set_receiving(false);
        assert!(tap.descriptor().is_some(), "{:?}", tap.failure);
    }
    for port in 200..230 {
        assert_eq!(comes_by(&mut taps, port), 0);
    }
}

/// A packet from 10.9.0.2 to 10.9.0.1 with an empty datagram without a checksum.
fn ipv4_udp(from: u16, to: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([10, 9, 0, 2, 10, 9, 0, 1]);
    let words = packet
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(from.to_be_bytes());
    packet.extend(to.to_be_bytes());
    packet.extend([0, 8, 0, 0]);
    packet
}

#[test]
fn several_queues_of_a_tap_that_has_one_are_refused() {
    if !inside("wires::tap::tests::several_queues_of_a_tap_that_has_one_are_refused") {
        return;
    }
    sh("ip tuntap add dev card0 mode tap vnet_hdr");
    let error = Tap::open("card0", 2).unwrap_err();
    assert!(
        error.to_string().contains("vnet_hdr multi_queue"),
        "{error}"
    );
    assert_eq!(Tap::open("card0", 1).unwrap().len(), 1);
}

#[test]
fn a_tap_that_goes_is_read_no_more() {
    if !inside("wires::tap::tests::a_tap_that_goes_is_read_no_more") {
        return;
    }
    let (mut tap, memory) = (tap(), memory());
    assert!(tap.descriptor().is_some());
    sh("ip link delete card0");
    assert_eq!(tap.receive(&memory, &pieces(1, 1500)), Received::Nothing);
    assert!(tap.descriptor().is_none());
    tap.tell_failure();
    assert!(matches!(tap.failure, Failure::Told));
}

/// Two taps of stations that share a bridge, and memory for a unit of each.
fn two_taps() -> (Tap, Tap, Mapping, Vec<Span>) {
    // One that snoops says by IGMP that it looks for multicast routers (RFC 4286).
    sh("ip link add br0 type bridge mcast_snooping 0
        echo 1 > /proc/sys/net/ipv6/conf/br0/disable_ipv6
        ip link set br0 up
        for n in 0 1; do
            ip tuntap add dev card$n mode tap vnet_hdr
            echo 1 > /proc/sys/net/ipv6/conf/card$n/disable_ipv6
            ip link set card$n master br0
        done");
    let taps = [open("card0").unwrap(), open("card1").unwrap()];
    sh("ip link set card0 up
        ip link set card1 up");
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    let len = 0x60000;
    ftruncate(&file, len).unwrap();
    let place = Place {
        guest: 0,
        len,
        offset: 0,
    };
    let memory = Mapping::new(&[(place, file)]).unwrap();
    let [first, second] = taps;
    let room = (0..100).map(|n| Span {
        address: 0x20000 + n * 0x900,
        len: 0x800,
    });
    (first, second, memory, room.collect())
}

fn send(tap: &mut Tap, memory: &Mapping, header: Header, bytes: &[u8]) {
    memory.write(0, bytes).unwrap();
    let span = Span {
        address: 0,
        len: bytes.len() as u32,
    };
    let unit = Unit {
        header,
        head: &[],
        spans: &[span],
        len: bytes.len(),
    };
    assert!(tap.send(memory, &unit));
}

const LINK: Link = Link {
    v6: false,
    tagged: false,
    id: 1,
    host: 1,
};
const FIELDS: TcpFields = TcpFields {
    port: 80,
    sequence: 1,
    flags: 0x10,
    options: false,
};

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

/// The first `len` bytes.
fn first(memory: &Mapping, room: &[Span], len: usize) -> Vec<u8> {
    let mut all = bytes(memory, room);
    all.truncate(len);
    all
}

#[test]
fn segments_are_cut_for_those_who_take_frames_alone() {
    if !inside("wires::tap::tests::segments_are_cut_for_those_who_take_frames_alone") {
        return;
    }
    let (mut from, mut to, memory, room) = two_taps();
    assert_eq!(to.max_unit(), 1518);
    let (partial, unit) = incomplete(&tcp(LINK, FIELDS, &payload(20_000)));
    let header = Header {
        gso_type: 1,
        gso_size: 1000,
        hdr_len: 54,
        ..partial
    };
    let large = feature::GUEST_CSUM | feature::GUEST_TSO4;
    to.agree(large);
    assert_eq!(to.max_unit(), LONGEST_UNIT);
    send(&mut from, &memory, header, &unit);
    let len = unit.len();
    assert_eq!(
        receive(&mut to, &memory, &room),
        Received::Unit { header, len }
    );
    assert_eq!(first(&memory, &room, len), unit);
    to.agree(0);
    assert_eq!(to.max_unit(), 1518);
    send(&mut from, &memory, header, &unit);
    for _ in 0..20 {
        let got = receive(&mut to, &memory, &room);
        let Received::Unit { header, len: 1054 } = got else {
            panic!("{got:?}");
        };
        assert_eq!(header.gso_type, 0);
        assert!(is_right(&first(&memory, &room, 1054)));
    }
}

/// Datagrams of one flow: one unit for who takes them so, frames for others.
#[test]
fn datagrams_of_one_flow_are_a_unit_or_frames() {
    if !inside("wires::tap::tests::datagrams_of_one_flow_are_a_unit_or_frames") {
        return;
    }
    let (mut from, mut to, memory, room) = two_taps();
    if !kernel_knows_uso() {
        assert_eq!(from.offloads() & Tap::USO, 0);
        return;
    }
    assert_eq!(from.offloads() & Tap::USO, Tap::USO);
    for v6 in [false, true] {
        let link = Link { v6, ..LINK };
        uso_between(&mut from, &mut to, (&memory, &room), link);
    }
}

fn uso_between(from: &mut Tap, to: &mut Tap, (memory, room): (&Mapping, &[Span]), link: Link) {
    let payload = payload(20_000);
    let (partial, unit) = incomplete(&udp(link, &payload));
    let head = usize::from(partial.csum_start) + 8;
    let header = Header {
        gso_type: 5,
        gso_size: 1000,
        hdr_len: head as u16,
        ..partial
    };
    to.agree(feature::GUEST_CSUM | feature::GUEST_USO);
    assert_eq!(to.max_unit(), LONGEST_UNIT);
    send(from, memory, header, &unit);
    let len = unit.len();
    let got = receive(to, memory, room);
    assert_eq!(got, Received::Unit { header, len });
    assert_eq!(first(memory, room, len), unit);
    to.agree(feature::GUEST_CSUM | feature::GUEST_TSO4);
    send(from, memory, header, &unit);
    for (n, part) in payload.chunks(1000).enumerate() {
        let got = receive(to, memory, room);
        let Received::Unit { header, len } = got else {
            panic!("{got:?}");
        };
        assert_eq!((header.gso_type, len), (0, head + 1000));
        let link = Link {
            id: link.id + n as u16,
            ..link
        };
        let frame = completed(header, &first(memory, room, len));
        assert_eq!(frame, udp(link, part));
    }
}

/// What comes through the card's offloads.
fn receive_joined(
    card: &mut Offload<HostWire>,
    memory: &Mapping,
    room: &[Span],
) -> (Header, Vec<u8>) {
    loop {
        match card.receive(memory, room, Duration::ZERO) {
            Received::Unit { header, len } => return (header, first(memory, room, len)),
            Received::Nothing => {
                let file = card.wire().descriptor().expect("a tap without failure");
                poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::IN)], None).unwrap();
            }
            Received::Kept => {}
            Received::TooLong => panic!("too long"),
        }
    }
}

#[test]
fn frames_that_follow_each_other_are_joined() {
    if !inside("wires::tap::tests::frames_that_follow_each_other_are_joined") {
        return;
    }
    let (mut from, to, memory, room) = two_taps();
    let mut to = Offload::new(HostWire::Tap(to));
    Wire::<Mapping>::agree(&mut to, feature::GUEST_CSUM | feature::GUEST_TSO4);
    let whole = payload(10_000);
    for (n, part) in whole.chunks(1000).enumerate() {
        let link = Link {
            id: n as u16,
            ..LINK
        };
        let sequence = 1 + 1000 * n as u32;
        let frame = tcp(link, TcpFields { sequence, ..FIELDS }, part);
        send(&mut from, &memory, Header::default(), &frame);
    }
    let (header, unit) = receive_joined(&mut to, &memory, &room);
    assert_eq!((header.gso_type, header.gso_size), (1, 1000));
    let link = Link { id: 0, ..LINK };
    assert_eq!(unit, incomplete(&tcp(link, FIELDS, &whole)).1);
}

#[test]
fn fragments_of_the_kernel_are_put_together() {
    if !inside("wires::tap::tests::fragments_of_the_kernel_are_put_together") {
        return;
    }
    for v6 in [false, true] {
        let link = Link { v6, ..LINK };
        let (mut from, mut to, memory, room) = two_taps();
        let whole = udp(link, &payload(30_000));
        let (partial, unit) = incomplete(&whole);
        let header = Header {
            gso_type: 3,
            gso_size: 1448,
            hdr_len: partial.csum_start + 8,
            ..partial
        };
        // The kernel's own.
        send(&mut from, &memory, header, &unit);
        let mut fragments = Vec::new();
        for _ in 0..30_008usize.div_ceil(1448) {
            let got = receive(&mut to, &memory, &room);
            let Received::Unit { len, .. } = got else {
                panic!("{got:?}");
            };
            fragments.push(first(&memory, &room, len));
        }
        assert!(fragments.iter().all(|frame| frame.len() <= 1514));
        let mut to = Offload::new(HostWire::Tap(to));
        Wire::<Mapping>::agree(&mut to, feature::GUEST_CSUM | feature::GUEST_UFO);
        send(&mut from, &memory, header, &unit);
        let (header, joined) = receive_joined(&mut to, &memory, &room);
        assert_eq!((header.gso_type, header.gso_size), (3, 1448));
        assert_eq!(joined, whole);
        drop((from, to));
        sh("ip link delete br0; ip link delete card0; ip link delete card1");
    }
}
