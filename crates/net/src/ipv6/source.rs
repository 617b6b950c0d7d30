//! Which address a packet comes from, and in which order the addresses of a name are tried (RFC 6724).
//!
//! Rules 4, 5, 5.5 and 7 of section 5 and rules 4 and 7 of section 6 are about mobility, several interfaces, temporary addresses
//! and tunnels, which there are none of.

use crate::packet;
use crate::sort;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv6Addr};

/// An address of ours. IPv4 ones are mapped (::ffff:0:0/96), their prefix length 96 more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub address: Ipv6Addr,
    pub prefix_len: u8,
    /// To be avoided.
    pub deprecated: bool,
}

/// RFC 6724, section 2.1: prefix, its length, precedence, label.
const POLICIES: [(Ipv6Addr, u8, u8, u8); 9] = [
    (Ipv6Addr::LOCALHOST, 128, 50, 0),
    (v6(0, 0, 0xffff), 96, 35, 4),
    (v6(0, 0, 0), 96, 1, 3),
    (v6(0x2001, 0, 0), 32, 5, 5),
    (v6(0x2002, 0, 0), 16, 30, 2),
    (v6(0x3ffe, 0, 0), 16, 1, 12),
    (v6(0xfec0, 0, 0), 10, 1, 11),
    (v6(0xfc00, 0, 0), 7, 3, 13),
    (v6(0, 0, 0), 0, 40, 1),
];

const fn v6(first: u16, second: u16, sixth: u16) -> Ipv6Addr {
    Ipv6Addr::new(first, second, 0, 0, 0, sixth, 0, 0)
}

/// Precedence and label. Needed where the first rules do not decide; inlined, it is 2 kB of code.
#[inline(never)]
fn policy(address: Ipv6Addr) -> (u8, u8) {
    let of =
        |(prefix, len, ..): &&(Ipv6Addr, u8, u8, u8)| super::same_prefix(*prefix, address, *len);
    // The table has each longer prefix first, and one that fits all.
    let found = POLICIES.iter().find(of);
    found.map_or((40, 1), |(_, _, precedence, label)| (*precedence, *label))
}

/// RFC 6724, section 3.1 and 3.2: 2 is the link, 14 the world.
pub(crate) fn scope(address: Ipv6Addr) -> u8 {
    let [first, second, ..] = address.octets();
    match address.to_ipv4_mapped() {
        Some(v4) if v4.is_link_local() || v4.is_loopback() => 2,
        Some(_) => 14,
        None if first == 0xff => second & 0xf,
        None if address.is_loopback() || address.is_unicast_link_local() => 2,
        None if first == 0xfe && second & 0xc0 == 0xc0 => 5,
        None => 14,
    }
}

/// Length of the common prefix, within the prefix of `source`.
fn common(source: &Candidate, destination: Ipv6Addr) -> u32 {
    let same = (source.address.to_bits() ^ destination.to_bits()).leading_zeros();
    same.min(source.prefix_len.into())
}

/// The address for packets to `destination` (section 5). The first of equal ones.
pub(crate) fn choose(
    destination: Ipv6Addr,
    candidates: impl IntoIterator<Item = Candidate>,
) -> Option<Candidate> {
    let v4 = destination.to_ipv4_mapped().is_some();
    let wanted = scope(destination);
    // Wide enough, then as narrow as can be; else as wide as can be.
    let reach = |address| match scope(address) {
        scope if scope >= wanted => (0, scope),
        scope => (1, u8::MAX - scope),
    };
    let first = |one: &Candidate| {
        let is_other = one.address != destination;
        (is_other, reach(one.address), one.deprecated)
    };
    // Each datagram's source is chosen so, and the first rules mostly decide.
    let then = |one: &Candidate| {
        let is_labelled_otherwise = policy(one.address).1 != policy(destination).1;
        (is_labelled_otherwise, Reverse(common(one, destination)))
    };
    let candidates = candidates.into_iter();
    let of_version = candidates.filter(|one| one.address.to_ipv4_mapped().is_some() == v4);
    of_version.min_by(|one, other| {
        let by_first = first(one).cmp(&first(other));
        by_first.then_with(|| then(one).cmp(&then(other)))
    })
}

