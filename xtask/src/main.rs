//! The project's own chores: build the programs, run every gate, boot, measure, fuzz.
//!
//! `make COMMAND` calls `cargo xtask COMMAND`. Each command installs what it needs first and says what it does.

#![forbid(unsafe_code)]

mod apt;
mod build;
mod deny;
mod documents;
mod fuzz;
mod lint;
mod miri;
mod mutants;
mod not_run;
mod results;
mod shell;
mod soak;
mod test;
mod tool;
mod uefi;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Builds, boots, tests and measures wireboot"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build dist/wireboot.efi, dist/doctor.efi, dist/recorder.efi and dist/wireboot
    Build,
    /// Build, then boot a virtual machine over the network (wireboot lab boot)
    #[command(disable_help_flag = true)]
    Boot {
        /// Arguments for `wireboot lab boot`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build, then measure wireboot beside other network boots (wireboot lab bench)
    #[command(disable_help_flag = true)]
    Bench {
        /// Arguments for `wireboot lab bench`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build, then start the server ten times beside each other one, and boot many times with a fault each (wireboot lab soak)
    #[command(disable_help_flag = true)]
    Soak {
        /// Arguments for `wireboot lab soak`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build, then measure most figures of the documents anew, into docs/results (hours, as root)
    Results {
        /// Only measurements whose names contain one of these words
        only: Vec<String>,
    },
    /// Build, then measure where the seconds of a network boot go, into docs/results/doctor-* (two hours)
    Doctor,
    /// Run every gate and test, whole boots included
    Test {
        /// Run only the steps whose name contains one of these words
        only: Vec<String>,
    },
    /// Fuzz the parsers and the driver, FUZZ_SECONDS (default 60) each
    Fuzz {
        /// Only these targets; all when none is named
        targets: Vec<String>,
    },
    /// Change the code, one thing at a time, and see whether a test fails (hours; not part of test)
    Mutants(mutants::Wanted),
    /// Run a test program up to its first failure
    #[command(hide = true, name = mutants::UNTIL_FAILURE, disable_help_flag = true)]
    UntilFailure {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Check formatting, clippy, documents, licences and advisories
    Lint,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Build => build::all(),
        Command::Boot { arguments } => build::boot(&arguments),
        Command::Bench { arguments } => build::bench(&arguments),
        Command::Soak { arguments } => soak::run(&arguments),
        Command::Results { only } => results::run(&only),
        Command::Doctor => results::run(&[String::from("doctor-")]),
        Command::Test { only } => test::run(&only),
        Command::Fuzz { targets } => fuzz::long(&targets),
        Command::Mutants(wanted) => mutants::run(&wanted),
        Command::UntilFailure { command } => match mutants::until_failure(&command) {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        Command::Lint => lint::all(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}
