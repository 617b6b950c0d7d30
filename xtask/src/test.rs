//! Everything that must hold, step by step, and a table of it at the end.

use crate::not_run::NotRun;
use crate::{apt, build, deny, documents, fuzz, lint, miri, shell};
use anyhow::{Result, bail};
use std::fs;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// One thing that must hold.
struct TestStep {
    name: &'static str,
    run: fn() -> Result<()>,
}

/// In the order in which they run: quick answers first. Those of a group run beside each other, as none keeps two processors busy.
const STEPS: &[&[TestStep]] = &[
    &[TestStep {
        name: "tools and packages",
        run: prepare,
    }],
    &[TestStep {
        name: "format",
        run: lint::format,
    }],
    &[TestStep {
        name: "clippy, host",
        run: lint::clippy,
    }],
    &[TestStep {
        name: "clippy, firmware",
        run: lint::clippy_uefi,
    }],
    &[TestStep {
        name: "rustdoc",
        run: lint::rustdoc,
    }],
    &[TestStep {
        name: "publishing",
        run: lint::publishing,
    }],
    &[TestStep {
        name: "documents",
        run: documents::check,
    }],
    &[TestStep {
        name: "dependencies",
        run: deny::check,
    }],
    &[TestStep {
        name: "advisories",
        run: deny::advisories,
    }],
    &[TestStep {
        name: "unit and property tests",
        run: unit,
    }],
    &[
        TestStep {
            name: "loom",
            run: loom,
        },
        TestStep {
            name: "miri",
            run: miri::check,
        },
        TestStep {
            name: "network tests",
            run: network,
        },
    ],
    &[TestStep {
        name: "fuzz",
        run: fuzz::smoke,
    }],
    &[TestStep {
        name: "build",
        run: build::all,
    }],
    &[TestStep {
        name: "whole boots",
        run: boots,
    }],
];

/// Runs the steps whose name contains one of the words, or all. A failed step does not stop the others.
pub(crate) fn run(only: &[String]) -> Result<()> {
    let names: Vec<_> = STEPS.iter().copied().flatten().map(|s| s.name).collect();
    let is_no_step = |word: &&String| !names.iter().any(|name| name.contains(word.as_str()));
    if let Some(word) = only.iter().find(is_no_step) {
        bail!("no step is called {word}; there are {}", names.join("; "));
    }
    let wanted = |step: &&TestStep| {
        only.is_empty() || only.iter().any(|word| step.name.contains(word.as_str()))
    };
    // Of an earlier run.
    drop(fs::remove_file(made_again_file()));
    let mut table = Vec::new();
    for group in STEPS {
        let steps: Vec<&TestStep> = group.iter().filter(wanted).collect();
        if !steps.is_empty() {
            let names: Vec<_> = steps.iter().map(|step| step.name).collect();
            println!("\n== {}", names.join("; "));
            table.extend(beside_each_other(&steps));
        }
    }
    print!("\n{}{}", report(&table), made_again());
    if table
        .iter()
        .any(|(_, _, outcome)| matches!(outcome, StepOutcome::Failed(_)))
    {
        std::process::exit(1);
    }
    Ok(())
}

