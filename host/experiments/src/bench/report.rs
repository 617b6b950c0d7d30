//! The figures: rows of the report, their comparison, the table and the JSON.

use std::collections::BTreeMap;

use comfy_table::{Attribute, Cell, CellAlignment, LineStyle, Table, presets};
use serde::Serialize;

use super::evaluate::Waited;
use super::files::MIB;
use super::instructions::Instructions;
use super::problems::{self, FailedTrial, Failure};
use super::stacks::{Kind, Stack, Start};
use super::trial::Measured;
use crate::protocol::TransferProtocol;
use wireboot_lab::host::Host;
use wireboot_lab::statistics::{digits, median, range};

/// Everything that one run of the benchmark found.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    /// Where and when it ran, by which command and commit.
    pub host: Host,
    /// One row for each stack, size of file and state of memory.
    pub rows: Vec<BenchRow>,
    /// How long machines waited for the first byte of the file.
    pub latency: Vec<Latency>,
    /// What the engine costs the processor.
    pub instructions: Vec<Instructions>,
    /// Stacks that took no part, and what failed in every trial.
    pub failures: Vec<Failure>,
    /// Every trial that failed, also where the next one gave a figure.
    pub failed_trials: Vec<FailedTrial>,
}

/// One line of the report.
#[derive(Debug, Serialize)]
pub struct BenchRow {
    /// The stack's short name.
    pub id: String,
    /// The stack's full name, as tables show it.
    pub stack: String,
    /// The version of what downloads.
    pub version: String,
    /// `tftp` or `http`.
    pub protocol: String,
    /// The server's name: `atftpd`, `nginx`, `wireboot serve` or `wireboot nic serve`.
    pub server: &'static str,
    /// The file's size in bytes.
    pub bytes: u64,
    /// Whether the guest's memory was given to it before the start.
    pub warm: bool,
    /// Each round's time, from the request to the last acknowledgement.
    pub seconds: Vec<f64>,
    /// Median of `seconds`.
    pub median_s: f64,
    /// The file's bits over the median, in millions a second.
    pub mbit_s: f64,
    /// Packets to the guest, in thousands a second: the median; none where no interface counts them. A guest that lets its card join segments gets fewer, larger ones.
    pub kpps: Option<f64>,
    /// Its speed over that of the fastest stock firmware with the same protocol, size and memory.
    pub over_stock: Option<f64>,
    /// Its speed over that of the fastest iPXE with the same protocol, size and memory.
    pub over_ipxe: Option<f64>,
    /// Its speed over that of the Linux guest (HTTP), with the same size and memory.
    pub over_linux: Option<f64>,
    #[serde(skip)]
    kind: Kind,
}

impl BenchRow {
    /// Whether it is wireboot's.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.kind == Kind::Wireboot
    }
}

/// From the first DHCPDISCOVER or Solicit to the first byte of the file that DHCP names.
#[derive(Debug, Serialize)]
pub struct Latency {
    /// The stack's full name, as tables show it.
    pub stack: String,
    /// The version of what downloads.
    pub version: String,
    /// How it got to run.
    pub start: Start,
    /// `tftp` or `http`.
    pub protocol: String,
    /// Each round's time in seconds.
    pub seconds: Vec<f64>,
    /// Number of trials.
    pub n: usize,
    /// Median of `seconds`.
    pub median_s: f64,
    /// The shortest of `seconds`.
    pub lowest_s: f64,
    /// The longest of `seconds`.
    pub highest_s: f64,
    /// Of each round's time, what went by until the firmware had the program; empty where no firmware fetched one.
    pub firmware_seconds: Vec<f64>,
    /// Median of `firmware_seconds`; `None` where that is empty.
    pub firmware_median_s: Option<f64>,
}

impl Latency {
    /// `None` for no times.
    #[must_use]
    pub fn new(stack: &Stack, start: Start, waited: &[Waited]) -> Option<Self> {
        let seconds: Vec<f64> = waited.iter().map(|one| one.seconds).collect();
        let firmware_seconds: Vec<f64> = waited
            .iter()
            .filter_map(|one| one.firmware_seconds)
            .collect();
        let (lowest_s, highest_s) = range(&seconds)?;
        Some(Self {
            stack: stack.name.to_owned(),
            version: stack.version.clone(),
            start,
            protocol: stack.protocol.name().to_lowercase(),
            n: seconds.len(),
            median_s: median(&seconds)?,
            lowest_s,
            highest_s,
            seconds,
            firmware_median_s: median(&firmware_seconds),
            firmware_seconds,
        })
    }
}

