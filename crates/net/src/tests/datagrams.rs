//! UDP at the wire of the running engine, over both IP versions.

use super::forged::{Bench, packet, transport_checksum};
use super::{CLIENT, CLIENT_MAC, CLIENT6, IpVersion, SERVER, SERVER_MAC};
use crate::checksum;
use crate::ipv6::ndisc::NeighborAdvertisement;
use crate::ipv6::{ALL_NODES, header, icmp, multicast_mac};
use crate::packet::{PROTOCOL_ICMP, PROTOCOL_UDP, put};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::vec;
use std::vec::Vec;
use wireboot_nic::sim::NicConfig;
use wireboot_nic::{Nic, Offload, Transmit};

const PORT: u16 = 5000;

pub(crate) type Log = Rc<RefCell<Vec<(SocketAddr, Vec<u8>)>>>;

/// An engine whose port [`PORT`] keeps what comes.
pub(crate) fn listening(version: IpVersion) -> (Bench, Log) {
    let mut bench = Bench::silent(version);
    let log = Log::default();
    listen(&mut bench, &log);
    (bench, log)
}

/// Keeps what comes to [`PORT`].
pub(crate) fn listen(bench: &mut Bench, log: &Log) {
    let socket = bench.stack.udp_on(PORT);
    let log = log.clone();
    bench.engine.spawn(async move {
        loop {
            let datagram = socket.receive().await;
            log.borrow_mut().push(datagram);
        }
    });
}

/// A datagram from the host's port 69 to [`PORT`] of `to`.
pub(crate) fn datagram(version: IpVersion, to: IpAddr, payload: &[u8]) -> Vec<u8> {
    datagram_to(version, SocketAddr::new(to, PORT), payload)
}

fn datagram_to(version: IpVersion, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let (to, port) = (to.ip(), to.port());
    let mut datagram = vec![0; 8];
    put(&mut datagram, 0, 69_u16.to_be_bytes());
    put(&mut datagram, 2, port.to_be_bytes());
    put(&mut datagram, 4, (8 + payload.len() as u16).to_be_bytes());
    datagram.extend(payload);
    let sum = transport_checksum((version.server().ip(), to), PROTOCOL_UDP, &datagram);
    put(&mut datagram, 6, sum);
    datagram
}

fn framed(version: IpVersion, mac: [u8; 6], to: IpAddr, datagram: &[u8]) -> Vec<u8> {
    packet(mac, (version.server().ip(), to), PROTOCOL_UDP, datagram)
}

/// What the host says in ICMP, about a packet of the engine's.
pub(crate) fn icmp(
    version: IpVersion,
    source: IpAddr,
    kind: u8,
    code: u8,
    value: u32,
    about: &[u8],
) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(value.to_be_bytes());
    message.extend(&about[..about.len().min(500)]);
    match (source, version.client()) {
        (IpAddr::V6(source), IpAddr::V6(us)) => {
            super::forged::frame6(CLIENT_MAC, &icmp::packet(source, us, 64, message))
        }
        (source, us) => {
            let sum = checksum::compute(0, &message);
            put(&mut message, 2, sum.to_be_bytes());
            packet(CLIENT_MAC, (source, us), PROTOCOL_ICMP, &message)
        }
    }
}

fn unreachable(version: IpVersion) -> (u8, u8) {
    match version {
        IpVersion::V4 => (3, 3),
        IpVersion::V6 => (1, 4),
    }
}

#[test]
fn only_what_is_sent_to_us_arrives() {
    for version in IpVersion::BOTH {
        let (mut bench, log) = listening(version);
        let us = version.client();
        let whole = datagram(version, us, b"hello");
        let mut wrong = whole.clone();
        wrong[7] ^= 1;
        bench.send(&framed(version, CLIENT_MAC, us, &wrong));
        for mac in [
            [0xff; 6],
            [1, 0, 0x5e, 0, 0, 1],
            [0x33, 0x33, 0xff, 0, 0, 0x0a],
            SERVER_MAC,
        ] {
            bench.send(&framed(version, mac, us, &whole));
        }
        let others: &[&str] = match version {
            IpVersion::V4 => &["10.0.0.77", "10.0.0.255", "255.255.255.255", "224.0.0.1"],
            IpVersion::V6 => &["fe80::77", "ff02::1", "2001:db8::1", "::1"],
        };
        for other in others {
            let to = other.parse().unwrap();
            bench.send(&framed(
                version,
                CLIENT_MAC,
                to,
                &datagram(version, to, b"hello"),
            ));
        }
        bench.run_until_idle();
        assert_eq!(*log.borrow(), []);
        // Nobody is told that they do not.
        assert!(bench.heard.iter().all(|frame| frame[..6] != SERVER_MAC));
        // Without a checksum: IPv4 only.
        let mut without = datagram(version, us, b"plain");
        without[6..8].fill(0);
        bench.send(&framed(version, CLIENT_MAC, us, &without));
        bench.send(&framed(version, CLIENT_MAC, us, &whole));
        bench.run_until_idle();
        let from = SocketAddr::new(version.server().ip(), 69);
        let hello = (from, b"hello".to_vec());
        match version {
            IpVersion::V4 => assert_eq!(*log.borrow(), [(from, b"plain".to_vec()), hello]),
            IpVersion::V6 => assert_eq!(*log.borrow(), [hello]),
        }
    }
}

