//! The verdicts: table, JSON, Markdown.

use comfy_table::Attribute;
use serde::Serialize;

use super::KINDS;
use super::guest::Guest;
use super::verdict::{QUIET, Verdict};
use crate::bench::problems::{self, FailedTrial};
use crate::bench::report::new_table;
use wireboot_lab::host::Host;

/// Everything that one run found.
#[derive(Debug, Serialize)]
pub struct NicFaultsReport {
    /// Where it ran, with the version of each guest among the servers.
    pub host: Host,
    /// Of the places at which the card did wrong.
    pub seed: u64,
    /// One for each boot.
    pub cells: Vec<Cell>,
    /// Boots that gave no verdict, also where the next one did.
    pub failed_trials: Vec<FailedTrial>,
}

/// A boot of one guest over a card with one kind of fault.
#[derive(Debug, Serialize)]
pub struct Cell {
    /// The fault, as `--fault` calls it.
    pub kind: &'static str,
    /// The guest's name, as the table heads its column.
    pub guest: &'static str,
    /// What became of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// From power-on to the verdict.
    pub seconds: f64,
    /// The end of the console.
    pub console: String,
    /// What QEMU said last.
    pub qemu: String,
    /// What the card said last.
    pub card: String,
}

impl NicFaultsReport {
    pub(super) fn new(host: Host, seed: u64) -> Self {
        Self {
            host,
            seed,
            cells: Vec::new(),
            failed_trials: Vec::new(),
        }
    }

    /// Takes in a boot, whichever of several side by side has ended first.
    pub(super) fn add(&mut self, cell: Cell) {
        self.cells.push(cell);
        self.cells.sort_by_key(|cell| {
            (
                KINDS.iter().position(|kind| *kind == cell.kind),
                Guest::ALL
                    .iter()
                    .position(|guest| guest.name() == cell.guest),
            )
        });
    }

    /// Kinds, each with the verdict of each guest, where there is one.
    fn rows(&self) -> Vec<(&'static str, [Option<&Verdict>; Guest::ALL.len()])> {
        let mut kinds: Vec<&str> = self.cells.iter().map(|cell| cell.kind).collect();
        kinds.dedup();
        let of = |kind, guest: Guest| {
            let mut cells = self.cells.iter();
            let cell = cells.find(|cell| cell.kind == kind && cell.guest == guest.name());
            cell.map(|cell| &cell.verdict)
        };
        kinds
            .into_iter()
            .map(|kind| (kind, Guest::ALL.map(|guest| of(kind, guest))))
            .collect()
    }

    /// Of the boots with these kinds, how many gave no verdict.
    pub(super) fn missing(&self, kinds: &[&str]) -> usize {
        kinds.len() * Guest::ALL.len() - self.cells.len()
    }

    fn head() -> Vec<&'static str> {
        let guests = Guest::ALL.into_iter().map(Guest::name);
        std::iter::once("fault").chain(guests).collect()
    }

    /// For a terminal. What is neither right nor an error stands out.
    #[must_use]
    pub fn text(&self) -> String {
        let mut table = new_table(&Self::head(), usize::MAX);
        for (kind, verdicts) in self.rows() {
            let cells = verdicts.into_iter().map(|verdict| {
                let cell = comfy_table::Cell::new(text(verdict));
                match verdict.is_none_or(Verdict::is_safe) {
                    true => cell,
                    false => cell.add_attribute(Attribute::Bold),
                }
            });
            let kind = std::iter::once(comfy_table::Cell::new(kind));
            table.add_row(kind.chain(cells));
        }
        let problems = problems::text(&[], &self.failed_trials);
        format!("{}\n\nseed {}\n{table}\n{problems}", self.host, self.seed)
    }

    /// For a page.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut page = format!(
            "{}\n\nSeed {}, one boot each. *hangs*: twice, nothing more on the console within {} s.\n\n| {} |\n|{}\n",
            self.host.provenance(),
            self.seed,
            QUIET.as_secs(),
            Self::head().join(" | "),
            "---|".repeat(Self::head().len())
        );
        for (kind, verdicts) in self.rows() {
            page.push_str(&format!(
                "| `{kind}` | {} |\n",
                verdicts.map(text).join(" | ")
            ));
        }
        page + &problems::section(&[], &self.failed_trials)
    }

    /// The kinds about which wireboot did neither what is right nor told an error.
    pub(super) fn ours_fell_short(&self) -> Vec<&'static str> {
        let ours = self
            .cells
            .iter()
            .filter(|cell| cell.guest == Guest::Wireboot.name());
        ours.filter(|cell| !cell.verdict.is_safe())
            .map(|cell| cell.kind)
            .collect()
    }
}

