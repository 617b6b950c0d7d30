//! `wireboot doctor accuracy`: what doctor.efi measures from inside the machine, beside what is seen outside it.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use comfy_table::{Table, presets};
use nix::unistd::geteuid;
use serde::Serialize;
use serde_json::Value;
use wireboot_lab::boot::{AcceleratorChoice, firmware_program};
use wireboot_lab::host::Host;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::NetworkOptions;
use wireboot_lab::progress;
use wireboot_lab::qemu::Accelerator;
use wireboot_lab::results::ResultsArgs;
use wireboot_lab::statistics::median;
use wireboot_report::Report;
use wireboot_report::network::{Network, Outcome, Transfer};
use wireboot_report::sweep::By;
use wireboot_report::throughput::{Direction, Throughput, rate};

use super::{Examination, IPERF3, Trial, examine_inside, fetch};
use crate::{NOT_MEASURED, examine};

/// Compare what doctor.efi measures inside a machine with what is seen outside it
///
/// doctor.efi has the firmware and wireboot fetch files by TFTP, in all blocks and windows of a sweep, and each transfer is compared with the packets
/// that tcpdump has captured at the machine's cable. Its tests of throughput are compared with what iperf3's server says.
#[derive(Args, Clone, Debug)]
pub struct AccuracyArgs {
    /// How often each examination is made
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// What runs the guest's instructions
    #[arg(long, value_enum, default_value = "auto")]
    accel: AcceleratorChoice,
    #[command(flatten)]
    results: ResultsArgs,
}

/// An examination that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(400);
/// A file that nothing else asks for; its last block is not full, in any size.
const SWEPT: &str = "swept";
const SWEPT_BYTES: usize = 8_000_001;
/// Two times agree that differ by no more than this part, or by so many seconds.
const PART: f64 = 0.01;
const SECONDS: f64 = 0.002;

const BOOT: &str = "a boot file by the firmware, s";
const FIRMWARE: &str = "a sweep's file by the firmware, s";
const WIREBOOT: &str = "a sweep's file by wireboot, s";

/// doctor.efi's words for a test of throughput, and what it measures.
const TESTS: [(&str, &str); 3] = [
    ("iperf3=10.77.0.1 time=5", "TCP sent, Mbit/s"),
    ("iperf3=10.77.0.1 time=5 reverse", "TCP received, Mbit/s"),
    (
        "iperf3=10.77.0.1 time=5 udp bandwidth=200000000",
        "UDP sent, Mbit/s",
    ),
];

/// Examines, and prints the table. Call it before the program has threads: see [`Lab::enter`].
///
/// # Errors
/// When doctor.efi is missing, or the lab cannot be entered.
pub(crate) fn run(arguments: &AccuracyArgs) -> Result<ExitCode> {
    if !geteuid().is_root() {
        bail!("run it as root: tcpdump, which captures, does not work in a user namespace");
    }
    // Outside the lab's namespaces there is a network to fetch from; inside, what was fetched lies in the cache.
    if !Lab::is_inside() {
        fetch(&[])?;
    }
    let doctor = firmware_program(None, "doctor.efi").context("make build makes it")?;
    let lab = Lab::enter()?;
    let busy = arguments.results.quiet()?;
    let accelerator = arguments.accel.choose(&lab)?;
    let mtu = NetworkOptions::default().mtu;
    let host = Host::new(
        Some(&doctor),
        busy,
        accelerator,
        IpVersion::V4,
        mtu,
        Vec::new(),
    );
    let examiner = Examiner {
        lab: &lab,
        accelerator,
        doctor,
    };
    let mut compared = Comparison::new(host);
    let bar = progress::bar(u64::from(arguments.rounds) * (1 + TESTS.len() as u64));
    for round in 1..=arguments.rounds {
        bar.set_message("files by TFTP");
        compared.take(round, "files by TFTP", examiner.files());
        bar.inc(1);
        for (words, what) in TESTS {
            bar.set_message(what);
            compared.take(round, what, examiner.throughput(words, what));
            bar.inc(1);
        }
        arguments.results.write(&compared, || compared.markdown())?;
    }
    bar.finish_and_clear();
    println!("{}", compared.text());
    Ok(match compared.failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => NOT_MEASURED.into(),
    })
}

