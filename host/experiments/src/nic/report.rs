//! The figures: table, JSON and picture.

use std::path::Path;

use anyhow::Result;
use comfy_table::{Attribute, Cell};
use serde::Serialize;

use super::bound::{BOUNDS, Bound};
use super::comparison::{COMPARISONS, Comparison};
use super::modelled::{MODELLED, Modelled};
use crate::bench::plot::{Line, logarithmic};
use crate::bench::problems::{self, FailedTrial, Failure};
use crate::bench::report::new_table;
use wireboot_lab::host::Host;
use wireboot_lab::statistics::{digits, median, shown};

/// Everything that one run found.
#[derive(Debug, Serialize)]
pub struct NicReport {
    /// Where and when it ran, by which command and commit.
    pub host: Host,
    /// Of the files, in bytes.
    pub bytes: u64,
    /// One row for each comparison.
    pub rows: Vec<ComparisonRow>,
    /// What is to be little.
    pub bounds: Vec<BoundRow>,
    /// A live guest at the speed of a model.
    pub models: Vec<ModelRow>,
    /// What gave no figure.
    pub failures: Vec<Failure>,
    /// Every trial that failed, also where the next one gave a figure.
    pub failed_trials: Vec<FailedTrial>,
}

/// A comparison: the figures of both sides, and their ratio.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonRow {
    /// Its short name.
    pub id: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// The side of our card, in words.
    pub measured: String,
    /// With what it is compared.
    pub against: String,
    /// Mbit/s of what is measured, by round.
    pub ours: Vec<f64>,
    /// The same of what it is compared with.
    pub theirs: Vec<f64>,
    /// The ratio of the medians.
    pub ratio: f64,
    /// What it is to be at least.
    pub floor: f64,
}

/// What is to be little, as it was found.
#[derive(Clone, Debug, Serialize)]
pub struct BoundRow {
    /// Its short name.
    pub id: &'static str,
    /// In a few words, with the unit.
    pub title: &'static str,
    /// One for each round that gave a figure.
    pub values: Vec<f64>,
    /// What it is to be at most.
    pub most: f64,
}

/// A live guest at the speed of a model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelRow {
    /// Its short name.
    pub id: &'static str,
    /// The card's arguments.
    pub arguments: String,
    /// Mbit/s of datagrams by the formula.
    pub formula: f64,
    /// The same of the guest, by round.
    pub guest: Vec<f64>,
}

impl ModelRow {
    /// `None` without a figure.
    pub(super) fn new(model: &Modelled, guest: &[f64]) -> Option<Self> {
        (!guest.is_empty()).then(|| Self {
            id: model.id,
            arguments: model.title(),
            formula: model.mbit_s(),
            guest: guest.to_vec(),
        })
    }

    fn line(&self) -> String {
        format!(
            "datagrams of 1472 bytes with {}: {:.1} Mbit/s by the formula, a live guest {}\n",
            self.arguments,
            self.formula,
            shown(&self.guest)
        )
    }
}

impl BoundRow {
    /// `None` without a figure.
    pub(super) fn new(bound: &Bound, values: &[f64]) -> Option<Self> {
        (!values.is_empty()).then(|| Self {
            id: bound.id,
            title: bound.title,
            values: values.to_vec(),
            most: bound.most,
        })
    }

    fn line(&self) -> String {
        format!(
            "{}: {}, at most {} allowed\n",
            self.title,
            shown(&self.values),
            self.most
        )
    }
}

impl ComparisonRow {
    /// `None` without a figure on each side.
    #[must_use]
    pub fn new(comparison: &Comparison, ours: &[f64], theirs: &[f64]) -> Option<Self> {
        Some(Self {
            id: comparison.id,
            title: comparison.title,
            measured: comparison.ours.name(),
            against: comparison.theirs.name(),
            ours: ours.to_vec(),
            theirs: theirs.to_vec(),
            ratio: median(ours)? / median(theirs)?,
            floor: comparison.floor,
        })
    }

    fn is_met(&self) -> bool {
        self.ratio >= self.floor
    }

    fn cells(&self) -> [String; 7] {
        [
            self.title.to_owned(),
            self.measured.clone(),
            self.against.clone(),
            shown(&self.ours),
            shown(&self.theirs),
            digits(self.ratio, 3),
            digits(self.floor, 3),
        ]
    }
}

const HEAD: [&str; 7] = [
    "what",
    "measured",
    "against",
    "Mbit/s",
    "against, Mbit/s",
    "ratio",
    "at least",
];

impl NicReport {
    /// For a terminal. What falls short stands out.
    #[must_use]
    pub fn text(&self) -> String {
        let mut table = new_table(&HEAD, 3);
        for row in &self.rows {
            table.add_row(row.cells().map(|text| match row.is_met() {
                true => Cell::new(text),
                false => Cell::new(text).add_attribute(Attribute::Bold),
            }));
        }
        let mut text = format!(
            "{}\n\nFiles of {} MiB; median (lowest to highest; number of trials)\n{table}\n",
            self.host,
            self.bytes >> 20
        );
        for bound in &self.bounds {
            text.push_str(&bound.line());
        }
        for model in &self.models {
            text.push_str(&model.line());
        }
        text + &problems::text(&self.failures, &self.failed_trials)
    }

