//! What failed, and how reports tell it.

use std::collections::BTreeMap;

use serde::Serialize;

/// Something that gave no figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// What it was about.
    pub what: String,
    /// Why there is no figure, as text for people.
    pub reason: String,
}

/// A trial that gave no figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedTrial {
    /// In which round, from 1.
    pub round: u32,
    /// The stack, and what it was to do.
    pub what: String,
    /// Why there is no figure, as text for people.
    pub reason: String,
}

/// What gave no figure, then every trial that failed, for a terminal: with all that a reason says, which may have the end of a console.
pub(crate) fn text<'a>(
    failures: &'a [Failure],
    trials: impl IntoIterator<Item = &'a FailedTrial>,
) -> String {
    told(failures, trials)
        .map(|problem| problem + "\n")
        .collect()
}

/// The same as the last section of a page, each with the first line of its reason.
pub(crate) fn section(failures: &[Failure], trials: &[FailedTrial]) -> String {
    let items: String = told(failures, trials)
        .map(|problem| format!("- {}\n", problem.lines().next().unwrap_or_default()))
        .collect();
    let items = if items.is_empty() {
        "Nothing.\n"
    } else {
        items.as_str()
    };
    format!("\n### Left out, and failed\n\n{items}")
}

fn told<'a>(
    failures: &'a [Failure],
    trials: impl IntoIterator<Item = &'a FailedTrial>,
) -> impl Iterator<Item = String> {
    let failures = failures
        .iter()
        .map(|failure| format!("no figure for {}: {}", failure.what, failure.reason));
    let trials = trials.into_iter().map(|trial| {
        let FailedTrial {
            round,
            what,
            reason,
        } = trial;
        format!("failed in round {round}: {what}: {reason}")
    });
    failures.chain(trials)
}

/// What failed and has no figure, with the last reason. `has_figure` knows trials by what they were about.
pub(crate) fn without_figure<'a>(
    trials: impl IntoIterator<Item = &'a FailedTrial>,
    has_figure: impl Fn(&str) -> bool,
) -> Vec<Failure> {
    // Of several reasons the last one stays.
    let failed: BTreeMap<&str, &str> = trials
        .into_iter()
        .map(|trial| (trial.what.as_str(), trial.reason.as_str()))
        .filter(|(what, _)| !has_figure(what))
        .collect();
    failed
        .into_iter()
        .map(|(what, reason)| Failure {
            what: what.to_owned(),
            reason: reason.to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(round: u32, what: &str, reason: &str) -> FailedTrial {
        FailedTrial {
            round,
            what: what.to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_page_has_the_first_line_of_a_reason() {
        let absent = [Failure {
            what: "grub".to_owned(),
            reason: "not installed".to_owned(),
        }];
        let trials = [failed(2, "shim", "no answer\nthe end of the console")];
        assert_eq!(
            text(&absent, &trials),
            "no figure for grub: not installed\nfailed in round 2: shim: no answer\nthe end of the console\n"
        );
        assert_eq!(
            section(&absent, &trials),
            "\n### Left out, and failed\n\n- no figure for grub: not installed\n- failed in round 2: shim: no answer\n"
        );
        assert!(section(&[], &[]).ends_with("\n\nNothing.\n"));
    }

    #[test]
    fn what_failed_once_and_has_a_figure_is_not_without() {
        let trials = [
            failed(1, "grub", "first"),
            failed(1, "shim", "once"),
            failed(2, "grub", "last"),
        ];
        let without = without_figure(&trials, |what| what == "shim");
        let [grub] = without.as_slice() else {
            panic!("{without:?}");
        };
        assert_eq!((grub.what.as_str(), grub.reason.as_str()), ("grub", "last"));
    }
}
