//! Rates and costs, a row for each card, driver and version of IP.

use std::fmt::Write;

use anyhow::Result;
use comfy_table::{Table, presets};
use serde::Serialize;

use super::trial::{Setup, VERSIONS};
use wireboot_lab::host::Host;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::statistics::{median, shown};
use wireboot_report::throughput::{Direction, Fit, Throughput, Transport, rate};

/// Bytes of a message with which TCP fills its segments.
const LARGEST: u32 = 8192;
/// Bytes of the longest message that fits an ordinary packet.
const FULL: u32 = 1472;

/// All that was measured.
#[derive(Debug)]
pub(super) struct Rows(Vec<Row>);

/// A card, its driver, and a version of IP.
#[derive(Debug)]
struct Row {
    setup: &'static Setup,
    ip: IpVersion,
    /// The tests of each round.
    rounds: Vec<Vec<Throughput>>,
    /// Why a round gave no figure.
    failed: Vec<String>,
}

impl Rows {
    /// Without a figure yet.
    pub(super) fn of(setups: &[&'static Setup]) -> Self {
        let each = setups.iter().flat_map(|&setup| {
            VERSIONS.map(|ip| Row {
                setup,
                ip,
                rounds: Vec::new(),
                failed: Vec::new(),
            })
        });
        Self(each.collect())
    }

    /// What a round brought.
    pub(super) fn add(&mut self, setup: &Setup, ip: IpVersion, found: Result<Vec<Throughput>>) {
        let mut rows = self.0.iter_mut();
        let Some(row) = rows.find(|row| row.setup.name == setup.name && row.ip == ip) else {
            return;
        };
        match found {
            Ok(tests) => row.rounds.push(tests),
            Err(error) => row.failed.push(format!("{error:#}")),
        }
    }

    /// How many boots gave no figure.
    pub(super) fn failed(&self) -> usize {
        self.0.iter().map(|row| row.failed.len()).sum()
    }
}

impl Row {
    fn figures(&self) -> RowFigures<'_> {
        let tests = self.rounds.first().into_iter().flatten();
        RowFigures {
            card: self.setup.name,
            ip: self.ip,
            mtu: self.setup.mtu,
            tests: tests.map(|test| self.test(test)).collect(),
            failed: &self.failed,
        }
    }

    /// What all rounds say of a test.
    fn test(&self, test: &Throughput) -> TestFigures {
        let same = |one: &&Throughput| {
            (one.transport, one.direction) == (test.transport, test.direction)
                && (one.message_bytes, one.mss_bytes) == (test.message_bytes, test.mss_bytes)
        };
        let rounds: Vec<&Throughput> = self.rounds.iter().flatten().filter(same).collect();
        let each = |of: &dyn Fn(&Throughput) -> Option<f64>| {
            rounds.iter().filter_map(|one| of(one)).collect::<Vec<_>>()
        };
        TestFigures {
            transport: test.transport,
            direction: test.direction,
            message_bytes: test.message_bytes,
            mss_bytes: test.mss_bytes,
            mbit_s: each(&|one| Some(one.bits_per_second() / 1e6)),
            sent_mbit_s: each(&|one| Some(rate(one.sent_bytes(), one.took_s) / 1e6)),
            busy_percent: each(&|one| one.work.as_ref().map(|work| work.busy_percent)),
            cycles_per_packet: each(&Throughput::cycles_per_packet),
            cycles_per_byte: each(&Throughput::cycles_per_byte),
        }
    }
}

/// What the JSON file has of a card, its driver, and a version of IP.
#[derive(Debug, Serialize)]
struct RowFigures<'a> {
    card: &'static str,
    ip: IpVersion,
    mtu: u16,
    tests: Vec<TestFigures>,
    failed: &'a [String],
}