/// Sends frames that the engine takes in one burst.
fn burst(bench: &mut Bench, frames: &[Vec<u8>]) {
    for frame in frames {
        bench.send(frame);
    }
    bench.clock.advance(200);
    bench.run_until_idle();
}

#[test]
fn what_a_burst_has_shown_of_one_address_holds_for_that_one_alone() {
    for version in IpVersion::BOTH {
        let (mut bench, log) = listening(version);
        bench.run_until_idle();
        let other = match version {
            IpVersion::V4 => "10.0.0.77".parse().unwrap(),
            IpVersion::V6 => "fe80::77".parse().unwrap(),
        };
        let frames = [version.client(), other, version.client()]
            .map(|to| framed(version, CLIENT_MAC, to, &datagram(version, to, b"hello")));
        burst(&mut bench, &frames);
        assert_eq!(log.borrow().len(), 2);
    }
}

#[test]
fn an_address_that_is_lost_within_a_burst_is_lost_for_what_follows() {
    let (mut bench, log) = listening(IpVersion::V6);
    let address: Ipv6Addr = "2001:db8::5".parse().unwrap();
    assert!(bench.stack.add_ipv6(address));
    bench.turn();
    let to = address.into();
    let hello = framed(
        IpVersion::V6,
        CLIENT_MAC,
        to,
        &datagram(IpVersion::V6, to, b"hello"),
    );
    let claim = NeighborAdvertisement {
        solicited: false,
        override_: true,
        target: address,
        target_link: Some(SERVER_MAC),
    };
    let claim = claim.packet("fe80::77".parse().unwrap(), ALL_NODES);
    let claim = super::forged::frame6(multicast_mac(ALL_NODES), &claim);
    burst(&mut bench, &[hello.clone(), claim, hello]);
    assert_eq!(log.borrow().len(), 1);
}

#[test]
fn each_datagram_of_a_joined_unit_arrives() {
    for version in IpVersion::BOTH {
        let (mut bench, log) = listening(version);
        let config = NicConfig {
            coalesce: true,
            part_len: Some(200),
            ..NicConfig::new(CLIENT_MAC)
        };
        bench.run_until_idle();
        bench.engine.nic_mut().configure(config);
        let before = bench.engine.nic_mut().counters().receive_units;
        let sent: Vec<Vec<u8>> = (0..6_u8)
            .map(|n| vec![n; if n < 5 { 100 } else { 40 }])
            .collect();
        let (_, tx) = bench.far.split();
        for payload in &sent {
            let us = version.client();
            let frame = framed(version, CLIENT_MAC, us, &datagram(version, us, payload));
            let mut copy = |room: &mut [u8]| room.copy_from_slice(&frame);
            tx.send(frame.len(), Offload::None, &mut copy).unwrap();
        }
        tx.flush().unwrap();
        bench.clock.advance(200);
        bench.run_until_idle();
        let received: Vec<Vec<u8>> = log.borrow().iter().map(|one| one.1.clone()).collect();
        assert_eq!(received, sent);
        let units = bench.engine.nic_mut().counters().receive_units - before;
        assert_eq!(units, 1, "they came joined");
    }
}

