//! `wireboot lab throughput`: what doctor.efi's iperf3 brings, beside what the card can do and what Linux does in the same machine.
//!
//! ```text
//! each round ─┬─ doctor.efi ladder: frames by the drivers, UDP, HTTP ─┐
//!             ├─ doctor.efi iperf3=..., once for each way            ├─> medians ─> ratios
//!             └─ Linux, iperf3 -R                                    ─┘
//! ```

mod report;
mod trial;

use anyhow::{Context, Result, bail};
use clap::Args;

use report::{Figures, ThroughputReport};
use trial::{TRIALS, ThroughputTestbed};
use wireboot_lab::boot::{AcceleratorChoice, firmware_program};
use wireboot_lab::guest::{self, Kernel};
use wireboot_lab::host::Host;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{Network, NetworkOptions};
use wireboot_lab::packages::Package;
use wireboot_lab::progress;
use wireboot_lab::results::ResultsArgs;

/// Measure what doctor.efi sends and receives by TCP and UDP (iperf3), beside what its driver can do and Linux in the same machine
///
/// Debian's iperf3 is the server. One machine boots after the other, round after round: doctor.efi with the ladder's rungs, with iperf3 each way,
/// and a Linux guest with iperf3. Medians are compared. Datagrams of the ladder's rungs count at the cable, those that iperf3 sends as the machine says.
#[derive(Clone, Debug, Args)]
pub struct ThroughputArgs {
    /// How often each is measured, by turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// How long each test of iperf3 takes, in seconds; the ladder's rungs take one
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// What runs the guests' instructions
    #[arg(long, value_enum, default_value = "auto")]
    pub accel: AcceleratorChoice,
    #[command(flatten)]
    results: ResultsArgs,
}

/// Measures, and tells. Call it before the program has threads: see [`Lab::enter`].
///
/// # Errors
/// When the lab does not work, or something gave no figure; the report is written all the same.
pub fn run(arguments: ThroughputArgs) -> Result<()> {
    // Outside the lab's namespaces there is a network to fetch from; inside, what was fetched lies in the cache.
    if !Lab::is_inside() {
        guest::fetch().context("fetching Debian's kernel")?;
    }
    let doctor = firmware_program(None, "doctor.efi").context("make build makes it")?;
    let lab = Lab::enter()?;
    let busy = arguments.results.quiet()?;
    let ip = IpVersion::V4;
    let network = Network::new(&lab, NetworkOptions::of(ip))?;
    let accelerator = arguments.accel.choose(&lab)?;
    let server = Package::installed("iperf3").context("the server of this measurement")?;
    let host = Host::new(
        Some(&doctor),
        busy,
        accelerator,
        ip,
        network.mtu(),
        vec![format!("iperf3 {}", server.version)],
    );
    let testbed = ThroughputTestbed {
        lab: &lab,
        network: &network,
        ip,
        accelerator,
        command: std::env::current_exe().context("finding this program's own file")?,
        doctor,
        kernel: Kernel::cached()?,
        seconds: arguments.seconds,
    };
    let _counterpart = testbed.serve()?;
    let mut figures = Figures::default();
    let bar = progress::bar(u64::from(arguments.rounds) * TRIALS.len() as u64);
    for round in 1..=arguments.rounds {
        for trial in TRIALS {
            bar.inc(1);
            match testbed.measure(trial) {
                Ok(found) => {
                    for (what, value) in found {
                        bar.suspend(|| eprintln!("round {round}: {what}: {value:.1}"));
                        figures.add(what, value);
                    }
                }
                Err(error) => {
                    bar.suspend(|| eprintln!("round {round}: {}: {error:#}", trial.name()));
                    figures.failed(round, trial.name(), &error);
                }
            }
        }
        save(&ThroughputReport::new(&host, &figures), &arguments)?;
    }
    bar.finish_and_clear();
    let report = ThroughputReport::new(&host, &figures);
    println!("{}", report.text());
    match report.missing() {
        0 => Ok(()),
        count => bail!("no figure for {count} of them; the reasons are above"),
    }
}

fn save(report: &ThroughputReport<'_>, arguments: &ThroughputArgs) -> Result<()> {
    arguments.results.write(report, || report.markdown())
}
