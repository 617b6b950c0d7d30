//! What a soak showed, for people and for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::boot::{Facts, Failure};
use super::plan::{Engines, Fault, Plan};
use wireboot_lab::qemu::Accelerator;

/// All boots of a run, and what chose and ran them.
#[derive(Debug, Serialize)]
pub(super) struct SoakReport {
    /// From which all faults were chosen.
    pub seed: u64,
    /// How many processors the machine has.
    pub processors: u32,
    /// What ran the guests' instructions.
    pub accelerator: Accelerator,
    /// The boots, in the order of their numbers.
    pub boots: Vec<Boot>,
}

/// One boot of it.
#[derive(Debug, Serialize)]
pub(super) struct Boot {
    number: u32,
    fault: Fault,
    detail: String,
    /// Engines that the boot asked for.
    engines: u32,
    seconds: f64,
    #[serde(flatten)]
    result: SoakOutcome,
}

/// What a boot showed: that all held, or what did not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum SoakOutcome {
    Good(Facts),
    Failed(Failure),
}

impl Boot {
    /// From what came of it on a machine with so many processors.
    pub(super) fn new(
        number: u32,
        plan: &Plan,
        processors: u32,
        took: Duration,
        result: Result<Facts, Failure>,
    ) -> Self {
        Self {
            number,
            engines: plan.engines.number(processors),
            fault: plan.fault,
            detail: plan.detail(),
            seconds: took.as_secs_f64(),
            result: result.map_or_else(SoakOutcome::Failed, SoakOutcome::Good),
        }
    }

    /// Whether all held that must hold.
    pub(super) fn good(&self) -> bool {
        matches!(self.result, SoakOutcome::Good(_))
    }

    /// For the user, as soon as it is over; a failure with all that is known, and how to see it again.
    pub(super) fn line(&self, seed: u64) -> String {
        let Self {
            number,
            fault,
            detail,
            engines,
            seconds,
            ..
        } = self;
        let begin =
            format!("{number:>4} {fault:<22} {detail:<38} engines {engines} {seconds:>6.1} s");
        match &self.result {
            SoakOutcome::Good(facts) => format!(
                "{begin}  good: {}canary in {} of the card's {} pages, {} frames sent meanwhile",
                if facts.engines == *engines {
                    String::new()
                } else {
                    format!("{} engines only, ", facts.engines)
                },
                facts.receive_pages_with_canary,
                facts.receive_pages,
                facts.frames_after_handover
            ),
            SoakOutcome::Failed(failure) => format!(
                "{begin}  FAILED: {}\nThe console's end:\n{}The server's end:\n{}Again: wireboot lab soak --seed {seed} --only {number}",
                failure.reason, failure.console, failure.server
            ),
        }
    }
}

impl SoakReport {
    /// How many boots were not good.
    pub(super) fn failed(&self) -> usize {
        self.boots.iter().filter(|boot| !boot.good()).count()
    }

    /// A table by faults, and the failures once more.
    pub(super) fn text(&self) -> String {
        let mut faults: BTreeMap<Fault, Vec<&Boot>> = BTreeMap::new();
        for boot in &self.boots {
            faults.entry(boot.fault).or_default().push(boot);
        }
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY).set_header([
            "fault",
            "boots",
            "failed",
            "seconds, mean",
            "longest",
            "card's pages with canary",
        ]);
        for (fault, boots) in &faults {
            table.add_row(row(&fault.to_string(), boots));
        }
        for engines in 0..=Engines::MOST {
            let boots: Vec<_> = self
                .boots
                .iter()
                .filter(|boot| boot.engines == engines)
                .collect();
            if !boots.is_empty() {
                table.add_row(row(&format!("(engines: {engines})"), &boots));
            }
        }
        table.add_row(row("all", &self.boots.iter().collect::<Vec<_>>()));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = table.to_string();
        for boot in &self.boots {
            if let SoakOutcome::Failed(failure) = &boot.result {
                text += &format!(
                    "\nboot {} failed: {}: {}; again: wireboot lab soak --seed {} --only {}",
                    boot.number, boot.fault, failure.reason, self.seed, boot.number
                );
            }
        }
        text
    }
}

fn row(name: &str, boots: &[&Boot]) -> Vec<String> {
    let failed = boots.iter().filter(|boot| !boot.good()).count();
    let seconds = boots.iter().map(|boot| boot.seconds);
    let longest = seconds.clone().fold(0.0, f64::max);
    let mean = seconds.sum::<f64>() / boots.len().max(1) as f64;
    let (mut pages, mut held) = (0, 0);
    for boot in boots {
        if let SoakOutcome::Good(facts) = &boot.result {
            pages += facts.receive_pages;
            held += facts.receive_pages_with_canary;
        }
    }
    let share = held as f64 * 100.0 / pages.max(1) as f64;
    vec![
        name.to_owned(),
        boots.len().to_string(),
        failed.to_string(),
        format!("{mean:.1}"),
        format!("{longest:.1}"),
        format!("{share:.0} %"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_counted_and_tells_how_to_see_it_again() {
        let boot = |number, result| {
            Boot::new(
                number,
                &Plan::new(9, number),
                4,
                Duration::from_secs(1),
                result,
            )
        };
        let failure = Failure {
            reason: "it burns".to_owned(),
            console: "    | smoke\n".to_owned(),
            server: String::new(),
        };
        let report = SoakReport {
            seed: 9,
            processors: 4,
            accelerator: Accelerator::Tcg,
            boots: vec![boot(1, Ok(Facts::default())), boot(2, Err(failure))],
        };
        assert_eq!(report.failed(), 1);
        assert!(report.boots[1].line(9).contains("smoke"));
        for text in [report.text(), report.boots[1].line(9)] {
            assert!(text.contains("it burns"), "{text}");
            assert!(text.contains("--seed 9 --only 2"), "{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["boots"][1]["failed"]["reason"], "it burns");
        assert_eq!(json["boots"][0]["good"]["receive_pages"], 0);
    }
}
