//! The host over a simulated wire, on which a few neighbours and servers are.

use super::*;
use alloc::boxed::Box;
use alloc::string::String;
use proptest::prelude::*;
use std::collections::BTreeMap;
use wireboot_wire::dhcp::{Message, MessageType, PxeOptions, option};
use wireboot_wire::dhcpv6::{self, Writer};

const MAC: MacAddress = [2, 0, 0, 0, 0, 1];
const PEER_MAC: MacAddress = [2, 0, 0, 0, 0, 9];
const IGMP: u8 = 2;
const STEP: Duration = Duration::from_millis(5);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// What somebody does with a datagram: those that it sends.
type Service = Box<dyn FnMut(&Datagram) -> Vec<(SocketAddr, SocketAddr, Vec<u8>)>>;

/// A wire with a neighbour on it, who has some addresses and services.
#[derive(Default)]
struct Wire {
    now: Instant,
    /// So much later it is at each look at the clock.
    step: Duration,
    peers: Vec<IpAddr>,
    services: BTreeMap<u16, Service>,
    to_host: VecDeque<Vec<u8>>,
    /// Frames that the host has sent.
    sent: Vec<Vec<u8>>,
    fragments: Fragments,
    shown: Vec<(bool, Vec<u8>)>,
    /// Packets that may be shown before the caller wants an end.
    patience: Option<usize>,
    /// How long the caller looks at each.
    thinks: Duration,
    /// Frames of the host's that are lost, by their number.
    lost: Vec<usize>,
    /// There is no link.
    cut: bool,
    /// Largest packets that the neighbour sends.
    mtu: usize,
    /// What the neighbour sends all the time to who has spoken last.
    flood: Option<Vec<u8>>,
    spoken: Option<SocketAddr>,
    /// A frame of which there is always another. Each takes a millisecond.
    endless: Option<Vec<u8>>,
}

fn frame(kind: [u8; 2], payload: &[u8]) -> Vec<u8> {
    [&MAC[..], &PEER_MAC, &kind, payload].concat()
}

impl Wire {
    fn new(peers: &[&str]) -> Self {
        Self {
            peers: peers.iter().map(|text| ip(text)).collect(),
            step: STEP,
            mtu: 1500,
            ..Self::default()
        }
    }

    fn serve(&mut self, port: u16, mut answer: impl FnMut(&Datagram) -> Option<Vec<u8>> + 'static) {
        self.serve_from(port, port, move |datagram| answer(datagram));
    }

    fn serve_from(
        &mut self,
        port: u16,
        own: u16,
        mut answer: impl FnMut(&Datagram) -> Option<Vec<u8>> + 'static,
    ) {
        let service = move |datagram: &Datagram| {
            let own = SocketAddr::new(datagram.destination.ip(), own);
            let bytes = answer(datagram);
            bytes
                .into_iter()
                .map(|bytes| (own, datagram.source, bytes))
                .collect()
        };
        self.services.insert(port, Box::new(service));
    }

    fn datagram(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        let header = Header {
            source: from.ip(),
            destination: to.ip(),
            protocol: packet::UDP,
            ttl: 64,
            tos: 0,
            id: 77,
        };
        let udp = packet::udp(from, to, [&[], payload]);
        let kind = if to.is_ipv4() {
            packet::IPV4
        } else {
            packet::IPV6
        };
        for packet in packet::packets(&header, &udp, self.mtu, true).unwrap() {
            self.to_host.push_back(frame(kind, &packet));
        }
    }

    fn icmp6(&mut self, from: IpAddr, to: IpAddr, mut message: Vec<u8>) {
        let sum = packet::checksum(from, to, packet::ICMPV6, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let header = Header {
            source: from,
            destination: to,
            protocol: packet::ICMPV6,
            ttl: 255,
            tos: 0,
            id: 0,
        };
        let packet = packet::packets(&header, &message, 1500, false).unwrap();
        self.to_host.push_back(frame(packet::IPV6, &packet[0]));
    }

    fn take(&mut self, kind: [u8; 2], payload: &[u8]) {
        if kind == packet::ARP {
            let target = IpAddr::from(<[u8; 4]>::try_from(&payload[24..28]).unwrap());
            if self.peers.contains(&target) {
                let mut reply = payload.to_vec();
                reply[7] = 2;
                reply[18..28].copy_from_slice(&payload[8..18]);
                reply[8..14].copy_from_slice(&PEER_MAC);
                reply[14..18].copy_from_slice(&payload[24..28]);
                self.to_host.push_back(frame(packet::ARP, &reply));
            }
            return;
        }
        let ip = packet::parse(kind, payload).expect("a packet");
        if ip.protocol == packet::ICMPV6 {
            return self.discovery(&ip);
        }
        if ip.protocol == IGMP {
            return;
        }
        let bytes = match ip.fragment {
            None => Some(ip.payload.to_vec()),
            Some(part) => self.fragments.take(&ip, part, self.now),
        };
        let Some(bytes) = bytes else { return };
        let (source, destination, payload) =
            packet::datagram(ip.source, ip.destination, &bytes).expect("a datagram");
        let datagram = Datagram {
            source,
            destination,
            payload: payload.to_vec(),
        };
        self.spoken = Some(source);
        let service = self.services.get_mut(&destination.port());
        let answers = service
            .map(|service| service(&datagram))
            .unwrap_or_default();
        for (from, to, payload) in answers {
            self.datagram(from, to, &payload);
        }
    }

    fn discovery(&mut self, ip: &Ip<'_>) {
        match ip.payload[0] {
            135 => {
                let target: [u8; 16] = ip.payload[8..24].try_into().unwrap();
                if self.peers.contains(&target.into()) {
                    let mut message = alloc::vec![136, 0, 0, 0, 0x60, 0, 0, 0];
                    message.extend(target);
                    message.extend([2, 1]);
                    message.extend(PEER_MAC);
                    self.icmp6(target.into(), ip.source, message);
                }
            }
            133 if self.peers.contains(&self::ip("fe80::9")) => {
                let mut message = alloc::vec![134, 0, 0, 0, 64, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0];
                message.extend([1, 1]);
                message.extend(PEER_MAC);
                self.icmp6(self::ip("fe80::9"), ip.source, message);
            }
            _ => {}
        }
    }
}

impl Port for Wire {
    fn now(&mut self) -> Instant {
        self.now += self.step;
        if let (Some(payload), Some(to)) = (self.flood.clone(), self.spoken) {
            self.datagram("10.0.0.9:3000".parse().unwrap(), to, &payload);
        }
        self.now
    }

    fn link_up(&self) -> bool {
        !self.cut
    }

    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool {
        let number = self.sent.len();
        self.sent.push([&header[..], payload].concat());
        if !self.lost.contains(&number) {
            self.take([header[12], header[13]], payload);
        }
        true
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        if let Some(frame) = &self.endless
            && self.now < Instant::ZERO + Duration::from_secs(1000)
        {
            self.now += Duration::from_millis(1);
            return Some(frame.clone());
        }
        self.to_host.pop_front()
    }

    fn show(&mut self, received: bool, packet: &[u8]) -> bool {
        if !packet.is_empty() {
            self.shown.push((received, packet.to_vec()));
            self.now += self.thinks;
        }
        self.patience.is_none_or(|most| self.shown.len() <= most)
    }
}

fn host(address: &str) -> Host {
    let mut host = Host::new(MAC, 1500, [7; 32]);
    let len = if ip(address).is_ipv4() { 24 } else { 64 };
    host.configure(ip(address), len, None);
    host
}

fn outgoing<'a>(to: &str, payload: &'a [u8]) -> Outgoing<'a> {
    Outgoing {
        to: to.parse().unwrap(),
        gateway: None,
        source: None,
        source_port: Some(2000),
        parts: [&[], payload],
        may_fragment: true,
    }
}

const ANYTHING: Expected = Expected {
    destination: None,
    destination_port: None,
    source: None,
    source_port: None,
    use_filter: false,
};

#[test]
fn an_echo_of_any_length_comes_back_over_either_version() {
    for (own, peer) in [("10.0.0.1", "10.0.0.9:7"), ("fd00::1", "[fd00::9]:7")] {
        for len in [0, 1, 1451, 1452, 1472, 1473, 4000, 65_000] {
            let mut wire = Wire::new(&["10.0.0.9", "fd00::9"]);
            wire.serve(7, |datagram| Some(datagram.payload.clone()));
            let mut host = host(own);
            let payload: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
            let mut what = outgoing(peer, &payload);
            what.parts = payload.split_at(len / 3).into();
            assert_eq!(host.udp_write(&mut wire, &what), Ok(2000));
            let back = host.udp_read(&mut wire, &ANYTHING).unwrap();
            assert_eq!(
                (back.source, back.destination),
                (what.to, SocketAddr::new(ip(own), 2000))
            );
            assert!(back.payload == payload, "{own} {len}");
            assert!(
                wire.sent
                    .iter()
                    .all(|frame| frame.len() <= 1514 && frame[6..12] == MAC)
            );
        }
    }
}

#[test]
fn what_may_not_be_fragmented_and_does_not_fit_is_refused() {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let mut host = host("10.0.0.1");
    for (len, fragment, expected) in [
        (1472, false, Ok(2000)),
        (1473, false, Err(Refusal::BadBufferSize)),
        (65_507, true, Ok(2000)),
        (65_508, true, Err(Refusal::BadBufferSize)),
    ] {
        let payload = alloc::vec![1; len];
        let mut what = outgoing("10.0.0.9:7", &payload);
        what.may_fragment = fragment;
        assert_eq!(host.udp_write(&mut wire, &what), expected, "{len}");
    }
}

#[test]
fn headers_say_what_was_set() {
    let mut wire = Wire::new(&["10.0.0.9", "10.0.0.254"]);
    let mut host = host("10.0.0.1");
    (host.ttl, host.tos) = (9, 0x44);
    let mut what = outgoing("192.0.2.7:7", b"x");
    what.gateway = Some(ip("10.0.0.254"));
    what.source = Some(ip("10.0.0.77"));
    host.udp_write(&mut wire, &what).unwrap();
    let sent = wire.sent.last().unwrap();
    assert_eq!((sent[15], sent[22]), (0x44, 9));
    assert_eq!(sent[26..34], [10, 0, 0, 77, 192, 0, 2, 7]);
    // By the gateway, who was asked for.
    assert_eq!(wire.sent[0][38..42], [10, 0, 0, 254]);
    assert_eq!(sent[..6], PEER_MAC);
}

#[test]
fn ports_are_chosen_and_told() {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let mut host = host("10.0.0.1");
    let mut what = outgoing("10.0.0.9:7", b"x");
    what.source_port = None;
    let chosen = host.udp_write(&mut wire, &what).unwrap();
    assert!(chosen >= 0xc000);
    assert_eq!(wire.sent.last().unwrap()[34..36], chosen.to_be_bytes());
}

#[test]
fn impossible_datagrams_are_refused() {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let mut host = host("10.0.0.1");
    let refused = Err(Refusal::InvalidParameter);
    assert_eq!(
        host.udp_write(&mut wire, &outgoing("0.0.0.0:7", b"")),
        refused
    );
    assert_eq!(
        host.udp_write(&mut wire, &outgoing("[fd00::9]:7", b"")),
        refused
    );
    for gateway in ["0.0.0.0", "224.0.0.1", "10.0.0.255"] {
        let mut what = outgoing("10.0.0.9:7", b"");
        what.gateway = Some(ip(gateway));
        assert_eq!(host.udp_write(&mut wire, &what), refused);
    }
    host.configure(ip("0.0.0.0"), 0, None);
    assert_eq!(
        host.udp_write(&mut wire, &outgoing("10.0.0.9:7", b"")),
        refused
    );
    assert!(wire.sent.is_empty());
}

#[test]
fn who_does_not_answer_is_waited_for_and_no_longer() {
    let mut wire = Wire::new(&[]);
    let mut host = host("10.0.0.1");
    let timeout = Err(Refusal::Timeout);
    assert_eq!(
        host.udp_write(&mut wire, &outgoing("10.0.0.8:7", b"")),
        timeout
    );
    assert_eq!(wire.sent.len(), 3);
    let before = wire.now;
    let read = host.udp_read(&mut wire, &ANYTHING);
    assert_eq!(read, Err(Refusal::Timeout));
    let waited = (wire.now - before).total_millis();
    assert!((3000..3050).contains(&waited), "{waited}");
}