/// What is measured of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// The file's size in bytes.
    pub bytes: u64,
    /// Cold memory: the host gives it as the guest first writes to it.
    pub cold: bool,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} MiB {}",
            self.bytes / MIB,
            if self.cold { "cold" } else { "warm" }
        )
    }
}

/// What the trials of each stack (by its place in the list) and case measured.
pub type Figures = BTreeMap<(usize, Case), Vec<Measured>>;

/// The rows, in the order of the stacks and cases, with comparisons.
#[must_use]
pub fn rows(stacks: &[Stack], measured: &Figures) -> Vec<BenchRow> {
    let mut rows: Vec<BenchRow> = measured
        .iter()
        .filter_map(|(&(index, case), trials)| {
            let stack = stacks.get(index)?;
            let seconds: Vec<f64> = trials.iter().map(|trial| trial.seconds).collect();
            let kpps: Vec<f64> = trials.iter().filter_map(|trial| trial.kpps).collect();
            let median_s = median(&seconds)?;
            Some(BenchRow {
                id: stack.id.clone(),
                stack: stack.name.to_owned(),
                version: stack.version.clone(),
                protocol: stack.protocol.name().to_lowercase(),
                server: stack.server.name(),
                bytes: case.bytes,
                warm: !case.cold,
                mbit_s: case.bytes as f64 * 8.0 / median_s / 1e6,
                kpps: median(&kpps),
                seconds,
                median_s,
                over_stock: None,
                over_ipxe: None,
                over_linux: None,
                kind: stack.kind,
            })
        })
        .collect();
    for index in 0..rows.len() {
        let Some(row) = rows.get(index) else { break };
        let best = |kind: Kind, protocol: &str| {
            let same = rows.iter().filter(|other| {
                other.kind == kind
                    && other.protocol == protocol
                    && other.bytes == row.bytes
                    && other.warm == row.warm
            });
            same.map(|other| other.mbit_s)
                .max_by(f64::total_cmp)
                .map(|best| row.mbit_s / best)
        };
        let http = TransferProtocol::Http.name().to_lowercase();
        let over = (
            best(Kind::Stock, &row.protocol),
            best(Kind::Ipxe, &row.protocol),
            best(Kind::Linux, &http),
        );
        if let Some(row) = rows.get_mut(index) {
            (row.over_stock, row.over_ipxe, row.over_linux) = over;
        }
    }
    rows
}

