//! What a station tells of itself.

use super::forged::{Bench, has};
use super::{CLIENT, CLIENT_MAC, IpVersion, SERVER, SERVER_MAC};
use crate::{Ipv4Cidr, Ipv4Config, Ipv6Addr, NetError};
use core::net::{IpAddr, SocketAddr};
use std::vec::Vec;

#[test]
fn its_ethernet_address_is_that_of_its_card() {
    assert_eq!(Bench::silent(IpVersion::V4).stack.mac(), CLIENT_MAC);
}

/// RFC 6724, section 6: rules 1 and 9, from 10.0.0.1/24.
#[test]
fn the_addresses_of_a_name_are_tried_in_order() {
    let bench = Bench::silent(IpVersion::V4);
    let ordered = |texts: [&str; 3]| {
        let mut all: Vec<IpAddr> = texts.iter().map(|text| text.parse().unwrap()).collect();
        bench.stack.order(&mut all);
        all.iter()
            .map(|address| std::format!("{address}"))
            .collect::<Vec<_>>()
    };
    // Without an IPv6 address what has one comes last. The own network comes first, whose addresses are all the same.
    assert_eq!(
        ordered(["2001:db8::1", "10.9.9.9", "10.0.0.5"]),
        ["10.0.0.5", "10.9.9.9", "2001:db8::1"]
    );
    let same = ["10.0.0.200", "10.0.0.2", "10.0.0.7"];
    assert_eq!(ordered(same), same);
}

/// RFC 791: every link carries 576 bytes; no packet is longer than the card takes.
#[test]
fn packets_are_as_long_as_the_network_says_within_reason() {
    let bench = Bench::silent(IpVersion::V4);
    assert_eq!(bench.stack.mtu(), 1500);
    for (told, mtu) in [(1400, 1400), (576, 576), (575, 576), (0, 576), (9000, 1500)] {
        bench.stack.configure(&Ipv4Config {
            address: Ipv4Cidr::new(CLIENT, 24),
            router: None,
            routes: Vec::new(),
            mtu: Some(told),
        });
        assert_eq!(bench.stack.mtu(), mtu);
    }
}

#[test]
fn who_is_on_the_link_is_told_by_the_prefix() {
    for version in IpVersion::BOTH {
        let stack = Bench::silent(version).stack;
        let (here, far) = match version {
            IpVersion::V4 => ("10.0.0.77", "10.0.1.1"),
            IpVersion::V6 => ("fe80::77", "2001:db8::1"),
        };
        assert!(stack.is_on_link(here.parse().unwrap()));
        assert!(!stack.is_on_link(far.parse().unwrap()));
    }
}

/// A network without router advertisements, and a server on its link.
#[test]
fn without_a_router_a_host_near_our_address_is_asked_for_on_the_link() {
    let mut bench = Bench::silent(IpVersion::V6);
    let [ours, near, far]: [Ipv6Addr; 3] =
        ["fd00::1000", "fd00::1", "fd00:0:0:1::1"].map(|text| text.parse().unwrap());
    let socket = bench.stack.udp_on(5000);
    let to = SocketAddr::new(near.into(), 69);
    assert_eq!(socket.send_to(to, b"hello"), Err(NetError::Unreachable));
    assert!(bench.stack.add_ipv6(ours));
    bench.run_until_idle();
    // The address is settled.
    bench.clock.advance(30_000);
    bench.run_until_idle();
    assert_eq!(bench.stack.source(near.into()), Some(ours.into()));
    assert_eq!(bench.stack.source(far.into()), None);
    // A router may still tell of the way there.
    assert!(bench.stack.is_on_link(near.into()) && !bench.stack.has_ipv6_route());
    socket.send_to(to, b"hello").unwrap();
    bench.run_until_idle();
    bench.send(&has(near.into(), SERVER_MAC));
    bench.run_until_idle();
    let mut frames = bench.heard.iter();
    let sent = frames.find(|frame| frame.ends_with(b"hello")).unwrap();
    assert_eq!(sent[..6], SERVER_MAC);
    assert_eq!(sent[22..38], ours.octets());
}

#[test]
fn an_address_that_is_given_up_is_no_longer_ours() {
    let stack = Bench::silent(IpVersion::V4).stack;
    assert_eq!(stack.address(), Some(Ipv4Cidr::new(CLIENT, 24)));
    stack.unconfigure();
    assert_eq!(stack.address(), None);
    assert_eq!(stack.source(IpAddr::V4(SERVER)), None);
}