#[test]
fn groups_and_broadcasts_need_no_neighbour() {
    let mut wire = Wire::new(&[]);
    let mut four = host("10.0.0.1");
    for (to, mac) in [
        ("255.255.255.255:7", [0xff; 6]),
        ("10.0.0.255:7", [0xff; 6]),
        ("224.0.1.2:7", [1, 0, 0x5e, 0, 1, 2]),
    ] {
        four.udp_write(&mut wire, &outgoing(to, b"")).unwrap();
        assert_eq!(wire.sent.pop().unwrap()[..6], mac);
    }
    let mut six = host("fd00::1");
    six.udp_write(&mut wire, &outgoing("[ff02::1:2]:7", b""))
        .unwrap();
    assert_eq!(wire.sent[0][..6], [0x33, 0x33, 0, 1, 0, 2]);
    assert_eq!(wire.sent.len(), 1);
}

#[test]
fn routers_lead_off_the_link() {
    let mut wire = Wire::new(&["10.0.0.254", "fe80::9"]);
    let mut four = host("10.0.0.1");
    four.configure(ip("10.0.0.1"), 24, Some(ip("10.0.0.254")));
    four.udp_write(&mut wire, &outgoing("192.0.2.1:7", b""))
        .unwrap();
    assert_eq!(four.neighbors(), [(ip("10.0.0.254"), PEER_MAC)]);
    let mut six = host("fd00::1");
    six.udp_write(&mut wire, &outgoing("[2001:db8::1]:7", b""))
        .unwrap();
    assert_eq!(six.router(), Some(ip("fe80::9")));
    assert_eq!(six.neighbors(), [(ip("fe80::9"), PEER_MAC)]);
}

#[test]
fn reads_get_what_they_are_for_and_lose_the_rest() {
    let mut wire = Wire::new(&[]);
    let mut host = host("10.0.0.1");
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    let own = at("10.0.0.1:2000");
    let expected = Expected {
        destination: Some(own.ip()),
        destination_port: Some(2000),
        source: Some(ip("10.0.0.9")),
        source_port: Some(7),
        use_filter: false,
    };
    host.set_filter(Filter {
        bits: filter::STATION_IP | filter::BROADCAST,
        list: Vec::new(),
    })
    .unwrap();
    for (from, to) in [
        ("10.0.0.9:7", "10.0.0.255:2000"),
        ("10.0.0.9:7", "10.0.0.1:2001"),
        ("10.0.0.8:7", "10.0.0.1:2000"),
        ("10.0.0.9:8", "10.0.0.1:2000"),
    ] {
        wire.datagram(at(from), at(to), b"not this");
        wire.datagram(at("10.0.0.9:7"), own, b"this");
        let read = host.udp_read(&mut wire, &expected).unwrap();
        assert_eq!(read.payload, b"this", "{from} {to}");
        // With that one field open, the other one is read.
        wire.datagram(at(from), at(to), b"open");
        let open = Expected {
            destination: expected.destination.filter(|one| *one == at(to).ip()),
            destination_port: Some(at(to).port()),
            source: Some(at(from).ip()),
            source_port: Some(at(from).port()),
            use_filter: false,
        };
        assert_eq!(host.udp_read(&mut wire, &open).unwrap().payload, b"open");
    }
}

#[test]
fn filters_decide_what_gets_in() {
    let to = [
        "10.0.0.1:1",
        "255.255.255.255:2",
        "224.0.0.9:3",
        "10.0.0.7:4",
        "224.0.0.8:5",
    ];
    for (bits, list, expected) in [
        (0, &[][..], &[1][..]),
        (filter::STATION_IP, &[], &[1]),
        (filter::BROADCAST, &[], &[1, 2]),
        (filter::PROMISCUOUS_MULTICAST, &[], &[1, 3, 5]),
        (filter::PROMISCUOUS, &[], &[1, 2, 3, 4, 5]),
        (filter::STATION_IP, &["224.0.0.8", "10.0.0.7"], &[1, 4, 5]),
    ] {
        let mut wire = Wire::new(&[]);
        let mut host = host("10.0.0.1");
        let list = list.iter().map(|text| ip(text)).collect();
        host.set_filter(Filter { bits, list }).unwrap();
        for to in to {
            wire.datagram("10.0.0.9:7".parse().unwrap(), to.parse().unwrap(), b"x");
        }
        let mut ports = Vec::new();
        while let Ok(datagram) = host.udp_read(&mut wire, &ANYTHING) {
            ports.push(datagram.destination.port());
        }
        assert_eq!(ports, expected, "{bits}");
    }
}

#[test]
fn the_software_filter_keeps_the_stations_own_out_too() {
    let mut wire = Wire::new(&[]);
    let mut host = host("10.0.0.1");
    let bits = filter::BROADCAST;
    host.set_filter(Filter {
        bits,
        list: Vec::new(),
    })
    .unwrap();
    let filtered = Expected {
        use_filter: true,
        ..ANYTHING
    };
    for to in ["10.0.0.1:1", "10.0.0.255:2"] {
        wire.datagram("10.0.0.9:7".parse().unwrap(), to.parse().unwrap(), b"x");
    }
    let read = host.udp_read(&mut wire, &filtered).unwrap();
    assert_eq!(read.destination.port(), 2);
}

#[test]
fn impossible_filters_are_refused() {
    let mut host = host("10.0.0.1");
    for list in [
        alloc::vec![ip("10.0.0.255")],
        alloc::vec![ip("10.0.0.3"); 9],
    ] {
        let filter = Filter { bits: 1, list };
        assert_eq!(host.set_filter(filter), Err(Refusal::InvalidParameter));
    }
    assert_eq!(*host.filter(), Filter::default());
}

#[test]
fn stations_and_masks_that_cannot_be_are_refused() {
    let mut host = host("10.0.0.1");
    assert_eq!(
        host.set_station(Some(ip("10.0.1.7")), Some(ip("255.255.254.0"))),
        Ok(())
    );
    assert_eq!(host.address(), (ip("10.0.1.7"), 23));
    for (address, mask) in [
        (Some("224.0.0.1"), None),
        (Some("255.255.255.255"), None),
        (Some("127.0.0.1"), None),
        (Some("0.0.0.0"), None),
        (None, Some("255.0.255.0")),
    ] {
        let refused = host.set_station(address.map(ip), mask.map(ip));
        assert_eq!(refused, Err(Refusal::InvalidParameter));
    }
    assert_eq!(host.address(), (ip("10.0.1.7"), 23));
    assert_eq!(host.set_station(None, Some(ip("0.0.0.0"))), Ok(()));
    assert_eq!(host.address().1, 0);
}

#[test]
fn neighbours_are_found_remembered_and_shown() {
    for (own, peer) in [("10.0.0.1", "10.0.0.9"), ("fd00::1", "fd00::9")] {
        let mut wire = Wire::new(&[peer]);
        let mut host = host(own);
        assert_eq!(host.arp(&mut wire, ip(peer)), Ok(PEER_MAC));
        assert_eq!(host.arp(&mut wire, ip(peer)), Ok(PEER_MAC));
        assert_eq!((wire.sent.len(), wire.shown.len()), (1, 1));
        assert_eq!(host.neighbors(), [(ip(peer), PEER_MAC)]);
    }
    let mut wire = Wire::new(&[]);
    let mut host = host("10.0.0.1");
    assert_eq!(host.arp(&mut wire, ip("10.0.0.9")), Err(Refusal::Timeout));
    for odd in ["0.0.0.0", "10.0.0.255", "224.0.0.1"] {
        let refused = host.arp(&mut wire, ip(odd));
        assert_eq!(refused, Err(Refusal::InvalidParameter), "{odd}");
    }
    host.auto_arp = false;
    assert_eq!(
        host.arp(&mut wire, ip("10.0.0.9")),
        Err(Refusal::DeviceError)
    );
    wire.patience = Some(0);
    (host.auto_arp, wire.shown) = (true, Vec::new());
    assert_eq!(host.arp(&mut wire, ip("10.0.0.9")), Err(Refusal::Aborted));
}

#[test]
fn the_cache_holds_eight_and_forgets_the_oldest() {
    let mut wire = Wire::new(&[]);
    wire.peers = (10..20)
        .map(|last| IpAddr::from([10, 0, 0, last]))
        .collect();
    let mut host = host("10.0.0.1");
    for peer in wire.peers.clone() {
        host.arp(&mut wire, peer).unwrap();
    }
    assert_eq!(host.neighbors().len(), NEIGHBORS);
    assert_eq!(host.neighbors()[0].0, ip("10.0.0.12"));
}

#[test]
fn neighbours_that_cannot_be_are_not_believed() {
    let mut host = host("fd00::1");
    let mut wire = Wire::new(&[]);
    let advertisement = |target: &str, options: &[u8]| {
        let IpAddr::V6(target) = ip(target) else {
            panic!("{target}")
        };
        let head = [136, 0, 0, 0, 0x60, 0, 0, 0];
        [&head[..], &target.octets(), options].concat()
    };
    let link = [&[2, 1][..], &PEER_MAC].concat();
    let none = [&link[..], &[14, 0, 0, 0, 0, 0, 0, 0]].concat();
    for (target, options) in [("ff02::9", &link), ("fd00::9", &none)] {
        wire.icmp6(ip("fd00::9"), ip("fd00::1"), advertisement(target, options));
        host.listen(&mut wire).unwrap();
        assert_eq!(host.neighbors(), []);
    }
    let router = |address: &str| {
        let head = [134, 0, 0, 0, 64, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0];
        (ip(address), head.to_vec())
    };
    for (address, known) in [("fd00::8", None), ("fe80::8", Some(ip("fe80::8")))] {
        let (from, message) = router(address);
        wire.icmp6(from, ip("ff02::1"), message);
        host.listen(&mut wire).unwrap();
        assert_eq!(host.router(), known);
    }
    // No station has a group's Ethernet address.
    let (from, mut message) = router("fe80::8");
    message.extend([1, 1, 0x33, 0x33, 0, 0, 0, 1]);
    wire.icmp6(from, ip("ff02::1"), message);
    host.listen(&mut wire).unwrap();
    assert_eq!(host.neighbors(), []);
    wire.icmp6(
        ip("fd00::9"),
        ip("fd00::1"),
        advertisement("fd00::9", &link),
    );
    host.listen(&mut wire).unwrap();
    assert_eq!(host.neighbors(), [(ip("fd00::9"), PEER_MAC)]);
}

/// What a host says of a datagram that came in `frame`.
fn unreachable(frame: &[u8], about: &str) -> Vec<u8> {
    let mut message = alloc::vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(&frame[14..14 + 28]);
    let sum = packet::icmp_checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = Header {
        source: ip(about),
        destination: ip("10.0.0.1"),
        protocol: packet::ICMP,
        ttl: 64,
        tos: 0,
        id: 0,
    };
    let packet = packet::packets(&header, &message, 1500, false).unwrap();
    self::frame(packet::IPV4, &packet[0])
}

#[test]
fn an_icmp_error_ends_what_it_is_about() {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let mut host = host("10.0.0.1");
    host.udp_write(&mut wire, &outgoing("10.0.0.9:7", b"x"))
        .unwrap();
    let error = unreachable(wire.sent.last().unwrap(), "10.0.0.9");
    wire.to_host.push_back(error.clone());
    let from = Expected {
        source: Some(ip("10.0.0.9")),
        ..ANYTHING
    };
    assert_eq!(host.udp_read(&mut wire, &from), Err(Refusal::IcmpError));
    let heard = host.icmp_error().unwrap();
    assert_eq!(
        (heard.about, &heard.message[..2]),
        (ip("10.0.0.9"), &[3, 3][..])
    );
    host.begin();
    assert_eq!(host.icmp_error(), None);
    // Damaged, or about a packet of somebody else's.
    let mut damaged = error.clone();
    *damaged.last_mut().unwrap() ^= 1;
    wire.to_host.push_back(damaged);
    let mut others = error;
    others[14 + 20 + 8 + 15] ^= 1;
    wire.to_host.push_back(others);
    assert_eq!(host.udp_read(&mut wire, &from), Err(Refusal::Timeout));
}