/// As a cell of a table has it.
fn text(verdict: Option<&Verdict>) -> String {
    verdict.map_or_else(|| "-".to_owned(), Verdict::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::report as bench;

    fn report(verdicts: &[(&'static str, Guest, Verdict)]) -> NicFaultsReport {
        let mut report = NicFaultsReport::new(bench().host, 7);
        for (kind, guest, verdict) in verdicts {
            report.add(Cell {
                kind,
                guest: guest.name(),
                verdict: verdict.clone(),
                seconds: 1.0,
                console: String::new(),
                qemu: String::new(),
                card: String::new(),
            });
        }
        report
    }

    #[test]
    fn rows_are_kinds_and_a_missing_verdict_moves_no_other() {
        let report = report(&[
            ("death", Guest::Grub, Verdict::Hangs),
            ("lost", Guest::Wireboot, Verdict::Right),
            ("lost", Guest::Ovmf, Verdict::Error("PXE-E18".to_owned())),
        ]);
        let page = report.markdown();
        for line in [
            "| fault | OVMF's PXE | iPXE | GRUB | Linux | wireboot |\n|---|---|---|---|---|---|\n",
            "| `lost` | error, goes on: PXE-E18 | - | - | - | right |\n| `death` | - | - | hangs | - | - |\n",
            "Seed 7",
        ] {
            assert!(page.contains(line), "{line} in\n{page}");
        }
        assert!(report.text().contains("PXE-E18"), "{}", report.text());
        assert_eq!(report.missing(&["lost", "death"]), 7);
    }

    #[test]
    fn boots_that_gave_no_verdict_are_told() {
        let mut report = report(&[("lost", Guest::Wireboot, Verdict::Right)]);
        assert!(report.markdown().ends_with("\n\nNothing.\n"));
        report.failed_trials.push(FailedTrial {
            round: 1,
            what: "lost: iPXE".to_owned(),
            reason: "no machine".to_owned(),
        });
        let told = "failed in round 1: lost: iPXE: no machine\n";
        for text in [report.text(), report.markdown()] {
            assert!(text.ends_with(told), "{text}");
        }
    }

    #[test]
    fn wireboot_is_to_be_right_or_to_tell_an_error() {
        let of = |guest, verdict| report(&[("lost", guest, verdict)]).ours_fell_short();
        for verdict in [Verdict::Right, Verdict::Error("no answer".to_owned())] {
            assert!(of(Guest::Wireboot, verdict).is_empty());
        }
        for verdict in [Verdict::WrongBytes, Verdict::Hangs, Verdict::Crash] {
            assert!(of(Guest::Grub, verdict.clone()).is_empty());
            assert_eq!(of(Guest::Wireboot, verdict), ["lost"]);
        }
    }

    #[test]
    fn a_verdict_is_a_word_with_its_reason_beside() {
        let report = report(&[
            ("lost", Guest::Ovmf, Verdict::Error("PXE-E18".to_owned())),
            ("lost", Guest::Ipxe, Verdict::WrongBytes),
        ]);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["cells"][0]["verdict"], "error");
        assert_eq!(json["cells"][0]["reason"], "PXE-E18");
        assert_eq!(json["cells"][1]["verdict"], "wrong-bytes");
    }
}
