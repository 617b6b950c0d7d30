//! What is to be said of a report beside its findings.

use alloc::format;
use alloc::string::String;

use crate::sweep::Cell;
use crate::{NotMeasured, Report};

impl Report {
    /// What is not known and why, and whether the machine was left as it was found. A sentence each, of a stranger's words.
    pub fn remarks(&self) -> impl Iterator<Item = String> {
        let untold = self.checkpoints.iter().flat_map(|points| &points.missing);
        let untold = untold.map(|missing| format!("not told: {missing}"));
        let unmeasured = self.not_measured.iter();
        let unmeasured =
            unmeasured.map(|one| format!("not measured: {}: {}", one.check, one.reason));
        let changed = (self.as_found == Some(false))
            .then(|| String::from("The machine is not as it was found: reset it before it boots."));
        untold.chain(unmeasured).chain(changed)
    }

    /// Whether a check that was asked for brought nothing at all.
    #[must_use]
    pub fn lacks_a_check(&self) -> bool {
        let brought = |one: &NotMeasured| match one.check.as_str() {
            "net" => self.surroundings.is_some(),
            "servers" => !self.servers.is_empty(),
            "boot" => !self.dry_boots.is_empty(),
            "cost" => !self.costs.is_empty(),
            "dma" => self.memory.is_some(),
            "frames" => self
                .ladder
                .as_ref()
                .is_some_and(|ladder| !ladder.rungs.is_empty()),
            "trace" => self.trace.is_some(),
            "profile" => self.profile.is_some(),
            "sweep" => self.sweep.iter().any(Cell::came),
            check => self.throughput.iter().any(|one| one.check == check),
        };
        // Each of its transfers says itself why it failed.
        let swept_in_vain = !self.sweep.is_empty() && !self.sweep.iter().any(Cell::came);
        swept_in_vain || !self.not_measured.iter().all(brought)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::Ladder;
    use crate::words::CHECKS;
    use crate::{Checkpoints, Throughput};
    use alloc::vec;
    use alloc::vec::Vec;

    fn without(check: &str) -> Report {
        let mut report = Report::new();
        report.not_measured.push(NotMeasured {
            check: check.into(),
            reason: "no card".into(),
        });
        report
    }

    #[test]
    fn what_is_not_known_is_said() {
        let mut report = without("frames");
        report.checkpoints = Some(Checkpoints {
            missing: vec!["no FPDT".into()],
            ..Checkpoints::default()
        });
        report.as_found = Some(false);
        let said: Vec<_> = report.remarks().collect();
        let changed = "The machine is not as it was found: reset it before it boots.";
        assert_eq!(
            said,
            [
                "not told: no FPDT",
                "not measured: frames: no card",
                changed
            ]
        );
        for found in [None, Some(true)] {
            let mut report = Report::new();
            report.as_found = found;
            assert_eq!(report.remarks().count(), 0);
        }
    }

    #[test]
    fn a_check_that_brought_a_part_is_not_lacking() {
        assert!(!Report::new().lacks_a_check());
        for check in CHECKS {
            assert!(without(check).lacks_a_check(), "{check}");
        }
        let mut report = Report::new();
        report.surroundings = Some(Default::default());
        report.servers = vec![Default::default()];
        report.dry_boots = vec![Default::default()];
        report.costs = vec![Default::default()];
        report.memory = Some(Default::default());
        report.ladder = Some(Ladder {
            rungs: vec![Default::default()],
            ..Ladder::default()
        });
        report.trace = Some(Default::default());
        report.profile = Some(Default::default());
        let failed = Cell {
            failure: Some("no such file".into()),
            ..Cell::default()
        };
        report.sweep = vec![failed];
        assert!(report.lacks_a_check());
        report.sweep.push(Cell {
            bytes: 1,
            seconds: 1.0,
            ..Cell::default()
        });
        report.throughput = ["iperf3", "ttcp"].map(test).into();
        for check in CHECKS.into_iter().filter(|check| *check != "check") {
            report.not_measured = without(check).not_measured;
            assert!(!report.lacks_a_check(), "{check}");
            // Each by its own part alone.
            let mut others = report.clone();
            match check {
                "net" => others.surroundings = None,
                "servers" => others.servers.clear(),
                "boot" => others.dry_boots.clear(),
                "cost" => others.costs.clear(),
                "dma" => others.memory = None,
                // Begun, and nothing was measured.
                "frames" => others.ladder = Some(Ladder::default()),
                "trace" => others.trace = None,
                "profile" => others.profile = None,
                "sweep" => others.sweep.clear(),
                check => others.throughput.retain(|test| test.check != check),
            }
            assert!(others.lacks_a_check(), "{check}");
        }
    }

    fn test(check: &str) -> Throughput {
        Throughput {
            check: check.into(),
            ..Throughput::default()
        }
    }
}