#[test]
fn options_and_extension_headers_before_udp() {
    let (mut bench, log) = listening(IpVersion::V4);
    let us = IpVersion::V4.client();
    let udp = datagram(IpVersion::V4, us, b"options");
    let plain = framed(IpVersion::V4, CLIENT_MAC, us, &udp);
    for options in [
        &[1, 1, 1, 0][..],
        &[148, 4, 0, 0],
        &[7, 7, 4, 0, 0, 0, 0, 0],
    ] {
        let mut frame = plain[..34].to_vec();
        frame.extend(options);
        frame.extend(&udp);
        frame[14] = 0x45 + (options.len() / 4) as u8;
        let len = (frame.len() - 14) as u16;
        put(&mut frame, 16, len.to_be_bytes());
        put(&mut frame, 24, [0, 0]);
        // A header checksum that is wrong, and the right one.
        bench.send(&frame);
        let sum = checksum::compute(0, &frame[14..34 + options.len()]);
        put(&mut frame, 24, sum.to_be_bytes());
        bench.send(&frame);
    }
    bench.run_until_idle();
    assert_eq!(log.borrow().len(), 3);
    let (mut bench, log) = listening(IpVersion::V6);
    let (IpAddr::V6(us), IpAddr::V6(host)) = (IpVersion::V6.client(), IpVersion::V6.server().ip())
    else {
        unreachable!()
    };
    let udp = datagram(IpVersion::V6, us.into(), b"headers");
    for (first, mut headers) in [
        // Hop-by-hop options with PadN, destination options with Pad1, both.
        (0, vec![17, 0, 1, 4, 0, 0, 0, 0]),
        (60, vec![17, 0, 0, 0, 0, 0, 0, 0]),
        (0, vec![60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0]),
    ] {
        headers.extend(&udp);
        let whole = header::packet(host, us, first, 64, &headers);
        bench.send(&super::forged::frame6(CLIENT_MAC, &whole));
        // Cut short.
        let cut = header::packet(host, us, first, 64, &headers[..headers.len() - 3]);
        bench.send(&super::forged::frame6(CLIENT_MAC, &cut));
    }
    bench.run_until_idle();
    assert_eq!(log.borrow().len(), 3);
    assert!(log.borrow().iter().all(|(_, bytes)| bytes == b"headers"));
}

#[test]
fn a_port_that_nobody_has_is_told() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        bench.run_until_idle();
        bench.heard.clear();
        let us = version.client();
        let frame = framed(version, CLIENT_MAC, us, &datagram(version, us, b"hello"));
        bench.send(&frame);
        bench.run_until_idle();
        let (protocol, transport) = match version {
            IpVersion::V4 => (23, 34),
            IpVersion::V6 => (20, 54),
        };
        let answer = |heard: &Vec<u8>| {
            heard[12..14] == frame[12..14]
                && matches!(heard[protocol], 1 | 58)
                && matches!(heard[transport], 1 | 3)
        };
        let answers: Vec<_> = bench.heard.iter().filter(|heard| answer(heard)).collect();
        assert_eq!(answers.len(), 1);
        let (kind, code) = unreachable(version);
        assert_eq!(answers[0][..6], SERVER_MAC);
        assert_eq!(answers[0][transport..transport + 2], [kind, code]);
        assert_eq!(answers[0][transport + 8..], frame[14..]);
    }
}

/// RFC 4443, section 2.4 f; RFC 1812, section 4.3.2.8: ten in a tenth of a second.
#[test]
fn errors_are_few() {
    let us = IpVersion::V6.client();
    let mut unknown_option = vec![PROTOCOL_UDP, 0, 0x9e, 4, 0, 0, 0, 0];
    unknown_option.extend(datagram(IpVersion::V6, us, b"hello"));
    let ends = (IpVersion::V6.server().ip(), us);
    let unknown_option = packet(CLIENT_MAC, ends, 60, &unknown_option);
    let to_nobody = |version: IpVersion| {
        let us = version.client();
        framed(version, CLIENT_MAC, us, &datagram(version, us, b"hello"))
    };
    for (version, frame) in [
        (IpVersion::V4, to_nobody(IpVersion::V4)),
        (IpVersion::V6, to_nobody(IpVersion::V6)),
        (IpVersion::V6, unknown_option),
    ] {
        let mut bench = Bench::silent(version);
        for tenth in 1..=2 {
            bench.clock.advance(100_000);
            for _ in 0..30 {
                bench.send(&frame);
                bench.turn();
            }
            bench.run_until_idle();
            // They end with what they are about.
            let errors = bench.heard.iter();
            let errors = errors.filter(|heard| heard.ends_with(&frame[14..]));
            assert_eq!(errors.count(), tenth * 10);
        }
    }
}

