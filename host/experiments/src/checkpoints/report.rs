//! The times of each way, as a table.

use std::fmt::Write;

use comfy_table::{Table, presets};
use serde::Serialize;
use wireboot_fpdt::BasicBoot;

use super::testbed::BootMethod;
use crate::bench::problems::{self, FailedTrial, Failure};
use wireboot_lab::host::Host;
use wireboot_lab::statistics::shown;

/// All boots of one way, in seconds since reset.
#[derive(Clone, Debug, Serialize)]
struct Boots {
    way: BootMethod,
    load_image_s: Vec<f64>,
    start_image_s: Vec<f64>,
    exit_s: Vec<f64>,
    time2_s: Vec<f64>,
    /// From LoadImage to StartImage, less the time between the firmware's words for both on the console, as somebody outside sees them.
    apart_ms: Vec<f64>,
}

/// All boots of a run, by the ways in which they were made.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CheckpointsReport {
    host: Host,
    boots: Vec<Boots>,
    /// Every boot that did not arrive, also where the next one did.
    failed_trials: Vec<FailedTrial>,
}

const COLUMNS: [&str; 6] = [
    "seconds",
    "LoadImage (Time1)",
    "StartImage",
    "ExitBootServices",
    "Time2",
    "LoadImage to StartImage, less what the console shows, ms",
];

impl CheckpointsReport {
    /// No boot yet.
    pub(crate) fn new(host: Host) -> Self {
        Self {
            host,
            boots: Vec::new(),
            failed_trials: Vec::new(),
        }
    }

    /// Adds what the firmware's tables say of a boot, and how many seconds after its word of loading the firmware's word of starting came.
    pub(crate) fn add(&mut self, method: BootMethod, boot: &BasicBoot, outside_s: f64) {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let boots = match self.boots.iter_mut().position(|one| one.way == method) {
            Some(at) => self.boots.get_mut(at),
            None => {
                self.boots.push(Boots {
                    way: method,
                    load_image_s: Vec::new(),
                    start_image_s: Vec::new(),
                    exit_s: Vec::new(),
                    time2_s: Vec::new(),
                    apart_ms: Vec::new(),
                });
                self.boots.last_mut()
            }
        };
        if let Some(boots) = boots {
            boots.load_image_s.push(seconds(boot.load_image_ns));
            boots.start_image_s.push(seconds(boot.start_image_ns));
            boots.exit_s.push(seconds(boot.exit_ns));
            let time2 = boot.exit_ns.saturating_sub(boot.load_image_ns);
            boots.time2_s.push(seconds(time2));
            let inside = boot.start_image_ns.saturating_sub(boot.load_image_ns);
            boots.apart_ms.push((seconds(inside) - outside_s) * 1e3);
        }
    }

    /// Adds boots that did not arrive.
    pub(crate) fn add_failed(&mut self, failed: Vec<FailedTrial>) {
        self.failed_trials.extend(failed);
    }

    /// The ways without a boot that arrived, with the last reason.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        problems::without_figure(&self.failed_trials, |what| {
            let mut arrived = self.boots.iter();
            arrived.any(|boots| boots.way.to_string() == what)
        })
    }

    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.boots.iter().map(|boots| {
            let mut row = vec![boots.way.to_string()];
            let columns = [
                &boots.load_image_s,
                &boots.start_image_s,
                &boots.exit_s,
                &boots.time2_s,
                &boots.apart_ms,
            ];
            row.extend(columns.map(|values| shown(values)));
            row
        })
    }

    /// For the terminal.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(COLUMNS);
        self.rows().for_each(|row| {
            table.add_row(row);
        });
        let problems = problems::text(&self.failures(), &self.failed_trials);
        format!("{table}\n{problems}")
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "{}\n\n| {} |\n|{}\n",
            self.host.provenance(),
            COLUMNS.join(" | "),
            "---|".repeat(COLUMNS.len())
        );
        for row in self.rows() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text + &problems::section(&self.failures(), &self.failed_trials)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A boot that reaches LoadImage in this second.
    pub(in crate::checkpoints) fn boot(second: u64) -> BasicBoot {
        BasicBoot {
            reset_end_ns: 0,
            load_image_ns: second * 1_000_000_000,
            start_image_ns: (second + 2) * 1_000_000_000,
            exit_entry_ns: 0,
            exit_ns: (second + 5) * 1_000_000_000 + 240_000_000,
        }
    }

    pub(in crate::checkpoints) fn empty() -> CheckpointsReport {
        CheckpointsReport::new(Host::without_guests(0.0, Vec::new()))
    }

    #[test]
    fn each_way_has_a_row_of_all_its_boots() {
        let mut report = empty();
        report.add(BootMethod::Disk, &boot(4), 1.999);
        report.add(BootMethod::Wireboot, &boot(9), 2.0);
        report.add(BootMethod::Disk, &boot(6), 2.003);
        let text = report.markdown();
        let rows: Vec<_> = text.lines().skip(4).take(2).collect();
        assert_eq!(
            rows,
            [
                "| disk, GRUB | 5.0 (4.0 to 6.0; 2) | 7.0 (6.0 to 8.0; 2) | 10 (9 to 11; 2) | 5.24 (5.24 to 5.24; 2) | -1.0 (-3.0 to 1.0; 2) |",
                "| wireboot.efi by PXE, HTTP | 9.0 (1) | 11 (1) | 14 (1) | 5.2 (1) | 0 (1) |",
            ]
        );
        assert_eq!(report.text().lines().count(), 4);
    }
}
