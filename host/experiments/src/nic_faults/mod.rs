//! `wireboot lab nic-faults`: what guests do about a card that does wrong.
//!
//! ```text
//! kind ─▶ guest ─▶ trial: fresh card with that fault, fresh machine, one boot
//!                    │ verdict: what the console shows, and the digests of what came
//!                    ▼
//!             report: rows are kinds, columns guests; table, JSON, Markdown
//! ```

mod guest;
mod report;
mod trial;
mod verdict;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::bench::twice;
use guest::Guest;
pub use report::{Cell, NicFaultsReport};
use trial::NicFaultTestbed;
pub use verdict::Verdict;
use wireboot_lab::accel;
use wireboot_lab::boot::firmware_program;
use wireboot_lab::guest as linux;
use wireboot_lab::host::{self, Host};
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::progress;

/// Boot guests over a card that does wrong, and tell what each does about it
///
/// For each of the faults that `wireboot nic serve --fault` has, one boot each: stock OVMF's PXE, iPXE over its own driver, GRUB over the firmware's
/// (EFI_SIMPLE_NETWORK_PROTOCOL), a Linux guest over its driver, and wireboot. The card is the boot server, too. All but OVMF's PXE start without the
/// network, so that the fault meets their own driver. Files are of a size that more units come than a card lets pass before it does wrong.
///
/// The verdict is one of: right (all came, by SHA-256), wrong bytes (they were taken for right), error (told, and the guest goes on), hangs
/// (twice, nothing more on the console for 90 s), crash. The table is printed at the end. wireboot is to be right or to tell an error.
#[derive(Clone, Debug, Args)]
pub struct NicFaultsArgs {
    /// Only these kinds of faults
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Of the places at which the card does wrong: the same seed, the same places
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write all verdicts, with the end of each console, to FILE as JSON
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub json: Option<PathBuf>,
    /// Write the table to FILE in Markdown
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub markdown: Option<PathBuf>,
    /// List the kinds, and end
    #[arg(long)]
    pub list: bool,
}

/// The kinds of faults, as `wireboot nic serve --fault` calls them.
const KINDS: [&str; 12] = [
    "used-index",
    "foreign-buffer",
    "repeated-buffer",
    "length",
    "buffer-count",
    "checksum",
    "lost",
    "late",
    "order",
    "silence",
    "flap",
    "death",
];

/// Boots that go on at a time, by name: most of one is waiting for what does not come.
const SIDE_BY_SIDE: [&str; 2] = ["first", "second"];

/// Runs the boots. Call it before the program has threads: see [`Lab::enter`].
///
/// # Errors
/// When the lab does not work, a boot gave no verdict, or wireboot has passed wrong bytes, hung or crashed; the report is written all the same.
pub fn run(arguments: NicFaultsArgs) -> Result<()> {
    let kinds = chosen(&arguments.only)?;
    if arguments.list {
        println!("{}", kinds.join("\n"));
        return Ok(());
    }
    // Outside the lab's namespaces there is a network to fetch from.
    if !Lab::is_inside() {
        linux::fetch().context("fetching the kernel of the Linux guest")?;
    }
    let wireboot = firmware_program(None, "wireboot.efi").context("make build makes it")?;
    let lab = Lab::enter()?;
    let accelerator = accel::best(&lab, false)?;
    let busy = host::other_work();
    let testbed = NicFaultTestbed::new(&lab, accelerator, &wireboot, arguments.seed)?;
    let host = Host::new(
        Some(&wireboot),
        busy,
        accelerator,
        IpVersion::V4,
        1500,
        testbed.versions(),
    );
    let report = boots(
        &testbed,
        NicFaultsReport::new(host, arguments.seed),
        &kinds,
        &arguments,
    )?;
    println!("{}", report.text());
    let unsafe_kinds = report.ours_fell_short();
    if !unsafe_kinds.is_empty() {
        bail!(
            "wireboot was neither right nor told an error: {}",
            unsafe_kinds.join(", ")
        );
    }
    match report.missing(&kinds) {
        0 => Ok(()),
        count => bail!("no verdict of {count} boots; the reasons are above"),
    }
}

/// Makes all boots, some side by side. The files that were asked for are written after each.
fn boots(
    testbed: &NicFaultTestbed<'_>,
    report: NicFaultsReport,
    kinds: &[&'static str],
    arguments: &NicFaultsArgs,
) -> Result<NicFaultsReport> {
    let each = |&kind: &&'static str| Guest::ALL.map(|guest| (kind, guest));
    let left: Vec<_> = kinds
        .iter()
        .rev()
        .flat_map(|kind| each(kind).into_iter().rev())
        .collect();
    let bar = progress::bar(left.len() as u64);
    let (left, report) = (Mutex::new(left), Mutex::new(report));
    // Lets go of the lock before the boot.
    let next = || locked(&left).pop();
    let work = |name: &str| {
        while let Some((kind, guest)) = next() {
            let what = format!("{kind}: {}", guest.name());
            let (cell, failed) = twice(&bar, 1, &what, || testbed.boot(kind, guest, name));
            if let Some(cell) = &cell {
                bar.suspend(|| eprintln!("{what}: {}", cell.verdict));
            }
            bar.inc(1);
            let mut report = locked(&report);
            cell.into_iter().for_each(|cell| report.add(cell));
            report.failed_trials.extend(failed);
            wireboot_output::json(arguments.json.as_deref(), &*report)?;
            wireboot_output::text(arguments.markdown.as_deref(), || report.markdown())?;
        }
        anyhow::Ok(())
    };
    thread::scope(|scope| {
        let workers = SIDE_BY_SIDE.map(|name| scope.spawn(|| work(name)));
        let ends = workers.map(|worker| worker.join());
        ends.into_iter().try_for_each(|end| match end {
            Ok(end) => end,
            Err(_) => bail!("a boot panicked"),
        })
    })?;
    bar.finish_and_clear();
    Ok(report.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Nobody leaves it half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those named, or all.
fn chosen(only: &[String]) -> Result<Vec<&'static str>> {
    if let Some(unknown) = only.iter().find(|name| !KINDS.contains(&name.as_str())) {
        bail!("{unknown:?} is no fault: {}", KINDS.join(", "));
    }
    let wanted = |kind: &&&str| only.is_empty() || only.iter().any(|name| name == **kind);
    Ok(KINDS.iter().filter(wanted).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_chosen_by_name() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            chosen(&names).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[]).unwrap(), KINDS);
        assert_eq!(of(&["death", "lost"]).unwrap(), ["lost", "death"]);
        let error = of(&["lost", "los"]).unwrap_err();
        assert!(
            error.contains("\"los\" is no fault: used-index, "),
            "{error}"
        );
    }
}
