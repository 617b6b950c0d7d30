//! Both ends of a cable in a network namespace of its own: a guest at `one`, and the kernel or another guest at `two`.

use std::net::UdpSocket;
use std::thread::sleep;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wireboot_card::GuestMemory;
use wireboot_card::testing::packets::{Link as Packets, TcpFields, incomplete, is_right, tcp, udp};
use wireboot_namespace::{inside, sh};

use super::*;
use crate::wires::testing::{content, kernel_knows_uso, memory, room, with_unit};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Those of `two`'s frames below.
const PACKETS: Packets = Packets {
    v6: false,
    tagged: false,
    id: 7,
    host: 1,
};

const FIELDS: TcpFields = TcpFields {
    port: 1000,
    sequence: 5,
    flags: 0x18,
    options: false,
};

/// Makes both ends; the kernel has 10.9.0.1 at `two`, and takes the guest at `one` for 10.9.0.2.
fn cable() {
    sh("ip link add one type veth peer name two
        for end in one two; do
            echo 1 > /proc/sys/net/ipv6/conf/$end/disable_ipv6
            ip link set $end mtu 1400
            ip link set $end up
        done
        ip address add 10.9.0.1/24 dev two
        ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:01 dev two");
}

fn open(name: &str) -> Packet {
    Packet::open(name, None).unwrap()
}

/// Waits for a unit.
fn receive(packet: &mut Packet, memory: &Mapping, room: &[Span]) -> Received {
    loop {
        let got = packet.receive(memory, room);
        if got != Received::Nothing {
            return got;
        }
        let mut polled = [PollFd::from_borrowed_fd(packet.descriptor(), PollFlags::IN)];
        let long = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut polled, Some(&long)).unwrap(), 1, "nothing comes");
    }
}

/// The next frame, whose header is `plain`.
fn frame(packet: &mut Packet, memory: &Mapping) -> Vec<u8> {
    let room = room(700);
    match receive(packet, memory, &room) {
        Received::Unit { header, len } => {
            assert_eq!(header, Header::default());
            content(memory, &room, len)
        }
        other => panic!("{other:?}"),
    }
}

fn send(packet: &mut Packet, memory: &Mapping, header: Header, bytes: &[u8]) -> bool {
    with_unit(memory, bytes, 3000, |unit| {
        packet.send(memory, &Unit { header, ..*unit })
    })
}

/// A unit of `len` bytes of payload, to be cut to 1000 each.
fn large(len: usize) -> (Header, Vec<u8>) {
    let payload: Vec<u8> = (0..len).map(|n| (n * 7 % 251) as u8).collect();
    let (header, unit) = incomplete(&tcp(PACKETS, FIELDS, &payload));
    let header = Header {
        gso_type: 1,
        gso_size: 1000,
        hdr_len: header.csum_start + 20,
        ..header
    };
    (header, unit)
}

#[test]
fn what_came_before_a_restart_is_nobodys() {
    if !inside("wires::packet::tests::what_came_before_a_restart_is_nobodys") {
        return;
    }
    cable();
    let (mut one, memory) = (open("one"), memory());
    let socket = UdpSocket::bind("10.9.0.1:70").unwrap();
    let send = |packet: &Packet, len: usize| {
        socket.send_to(&vec![0; len], "10.9.0.2:9").unwrap();
        let mut polled = [PollFd::from_borrowed_fd(packet.descriptor(), PollFlags::IN)];
        poll(&mut polled, None).unwrap();
    };
    send(&one, 100);
    one.restart();
    assert_eq!(one.receive(&memory, &room(1418)), Received::Nothing);
    send(&one, 200);
    let got = receive(&mut one, &memory, &room(1418));
    assert!(matches!(got, Received::Unit { len: 242, .. }), "{got:?}");
    // What the kernel says meanwhile is not lost.
    sh("ip link set one down");
    one.restart();
    assert_eq!(one.link, Link::Down);
}

