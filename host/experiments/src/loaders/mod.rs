//! `wireboot lab loaders`: boot loaders over wireboot's network, and the same over stock firmware's, by turns.
//!
//! ```text
//! round ─▶ loader ─▶ network ─▶ trial: fresh servers, fresh machine, the loader reads its file once
//!                                 │ bench's view from outside: the client's packets, the console
//!                                 ▼
//!                         span: from the request until the loader has all ─▶ report: table, JSON, plot
//! ```

mod catalogue;
mod plot;
mod report;
mod span;
mod trial;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::unistd::geteuid;

pub use catalogue::{Loader, NearEnd, Network, Program, Unit, loaders, networks};
pub use report::{Figure, LoaderRow, LoadersReport};
pub use trial::Programs;

use crate::bench::files::MIB;
use crate::bench::problems::{FailedTrial, Failure};
use crate::bench::trial::BenchTestbed;
use crate::bench::{stacks, twice};
use trial::{IP, LoaderTestbed};
use wireboot_lab::accel;
use wireboot_lab::boot::firmware_program;
use wireboot_lab::host::Host;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{self, NetworkOptions};
use wireboot_lab::packages::Package;
use wireboot_lab::progress;
use wireboot_lab::results::ResultsArgs;

/// Measure boot loaders over wireboot's network beside the same loaders over stock UEFI
///
/// shim, GRUB, iPXE and the calls of others read the same files from the same servers: over stock OVMF, over the newest, and started by
/// wireboot.efi with the setting `network wireboot`, by turns, round after round. Times are taken outside the guest, from a loader's request
/// until it has all of the file. Newer firmware and iPXE, shim and GRUB are fetched from Debian's mirror into the user's cache; the system is
/// not changed. Needs root.
#[derive(Clone, Debug, Args)]
pub struct LoadersArgs {
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Only loaders whose short name contains one of these words
    #[arg(long, value_name = "WORD,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Size of the file that loaders read which have none of their own
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub mib: u64,
    /// In cold memory, too: given to the guest as it first writes to it
    #[arg(long)]
    pub cold: bool,
    /// Loaders with a network stack of their own over wireboot's network with the setting `near-end 0`, too
    #[arg(long)]
    pub without_near_end: bool,
    /// Draw how many times as fast as over stock firmware each is into FILE as SVG
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub plot: Option<PathBuf>,
    /// Network boot program to measure [default: the wireboot.efi beside this program]
    #[arg(long, value_name = "FILE")]
    pub nbp: Option<PathBuf>,
    #[command(flatten)]
    results: ResultsArgs,
    /// List the loaders' short names, and end
    #[arg(long)]
    pub list: bool,
}

/// Runs the measurement. Call it before the program has threads: see [`Lab::enter`].
///
/// # Errors
/// When the lab does not work, or a loader gave no figure; the report is written all the same.
pub fn run(arguments: LoadersArgs) -> Result<()> {
    if !arguments.list && !geteuid().is_root() {
        bail!("run it as root: tcpdump, which times it, does not work in a user namespace");
    }
    // Outside the lab's namespaces there is a network to fetch from; inside, what was fetched lies in the cache.
    if !Lab::is_inside() {
        for fetched in [stacks::fetch(), wireboot_lab::loaders::fetch()] {
            if let Err(error) = fetched {
                eprintln!("what the cache does not hold is left out: {error:#}");
            }
        }
    }
    let (mut all, mut absent) = loaders(Package::fetched);
    let wanted = |id: &str| {
        arguments.only.is_empty() || arguments.only.iter().any(|word| id.contains(word.as_str()))
    };
    all.retain(|loader| wanted(loader.id));
    absent.retain(|absent| wanted(&absent.what));
    if arguments.list {
        for loader in &all {
            println!("{:14} {}", loader.id, loader.name);
        }
        for Failure { what, reason } in &absent {
            println!("{what:14} left out: {reason}");
        }
        return Ok(());
    }
    if all.is_empty() {
        bail!("no loader to measure: wireboot lab loaders --list shows their names");
    }
    let (networks, absent_networks) = networks(arguments.without_near_end)?;
    absent.extend(absent_networks);
    let beside = |name| firmware_program(None, name);
    let programs = Programs {
        wireboot: firmware_program(arguments.nbp.as_deref(), "wireboot.efi")
            .context("no wireboot.efi: make build, or name it with --nbp")?,
        callers: beside("wireboot-callers.efi").context("make build makes it")?,
        doctor: beside("doctor.efi").context("make build makes it")?,
        command: std::env::current_exe().context("finding this program's own file")?,
    };
    let lab = Lab::enter()?;
    let busy = arguments.results.quiet()?;
    let plan = Plan {
        loaders: all,
        networks,
        absent,
        rounds: arguments.rounds,
        bytes: arguments.mib * MIB,
        cold: arguments.cold,
        busy,
    };
    let report = measure(&lab, &programs, plan, |report| report.save(&arguments))?;
    println!("{}", report.text());
    match report.failures.len() {
        0 => Ok(()),
        count => bail!("no figure for {count} of the loaders; the reasons are above"),
    }
}

