//! A report's tables as comma-separated values (RFC 4180), a table at a time.

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

/// The table that is named; where none is, what happened when, or of a report that has a sweep alone, that.
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

/// The head, and a line for each row.
fn lines<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut out = head.join(",") + "\r\n";
    for row in rows {
        out.push_str(&row.join(","));
        out.push_str("\r\n");
    }
    out
}

fn figure(figure: f64) -> String {
    format!("{figure:.3}")
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.6}")
}

/// Nothing for what was not measured.
fn if_any<T>(value: Option<T>, shown: impl Fn(T) -> String) -> String {
    value.map_or_else(String::new, shown)
}

fn timeline(report: &Report) -> String {
    let rows = report.timeline.iter().map(|phase| {
        [
            word(&phase.kind),
            seconds(phase.start_s),
            seconds(phase.end_s),
            seconds(phase.seconds()),
            quoted(&phase.what),
        ]
    });
    lines(["kind", "start_s", "end_s", "seconds", "what"], rows)
}

fn costs(report: &Report) -> String {
    let head = [
        "service",
        "calls",
        "fastest_ns",
        "median_ns",
        "p99_ns",
        "slowest_ns",
    ];
    let rows = report.costs.iter().map(|one| {
        [
            quoted(&one.service),
            one.calls.to_string(),
            one.fastest_ns.to_string(),
            one.median_ns.to_string(),
            one.p99_ns.to_string(),
            one.slowest_ns.to_string(),
        ]
    });
    lines(head, rows)
}

fn throughput(report: &Report) -> String {
    let head = [
        "check",
        "driver",
        "server",
        "transport",
        "direction",
        "parallel",
        "message_bytes",
        "mss_bytes",
        "took_s",
        "mbit_s",
        "cycles_per_byte",
        "cycles_per_packet",
        "busy_percent",
    ];
    let rows = report.throughput.iter().map(|one| {
        [
            quoted(&one.check),
            quoted(&one.driver),
            quoted(&one.server),
            word(&one.transport),
            word(&one.direction),
            one.parallel.to_string(),
            one.message_bytes.to_string(),
            if_any(one.mss_bytes, |bytes| bytes.to_string()),
            seconds(one.took_s),
            figure(one.bits_per_second() / 1e6),
            if_any(one.cycles_per_byte(), figure),
            if_any(one.cycles_per_packet(), figure),
            if_any(one.work.as_ref(), |work| figure(work.busy_percent)),
        ]
    });
    lines(head, rows)
}

fn ladder(report: &Report) -> String {
    let head = [
        "what",
        "full",
        "packets",
        "mbit_s",
        "packets_per_s",
        "lost_percent",
        "busy_percent",
        "receivers",
    ];
    let rungs = report.ladder.iter().flat_map(|ladder| &ladder.rungs);
    let rows = rungs.map(|one| {
        [
            quoted(&one.what),
            one.full.to_string(),
            one.packets.to_string(),
            figure(one.mbit_s),
            figure(one.packets_per_s),
            figure(one.lost_percent),
            figure(one.busy_percent),
            if_any(one.receivers, |others| others.to_string()),
        ]
    });
    lines(head, rows)
}

fn memory(report: &Report) -> String {
    let regions = report.memory.iter().flat_map(|memory| &memory.regions);
    let rows = regions.flat_map(|region| {
        region.rates.iter().map(|rate| {
            [
                quoted(&region.what),
                quoted(region.memory_type.as_deref().unwrap_or_default()),
                quoted(&rate.what),
                figure(rate.mb_per_s),
                figure(rate.cycles_per_byte),
            ]
        })
    });
    lines(
        ["memory", "type", "what", "mb_per_s", "cycles_per_byte"],
        rows,
    )
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
