//! The `wireboot` command: arguments of the server, the card and the lab.

#![forbid(unsafe_code)]

#[cfg(feature = "lab")]
mod lab;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
#[cfg(feature = "nic")]
use wireboot_host_card::cli as nic;
use wireboot_server::cli as serve;

/// Boot machines over the network, fast.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    #[cfg(feature = "nic")]
    #[command(subcommand)]
    Nic(nic::Nic),
    #[cfg(feature = "doctor")]
    #[command(subcommand)]
    Doctor(wireboot_doctor::Doctor),
    #[cfg(feature = "doctor")]
    Report(wireboot_doctor::ReportArgs),
    /// Virtual machines on a network of their own, to try and to measure
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(lab::Lab),
}

fn main() -> ExitCode {
    env_logger::init();
    let (result, failed) = match Arguments::parse().command {
        Command::Serve(arguments) => (done(serve::run(arguments)), ExitCode::FAILURE),
        #[cfg(feature = "nic")]
        Command::Nic(command) => (done(nic::run(command)), ExitCode::FAILURE),
        #[cfg(feature = "doctor")]
        Command::Doctor(command) => (
            wireboot_doctor::run(command),
            wireboot_doctor::NOT_MEASURED.into(),
        ),
        #[cfg(feature = "doctor")]
        Command::Report(arguments) => (
            wireboot_doctor::report(&arguments),
            wireboot_doctor::NOT_MEASURED.into(),
        ),
        #[cfg(feature = "lab")]
        Command::Lab(command) => (done(lab::run(command)), ExitCode::FAILURE),
    };
    result.unwrap_or_else(|error| {
        eprintln!("wireboot: {error:#}");
        failed
    })
}

fn done(result: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}