/// A test, and what each round brought.
#[derive(Debug, Serialize)]
struct TestFigures {
    transport: Transport,
    direction: Direction,
    message_bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    mss_bytes: Option<u32>,
    /// The rate at which bytes came to their receiver.
    mbit_s: Vec<f64>,
    /// The rate at which they left their sender: of datagrams, more than came.
    sent_mbit_s: Vec<f64>,
    busy_percent: Vec<f64>,
    /// Of a datagram; of TCP, of what the driver takes at once.
    cycles_per_packet: Vec<f64>,
    cycles_per_byte: Vec<f64>,
}

impl RowFigures<'_> {
    /// The test of TCP with full segments, or with small ones.
    fn tcp(&self, direction: Direction, small: bool) -> Option<&TestFigures> {
        self.tests.iter().find(|one| {
            (one.transport, one.direction) == (Transport::Tcp, direction)
                && one.message_bytes == LARGEST
                && one.mss_bytes.is_some() == small
        })
    }

    /// The test of the largest datagrams of no more than so many bytes.
    fn udp(&self, direction: Direction, most: u32) -> Option<&TestFigures> {
        let tests = self.tests.iter().filter(|one| {
            (one.transport, one.direction) == (Transport::Udp, direction)
                && one.message_bytes <= most
        });
        tests.max_by_key(|one| one.message_bytes)
    }

    /// What a datagram and each of its bytes cost.
    fn cost(&self, direction: Direction) -> String {
        let datagrams = self
            .tests
            .iter()
            .filter(|one| (one.transport, one.direction) == (Transport::Udp, direction));
        let points: Vec<_> = datagrams
            .filter_map(|one| {
                let cycles = median(&one.cycles_per_packet)?;
                Some((f64::from(one.message_bytes), cycles))
            })
            .collect();
        Fit::of(&points).map_or_else(
            || "-".to_owned(),
            |Fit {
                 per_packet,
                 per_byte,
             }| {
                let sign = if per_byte < 0.0 { '-' } else { '+' };
                format!("{per_packet:.0} {sign} {:.2}", per_byte.abs())
            },
        )
    }

    fn cells(&self) -> [String; 12] {
        let shown =
            |one: Option<&TestFigures>| one.map_or_else(|| "-".to_owned(), TestFigures::shown);
        let (sending, receiving) = (Direction::Send, Direction::Receive);
        [
            self.card.to_owned(),
            self.ip.to_string(),
            shown(self.tcp(sending, false)),
            shown(self.tcp(receiving, false)),
            shown(self.tcp(sending, true)),
            shown(self.tcp(receiving, true)),
            shown(self.udp(sending, FULL)),
            shown(self.udp(sending, 128)),
            shown(self.udp(sending, 64)),
            shown(self.udp(receiving, FULL)),
            self.cost(sending),
            self.cost(receiving),
        ]
    }
}

impl TestFigures {
    /// The rate of the machine's own end, and how busy that was.
    fn shown(&self) -> String {
        let rates = match (self.transport, self.direction) {
            (Transport::Udp, Direction::Send) => &self.sent_mbit_s,
            _ => &self.mbit_s,
        };
        let rate = shown(rates);
        match median(&self.busy_percent) {
            Some(busy) => format!("{rate}, {busy:.0} %"),
            None => rate,
        }
    }
}

/// What the JSON file holds.
#[derive(Debug, Serialize)]
pub(super) struct TtcpReport<'a> {
    host: &'a Host,
    rows: Vec<RowFigures<'a>>,
}

/// The table's columns. TCP in messages of 8192 bytes; small segments are those of an MTU of 576, of 1280 in IPv6.
const COLUMNS: [&str; 12] = [
    "card, driver",
    "IP",
    "TCP sent",
    "TCP received",
    "TCP sent, small segments",
    "TCP received, small segments",
    "UDP sent, full packets of 1500",
    "UDP sent, 128 bytes",
    "UDP sent, 64 bytes",
    "UDP received, full packets of 1500",
    "UDP sending: cycles a packet + a byte",
    "UDP receiving: cycles a packet + a byte",
];

