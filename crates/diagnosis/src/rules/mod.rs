//! The rules, each a function of the report.

mod addressing;
mod checkpoints;
mod files;
mod transfer;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use wireboot_report::{Finding, Report};

/// Something to look for in a report, and what to say when it is there.
pub(crate) struct Rule {
    /// Its name, the same in all versions, and its section in the documents.
    pub(crate) id: &'static str,
    find: fn(&Report) -> Option<Found>,
}

/// What a rule has found.
struct Found {
    label: String,
    seconds: f64,
    evidence: String,
    advice: Vec<String>,
    expected_s: Option<f64>,
}

impl Rule {
    /// What it finds in `report`.
    pub(crate) fn examine(&self, report: &Report) -> Option<Finding> {
        let found = (self.find)(report)?;
        Some(Finding {
            id: self.id.into(),
            label: found.label,
            seconds: found.seconds,
            evidence: found.evidence,
            advice: found.advice,
            expected_s: found.expected_s,
            doc: format!("docs/doctor.md#{}", self.id),
        })
    }
}

/// In the order of a boot; findings are sorted by seconds afterwards.
pub(crate) const ALL: &[Rule] = &[
    rule("options-before", checkpoints::options_before),
    rule("spanning-tree", addressing::spanning_tree),
    rule("unanswered", addressing::unanswered),
    rule("ip-version", addressing::ip_version),
    rule("late-offer", addressing::late_offer),
    rule("offer-wait", addressing::offer_wait),
    rule("boot-server", addressing::boot_server),
    rule("several-servers", addressing::several_servers),
    rule("vendor-options", addressing::vendor_options),
    rule("names", addressing::names),
    rule("silence", addressing::silence),
    rule("no-boot-file", files::no_boot_file),
    rule("refused", files::refused),
    rule("no-answer", files::no_answer),
    rule("slow-answer", files::slow_answer),
    rule("window", transfer::window),
    rule("block-size", transfer::block_size),
    rule("fragments", transfer::fragments),
    rule("loss", transfer::loss),
    rule("slow-server", transfer::slow_server),
    rule("slow-machine", transfer::slow_machine),
    rule("http-window", transfer::http_window),
];

const fn rule(id: &'static str, find: fn(&Report) -> Option<Found>) -> Rule {
    Rule { id, find }
}

/// A time as people say it.
fn time(seconds: f64) -> String {
    if seconds >= 1.0 {
        format!("{seconds:.1} s")
    } else if seconds >= 0.001 {
        format!("{:.0} ms", seconds * 1e3)
    } else {
        format!("{:.0} us", seconds * 1e6)
    }
}

/// Names in a row, the first few.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 4;
    let all: Vec<&str> = names.collect();
    let shown = all.iter().take(SHOWN).copied();
    let mut out = shown.collect::<Vec<_>>().join(", ");
    if let Some(more) = all.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        out.push_str(&format!(" and {more} more"));
    }
    out
}

/// Lines of advice.
fn advice<const N: usize>(lines: [&str; N]) -> Vec<String> {
    lines.map(|line| line.to_string()).into()
}

/// `1 request`, `2 requests`.
fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}
