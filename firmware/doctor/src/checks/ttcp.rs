//! `ttcp=ADDRESS`: what messages of several sizes cost the processor, by TCP and UDP, each way, against a server of iperf3.

use crate::error::Error;
use crate::examination::Examination;
use crate::throughput::Measurer;
use alloc::string::ToString;
use core::net::SocketAddr;
use wireboot_iperf::{Limit, Test};
use wireboot_platform::console;
use wireboot_report::throughput::{Direction, Transport};

/// Bytes of a message.
const SIZES: [u32; 5] = [64, 128, 512, FULL, LARGEST];
/// Of the longest datagram in a packet of 1500 bytes.
const FULL: u32 = 1472;
const LARGEST: u32 = 8192;
/// How long each is measured, in seconds.
const SECONDS: u32 = 2;

/// So long after its beginning the check begins no test any more, in microseconds: the watchdog gives it 600 s.
const BEGINS_WITHIN: u64 = 480_000_000;

/// The whole matrix, by turns.
pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let options = &examination.options.iperf3;
    let server = options.ttcp.ok_or(Error::NoTtcpServer)?;
    let mut measurer = Measurer::open(examination, options.driver, server)?;
    let mut failed = None;
    let end = examination.clock.micros() + BEGINS_WITHIN;
    for test in matrix(SocketAddr::new(server, options.port()), measurer.mtu()) {
        if examination.clock.micros() > end {
            failed = Some(Error::Slow("the matrix of messages".to_string()));
            break;
        }
        console::clear_progress();
        match measurer.measure(&test) {
            Ok(mut measured) => {
                measured.check = "ttcp".to_string();
                examination.report.throughput.push(measured);
            }
            Err(Error::Ended) => return Err(Error::Ended),
            Err(error) => failed = Some(error),
        }
    }
    // What was measured stays in the report.
    failed.map_or(Ok(()), Err)
}

/// Each transport, direction and size but datagrams that fit no packet of the card's `mtu`, as ours are never fragments; then TCP in the smallest segments
/// that our end makes: those of an MTU of 576 bytes, of 1280 in IPv6.
fn matrix(server: SocketAddr, mtu: u16) -> impl Iterator<Item = Test> {
    let ways = [
        (Transport::Tcp, Direction::Send),
        (Transport::Tcp, Direction::Receive),
        (Transport::Udp, Direction::Send),
        (Transport::Udp, Direction::Receive),
    ];
    // Of IPv6 a packet holds a little less.
    let (headers, segment) = match server {
        SocketAddr::V4(_) => (28, 536),
        SocketAddr::V6(_) => (48, 1220),
    };
    let packet = u32::from(mtu.saturating_sub(headers));
    let each = ways
        .into_iter()
        .flat_map(|way| SIZES.map(|size| (way, size)));
    let in_packets = each.filter_map(move |((transport, direction), size)| {
        let length = match transport {
            Transport::Udp if size > packet.max(FULL) => return None,
            Transport::Udp => size.min(packet),
            _ => size,
        };
        Some(Test {
            transport,
            direction,
            limit: Limit::Seconds(SECONDS),
            length: Some(length),
            ..Test::new(server)
        })
    });
    let small = [Direction::Send, Direction::Receive].map(|direction| Test {
        transport: Transport::Tcp,
        direction,
        limit: Limit::Seconds(SECONDS),
        length: Some(LARGEST),
        mss: Some(segment),
        ..Test::new(server)
    });
    in_packets.chain(small)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_size_is_measured_that_fits() {
        let four = [64, 128, 512, 1472].as_slice();
        for (server, mtu, datagrams, least) in [
            ("10.0.0.1:7", 1500, four, 536),
            ("[fd00::1]:7", 1500, &[64, 128, 512, 1452], 1220),
            ("10.0.0.1:7", 9000, &SIZES, 536),
            ("[fd00::1]:7", 9000, &SIZES, 1220),
        ] {
            let (tests, small): (Vec<Test>, Vec<Test>) =
                matrix(server.parse().unwrap(), mtu).partition(|test| test.mss.is_none());
            assert_eq!(tests.len(), 2 * 5 + 2 * datagrams.len());
            let ways = small.iter().map(|test| (test.direction, test.mss));
            let both = [Direction::Send, Direction::Receive];
            assert!(ways.eq(both.map(|way| (way, Some(least)))));
            assert!(small.iter().all(|test| test.transport == Transport::Tcp));
            let sizes = |transport, direction| {
                let of = |test: &&Test| test.transport == transport && test.direction == direction;
                let tests = tests.iter().filter(of);
                tests.filter_map(|test| test.length).collect::<Vec<_>>()
            };
            for direction in [Direction::Send, Direction::Receive] {
                assert_eq!(sizes(Transport::Tcp, direction), SIZES);
                assert_eq!(sizes(Transport::Udp, direction), datagrams);
            }
        }
    }
}