#[test]
fn fragments_that_overlap_or_never_end_are_nobodys() {
    let mut parts = Fragments::default();
    let whole = |offset, more, payload: &'static [u8], id| {
        let ip = Ip {
            source: ip("10.0.0.9"),
            destination: ip("10.0.0.1"),
            protocol: packet::UDP,
            hops: 1,
            payload,
            fragment: None,
        };
        (ip, packet::Fragment { id, offset, more })
    };
    let take = |parts: &mut Fragments, (ip, part): (Ip<'_>, packet::Fragment), now| {
        parts.take(&ip, part, now)
    };
    let now = Instant::ZERO;
    // In any order, and one of them twice.
    assert_eq!(take(&mut parts, whole(8, false, b"end", 1), now), None);
    assert_eq!(take(&mut parts, whole(8, false, b"end", 1), now), None);
    assert_eq!(take(&mut parts, whole(0, true, b"01234567", 2), now), None);
    let done = take(&mut parts, whole(0, true, b"01234567", 1), now);
    assert_eq!(done.as_deref(), Some(&b"01234567end"[..]));
    // An overlap.
    assert_eq!(
        take(&mut parts, whole(0, true, b"0123456701234567", 2), now),
        None
    );
    assert_eq!(take(&mut parts, whole(8, false, b"end", 2), now), None);
    assert_eq!(take(&mut parts, whole(0, true, b"01234567", 3), now), None);
    // Too late.
    let late = now + Duration::from_secs(31);
    assert_eq!(take(&mut parts, whole(8, false, b"end", 3), late), None);
    // Behind the end, not on a boundary, too long.
    assert_eq!(take(&mut parts, whole(0, true, b"0123456", 4), now), None);
    assert_eq!(
        take(&mut parts, whole(65_528, false, b"01234567", 4), now),
        None
    );
    assert_eq!(take(&mut parts, whole(8, true, b"01234567", 5), now), None);
    assert_eq!(take(&mut parts, whole(0, false, b"end", 5), now), None);
}

/// A TFTP server with one file, which writes go to. It talks by 512 bytes, unless asked for another size and `options`.
fn tftp(file: Vec<u8>, options: bool) -> (Wire, alloc::rc::Rc<core::cell::RefCell<Vec<u8>>>) {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let written = alloc::rc::Rc::new(core::cell::RefCell::new(Vec::new()));
    let block = alloc::rc::Rc::new(core::cell::Cell::new(512));
    let (size, content) = (block.clone(), file.clone());
    wire.serve_from(69, 3000, move |datagram| {
        let operation = datagram.payload[1];
        let text = String::from_utf8_lossy(&datagram.payload[2..]).into_owned();
        let fields: Vec<&str> = text.split('\0').collect();
        if fields[0] == "missing" {
            return Some([&[0, 5, 0, 1][..], b"no such file\0"].concat());
        }
        let asked = fields.windows(2).find(|pair| pair[0] == "blksize");
        let mut reply = Vec::new();
        if options {
            reply = alloc::vec![0, 6];
            if let Some(pair) = asked {
                size.set(pair[1].parse().unwrap());
                reply.extend(std::format!("blksize\0{}\0", pair[1]).bytes());
            }
            if operation != 2 {
                reply.extend(std::format!("tsize\0{}\0", content.len()).bytes());
            }
        } else if operation == 2 {
            reply = alloc::vec![0, 4, 0, 0];
        } else {
            reply.extend([0, 3, 0, 1]);
            reply.extend(&content[..content.len().min(512)]);
        }
        Some(reply)
    });
    let (to, mut next) = (written.clone(), 1_usize);
    wire.serve(3000, move |datagram| match datagram.payload[1] {
        4 => {
            let last = usize::from(u16::from_be_bytes([
                datagram.payload[2],
                datagram.payload[3],
            ]));
            let at = last * block.get();
            let end = file.len().min(at + block.get());
            let number = ((last + 1) as u16).to_be_bytes();
            (at <= file.len()).then(|| [&[0, 3], &number[..], &file[at..end]].concat())
        }
        3 => {
            let number = usize::from(u16::from_be_bytes([
                datagram.payload[2],
                datagram.payload[3],
            ]));
            if number == next {
                to.borrow_mut().extend(&datagram.payload[4..]);
                next += 1;
            }
            Some([&[0, 4], &datagram.payload[2..4]].concat())
        }
        _ => None,
    });
    (wire, written)
}

const BOOT: Transfer<'_> = Transfer {
    server: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)),
    file: "boot",
    block_size: None,
};

fn read(
    wire: &mut Wire,
    what: &Transfer<'_>,
    room: Option<u64>,
) -> (Result<u64, Refusal>, Vec<u8>) {
    let mut got = Vec::new();
    let result = host("10.0.0.1").tftp_read(wire, what, Source::File, room, &mut |at, bytes| {
        assert_eq!(at, got.len() as u64);
        got.extend_from_slice(bytes);
    });
    (result, got)
}

#[test]
fn files_come_block_by_block_and_each_packet_is_shown() {
    let file: Vec<u8> = (0..3000).map(|at| (at % 253) as u8).collect();
    for (block_size, options, packets) in [
        (None, false, 13),
        (None, true, 15),
        (Some(1000), true, 11),
        (Some(2000), true, 7),
    ] {
        let (mut wire, _) = tftp(file.clone(), options);
        let what = Transfer { block_size, ..BOOT };
        let (result, got) = read(&mut wire, &what, Some(3000));
        assert_eq!(result, Ok(3000));
        assert!(got == file);
        // The request, then an answer and an acknowledgement each.
        assert_eq!(wire.shown.len(), packets, "{block_size:?}");
        let order = wire.shown.iter().enumerate();
        assert!(
            order
                .clone()
                .all(|(index, (received, _))| *received == (index % 2 == 1))
        );
    }
}

#[test]
fn too_small_a_buffer_is_told_the_size() {
    let (mut wire, _) = tftp(alloc::vec![1; 3000], true);
    let (result, got) = read(&mut wire, &BOOT, Some(2999));
    assert_eq!(result, Err(Refusal::BufferTooSmall(3000)));
    // At once: the request, and an error.
    assert_eq!((got.len(), wire.sent.len()), (0, 3));
    // Without options, by counting.
    let (mut wire, _) = tftp(alloc::vec![1; 3000], false);
    let (result, _) = read(&mut wire, &BOOT, Some(2999));
    assert_eq!(result, Err(Refusal::BufferTooSmall(3000)));
    let (mut wire, _) = tftp(alloc::vec![1; 3000], false);
    assert_eq!(read(&mut wire, &BOOT, None).0, Ok(3000));
}

#[test]
fn a_servers_error_is_kept() {
    let (mut wire, _) = tftp(Vec::new(), true);
    let mut host = host("10.0.0.1");
    let what = Transfer {
        file: "missing",
        ..BOOT
    };
    let result = host.tftp_read(&mut wire, &what, Source::File, None, &mut |_, _| {});
    assert_eq!(result, Err(Refusal::TftpError));
    let expected = TftpError {
        code: 1,
        text: b"no such file".to_vec(),
    };
    assert_eq!(host.tftp_error(), Some(&expected));
}

#[test]
fn lost_packets_are_sent_again_and_a_silent_server_given_up() {
    let file = alloc::vec![3; 1200];
    let (mut wire, _) = tftp(file.clone(), true);
    // The first is ARP's.
    wire.lost = alloc::vec![1, 3, 5];
    assert_eq!(read(&mut wire, &BOOT, None), (Ok(1200), file));
    let (mut wire, _) = tftp(Vec::new(), true);
    wire.lost = (1..100).collect();
    assert_eq!(read(&mut wire, &BOOT, None).0, Err(Refusal::Timeout));
    assert_eq!(wire.sent.len(), 1 + 5);
}

/// A server whose packets bring nothing is as good as silent.
#[test]
fn a_server_that_repeats_itself_is_given_up() {
    let again = [&[0, 3, 0, 1][..], &[5; 512]].concat();
    let acknowledged = alloc::vec![0, 6, b't', b's', b'i', b'z', b'e', 0, b'9', 0];
    let of_another_time = alloc::vec![0, 3, 9, 9];
    for packet in [again, acknowledged, of_another_time] {
        let mut wire = Wire::new(&["10.0.0.9"]);
        for port in [69, 3000] {
            let packet = packet.clone();
            wire.serve_from(port, 3000, move |_| Some(packet.clone()));
        }
        let before = wire.now;
        assert_eq!(read(&mut wire, &BOOT, None).0, Err(Refusal::Timeout));
        let waited = wire.now - before;
        assert!(waited < Duration::from_secs(11), "{waited:?}");
    }
}

/// [`wireboot_fetch::Floor`]: a server that gets on in time each time, by one block, is not kept for ever. What the caller takes to look at
/// packets is none of its time.
#[test]
fn a_server_that_hardly_gets_on_is_given_up() {
    const LEN: usize = 50 * 512;
    let slow = || {
        let (mut wire, _) = tftp(alloc::vec![6; LEN], true);
        let mut served = wire.services.remove(&3000).unwrap();
        let mut asked = 0_u32;
        // Asked each two seconds.
        let late = move |datagram: &Datagram| {
            asked += 1;
            if asked.is_multiple_of(5) {
                served(datagram)
            } else {
                Vec::new()
            }
        };
        wire.services.insert(3000, Box::new(late));
        wire
    };
    let mut wire = slow();
    assert_eq!(read(&mut wire, &BOOT, None).0, Err(Refusal::Timeout));
    assert!(wire.now < Instant::from_secs(60), "{:?}", wire.now);
    let mut wire = slow();
    let written = host("10.0.0.1").tftp_write(&mut wire, &BOOT, &[6; LEN]);
    assert_eq!(written, Err(Refusal::Timeout));
    assert!(wire.now < Instant::from_secs(60), "{:?}", wire.now);
    let (mut wire, _) = tftp(alloc::vec![6; LEN], true);
    wire.thinks = Duration::from_millis(500);
    assert_eq!(read(&mut wire, &BOOT, None).0, Ok(LEN as u64));
    assert!(wire.now > Instant::from_secs(40));
}

/// Somebody else on the server's host, whose packets are not those of the transfer.
#[test]
fn a_strange_packet_does_not_take_the_servers_place() {
    let (mut wire, _) = tftp(alloc::vec![6; 1200], true);
    let mut served = wire.services.remove(&69).unwrap();
    let before = move |datagram: &Datagram| {
        let own = "10.0.0.9:999".parse().unwrap();
        let strange = (own, datagram.source, alloc::vec![0, 3, 9, 9]);
        [alloc::vec![strange], served(datagram)].concat()
    };
    wire.services.insert(69, Box::new(before));
    assert_eq!(read(&mut wire, &BOOT, None).0, Ok(1200));
}

#[test]
fn a_flood_of_strange_packets_ends_in_time() {
    for packet in [&[0, 3, 9, 9][..], b"none at all"] {
        let mut wire = Wire::new(&["10.0.0.9"]);
        wire.flood = Some(packet.to_vec());
        assert_eq!(read(&mut wire, &BOOT, None).0, Err(Refusal::Timeout));
        // It is asked again all the same.
        let asked = wire.shown.iter().filter(|(received, _)| !received);
        assert_eq!(asked.count(), 5);
    }
}

#[test]
fn frames_without_end_keep_no_call_from_its_end() {
    let mut wire = Wire::new(&["10.0.0.9"]);
    wire.endless = Some(frame([0x88, 0xb5], &[0; 46]));
    assert_eq!(read(&mut wire, &BOOT, None).0, Err(Refusal::Timeout));
    assert!(wire.now < Instant::ZERO + Duration::from_secs(500));
}

#[test]
fn a_caller_ends_a_transfer_at_any_packet() {
    for most in 0..6 {
        let (mut wire, _) = tftp(alloc::vec![3; 1200], true);
        wire.patience = Some(most);
        assert_eq!(read(&mut wire, &BOOT, None).0, Err(Refusal::Aborted));
        assert_eq!(wire.shown.len(), most + 1);
    }
}