impl<'a> TtcpReport<'a> {
    pub(super) fn new(host: &'a Host, rows: &'a Rows) -> Self {
        let rows = rows.0.iter().map(Row::figures).collect();
        Self { host, rows }
    }

    /// The host, each card and driver with its figures below each other, and what failed.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{}\n\nMbit/s, median (lowest to highest; number of boots), share of the processor",
            self.host
        );
        for row in &self.rows {
            let cells = row.cells();
            let [card, ip, figures @ ..] = &cells;
            let mut table = Table::new();
            table.load_style(presets::ASCII_MARKDOWN);
            table.set_header([format!("{card}, {ip}"), String::new()]);
            for (column, figure) in COLUMNS.iter().skip(2).zip(figures) {
                table.add_row([*column, figure]);
            }
            let _ = write!(text, "\n\n{table}");
            for reason in row.failed {
                let _ = write!(text, "\nfailed: {reason}");
            }
        }
        text
    }

    /// The table and what failed, without the host.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!(
            "| {} |\n|{}\n",
            COLUMNS.join(" | "),
            "---|".repeat(COLUMNS.len())
        );
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.cells().join(" | "));
        }
        for row in &self.rows {
            for reason in row.failed {
                // Behind its first line is the end of the console.
                let why = reason.lines().next().unwrap_or_default();
                let _ = writeln!(text, "\nFailed: {}, {}: {why}", row.card, row.ip);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::SETUPS;
    use super::*;
    use wireboot_lab::qemu::Accelerator;
    use wireboot_report::throughput::{Datagrams, Stream, Work};

    fn test(transport: Transport, bytes: u32, sent: u64, cycles: u64) -> Throughput {
        let datagrams = (transport == Transport::Udp).then(|| Datagrams {
            sent,
            ..Datagrams::default()
        });
        Throughput {
            transport,
            message_bytes: bytes,
            took_s: 1.0,
            streams: vec![Stream {
                sends: true,
                sent_bytes: sent * u64::from(bytes),
                received_bytes: sent * u64::from(bytes) / 2,
                datagrams,
                ..Stream::default()
            }],
            work: Some(Work {
                busy_cycles: cycles * sent,
                busy_percent: 40.0,
                units: sent,
            }),
            ..Throughput::default()
        }
    }

    #[test]
    fn rows_have_medians_of_rounds_and_lines_through_costs() {
        let [first, second, ..] = &SETUPS;
        let mut rows = Rows::of(&[first, second]);
        for more in [0, 1000, 9000] {
            let tests = [
                test(Transport::Tcp, LARGEST, 15_625 + more, 7),
                // 1000 cycles and 2 a byte.
                test(Transport::Udp, 64, 100_000, 1128),
                test(Transport::Udp, 1472, 125_000, 3944),
            ];
            rows.add(first, IpVersion::V4, Ok(tests.into()));
        }
        rows.add(second, IpVersion::V6, Err(anyhow::anyhow!("no answer")));
        assert_eq!(rows.failed(), 1);
        let host = Host::new(None, 0.0, Accelerator::Tcg, IpVersion::V4, 1500, Vec::new());
        let report = TtcpReport::new(&host, &rows);
        let page = report.markdown();
        let line = page.lines().nth(2).unwrap();
        // TCP by what came, half of what left; datagrams by what left.
        assert!(line.contains("| 540 (510 to 810; 3), 40 % |"), "{line}");
        assert!(
            line.contains("| 1470 (1470 to 1470; 3), 40 % | 51.2 (51.2 to 51.2; 3), 40 % |"),
            "{line}"
        );
        assert!(line.contains("| 1000 + 2.00 |"), "{line}");
        assert!(report.text().contains("failed: no answer"));
        assert!(
            page.contains("Failed: virtio-net, SNP, IPv6: no answer"),
            "{page}"
        );
    }
}