/// The same as doctor.efi and as somebody outside has measured it.
#[derive(Clone, Copy, Debug)]
struct Pair {
    what: &'static str,
    inside: f64,
    outside: f64,
}

/// Who examines, and where.
struct Examiner<'a> {
    lab: &'a Lab,
    accelerator: Accelerator,
    doctor: PathBuf,
}

impl Examiner<'_> {
    /// What doctor.efi says with these words, and the machine's packets.
    fn examine(&self, words: &str) -> Result<(Report, Network)> {
        let trial = Trial::healthy(self.accelerator, LONGEST);
        let examination = Examination {
            program: &self.doctor,
            words,
            http: false,
            counts_instructions: false,
            goes_on: false,
        };
        let capture = self.lab.scratch().join("accuracy.pcap");
        let inside = examine_inside(self.lab, &trial, examination, &capture, |_| {})?;
        // Without boot options over IPv6 a sweep has no tables of it.
        let mut missing = inside.not_measured.iter();
        if let Some(missing) = missing.find(|one| !one.reason.starts_with("over IPv6")) {
            bail!("{}: {}", missing.check, missing.reason);
        }
        Ok((inside, examine(&capture, None)?.network))
    }

    fn files(&self) -> Result<Vec<Pair>> {
        let root = self.lab.scratch().join("root");
        fs::create_dir_all(&root).context("making a directory")?;
        fs::write(root.join(SWEPT), vec![7; SWEPT_BYTES]).context("writing a file")?;
        let words = format!("boot runs=3 options=1 sweep rounds=1 file={SWEPT}");
        let (inside, outside) = self.examine(&words)?;
        files(&inside, &outside)
    }

    fn throughput(&self, words: &str, what: &'static str) -> Result<Vec<Pair>> {
        let (inside, _) = self.examine(words)?;
        let theirs = fs::read_to_string(self.lab.scratch().join(IPERF3))?;
        let theirs = serde_json::from_str(&theirs).context("what iperf3's server says")?;
        let test = inside.throughput.first().context("no test in the report")?;
        rates(test, &theirs, what).map(|pair| vec![pair])
    }
}

/// Each file's time from the request to the last acknowledgement.
fn files(inside: &Report, outside: &Network) -> Result<Vec<Pair>> {
    let complete = |file: &str| {
        let whole =
            move |one: &&Transfer| one.file.ends_with(file) && one.outcome == Outcome::Complete;
        outside.transfers.iter().filter(whole).collect::<Vec<_>>()
    };
    let came: Vec<_> = inside.sweep.iter().filter(|cell| cell.came()).collect();
    let swept = complete(SWEPT);
    ensure!(
        came.len() == swept.len() && !came.is_empty(),
        "{} files of the sweep came by its own word, {} by their packets",
        came.len(),
        swept.len()
    );
    // Inside, a request that was sent again is part of the time; outside it is a transfer of its own.
    let once = came
        .into_iter()
        .zip(swept)
        .filter(|(cell, _)| cell.retransmitted.unwrap_or(0) == 0);
    let cells = once.map(|(cell, outside)| Pair {
        what: match cell.by {
            By::Wireboot => WIREBOOT,
            _ => FIRMWARE,
        },
        inside: cell.seconds,
        outside: outside.seconds(),
    });
    let dry = inside.dry_boot().context("the firmware loaded nothing")?;
    let own = dry.network.transfers.iter();
    let own: Vec<_> = own.filter(|one| one.outcome == Outcome::Complete).collect();
    let seen = own.len();
    let pairs = own.into_iter().filter_map(|own| {
        let same = |one: &&Transfer| (&one.client, &one.file) == (&own.client, &own.file);
        let outside = complete(&own.file).into_iter().find(same)?;
        Some(Pair {
            what: BOOT,
            inside: own.seconds(),
            outside: outside.seconds(),
        })
    });
    let pairs: Vec<_> = pairs.collect();
    ensure!(
        pairs.len() == seen && seen > 0,
        "{seen} boot files were seen inside, {} of them outside",
        pairs.len()
    );
    Ok(pairs.into_iter().chain(cells).collect())
}

