//! What was foretold beside what was gained.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use comfy_table::{Table as Lines, presets};
use serde::Serialize;
use wireboot_lab::host::Host;
use wireboot_lab::statistics::{median, range, spread};
use wireboot_report::Report;

use super::super::name;
use super::catalogue::{ComparedBoots, Planted};

/// Boots of one kind, in seconds from power-on, and what was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Boots {
    /// To the start of the first file.
    started_s: Vec<f64>,
    /// To the end of the boot.
    ended_s: Vec<f64>,
    /// The seconds of each finding.
    found: Vec<BTreeMap<String, f64>>,
}

impl Boots {
    /// One boot by its times, without findings.
    pub(super) fn timed(started_s: f64, ended_s: f64) -> Self {
        Self {
            started_s: vec![started_s],
            ended_s: vec![ended_s],
            found: Vec::new(),
        }
    }

    /// And what is found in it.
    pub(super) fn with_report(mut self, report: &Report) -> Self {
        let findings = report.findings.iter();
        let seconds = findings.map(|one| (one.id.clone(), one.seconds));
        self.found.push(seconds.collect());
        self
    }

    /// More of the same kind.
    pub(super) fn add(&mut self, more: Self) {
        self.started_s.extend(more.started_s);
        self.ended_s.extend(more.ended_s);
        self.found.extend(more.found);
    }

    /// The sum of some findings' seconds, for each boot.
    fn found(&self, findings: &[&str]) -> Vec<f64> {
        let sum = |found: &BTreeMap<String, f64>| {
            let seconds = findings.iter().filter_map(|id| found.get(*id));
            seconds.sum()
        };
        self.found.iter().map(sum).collect()
    }
}

impl fmt::Display for Boots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(started), Some(ended)) = (self.started_s.last(), self.ended_s.last()) {
            write!(f, "first file at {started:.2} s, end at {ended:.2} s")?;
        }
        for (id, seconds) in self.found.iter().flatten() {
            write!(f, " {id} {seconds:.2}")?;
        }
        Ok(())
    }
}

/// A fault: its boots and those without it, and what was found in both.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FaultRow {
    fault: String,
    /// What is wrong in both kinds of boots.
    beside: Vec<String>,
    findings: &'static [&'static str],
    /// Until when boots are timed.
    until: &'static str,
    with_s: Vec<f64>,
    without_s: Vec<f64>,
    found_with_s: Vec<f64>,
    found_without_s: Vec<f64>,
}

impl FaultRow {
    /// With the fault, and without it: boots, and what tells their findings.
    pub(super) fn new(planted: &Planted, with: [Boots; 2], without: [Boots; 2]) -> Self {
        let until = match planted.compared {
            ComparedBoots::Whole => "the last file",
            ComparedBoots::First | ComparedBoots::Inside(_) => "the start of the first file",
        };
        let both = [with, without].map(|[boots, told]| {
            let seconds = match planted.compared {
                ComparedBoots::Whole => boots.ended_s,
                ComparedBoots::First | ComparedBoots::Inside(_) => boots.started_s,
            };
            (seconds, told.found(planted.findings))
        });
        let [(with_s, found_with_s), (without_s, found_without_s)] = both;
        Self {
            fault: name(planted.fault),
            beside: planted.beside.iter().copied().map(name).collect(),
            findings: planted.findings,
            until,
            with_s,
            without_s,
            found_with_s,
            found_without_s,
        }
    }

    fn foretold_s(&self) -> Option<f64> {
        Some(median(&self.found_with_s)? - median(&self.found_without_s)?)
    }

    fn gained_s(&self) -> Option<f64> {
        Some(median(&self.with_s)? - median(&self.without_s)?)
    }

    /// How far boots of the same kind are from each other; `None` where there is one of each.
    fn spread_s(&self) -> Option<f64> {
        let of = |seconds: &[f64]| {
            let (low, high) = range(seconds).filter(|_| seconds.len() > 1)?;
            Some(high - low)
        };
        Some(of(&self.with_s)?.max(of(&self.without_s)?))
    }

    fn verdict(&self) -> String {
        let (Some(foretold), Some(gained)) = (self.foretold_s(), self.gained_s()) else {
            return "not measured".into();
        };
        if let Some(spread) = self.spread_s()
            && foretold.abs().max(gained.abs()) < spread
        {
            return format!("not shown: the boots differ by {spread:.1} s themselves");
        }
        if (gained - foretold).abs() <= WITHIN * foretold {
            return "yes".into();
        }
        if foretold <= 0.0 {
            return "not foretold".into();
        }
        format!("no: {:+.0} %", (gained / foretold - 1.0) * 100.0)
    }

    fn cells(&self) -> [String; 7] {
        let difference = |seconds: Option<f64>| {
            seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}"))
        };
        let beside = match self.beside.is_empty() {
            true => String::new(),
            false => format!(" beside `{}`", self.beside.join("`, `")),
        };
        [
            format!("`{}`{beside}", self.fault),
            self.until.into(),
            shown(&self.with_s),
            shown(&self.without_s),
            difference(self.foretold_s()),
            difference(self.gained_s()),
            self.verdict(),
        ]
    }
}

/// So far from what was foretold may be what is gained, as a part of it.
const WITHIN: f64 = 0.25;

const COLUMNS: [&str; 7] = [
    "fault",
    "seconds from power-on to",
    "with it",
    "without it",
    "foretold",
    "gained",
    "within 25 %",
];

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Table {
    pub(super) host: Host,
    pub(super) rows: Vec<FaultRow>,
    pub(super) failures: Vec<String>,
}

