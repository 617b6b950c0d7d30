//! Echo requests (RFC 792, RFC 4443), at the wire of the running engine.

use super::forged::{Bench, arp, frame6, has, packet, transport_checksum};
use super::{CLIENT, CLIENT_MAC, CLIENT6, IpVersion, SERVER, SERVER_MAC, SERVER6};
use crate::checksum;
use crate::ipv6::ndisc::NeighborSolicitation;
use crate::ipv6::{multicast_mac, solicited_node};
use crate::packet::{PROTOCOL_ICMP, put};
use core::net::{IpAddr, Ipv6Addr};
use std::vec;
use std::vec::Vec;
use wireboot_nic::MacAddress;
use wireboot_tcp::Flags;

const ICMPV6: u8 = 58;
/// Waiting answers to strangers.
const ANSWERS: usize = 16;

/// An echo message with an identifier, a sequence number and an odd number of bytes.
fn echo(kind: u8, to: MacAddress, ends: (IpAddr, IpAddr)) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0x12, 0x34, 0, 7];
    message.extend(b"ping!");
    let (protocol, sum) = match ends.0 {
        IpAddr::V4(_) => (PROTOCOL_ICMP, checksum::compute(0, &message).to_be_bytes()),
        IpAddr::V6(_) => (ICMPV6, transport_checksum(ends, ICMPV6, &message)),
    };
    put(&mut message, 2, sum);
    packet(to, ends, protocol, &message)
}

fn request(version: IpVersion, to: MacAddress, ends: (IpAddr, IpAddr)) -> Vec<u8> {
    let kind = match version {
        IpVersion::V4 => 8,
        IpVersion::V6 => 128,
    };
    echo(kind, to, ends)
}

/// What the answer to it looks like behind the Ethernet header.
fn reply(version: IpVersion, ends: (IpAddr, IpAddr)) -> Vec<u8> {
    let kind = match version {
        IpVersion::V4 => 0,
        IpVersion::V6 => 129,
    };
    let mut reply = echo(kind, CLIENT_MAC, (ends.1, ends.0)).split_off(14);
    if version == IpVersion::V6 {
        // The hop limit of neighbour discovery does no harm.
        reply[7] = 0;
    }
    reply
}

/// Echo replies that the engine has sent.
fn replies(bench: &Bench) -> Vec<(MacAddress, Vec<u8>)> {
    let (at, kind) = match bench.version {
        IpVersion::V4 => (34, 0),
        IpVersion::V6 => (54, 129),
    };
    let protocol = match bench.version {
        IpVersion::V4 => (23, PROTOCOL_ICMP),
        IpVersion::V6 => (20, ICMPV6),
    };
    let ours = |frame: &&Vec<u8>| {
        frame.get(protocol.0) == Some(&protocol.1) && frame.get(at) == Some(&kind)
    };
    let all = bench.heard.iter().filter(ours).map(|frame| {
        let mut packet = frame[14..].to_vec();
        if bench.version == IpVersion::V6 {
            packet[7] = 0;
        }
        (*frame.first_chunk().unwrap(), packet)
    });
    all.collect()
}

#[test]
fn an_echo_request_is_answered() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let ends = (version.server().ip(), version.client());
        bench.send(&request(version, CLIENT_MAC, ends));
        bench.run_until_idle();
        assert_eq!(replies(&bench), [(SERVER_MAC, reply(version, ends))]);
    }
}

/// To us at both layers, and whole, or nothing (RFC 1122, section 3.3.6).
#[test]
fn what_is_not_to_us_is_not_answered() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let ends = (version.server().ip(), version.client());
        for to in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]] {
            bench.send(&request(version, to, ends));
        }
        let others: &[&str] = match version {
            IpVersion::V4 => &["10.0.0.77", "10.0.0.255", "255.255.255.255", "224.0.0.1"],
            IpVersion::V6 => &["fe80::77", "2001:db8::1", "ff02::1", "::1"],
        };
        for other in others {
            let ends = (ends.0, other.parse().unwrap());
            bench.send(&request(version, CLIENT_MAC, ends));
        }
        let right = request(version, CLIENT_MAC, ends);
        let start = match version {
            IpVersion::V4 => 34,
            IpVersion::V6 => 54,
        };
        // Another code, another sum, another byte.
        for at in [start + 1, start + 3, right.len() - 1] {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            bench.send(&wrong);
        }
        bench.run_until_idle();
        assert!(replies(&bench).is_empty());
    }
}

/// Answers that wait for a neighbour leave room for what this machine has to say.
#[test]
fn few_answers_wait_for_a_stranger() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let stranger = version.stranger();
        let ends = (stranger, version.client());
        for _ in 0..4 * ANSWERS {
            bench.send(&request(version, CLIENT_MAC, ends));
            bench.turn();
        }
        assert!(replies(&bench).is_empty());
        let mac = [2, 0, 0, 0, 0, 0x77];
        bench.send(&has(stranger, mac));
        bench.run_until_idle();
        let replies = replies(&bench);
        assert!(
            replies
                .iter()
                .all(|(to, bytes)| { *to == mac && *bytes == reply(version, ends) })
        );
        assert_eq!(replies.len(), ANSWERS);
    }
}

/// The host's question for our Ethernet address.
fn question(version: IpVersion) -> Vec<u8> {
    if version == IpVersion::V4 {
        return arp(1, SERVER_MAC, SERVER, CLIENT);
    }
    let asks = NeighborSolicitation {
        target: CLIENT6,
        source_link: Some(SERVER_MAC),
        nonce: None,
    };
    let group = solicited_node(CLIENT6);
    frame6(multicast_mac(group), &asks.packet(SERVER6, group))
}

/// Strangers whose Ethernet addresses nobody tells, in one turn and one after the other: others are answered, and our own questions stay.
#[test]
fn strangers_that_are_not_there_take_nobodys_place() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let us = version.client();
        let host = request(version, CLIENT_MAC, (version.server().ip(), us));
        bench.send(&host);
        bench.run_until_idle();
        let socket = bench.stack.udp_on(5000);
        let ours = version.stranger();
        socket.send_to((ours, 69).into(), b"ours").unwrap();
        bench.heard.clear();
        let strangers = (0x80..0xc0_u8).map(|last| match version {
            IpVersion::V4 => IpAddr::from([10, 0, 0, last]),
            IpVersion::V6 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last.into()).into(),
        });
        // As many as are refused in a tenth of a second, to a port that nobody has.
        let mut syn = bench.segment(0);
        syn.flags = Flags::SYN;
        syn.destination.set_port(22);
        for stranger in strangers.clone().take(10) {
            syn.source.set_ip(stranger);
            bench.send(&syn.frame());
        }
        bench.clock.advance(200);
        bench.turn();
        for stranger in strangers {
            // More answers than may wait.
            for _ in 0..3 {
                bench.send(&request(version, CLIENT_MAC, (stranger, us)));
            }
            bench.turn();
        }
        bench.send(&host);
        bench.send(&question(version));
        bench.send(&has(ours, [2, 0, 0, 0, 0, 0x77]));
        bench.run_until_idle();
        assert_eq!(replies(&bench).len(), 1);
        let tells = |frame: &&Vec<u8>| match version {
            IpVersion::V4 => frame.starts_with(&SERVER_MAC) && frame[12..14] == [8, 6],
            IpVersion::V6 => frame.starts_with(&SERVER_MAC) && frame[54] == 136,
        };
        assert_eq!(bench.heard.iter().filter(tells).count(), 1);
        assert!(bench.heard.iter().any(|frame| frame.ends_with(b"ours")));
    }
}