/// As long as that is one of ours, whichever address new datagrams would come from.
#[test]
fn a_datagram_comes_from_the_address_that_its_receiver_knows() {
    let mut bench = Bench::silent(IpVersion::V6);
    let socket = bench.stack.udp_on(PORT);
    let host = SocketAddr::new(IpVersion::V6.server().ip(), 69);
    // Nearer to the host than the one before (RFC 6724, section 5, rule 8).
    let other: Ipv6Addr = "fe80::3".parse().unwrap();
    assert!(bench.stack.add_ipv6(other));
    bench.run_until_idle();
    bench.clock.advance(20_000);
    bench.run_until_idle();
    bench.heard.clear();
    let nobodys = "fe80::77".parse().unwrap();
    socket.send_to(host, b"new").unwrap();
    socket.send_from(CLIENT6.into(), host, b"known").unwrap();
    socket.send_from(nobodys, host, b"lost").unwrap();
    bench.run_until_idle();
    for (text, source) in [("new", other), ("known", CLIENT6), ("lost", other)] {
        let mut frames = bench.heard.iter();
        let frame = frames.find(|frame| frame.ends_with(text.as_bytes()));
        assert_eq!(frame.unwrap()[22..38], source.octets());
    }
}

/// The port of a DHCP client, which takes what is sent to any address of IPv4.
#[test]
fn the_bootp_port_is_open_while_somebody_has_it() {
    let mut bench = Bench::silent(IpVersion::V4);
    let log = Rc::new(RefCell::new(Vec::new()));
    let listen = |bench: &mut Bench, count: usize| {
        let (bootp, log) = (bench.stack.bootp(), log.clone());
        bench.engine.spawn(async move {
            for _ in 0..count {
                let message = bootp.receive().await;
                log.borrow_mut().push(message);
            }
        });
    };
    let says = |bench: &mut Bench, mac, to: IpAddr, payload: &[u8]| {
        let datagram = datagram_to(IpVersion::V4, SocketAddr::new(to, 68), payload);
        bench.send(&framed(IpVersion::V4, mac, to, &datagram));
        bench.run_until_idle();
    };
    listen(&mut bench, 2);
    says(&mut bench, [0xff; 6], [255; 4].into(), b"offer");
    says(&mut bench, CLIENT_MAC, [10, 0, 0, 77].into(), b"ack");
    let heard = [(SERVER, b"offer".to_vec()), (SERVER, b"ack".to_vec())];
    assert_eq!(*log.borrow(), heard);
    // Nobody has it any more, and later nobody is told of what came meanwhile.
    bench.heard.clear();
    says(&mut bench, CLIENT_MAC, CLIENT.into(), b"late");
    let refusals = bench.heard.iter().filter(|heard| heard[34..36] == [3, 3]);
    assert_eq!(refusals.count(), 1);
    listen(&mut bench, 1);
    bench.run_until_idle();
    assert_eq!(log.borrow().len(), 2);
}

#[test]
fn who_says_that_nobody_listens_is_believed_when_it_is_the_host() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let host = SocketAddr::new(version.server().ip(), 69);
        let socket = bench.stack.udp_on(PORT);
        bench.run_until_idle();
        bench.heard.clear();
        socket.send_to(host, b"request").unwrap();
        bench.run_until_idle();
        let sent = |frame: &&Vec<u8>| frame.ends_with(b"request");
        let sent = bench.heard.iter().find(sent).unwrap()[14..].to_vec();
        let (kind, code) = unreachable(version);
        let stranger: IpAddr = match version {
            IpVersion::V4 => "10.0.0.77".parse().unwrap(),
            IpVersion::V6 => "fe80::77".parse().unwrap(),
        };
        let ports = sent.len() - 15;
        let mut other_port = sent.clone();
        other_port[ports + 1] ^= 1;
        let mut other_host = sent.clone();
        other_host[ports - 1] ^= 1;
        let mut broken = icmp(version, host.ip(), kind, code, 0, &sent);
        *broken.last_mut().unwrap() ^= 1;
        for frame in [
            icmp(version, stranger, kind, code, 0, &sent),
            icmp(version, host.ip(), kind, code + 1, 0, &sent),
            icmp(version, host.ip(), kind, code, 0, &other_port),
            icmp(version, host.ip(), kind, code, 0, &other_host),
            icmp(version, host.ip(), kind, code, 0, &sent[..20]),
            broken,
        ] {
            bench.send(&frame);
            bench.run_until_idle();
            assert!(!socket.was_refused_by(host));
        }
        bench.send(&icmp(version, host.ip(), kind, code, 0, &sent));
        bench.run_until_idle();
        assert!(socket.was_refused_by(host));
        assert!(!socket.was_refused_by(host), "once");
    }
}