/// Their rows of the table.
fn beside_each_other(steps: &[&TestStep]) -> Vec<(&'static str, Duration, StepOutcome)> {
    thread::scope(|scope| {
        let running: Vec<_> = steps
            .iter()
            .map(|step| {
                scope.spawn(|| {
                    let start = Instant::now();
                    let result = (step.run)();
                    if let Err(error) = &result {
                        println!("{}: {error:#}", step.name);
                    }
                    (step.name, start.elapsed(), StepOutcome::of(&result))
                })
            })
            .collect();
        running
            .into_iter()
            .map(|step| step.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// How a step ended.
#[derive(Clone, PartialEq, Eq)]
enum StepOutcome {
    Passed,
    /// With the chain of errors that ended it.
    Failed(String),
    NotRun,
}

impl StepOutcome {
    fn of(result: &Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) if error.is::<NotRun>() => Self::NotRun,
            Err(error) => Self::Failed(format!("{error:#}")),
        }
    }
}

fn report(table: &[(&str, Duration, StepOutcome)]) -> String {
    let mut text = format!("{:<26} {:>8}  result\n", "step", "seconds");
    let (mut passed, mut failed, mut not_run) = (0, 0, 0);
    for (name, time, outcome) in table {
        let result = match outcome {
            StepOutcome::Passed => {
                passed += 1;
                "passed".to_owned()
            }
            // The table's lines are all that some see of a run.
            StepOutcome::Failed(why) => {
                failed += 1;
                format!("FAILED: {why}")
            }
            StepOutcome::NotRun => {
                not_run += 1;
                "not run".to_owned()
            }
        };
        text += &format!("{name:<26} {:>8.1}  {result}\n", time.as_secs_f64());
    }
    text + &format!("{passed} passed, {failed} failed, {not_run} not run\n")
}

fn prepare() -> Result<()> {
    lint::tools()?;
    apt::ensure(
        &[
            apt::BOOT,
            apt::SERVERS,
            apt::CLIENTS,
            apt::LOADERS,
            apt::ROMS,
            apt::EMBEDDING,
            apt::SIGNING,
        ]
        .concat(),
    )
}

/// Tests of a program that run at once: many wait, for a server's patience or for a packet that must not come.
const AT_ONCE: &str = "8";

/// The host's tests of these kinds, of all that it can test. All have the same packages and features, so that nothing is compiled twice.
pub(crate) fn tests(kinds: &[&str]) -> Command {
    let mut command = shell::cargo();
    command
        .args(["test", "--workspace", "--all-features", "--no-fail-fast"])
        .args(kinds)
        .env("RUST_TEST_THREADS", AT_ONCE);
    command
}

/// The tests inside the crates, those of the firmware among them, and the examples of the documentation. Some that fail do not stop the others.
fn unit() -> Result<()> {
    let inside = tests(&["--quiet", "--lib", "--bins", "--examples"]);
    let examples = tests(&["--quiet", "--doc"]);
    let results = [inside, examples].map(|mut command| shell::run(&mut command));
    results.into_iter().collect()
}

/// The tests beside the crates: most have servers and clients in networks, and wait much.
fn network() -> Result<()> {
    shell::run_beside(&mut tests(&[
        "--quiet",
        "--exclude=wireboot-boots",
        "--test",
        "*",
    ]))
}

/// Every interleaving of what processors share with each other or with a device, in a build of its own.
fn loom() -> Result<()> {
    let test = |arguments: &[&str]| {
        shell::run_beside(
            shell::cargo()
                .args(["test", "--quiet", "--release", "--lib"])
                .args(arguments)
                .env("RUSTFLAGS", "--cfg loom")
                .env("CARGO_TARGET_DIR", shell::target_directory().join("loom")),
        )
    };
    test(&[
        "--package",
        "wireboot-ring",
        "--package",
        "wireboot-threads",
    ])?;
    // Their other tests use queues outside of a model.
    test(&[
        "--package",
        "wireboot-nic",
        "--package",
        "wireboot-card",
        "loom",
    ])
}

/// Real systems, from power-on.
fn boots() -> Result<()> {
    if !build::all_built() {
        bail!("nothing to boot: the build failed");
    }
    shell::run(tests(&["--test", "boots"]).env("WIREBOOT_MADE_AGAIN", made_again_file()))
}

/// Where the boots that failed at first are written down.
fn made_again_file() -> PathBuf {
    shell::target_directory().join("boots-made-again")
}

/// A line with the boots that failed at first and then did not, to stand below the table: a fault that comes by chance looks like that.
fn made_again() -> String {
    match fs::read_to_string(made_again_file()) {
        Ok(names) => {
            let names: Vec<_> = names.lines().collect();
            let names = names.join(", ");
            format!("boots that failed, and succeeded when made again: {names}\n")
        }
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_not_there_is_an_error() {
        assert!(run(&["no such step".to_owned()]).is_err());
        // Beside one that is there, which is not run then.
        let words = ["documents", "no such step"].map(str::to_owned);
        assert!(run(&words).is_err());
    }

    #[test]
    fn of_steps_beside_each_other_each_has_its_own_outcome() {
        let step = |name, run| TestStep { name, run };
        let steps = [
            step("a", || shell::run_beside(&mut shell::command("false"))),
            step("b", || shell::run_beside(&mut shell::command("true"))),
            step("c", || Err(NotRun("no network").into())),
        ];
        let rows = beside_each_other(&steps.iter().collect::<Vec<_>>());
        let is = |n: usize, name, outcome| rows[n].0 == name && rows[n].2 == outcome;
        assert_eq!(rows[0].0, "a");
        assert!(matches!(&rows[0].2, StepOutcome::Failed(why) if why.contains("false")));
        assert!(is(1, "b", StepOutcome::Passed));
        assert!(is(2, "c", StepOutcome::NotRun));
    }

    #[test]
    fn what_did_not_run_is_not_said_to_have_passed() {
        let results = [
            ("a", Ok(())),
            ("b", Err(NotRun("no network").into())),
            ("c", Err(anyhow::anyhow!("wrong"))),
        ];
        let table: Vec<_> = results
            .iter()
            .map(|(name, result)| (*name, Duration::ZERO, StepOutcome::of(result)))
            .collect();
        let text = report(&table);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines,
            [
                vec!["a", "0.0", "passed"],
                vec!["b", "0.0", "not", "run"],
                vec!["c", "0.0", "FAILED:", "wrong"],
                "1 passed, 1 failed, 1 not run".split(' ').collect(),
            ]
        );
    }
}
