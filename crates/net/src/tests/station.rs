//! What a station tells of itself.

use super::forged::Bench;
use super::{CLIENT_MAC, Version};
use core::net::IpAddr;
use std::vec::Vec;

#[test]
fn its_ethernet_address_is_that_of_its_card() {
    assert_eq!(Bench::silent(Version::V4).stack.mac(), CLIENT_MAC);
}

/// RFC 6724, section 6: rules 1 and 9, from 10.0.0.1/24.
#[test]
fn the_addresses_of_a_name_are_tried_in_order() {
    let bench = Bench::silent(Version::V4);
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
