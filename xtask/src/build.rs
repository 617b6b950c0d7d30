//! The programs, and the commands that run them.

use crate::{apt, shell, uefi};
use anyhow::{Context, Result, ensure};
use std::env;
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

/// The packages of the firmware programs, and the names of their programs.
pub(crate) const FIRMWARE: [(&str, &str); 5] = [
    ("wireboot", "wireboot.efi"),
    ("wireboot-efi-doctor", "doctor.efi"),
    ("wireboot-efi-recorder", "recorder.efi"),
    // Makes the calls of boot loaders that are not at hand: only for `tests/boots`.
    ("wireboot-callers", "wireboot-callers.efi"),
    // Plants faults in firmware: for `wireboot doctor lab --fault`.
    ("wireboot-planted", "wireboot-planted.efi"),
];

/// The most bytes that a program may have: firmware loads them slowly.
const SIZES: [(&str, u64); 3] = [
    ("wireboot.efi", 993_000),
    ("doctor.efi", 1536 * 1024),
    ("recorder.efi", 64 * 1024),
];

/// Programs with panics on demand, and their names: only for `tests/boots`.
const FAULTS: [(&str, &str, &str); 2] = [
    ("wireboot", "wireboot.efi", "wireboot-faults.efi"),
    ("wireboot-efi-doctor", "doctor.efi", "doctor-faults.efi"),
];
/// The features that plant them.
pub(crate) const FAULTS_FEATURES: &str = "--features=wireboot/faults,wireboot-efi-doctor/faults";

/// The files in `dist/`: the firmware programs and the host command.
const PROGRAMS: [&str; 8] = [
    "wireboot.efi",
    "doctor.efi",
    "recorder.efi",
    "wireboot-callers.efi",
    "wireboot-planted.efi",
    "wireboot-faults.efi",
    "doctor-faults.efi",
    "wireboot",
];

/// Builds all of `dist/`, and fails where one of the firmware's programs is larger than it may be. They are there all the same.
pub(crate) fn all() -> Result<()> {
    programs()?;
    SIZES.iter().try_for_each(|(program, most)| {
        let file = shell::root().join("dist").join(program);
        check_size(program, fs::metadata(&file)?.len(), *most)
    })
}

fn check_size(program: &str, bytes: u64, most: u64) -> Result<()> {
    ensure!(
        bytes <= most,
        "dist/{program} has {bytes} bytes, more than the {most} of SIZES in {}",
        file!()
    );
    Ok(())
}

/// Builds all of `dist/`, of whatever size. When that fails, no older ones are left to be taken for new.
pub(crate) fn programs() -> Result<()> {
    let dist = shell::root().join("dist");
    fs::create_dir_all(&dist)?;
    // Beside each other: at the end of a firmware program's build, one processor has nothing to do.
    let built = thread::scope(|scope| {
        let firmware = scope.spawn(|| firmware(&dist));
        let host = host(&dist);
        let firmware = firmware.join().unwrap_or_else(|panic| resume_unwind(panic));
        firmware.and(host)
    });
    if built.is_err() {
        for program in PROGRAMS {
            // Gone or never there is all the same.
            let _ = fs::remove_file(dist.join(program));
        }
    }
    built
}

/// Where the copy is made: another place for each program, `wireboot` and `wireboot.efi`, too, which come at the same time.
fn beside(program: &Path) -> PathBuf {
    let mut name = program.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn firmware(dist: &Path) -> Result<()> {
    let toolchain = uefi::Toolchain::find()?;
    let built = shell::target_directory()
        .join("uefi")
        .join(uefi::TARGET)
        .join(uefi::PROFILE);
    // First: cargo gives them the names of the programs for users.
    shell::run(
        toolchain
            .cargo("build")
            .args(FAULTS.map(|(package, ..)| format!("--package={package}")))
            .arg(FAULTS_FEATURES),
    )?;
    for (_, program, faulty) in FAULTS {
        install(&built.join(program), &dist.join(faulty))?;
    }
    shell::run(
        toolchain
            .cargo("build")
            .args(FIRMWARE.map(|(package, _)| format!("--package={package}"))),
    )?;
    FIRMWARE
        .iter()
        .try_for_each(|(_, program)| install(&built.join(program), &dist.join(program)))
}

/// With this in the environment the host's command is compiled as the tests are, not for release.
const AS_TESTED: &str = "WIREBOOT_AS_TESTED";

fn host(dist: &Path) -> Result<()> {
    let mut build = shell::cargo();
    let built = if env::var_os(AS_TESTED).is_some() {
        // Those of its tests that start it have it made. The packages and features are all tests', so that nothing is compiled twice.
        build.args(["test", "--workspace", "--all-features", "--no-run"]);
        build.args(["--test", "nic"]);
        "debug/wireboot"
    } else {
        build.args(["build", "--release", "--package", "wireboot-cli"]);
        // Results tell what they were measured with.
        build.env("WIREBOOT_COMMIT", commit());
        "release/wireboot"
    };
    shell::run(&mut build)?;
    let built = shell::target_directory().join(built);
    install(&built, &dist.join("wireboot"))
}

/// The commit of the checkout, with `+` where files other than results differ from it; empty outside a checkout.
pub(crate) fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = shell::command("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return String::new();
    };
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let is_changed = git(&[&status[..], &[".", ":!docs/results"]].concat())
        .is_none_or(|changes| !changes.is_empty());
    if is_changed { commit + "+" } else { commit }
}

/// Whether the last build made all programs.
pub(crate) fn all_built() -> bool {
    PROGRAMS
        .iter()
        .all(|program| shell::root().join("dist").join(program).exists())
}

/// Builds, then boots a virtual machine over the network.
pub(crate) fn boot(arguments: &[String]) -> Result<()> {
    apt::ensure(apt::BOOT)?;
    programs()?;
    lab("boot", arguments)
}

/// Builds, then measures wireboot beside other network boots, which needs root for tcpdump.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    apt::ensure(&[apt::BOOT, apt::BENCH].concat())?;
    programs()?;
    let wireboot = shell::root().join("dist/wireboot");
    shell::run(
        shell::as_root(wireboot)
            .args(["lab", "bench"])
            .args(arguments),
    )
}

/// Runs a command of `wireboot lab`.
pub(crate) fn lab(command: &str, arguments: &[String]) -> Result<()> {
    shell::run(
        shell::command(shell::root().join("dist/wireboot"))
            .args(["lab", command])
            .args(arguments),
    )
}

/// Copies in one go for everybody else: a program that runs keeps its old file.
fn install(from: &Path, to: &Path) -> Result<()> {
    let fresh = beside(to);
    fs::copy(from, &fresh)
        .and_then(|_| fs::rename(&fresh, to))
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    let size = fs::metadata(to)?.len();
    println!(
        "{} ({} KiB)",
        to.strip_prefix(shell::root()).unwrap_or(to).display(),
        size / 1024
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_programs_are_copied_by_one_place() {
        let places: BTreeSet<_> = PROGRAMS.iter().map(|one| beside(Path::new(one))).collect();
        assert_eq!(places.len(), PROGRAMS.len());
    }

    #[test]
    fn a_program_that_is_too_large_is_told_with_the_limits_place() {
        assert!(check_size("a.efi", 1000, 1000).is_ok());
        let error = check_size("a.efi", 1001, 1000).unwrap_err().to_string();
        for text in ["dist/a.efi", "1001 bytes", "the 1000 of SIZES", "build.rs"] {
            assert!(error.contains(text), "{error}");
        }
    }
}
