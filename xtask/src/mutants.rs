//! Whether tests notice: cargo-mutants changes the code, one thing at a time, and a test must fail.
//!
//! `.cargo/mutants.toml` says what is not changed, `xtask/survivors.txt` which changes no test notices, and why.

use crate::{shell, tool};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// About two minutes to build, on two processors.
const VERSION: &str = "27.1.0";

/// A crate whose tests must notice.
struct Crate {
    directory: &'static str,
    /// What `cargo test` runs of it.
    tests: &'static str,
    /// Of a hundred changes that compile, so many must be caught.
    floor: usize,
    /// Its tests start programs, which would go on when a test is ended in the middle.
    starts_programs: bool,
}

impl Crate {
    const fn new(directory: &'static str, tests: &'static str, floor: usize) -> Self {
        Self {
            directory,
            tests,
            floor,
            starts_programs: false,
        }
    }

    fn name(&self) -> &'static str {
        self.directory
            .rsplit_once('/')
            .map_or(self.directory, |(_, name)| name)
    }
}

const CRATES: &[Crate] = &[
    // The table and the attacks are integration tests.
    Crate::new("crates/tcp", "--tests", 85),
    Crate::new("crates/net", "--lib", 85),
    Crate::new("crates/ring", "--lib", 80),
    Crate::new("crates/threads", "--lib", 80),
    Crate::new("crates/wire", "--lib", 80),
    Crate::new("crates/fetch", "--lib", 80),
    Crate::new("crates/nic", "--lib", 80),
    Crate::new("crates/card", "--lib", 80),
    Crate::new("crates/protocols", "--lib", 80),
    Crate::new("crates/observe", "--lib", 80),
    Crate::new("crates/diagnosis", "--lib", 80),
    // Its clients from elsewhere are integration tests.
    Crate {
        starts_programs: true,
        ..Crate::new("host/server", "--tests", 80)
    },
];

/// Address space of a compiler or test, in KiB: a changed loop may ask for memory for ever.
const MEMORY_KIB: u32 = 12 << 20;

const SURVIVORS: &str = "xtask/survivors.txt";

/// The chore that [`until_failure`] is.
pub(crate) const UNTIL_FAILURE: &str = "until-failure";

/// Which changes to try: all, or a part, of which no floor is judged.
#[derive(clap::Args)]
pub(crate) struct Wanted {
    /// Only this crate (ring, wire, ...); may be repeated
    #[arg(long = "crate", value_name = "NAME")]
    crates: Vec<String>,
    /// Only one part of each crate's changes: 0/8, 1/8, ... 7/8
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Only changes to lines that this diff touches
    #[arg(long, value_name = "FILE")]
    in_diff: Option<PathBuf>,
}

/// What became of a crate's changes, each by cargo-mutants' name without its place in the file.
struct MutantsOutcome {
    /// A test failed, or did not end.
    caught: usize,
    missed: Vec<String>,
}

impl MutantsOutcome {
    fn viable(&self) -> usize {
        self.caught + self.missed.len()
    }

    fn reaches(&self, floor: usize) -> bool {
        self.caught * 100 >= self.viable() * floor
    }
}

/// Tries the changes, crate by crate, and fails when too many of a crate's survive.
pub(crate) fn run(wanted: &Wanted) -> Result<()> {
    for name in &wanted.crates {
        if CRATES.iter().all(|known| known.name() != name) {
            let names: Vec<_> = CRATES.iter().map(Crate::name).collect();
            bail!("no crate {name} in the list: {}", names.join(", "));
        }
    }
    let reasons = std::fs::read_to_string(shell::root().join(SURVIVORS))
        .with_context(|| SURVIVORS)
        .and_then(|text| survivors(&text))?;
    let program = tool::installed("cargo-mutants", VERSION)?;
    let is_wanted = |one: &&Crate| {
        wanted.crates.is_empty() || wanted.crates.iter().any(|name| name == one.name())
    };
    let mut outcomes = Vec::new();
    for one in CRATES.iter().filter(is_wanted) {
        println!("\n== {}", one.name());
        outcomes.push((one, mutate(&program, one, wanted)?));
    }
    let whole = wanted.shard.is_none() && wanted.in_diff.is_none();
    report(&outcomes, &reasons, whole)
}

