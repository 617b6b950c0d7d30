//! What ICMP says of the path, at the wire of the running engine, over both IP versions.

use super::datagrams::icmp;
use super::forged::{Bench, LEN, OPTIONS, tcp};
use super::{IpVersion, pattern};
use crate::{Memory, Region};
use core::net::IpAddr;
use std::vec::Vec;
use wireboot_tcp::Duration;

/// An engine that has sent its first window of large segments.
fn uploading(version: IpVersion) -> Bench {
    let mut bench = Bench::silent(version);
    let stack = bench.stack.clone();
    bench.engine.spawn(async move {
        let server = version.server();
        let mut stream = stack.connect(server, Duration::from_secs(1)).await.unwrap();
        let region = Region::new(Memory::from(pattern(LEN)));
        stream.send_from(&region, 0, LEN).await.unwrap();
        core::future::pending().await
    });
    bench.handshake(&OPTIONS);
    bench
}

/// Packets with data in what was heard.
fn packets(bench: &Bench) -> Vec<Vec<u8>> {
    let data = |frame: &&Vec<u8>| tcp(frame).is_some_and(|(.., numbers, _)| numbers.4 > 0);
    let frames = bench.heard.iter().filter(data);
    frames.map(|frame| frame[14..].to_vec()).collect()
}

pub(crate) fn too_big(version: IpVersion) -> (u8, u8, usize) {
    match version {
        IpVersion::V4 => (3, 4, 20),
        IpVersion::V6 => (2, 0, 40),
    }
}

pub(crate) fn router(version: IpVersion) -> IpAddr {
    match version {
        IpVersion::V4 => "192.0.2.1".parse().unwrap(),
        IpVersion::V6 => "2001:db8::77".parse().unwrap(),
    }
}

#[test]
fn a_packet_too_big_makes_segments_smaller() {
    for version in IpVersion::BOTH {
        let mut bench = uploading(version);
        let (kind, code, headers) = too_big(version);
        assert_eq!(bench.mss(), 1400);
        let sent = packets(&bench);
        assert!(
            sent.iter()
                .all(|packet| packet.len() == headers + 20 + 1400)
        );
        bench.heard.clear();
        let said = icmp(version, router(version), kind, code, 1300, &sent[0]);
        bench.send(&said);
        bench.run_until_idle();
        let host = version.server().ip();
        assert_eq!(bench.stack.path_mtu(host), 1300);
        assert_eq!(usize::from(bench.mss()), 1300 - headers - 20);
        bench.clock.advance(2_000_000);
        bench.run_until_idle();
        let again = packets(&bench);
        assert!(!again.is_empty());
        assert!(again.iter().all(|packet| packet.len() <= 1300));
        // Other destinations are as they were.
        assert_eq!(bench.stack.path_mtu(router(version)), 1500);
    }
}

#[test]
fn what_strangers_say_of_the_path_is_nothing() {
    for version in IpVersion::BOTH {
        let mut bench = uploading(version);
        let (kind, code, headers) = too_big(version);
        let sent = packets(&bench).remove(0);
        let changed = |at: usize, by: u8| {
            let mut quoted = sent.clone();
            quoted[at] ^= by;
            quoted
        };
        let says =
            |mtu: u32, quoted: &[u8]| icmp(version, router(version), kind, code, mtu, quoted);
        let address = headers - 1;
        for (what, quoted) in [
            ("sequence number before", changed(headers + 4, 0x80)),
            ("sequence number ahead", changed(headers + 5, 0x40)),
            ("our port", changed(headers + 1, 1)),
            ("the host's port", changed(headers + 3, 1)),
            ("the host", changed(address, 1)),
            (
                "not TCP",
                changed(if headers == 20 { 9 } else { 6 }, 6 ^ 17),
            ),
            ("too short", sent[..headers + 4].to_vec()),
        ] {
            let frame = says(1300, &quoted);
            bench.ignores(what, [frame]);
        }
        let mut broken = says(1300, &sent);
        *broken.last_mut().unwrap() ^= 1;
        bench.ignores("checksum", [broken]);
        let frame = icmp(version, router(version), kind, code ^ 1, 1300, &sent);
        bench.ignores("code", [frame]);
        // No packet of so many bytes was too long.
        let frame = says(1500, &sent);
        bench.ignores("not less", [frame]);
        let frame = says(68, &sent);
        match version {
            // Never below what every network carries.
            IpVersion::V4 => {
                bench.send(&frame);
                bench.run_until_idle();
                assert_eq!(bench.mss(), 536);
            }
            IpVersion::V6 => bench.ignores("below 1280", [frame]),
        }
    }
}
