use super::super::header::{ICMP, Packet};
use super::super::{ALL_NODES, icmp};
use super::*;
use alloc::vec;
use proptest::prelude::*;

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const US: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const GLOBAL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
const NONE: Ipv6Addr = Ipv6Addr::UNSPECIFIED;
const MAC: MacAddress = [2, 0, 0, 0, 0, 9];

/// An advertisement's fixed part and `options`.
fn advertisement(options: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![134, 0, 0, 0, 64, 0xc8, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(options.concat());
    bytes
}

fn redirect(target: Ipv6Addr, destination: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![137, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(target.octets());
    bytes.extend(destination.octets());
    bytes.extend(options);
    bytes
}

fn prefix(len: u8) -> [u8; 32] {
    let mut option = [0; 32];
    option[..8].copy_from_slice(&[3, 4, len, 0xc0, 0, 0, 0, 30]);
    option[8..12].copy_from_slice(&[0, 0, 0, 20]);
    option[16..].copy_from_slice(&GLOBAL.octets());
    option
}

fn from_router(message: &[u8]) -> Option<Message> {
    read(ROUTER, ALL_NODES, 255, message)
}

fn heard(options: &[&[u8]]) -> Option<RouterAdvertisement> {
    match from_router(&advertisement(options)) {
        Some(Message::RouterAdvertisement(advertisement)) => Some(advertisement),
        _ => None,
    }
}

fn read(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8, message: &[u8]) -> Option<Message> {
    let packet = Packet {
        source,
        destination,
        hop_limit,
        next_header: ICMP,
        payload: message,
    };
    parse(&packet, message)
}

/// What a receiver reads from a packet of ours.
fn sent(bytes: &[u8]) -> Option<Message> {
    let packet = Packet::parse(bytes).unwrap();
    assert_eq!(packet.next_header, ICMP);
    assert!(icmp::verify(
        packet.source,
        packet.destination,
        packet.payload
    ));
    parse(&packet, packet.payload)
}

#[test]
fn an_advertisement() {
    let dns = [&[25, 3, 0, 0, 0, 0, 0, 5][..], &GLOBAL.octets()].concat();
    let search = b"\x1f\x04\0\0\0\0\0\x06\x03lab\x07example\x00\x02a_\0\0\0\0\0\0\0\0";
    let got = heard(&[
        &[1, 1, 2, 0, 0, 0, 0, 9],
        &prefix(64),
        &[5, 1, 0, 0, 0, 0, 5, 0xdc],
        &prefix(48),
        &dns,
        search,
        &[99, 1, 0, 0, 0, 0, 0, 0],
    ]);
    let information = PrefixInformation {
        prefix: GLOBAL,
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime: 30,
        preferred_lifetime: 20,
    };
    let want = RouterAdvertisement {
        managed: true,
        other: true,
        preference: 1,
        router_lifetime: 1800,
        source_link: Some(MAC),
        mtu: Some(1500),
        prefixes: vec![
            information,
            PrefixInformation {
                prefix_len: 48,
                ..information
            },
        ],
        dns: vec![(GLOBAL, 5)],
        search: vec![("lab.example".into(), 6), ("a_".into(), 6)],
    };
    assert_eq!(got, Some(want));
}

#[test]
fn flags_of_an_advertisement() {
    let with = |flags| {
        let mut bytes = advertisement(&[]);
        bytes[5] = flags;
        match from_router(&bytes) {
            Some(Message::RouterAdvertisement(a)) => (a.managed, a.other, a.preference),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(with(0x80), (true, false, 0));
    assert_eq!(with(0x40), (false, true, 0));
    assert_eq!(with(0x18), (false, false, -1));
    // Reserved: as if it were medium (RFC 4191, section 2.2).
    assert_eq!(with(0x10), (false, false, 0));
}

/// RFC 4861, section 6.1.2, and what else a forged advertisement has.
#[test]
fn forged_advertisements() {
    let right = advertisement(&[]);
    assert!(from_router(&right).is_some());
    assert_eq!(read(GLOBAL, ALL_NODES, 255, &right), None);
    assert_eq!(read(NONE, ALL_NODES, 255, &right), None);
    assert_eq!(read(ROUTER, ALL_NODES, 254, &right), None);
    assert_eq!(from_router(&right[..15]), None);
    let mut code = right.clone();
    code[1] = 1;
    assert_eq!(from_router(&code), None);
    // Options: of length 0, longer than the message, a stray byte, of another length than they have, a prefix of 129 bits.
    assert!(heard(&[&prefix(128)]).is_some());
    let zero = [0; 8];
    for wrong in [
        &[1, 0, 2, 0, 0, 0, 0, 9][..],
        &[1, 2, 2, 0, 0, 0, 0, 9],
        &[99],
        &[1, 2, 2, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0],
        &[5, 2, 0, 0, 0, 0, 5, 0xdc, 0, 0, 0, 0, 0, 0, 0, 0],
        &[3, 1, 64, 0xc0, 0, 0, 0, 0],
        &prefix(129),
        &zero,
    ] {
        assert_eq!(heard(&[wrong]), None, "{wrong:?}");
    }
}

#[test]
fn wrong_lists_of_names_and_servers_are_passed_over() {
    let group = [&[25, 3, 0, 0, 0, 0, 0, 5][..], &ALL_NODES.octets()].concat();
    let mut longer = vec![25, 4, 0, 0, 0, 0, 0, 5];
    longer.extend(GLOBAL.octets());
    longer.extend([0; 8]);
    let label = [&b"\x1f\x0a\0\0\0\0\0\x06\x40"[..], &[b'a'; 64], &[0; 7]].concat();
    for option in [
        &longer[..],
        &label,
        b"\x1f\x02\0\0\0\0\0\x06\x01a\0\x04bcde",
        &[25, 1, 0, 0, 0, 0, 0, 5][..],
        &[25, 2, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0],
        &group,
        // A name without an end, one with a pointer, one that goes to a terminal.
        b"\x1f\x02\0\0\0\0\0\x06\x07example",
        b"\x1f\x02\0\0\0\0\0\x06\x01a\xc0\x01b\0\0\0",
        b"\x1f\x02\0\0\0\0\0\x06\x02\x1b[\0\0\0\0\0",
        b"\x1f\x02\0\0\0\0\0\x06\x3eexample",
    ] {
        let got = heard(&[option]).unwrap();
        assert!(got.dns.is_empty() && got.search.is_empty(), "{option:?}");
    }
    // 254 characters.
    let mut name = vec![31, 33, 0, 0, 0, 0, 0, 6];
    for len in [63, 63, 63, 62_u8] {
        name.push(len);
        name.extend(vec![b'a'; usize::from(len)]);
    }
    name[8 + 3 * 64] = 61;
    name[8 + 3 * 64 + 62] = 0;
    name.resize(33 * 8, 0);
    assert_eq!(heard(&[&name]).unwrap().search[0].0.len(), 253);
    name[8 + 3 * 64] = 62;
    name[8 + 3 * 64 + 62] = b'a';
    assert_eq!(heard(&[&name]).unwrap().search, []);
}

#[test]
fn one_message_brings_so_much() {
    let dns = [&[25, 3, 0, 0, 0, 0, 0, 5][..], &GLOBAL.octets()].concat();
    let got = heard(&[&prefix(64).repeat(40), &dns.repeat(40)]).unwrap();
    assert_eq!((got.prefixes.len(), got.dns.len()), (16, 16));
}

#[test]
fn routers_are_asked() {
    for (source, mac, len) in [(US, Some(MAC), 16), (US, None, 8), (NONE, None, 8)] {
        let bytes = router_solicitation(source, mac);
        // It is for routers, not for us.
        assert_eq!(sent(&bytes), None);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.source, packet.destination), (source, ALL_ROUTERS));
        assert_eq!((packet.hop_limit, packet.payload.len()), (255, len));
        let (fixed, option) = packet.payload.split_at(8);
        assert_eq!((fixed[0], fixed[1], &fixed[4..]), (133, 0, &[0; 4][..]));
        let link = mac.map(|mac| [&[1, 1], &mac[..]].concat());
        assert_eq!(option, link.unwrap_or_default());
    }
}

#[test]
fn what_is_asked_is_read() {
    for (nonce, mac) in [(None, None), (Some([7; 6]), None), (None, Some(MAC))] {
        let solicitation = NeighborSolicitation {
            target: US,
            source_link: mac,
            nonce,
        };
        let message = Some(Message::NeighborSolicitation(solicitation));
        assert_eq!(sent(&solicitation.packet(ROUTER, US)), message);
        assert_eq!(
            sent(&solicitation.packet(ROUTER, solicited_node(US))),
            message
        );
        // Sections 7.1.1: from nobody, only to the group and without a link-layer address.
        let from_nobody = sent(&solicitation.packet(NONE, solicited_node(US)));
        assert_eq!(from_nobody, message.filter(|_| mac.is_none()));
        assert_eq!(sent(&solicitation.packet(NONE, US)), None);
        assert_eq!(sent(&solicitation.packet(ROUTER, ALL_NODES)), None);
        let group = NeighborSolicitation {
            target: ALL_NODES,
            ..solicitation
        };
        assert_eq!(sent(&group.packet(ROUTER, solicited_node(ALL_NODES))), None);
    }
}

#[test]
fn what_is_answered_is_read() {
    for bits in 0..4 {
        let advertisement = NeighborAdvertisement {
            solicited: bits & 1 != 0,
            override_: bits & 2 != 0,
            target: US,
            target_link: Some(MAC),
        };
        let message = Some(Message::NeighborAdvertisement(advertisement));
        assert_eq!(sent(&advertisement.packet(US, ROUTER)), message);
        // Section 7.1.2.
        let to_all = sent(&advertisement.packet(US, ALL_NODES));
        assert_eq!(to_all, message.filter(|_| !advertisement.solicited));
        for target in [ALL_NODES, NONE, Ipv6Addr::LOCALHOST] {
            let other = NeighborAdvertisement {
                target,
                ..advertisement
            };
            assert_eq!(sent(&other.packet(US, ROUTER)), None);
        }
        assert_eq!(sent(&advertisement.packet(NONE, ROUTER)), None);
    }
}

/// RFC 4861, section 8.1.
#[test]
fn forged_redirects() {
    let link = [2, 1, 2, 0, 0, 0, 0, 9];
    let right_from = |source, destination, hop_limit, bytes: &[u8]| {
        read(source, destination, hop_limit, bytes).is_some()
    };
    let right = redirect(US, GLOBAL, &link);
    let want = Redirect {
        target: US,
        destination: GLOBAL,
        target_link: Some(MAC),
    };
    assert_eq!(read(ROUTER, US, 255, &right), Some(Message::Redirect(want)));
    assert!(right_from(ROUTER, US, 255, &redirect(GLOBAL, GLOBAL, &[])));
    assert!(!right_from(GLOBAL, US, 255, &right));
    assert!(!right_from(ROUTER, US, 64, &right));
    assert!(!right_from(ROUTER, ALL_NODES, 255, &right));
    assert!(!right_from(ROUTER, US, 255, &right[..39]));
    assert!(!right_from(
        ROUTER,
        US,
        255,
        &redirect(GLOBAL, ROUTER, &link)
    ));
    assert!(!right_from(
        ROUTER,
        US,
        255,
        &redirect(US, ALL_NODES, &link)
    ));
    assert!(!right_from(ROUTER, US, 255, &redirect(NONE, NONE, &link)));
    let mut code = right;
    code[1] = 1;
    assert!(!right_from(ROUTER, US, 255, &code));
}

/// CVE-2023-45231: a redirect with a truncated option made EDK II read behind its end.
#[test]
fn pixiefail_45231_redirect_with_a_truncated_option() {
    for stray in [
        &[0][..],
        &[2],
        &[2, 1],
        &[2, 1, 2, 0, 0, 0, 0],
        &[4, 9, 0, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(read(ROUTER, US, 255, &redirect(US, GLOBAL, stray)), None);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(kind in 133..138_u8, mut bytes: Vec<u8>, global: bool) {
        let source = if global { GLOBAL } else { ROUTER };
        read(source, US, 255, &bytes);
        bytes.splice(0..0, [kind, 0]);
        read(source, US, 255, &bytes);
    }

    #[test]
    fn no_option_makes_it_panic(
        kinds in prop::collection::vec((prop::sample::select(vec![1, 3, 5, 25, 31]), 0..5_u8), 0..6),
        bytes in prop::collection::vec(any::<u8>(), 256), cut in 0..300_usize,
    ) {
        let mut message = advertisement(&[]);
        for (kind, len) in kinds {
            message.extend([kind, len]);
            message.extend(&bytes[..(usize::from(len) * 8).saturating_sub(2)]);
        }
        message.truncate(cut);
        from_router(&message);
    }
}

/// RFC 4861, section 4.6.2: the other bits are reserved.
#[test]
fn flags_of_a_prefix() {
    for (flags, expected) in [
        (0x80, (true, false)),
        (0x40, (false, true)),
        (0x3f, (false, false)),
    ] {
        let mut option = prefix(64);
        option[3] = flags;
        let got = heard(&[&option]).unwrap().prefixes[0];
        assert_eq!((got.on_link, got.autonomous), expected, "{flags:#x}");
    }
}
