//! The `wireboot` command: arguments of the server and the lab.

#![forbid(unsafe_code)]

#[cfg(feature = "lab")]
mod lab;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
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
    /// Virtual machines on a network of their own, to try and to measure
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(lab::Lab),
}

fn main() -> ExitCode {
    env_logger::init();
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(arguments),
        #[cfg(feature = "lab")]
        Command::Lab(command) => lab::run(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wireboot: {error:#}");
            ExitCode::FAILURE
        }
    }
}
