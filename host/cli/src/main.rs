//! The `wireboot` command: a face on the server and the lab.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use wireboot_lab::{bench, boot, ladder, load, soak};
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
    #[command(subcommand)]
    Lab(Lab),
}

#[derive(Subcommand)]
enum Lab {
    Boot(boot::BootArgs),
    Bench(bench::BenchArgs),
    Ladder(ladder::LadderArgs),
    Load(load::LoadArgs),
    Soak(soak::SoakArgs),
}

fn main() -> ExitCode {
    env_logger::init();
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Lab(Lab::Boot(arguments)) => boot::run(arguments),
        Command::Lab(Lab::Bench(arguments)) => bench::run(arguments),
        Command::Lab(Lab::Ladder(arguments)) => ladder::run(arguments),
        Command::Lab(Lab::Load(arguments)) => load::run(arguments),
        Command::Lab(Lab::Soak(arguments)) => soak::run(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wireboot: {error:#}");
            ExitCode::FAILURE
        }
    }
}
