//! Echo sockets, at the wire of the running engine.

use super::forged::{Bench, packet, transport_checksum};
use super::{CLIENT_MAC, IpVersion};
use crate::checksum;
use crate::packet::{PROTOCOL_ICMP, put};
use crate::{EchoSocket, NetError, Parts};
use core::net::IpAddr;
use std::vec;
use std::vec::Vec;

const ICMPV6: u8 = 58;

/// Where the ICMP message begins in a frame.
fn start(version: IpVersion) -> usize {
    match version {
        IpVersion::V4 => 34,
        IpVersion::V6 => 54,
    }
}

fn protocol(version: IpVersion) -> u8 {
    match version {
        IpVersion::V4 => PROTOCOL_ICMP,
        IpVersion::V6 => ICMPV6,
    }
}

/// A frame with `message`, its checksum set.
fn icmp(version: IpVersion, ends: (IpAddr, IpAddr), mut message: Vec<u8>) -> Vec<u8> {
    put(&mut message, 2, [0, 0]);
    let sum = match version {
        IpVersion::V4 => checksum::compute(0, &message).to_be_bytes(),
        IpVersion::V6 => transport_checksum(ends, ICMPV6, &message),
    };
    put(&mut message, 2, sum);
    packet(CLIENT_MAC, ends, protocol(version), &message)
}

/// The frames with echo requests that the engine has sent.
fn requests(bench: &Bench) -> Vec<Vec<u8>> {
    let (at, kind) = match bench.version {
        IpVersion::V4 => (23, 8),
        IpVersion::V6 => (20, 128),
    };
    let is_request = |frame: &&Vec<u8>| {
        frame.get(at) == Some(&protocol(bench.version))
            && frame.get(start(bench.version)) == Some(&kind)
    };
    bench.heard.iter().filter(is_request).cloned().collect()
}

/// A socket whose first request, of 100 bytes and the number 7, has left; and that request.
fn asked(bench: &mut Bench) -> (EchoSocket, Vec<u8>) {
    let socket = bench.stack.echo(bench.version.server().ip());
    socket.send(7, 100).unwrap();
    bench.run_until_idle();
    let all = requests(bench);
    assert_eq!(all.len(), 1, "{all:?}");
    (socket, all[0].clone())
}

/// The answer to a request: another type, the other way (RFC 792, RFC 4443 section 4.2).
fn answer(version: IpVersion, request: &[u8]) -> Vec<u8> {
    let mut message = request[start(version)..].to_vec();
    message[0] = match version {
        IpVersion::V4 => 0,
        IpVersion::V6 => 129,
    };
    message
}

#[test]
fn a_request_is_as_long_as_asked_and_may_not_be_cut() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        bench.answers = true;
        let (_socket, request) = asked(&mut bench);
        assert_eq!(request.len(), 14 + 100);
        let message = &request[start(version)..];
        assert_eq!((message[1], &message[6..8]), (0, &[0, 7][..]));
        let ends = (version.client(), version.server().ip());
        match version {
            IpVersion::V4 => {
                // Don't Fragment (RFC 791).
                assert_eq!(request[20], 0x40);
                assert!(checksum::verify(0, Parts::new(&[message])));
            }
            IpVersion::V6 => assert_eq!(request, icmp_from_us(ends, message)),
        }
    }
}

/// The same message from the engine's card to the host's, its checksum made here.
fn icmp_from_us(ends: (IpAddr, IpAddr), message: &[u8]) -> Vec<u8> {
    let mut frame = icmp(IpVersion::V6, ends, message.to_vec());
    put(&mut frame, 0, super::SERVER_MAC);
    put(&mut frame, 6, CLIENT_MAC);
    frame
}

#[test]
fn a_reply_comes_to_the_socket_of_its_host_and_identifier() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        bench.answers = true;
        let (socket, request) = asked(&mut bench);
        let other = bench.stack.echo(version.server().ip());
        let ends = (version.server().ip(), version.client());
        let right = answer(version, &request);
        // Another identifier, another code, a request.
        for (at, change) in [(4, 1), (1, 1), (0, 8)] {
            let mut wrong = right.clone();
            wrong[at] ^= change;
            bench.send(&icmp(version, ends, wrong));
        }
        let stranger = (version.stranger(), version.client());
        bench.send(&icmp(version, stranger, right.clone()));
        let mut broken = icmp(version, ends, right.clone());
        *broken.last_mut().unwrap() ^= 1;
        bench.send(&broken);
        bench.run_until_idle();
        assert_eq!(socket.try_receive(), None);
        bench.send(&icmp(version, ends, right.clone()));
        bench.run_until_idle();
        assert_eq!(socket.try_receive(), Some(7));
        assert_eq!(socket.try_receive(), None);
        assert_eq!(other.try_receive(), None);
        drop(socket);
        bench.send(&icmp(version, ends, right));
        bench.run_until_idle();
        assert_eq!(other.try_receive(), None);
    }
}