impl BenchReport {
    /// The report as text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.host);
        let mut cases: Vec<(u64, bool)> =
            self.rows.iter().map(|row| (row.bytes, !row.warm)).collect();
        cases.sort_unstable();
        cases.dedup();
        for (bytes, cold) in cases {
            text.push_str(&format!(
                "\n{}\n{}\n",
                Case { bytes, cold },
                self.table(bytes, cold)
            ));
        }
        if !self.latency.is_empty() {
            text.push_str(&format!(
                "\nFrom the first DHCPDISCOVER or Solicit to the first byte of the file\n{}\n",
                self.latency_table()
            ));
        }
        if !self.instructions.is_empty() {
            text.push_str(&format!(
                "\nInstructions of the engine per byte received (callgrind)\n{}\n",
                self.instructions_table()
            ));
        }
        let problems = problems::text(&self.failures, &self.failed_trials);
        if !problems.is_empty() {
            text.push('\n');
            text.push_str(&problems);
        }
        text
    }

    fn table(&self, bytes: u64, cold: bool) -> Table {
        let head = [
            "stack",
            "version",
            "protocol",
            "server",
            "s",
            "min - max",
            "n",
            "Mbit/s",
            "kpps",
            "/ stock",
            "/ iPXE",
            "/ Linux",
        ];
        let mut table = new_table(&head, 4);
        for row in self
            .rows
            .iter()
            .filter(|row| row.bytes == bytes && row.warm != cold)
        {
            let (low, high) = range(&row.seconds).unwrap_or_default();
            let known =
                |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |it| digits(it, 2));
            let cells = [
                row.stack.clone(),
                short_version(&row.version).to_owned(),
                row.protocol.to_uppercase(),
                row.server.to_owned(),
                digits(row.median_s, 3),
                format!("{} - {}", digits(low, 3), digits(high, 3)),
                row.seconds.len().to_string(),
                format!("{:.0}", row.mbit_s),
                known(row.kpps),
                known(row.over_stock),
                known(row.over_ipxe),
                known(row.over_linux),
            ];
            table.add_row(cells.map(|text| {
                if row.is_ours() {
                    Cell::new(text).add_attribute(Attribute::Bold)
                } else {
                    Cell::new(text)
                }
            }));
        }
        table
    }

    fn latency_table(&self) -> Table {
        let head = [
            "stack",
            "version",
            "start",
            "protocol",
            "ms",
            "min - max",
            "n",
            "firmware's part, ms",
        ];
        let mut table = new_table(&head, 4);
        let ms = |seconds: f64| digits(seconds * 1e3, 3);
        for row in &self.latency {
            table.add_row([
                row.stack.clone(),
                short_version(&row.version).to_owned(),
                row.start.name().to_owned(),
                row.protocol.to_uppercase(),
                ms(row.median_s),
                format!("{} - {}", ms(row.lowest_s), ms(row.highest_s)),
                row.n.to_string(),
                row.firmware_median_s.map_or_else(|| "-".to_owned(), ms),
            ]);
        }
        table
    }

    fn instructions_table(&self) -> Table {
        let mut table = new_table(&["stream", "bytes", "instructions", "per byte"], 1);
        for row in &self.instructions {
            table.add_row([
                row.stream.clone(),
                row.bytes.to_string(),
                row.instructions.to_string(),
                digits(row.per_byte, 3),
            ]);
        }
        table
    }
}