/// Puts the addresses of a name into the order in which they are tried (section 6). `candidates`: all addresses of ours, of
/// both versions.
pub(crate) fn order(destinations: &mut [IpAddr], candidates: &[Candidate]) {
    let key = |destination: &IpAddr| {
        let destination = packet::v6(*destination);
        let (precedence, label) = policy(destination);
        let scope_of = scope(destination);
        let source = choose(destination, candidates.iter().copied());
        let faults = source.map(|source| {
            let (_, of_source) = policy(source.address);
            let wrong_scope = scope(source.address) != scope_of;
            (wrong_scope, source.deprecated, of_source != label)
        });
        let common = source.map_or(0, |source| common(&source, destination));
        // Rule 1: what cannot be reached comes last.
        let unreachable = source.is_none();
        let precedence = Reverse(precedence);
        (unreachable, faults, precedence, scope_of, Reverse(common))
    };
    let keyed = destinations.iter().map(|one| (key(one), *one));
    let mut keyed: Vec<_> = keyed.collect();
    sort::insertion(&mut keyed, |one, other| one.0 < other.0);
    for (place, (_, destination)) in destinations.iter_mut().zip(keyed) {
        *place = destination;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// `text`: address/length, "!" behind it for a deprecated one.
    fn candidate(text: &str) -> Candidate {
        let (address, len) = text.trim_end_matches('!').split_once('/').unwrap();
        let (address, len) = (ip(address), len.parse::<u8>().unwrap());
        Candidate {
            address: packet::v6(address),
            prefix_len: len + if address.is_ipv4() { 96 } else { 0 },
            deprecated: text.ends_with('!'),
        }
    }

    fn candidates(texts: &[&str]) -> Vec<Candidate> {
        texts.iter().map(|text| candidate(text)).collect()
    }

    #[track_caller]
    fn chooses(destination: &str, texts: &[&str], want: &str) {
        let mut all = candidates(texts);
        for _ in 0..2 {
            let got = choose(packet::v6(ip(destination)), all.clone());
            assert_eq!(got, Some(candidate(want)));
            all.reverse();
        }
    }

    /// RFC 6724, section 3.1 and 3.2; RFC 4291, section 2.7.
    #[test]
    fn scopes() {
        for (text, expected) in [
            ("ff01::1", 1),
            ("ff02::1", 2),
            ("ff05::1", 5),
            ("ff1e::1", 14),
            ("::1", 2),
            ("fe80::1", 2),
            // Site-local is fec0::/10.
            ("fec0::1", 5),
            ("feff::1", 5),
            ("fdc0::1", 14),
            ("fe00::1", 14),
            ("2001:db8::1", 14),
            ("127.0.0.1", 2),
            ("169.254.0.1", 2),
            ("10.0.0.1", 14),
        ] {
            assert_eq!(scope(packet::v6(ip(text))), expected, "{text}");
        }
    }

    /// The examples of RFC 6724, section 10.1, as far as they are about one interface without mobility.
    #[test]
    fn source_addresses() {
        chooses(
            "2001:db8:1::1",
            &["2001:db8:3::1/64", "fe80::1/64"],
            "2001:db8:3::1/64",
        );
        chooses(
            "ff05::1",
            &["2001:db8:3::1/64", "fe80::1/64"],
            "2001:db8:3::1/64",
        );
        let all = ["2001:db8:1::1/64!", "2001:db8:2::1/64"];
        chooses("2001:db8:1::1", &all, "2001:db8:1::1/64!");
        chooses(
            "fe80::1",
            &["fe80::2/64!", "2001:db8:1::1/64"],
            "fe80::2/64!",
        );
        let all = ["2001:db8:1::2/64", "2001:db8:3::2/64"];
        chooses("2001:db8:1::1", &all, "2001:db8:1::2/64");
        let all = ["2002:c633:6401:1::2/64", "2001:db8:1::d5e3:1/64"];
        chooses("2002:c633:6401::d5e3:7953:13eb:22e8", &all, all[0]);
    }

    #[test]
    fn more_source_addresses() {
        // Too narrow a scope is worse than a deprecated address; the wider of two that are too narrow; local to local.
        chooses(
            "2001:db8:1::1",
            &["fe80::1/64", "2001:db8:3::1/64!"],
            "2001:db8:3::1/64!",
        );
        chooses("ff0e::1", &["fe80::1/64", "fec0::1/64"], "fec0::1/64");
        chooses("ff02::1", &["fe80::1/64!", "2001:db8::1/64"], "fe80::1/64!");
        chooses(
            "2001:db8::9",
            &["2001:db8::1/64!", "2001:db8:1::1/64"],
            "2001:db8:1::1/64",
        );
        chooses(
            "fd00:1::1",
            &["2001:db8::1/64", "fd00:2::1/64"],
            "fd00:2::1/64",
        );
        // A label counts more than a prefix.
        chooses(
            "2001:db8::1",
            &["2002:a00::1/64", "2600::1/64"],
            "2600::1/64",
        );
        // Of one prefix alike, whatever bits behind it: the first.
        let all = candidates(&["2001:db8::1/64", "2001:db8::9/64"]);
        assert_eq!(
            choose(packet::v6(ip("2001:db8::8")), all.clone()),
            Some(all[0])
        );
        // A version has addresses of its own.
        chooses(
            "10.0.0.2",
            &["2001:db8::1/64", "10.0.0.1/24"],
            "10.0.0.1/24",
        );
        chooses(
            "2001:db8::2",
            &["2001:db8::1/64", "10.0.0.1/24"],
            "2001:db8::1/64",
        );
        assert_eq!(
            choose(packet::v6(ip("10.0.0.2")), candidates(&["2001:db8::1/64"])),
            None
        );
    }

    #[track_caller]
    fn orders(ours: &[&str], want: &[&str]) {
        let want: Vec<_> = want.iter().map(|text| ip(text)).collect();
        let mut got = want.clone();
        for _ in 0..2 {
            got.reverse();
            order(&mut got, &candidates(ours));
            assert_eq!(got, want);
        }
    }

    /// The examples of RFC 6724, section 10.2.
    #[test]
    fn destinations() {
        let (global, link, link4) = ("2001:db8:1::2/64", "fe80::1/64", "169.254.13.78/16");
        orders(&[global, link, link4], &["2001:db8:1::1", "198.51.100.121"]);
        orders(
            &[link, "198.51.100.117/24"],
            &["198.51.100.121", "2001:db8:1::1"],
        );
        orders(
            &[global, link, "10.1.2.4/24"],
            &["2001:db8:1::1", "10.1.2.3"],
        );
        orders(&[global, "fe80::2/64"], &["fe80::1", "2001:db8:1::1"]);
        let ours = ["2001:db8:1::2/64", "2001:db8:3f44::2/64", "fe80::2/64"];
        orders(&ours, &["2001:db8:1::1", "2001:db8:3ffe::1"]);
        let ours = ["2002:c633:6401::2/64", "fe80::2/64"];
        orders(&ours, &["2002:c633:6401::1", "2001:db8:1::1"]);
        let ours = ["2002:c633:6401::2/64", "2001:db8:1::2/64", "fe80::2/64"];
        orders(&ours, &["2001:db8:1::1", "2002:c633:6401::1"]);
    }

    #[test]
    fn more_destinations() {
        // What cannot be reached comes last; a deprecated source; a local network of somebody else's.
        orders(&["10.0.0.1/24"], &["10.0.0.2", "2001:db8::2"]);
        orders(
            &["2001:db8::1/64!", "10.0.0.1/24"],
            &["10.0.0.2", "2001:db8::2"],
        );
        orders(&["2001:db8::1/64", "10.0.0.1/24"], &["10.0.0.2", "fd00::2"]);
        // The order of a name server's answer stays where nothing else tells.
        let ours = candidates(&["2001:db8::1/64", "10.0.0.1/24"]);
        let mut names = ["2001:db8:2::9", "2001:db8:2::1", "10.9.0.2", "10.9.0.1"].map(ip);
        order(&mut names, &ours);
        assert_eq!(
            names,
            ["2001:db8:2::9", "2001:db8:2::1", "10.9.0.2", "10.9.0.1"].map(ip)
        );
    }

    proptest! {
        #[test]
        fn any_addresses_have_an_order(bits: Vec<u128>, v4: Vec<u32>, ours: Vec<(u128, u8, bool)>) {
            let ours: Vec<_> = ours.into_iter().map(|(bits, prefix_len, deprecated)| Candidate {
                address: Ipv6Addr::from_bits(bits),
                prefix_len,
                deprecated,
            }).collect();
            let v6 = bits.into_iter().map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)));
            let mut all: Vec<IpAddr> = v6.chain(v4.into_iter().map(|bits| IpAddr::V4(bits.into()))).collect();
            let mut before = all.clone();
            order(&mut all, &ours);
            let sorted = all.clone();
            order(&mut all, &ours);
            prop_assert_eq!(&all, &sorted);
            before.sort_unstable();
            all.sort_unstable();
            prop_assert_eq!(all, before);
        }
    }
}