/// A reply that was cut on its way says nothing of how long packets may be.
#[test]
fn a_reply_in_fragments_is_not_taken() {
    let version = IpVersion::V4;
    let mut bench = Bench::silent(version);
    bench.answers = true;
    let (socket, request) = asked(&mut bench);
    let ends = (version.server().ip(), version.client());
    let whole = icmp(version, ends, answer(version, &request));
    let message = &whole[34..];
    for (offset, more, part) in [(0u16, 0x20u8, &message[..40]), (5, 0, &message[40..])] {
        let mut frame = packet(CLIENT_MAC, ends, PROTOCOL_ICMP, part);
        put(&mut frame, 18, [0x12, 0x34, more, offset as u8]);
        put(&mut frame, 24, [0, 0]);
        let sum = checksum::compute(0, &frame[14..34]);
        put(&mut frame, 24, sum.to_be_bytes());
        bench.send(&frame);
    }
    bench.run_until_idle();
    assert_eq!(socket.try_receive(), None);
}

#[test]
fn who_says_that_a_request_is_too_long_is_heard_if_it_was_one() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        bench.answers = true;
        let (socket, request) = asked(&mut bench);
        socket.send(8, 1500).unwrap();
        bench.run_until_idle();
        let long = requests(&bench).pop().unwrap();
        let says = |request: &[u8], mtu: u16| {
            let (kind, code) = match version {
                IpVersion::V4 => (3, 4),
                IpVersion::V6 => (2, 0),
            };
            let mut message = vec![kind, code, 0, 0, 0, 0];
            message.extend(mtu.to_be_bytes());
            message.extend(&request[14..request.len().min(14 + 576)]);
            message
        };
        let router = (version.stranger(), version.client());
        let mut foreign = long.clone();
        foreign[start(version) + 4] ^= 1;
        for wrong in [
            says(&request, 1400),
            says(&foreign, 1400),
            says(&long, 1500),
        ] {
            bench.send(&icmp(version, router, wrong));
        }
        bench.run_until_idle();
        assert_eq!(socket.too_big(), None);
        bench.send(&icmp(version, router, says(&long, 1400)));
        bench.run_until_idle();
        assert_eq!(socket.too_big(), Some(1400));
        // It is the path of the socket alone: nothing of it is believed for files.
        assert_eq!(bench.stack.path_mtu(version.server().ip()), 1500);
    }
}

#[test]
fn what_cannot_leave_is_refused() {
    let mut bench = Bench::silent(IpVersion::V4);
    bench.answers = false;
    let socket = bench.stack.echo(IpVersion::V4.server().ip());
    assert_eq!(socket.send(0, 1501), Err(NetError::TooLong));
    let nowhere = bench.stack.echo("192.0.2.1".parse().unwrap());
    assert_eq!(nowhere.send(0, 100), Err(NetError::Unreachable));
    let full: Vec<_> = (0..100)
        .filter_map(|number| socket.send(number, 28).err())
        .collect();
    assert!(!full.is_empty());
    assert!(full.into_iter().all(|error| error == NetError::Full));
}

/// A next hop is asked for its Ethernet address by whoever wants to know it.
#[test]
fn a_next_hop_that_answers_is_known() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        let server = version.server().ip();
        assert!(!bench.stack.resolves(server));
        bench.run_until_idle();
        assert!(bench.stack.resolves(server));
        bench.answers = false;
        let stranger = version.stranger();
        assert!(!bench.stack.resolves(stranger));
        bench.run_until_idle();
        assert!(!bench.stack.resolves(stranger));
    }
    let bench = Bench::silent(IpVersion::V4);
    assert!(!bench.stack.resolves("192.0.2.1".parse().unwrap()));
}

#[test]
fn a_dropped_socket_is_gone_and_the_others_are_not() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::silent(version);
        bench.answers = true;
        let (socket, request) = asked(&mut bench);
        drop(bench.stack.echo(version.server().ip()));
        let ends = (version.server().ip(), version.client());
        bench.send(&icmp(version, ends, answer(version, &request)));
        bench.run_until_idle();
        assert_eq!(socket.try_receive(), Some(7));
        drop(socket);
        assert!(bench.stack.state().echoes.is_empty());
    }
}