/// A table whose columns from `numbers` on are aligned to the right.
pub(crate) fn new_table<T: ToString>(head: &[T], numbers: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
        .set_header(head.iter().map(ToString::to_string));
    for column in table.column_iter_mut().skip(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The upstream part of a Debian version, without the snapshot it may name.
#[must_use]
pub fn short_version(version: &str) -> &str {
    let upstream = version.split_once(':').map_or(version, |(_, rest)| rest);
    upstream.split(['-', '+', '~']).next().unwrap_or(upstream)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bench::stacks::{Loader, Server};
    use wireboot_lab::host::Host;
    use wireboot_lab::ip::IpVersion;
    use wireboot_lab::qemu::{Accelerator, Firmware};

    fn stack(id: &str, kind: Kind, protocol: TransferProtocol) -> Stack {
        Stack {
            id: id.to_owned(),
            name: "a stack",
            version: "1:2.0+git-1".into(),
            protocol,
            server: Server::Nginx,
            kind,
            loader: Loader::Grub,
            firmware: Firmware::SeaBios,
        }
    }

    pub(crate) fn report() -> BenchReport {
        let stacks = [
            stack("wireboot-http", Kind::Wireboot, TransferProtocol::Http),
            stack("ovmf-http", Kind::Stock, TransferProtocol::Http),
            stack("ovmf-new-http", Kind::Stock, TransferProtocol::Http),
            stack("ovmf-tftp", Kind::Stock, TransferProtocol::Tftp),
            stack("linux-http", Kind::Linux, TransferProtocol::Http),
        ];
        let warm = Case {
            bytes: 64 * MIB,
            cold: false,
        };
        let cold = Case { cold: true, ..warm };
        let trials = |seconds: &[f64]| {
            seconds
                .iter()
                .map(|&seconds| Measured {
                    seconds,
                    kpps: Some(10.0),
                })
                .collect::<Vec<_>>()
        };
        let measured = Figures::from([
            ((0, warm), trials(&[0.1, 0.3, 0.2])),
            ((0, cold), trials(&[1.0])),
            ((1, warm), trials(&[20.0])),
            ((2, warm), trials(&[10.0])),
            ((3, warm), trials(&[1.0])),
            ((4, warm), trials(&[0.4])),
        ]);
        let failures = vec![Failure {
            what: "grub-http 64 MiB warm".into(),
            reason: "it never asked for the file".into(),
        }];
        let host = Host::new(
            None,
            0.0,
            Accelerator::Tcg,
            IpVersion::V4,
            1500,
            vec!["nginx 1.22.1".into()],
        );
        BenchReport {
            host,
            rows: rows(&stacks, &measured),
            latency: [(Start::Pxe, Some(2.0)), (Start::Stick, None)]
                .iter()
                .filter_map(|&(start, firmware_seconds)| {
                    let waited = [3.0, 3.5, 5.0].map(|seconds| Waited {
                        seconds,
                        firmware_seconds,
                    });
                    Latency::new(&stacks[0], start, &waited)
                })
                .collect(),
            instructions: Vec::new(),
            failures,
            failed_trials: vec![FailedTrial {
                round: 2,
                what: "wireboot-http 64 MiB warm".into(),
                reason: "the machine stopped".into(),
            }],
        }
    }

    #[test]
    fn rows_are_compared_with_the_best_of_their_like() {
        let report = report();
        let row = &report.rows[0];
        assert_eq!(
            (row.id.as_str(), row.warm, row.median_s),
            ("wireboot-http", true, 0.2)
        );
        assert!((row.mbit_s - 2684.35456).abs() < 1e-6);
        // The faster of the two stock firmwares over HTTP, not the one over TFTP.
        assert!((row.over_stock.unwrap() - 50.0).abs() < 1e-9);
        assert_eq!(row.over_ipxe, None);
        assert!((row.over_linux.unwrap() - 2.0).abs() < 1e-9);
        // Nothing cold was measured beside it.
        assert_eq!(
            (report.rows[1].warm, report.rows[1].over_stock),
            (false, None)
        );
    }

    #[test]
    fn json_has_the_promised_shape() {
        let json = serde_json::to_value(report()).unwrap();
        for key in [
            "date",
            "command",
            "commit",
            "program_sha256",
            "busy",
            "cpu",
            "cores",
            "memory_mib",
            "kernel",
            "qemu",
            "accel",
        ] {
            assert!(json["host"].get(key).is_some(), "host.{key}");
        }
        let row = &json["rows"][0];
        for key in [
            "stack", "version", "protocol", "server", "bytes", "warm", "seconds", "median_s",
            "mbit_s", "kpps",
        ] {
            assert!(row.get(key).is_some(), "rows.{key}");
        }
        assert_eq!(row["seconds"], serde_json::json!([0.1, 0.3, 0.2]));
        assert_eq!(
            (&row["bytes"], &row["warm"], &row["protocol"]),
            (&(64 * MIB).into(), &true.into(), &"http".into())
        );
        let latency = &json["latency"];
        for (key, value) in [
            ("n", 3.0),
            ("median_s", 3.5),
            ("lowest_s", 3.0),
            ("highest_s", 5.0),
        ] {
            assert_eq!(latency[0][key].as_f64(), Some(value), "latency.{key}");
        }
        assert_eq!(latency[0]["firmware_median_s"], 2.0);
        assert_eq!(latency[1]["firmware_median_s"], serde_json::Value::Null);
        assert_eq!(
            (&latency[0]["start"], &latency[1]["start"]),
            (&"pxe".into(), &"stick".into())
        );
        assert_eq!(json["failed_trials"][0]["round"], 2);
    }

    #[test]
    fn text_shows_every_case_and_failure() {
        let text = report().text();
        for part in [
            "64 MiB warm",
            "64 MiB cold",
            "2684",
            "0.200",
            "0.100 - 0.300",
            "3000 - 5000",
            "no figure for grub-http 64 MiB warm: it never asked",
            "failed in round 2: wireboot-http 64 MiB warm: the machine stopped",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn versions_are_shortened() {
        assert_eq!(short_version("1.0.0+git-20190125.36a4c85-5.1"), "1.0.0");
        assert_eq!(short_version("2022.11-6+deb12u2"), "2022.11");
        assert_eq!(short_version("1:7.2+dfsg-7"), "7.2");
    }
}
