//! The commands of `wireboot lab`: the boot is of `wireboot_lab`, the measurements are of `wireboot_experiments`.

use clap::Subcommand;
use wireboot_experiments::{
    bench, checkpoints, ladder, load, loaders, nic, nic_faults, soak, throughput, ttcp,
};
use wireboot_lab::boot;

/// The commands of `wireboot lab`.
#[derive(Subcommand)]
pub(crate) enum Lab {
    Boot(boot::BootArgs),
    Bench(bench::BenchArgs),
    Checkpoints(checkpoints::CheckpointsArgs),
    Ladder(ladder::LadderArgs),
    Load(load::LoadArgs),
    Loaders(loaders::LoadersArgs),
    Nic(nic::NicArgs),
    NicFaults(nic_faults::NicFaultsArgs),
    Soak(soak::SoakArgs),
    Throughput(throughput::ThroughputArgs),
    Ttcp(ttcp::TtcpArgs),
}

/// Runs the command to its end.
///
/// # Errors
/// When it cannot be done, and why.
pub(crate) fn run(command: Lab) -> anyhow::Result<()> {
    match command {
        Lab::Boot(arguments) => boot::run(arguments),
        Lab::Bench(arguments) => bench::run(arguments),
        Lab::Checkpoints(arguments) => checkpoints::run(arguments),
        Lab::Ladder(arguments) => ladder::run(arguments),
        Lab::Load(arguments) => load::run(arguments),
        Lab::Loaders(arguments) => loaders::run(arguments),
        Lab::Nic(arguments) => nic::run(arguments),
        Lab::NicFaults(arguments) => nic_faults::run(arguments),
        Lab::Soak(arguments) => soak::run(arguments),
        Lab::Throughput(arguments) => throughput::run(arguments),
        Lab::Ttcp(arguments) => ttcp::run(arguments),
    }
}
