//! `wireboot lab nic`: our card beside QEMU's own way to a network, and DPDK's, by turns.
//!
//! ```text
//! round ─▶ comparison ─▶ side ─▶ trial: fresh card, fresh machine, one download or a second of frames
//!                                  │ bench's view from outside; from the server in the card, its own record
//!                                  ▼
//!                          report: medians, their ratio, what it is to be; table, JSON, plot
//! ```

mod bound;
mod comparison;
mod modelled;
mod report;
mod trial;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::unistd::geteuid;

use crate::bench::files::{self, MIB};
use crate::bench::problems::{FailedTrial, Failure};
use crate::bench::stacks;
use crate::bench::trial::BenchTestbed;
use crate::bench::twice;
use bound::Bound;
use comparison::Comparison;
use report::Chosen;
pub use report::{BoundRow, ComparisonRow, ModelRow, NicReport};
use trial::NicTestbed;
use wireboot_lab::accel;
use wireboot_lab::boot::firmware_program;
use wireboot_lab::guest;
use wireboot_lab::host::Host;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{Network, NetworkOptions};
use wireboot_lab::packages::Package;
use wireboot_lab::progress;
use wireboot_lab::results::ResultsArgs;

/// Measure `wireboot nic` beside QEMU's tap and DPDK's
///
/// Frames that a driver throws away, files that wireboot, iPXE, stock UEFI and Linux fetch: by our card and by QEMU's tap, by turns, round after
/// round, in machines with the same memory. Frames by DPDK's card, too, and files from the server in the card. Each ratio stands beside what it is to be at least. Then what is to be little: an
/// idle card's processor time, and doorbells. Last, frames by a card at the speed of a model, beside what the model says. Times are taken outside the guest, from the first request to the last acknowledgement; from the server in the card they are the server's own. Needs root.
#[derive(Clone, Debug, Args)]
pub struct NicArgs {
    /// One round with a small file, to see that all works
    #[arg(long)]
    pub quick: bool,
    /// Number of rounds [default: 9, quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Only those whose short name contains one of these words
    #[arg(long, value_name = "WORD,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Size of the file in MiB [default: 64, quick: 8]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub mib: Option<u64>,
    /// Draw the ratios into FILE as SVG
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub plot: Option<PathBuf>,
    #[command(flatten)]
    results: ResultsArgs,
    /// List the short names, and end
    #[arg(long)]
    pub list: bool,
}