#[test]
fn files_are_written() {
    for (len, block_size, options) in [
        (0, None, false),
        (511, None, true),
        (512, None, false),
        (3000, None, false),
        (3000, Some(1400), true),
        (2800, Some(1400), true),
    ] {
        let file: Vec<u8> = (0..len).map(|at| (at % 253) as u8).collect();
        let (mut wire, written) = tftp(Vec::new(), options);
        wire.lost = alloc::vec![2];
        let what = Transfer { block_size, ..BOOT };
        assert_eq!(host("10.0.0.1").tftp_write(&mut wire, &what, &file), Ok(()));
        assert!(*written.borrow() == file, "{len}");
    }
}

#[test]
fn lists_are_asked_for_by_an_operation_of_their_own() {
    let (mut wire, _) = tftp(b"a\x001 2026-1-1 0:0:0\0\0".to_vec(), true);
    let mut got = Vec::new();
    let result = host("10.0.0.1").tftp_read(
        &mut wire,
        &BOOT,
        Source::Directory,
        None,
        &mut |_, bytes| got.extend_from_slice(bytes),
    );
    assert_eq!(result, Ok(got.len() as u64));
    assert_eq!(wire.shown[0].1[..2], [0, 7]);
}

/// A DHCP server's message to whoever asked with `request`.
fn reply(kind: MessageType, request: &Message, address: &str) -> Message {
    let mut message = Message::reply(kind, request);
    message.yiaddr = address.parse().unwrap();
    message.options.set(option::SERVER_ID, [10, 0, 0, 9]);
    message.options.set(option::SUBNET_MASK, [255, 255, 0, 0]);
    message.options.set(option::ROUTERS, [10, 0, 0, 254]);
    message
}

/// The client's end of DHCP, whatever address it has.
fn client() -> SocketAddr {
    "255.255.255.255:68".parse().unwrap()
}

fn server(number: u16) -> SocketAddr {
    SocketAddr::new(ip("10.0.0.9"), number)
}

/// A wire with a DHCP server that offers `file`, and, where `proxy` is something, a proxy.
fn dhcp(file: &'static [u8], proxy: Option<&'static [u8]>) -> Wire {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let service = move |datagram: &Datagram| {
        let request = Message::parse(&datagram.payload).unwrap();
        assert_eq!(datagram.source, "0.0.0.0:68".parse().unwrap());
        let kind = request.message_type().unwrap();
        let mut answers = Vec::new();
        let answer = match kind {
            MessageType::Discover => MessageType::Offer,
            _ => MessageType::Ack,
        };
        let mut message = reply(answer, &request, "10.0.3.7");
        message.file = file.to_vec();
        answers.push((server(67), client(), message.emit()));
        if let (Some(file), MessageType::Discover) = (proxy, kind) {
            let mut message = reply(MessageType::Offer, &request, "0.0.0.0");
            message.options.set(option::VENDOR_CLASS, "PXEClient");
            message.file = file.to_vec();
            answers.push((server(67), client(), message.emit()));
        }
        answers
    };
    wire.services.insert(67, Box::new(service));
    wire
}

#[test]
fn dhcp_gives_an_address_and_shows_the_packets() {
    let mut wire = dhcp(b"shim.efi", None);
    let mut host = host("10.0.0.1");
    let mut template = Message::request(MessageType::Discover, 5, MAC);
    template
        .options
        .set(option::VENDOR_CLASS, "PXEClient:Arch:00007");
    template.options.set(option::SERVER_ID, [1, 2, 3, 4]);
    template.options.set(option::CLIENT_ID, [9; 5]);
    let exchange = host.dhcp(&mut wire, Some(&template.emit()), false).unwrap();
    assert_eq!(host.address(), (ip("10.0.3.7"), 16));
    assert_eq!(host.router(), Some(ip("10.0.0.254")));
    let discover = Message::parse(&exchange.discover).unwrap();
    assert_eq!(discover.message_type(), Some(MessageType::Discover));
    assert_eq!(discover.options.get(option::CLIENT_ID), Some(&[9; 5][..]));
    assert_eq!(discover.options.get(option::SERVER_ID), None);
    assert_eq!(
        discover.options.address(option::REQUESTED_ADDRESS),
        Some([10, 0, 0, 1].into())
    );
    assert_ne!(discover.xid, 5);
    let ack = Message::parse(&exchange.ack).unwrap();
    assert_eq!(
        (ack.message_type(), ack.boot_file()),
        (Some(MessageType::Ack), Some("shim.efi"))
    );
    assert_eq!(exchange.proxy_offer, None);
    let shown: Vec<bool> = wire.shown.iter().map(|(received, _)| *received).collect();
    assert_eq!(shown, [false, true, false, true]);
    assert_eq!(wire.shown[0].1, exchange.discover);
    assert_eq!(wire.shown[3].1, exchange.ack);
}

#[test]
fn a_proxy_says_what_to_boot_or_is_asked() {
    let mut wire = dhcp(b"", Some(b"proxy.efi"));
    let exchange = host("10.0.0.1").dhcp(&mut wire, None, true).unwrap();
    let proxy = Message::parse(exchange.proxy_offer.as_deref().unwrap()).unwrap();
    assert_eq!(proxy.boot_file(), Some("proxy.efi"));

    let mut wire = dhcp(b"", Some(b""));
    wire.serve(4011, |datagram| {
        let request = Message::parse(&datagram.payload).unwrap();
        assert_eq!(request.ciaddr, Ipv4Addr::new(10, 0, 3, 7));
        let mut message = reply(MessageType::Ack, &request, "0.0.0.0");
        message.file = b"asked.efi".to_vec();
        Some(message.emit())
    });
    let exchange = host("10.0.0.1").dhcp(&mut wire, None, true).unwrap();
    let proxy = Message::parse(exchange.proxy_offer.as_deref().unwrap()).unwrap();
    assert_eq!(proxy.boot_file(), Some("asked.efi"));
}

#[test]
fn offers_without_end_are_not_kept() {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let flood = |datagram: &Datagram| {
        let request = Message::parse(&datagram.payload).unwrap();
        let mut proxy = reply(MessageType::Offer, &request, "0.0.0.0");
        proxy.options.set(option::VENDOR_CLASS, *b"PXEClient");
        alloc::vec![(server(67), client(), proxy.emit()); 100]
    };
    wire.services.insert(67, Box::new(flood));
    let mut host = host("0.0.0.0");
    let (_, proxies) = {
        let message = host.dhcp_message(MessageType::Discover, 7, None);
        let all = "255.255.255.255:67".parse().unwrap();
        host.dhcp_send(&mut wire, all, &message.emit()).unwrap();
        host.offers(&mut wire, 7, 1).unwrap()
    };
    assert_eq!(proxies.len(), 16);
}

#[test]
fn dhcp_that_fails_changes_nothing() {
    let mut wire = Wire::new(&[]);
    let mut host = host("10.0.0.1");
    let before = wire.now;
    assert_eq!(host.dhcp(&mut wire, None, true), Err(Refusal::Timeout));
    assert!((wire.now - before).total_millis() >= 31_000);
    assert_eq!(host.address(), (ip("10.0.0.1"), 24));
    let mut wire = dhcp(b"", None);
    assert_eq!(host.dhcp(&mut wire, None, true), Err(Refusal::NoResponse));
    let mut wire = dhcp(b"x", None);
    wire.patience = Some(1);
    assert_eq!(host.dhcp(&mut wire, None, true), Err(Refusal::Aborted));
    assert_eq!(host.address(), (ip("10.0.0.1"), 24));
}

/// A boot server of type 5 at `10.0.0.9`, asked at `number`.
fn boot_server(number: u16) -> Wire {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let service = move |datagram: &Datagram| {
        let request = Message::parse(&datagram.payload).unwrap();
        let asked = PxeOptions::parse(request.options.get(option::VENDOR).unwrap()).unwrap();
        let item = asked.item.unwrap();
        assert_eq!(request.ciaddr, Ipv4Addr::new(10, 0, 0, 1));
        let mut message = reply(MessageType::Ack, &request, "0.0.0.0");
        message.file = b"bstrap.efi".to_vec();
        message.options.set(option::VENDOR, asked.emit());
        let from = server(4011);
        if item.kind == 5 {
            alloc::vec![(from, datagram.source, message.emit())]
        } else {
            Vec::new()
        }
    };
    wire.services.insert(number, Box::new(service));
    wire
}

#[test]
fn boot_servers_are_found_each_way() {
    let unicast = Discovery {
        unicast: alloc::vec![ip("10.0.0.8"), ip("10.0.0.9")],
        ..Discovery::default()
    };
    let multicast = Discovery {
        multicast: Some(ip("224.0.1.2")),
        ..Discovery::default()
    };
    let broadcast = Discovery {
        broadcast: true,
        only: Some(alloc::vec![
            Server {
                kind: 5,
                address: Some(ip("10.0.0.8"))
            },
            Server {
                kind: 5,
                address: Some(ip("10.0.0.9"))
            },
        ]),
        ..Discovery::default()
    };
    for (how, number) in [(&unicast, 4011), (&multicast, 4011), (&broadcast, 67)] {
        let mut wire = boot_server(number);
        let found = host("10.0.0.1")
            .discover(&mut wire, None, (5, 3), how)
            .unwrap();
        assert_eq!(found.layer, 3);
        assert_eq!(server_of(&found.reply), Some(ip("10.0.0.9")));
        assert_eq!(
            Message::parse(&found.reply).unwrap().boot_file(),
            Some("bstrap.efi")
        );
        let sent = wire.shown.iter().find(|(received, _)| !received);
        assert_eq!(sent.unwrap().1, found.discover);
    }
}

#[test]
fn boot_servers_that_may_not_answer_do_not() {
    let mut how = Discovery {
        broadcast: true,
        ..Discovery::default()
    };
    let find = |how: &Discovery, kind| {
        let mut wire = boot_server(67);
        host("10.0.0.1")
            .discover(&mut wire, None, (kind, 0), how)
            .map(|_| ())
    };
    assert_eq!(find(&how, 5), Ok(()));
    assert_eq!(find(&how, 6), Err(Refusal::Timeout));
    for (kind, address, expected) in [
        (5, Some("10.0.0.8"), Err(Refusal::Timeout)),
        (6, None, Err(Refusal::Timeout)),
        (5, None, Ok(())),
        (5, Some("10.0.0.9"), Ok(())),
    ] {
        let address = address.map(ip);
        how.only = Some(alloc::vec![Server { kind, address }]);
        assert_eq!(find(&how, 5), expected);
    }
    how.only = Some(Vec::new());
    assert_eq!(find(&how, 5), Err(Refusal::InvalidParameter));
    assert_eq!(
        find(&Discovery::default(), 5),
        Err(Refusal::InvalidParameter)
    );
}

#[test]
fn packets_say_how_to_find_boot_servers() {
    let mut message = Message::request(MessageType::Discover, 1, MAC);
    let packet = |message: &mut Message, control: u8| {
        let mut options = alloc::vec![6, 1, control, 7, 4, 224, 0, 1, 2];
        options.extend([8, 11, 0, 5, 2, 10, 0, 0, 8, 10, 0, 0, 9, 255]);
        message.options.set(option::VENDOR, options);
        message.emit()
    };
    let all = Discovery::of_packet(&packet(&mut message, 0), 5).unwrap();
    let list = alloc::vec![ip("10.0.0.8"), ip("10.0.0.9")];
    let expected = Discovery {
        multicast: Some(ip("224.0.1.2")),
        broadcast: true,
        unicast: list.clone(),
        only: None,
    };
    assert_eq!(all, expected);
    let few = Discovery::of_packet(&packet(&mut message, 7), 5).unwrap();
    let only = list.iter().map(|&address| Server {
        kind: 5,
        address: Some(address),
    });
    let expected = Discovery {
        multicast: None,
        broadcast: false,
        unicast: list.clone(),
        only: Some(only.collect()),
    };
    assert_eq!(few, expected);
    assert_eq!(Discovery::of_packet(&[0; 300], 5), None);
}

fn reply6(
    request: &dhcpv6::Message<'_>,
    kind: dhcpv6::MessageType,
    address: bool,
    url: &str,
) -> Vec<u8> {
    let mut message = Writer::new(kind, request.transaction_id);
    message.option(
        dhcpv6::option::CLIENT_ID,
        request.options.client_id().unwrap(),
    );
    message.option(dhcpv6::option::SERVER_ID, [0, 3, 0, 1, 9, 9, 9, 9, 9, 9]);
    if address && let Some(association) = request.options.ia_na().next() {
        message.ia_na(&association, |message| {
            message.ia_address(&dhcpv6::IaAddress {
                address: "fd00::77".parse().unwrap(),
                preferred_lifetime: 100,
                valid_lifetime: 100,
                options: dhcpv6::Options::default(),
            });
        });
    }
    if !url.is_empty() {
        message.option(dhcpv6::option::BOOT_FILE_URL, url);
    }
    message.finish()
}

