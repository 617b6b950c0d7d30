//! Fragments at the wire of the running engine, over both IP versions.

use super::datagrams::{Log, datagram, listen, listening};
use super::forged::{Bench, STEP, frame6, packet};
use super::{CLIENT_MAC, IpVersion, pattern};
use crate::checksum;
use crate::ipv6::header;
use crate::packet::{PROTOCOL_TCP, PROTOCOL_UDP, put};
use core::net::IpAddr;
use core::ops::Range;
use std::vec;
use std::vec::Vec;

/// A piece of what follows the IP header, in a frame from `source` to us.
fn piece(source: IpAddr, protocol: u8, id: u16, whole: &[u8], range: Range<usize>) -> Vec<u8> {
    let more = range.end < whole.len();
    let (offset, payload) = (range.start as u16, &whole[range]);
    match source {
        IpAddr::V4(_) => {
            let ends = (source, IpVersion::V4.client());
            let mut frame = packet(CLIENT_MAC, ends, protocol, payload);
            put(&mut frame, 18, id.to_be_bytes());
            let place = (u16::from(more) << 13) | (offset / 8);
            put(&mut frame, 20, place.to_be_bytes());
            put(&mut frame, 24, [0, 0]);
            let sum = checksum::compute(0, &frame[14..34]);
            put(&mut frame, 24, sum.to_be_bytes());
            frame
        }
        IpAddr::V6(source) => {
            let IpAddr::V6(us) = IpVersion::V6.client() else {
                unreachable!()
            };
            let mut fragment = vec![protocol, 0];
            fragment.extend((offset | u16::from(more)).to_be_bytes());
            fragment.extend(u32::from(id).to_be_bytes());
            fragment.extend(payload);
            frame6(CLIENT_MAC, &header::packet(source, us, 44, 64, &fragment))
        }
    }
}

/// All pieces of `whole`, of so many bytes.
fn pieces(source: IpAddr, protocol: u8, id: u16, whole: &[u8], len: usize) -> Vec<Vec<u8>> {
    let starts = (0..whole.len()).step_by(len);
    let ranges = starts.map(|start| start..whole.len().min(start + len));
    ranges
        .map(|range| piece(source, protocol, id, whole, range))
        .collect()
}

fn host(version: IpVersion) -> IpAddr {
    version.server().ip()
}

#[test]
fn a_datagram_in_fragments_arrives_whole_in_any_order() {
    for version in IpVersion::BOTH {
        let (mut bench, log) = listening(version);
        let payload = pattern(5000);
        let udp = datagram(version, version.client(), &payload);
        let forwards = pieces(host(version), PROTOCOL_UDP, 1, &udp, 1400);
        let mut backwards = pieces(host(version), PROTOCOL_UDP, 2, &udp, 600);
        backwards.reverse();
        let twice: Vec<_> = pieces(host(version), PROTOCOL_UDP, 3, &udp, 1000);
        let twice = twice.into_iter().flat_map(|one| [one.clone(), one]);
        for frame in forwards.into_iter().chain(backwards).chain(twice) {
            bench.send(&frame);
            bench.turn();
        }
        bench.run_until_idle();
        let received: Vec<_> = log.borrow().iter().map(|one| one.1 == payload).collect();
        assert_eq!(received, [true; 3]);
    }
}

#[test]
fn pieces_that_overlap_are_nothing() {
    for version in IpVersion::BOTH {
        let (mut bench, log) = listening(version);
        let udp = datagram(version, version.client(), &pattern(2000));
        let mut evil = udp.clone();
        evil[1000..1100].fill(b'!');
        let from = host(version);
        let end = udp.len();
        for (id, ranges) in [
            (1, [0..1000, 992..1400, 1400..end]),
            (2, [1000..end, 0..1008, 0..1000]),
            (3, [0..1000, 0..1008, 1000..end]),
        ] {
            for range in ranges {
                bench.send(&piece(from, PROTOCOL_UDP, id, &evil, range));
                bench.turn();
            }
            for frame in pieces(from, PROTOCOL_UDP, id, &udp, 1000) {
                bench.send(&frame);
                bench.turn();
            }
        }
        bench.run_until_idle();
        assert_eq!(log.borrow().len(), 0);
    }
}

/// A forged segment whose flags or place come in a second piece, past a filter that looks at the first one.
#[test]
fn tiny_pieces_of_a_segment() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::downloading(version);
        let headers = match version {
            IpVersion::V4 => 34,
            IpVersion::V6 => 54,
        };
        // Right but for its pieces: were they taken, its bytes would be.
        let segment = bench.forged().frame()[headers..].to_vec();
        for (id, len) in [(1, 8), (2, 16)] {
            let frames = pieces(host(version), PROTOCOL_TCP, id, &segment, len);
            bench.ignores("tiny", frames);
        }
        let mut first_last = pieces(host(version), PROTOCOL_TCP, 3, &segment, 16);
        first_last.reverse();
        bench.ignores("tiny, from the last one", first_last);
        // The host's own words in pieces of a usual size are taken.
        let genuine = bench.segment(STEP).frame()[headers..].to_vec();
        for frame in pieces(host(version), PROTOCOL_TCP, 4, &genuine, 504) {
            bench.send(&frame);
        }
        bench.position += STEP;
        bench.finishes();
    }
}

#[test]
fn a_flood_of_pieces_stops_nothing() {
    for version in IpVersion::BOTH {
        let mut bench = Bench::downloading(version);
        let log = Log::default();
        listen(&mut bench, &log);
        let udp = datagram(version, version.client(), &pattern(3000));
        let source = |n: u16| -> IpAddr {
            match version {
                IpVersion::V4 => IpAddr::from([10, 0, (n >> 8) as u8, n as u8]),
                IpVersion::V6 => IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 1, n]),
            }
        };
        let flood = (0..1000).map(|n| piece(source(n % 300 + 256), PROTOCOL_UDP, n, &udp, 0..1000));
        bench.ignores("first pieces", flood);
        let last =
            (0..300).map(|n| piece(source(n + 256), PROTOCOL_UDP, n + 5000, &udp, 2000..3008));
        bench.ignores("last pieces", last);
        // The table is free for others once nothing comes of them.
        bench.clock.advance(250_000);
        for frame in pieces(host(version), PROTOCOL_UDP, 1, &udp, 1000) {
            bench.send(&frame);
            bench.turn();
        }
        bench.run_until_idle();
        assert_eq!(log.borrow().len(), 1);
        bench.finishes();
    }
}
