//! What a station tells of itself.

use super::forged::Bench;
use super::{CLIENT, CLIENT_MAC, IpVersion, SERVER};
use crate::{Ipv4Cidr, Ipv4Config};
use core::net::IpAddr;
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

#[test]
fn an_address_that_is_given_up_is_no_longer_ours() {
    let stack = Bench::silent(IpVersion::V4).stack;
    assert_eq!(stack.address(), Some(Ipv4Cidr::new(CLIENT, 24)));
    stack.unconfigure();
    assert_eq!(stack.address(), None);
    assert_eq!(stack.source(IpAddr::V4(SERVER)), None);
}