#[test]
fn frames_come_from_the_kernel_and_go_there() {
    if !inside("wires::packet::tests::frames_come_from_the_kernel_and_go_there") {
        return;
    }
    cable();
    let (mut one, memory) = (open("one"), memory());
    assert_eq!(one.max_unit(), 1418);
    let socket = UdpSocket::bind("10.9.0.1:70").unwrap();
    let payload: Vec<u8> = (0..1000u32).map(|n| n as u8).collect();
    // One buffer, several, and more than the kernel takes at once.
    for each in [1418, 200, 12] {
        socket.send_to(&payload, "10.9.0.2:9").unwrap();
        let room = room(each);
        let got = receive(&mut one, &memory, &room);
        let len = 14 + 20 + 8 + payload.len();
        let header = Header::default();
        assert_eq!(got, Received::Unit { header, len });
        let frame = content(&memory, &room, len);
        assert_eq!(frame[..6], MAC);
        assert_eq!(frame[42..], payload);
        assert!(is_right(&frame));
    }
    // The kernel leaves checksums to a guest that takes them.
    one.agree(feature::GUEST_CSUM);
    socket.send_to(&payload, "10.9.0.2:9").unwrap();
    let got = receive(&mut one, &memory, &room(1418));
    let Received::Unit { header, .. } = got else {
        panic!("{got:?}");
    };
    let said = (header.flags, header.csum_start, header.csum_offset);
    assert_eq!(said, (1, 34, 6));
    // To 10.0.0.2, port 70.
    sh("ip address add 10.0.0.2/24 dev two
        ip link set two address 02:00:00:00:00:02");
    let socket = UdpSocket::bind("10.0.0.2:70").unwrap();
    let mut got = [0; 2000];
    for each in [2000, 12] {
        let datagram = udp(PACKETS, b"to the kernel");
        assert!(with_unit(&memory, &datagram, each, |unit| one.send(&memory, unit)));
        assert_eq!(socket.recv(&mut got).unwrap(), 13);
        assert_eq!(&got[..13], b"to the kernel");
    }
    // What it sends itself, and what this host sends by the interface, are no news to it.
    sh("ip address add 10.8.0.1/24 dev one
        ip neighbour add 10.8.0.2 lladdr 02:00:00:00:00:08 dev one");
    let host = UdpSocket::bind("10.8.0.1:0").unwrap();
    host.send_to(b"by one", "10.8.0.2:9").unwrap();
    assert_eq!(one.receive(&memory, &room(1418)), Received::Nothing);
    // No frame is so short.
    assert!(!send(&mut one, &memory, Header::default(), &[0; 13]));
}

/// Segments and checksums that the kernel has left open reach a guest that takes neither as a sender would have made them, and one that takes them
/// as they are.
#[test]
fn large_units_are_cut_for_a_guest_that_takes_none() {
    if !inside("wires::packet::tests::large_units_are_cut_for_a_guest_that_takes_none") {
        return;
    }
    cable();
    let (mut one, mut two, memory) = (open("one"), open("two"), memory());
    let (header, unit) = large(3500);
    assert!(send(&mut two, &memory, header, &unit));
    let payload = &unit[54..];
    for (n, part) in payload.chunks(1000).enumerate() {
        let fields = TcpFields {
            sequence: FIELDS.sequence + 1000 * n as u32,
            flags: if n == 3 { 0x18 } else { 0x10 },
            ..FIELDS
        };
        let link = Packets {
            id: PACKETS.id + n as u16,
            ..PACKETS
        };
        assert_eq!(frame(&mut one, &memory), tcp(link, fields, part), "{n}");
    }
    assert_eq!(one.receive(&memory, &room(700)), Received::Nothing);
    // What is left of a unit is not the next driver's.
    assert!(send(&mut two, &memory, header, &unit));
    frame(&mut one, &memory);
    let features = feature::GUEST_CSUM | feature::GUEST_TSO4;
    one.agree(features);
    assert_eq!(one.max_unit(), LONGEST_UNIT);
    assert_eq!(one.receive(&memory, &room(700)), Received::Nothing);
    assert!(send(&mut two, &memory, header, &unit));
    let room = room(4000);
    let got = receive(&mut one, &memory, &room);
    let Received::Unit { header: said, len } = got else {
        panic!("{got:?}");
    };
    assert_eq!((said.gso_type, said.gso_size, said.flags), (1, 1000, 1));
    assert!(content(&memory, &room, len) == unit);
}

/// Datagrams of one flow are a unit for who takes them so.
#[test]
fn units_of_datagrams_come_to_a_guest_that_takes_them() {
    if !inside("wires::packet::tests::units_of_datagrams_come_to_a_guest_that_takes_them") {
        return;
    }
    cable();
    let (mut one, mut two, memory) = (open("one"), open("two"), memory());
    let (partial, unit) = incomplete(&udp(PACKETS, &[7; 3500]));
    let header = Header {
        gso_type: 5,
        gso_size: 1000,
        hdr_len: 42,
        ..partial
    };
    assert_eq!(send(&mut two, &memory, header, &unit), kernel_knows_uso());
    if !kernel_knows_uso() {
        return;
    }
    let (id, part) = (PACKETS.id, &[7; 1000]);
    assert_eq!(frame(&mut one, &memory), udp(PACKETS, part));
    one.agree(feature::GUEST_CSUM | feature::GUEST_USO4);
    assert_eq!(one.receive(&memory, &room(700)), Received::Nothing);
    // Of one IP version alone is none: a unit does not say of which it is.
    assert!(send(&mut two, &memory, header, &unit));
    for n in 0..3 {
        let link = Packets {
            id: id + n,
            ..PACKETS
        };
        assert_eq!(frame(&mut one, &memory), udp(link, part));
    }
    one.agree(feature::GUEST_CSUM | feature::GUEST_USO);
    assert_eq!(one.max_unit(), LONGEST_UNIT);
    assert!(send(&mut two, &memory, header, &unit));
    let room = room(4000);
    let got = receive(&mut one, &memory, &room);
    let Received::Unit { header: said, len } = got else {
        panic!("{got:?}");
    };
    assert_eq!((said.gso_type, said.gso_size, said.flags), (5, 1000, 1));
    assert!(content(&memory, &room, len) == unit);
}

/// The kernel has taken the tag out before.
#[test]
fn tags_are_where_they_were() {
    if !inside("wires::packet::tests::tags_are_where_they_were") {
        return;
    }
    cable();
    let (mut one, mut two, memory) = (open("one"), open("two"), memory());
    let tagged = Packets {
        tagged: true,
        ..PACKETS
    };
    let small = udp(tagged, b"in VLAN 5");
    let long = tcp(tagged, FIELDS, &[9; 1300]);
    for bytes in [&small, &long] {
        assert!(send(&mut two, &memory, Header::default(), bytes));
        assert!(frame(&mut one, &memory) == *bytes);
        // Its checksum is still to be completed.
        let (header, open) = incomplete(bytes);
        assert!(send(&mut two, &memory, header, &open));
        assert!(frame(&mut one, &memory) == *bytes);
    }
    one.agree(feature::GUEST_CSUM);
    let (header, open) = incomplete(&small);
    assert!(send(&mut two, &memory, header, &open));
    let room = room(700);
    let got = receive(&mut one, &memory, &room);
    let Received::Unit { header: said, len } = got else {
        panic!("{got:?}");
    };
    assert_eq!((said.flags, said.csum_start), (1, header.csum_start));
    assert!(content(&memory, &room, len) == open);
}

#[test]
fn a_known_address_has_its_own_frames_and_those_for_many() {
    if !inside("wires::packet::tests::a_known_address_has_its_own_frames_and_those_for_many") {
        return;
    }
    cable();
    let (mut all, mut two, memory) = (open("one"), open("two"), memory());
    let mut own = Packet::open("one", Some(MAC)).unwrap();
    let to = |mac: [u8; 6]| [&mac[..], &[2, 0, 0, 0, 0, 9, 0x88, 0xb5], &[1; 60]].concat();
    let others = [
        [2, 0, 0, 0, 0, 2],
        [2, 0, 0, 0, 1, 1],
        [2, 1, 0, 0, 0, 1],
        [6, 0, 0, 0, 0, 1],
    ];
    let many = [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1]];
    for mac in others.into_iter().chain([MAC]).chain(many) {
        assert!(send(&mut two, &memory, Header::default(), &to(mac)));
        assert_eq!(frame(&mut all, &memory)[..6], mac);
    }
    for mac in [MAC].into_iter().chain(many) {
        assert_eq!(frame(&mut own, &memory)[..6], mac);
    }
    assert_eq!(own.receive(&memory, &room(700)), Received::Nothing);
}

#[test]
fn a_known_address_is_the_only_one_that_frames_are_from() {
    if !inside("wires::packet::tests::a_known_address_is_the_only_one_that_frames_are_from") {
        return;
    }
    cable();
    let (mut two, memory) = (open("two"), memory());
    let mut own = Packet::open("one", Some(MAC)).unwrap();
    let from = |mac: [u8; 6]| [&[0xff; 6][..], &mac, &[0x88, 0xb5], &[1; 60]].concat();
    let other = [2, 0, 0, 0, 0, 2];
    // The first bytes are the card's own, with both addresses or with one and a part, and the rest the guest's, in pieces.
    for (head, each) in [(10, 3000), (10, 1), (14, 20), (0, 5)] {
        for (mac, goes) in [(other, false), (MAC, true)] {
            let frame = from(mac);
            let (head, rest) = frame.split_at(head);
            memory.write(0, rest).unwrap();
            let span = |at: usize| Span {
                address: at as u64,
                len: (rest.len() - at).min(each) as u32,
            };
            let spans: Vec<Span> = (0..rest.len()).step_by(each).map(span).collect();
            let unit = Unit {
                header: Header::default(),
                head,
                spans: &spans,
                len: frame.len(),
            };
            assert_eq!(own.send(&memory, &unit), goes);
        }
        assert!(frame(&mut two, &memory) == from(MAC));
    }
    assert_eq!(two.receive(&memory, &room(700)), Received::Nothing);
}

#[test]
fn an_interface_may_go_down_and_come_back() {
    if !inside("wires::packet::tests::an_interface_may_go_down_and_come_back") {
        return;
    }
    cable();
    let (mut one, mut two, memory) = (open("one"), open("two"), memory());
    sh("ip link set one down");
    assert_eq!(one.receive(&memory, &room(700)), Received::Nothing);
    assert_eq!(one.link, Link::Down);
    one.tell_failure();
    assert_eq!(one.link, Link::Told);
    sh("ip link set one up");
    let bytes = udp(PACKETS, b"again");
    let room = room(700);
    // The first ones are lost, as long as the other end has no carrier.
    let len = loop {
        send(&mut two, &memory, Header::default(), &bytes);
        if let Received::Unit { len, .. } = one.receive(&memory, &room) {
            break len;
        }
        sleep(Duration::from_millis(10));
    };
    assert_eq!(content(&memory, &room, len), bytes);
    assert_eq!(one.link, Link::Up);
}

#[test]
fn what_is_no_interface_is_refused() {
    if !inside("wires::packet::tests::what_is_no_interface_is_refused") {
        return;
    }
    let open = |name| Packet::open(name, None).unwrap_err();
    let missing = open("none0");
    assert!(matches!(missing, PacketError::Missing(_)), "{missing}");
    for name in ["", "a/b", "longer-than-15-b"] {
        assert!(matches!(open(name), PacketError::Name(_)), "{name}");
    }
}
