//! A report's tables as comma-separated values (RFC 4180), a table at a time.

use std::fmt::Write;

use clap::ValueEnum;
use wireboot_report::Report;

use crate::sweep;

/// A table of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CsvTable {
    /// What happened when
    Timeline,
    /// Blocks and windows
    Sweep,
    /// What the firmware's services cost
    Costs,
    /// Tests of throughput
    Throughput,
    /// What came through at each height
    Ladder,
    /// How fast memory is
    Memory,
}

/// The table that is named; of none that a report has but one, that.
pub(crate) fn table(report: &Report, named: Option<CsvTable>) -> String {
    let only_a_sweep = report.timeline.is_empty() && !report.sweep.is_empty();
    match named {
        Some(CsvTable::Sweep) => sweep::csv(&report.sweep),
        None if only_a_sweep => sweep::csv(&report.sweep),
        Some(CsvTable::Timeline) | None => timeline(report),
        Some(CsvTable::Costs) => costs(report),
        Some(CsvTable::Throughput) => throughput(report),
        Some(CsvTable::Ladder) => ladder(report),
        Some(CsvTable::Memory) => memory(report),
    }
}

/// A stranger's text as a field.
fn quoted(text: &str) -> String {
    let mut quoted = text.replace('"', "\"\"");
    // A spreadsheet takes these for the beginning of a formula.
    if quoted.starts_with(['=', '+', '-', '@']) {
        quoted.insert(0, '\'');
    }
    format!("\"{quoted}\"")
}

/// A word of the schema, without the quotes that JSON has around it.
fn word(value: &impl serde::Serialize) -> String {
    let word = serde_json::to_string(value).unwrap_or_default();
    word.trim_matches('"').to_owned()
}

fn timeline(report: &Report) -> String {
    let mut out = String::from("kind,start_s,end_s,seconds,what\r\n");
    for phase in &report.timeline {
        let _ = write!(
            out,
            "{},{:.6},{:.6},{:.6},{}\r\n",
            word(&phase.kind),
            phase.start_s,
            phase.end_s,
            phase.seconds(),
            quoted(&phase.what)
        );
    }
    out
}

fn costs(report: &Report) -> String {
    let mut out = String::from("service,calls,fastest_ns,median_ns,p99_ns,slowest_ns\r\n");
    for one in &report.costs {
        let _ = write!(
            out,
            "{},{},{},{},{},{}\r\n",
            quoted(&one.service),
            one.calls,
            one.fastest_ns,
            one.median_ns,
            one.p99_ns,
            one.slowest_ns
        );
    }
    out
}

fn throughput(report: &Report) -> String {
    let mut out = String::from(
        "check,driver,server,transport,direction,parallel,message_bytes,mss_bytes,took_s,mbit_s,cycles_per_byte,cycles_per_packet,busy_percent\r\n",
    );
    let figure = |figure: Option<f64>| figure.map_or_else(String::new, |it| format!("{it:.3}"));
    for one in &report.throughput {
        let mss = one.mss_bytes.map_or_else(String::new, |it| it.to_string());
        let _ = write!(
            out,
            "{},{},{},{},{},{},{},{mss},{:.6},{:.3},{},{},{}\r\n",
            quoted(&one.check),
            quoted(&one.driver),
            quoted(&one.server),
            word(&one.transport),
            word(&one.direction),
            one.parallel,
            one.message_bytes,
            one.took_s,
            one.bits_per_second() / 1e6,
            figure(one.cycles_per_byte()),
            figure(one.cycles_per_packet()),
            figure(one.work.as_ref().map(|work| work.busy_percent))
        );
    }
    out
}

fn ladder(report: &Report) -> String {
    let mut out = String::from(
        "what,full,packets,mbit_s,packets_per_s,lost_percent,busy_percent,receivers\r\n",
    );
    for one in report.ladder.iter().flat_map(|ladder| &ladder.rungs) {
        let receivers = one.receivers.map_or_else(String::new, |it| it.to_string());
        let _ = write!(
            out,
            "{},{},{},{:.3},{:.3},{:.3},{:.3},{receivers}\r\n",
            quoted(&one.what),
            one.full,
            one.packets,
            one.mbit_s,
            one.packets_per_s,
            one.lost_percent,
            one.busy_percent
        );
    }
    out
}

fn memory(report: &Report) -> String {
    let mut out = String::from("memory,type,what,mb_per_s,cycles_per_byte\r\n");
    for region in report.memory.iter().flat_map(|memory| &memory.regions) {
        for rate in &region.rates {
            let _ = write!(
                out,
                "{},{},{},{:.3},{:.3}\r\n",
                quoted(&region.what),
                quoted(region.memory_type.as_deref().unwrap_or_default()),
                quoted(&rate.what),
                rate.mb_per_s,
                rate.cycles_per_byte
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::ladder::Rung;
    use wireboot_report::memory::{Rate, Region};
    use wireboot_report::{Cost, Ladder, Memory, Throughput};

    /// A report with a row of each table, and a stranger's words in it.
    fn report() -> Report {
        let mut report = Report::new();
        report.costs = vec![Cost {
            service: "=1+\"1\"".into(),
            calls: 10,
            median_ns: 7,
            ..Cost::default()
        }];
        report.throughput = vec![Throughput {
            check: "ttcp".into(),
            message_bytes: 128,
            mss_bytes: Some(536),
            took_s: 2.0,
            ..Throughput::default()
        }];
        report.ladder = Some(Ladder {
            sender: String::new(),
            rungs: vec![Rung {
                what: "MNP".into(),
                full: true,
                mbit_s: 287.0,
                receivers: Some(3),
                ..Rung::default()
            }],
        });
        report.memory = Some(Memory {
            regions: vec![Region {
                what: "BAR".into(),
                rates: vec![Rate {
                    what: "read".into(),
                    mb_per_s: 12.5,
                    cycles_per_byte: 3.0,
                }],
                ..Region::default()
            }],
            ..Memory::default()
        });
        report
    }

    #[test]
    fn each_table_has_its_rows() {
        let report = report();
        for (named, row) in [
            (CsvTable::Costs, "\"'=1+\"\"1\"\"\",10,0,7,0,0"),
            (
                CsvTable::Throughput,
                "\"ttcp\",\"\",\"\",tcp,send,0,128,536,2.000000,0.000,,,",
            ),
            (
                CsvTable::Ladder,
                "\"MNP\",true,0,287.000,0.000,0.000,0.000,3",
            ),
            (CsvTable::Memory, "\"BAR\",\"\",\"read\",12.500,3.000"),
        ] {
            let text = table(&report, Some(named));
            let lines: Vec<_> = text.split("\r\n").collect();
            assert_eq!(lines[1..], [row, ""], "{named:?}");
            let columns = |line: &str| line.matches(',').count();
            assert_eq!(columns(lines[0]), columns(lines[1]), "{named:?}");
        }
        for named in [CsvTable::Timeline, CsvTable::Sweep] {
            assert_eq!(table(&report, Some(named)).lines().count(), 1);
        }
    }
}
