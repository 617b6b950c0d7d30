//! `wireboot doctor` and `wireboot report`: where the seconds of a network boot go, and what to change.

#![forbid(unsafe_code)]

mod against;
mod anonymous;
mod boot;
mod chart;
mod costs;
mod csv;
mod escaped;
mod fleet;
mod html;
mod iperf3;
#[cfg(feature = "lab")]
pub mod lab;
mod ladder;
mod markdown;
mod memory;
mod modules;
mod output;
mod pcap;
mod servers;
mod show;
pub mod stick;
mod sweep;
#[cfg(test)]
mod testing;
mod text;
mod throughput;
mod trace;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use wireboot_report::Report;

pub use pcap::examine;
pub use show::ReportArgs;
pub use text::shown;

/// Find out where the seconds of a network boot go, and what to change.
///
/// Exits with 0 when nothing was found, with 1 when something was, with 2 when nothing could be measured, or a check brought nothing.
#[derive(Subcommand)]
#[allow(
    missing_docs,
    reason = "the help of a command is the text at its arguments"
)]
pub enum Doctor {
    Pcap(pcap::PcapArgs),
    Boot(boot::BootArgs),
    Stick(stick::StickArgs),
    #[cfg(feature = "lab")]
    Lab(lab::LabArgs),
    #[cfg(feature = "lab")]
    Faults(lab::gains::FaultsArgs),
    #[cfg(feature = "lab")]
    Accuracy(lab::accuracy::AccuracyArgs),
}

/// Exit status when nothing could be measured, or a check brought nothing.
pub const NOT_MEASURED: u8 = 2;

/// Runs a command of `wireboot doctor`. The status tells whether something was found.
///
/// # Errors
/// When nothing could be measured, and why.
pub fn run(command: Doctor) -> Result<ExitCode> {
    match command {
        Doctor::Pcap(arguments) => pcap::run(&arguments),
        Doctor::Boot(arguments) => boot::run(&arguments),
        Doctor::Stick(arguments) => stick::run(&arguments),
        #[cfg(feature = "lab")]
        Doctor::Lab(arguments) => lab::run(&arguments),
        #[cfg(feature = "lab")]
        Doctor::Faults(arguments) => lab::gains::run(&arguments),
        #[cfg(feature = "lab")]
        Doctor::Accuracy(arguments) => lab::accuracy::run(&arguments),
    }
}

/// Runs `wireboot report`.
///
/// # Errors
/// When the file is no report, or nothing can be written.
pub fn report(arguments: &ReportArgs) -> Result<ExitCode> {
    show::run(arguments)
}

/// 1 when something was found, [`NOT_MEASURED`] when a check brought nothing.
fn status<'a>(reports: impl Iterator<Item = &'a Report> + Clone) -> ExitCode {
    if reports.clone().any(|one| !one.findings.is_empty()) {
        ExitCode::FAILURE
    } else if reports.clone().any(Report::lacks_a_check) {
        NOT_MEASURED.into()
    } else {
        ExitCode::SUCCESS
    }
}
