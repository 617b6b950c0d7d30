//! Tests of throughput in words and figures, for the terminal and the page.

use wireboot_report::throughput::{Direction, Fit, Throughput, Transport};

/// The heads of [`row`]'s columns.
pub(crate) const HEADS: [&str; 6] = [
    "what",
    "Mbit/s",
    "lost, again",
    "cycles/byte",
    "cycles/packet",
    "busy, %",
];

/// The cells of a test, below [`HEADS`].
pub(crate) fn row(one: &Throughput) -> [String; 6] {
    let figure = |value: Option<f64>, digits| {
        value.map_or_else(String::new, |value| format!("{value:.digits$}"))
    };
    let streams = one.streams.iter();
    let lost: u64 = streams
        .map(|one| match &one.datagrams {
            Some(datagrams) => datagrams.lost,
            None => one.retransmissions.unwrap_or(0),
        })
        .fold(0, u64::saturating_add);
    [
        what(one),
        format!("{:.0}", one.bits_per_second() / 1e6),
        lost.to_string(),
        figure(one.cycles_per_byte(), 2),
        figure(one.cycles_per_packet(), 0),
        figure(one.work.as_ref().map(|work| work.busy_percent), 0),
    ]
}

/// `UDP from 10.77.0.1, 1472 bytes`.
fn what(one: &Throughput) -> String {
    let transport = match one.transport {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
        Transport::Other => "other",
    };
    let way = match one.direction {
        Direction::Send => "to",
        Direction::Receive => "from",
        Direction::Both => "to and from",
        Direction::Other => "with",
    };
    let mut text = format!("{transport} {way} {}", one.server);
    if one.parallel > 1 {
        text.push_str(&format!(", {} streams", one.parallel));
    }
    if one.transport == Transport::Udp || one.check == "ttcp" {
        text.push_str(&format!(", {} bytes", one.message_bytes));
    }
    if let Some(segment) = one.mss_bytes {
        text.push_str(&format!(", segments of {segment}"));
    }
    text
}

/// What a datagram and a byte cost, each way, where several sizes were measured.
pub(crate) fn fits(tests: &[Throughput]) -> Vec<String> {
    let directions = [
        (Direction::Send, "sending"),
        (Direction::Receive, "receiving"),
    ];
    let lines = directions.into_iter().filter_map(|(direction, word)| {
        let datagrams = |one: &&Throughput| {
            one.check == "ttcp" && one.transport == Transport::Udp && one.direction == direction
        };
        let points: Vec<(f64, f64)> = tests
            .iter()
            .filter(datagrams)
            .filter_map(|one| Some((f64::from(one.message_bytes), one.cycles_per_packet()?)))
            .collect();
        let fit = Fit::of(&points)?;
        Some(format!(
            "UDP {word}: {:.0} cycles a packet + {:.2} a byte",
            fit.per_packet, fit.per_byte
        ))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::throughput::{Datagrams, Stream, Work};

    fn udp(bytes: u32, cycles: u64) -> Throughput {
        Throughput {
            check: "ttcp".into(),
            server: "10.77.0.1".into(),
            transport: Transport::Udp,
            parallel: 1,
            message_bytes: bytes,
            took_s: 1.0,
            streams: vec![Stream {
                sends: true,
                sent_bytes: 1000 * u64::from(bytes),
                received_bytes: 900 * u64::from(bytes),
                datagrams: Some(Datagrams {
                    sent: 1000,
                    received: 900,
                    lost: 100,
                    ..Datagrams::default()
                }),
                ..Stream::default()
            }],
            work: Some(Work {
                busy_cycles: cycles * 1000,
                busy_percent: 50.4,
                units: 1000,
            }),
            ..Throughput::default()
        }
    }

    #[test]
    fn a_row_has_the_figures() {
        let wanted = [
            "UDP to 10.77.0.1, 1000 bytes",
            "7",
            "100",
            "3.00",
            "3000",
            "50",
        ];
        assert_eq!(row(&udp(1000, 3000)), wanted);
        let tcp = Throughput {
            check: "iperf3".into(),
            transport: Transport::Tcp,
            direction: Direction::Both,
            parallel: 4,
            mss_bytes: Some(536),
            work: None,
            streams: vec![Stream {
                retransmissions: Some(7),
                ..Stream::default()
            }],
            ..udp(1000, 0)
        };
        let wanted = [
            "TCP to and from 10.77.0.1, 4 streams, segments of 536",
            "0",
            "7",
            "",
            "",
            "",
        ];
        assert_eq!(row(&tcp), wanted);
    }

    #[test]
    fn sizes_tell_what_a_packet_costs() {
        let tests = [udp(64, 1064), udp(512, 1512), udp(1472, 2472)];
        let wanted = ["UDP sending: 1000 cycles a packet + 1.00 a byte"];
        assert_eq!(fits(&tests), wanted);
        assert!(fits(&tests[..1]).is_empty());
    }
}