/// RFC 1122, section 3.2.2: no error for what came to many, or to somebody else.
#[test]
fn nobody_is_told_of_a_port_that_was_not_asked_for_here_alone() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        bench.run_until_idle();
        bench.heard.clear();
        let us = version.client();
        for mac in [
            [0xff; 6],
            [1, 0, 0x5e, 0, 0, 1],
            [0x33, 0x33, 0xff, 0, 0, 0x0a],
        ] {
            let frame = framed(version, mac, us, &datagram(version, us, b"hello"));
            bench.send(&frame);
        }
        let others: &[&str] = match version {
            IpVersion::V4 => &["10.0.0.77", "10.0.0.255", "255.255.255.255", "224.0.0.1"],
            IpVersion::V6 => &["fe80::77", "ff02::1", "2001:db8::1", "::1"],
        };
        for other in others {
            let to = other.parse().unwrap();
            let datagram = datagram(version, to, b"hello");
            bench.send(&framed(version, CLIENT_MAC, to, &datagram));
        }
        bench.run_until_idle();
        assert!(bench.heard.iter().all(|frame| frame[..6] != SERVER_MAC));
    }
}

#[test]
fn a_port_is_its_sockets_until_that_is_dropped() {
    for version in IpVersion::BOTH {
        let (mut bench, log) = listening(version);
        let us = version.client();
        let other = bench.stack.udp_on(PORT + 1);
        bench.run_until_idle();
        drop(other);
        bench.heard.clear();
        for port in [PORT, PORT + 1] {
            let datagram = datagram_to(version, SocketAddr::new(us, port), b"hello");
            bench.send(&framed(version, CLIENT_MAC, us, &datagram));
        }
        bench.run_until_idle();
        assert_eq!(log.borrow().len(), 1);
        let refusals = bench.heard.iter().filter(|frame| frame[..6] == SERVER_MAC);
        assert_eq!(refusals.count(), 1);
    }
}

/// RFC 6056, section 3.2: any port but those of services, and none that is taken.
#[test]
fn sockets_have_ports_of_their_own() {
    let bench = Bench::silent(IpVersion::V4);
    let sockets: Vec<_> = (0..1000).map(|_| bench.stack.udp()).collect();
    let mut ports: Vec<u16> = sockets.iter().map(|socket| socket.port()).collect();
    ports.sort_unstable();
    assert!(ports.is_sorted_by(|one, next| one < next), "a port twice");
    assert!((1024..4096).contains(&ports[0]) && ports[999] > 62_000);
}

/// RFC 2131, section 4.1: a client without an address sends to all, from 0.0.0.0.
#[test]
fn a_dhcp_client_without_an_address_sends_to_all() {
    let mut bench = Bench::silent(IpVersion::V4);
    bench.stack.unconfigure();
    let bootp = bench.stack.bootp();
    bench.run_until_idle();
    bench.heard.clear();
    bootp.broadcast(b"discover");
    bench.run_until_idle();
    let [frame] = &bench.heard[..] else {
        panic!("{} frames", bench.heard.len());
    };
    assert_eq!(frame[..12], [[0xff; 6], CLIENT_MAC].concat());
    assert_eq!(frame[12..14], [8, 0]);
    assert_eq!(
        frame[26..38],
        [0, 0, 0, 0, 255, 255, 255, 255, 0, 68, 0, 67]
    );
    assert!(frame.ends_with(b"discover"));
}

/// RFC 1812, section 4.3.2.3, and RFC 4443, section 2.4: an error message has as much of the packet as fits into the smallest MTU.
#[test]
fn an_error_message_fits_into_the_smallest_mtu() {
    for version in IpVersion::BOTH {
        let (transport, longest) = match version {
            IpVersion::V4 => (34, 576),
            IpVersion::V6 => (54, 1280),
        };
        let mut bench = Bench::silent(version);
        let us = version.client();
        let datagram = datagram(version, us, &[7; 1400]);
        bench.send(&framed(version, CLIENT_MAC, us, &datagram));
        bench.run_until_idle();
        let (kind, code) = unreachable(version);
        let refusal = |heard: &&Vec<u8>| {
            let message = heard.get(transport..);
            message.is_some_and(|message| message.starts_with(&[kind, code]))
        };
        let refusal = bench.heard.iter().find(refusal).unwrap();
        assert_eq!(refusal.len() - 14, longest);
    }
}