impl Table {
    /// The rows as a table in text, and the failures behind it.
    pub(super) fn text(&self) -> String {
        let mut lines = Lines::new();
        lines.load_style(presets::ASCII_MARKDOWN);
        lines.set_header(COLUMNS);
        self.rows.iter().for_each(|row| {
            lines.add_row(row.cells());
        });
        let mut text = lines.to_string();
        for failure in &self.failures {
            let _ = write!(text, "\nfailed: {failure}");
        }
        text
    }

    pub(super) fn markdown(&self) -> String {
        let mut text = format!(
            "{}\n\n| {} |\n|{}\n",
            self.host.provenance(),
            COLUMNS.join(" | "),
            "---|".repeat(COLUMNS.len())
        );
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.cells().join(" | "));
        }
        for failure in &self.failures {
            let _ = writeln!(text, "\nFailed: {failure}.");
        }
        text
    }
}

fn shown(seconds: &[f64]) -> String {
    spread(seconds, |value| format!("{value:.1}"))
}

#[cfg(test)]
mod tests {
    use super::super::super::site::Fault;
    use super::*;
    use wireboot_report::Finding;

    fn row(with_s: &[f64], without_s: &[f64], foretold: &[f64], before: &[f64]) -> FaultRow {
        FaultRow {
            fault: "stp".into(),
            beside: vec!["delay".into()],
            findings: &["spanning-tree"],
            until: "the last file",
            with_s: with_s.into(),
            without_s: without_s.into(),
            found_with_s: foretold.into(),
            found_without_s: before.into(),
        }
    }

    #[test]
    fn the_medians_differences_are_compared() {
        let one = row(
            &[70.0, 75.0, 71.0],
            &[14.0, 13.0],
            &[56.0, 57.0, 99.0],
            &[2.0, 1.0],
        );
        assert_eq!(one.foretold_s(), Some(55.5));
        assert_eq!(one.gained_s(), Some(57.5));
        assert_eq!(one.cells()[0], "`stp` beside `delay`");
        assert_eq!(
            one.cells()[2..],
            [
                "71.0 (70.0 to 75.0; 3)",
                "13.5 (13.0 to 14.0; 2)",
                "55.5",
                "57.5",
                "yes"
            ]
        );
    }

    #[test]
    fn verdicts() {
        let verdict = |with_s: &[f64], without_s: &[f64], foretold: f64| {
            row(with_s, without_s, &[foretold], &[0.0]).verdict()
        };
        assert_eq!(verdict(&[22.5], &[10.0], 10.0), "yes");
        assert_eq!(verdict(&[17.5], &[10.0], 10.0), "yes");
        assert_eq!(verdict(&[22.6], &[10.0], 10.0), "no: +26 %");
        assert_eq!(verdict(&[17.4], &[10.0], 10.0), "no: -26 %");
        assert_eq!(verdict(&[13.0], &[10.0], 0.0), "not foretold");
        assert_eq!(verdict(&[], &[10.0], 3.0), "not measured");
        let noisy = [10.0, 12.0];
        let hidden = "not shown: the boots differ by 2.0 s themselves";
        assert_eq!(verdict(&[11.5, 12.0], &noisy, 1.0), hidden);
        assert_eq!(verdict(&[12.0, 13.0], &noisy, 0.0), hidden);
        // Foretold were more than these boots can hide.
        assert_eq!(verdict(&[11.5, 12.0], &noisy, 5.0), "no: -85 %");
        // One boot each does not tell how far they differ.
        assert_eq!(verdict(&[11.0], &[10.0], 1.0), "yes");
        assert_eq!(verdict(&[12.0], &noisy, 1.0), "yes");
    }

    #[test]
    fn a_row_has_its_own_findings_and_its_own_end() {
        let finding = |id: &str, seconds| Finding {
            id: id.into(),
            seconds,
            ..Finding::default()
        };
        let mut report = Report::new();
        report.findings = vec![
            finding("window", 2.0),
            finding("loss", 9.0),
            finding("block-size", 0.5),
        ];
        let healthy = Boots::timed(3.0, 13.0).with_report(&Report::new());
        let mut sick = Boots::timed(4.0, 20.0).with_report(&report);
        sick.add(Boots::timed(6.0, 22.0).with_report(&report));
        let of = |compared| {
            let planted = Planted {
                fault: Fault::NoBlksize,
                beside: &[],
                findings: &["block-size", "window"],
                compared,
            };
            let both = |boots: &Boots| [boots.clone(), boots.clone()];
            FaultRow::new(&planted, both(&sick), both(&healthy))
        };
        let whole = of(ComparedBoots::Whole);
        assert_eq!(
            (whole.foretold_s(), whole.gained_s()),
            (Some(2.5), Some(8.0))
        );
        assert_eq!(of(ComparedBoots::First).gained_s(), Some(2.0));
        let table = Table {
            host: Host::without_guests(0.0, Vec::new()),
            rows: vec![whole],
            failures: vec!["round 1: a boot: it ended".into()],
        };
        let markdown = table.markdown();
        let row = "| `no-blksize` | the last file | 21.0 (20.0 to 22.0; 2) | 13.0 | 2.5 | 8.0 | no: +220 % |";
        assert!(markdown.lines().any(|line| line == row), "{markdown}");
        assert!(markdown.contains("Failed: round 1: a boot: it ended."));
        assert!(table.text().ends_with("failed: round 1: a boot: it ended"));
    }
}
