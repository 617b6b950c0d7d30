//! Ratios of medians, beside what they are to be.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::{Table, presets};
use serde::Serialize;

use super::trial::{
    DRIVER_RECEIVES, DRIVER_RECEIVES_SMALL, DRIVER_SENDS, DRIVER_SENDS_SMALL, ENGINE_RECEIVES,
    ENGINE_RECEIVES_SMALL, ENGINE_SENDS, ENGINE_SENDS_SMALL, HTTP, LINUX_RECEIVES, SNP_RECEIVES,
    TCP_RECEIVES, TCP_RECEIVES_BY_SNP, TCP_SENDS, UDP_LOST, UDP_LOST_BEHIND_CABLE, UDP_RECEIVES,
    UDP_SENDS, UDP_SENDS_SMALL,
};
use crate::bench::problems::{self, FailedTrial};
use wireboot_lab::host::Host;
use wireboot_lab::statistics::{median, shown};

/// What is compared with what, and how many times as much it is to be.
///
/// The ladder's datagrams are counted at the cable, as the driver's frames are. iperf3's server shares the processors with the machine, so it is no measure of the
/// engine.
const RATIOS: [(&str, &str, Option<f64>); 12] = [
    (TCP_RECEIVES, LINUX_RECEIVES, Some(2.5)),
    (TCP_RECEIVES, HTTP, Some(0.7)),
    (TCP_RECEIVES, DRIVER_RECEIVES, None),
    (TCP_SENDS, DRIVER_SENDS, Some(0.5)),
    (ENGINE_SENDS, DRIVER_SENDS, Some(0.85)),
    (ENGINE_SENDS_SMALL, DRIVER_SENDS_SMALL, Some(0.7)),
    (ENGINE_RECEIVES, DRIVER_RECEIVES, Some(0.85)),
    (ENGINE_RECEIVES_SMALL, DRIVER_RECEIVES_SMALL, Some(0.7)),
    (UDP_SENDS, DRIVER_SENDS, None),
    (UDP_SENDS_SMALL, DRIVER_SENDS_SMALL, None),
    (UDP_RECEIVES, DRIVER_RECEIVES, None),
    (TCP_RECEIVES_BY_SNP, SNP_RECEIVES, Some(0.75)),
];
/// Of datagrams from the server, in percent.
const MOST_LOST: f64 = 1.0;

/// What all rounds so far have measured, by the names of the figures.
#[derive(Debug, Default)]
pub(super) struct Figures {
    values: BTreeMap<&'static str, Vec<f64>>,
    failed: Vec<FailedTrial>,
}

impl Figures {
    pub(super) fn add(&mut self, what: &'static str, value: f64) {
        self.values.entry(what).or_default().push(value);
    }

    pub(super) fn failed(&mut self, round: u32, what: &str, error: &anyhow::Error) {
        self.failed.push(FailedTrial {
            round,
            what: what.to_owned(),
            reason: format!("{error:#}"),
        });
    }

    fn of(&self, what: &str) -> &[f64] {
        self.values.get(what).map_or(&[], Vec::as_slice)
    }
}

/// What the JSON file holds: the ratios, the losses, and what gave no figure.
#[derive(Debug, Serialize)]
pub(super) struct ThroughputReport<'a> {
    host: &'a Host,
    rows: Vec<RatioRow<'a>>,
    /// Of datagrams from iperf3's server, in percent, in each round.
    lost_percent: &'a [f64],
    /// Those of them that found room in the cable.
    lost_behind_percent: &'a [f64],
    failed: &'a [FailedTrial],
}

/// Two figures that are compared: the rounds of both, and the ratio of their medians.
#[derive(Debug, Serialize)]
struct RatioRow<'a> {
    what: &'static str,
    against: &'static str,
    values: &'a [f64],
    others: &'a [f64],
    ratio: Option<f64>,
    at_least: Option<f64>,
}

const COLUMNS: [&str; 6] = [
    "what", "measured", "against", "that is", "ratio", "at least",
];

impl<'a> ThroughputReport<'a> {
    pub(super) fn new(host: &'a Host, figures: &'a Figures) -> Self {
        let rows = RATIOS.map(|(what, against, at_least)| {
            let (values, others) = (figures.of(what), figures.of(against));
            let medians = median(values).zip(median(others));
            RatioRow {
                what,
                against,
                values,
                others,
                ratio: medians.map(|(one, other)| one / other),
                at_least,
            }
        });
        Self {
            host,
            rows: rows.into(),
            lost_percent: figures.of(UDP_LOST),
            lost_behind_percent: figures.of(UDP_LOST_BEHIND_CABLE),
            failed: &figures.failed,
        }
    }

    /// Rows without a ratio.
    pub(super) fn missing(&self) -> usize {
        let missing = self.rows.iter().filter(|row| row.ratio.is_none());
        missing.count()
    }

    fn cells(&self) -> impl Iterator<Item = [String; 6]> {
        self.rows.iter().map(|row| {
            let two =
                |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
            [
                row.what.to_owned(),
                shown(row.values),
                row.against.to_owned(),
                shown(row.others),
                two(row.ratio),
                two(row.at_least),
            ]
        })
    }

    fn lost(&self) -> String {
        format!(
            "Of the datagrams that iperf3's server sends, {} % are lost: {} % behind the cable, at most {MOST_LOST} of which is wanted, and the others because the host \
             found no room in the cable.",
            shown(self.lost_percent),
            shown(self.lost_behind_percent)
        )
    }

    /// The host, the table in 80 columns and more, and what failed.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(COLUMNS);
        self.cells().for_each(|row| {
            table.add_row(row);
        });
        format!(
            "{}\n\nMedian (lowest to highest; number of boots)\n{table}\n{}\n{}",
            self.host,
            self.lost(),
            problems::text(&[], self.failed)
        )
    }

    /// The table and what failed, without the host.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!(
            "| {} |\n|{}\n",
            COLUMNS.join(" | "),
            "---|".repeat(COLUMNS.len())
        );
        for row in self.cells() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text + "\n" + &self.lost() + "\n" + &problems::section(&[], self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_lab::ip::IpVersion;
    use wireboot_lab::qemu::Accelerator;

    #[test]
    fn ratios_are_of_medians() {
        let mut figures = Figures::default();
        for value in [900.0, 1000.0, 5000.0] {
            figures.add(TCP_RECEIVES, value);
        }
        figures.add(LINUX_RECEIVES, 400.0);
        figures.add(UDP_LOST, 30.0);
        figures.add(UDP_LOST_BEHIND_CABLE, 0.5);
        figures.failed(2, HTTP, &anyhow::anyhow!("no server\nthe console"));
        let host = Host::new(None, 0.0, Accelerator::Tcg, IpVersion::V4, 1500, Vec::new());
        let report = ThroughputReport::new(&host, &figures);
        assert_eq!(report.missing(), RATIOS.len() - 1);
        let text = report.markdown();
        let row =
            "| 1000 (900 to 5000; 3) | Linux, TCP received (-R), Mbit/s | 400 (1) | 2.50 | 2.50 |";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("30 (1) % are lost: 0.50 (1) % behind"),
            "{text}"
        );
        let told = "failed in round 2: HTTP on one processor, Mbit/s: no server\n";
        assert!(report.text().contains(told), "{}", report.text());
        let end = format!("\n\n### Left out, and failed\n\n- {told}");
        assert!(text.ends_with(&end), "{text}");
    }
}
