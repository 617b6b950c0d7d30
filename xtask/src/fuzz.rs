//! libFuzzer over the targets in fuzz/, with the compiler at hand.
//!
//! The flags are those that cargo-fuzz passes. A stable compiler takes them with RUSTC_BOOTSTRAP, so that nothing needs to
//! be installed but a C++ compiler for libFuzzer itself.

use crate::{apt, shell};
use anyhow::{Context, Result, bail};
use std::fs;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

const HOST: &str = "x86_64-unknown-linux-gnu";

/// How many inputs a target tries in `make test`: as many on a busy machine as on an idle one. None takes longer than ten seconds on an
/// idle one.
fn smoke_runs(target: &str) -> u32 {
    match target {
        // Each input is the life of a driver, with all that its device says.
        "virtio" => 1_000,
        "e1000e" => 2_000,
        // Here, up to 60 KB in each frame.
        "card_headers" => 1_000,
        // Here, of a card and its guest.
        "card_chunks" | "card_placement" => 4_000,
        "card_rings" | "frames" => 10_000,
        // Here, of a loader.
        "loader_calls" => 10_000,
        _ => 20_000,
    }
}

/// How much of a failed target's report is shown.
const LINES_OF_FAILURE: usize = 12;

/// When a target has run long enough.
#[derive(Clone, Copy)]
enum Until {
    /// So many inputs were tried.
    Runs(u32),
    /// So many seconds have passed.
    Seconds(u32),
}

impl Until {
    /// libFuzzer's option for it.
    fn option(self) -> String {
        match self {
            Self::Runs(runs) => format!("-runs={runs}"),
            Self::Seconds(seconds) => format!("-max_total_time={seconds}"),
        }
    }
}

/// Fuzzes the named targets, or all, for FUZZ_SECONDS each, and keeps new inputs in the working corpus.
pub(crate) fn long(targets: &[String]) -> Result<()> {
    let seconds = match std::env::var("FUZZ_SECONDS") {
        Ok(seconds) => seconds
            .parse()
            .context("FUZZ_SECONDS is a number of seconds")?,
        Err(_) => 60,
    };
    let known = self::targets()?;
    if let Some(unknown) = targets.iter().find(|name| !known.contains(name)) {
        bail!("no fuzz target {unknown}; there are {}", known.join(", "));
    }
    let programs = build("release")?;
    for name in known
        .iter()
        .filter(|name| targets.is_empty() || targets.contains(name))
    {
        fuzz(&programs, name, Until::Seconds(seconds))?;
    }
    Ok(())
}

/// Fuzzes every target with a few inputs.
pub(crate) fn smoke() -> Result<()> {
    let programs = build("smoke")?;
    each(&targets()?, |name| {
        fuzz(&programs, name, Until::Runs(smoke_runs(name)))
    })
}

/// Runs all, even after one failed: one on each processor at a time.
fn each(names: &[String], fuzz: impl Fn(&str) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = fuzz(name) {
                println!("{error:#}");
                failed.push(name.as_str());
            }
        }
        failed
    };
    let processors = available_parallelism().map_or(1, NonZero::get);
    let mut failed = thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let mut failed = Vec::new();
        for worker in workers {
            match worker.join() {
                Ok(names) => failed.extend(names),
                Err(panic) => resume_unwind(panic),
            }
        }
        failed
    });
    failed.sort_unstable();
    if !failed.is_empty() {
        bail!("fuzz targets that failed: {}", failed.join(", "));
    }
    Ok(())
}

/// The targets: each is a file in fuzz/fuzz_targets/.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(shell::root().join("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(
                path.file_stem()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    Ok(names)
}

/// Builds all targets by a profile of fuzz/Cargo.toml; returns the directory of their programs.
fn build(profile: &str) -> Result<PathBuf> {
    if !shell::succeeds(shell::command("c++").arg("--version")) {
        apt::ensure(&["g++"])?;
    }
    let mut flags = vec![
        "-Cpasses=sancov-module",
        "-Cllvm-args=-sanitizer-coverage-level=4",
        "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
        "-Cllvm-args=-sanitizer-coverage-pc-table",
        "-Cllvm-args=-sanitizer-coverage-trace-compares",
        "--cfg=fuzzing",
        "-Cdebug-assertions",
        "-Coverflow-checks",
        "-Ccodegen-units=1",
    ];
    if has_address_sanitizer()? {
        flags.push("-Zsanitizer=address");
    } else {
        println!("This compiler comes without the address sanitizer; fuzzing without it");
    }
    let directory = shell::target_directory().join("fuzz");
    shell::run(
        shell::cargo()
            // With a target named, the flags spare build scripts and procedural macros.
            .args([
                "build",
                "--profile",
                profile,
                "--manifest-path",
                "fuzz/Cargo.toml",
                "--target",
                HOST,
            ])
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", flags.join(" "))
            .env("CARGO_TARGET_DIR", &directory),
    )?;
    Ok(directory.join(HOST).join(profile))
}

/// rustup's compilers have the sanitizer's runtime, Debian's has not.
fn has_address_sanitizer() -> Result<bool> {
    let sysroot = shell::output(shell::command("rustc").args(["--print", "sysroot"]))?;
    let libraries = Path::new(&sysroot)
        .join("lib/rustlib")
        .join(HOST)
        .join("lib");
    let entries =
        fs::read_dir(&libraries).with_context(|| format!("cannot read {}", libraries.display()))?;
    Ok(entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().ends_with("_rt.asan.a")))
}

/// Runs one target on a working corpus in the target directory, started from the kept one in fuzz/corpus/.
fn fuzz(programs: &Path, name: &str, until: Until) -> Result<()> {
    let directory = shell::target_directory().join("fuzz");
    let work = directory.join("work").join(name);
    let findings = directory.join("findings").join(name);
    let log = directory.join(format!("{name}.log"));
    fs::create_dir_all(&work)?;
    fs::create_dir_all(&findings)?;
    let program = programs.join(name);
    let kept = shell::root().join("fuzz/corpus").join(name);
    let result = shell::run(
        shell::command(&program)
            .arg(&work)
            .args(kept.is_dir().then_some(&kept))
            .arg(until.option())
            .arg(format!("-artifact_prefix={}/", findings.display()))
            .args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"])
            .stderr(fs::File::create(&log)?),
    );
    let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if let Err(error) = result {
        let failure = |line: &&str| line.contains("panicked at") || line.contains("ERROR: ");
        for line in output
            .lines()
            .skip_while(|line| !failure(line))
            .take(LINES_OF_FAILURE)
        {
            println!("{line}");
        }
        let input = output
            .lines()
            .find_map(|line| line.split_once("Test unit written to "));
        return Err(error.context(format!(
            "fuzz target {name} failed (all it said: {}); it does so again by: {} {}",
            log.display(),
            program.display(),
            input.map_or("its input", |(_, file)| file)
        )));
    }
    let runs = output
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    println!(
        "{name}: {} inputs tried, no failure",
        runs.unwrap_or("?").trim()
    );
    Ok(())
}