#[test]
fn dhcpv6_gives_an_address_and_shows_the_packets() {
    use dhcpv6::MessageType as Type;
    for (url, expected) in [
        ("tftp://[fd00::9]/a", Ok(())),
        ("", Err(Refusal::NoResponse)),
    ] {
        let mut wire = Wire::new(&["fe80::9"]);
        let service = move |datagram: &Datagram| {
            let request = dhcpv6::Message::parse(&datagram.payload).unwrap();
            assert_eq!(datagram.source, "[fe80::ff:fe00:1]:546".parse().unwrap());
            let kind = match request.kind {
                Type::Solicit => Type::Advertise,
                _ => Type::Reply,
            };
            let from = "[fe80::9]:547".parse().unwrap();
            alloc::vec![(from, datagram.source, reply6(&request, kind, true, url))]
        };
        wire.services.insert(547, Box::new(service));
        let mut host = host("fd00::1");
        let exchange = host.dhcp6(&mut wire, None);
        assert_eq!(exchange.clone().map(|_| ()), expected);
        if let Ok(exchange) = exchange {
            assert_eq!(host.address(), (ip("fd00::77"), 64));
            assert_eq!(
                dhcpv6::Message::parse(&exchange.ack).unwrap().kind,
                Type::Reply
            );
            assert_eq!(
                dhcpv6::Message::parse(&exchange.discover).unwrap().kind,
                Type::Solicit
            );
            assert_eq!(wire.shown.len(), 4);
        } else {
            assert_eq!(host.address(), (ip("fd00::1"), 64));
        }
    }
}

#[test]
fn boot_servers_answer_over_ipv6() {
    let mut wire = Wire::new(&["fd00::9"]);
    wire.serve(4011, |datagram| {
        let request = dhcpv6::Message::parse(&datagram.payload).unwrap();
        Some(reply6(
            &request,
            dhcpv6::MessageType::Reply,
            false,
            "tftp://[fd00::9]/b",
        ))
    });
    let how = Discovery {
        unicast: alloc::vec![ip("fd00::9")],
        ..Discovery::default()
    };
    let found = host("fd00::1")
        .discover(&mut wire, None, (5, 0), &how)
        .unwrap();
    let reply = dhcpv6::Message::parse(&found.reply).unwrap();
    assert_eq!(reply.options.boot_file_url(), Some("tftp://[fd00::9]/b"));
}

proptest! {
    #[test]
    fn any_frames_end_and_break_nothing(mut bytes in prop::collection::vec(any::<u8>(), 0..600), choice in 0_u8..16) {
        bytes.insert(0, choice);
        crate::fuzzing::fuzz_host(&bytes);
    }
}

#[test]
fn a_full_link_is_waited_for() {
    struct Full(Instant);
    impl Port for Full {
        fn now(&mut self) -> Instant {
            self.0 += STEP;
            self.0
        }
        fn link_up(&self) -> bool {
            true
        }
        fn send(&mut self, _: &[u8; 14], _: &[u8]) -> bool {
            false
        }
        fn receive(&mut self) -> Option<Vec<u8>> {
            None
        }
        fn show(&mut self, _: bool, _: &[u8]) -> bool {
            true
        }
    }
    let sent = host("10.0.0.1").udp_write(&mut Full(Instant::ZERO), &outgoing("10.0.0.255:7", b""));
    assert_eq!(sent, Err(Refusal::Timeout));
}

#[test]
fn without_a_link_nothing_is_sent_and_nobody_waits() {
    for (own, peer) in [("10.0.0.1", "10.0.0.9"), ("fd00::1", "fd00::9")] {
        let mut wire = Wire::new(&[peer]);
        wire.cut = true;
        let mut host = host(own);
        let to = std::format!("{}", SocketAddr::new(ip(peer), 7));
        let before = wire.now;
        assert_eq!(
            host.udp_write(&mut wire, &outgoing(&to, b"x")),
            Err(Refusal::NoMedia)
        );
        assert_eq!(host.arp(&mut wire, ip(peer)), Err(Refusal::NoMedia));
        let asked = match ip(own) {
            IpAddr::V4(_) => host.dhcp(&mut wire, None, false),
            IpAddr::V6(_) => host.dhcp6(&mut wire, None),
        };
        assert_eq!(asked.err(), Some(Refusal::NoMedia));
        assert!(wire.sent.is_empty() && wire.now < before + Duration::from_secs(1));
        wire.cut = false;
        assert_eq!(host.arp(&mut wire, ip(peer)), Ok(PEER_MAC));
    }
}

/// Whom reports of groups were sent to, and their messages; those of IPv6 behind the hop-by-hop header.
fn reports(wire: &mut Wire) -> Vec<(MacAddress, Vec<u8>)> {
    let sent = core::mem::take(&mut wire.sent);
    let told = sent.iter().filter_map(|frame| {
        let at = match frame[12..14] {
            [8, 0] if frame[23] == IGMP => 14 + 24,
            [0x86, 0xdd] if frame[62] == 143 => 62,
            _ => return None,
        };
        let mut message = frame[at..].to_vec();
        message[2..4].fill(0);
        Some((*frame.first_chunk()?, message))
    });
    told.collect()
}