/// Runs the measurement. Call it before the program has threads: see [`Lab::enter`].
///
/// # Errors
/// When the lab does not work, or a comparison gave no figure; the report is written all the same.
pub fn run(arguments: NicArgs) -> Result<()> {
    let chosen = report::chosen(&arguments.only);
    if arguments.list {
        for Comparison {
            id, title, floor, ..
        } in &chosen.comparisons
        {
            println!("{id:22} {title}: at least {floor}");
        }
        for Bound {
            id, title, most, ..
        } in &chosen.bounds
        {
            println!("{id:22} {title}: at most {most}");
        }
        for model in &chosen.models {
            println!("{:22} frames with {}", model.id, model.title());
        }
        return Ok(());
    }
    if chosen.is_empty() {
        bail!("nothing to measure: wireboot lab nic --list shows the short names");
    }
    if !geteuid().is_root() {
        bail!("run it as root: tcpdump, which times it, does not work in a user namespace");
    }
    // Outside the lab's namespaces there is a network to fetch from; inside, what was fetched lies in the cache.
    if !Lab::is_inside()
        && let Err(error) = guest::fetch()
    {
        eprintln!("the Linux guest is left out: {error:#}");
    }
    let beside = |name| firmware_program(None, name).context("make build makes it");
    let wireboot = beside("wireboot.efi")?;
    let doctor = beside("doctor.efi")?;
    let lab = Lab::enter()?;
    let busy = arguments.results.quiet()?;
    let ip = IpVersion::V4;
    let network = Network::new(&lab, NetworkOptions::of(ip))?;
    let accelerator = accel::best(&lab, false)?;
    let root = lab.scratch().join("files");
    fs::create_dir_all(&root).context("making a directory for the files")?;
    let mib = arguments
        .mib
        .unwrap_or(if arguments.quick { 8 } else { 64 });
    for mib in [1, mib] {
        files::write(&root, mib * MIB)?;
    }
    let servers = ["dnsmasq-base", "atftpd", "nginx", "dpdk-dev"]
        .map(|name| Package::installed(name).map(|package| format!("{name} {}", package.version)));
    let host = Host::new(
        Some(&wireboot),
        busy,
        accelerator,
        ip,
        network.mtu(),
        servers.into_iter().filter_map(Result::ok).collect(),
    );
    let testbed = NicTestbed {
        testbed: BenchTestbed {
            lab: &lab,
            network: &network,
            ip,
            accelerator,
            command: std::env::current_exe().context("finding this program's own file")?,
            root,
        },
        stacks: stacks::all(Some(wireboot), ip).0,
        doctor,
        bytes: mib * MIB,
    };
    let rounds = arguments
        .rounds
        .unwrap_or(if arguments.quick { 1 } else { 9 });
    let mut figures = Figures::default();
    let each = chosen.comparisons.len() * 2 + chosen.bounds.len() + chosen.models.len();
    let bar = progress::bar(u64::from(rounds) * each as u64);
    for round in 1..=rounds {
        for comparison in &chosen.comparisons {
            for (ours, side) in [(true, comparison.ours), (false, comparison.theirs)] {
                bar.inc(1);
                let what = format!("{}: {}", comparison.id, side.name());
                let (measured, failed) = twice(&bar, round, &what, || testbed.measure(side));
                figures.failed.extend(failed);
                if let Some(mbit_s) = measured {
                    bar.suspend(|| eprintln!("round {round}: {what}: {mbit_s:.0} Mbit/s"));
                    let key = (comparison.id, ours);
                    figures.sides.entry(key).or_default().push(mbit_s);
                }
            }
        }
        for bound in &chosen.bounds {
            bar.inc(1);
            let what = format!("{}: {}", bound.id, bound.title);
            let (value, failed) = twice(&bar, round, &what, || testbed.bounded(bound.what));
            figures.failed.extend(failed);
            figures.few.entry(bound.id).or_default().extend(value);
        }
        for model in &chosen.models {
            bar.inc(1);
            let what = format!("{}: {}", model.id, model.title());
            let (value, failed) = twice(&bar, round, &what, || testbed.modelled(model));
            figures.failed.extend(failed);
            figures.few.entry(model.id).or_default().extend(value);
        }
        figures.report(&host, &testbed, &chosen).save(&arguments)?;
    }
    bar.finish_and_clear();
    let report = figures.report(&host, &testbed, &chosen);
    println!("{}", report.text());
    match report.failures.len() {
        0 => Ok(()),
        count => bail!("no figure for {count} of them; the reasons are above"),
    }
}

/// What trials have found so far, by the short names of what was measured.
#[derive(Default)]
struct Figures {
    /// Of each comparison, ours and theirs.
    sides: BTreeMap<(&'static str, bool), Vec<f64>>,
    /// Of each bound and model.
    few: BTreeMap<&'static str, Vec<f64>>,
    failed: Vec<FailedTrial>,
}

impl Figures {
    fn report(&self, host: &Host, testbed: &NicTestbed<'_>, chosen: &Chosen) -> NicReport {
        let side = |id, ours| self.sides.get(&(id, ours)).map_or(&[][..], Vec::as_slice);
        let few = |id| self.few.get(id).map_or(&[][..], Vec::as_slice);
        let rows = chosen
            .comparisons
            .iter()
            .filter_map(|one| ComparisonRow::new(one, side(one.id, true), side(one.id, false)))
            .collect::<Vec<_>>();
        let bounds = chosen.bounds.iter();
        let bounds = bounds
            .filter_map(|one| BoundRow::new(one, few(one.id)))
            .collect::<Vec<_>>();
        let models = chosen.models.iter();
        let models = models
            .filter_map(|one| ModelRow::new(one, few(one.id)))
            .collect::<Vec<_>>();
        let have_rows: Vec<_> = rows
            .iter()
            .map(|row| row.id)
            .chain(bounds.iter().map(|row| row.id))
            .chain(models.iter().map(|row| row.id))
            .collect();
        let without = chosen.ids().filter(|id| !have_rows.contains(id));
        let failures = without.map(|id| {
            let last = self.failed.iter().rev().find(|trial| {
                let rest = trial.what.strip_prefix(id);
                rest.is_some_and(|rest| rest.starts_with(':'))
            });
            Failure {
                what: id.to_owned(),
                reason: last.map_or_else(|| "not tried".to_owned(), |trial| trial.reason.clone()),
            }
        });
        NicReport {
            host: host.clone(),
            bytes: testbed.bytes,
            failures: failures.collect(),
            rows,
            bounds,
            models,
            failed_trials: self.failed.clone(),
        }
    }
}

impl NicReport {
    /// Writes the files that were asked for.
    fn save(&self, arguments: &NicArgs) -> Result<()> {
        arguments.results.write(self, || self.markdown())?;
        if let Some(file) = &arguments.plot {
            self.draw(file)?;
        }
        Ok(())
    }
}