/// What is to be measured.
pub struct Plan {
    /// The loaders, in the order of the report's rows.
    pub loaders: Vec<Loader>,
    /// What they run over.
    pub networks: Vec<Network>,
    /// What cannot take part.
    pub absent: Vec<Failure>,
    /// Boots of each kind.
    pub rounds: u32,
    /// The size of the file that loaders without one of their own read: whole MiB.
    pub bytes: u64,
    /// In cold memory, too.
    pub cold: bool,
    /// The part of the host's time that other work takes.
    pub busy: f64,
}

/// What the trials of each loader and network (by their places in the lists), with cold memory or warm, found.
type Figures = BTreeMap<(usize, bool, usize), Vec<f64>>;

/// Measures as planned; `save` gets what is known after each round.
///
/// # Errors
/// When the lab does not work, or `save` fails. What does not work with a loader stands in the report.
pub fn measure(
    lab: &Lab,
    programs: &Programs,
    plan: Plan,
    mut save: impl FnMut(&LoadersReport) -> Result<()>,
) -> Result<LoadersReport> {
    let accelerator = accel::best(lab, false)?;
    let root = lab.scratch().join("files");
    fs::create_dir_all(&root).context("making a directory for the files")?;
    let network = network::Network::new(lab, NetworkOptions::of(IP))?;
    let servers = ["dnsmasq-base", "atftpd", "nginx"]
        .map(|name| Package::installed(name).map(|package| format!("{name} {}", package.version)));
    let host = Host::new(
        Some(&programs.wireboot),
        plan.busy,
        accelerator,
        IP,
        network.mtu(),
        servers.into_iter().filter_map(Result::ok).collect(),
    );
    let testbed = LoaderTestbed {
        testbed: BenchTestbed {
            lab,
            network: &network,
            ip: IP,
            accelerator,
            command: programs.command.clone(),
            root,
        },
        programs,
        bytes: plan.bytes,
    };
    testbed.prepare()?;
    let trials: Vec<_> = trials(&plan).collect();
    let bar = progress::bar(u64::from(plan.rounds) * trials.len() as u64);
    let mut figures = Figures::new();
    let mut failed: Vec<FailedTrial> = Vec::new();
    for round in 1..=plan.rounds {
        for &(at, cold, over) in &trials {
            let (Some(loader), Some(network)) = (plan.loaders.get(at), plan.networks.get(over))
            else {
                continue;
            };
            bar.inc(1);
            let what = report::what(loader, network, cold);
            let (measured, failures) = twice(&bar, round, &what, || {
                testbed.measure(loader, network, cold)
            });
            failed.extend(failures);
            if let Some(figure) = measured {
                let unit = loader.unit.name();
                bar.suspend(|| eprintln!("round {round}: {what}: {figure:.1} {unit}"));
                figures.entry((at, cold, over)).or_default().push(figure);
            }
        }
        save(&LoadersReport::new(&host, &plan, &figures, &failed))?;
    }
    bar.finish_and_clear();
    Ok(LoadersReport::new(&host, &plan, &figures, &failed))
}

/// Who takes part in a round, by places in the lists: the networks by turns, so that what changes on the host in the meantime meets all alike.
fn trials(plan: &Plan) -> impl Iterator<Item = (usize, bool, usize)> {
    let memories: &[bool] = if plan.cold { &[false, true] } else { &[false] };
    plan.loaders
        .iter()
        .enumerate()
        .flat_map(move |(at, loader)| {
            let cold = memories.iter().filter(|&&cold| loader.takes_part(cold));
            cold.flat_map(move |&cold| {
                let networks = plan.networks.iter().enumerate();
                networks
                    .filter(|(_, network)| network.is_for(loader))
                    .map(move |(over, _)| (at, cold, over))
            })
        })
}

impl LoadersReport {
    /// Writes the files that were asked for.
    fn save(&self, arguments: &LoadersArgs) -> Result<()> {
        arguments.results.write(self, || self.markdown())?;
        if let Some(file) = &arguments.plot {
            plot::draw(self, file)?;
        }
        Ok(())
    }
}