#[test]
fn groups_of_the_filter_are_told_to_routers_and_switches() {
    let query4 = [
        0x46, 0, 0, 36, 0, 0, 0, 0, 1, IGMP, 0, 0, 10, 0, 0, 9, 224, 0, 0, 1, 0x94, 4, 0, 0, 0x11,
        10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0,
    ];
    let mut query4 = query4.to_vec();
    let sums = [(10, 0..24), (26, 24..36)];
    for (at, range) in sums {
        let sum = packet::icmp_checksum(&query4[range]);
        query4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let mut message = alloc::vec![130, 0, 0, 0, 3, 232, 0, 0];
    message.extend([0; 20]);
    let sum = packet::checksum(ip("fe80::9"), ip("ff02::1"), packet::ICMPV6, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut query6 = alloc::vec![0x60, 0, 0, 0, 0, 36, 0, 1];
    query6.extend("fe80::9".parse::<Ipv6Addr>().unwrap().octets());
    query6.extend("ff02::1".parse::<Ipv6Addr>().unwrap().octets());
    query6.extend([packet::ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
    query6.extend(message);
    let all4 = [0x01, 0x00, 0x5e, 0, 0, 22];
    let all6 = [0x33, 0x33, 0, 0, 0, 0x16];
    for (own, group, to, query) in [
        ("10.0.0.1", "239.1.2.3", all4, frame(packet::IPV4, &query4)),
        ("fd00::1", "ff05::7", all6, frame(packet::IPV6, &query6)),
    ] {
        let mut wire = Wire::new(&[]);
        let mut host = host(own);
        let octets = match ip(group) {
            IpAddr::V4(group) => group.octets().to_vec(),
            IpAddr::V6(group) => group.octets().to_vec(),
        };
        let report = |kind: u8| {
            let first = if octets.len() == 4 { 0x22 } else { 143 };
            let head = [first, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, 0];
            (to, [&head[..], &octets].concat())
        };
        let later = |host: &mut Host, wire: &mut Wire, seconds| {
            wire.now += Duration::from_secs(seconds);
            host.listen(wire).unwrap();
            reports(wire)
        };
        // Of an address that is no group, nobody is told.
        let list = |all: &[&str]| Filter {
            bits: filter::STATION_IP,
            list: all.iter().map(|text| ip(text)).collect(),
        };
        host.set_filter(list(&["10.0.0.7", group])).unwrap();
        assert_eq!(later(&mut host, &mut wire, 0), [report(4)]);
        assert!(host.has_groups());
        assert_eq!(later(&mut host, &mut wire, 1), [report(4)]);
        assert_eq!(later(&mut host, &mut wire, 9), []);
        wire.to_host.push_back(query);
        let mut answers = later(&mut host, &mut wire, 0);
        answers.extend(later(&mut host, &mut wire, 1));
        assert_eq!(answers, [report(2)]);
        // A call that waits tells, too; and without a link nothing is told.
        host.set_filter(list(&[])).unwrap();
        let _ = host.udp_read(&mut wire, &ANYTHING);
        assert_eq!(reports(&mut wire), [report(3), report(3)]);
        assert!(!host.has_groups());
        host.set_filter(list(&[group])).unwrap();
        wire.cut = true;
        assert_eq!(later(&mut host, &mut wire, 0), []);
        wire.cut = false;
        assert_eq!(later(&mut host, &mut wire, 0), [report(4)]);
    }
}

/// RFC 2131, section 4.1: answers are told apart by `xid` and `chaddr`; they have `op` 2, and go to port 68. An ACK without an address is none of a lease.
#[test]
fn answers_to_others_are_nobodys() {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let service = |datagram: &Datagram| {
        let request = Message::parse(&datagram.payload).unwrap();
        let kind = match request.message_type() {
            Some(MessageType::Discover) => MessageType::Offer,
            _ => MessageType::Ack,
        };
        let right = Message {
            file: b"x".to_vec(),
            ..reply(kind, &request, "10.0.3.7")
        };
        let odd = Message {
            yiaddr: [10, 0, 9, 9].into(),
            ..right.clone()
        };
        let others = [
            Message {
                xid: odd.xid ^ 1,
                ..odd.clone()
            },
            Message {
                chaddr: alloc::vec![2, 0, 0, 0, 0, 2],
                ..odd.clone()
            },
            Message {
                operation: wireboot_wire::dhcp::Operation::Request,
                ..odd.clone()
            },
        ];
        let others = others
            .iter()
            .map(|message| (server(67), client(), message.emit()));
        let mut all: Vec<(SocketAddr, SocketAddr, Vec<u8>)> = others.collect();
        all.push((
            server(67),
            "255.255.255.255:69".parse().unwrap(),
            odd.emit(),
        ));
        if kind == MessageType::Ack {
            let without = reply(kind, &request, "0.0.0.0");
            all.push((server(67), client(), without.emit()));
        }
        all.push((server(67), client(), right.emit()));
        all
    };
    wire.services.insert(67, Box::new(service));
    let mut host = host("10.0.0.1");
    host.dhcp(&mut wire, None, false).unwrap();
    assert_eq!(host.address().0, ip("10.0.3.7"));
}

/// PXE 2.1, sections 2.2.2 and 2.4: a list of boot servers (option 43, of a server with class PXEClient) says what to boot. Option 43 of others means nothing.
#[test]
fn an_offer_of_boot_servers_says_what_to_boot() {
    for (class, expected) in [
        ("PXEClient", Ok(())),
        ("docsis3.0", Err(Refusal::NoResponse)),
    ] {
        let mut wire = Wire::new(&["10.0.0.9"]);
        let service = move |datagram: &Datagram| {
            let request = Message::parse(&datagram.payload).unwrap();
            let kind = match request.message_type() {
                Some(MessageType::Discover) => MessageType::Offer,
                _ => MessageType::Ack,
            };
            let mut message = reply(kind, &request, "10.0.3.7");
            message.options.set(option::VENDOR_CLASS, class);
            let servers = [8, 7, 0, 5, 1, 10, 0, 0, 8, 255];
            message.options.set(option::VENDOR, servers);
            alloc::vec![(server(67), client(), message.emit())]
        };
        wire.services.insert(67, Box::new(service));
        let got = host("10.0.0.1").dhcp(&mut wire, None, true).map(|_| ());
        assert_eq!(got, expected, "{class}");
    }
}

/// RFC 2131, section 4.3.2 and table 5 (SELECTING); PXE 2.1, table 2-1.
#[test]
fn dhcp_servers_are_told_what_they_need() {
    let mut wire = dhcp(b"shim.efi", None);
    host("0.0.0.0").dhcp(&mut wire, None, false).unwrap();
    let sent: Vec<Message> = wire
        .shown
        .iter()
        .filter(|(received, _)| !received)
        .map(|(_, bytes)| Message::parse(bytes).unwrap())
        .collect();
    let [discover, request] = &sent[..] else {
        panic!("{} messages", sent.len())
    };
    assert_eq!(request.message_type(), Some(MessageType::Request));
    assert_eq!(
        (request.xid, request.ciaddr),
        (discover.xid, Ipv4Addr::UNSPECIFIED)
    );
    let address = |message: &Message, code| message.options.address(code);
    assert_eq!(address(discover, option::REQUESTED_ADDRESS), None);
    let (offered, from) = (Ipv4Addr::new(10, 0, 3, 7), Ipv4Addr::new(10, 0, 0, 9));
    assert_eq!(address(request, option::REQUESTED_ADDRESS), Some(offered));
    assert_eq!(address(request, option::SERVER_ID), Some(from));
    for message in &sent {
        let options = &message.options;
        let class = options.get(option::VENDOR_CLASS).unwrap();
        assert!(class.starts_with(b"PXEClient:Arch:00007:UNDI:"));
        assert_eq!(options.architectures(), [7]);
        assert_eq!(options.network_interface().unwrap()[0], 1);
        assert_eq!(options.get(option::MACHINE_ID).unwrap().len(), 17);
        let wanted = options.get(option::PARAMETERS).unwrap();
        for code in [1, 3, 43, 60, 66, 67] {
            assert!(wanted.contains(&code), "{code}");
        }
    }
}

/// RFC 1350, section 5; RFC 2347 to 2349.
#[test]
fn requests_say_octet_the_block_size_and_the_size() {
    let what = Transfer {
        block_size: Some(1000),
        ..BOOT
    };
    let (mut wire, _) = tftp(alloc::vec![1; 10], true);
    assert_eq!(read(&mut wire, &what, None).0, Ok(10));
    let expected = b"\0\x01boot\0octet\0tsize\x000\0blksize\x001000\0";
    assert_eq!(wire.shown[0].1, expected);
    let (mut wire, _) = tftp(Vec::new(), true);
    let written = host("10.0.0.1").tftp_write(&mut wire, &what, &[1; 10]);
    assert_eq!(written, Ok(()));
    let expected = b"\0\x02boot\0octet\0tsize\x0010\0blksize\x001000\0";
    assert_eq!(wire.shown[0].1, expected);
}

/// RFC 2348: the size that counts is the server's, which may be smaller than what was asked for, and not larger. RFC 2347: nothing is granted unasked.
#[test]
fn a_server_may_grant_smaller_blocks_and_no_larger_ones() {
    let serve = |granted: &'static [u8]| {
        let mut wire = Wire::new(&["10.0.0.9"]);
        wire.serve_from(69, 3000, move |_| {
            Some([&b"\0\x06blksize\0"[..], granted, b"\0"].concat())
        });
        wire.serve(3000, |datagram| match datagram.payload[..] {
            [0, 4, 0, 0] => Some([&[0, 3, 0, 1][..], &[1; 700]].concat()),
            [0, 4, 0, 1] => Some([&[0, 3, 0, 2][..], &[2; 5]].concat()),
            _ => None,
        });
        wire
    };
    let what = Transfer {
        block_size: Some(1000),
        ..BOOT
    };
    let (result, got) = read(&mut serve(b"700"), &what, None);
    assert_eq!((result, got.len()), (Ok(705), 705));
    for (granted, block_size) in [(&b"1001"[..], Some(1000)), (&b"513"[..], None)] {
        let mut wire = serve(granted);
        let what = Transfer { block_size, ..BOOT };
        let refused = read(&mut wire, &what, None).0;
        assert_eq!(refused, Err(Refusal::TftpError), "{block_size:?}");
        let last = wire.shown.last().unwrap();
        assert_eq!((last.0, &last.1[..4]), (false, &[0, 5, 0, 8][..]));
    }
}

/// RFC 1350, section 4: the ports of both ends are those of the transfer, from its first answer on.
#[test]
fn a_strange_packet_in_the_middle_is_nobodys() {
    for strange in ["10.0.0.9:999", "10.0.0.8:3000"] {
        let (mut wire, _) = tftp(alloc::vec![6; 1200], true);
        let mut served = wire.services.remove(&3000).unwrap();
        let before = move |datagram: &Datagram| {
            let from: SocketAddr = strange.parse().unwrap();
            let [_, _, high, low, ..] = datagram.payload[..] else {
                panic!("no acknowledgement")
            };
            let next = u16::from_be_bytes([high, low]) + 1;
            let bytes = [&[0, 3][..], &next.to_be_bytes(), &[7; 512]].concat();
            [
                alloc::vec![(from, datagram.source, bytes)],
                served(datagram),
            ]
            .concat()
        };
        wire.services.insert(3000, Box::new(before));
        let expected = (Ok(1200), alloc::vec![6; 1200]);
        assert!(read(&mut wire, &BOOT, None) == expected, "{strange}");
    }
}

/// Of more than 65,535 blocks: 65535 is followed by 0, as servers have it.
#[test]
fn numbers_of_blocks_wrap() {
    const BLOCKS: u64 = 65_540;
    let mut wire = Wire::new(&["10.0.0.9"]);
    wire.step = Duration::from_micros(100);
    wire.serve_from(69, 3000, |_| Some(b"\0\x06blksize\x008\0".to_vec()));
    let mut block = 0_u64;
    wire.serve(3000, move |datagram| {
        if datagram.payload[2..] != (block as u16).to_be_bytes() || block == BLOCKS {
            return None;
        }
        block += 1;
        let len = if block == BLOCKS { 0 } else { 8 };
        let number = (block as u16).to_be_bytes();
        Some([&[0, 3][..], &number, &[1; 8][..len]].concat())
    });
    let what = Transfer {
        block_size: Some(8),
        ..BOOT
    };
    let mut len = 0;
    let result =
        host("10.0.0.1").tftp_read(&mut wire, &what, Source::File, None, &mut |at, bytes| {
            assert_eq!(at, len);
            len += bytes.len() as u64;
        });
    assert_eq!(result, Ok((BLOCKS - 1) * 8));
    assert_eq!(len, (BLOCKS - 1) * 8);
}

/// UEFI 2.10, section 24.3, Mtftp: what is too long is counted and discarded, as the server tells no size.
#[test]
fn nothing_comes_beyond_the_buffer() {
    let (mut wire, _) = tftp(alloc::vec![1; 3000], false);
    let (result, got) = read(&mut wire, &BOOT, Some(1000));
    assert_eq!(result, Err(Refusal::BufferTooSmall(3000)));
    assert!(got.len() <= 1000, "{}", got.len());
}

/// RFC 826. RFC 4861, sections 4.1, 4.3 and 7.2.2: to the solicited-node group and to all routers, by a hop limit of 255, with the sender's address.
#[test]
fn neighbours_are_asked_as_the_rfcs_say() {
    let mut wire = Wire::new(&["10.0.0.9", "fd00::12:3456", "fe80::9"]);
    host("10.0.0.1").arp(&mut wire, ip("10.0.0.9")).unwrap();
    let expected = [
        &[0xff; 6][..],
        &MAC,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &MAC,
        &[10, 0, 0, 1],
        &[0; 6],
        &[10, 0, 0, 9],
    ]
    .concat();
    assert_eq!(wire.sent[0], expected);
    let mut six = host("fd00::1");
    six.arp(&mut wire, ip("fd00::12:3456")).unwrap();
    let asked = &wire.sent[1];
    assert_eq!(asked[..6], [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
    let group: [u8; 16] = asked[38..54].try_into().unwrap();
    assert_eq!(IpAddr::from(group), ip("ff02::1:ff12:3456"));
    assert_eq!((asked[21], asked[54]), (255, 135));
    assert_eq!(asked[78..], [&[1, 1][..], &MAC].concat());
    six.udp_write(&mut wire, &outgoing("[2001:db8::1]:7", b""))
        .unwrap();
    let asked = &wire.sent[2];
    assert_eq!(asked[..6], [0x33, 0x33, 0, 0, 0, 2]);
    assert_eq!((asked[21], asked[54]), (255, 133));
}

/// RFC 4861, sections 6.1.2, 6.3.4, 7.1.2 and 7.2.5: hop limit 255, code 0, a right checksum; an advertisement that nobody asked for is of no
/// use, and a router of no lifetime none.
#[test]
fn neighbour_messages_that_cannot_be_are_not_believed() {
    let send = |wire: &mut Wire, from: &str, to: &str, hops: u8, mut message: Vec<u8>| {
        let (from, to) = (ip(from), ip(to));
        let sum = packet::checksum(from, to, packet::ICMPV6, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let header = Header {
            source: from,
            destination: to,
            protocol: packet::ICMPV6,
            ttl: hops,
            tos: 0,
            id: 0,
        };
        let packets = packet::packets(&header, &message, 1500, false).unwrap();
        wire.to_host.push_back(frame(packet::IPV6, &packets[0]));
    };
    let target = "fd00::9".parse::<Ipv6Addr>().unwrap().octets();
    let advertisement = |code: u8| {
        let head = [136, code, 0, 0, 0x60, 0, 0, 0];
        [&head[..], &target, &[2, 1], &PEER_MAC].concat()
    };
    let router = |lifetime: u8| {
        let head = [134, 0, 0, 0, 64, 0, 0, lifetime];
        [&head[..], &[0; 8], &[1, 1], &PEER_MAC].concat()
    };
    let (mut wire, mut host) = (Wire::new(&[]), host("fd00::1"));
    for (from, to, hops, message) in [
        ("fd00::9", "fd00::1", 64, advertisement(0)),
        ("fd00::9", "fd00::1", 255, advertisement(1)),
        ("fd00::9", "ff02::1", 255, advertisement(0)),
        ("fe80::8", "ff02::1", 64, router(99)),
        ("fe80::8", "ff02::1", 255, router(0)),
    ] {
        send(&mut wire, from, to, hops, message);
        host.listen(&mut wire).unwrap();
        assert_eq!(host.neighbors(), [], "{from} {to} {hops}");
        assert_eq!(host.router(), None, "{from} {to} {hops}");
    }
    // Damaged.
    send(&mut wire, "fd00::9", "fd00::1", 255, advertisement(0));
    *wire.to_host.back_mut().unwrap().last_mut().unwrap() ^= 2;
    host.listen(&mut wire).unwrap();
    assert_eq!(host.neighbors(), []);
    send(&mut wire, "fd00::9", "fd00::1", 255, advertisement(0));
    send(&mut wire, "fe80::8", "ff02::1", 255, router(99));
    host.listen(&mut wire).unwrap();
    assert_eq!(host.router(), Some(ip("fe80::8")));
    assert_eq!(host.neighbors().len(), 2);
}

/// RFC 826, packet reception: who is known is brought up to date, who asks for us is learned. RFC 1812, section 3.3.2: nobody has a group's address.
#[test]
fn arp_is_learned_of_whom_we_know_and_who_wants_us() {
    let (mut wire, mut host) = (Wire::new(&[]), host("10.0.0.1"));
    let arp = |mac: MacAddress, sender: u8, target: u8| {
        let packet = [
            &[0, 1, 8, 0, 6, 4, 0, 1][..],
            &mac,
            &[10, 0, 0, sender],
            &[0; 6],
            &[10, 0, 0, target],
        ]
        .concat();
        frame(packet::ARP, &packet)
    };
    let group = [1, 0, 0x5e, 0, 0, 1];
    for (mac, target) in [(PEER_MAC, 8), (group, 1), (MAC, 1)] {
        wire.to_host.push_back(arp(mac, 9, target));
        host.listen(&mut wire).unwrap();
        assert_eq!(host.neighbors(), [], "{mac:?}");
    }
    wire.to_host.push_back(arp(PEER_MAC, 9, 1));
    host.listen(&mut wire).unwrap();
    assert_eq!(host.neighbors(), [(ip("10.0.0.9"), PEER_MAC)]);
    // It has another card now, and says so to all.
    let other = [2, 0, 0, 0, 0, 7];
    wire.to_host.push_back(arp(other, 9, 9));
    host.listen(&mut wire).unwrap();
    assert_eq!(host.neighbors(), [(ip("10.0.0.9"), other)]);
    assert_eq!(host.arp(&mut wire, ip("10.0.0.9")), Ok(other));
}

/// UEFI 2.10, section 24.4: the callback is called while a packet is waited for, too, without one, and may end the call.
#[test]
fn who_waits_is_asked_whether_to_go_on() {
    struct Asking(Instant, usize);
    impl Port for Asking {
        fn now(&mut self) -> Instant {
            self.0 += STEP;
            self.0
        }
        fn link_up(&self) -> bool {
            true
        }
        fn send(&mut self, _: &[u8; 14], _: &[u8]) -> bool {
            true
        }
        fn receive(&mut self) -> Option<Vec<u8>> {
            None
        }
        fn show(&mut self, received: bool, packet: &[u8]) -> bool {
            assert!(received && packet.is_empty());
            self.1 += 1;
            self.1 < 3
        }
    }
    let mut port = Asking(Instant::ZERO, 0);
    let read = host("10.0.0.1").udp_read(&mut port, &ANYTHING);
    assert_eq!(read, Err(Refusal::Aborted));
    assert!(port.0 < Instant::from_secs(1));
}

/// Only an error about whom a call is for ends it; one that has come by the end of a write is told by that (UEFI 2.10, section 24.3, UdpWrite).
#[test]
fn an_icmp_error_about_another_ends_nothing() {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let mut host = host("10.0.0.1");
    let what = outgoing("10.0.0.9:7", b"x");
    host.udp_write(&mut wire, &what).unwrap();
    let error = unreachable(wire.sent.last().unwrap(), "10.0.0.9");
    wire.to_host.push_back(error);
    let from = Expected {
        source: Some(ip("10.0.0.8")),
        ..ANYTHING
    };
    assert_eq!(host.udp_read(&mut wire, &from), Err(Refusal::Timeout));
    assert_eq!(host.icmp_error().unwrap().about, ip("10.0.0.9"));
    let written = host.udp_write(&mut wire, &what);
    assert_eq!(written, Err(Refusal::IcmpError));
}

/// RFC 4443, sections 3.1, 3.3 and 3.4: eight bytes, then as much of the packet as fits.
#[test]
fn an_icmpv6_error_ends_what_it_is_about() {
    for kind in [1, 3, 4] {
        let mut wire = Wire::new(&["fd00::9"]);
        let mut host = host("fd00::1");
        host.udp_write(&mut wire, &outgoing("[fd00::9]:7", b"x"))
            .unwrap();
        let sent = wire.sent.last().unwrap()[14..].to_vec();
        wire.icmp6(ip("fd00::9"), ip("fd00::1"), quoting(kind, &sent));
        let read = host.udp_read(&mut wire, &at_2000("fd00::9"));
        assert_eq!(read, Err(Refusal::IcmpError), "{kind}");
        assert_eq!(host.icmp_error().unwrap().about, ip("fd00::9"));
    }
}

/// An ICMPv6 error of this type, without its checksum.
fn quoting(kind: u8, packet: &[u8]) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0][..], packet].concat()
}

/// What a caller waits for who has sent from port 2000.
fn at_2000(from: &str) -> Expected {
    Expected {
        destination_port: Some(2000),
        source: Some(ip(from)),
        ..ANYTHING
    }
}

/// One that comes late is about what was sent from another port; and TCP has its own.
#[test]
fn an_icmp_error_about_another_port_or_protocol_ends_nothing() {
    let mut wire = Wire::new(&["10.0.0.9", "fd00::9"]);
    let mut four = host("10.0.0.1");
    four.udp_write(&mut wire, &outgoing("10.0.0.9:7", b"x"))
        .unwrap();
    let sent = wire.sent.last().unwrap().clone();
    let mut of_another = sent.clone();
    of_another[14 + 20..][..2].copy_from_slice(&2001_u16.to_be_bytes());
    // What stands where ports would, but for the options before them, or in the middle of a datagram.
    let mut with_options = of_another.clone();
    with_options[14] = 0x46;
    let mut in_the_middle = sent.clone();
    in_the_middle[14 + 7] = 1;
    for frame in [of_another, with_options, in_the_middle] {
        wire.to_host.push_back(unreachable(&frame, "10.0.0.9"));
        let read = four.udp_read(&mut wire, &at_2000("10.0.0.9"));
        assert_eq!(read, Err(Refusal::Timeout));
    }
    let mut options = sent[..34].to_vec();
    options[14] = 0x46;
    options.extend([1, 1, 1, 0]);
    options.extend(&sent[34..]);
    wire.to_host.push_back(unreachable(&options, "10.0.0.9"));
    let read = four.udp_read(&mut wire, &at_2000("10.0.0.9"));
    assert_eq!(read, Err(Refusal::IcmpError));
    let mut six = host("fd00::1");
    six.udp_write(&mut wire, &outgoing("[fd00::9]:7", b"x"))
        .unwrap();
    let sent = wire.sent.last().unwrap()[14..].to_vec();
    let (mut of_another, mut of_tcp) = (sent.clone(), sent.clone());
    of_another[40..42].copy_from_slice(&2001_u16.to_be_bytes());
    of_tcp[6] = 6;
    // Packet Too Big is about no port.
    for (kind, packet) in [(1, of_another), (1, of_tcp.clone()), (2, of_tcp), (2, sent)] {
        wire.icmp6(ip("fd00::9"), ip("fd00::1"), quoting(kind, &packet));
        let read = six.udp_read(&mut wire, &at_2000("fd00::9"));
        assert_eq!(read, Err(Refusal::Timeout), "{kind}");
    }
}

/// A transfer has a port of its own.
#[test]
fn an_icmp_error_about_another_port_ends_no_transfer() {
    let (mut wire, _) = tftp(alloc::vec![6; 1200], true);
    let mut host = host("10.0.0.1");
    host.udp_write(&mut wire, &outgoing("10.0.0.9:7", b"x"))
        .unwrap();
    let error = unreachable(wire.sent.last().unwrap(), "10.0.0.9");
    wire.to_host.push_back(error);
    // Its request is lost, so that it waits.
    wire.lost = alloc::vec![wire.sent.len()];
    let read = host.tftp_read(&mut wire, &BOOT, Source::File, None, &mut |_, _| {});
    assert_eq!(read, Ok(1200));
}

/// RFC 768; RFC 8200, section 8.1; RFC 791, section 3.1.
#[test]
fn damaged_datagrams_are_lost() {
    let lost = Err(Refusal::Timeout);
    for (own, peer) in [("10.0.0.1", "10.0.0.9:7"), ("fd00::1", "[fd00::9]:7")] {
        let mut wire = Wire::new(&[]);
        let to = SocketAddr::new(ip(own), 2000);
        wire.datagram(peer.parse().unwrap(), to, b"damaged");
        *wire.to_host.back_mut().unwrap().last_mut().unwrap() ^= 1;
        assert_eq!(host(own).udp_read(&mut wire, &ANYTHING), lost, "{own}");
    }
    // The identification, which only the header's own checksum is over.
    let mut wire = Wire::new(&[]);
    let (from, to) = ("10.0.0.9:7", "10.0.0.1:2000");
    wire.datagram(from.parse().unwrap(), to.parse().unwrap(), b"x");
    wire.to_host[0][18] ^= 1;
    assert_eq!(host("10.0.0.1").udp_read(&mut wire, &ANYTHING), lost);
}

/// What servers offer: an address, and a file or none.
fn offering(offers: &'static [(&'static str, &'static [u8])]) -> Wire {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let service = move |datagram: &Datagram| {
        let request = Message::parse(&datagram.payload).unwrap();
        let (kind, asked) = match request.message_type() {
            Some(MessageType::Discover) => (MessageType::Offer, None),
            _ => {
                let asked = request.options.address(option::REQUESTED_ADDRESS);
                (MessageType::Ack, asked)
            }
        };
        let wanted = |address: &str| asked.is_none_or(|asked| ip(address) == IpAddr::V4(asked));
        offers
            .iter()
            .filter(|(address, _)| wanted(address))
            .map(|(address, file)| {
                let mut message = reply(kind, &request, address);
                message.file = file.to_vec();
                (server(67), client(), message.emit())
            })
            .collect::<Vec<_>>()
    };
    wire.services.insert(67, Box::new(service));
    wire
}

/// UEFI 2.10, section 24.3, Dhcp: SortOffers.
#[test]
fn sorted_an_offer_that_boots_comes_before_others() {
    let mut wire = offering(&[("10.0.3.1", b""), ("10.0.3.2", b"x")]);
    let mut host = host("10.0.0.1");
    host.dhcp(&mut wire, None, true).unwrap();
    assert_eq!(host.address().0, ip("10.0.3.2"));
}

/// The same, FALSE: "to try the offers in the order that they are received".
#[test]
fn unsorted_offers_are_tried_in_their_order() {
    let mut wire = offering(&[("10.0.3.1", b""), ("10.0.3.2", b"x")]);
    let mut host = host("10.0.0.1");
    host.dhcp(&mut wire, None, false).unwrap();
    assert_eq!(host.address().0, ip("10.0.3.2"));
}

/// RFC 2131, section 3.1, step 5: a client that gets a DHCPNAK begins anew.
#[test]
fn who_is_refused_an_address_begins_anew_at_once() {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let mut refusals = 1;
    let service = move |datagram: &Datagram| {
        let request = Message::parse(&datagram.payload).unwrap();
        let (kind, address) = match request.message_type() {
            Some(MessageType::Discover) => (MessageType::Offer, "10.0.3.7"),
            _ if refusals > 0 => (MessageType::Nak, "0.0.0.0"),
            _ => (MessageType::Ack, "10.0.3.7"),
        };
        refusals -= i32::from(kind == MessageType::Nak);
        let mut message = reply(kind, &request, address);
        message.file = b"x".to_vec();
        alloc::vec![(server(67), client(), message.emit())]
    };
    wire.services.insert(67, Box::new(service));
    let mut host = host("10.0.0.1");
    let before = wire.now;
    host.dhcp(&mut wire, None, true).unwrap();
    assert_eq!(host.address().0, ip("10.0.3.7"));
    assert!(wire.now - before < Duration::from_secs(1));
    let sent = wire.shown.iter().filter(|(received, _)| !received);
    assert_eq!(sent.count(), 4);
}

/// A DHCPv6 server on the link, which answers a message with these.
fn dhcp6(
    mut answers: impl FnMut(&dhcpv6::Message<'_>, dhcpv6::MessageType) -> Vec<Vec<u8>> + 'static,
) -> Wire {
    let mut wire = Wire::new(&["fe80::9"]);
    let service = move |datagram: &Datagram| {
        let request = dhcpv6::Message::parse(&datagram.payload).unwrap();
        let kind = match request.kind {
            dhcpv6::MessageType::Solicit => dhcpv6::MessageType::Advertise,
            _ => dhcpv6::MessageType::Reply,
        };
        let from: SocketAddr = "[fe80::9]:547".parse().unwrap();
        answers(&request, kind)
            .into_iter()
            .map(|bytes| (from, datagram.source, bytes))
            .collect::<Vec<_>>()
    };
    wire.services.insert(547, Box::new(service));
    wire
}

/// RFC 8415, sections 18.2.1 and 18.2.2; RFC 5970, section 3.
#[test]
fn dhcpv6_servers_are_told_what_they_need() {
    use dhcpv6::MessageType as Type;
    let duid = [0, 3, 0, 1, 7, 7, 7, 7, 7, 7];
    let mut template = Writer::new(Type::Solicit, 1);
    template.option(dhcpv6::option::CLIENT_ID, duid);
    let association = dhcpv6::IaNa {
        iaid: 0x0102_0304,
        t1: 0,
        t2: 0,
        options: dhcpv6::Options::default(),
    };
    template.ia_na(&association, |_| {});
    let template = template.finish();
    let url = "tftp://[fd00::9]/a";
    let mut wire = dhcp6(move |request, kind| alloc::vec![reply6(request, kind, true, url)]);
    host("fd00::1").dhcp6(&mut wire, Some(&template)).unwrap();
    let sent: Vec<dhcpv6::Message<'_>> = wire
        .shown
        .iter()
        .filter(|(received, _)| !received)
        .map(|(_, bytes)| dhcpv6::Message::parse(bytes).unwrap())
        .collect();
    let [solicit, request] = sent[..] else {
        panic!("{} messages", sent.len())
    };
    assert_eq!((solicit.kind, request.kind), (Type::Solicit, Type::Request));
    for options in [solicit.options, request.options] {
        assert_eq!(options.client_id(), Some(&duid[..]));
        assert_eq!(options.ia_na().next().unwrap().iaid, 0x0102_0304);
        assert!(options.elapsed_time().is_some());
        let mut asked = options.option_request();
        assert!(asked.any(|code| code == dhcpv6::option::BOOT_FILE_URL));
        assert_eq!(options.architectures().collect::<Vec<_>>(), [7]);
    }
    assert_eq!(solicit.options.server_id(), None);
    let from = [0, 3, 0, 1, 9, 9, 9, 9, 9, 9];
    assert_eq!(request.options.server_id(), Some(&from[..]));
    let association = request.options.ia_na().next().unwrap();
    let address = association.options.ia_addresses().next().unwrap().address;
    assert_eq!(IpAddr::V6(address), ip("fd00::77"));
}

/// RFC 8415, sections 16.3, 16.10 and 18.2.10.1: another's transaction is none of ours; an address with a lifetime of 0 is taken back.
#[test]
fn answers_to_others_and_addresses_without_a_lifetime_are_nobodys() {
    let mut wire = dhcp6(|request, kind| {
        let own = request.options.client_id().unwrap();
        let message = |id: u32, client: &[u8], all: &[(u16, u32)]| {
            let mut message = Writer::new(kind, id);
            if !client.is_empty() {
                message.option(dhcpv6::option::CLIENT_ID, client);
            }
            message.option(dhcpv6::option::SERVER_ID, [0, 3, 0, 1, 9, 9, 9, 9, 9, 9]);
            let association = request.options.ia_na().next().unwrap();
            message.ia_na(&association, |message| {
                for &(last, lifetime) in all {
                    message.ia_address(&dhcpv6::IaAddress {
                        address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last),
                        preferred_lifetime: lifetime,
                        valid_lifetime: lifetime,
                        options: dhcpv6::Options::default(),
                    });
                }
            });
            message.option(dhcpv6::option::BOOT_FILE_URL, "tftp://[fd00::9]/a");
            message.finish()
        };
        let id = request.transaction_id;
        alloc::vec![
            message(id ^ 1, own, &[(0x66, 100)]),
            message(id, &[], &[(0x66, 100)]),
            message(id, &[0, 3, 0, 1, 2, 0, 0, 0, 0, 9], &[(0x66, 100)]),
            message(id, own, &[(0x55, 0), (0x77, 100)]),
        ]
    });
    let mut host = host("fd00::1");
    host.dhcp6(&mut wire, None).unwrap();
    assert_eq!(host.address().0, ip("fd00::77"));
}

/// One that has no address to give, and says what to boot: as over IPv4, a proxy (EFI_PXE_BASE_CODE_MODE.ProxyOffer).
#[test]
fn a_proxy_says_what_to_boot_over_ipv6() {
    let url = "tftp://[fd00::8]/p";
    let mut wire = dhcp6(move |request, kind| {
        let mut all = alloc::vec![reply6(request, kind, true, "")];
        if kind == dhcpv6::MessageType::Advertise {
            all.push(reply6(request, kind, false, url));
        }
        all
    });
    let mut host = host("fd00::1");
    let exchange = host.dhcp6(&mut wire, None).unwrap();
    assert_eq!(host.address().0, ip("fd00::77"));
    let proxy = exchange.proxy_offer.unwrap();
    let proxy = dhcpv6::Message::parse(&proxy).unwrap();
    assert_eq!(proxy.options.boot_file_url(), Some(url));
}

/// UEFI 2.10, section 24.3, Discover: "If the boot server changes Layer, then the new Layer will be returned." PXE 2.1, section 2.2.3: an ACK, of the type.
#[test]
fn a_boot_servers_answer_is_of_the_type_and_tells_the_layer() {
    let mut wire = Wire::new(&["10.0.0.9"]);
    let service = |datagram: &Datagram| {
        let request = Message::parse(&datagram.payload).unwrap();
        let answers = [
            (MessageType::Offer, 5, 1),
            (MessageType::Ack, 9, 2),
            (MessageType::Ack, 5, 4),
        ];
        answers
            .map(|(message, kind, layer)| {
                let mut message = reply(message, &request, "0.0.0.0");
                let options = PxeOptions {
                    item: Some(wireboot_wire::dhcp::pxe::Item { kind, layer }),
                    ..PxeOptions::default()
                };
                message.options.set(option::VENDOR, options.emit());
                (server(4011), datagram.source, message.emit())
            })
            .to_vec()
    };
    wire.services.insert(4011, Box::new(service));
    let how = Discovery {
        unicast: alloc::vec![ip("10.0.0.9")],
        ..Discovery::default()
    };
    let found = host("10.0.0.1").discover(&mut wire, None, (5, 3), &how);
    assert_eq!(found.unwrap().layer, 4);
}

/// RFC 1122, section 3.3.1.1: the mask decides; RFC 4861, section 5.2: link-local addresses are always near.
#[test]
fn the_mask_says_who_is_on_the_link() {
    let mut wire = Wire::new(&[
        "10.0.0.200",
        "10.0.0.254",
        "fd00::8000:0:0:1",
        "fe80::7",
        "fe80::9",
    ]);
    for (len, hop) in [(24, "10.0.0.200"), (25, "10.0.0.254")] {
        let mut host = host("10.0.0.1");
        host.configure(ip("10.0.0.1"), len, Some(ip("10.0.0.254")));
        host.udp_write(&mut wire, &outgoing("10.0.0.200:7", b""))
            .unwrap();
        assert_eq!(host.neighbors(), [(ip(hop), PEER_MAC)]);
    }
    for near in ["fd00::8000:0:0:1", "fe80::7"] {
        let mut host = host("fd00::1");
        host.configure(ip("fd00::1"), 64, Some(ip("fe80::9")));
        let to = std::format!("[{near}]:7");
        host.udp_write(&mut wire, &outgoing(&to, b"")).unwrap();
        assert_eq!(host.neighbors(), [(ip(near), PEER_MAC)]);
    }
}

/// RFC 3021: on a link of two, neither address is a broadcast address.
#[test]
fn a_link_of_two_has_no_broadcast_address() {
    let mut wire = Wire::new(&["10.0.0.3"]);
    let mut host = host("10.0.0.2");
    host.configure(ip("10.0.0.2"), 31, None);
    assert_eq!(host.arp(&mut wire, ip("10.0.0.3")), Ok(PEER_MAC));
}

/// EFI_PXE_BASE_CODE_MAX_IPCNT is 8 (UEFI 2.10, section 24.3).
#[test]
fn a_filter_has_room_for_eight_addresses() {
    let mut host = host("10.0.0.1");
    let list: Vec<IpAddr> = (1..=8)
        .map(|last| IpAddr::from([224, 0, 1, last]))
        .collect();
    let bits = filter::STATION_IP;
    let filter = Filter { bits, list };
    assert_eq!(host.set_filter(filter.clone()), Ok(()));
    assert_eq!(*host.filter(), filter);
}

#[test]
fn stations_and_masks_of_ipv6_are_checked_too() {
    let mut host = host("fd00::1");
    let mask = Some(ip("ffff:ffff:ffff::"));
    assert_eq!(host.set_station(Some(ip("fd00::7")), mask), Ok(()));
    assert_eq!(host.address(), (ip("fd00::7"), 48));
    for (address, mask) in [
        (Some("ff02::1"), None),
        (Some("::1"), None),
        (Some("::"), None),
        (None, Some("ffff::1")),
    ] {
        let refused = host.set_station(address.map(ip), mask.map(ip));
        assert_eq!(refused, Err(Refusal::InvalidParameter));
    }
}

/// RFC 791, section 3.2: fragments are of one packet by source, destination, protocol and identification.
#[test]
fn fragments_of_two_senders_are_not_one_packet() {
    let mut parts = Fragments::default();
    let take = |parts: &mut Fragments, from: &str, offset, more, payload: &[u8]| {
        let ip = Ip {
            source: ip(from),
            destination: ip("10.0.0.1"),
            protocol: packet::UDP,
            hops: 1,
            payload,
            fragment: None,
        };
        let part = packet::Fragment {
            id: 1,
            offset,
            more,
        };
        parts.take(&ip, part, Instant::ZERO)
    };
    assert_eq!(take(&mut parts, "10.0.0.9", 0, true, b"01234567"), None);
    assert_eq!(take(&mut parts, "10.0.0.8", 8, false, b"odd"), None);
    let whole = take(&mut parts, "10.0.0.9", 8, false, b"end");
    assert_eq!(whole.as_deref(), Some(&b"01234567end"[..]));
}

#[test]
fn datagrams_that_nobody_reads_do_not_fill_the_memory() {
    let (mut wire, mut host) = (Wire::new(&[]), host("10.0.0.1"));
    let (from, to) = ("10.0.0.9:7", "10.0.0.1:1");
    for _ in 0..2 * DATAGRAMS {
        wire.datagram(from.parse().unwrap(), to.parse().unwrap(), b"x");
    }
    host.listen(&mut wire).unwrap();
    assert_eq!(host.datagrams.len(), DATAGRAMS);
}

/// RFC 768: a checksum that comes out as zero is sent as all ones, for zero says that there is none.
#[test]
fn a_checksum_of_zero_is_sent_as_all_ones() {
    let from: SocketAddr = "10.0.0.1:2000".parse().unwrap();
    let to: SocketAddr = "10.0.0.9:7".parse().unwrap();
    let without = packet::udp(from, to, [&[], &[0, 0]]);
    let bytes = packet::udp(from, to, [&[], &without[6..8]]);
    assert_eq!(bytes[6..8], [0xff, 0xff]);
}

/// RFC 791, section 3.1 (do not fragment); RFC 8200, section 3 (traffic class, hop limit).
#[test]
fn headers_say_what_a_caller_wants() {
    let mut wire = Wire::new(&["10.0.0.9", "fd00::9"]);
    let mut four = host("10.0.0.1");
    for (may_fragment, bit) in [(false, 0x40), (true, 0)] {
        let mut what = outgoing("10.0.0.9:7", b"x");
        what.may_fragment = may_fragment;
        four.udp_write(&mut wire, &what).unwrap();
        assert_eq!(wire.sent.last().unwrap()[20] & 0x40, bit);
    }
    let mut six = host("fd00::1");
    (six.ttl, six.tos) = (9, 0x4c);
    six.udp_write(&mut wire, &outgoing("[fd00::9]:7", b"x"))
        .unwrap();
    let sent = wire.sent.last().unwrap();
    assert_eq!((&sent[14..16], sent[21]), (&[0x64, 0xc0][..], 9));
}

/// UEFI 2.10, section 24.3, Discover: "at least 10 seconds"; PXE 2.1, section 2.2.3.
#[test]
fn boot_servers_that_say_nothing_are_given_ten_seconds() {
    let mut wire = Wire::new(&[]);
    let how = Discovery {
        broadcast: true,
        ..Discovery::default()
    };
    let before = wire.now;
    let found = host("10.0.0.1").discover(&mut wire, None, (5, 0), &how);
    assert_eq!(found.err(), Some(Refusal::Timeout));
    let waited = (wire.now - before).total_millis();
    assert!((10_000..10_500).contains(&waited), "{waited}");
    assert_eq!(wire.sent.len(), 4);
}

/// RFC 2131, table 1; RFC 2132, section 9.7: option 54 identifies the server, else siaddr is the next one.
#[test]
fn a_boot_server_is_the_one_that_its_answer_names() {
    let request = Message::request(MessageType::Request, 1, MAC);
    let mut named = reply(MessageType::Ack, &request, "0.0.0.0");
    let mut bare = Message::reply(MessageType::Ack, &request);
    assert_eq!(server_of(&bare.emit()), None);
    (named.siaddr, bare.siaddr) = ([10, 0, 0, 8].into(), [10, 0, 0, 8].into());
    assert_eq!(server_of(&named.emit()), Some(ip("10.0.0.9")));
    assert_eq!(server_of(&bare.emit()), Some(ip("10.0.0.8")));
}

/// PXE 2.1, section 2.2.1: a proxy's offer has the class PXEClient.
#[test]
fn an_offer_of_nothing_by_somebody_is_not_a_proxys() {
    let mut wire = offering(&[("0.0.0.0", b"x"), ("10.0.3.1", b"")]);
    let asked = host("10.0.0.1").dhcp(&mut wire, None, true);
    assert_eq!(asked, Err(Refusal::NoResponse));
}