fn mutate(program: &Path, one: &Crate, wanted: &Wanted) -> Result<MutantsOutcome> {
    let results = shell::target_directory().join("mutants").join(one.name());
    if results.exists() {
        std::fs::remove_dir_all(&results)?;
    }
    std::fs::create_dir_all(&results)?;
    let mut command = shell::command("sh");
    command
        .arg("-c")
        .arg(format!("ulimit -v {MEMORY_KIB} || exit 1; exec \"$@\""))
        .arg("sh")
        .arg(program)
        .args(["mutants", "--jobs", "1", "--colors", "never", "--package"])
        .arg(format!("wireboot-{}", one.name()))
        // For the build as well: what no test runs is not compiled.
        .arg(format!("--cargo-arg={}", one.tests))
        .arg("--output")
        .arg(&results);
    if !one.starts_programs {
        let runner = [std::env::current_exe()?, UNTIL_FAILURE.into()];
        let runner = format!("--cargo-arg=target.'cfg(all())'.runner={runner:?}");
        command.args(["--cargo-arg=--config", &runner]);
    }
    if let Some(shard) = &wanted.shard {
        // Each part has some of every file.
        command.args(["--shard", shard, "--sharding", "round-robin"]);
    }
    if let Some(diff) = &wanted.in_diff {
        command.arg("--in-diff").arg(diff);
    }
    command
        // What the crates use is built once. The crates themselves are built anew, as their copies are newer.
        .env("CARGO_TARGET_DIR", results.with_file_name("build"))
        // Property tests try the same values with each change.
        .env("PROPTEST_RNG_SEED", "1");
    // 2: some were missed. 3: with some, the tests did not end.
    shell::run_to(&mut command, &[0, 2, 3])?;
    let names = |file: &str| -> Vec<String> {
        let path = results.join("mutants.out").join(file);
        // There is none where there was nothing to change.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(without_place).collect()
    };
    Ok(MutantsOutcome {
        caught: names("caught.txt").len() + names("timeout.txt").len(),
        missed: names("missed.txt"),
    })
}

/// Runs a test program up to its first failure, and tells whether there was none. What its other tests say changes nothing then, and
/// they may take long: where nothing is received, each waits until its time is up.
pub(crate) fn until_failure(command: &[OsString]) -> Result<bool> {
    let (program, arguments) = command.split_first().context("no program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program:?}"))?;
    let output = child.stdout.take().context("no output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        println!("{}", String::from_utf8_lossy(&line));
        if line.starts_with(b"test ") && line.ends_with(b" ... FAILED") {
            child.kill()?;
        }
    }
    Ok(child.wait()?.success())
}

/// `FILE:LINE:COLUMN: CHANGE` as `FILE: CHANGE`, which stays the same when lines before it come and go.
fn without_place(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(change)) => format!("{file}:{change}"),
        _ => name.to_owned(),
    }
}

/// The list of survivors: a reason, and below it, indented, the changes that survive for it.
fn survivors(text: &str) -> Result<BTreeMap<String, String>> {
    let mut reason = "";
    let mut out = BTreeMap::new();
    for line in text.lines() {
        if line.starts_with(' ') {
            if reason.is_empty() {
                bail!("no reason stands above this line: {line}");
            }
            out.insert(line.trim().to_owned(), reason.to_owned());
        } else if !line.starts_with('#') {
            reason = line.trim();
        }
    }
    Ok(out)
}