/// A rate, by the report and by iperf3's server.
fn rates(test: &Throughput, theirs: &Value, what: &'static str) -> Result<Pair> {
    // What came, by its receiver; of TCP that the server sends, by its own count.
    let sums = match test.direction {
        Direction::Receive => ["/end/sum_sent", "/end/sum"],
        _ => ["/end/sum_received", "/end/sum"],
    };
    let mut sums = sums.iter().filter_map(|place| theirs.pointer(place));
    let bits = sums.find_map(|sum| sum.get("bits_per_second")?.as_f64());
    let bits = bits.context("iperf3's server tells no rate")?;
    // Of what it sends, doctor.efi's own count: the report has the server's beside it.
    let bytes = match test.direction {
        Direction::Receive => test.received_bytes(),
        _ => test.sent_bytes(),
    };
    Ok(Pair {
        what,
        inside: rate(bytes, test.took_s) / 1e6,
        outside: bits / 1e6,
    })
}

/// All that was compared.
#[derive(Debug, Serialize)]
struct Comparison {
    host: Host,
    rows: Vec<Row>,
    failed: Vec<String>,
}

/// The same thing, measured again and again.
#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    inside: Vec<f64>,
    outside: Vec<f64>,
}

const COLUMNS: [&str; 6] = [
    "what",
    "compared",
    "inside, median",
    "outside, median",
    "inside / outside, median (lowest to highest)",
    "agree: 1 %, or 2 ms",
];

impl Comparison {
    fn new(host: Host) -> Self {
        let tests = TESTS.map(|(_, what)| what);
        let whats = [BOOT, FIRMWARE, WIREBOOT].into_iter().chain(tests);
        let rows = whats.map(|what| Row {
            what,
            inside: Vec::new(),
            outside: Vec::new(),
        });
        Self {
            host,
            rows: rows.collect(),
            failed: Vec::new(),
        }
    }

    fn take(&mut self, round: u32, what: &str, found: Result<Vec<Pair>>) {
        match found {
            Ok(pairs) => {
                for row in &mut self.rows {
                    let pairs = pairs.iter().filter(|pair| pair.what == row.what);
                    for pair in pairs {
                        row.inside.push(pair.inside);
                        row.outside.push(pair.outside);
                    }
                }
            }
            Err(error) => {
                // Behind its first line is the end of the console.
                let error = format!("{error:#}");
                let why = error.lines().next().unwrap_or_default();
                self.failed.push(format!("round {round}: {what}: {why}"));
            }
        }
    }

    fn text(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::ASCII_MARKDOWN)
            .set_header(COLUMNS);
        for row in &self.rows {
            table.add_row(row.cells());
        }
        let mut text = format!("{}\n\n{table}", self.host);
        for failed in &self.failed {
            let _ = write!(text, "\nfailed: {failed}");
        }
        text
    }

    /// The table and what failed, without the host.
    fn markdown(&self) -> String {
        let rule = "---|".repeat(COLUMNS.len());
        let mut text = format!("| {} |\n|{rule}\n", COLUMNS.join(" | "));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.cells().join(" | "));
        }
        for failed in &self.failed {
            let _ = writeln!(text, "\nFailed: {failed}");
        }
        text
    }
}