    /// For a page.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = format!(
            "{}\n\nMbit/s, files of {} MiB: median (lowest to highest; number of trials). Ratios are of medians.\n\n",
            self.host.provenance(),
            self.bytes >> 20
        );
        text.push_str(&line(&HEAD.map(str::to_owned)));
        text.push_str("|---|---|---|---|---|---|---|\n");
        for row in &self.rows {
            text.push_str(&line(&row.cells()));
        }
        for bound in &self.bounds {
            text.push_str(&format!("\n{}", bound.line()));
        }
        for model in &self.models {
            text.push_str(&format!("\n{}", model.line()));
        }
        text + &problems::section(&self.failures, &self.failed_trials)
    }

    /// Draws how many times as fast as what it is compared with each is.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn draw(&self, file: &Path) -> Result<()> {
        let lines: Vec<Line> = self
            .rows
            .iter()
            .map(|row| Line {
                name: format!("{}: {}", row.title, row.measured),
                value: row.ratio,
                figure: digits(row.ratio, 3),
                is_ours: row.is_met(),
            })
            .collect();
        let title = format!("The card, QEMU's tap = 1 ({})", self.host.accelerator());
        logarithmic(&lines, (0.1, 10.0), &title, file)
    }
}

/// What is to be measured.
pub(super) struct Chosen {
    pub comparisons: Vec<Comparison>,
    pub bounds: Vec<Bound>,
    pub models: Vec<Modelled>,
}

impl Chosen {
    /// All short names.
    pub(super) fn ids(&self) -> impl Iterator<Item = &'static str> {
        let comparisons = self.comparisons.iter().map(|one| one.id);
        let bounds = self.bounds.iter().map(|one| one.id);
        let models = self.models.iter().map(|one| one.id);
        comparisons.chain(bounds).chain(models)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids().next().is_none()
    }
}

/// What has a short name that contains one of these words, or all for none.
#[must_use]
pub(super) fn chosen(words: &[String]) -> Chosen {
    let wanted = |id: &str| words.is_empty() || words.iter().any(|word| id.contains(word));
    let comparisons = COMPARISONS.iter().filter(|one| wanted(one.id));
    let bounds = BOUNDS.iter().filter(|one| wanted(one.id));
    let models = MODELLED.iter().filter(|one| wanted(one.id));
    Chosen {
        comparisons: comparisons.copied().collect(),
        bounds: bounds.copied().collect(),
        models: models.copied().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::report as bench;

    fn report() -> NicReport {
        let row = |id: &str, ours: &[f64], theirs: &[f64]| {
            let comparison = COMPARISONS.iter().find(|one| one.id == id);
            ComparisonRow::new(comparison.unwrap(), ours, theirs).unwrap()
        };
        NicReport {
            host: bench().host,
            bytes: 64 << 20,
            rows: vec![
                row(
                    "tap-frames",
                    &[3000.0, 4000.0, 3500.0],
                    &[2500.0, 2600.0, 2400.0],
                ),
                row("tap-http", &[1000.0], &[2000.0]),
            ],
            bounds: vec![BoundRow::new(&BOUNDS[0], &[0.1, 0.4, 0.2]).unwrap()],
            models: vec![ModelRow::new(&MODELLED[0], &[950.0, 949.0, 953.0]).unwrap()],
            failures: vec![Failure {
                what: "ovmf-tftp".to_owned(),
                reason: "it never asked".to_owned(),
            }],
            failed_trials: vec![FailedTrial {
                round: 2,
                what: "tap-http: ours".to_owned(),
                reason: "the machine stopped\nthe end of its console".to_owned(),
            }],
        }
    }

    #[test]
    fn ratios_are_of_medians_and_beside_their_floors() {
        let report = report();
        let text = report.text();
        for part in [
            "3500 (3000 to 4000; 3)",
            "1.40",
            "1.15",
            "0.500",
            "an idle card, % of a processor: 0.20 (0.10 to 0.40; 3), at most 1 allowed",
            "with --line 1g: 957.1 Mbit/s by the formula, a live guest 950 (949 to 953; 3)",
            "no figure for ovmf-tftp: it never asked",
            "failed in round 2: tap-http: ours: the machine stopped",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let page = report.markdown();
        assert!(
            page.contains("| 1000 (1) | 2000 (1) | 0.500 | 1.10 |"),
            "{page}"
        );
        let end = "\n\n### Left out, and failed\n\n- no figure for ovmf-tftp: it never asked\n\
                   - failed in round 2: tap-http: ours: the machine stopped\n";
        assert!(page.ends_with(end), "{page}");
        let met: Vec<bool> = report.rows.iter().map(ComparisonRow::is_met).collect();
        assert_eq!(met, [true, false]);
    }

    #[test]
    fn a_side_without_figures_makes_no_row() {
        assert!(ComparisonRow::new(&COMPARISONS[0], &[], &[1.0]).is_none());
        assert!(ComparisonRow::new(&COMPARISONS[0], &[1.0], &[]).is_none());
    }

    #[test]
    fn words_choose() {
        let ids = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            chosen(&words).ids().collect::<Vec<_>>()
        };
        let all = COMPARISONS.len() + BOUNDS.len() + MODELLED.len();
        assert_eq!(ids(&[]).len(), all);
        assert_eq!(
            ids(&["tap-frames", "linux", "idle", "bus-line"]),
            [
                "tap-frames",
                "tap-frames-dpdk",
                "linux-http",
                "idle",
                "model-bus-line"
            ]
        );
        assert!(ids(&["nothing"]).is_empty());
    }

    #[test]
    fn picture_has_each_ratio() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("nic.svg");
        report().draw(&file).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        assert!(
            svg.contains("frames thrown away: driver") && svg.contains("0.500"),
            "{svg}"
        );
    }
}