fn report(
    outcomes: &[(&Crate, MutantsOutcome)],
    reasons: &BTreeMap<String, String>,
    whole: bool,
) -> Result<()> {
    let missed: BTreeSet<&String> = outcomes.iter().flat_map(|(_, o)| &o.missed).collect();
    let (known, new): (Vec<_>, Vec<_>) = missed
        .iter()
        .copied()
        .partition(|name| reasons.contains_key(*name));
    let of_these = |name: &&String| {
        outcomes
            .iter()
            .any(|(one, _)| name.starts_with(&format!("{}/", one.directory)))
    };
    let gone: Vec<_> = reasons
        .keys()
        .filter(of_these)
        .filter(|name| whole && !missed.contains(name))
        .collect();
    for (title, names) in [
        ("Not caught, for a reason in the list", known),
        ("Not caught, and not in the list", new),
        ("In the list, and caught now or gone", gone),
    ] {
        if !names.is_empty() {
            println!("\n{title} ({SURVIVORS}):");
            names.iter().for_each(|name| println!("  {name}"));
        }
    }

    println!(
        "\n{:<10} {:>7} {:>7} {:>7} {:>9} {:>6}",
        "crate", "viable", "caught", "missed", "per cent", "floor"
    );
    let mut below = Vec::new();
    for (one, outcome) in outcomes {
        let (viable, missed) = (outcome.viable(), outcome.missed.len());
        let share = outcome.caught as f64 * 100.0 / viable.max(1) as f64;
        let floor = if whole {
            one.floor.to_string()
        } else {
            "-".to_owned()
        };
        println!(
            "{:<10} {viable:>7} {:>7} {missed:>7} {share:>9.1} {floor:>6}",
            one.name(),
            outcome.caught
        );
        if whole && !outcome.reaches(one.floor) {
            below.push(one.name());
        }
    }
    if !below.is_empty() {
        bail!("too many changes survive in {}", below.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_known_by_its_file_and_what_it_does() {
        assert_eq!(
            without_place("crates/a/src/b.rs:12:3: replace <T as X>::f -> u8 with 0"),
            "crates/a/src/b.rs: replace <T as X>::f -> u8 with 0"
        );
    }

    #[test]
    fn a_test_program_ends_at_its_first_failure() {
        let run = |script: &str| until_failure(&["sh".into(), "-c".into(), script.into()]).unwrap();
        assert!(run("echo 'test a ... ok'; echo FAILED"));
        assert!(!run("echo 'test a ... ok'; exit 101"));
        assert!(!run("echo 'test a ... FAILED'; exec sleep 600"));
        assert!(until_failure(&[]).is_err());
    }

    #[test]
    fn each_survivor_has_a_reason() {
        let list = survivors("# Head\n\nSame thing.\n  a: x\n  b: y\n\nSlow.\n  c: z\n").unwrap();
        let pairs: Vec<_> = list.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("a: x", "Same thing."),
                ("b: y", "Same thing."),
                ("c: z", "Slow.")
            ]
        );
        assert!(survivors("# Head\n\n  a: x\n").is_err());
        assert!(survivors("Same.\n  a: x\n\n  b: y\n").is_err());
    }

    #[test]
    fn a_floor_is_reached_exactly() {
        let outcome = |caught, missed: usize| MutantsOutcome {
            caught,
            missed: vec![String::new(); missed],
        };
        assert!(outcome(80, 20).reaches(80));
        assert!(!outcome(79, 21).reaches(80));
        assert!(outcome(0, 0).reaches(80));
    }

    #[test]
    fn the_list_names_only_crates_that_are_tried() {
        let text = std::fs::read_to_string(shell::root().join(SURVIVORS)).unwrap();
        for name in survivors(&text).unwrap().keys() {
            let known = |one: &Crate| name.starts_with(&format!("{}/", one.directory));
            assert!(CRATES.iter().any(known), "{name}");
        }
        for one in CRATES {
            assert!(
                shell::root().join(one.directory).is_dir(),
                "{}",
                one.directory
            );
        }
    }
}