impl Row {
    fn cells(&self) -> [String; 6] {
        let pairs = || self.inside.iter().zip(&self.outside);
        let in_seconds = self.what.ends_with(", s");
        let agrees = |(inside, outside): &(&f64, &f64)| {
            let apart = (*inside - *outside).abs();
            apart <= PART * **outside || in_seconds && apart <= SECONDS
        };
        let ratios: Vec<f64> = pairs().map(|(inside, outside)| inside / outside).collect();
        let digits = if in_seconds { 4 } else { 1 };
        let shown = |values: &[f64]| {
            median(values).map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let agree = pairs().filter(agrees).count();
        [
            self.what.to_owned(),
            ratios.len().to_string(),
            shown(&self.inside),
            shown(&self.outside),
            wireboot_lab::statistics::spread(&ratios, |ratio| format!("{ratio:.4}")),
            format!("{agree} of {}", ratios.len()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use wireboot_report::sweep::Cell;
    use wireboot_report::throughput::Stream;

    fn transfer(client: &str, file: &str, seconds: f64) -> Transfer {
        Transfer {
            client: client.into(),
            file: file.into(),
            start_s: 1.0,
            end_s: 1.0 + seconds,
            outcome: Outcome::Complete,
            ..Transfer::default()
        }
    }

    fn network(transfers: Vec<Transfer>) -> Network {
        Network {
            transfers,
            ..Network::default()
        }
    }

    #[test]
    fn what_was_seen_inside_stands_beside_the_same_outside() {
        let cell = |by, seconds| Cell {
            by,
            bytes: 1,
            seconds,
            ..Cell::default()
        };
        let mut inside = Report {
            sweep: vec![
                Cell {
                    retransmitted: Some(1),
                    ..cell(By::Firmware, 8.0)
                },
                cell(By::Firmware, 0.5),
                cell(By::Firmware, 0.0),
                cell(By::Wireboot, 0.25),
            ],
            ..Report::new()
        };
        inside.dry_boots = vec![wireboot_report::DryBoot {
            runs_s: vec![1.0],
            network: network(vec![transfer("a:2", "x/boot.efi", 0.75)]),
            ..Default::default()
        }];
        let outside = network(vec![
            transfer("a:1", "x/boot.efi", 9.0),
            transfer("a:2", "x/boot.efi", 0.5),
            transfer("a:3", SWEPT, 0.03),
            transfer("a:3", SWEPT, 0.5),
            transfer("a:4", SWEPT, 0.5),
        ]);
        let pairs = files(&inside, &outside).unwrap();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|pair| (pair.what, pair.inside, pair.outside))
            .collect();
        let wanted = [
            (BOOT, 0.75, 0.5),
            (FIRMWARE, 0.5, 0.5),
            (WIREBOOT, 0.25, 0.5),
        ];
        assert_eq!(pairs, wanted);
        inside.sweep.pop();
        assert!(files(&inside, &outside).is_err());
    }

    #[test]
    fn a_boot_file_that_nobody_saw_outside_is_no_comparison() {
        let mut inside = Report {
            sweep: vec![Cell {
                bytes: 1,
                seconds: 0.5,
                ..Cell::default()
            }],
            ..Report::new()
        };
        let of_a = transfer("a:1", "boot.efi", 0.5);
        let of_b = transfer("a:2", "boot.efi", 0.5);
        inside.dry_boots = vec![wireboot_report::DryBoot {
            network: network(vec![of_a.clone(), of_b]),
            ..Default::default()
        }];
        let outside = network(vec![of_a, transfer("a:3", SWEPT, 0.5)]);
        let error = files(&inside, &outside).unwrap_err().to_string();
        assert!(error.starts_with("2 boot files"), "{error}");
    }

    #[test]
    fn rates_are_those_of_the_receiver_and_of_a_server_that_sends() {
        let theirs = json!({"end": {
            "sum": {"bits_per_second": 1e6},
            "sum_sent": {"bits_per_second": 2e6},
            "sum_received": {"bits_per_second": 3e6},
        }});
        let test = |direction| Throughput {
            direction,
            took_s: 1.0,
            streams: vec![Stream {
                sent_bytes: 1_000_000,
                received_bytes: 500_000,
                ..Stream::default()
            }],
            ..Throughput::default()
        };
        let inside = |direction| rates(&test(direction), &theirs, "x").unwrap().inside;
        assert_eq!(
            (inside(Direction::Send), inside(Direction::Receive)),
            (8.0, 4.0)
        );
        let outside = |direction| rates(&test(direction), &theirs, "x").unwrap().outside;
        assert_eq!(outside(Direction::Receive), 2.0);
        assert_eq!(outside(Direction::Send), 3.0);
        assert!(rates(&test(Direction::Send), &json!({}), "x").is_err());
    }

    #[test]
    fn two_agree_within_a_part_or_two_milliseconds() {
        let row = |what, inside: &[f64]| Row {
            what,
            inside: inside.to_vec(),
            outside: vec![1.0; inside.len()],
        };
        let agree = |row: Row| {
            let [.., agree] = row.cells();
            agree
        };
        assert_eq!(agree(row(BOOT, &[1.009, 0.989])), "1 of 2");
        let short = Row {
            what: BOOT,
            inside: vec![0.0119, 0.0121],
            outside: vec![0.01, 0.01],
        };
        assert_eq!(agree(short), "1 of 2");
        let (_, what) = TESTS[0];
        assert_eq!(agree(row(what, &[1.009, 1.011])), "1 of 2");
    }
}
