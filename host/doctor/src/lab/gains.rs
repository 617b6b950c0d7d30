//! `wireboot doctor faults`: what each fault costs a boot, beside what the findings say that it costs.
//!
//! ```text
//! round ─▶ boots without a fault, boots with each fault ─▶ seconds since power-on ──┐
//!       └▶ packets of these boots, examinations inside ──▶ seconds of the findings ─┴▶ table
//! ```

mod catalogue;
mod named;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::unistd::geteuid;
use wireboot_lab::boot::{AcceleratorChoice, firmware_program};
use wireboot_lab::host::Host;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::NetworkOptions;
use wireboot_lab::progress;
use wireboot_lab::qemu::Accelerator;
use wireboot_lab::results::ResultsArgs;
use wireboot_report::Report;

use super::site::Fault;
use super::{
    Examination, Hardware, STARTED, Trial, boot, examine_inside, fetch, name, network_with,
    planted, watch,
};
use crate::{NOT_MEASURED, examine};
use catalogue::{ComparedBoots, PLANTED, Planted};
use table::{Boots, Table};

/// Measure what a boot gains where the lab takes a fault away, beside what the findings foretell.
///
/// A virtual machine with stock firmware boots without a fault and with each, by turns. Gained are the seconds from power-on, to the last file or to the
/// start of the first; foretold is what the findings about the fault say with it, less what they say without it.
#[derive(Args, Clone, Debug)]
pub struct FaultsArgs {
    /// How often each boot is made
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Each boot once, and only the faults that packets show
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Only find out whether each fault, and each of eleven pairs, is named, and in which place
    #[arg(long, conflicts_with_all = ["rounds", "quick"])]
    named: bool,
    /// Only these faults
    #[arg(
        long,
        value_enum,
        value_name = "FAULT,...",
        value_delimiter = ',',
        conflicts_with = "quick"
    )]
    only: Vec<Fault>,
    /// What runs the guest's instructions
    #[arg(long, value_enum, default_value = "auto")]
    accel: AcceleratorChoice,
    #[command(flatten)]
    results: ResultsArgs,
}

/// For one boot or examination.
const LONGEST: Duration = Duration::from_secs(240);
/// What the console shows when GRUB has all files.
const LAST_FILE: &str = "the end of the boot";

/// Boots, and prints the table. Call it before the program has threads: see [`Lab::enter`].
///
/// # Errors
/// When a program of the firmware's side is missing, or the lab cannot be entered.
pub(crate) fn run(arguments: &FaultsArgs) -> Result<std::process::ExitCode> {
    if !geteuid().is_root() {
        bail!("run it as root: tcpdump, which captures, does not work in a user namespace");
    }
    let faults: Vec<&Planted> = PLANTED
        .iter()
        .filter(|one| arguments.only.is_empty() || arguments.only.contains(&one.fault))
        .filter(|one| !arguments.quick || !matches!(one.compared, ComparedBoots::Inside(_)))
        .collect();
    if !arguments.named
        && let Some(other) = arguments
            .only
            .iter()
            .find(|only| PLANTED.iter().all(|one| one.fault != **only))
    {
        bail!(
            "{} is not among the faults whose seconds can be gained: the boot ends, or nothing is slower",
            name(*other)
        );
    }
    // Outside the lab's namespaces there is a network to fetch from; inside, what was fetched lies in the cache.
    if !Lab::is_inside() {
        fetch(&[Fault::NoBlksize])?;
    }
    let program = |name| {
        firmware_program(None, name).with_context(|| format!("no {name}; `make build` makes it"))
    };
    let programs = Programs {
        wireboot: program("wireboot.efi")?,
        doctor: program("doctor.efi")?,
        planted: program(planted::PROGRAM)?,
    };
    let lab = Lab::enter()?;
    let busy = arguments.results.quiet()?;
    let accelerator = arguments.accel.choose(&lab)?;
    let mtu = NetworkOptions::default().mtu;
    let wireboot = Some(programs.wireboot.as_path());
    let testbed = FaultTestbed {
        lab: &lab,
        host: Host::new(wireboot, busy, accelerator, IpVersion::V4, mtu, Vec::new()),
        accelerator,
        programs,
        hardware: Hardware::default(),
    };
    if arguments.named {
        return Ok(match named::run(&testbed, arguments)? {
            true => std::process::ExitCode::SUCCESS,
            false => NOT_MEASURED.into(),
        });
    }
    let rounds = if arguments.quick { 1 } else { arguments.rounds };
    let table = testbed.measure(&faults, rounds, |table| table.save(arguments))?;
    println!("{}", table.text());
    Ok(match table.failures.is_empty() {
        true => std::process::ExitCode::SUCCESS,
        false => NOT_MEASURED.into(),
    })
}

/// What `make build` leaves.
struct Programs {
    wireboot: PathBuf,
    doctor: PathBuf,
    planted: PathBuf,
}

/// Where the boots with faults are made, and with what.
struct FaultTestbed<'a> {
    lab: &'a Lab,
    host: Host,
    accelerator: Accelerator,
    programs: Programs,
    hardware: Hardware,
}

/// What is wrong, and what is done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Setting {
    ip: IpVersion,
    faults: Vec<Fault>,
    kind: TrialKind,
}

/// How far a trial boots, and what is taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TrialKind {
    /// A boot to the last file, and its packets.
    Whole,
    /// A boot to the start of wireboot.efi, and its packets.
    First,
    /// A boot to the start of its first file.
    Start,
    /// A boot whose RAM disk is cut short, to its end, and its packets.
    Short,
    /// An examination by doctor.efi, with its words.
    Examination(&'static str),
}

/// What is known of the boots and examinations of a setting.
type Known = BTreeMap<Setting, Boots>;

impl FaultTestbed<'_> {
    /// Measures in rounds; `save` gets what is known after each.
    ///
    /// # Errors
    /// When `save` fails. What does not work stands in the table.
    fn measure(
        &self,
        faults: &[&Planted],
        rounds: u32,
        mut save: impl FnMut(&Table) -> Result<()>,
    ) -> Result<Table> {
        let steps = steps(faults);
        let bar = progress::bar(u64::from(rounds) * steps.len() as u64);
        let mut known = Known::new();
        let mut failures = Vec::new();
        for round in 1..=rounds {
            for setting in &steps {
                let what = setting.what();
                bar.set_message(what.clone());
                match self.measure_once(setting) {
                    Ok(boots) => {
                        bar.suspend(|| eprintln!("round {round}: {what}: {boots}"));
                        known.entry(setting.clone()).or_default().add(boots);
                    }
                    Err(error) => {
                        bar.suspend(|| eprintln!("round {round}: {what}: {error:#}"));
                        // Behind its first line is the end of the console.
                        let error = error.to_string();
                        let why = error.lines().next().unwrap_or_default();
                        failures.push(format!("round {round}: {what}: {why}"));
                    }
                }
                bar.inc(1);
            }
            save(&table(faults, &known, &failures, &self.host))?;
        }
        bar.finish_and_clear();
        Ok(table(faults, &known, &failures, &self.host))
    }

    fn trial<'t>(&'t self, setting: &'t Setting) -> Trial<'t> {
        Trial {
            accelerator: self.accelerator,
            ip: setting.ip,
            faults: &setting.faults,
            wireboot: (setting.kind == TrialKind::First)
                .then_some(self.programs.wireboot.as_path()),
            planted: Some(&self.programs.planted),
            hardware: &self.hardware,
            is_short: setting.kind == TrialKind::Short,
            longest: LONGEST,
        }
    }

    fn capture(&self) -> PathBuf {
        self.lab.scratch().join("faults.pcap")
    }

    /// What a boot or an examination finds.
    fn report(&self, setting: &Setting) -> Result<Report> {
        let trial = self.trial(setting);
        let TrialKind::Examination(words) = setting.kind else {
            return boot(self.lab, &trial, &self.capture());
        };
        let examination = Examination {
            program: &self.programs.doctor,
            words,
            http: false,
            counts_instructions: false,
            goes_on: false,
        };
        examine_inside(self.lab, &trial, examination, &self.capture(), |_| {})
    }

    /// Boots or examines once.
    fn measure_once(&self, setting: &Setting) -> Result<Boots> {
        if matches!(setting.kind, TrialKind::Examination(_)) {
            return Ok(Boots::default().with_report(&self.report(setting)?));
        }
        let (trial, capture) = (self.trial(setting), self.capture());
        let until = match setting.kind {
            TrialKind::Whole => LAST_FILE,
            _ => STARTED,
        };
        let watched = watch(self.lab, &trial, until, &capture)?;
        let ended_s = watched.ended_s;
        let ended_s = ended_s.with_context(|| format!("not over after {} s", LONGEST.as_secs()))?;
        let started_s = watched.started_s.context("nothing was started")?;
        let boots = Boots::timed(started_s, ended_s);
        Ok(match setting.kind {
            TrialKind::Start => boots,
            _ => boots.with_report(&examine(&capture, None)?),
        })
    }
}

/// The version of IP over which these faults are.
fn version(faults: &[Fault]) -> IpVersion {
    let mut versions = faults.iter().filter_map(|fault| fault.version());
    versions.next().unwrap_or_default()
}

impl Setting {
    /// The setting in words.
    fn what(&self) -> String {
        let mut network = network_with(&self.faults);
        if self.ip == IpVersion::V6 {
            network.push_str(" over IPv6");
        }
        match self.kind {
            TrialKind::Whole => format!("a boot on {network}"),
            TrialKind::First => format!("a boot of wireboot.efi on {network}"),
            TrialKind::Start => format!("a boot to its first file on {network}"),
            TrialKind::Short => format!("a short boot on {network}"),
            TrialKind::Examination(words) => format!("an examination ({words}) on {network}"),
        }
    }
}

impl Planted {
    /// Boots, and what tells their findings: with the fault or without it.
    fn settings(&self, with: bool) -> [Setting; 2] {
        let kinds = match self.compared {
            ComparedBoots::Whole => [TrialKind::Whole; 2],
            ComparedBoots::First => [TrialKind::First; 2],
            ComparedBoots::Inside(words) => [TrialKind::Start, TrialKind::Examination(words)],
        };
        let faults = with.then_some(self.fault);
        let faults: Vec<Fault> = faults
            .into_iter()
            .chain(self.beside.iter().copied())
            .collect();
        kinds.map(|kind| Setting {
            ip: version(&[self.fault]),
            faults: faults.clone(),
            kind,
        })
    }
}

/// What a round does: each once, first what several faults are compared with.
fn steps(faults: &[&Planted]) -> Vec<Setting> {
    let settings = |with| faults.iter().flat_map(move |one| one.settings(with));
    let mut steps: Vec<Setting> = Vec::new();
    for setting in settings(false).chain(settings(true)) {
        if !steps.contains(&setting) {
            steps.push(setting);
        }
    }
    steps
}

fn table(faults: &[&Planted], known: &Known, failures: &[String], host: &Host) -> Table {
    let of = |setting| known.get(&setting).cloned().unwrap_or_default();
    let rows = faults.iter().map(|one| {
        let [with, without] = [true, false].map(|with| one.settings(with).map(of));
        table::FaultRow::new(one, with, without)
    });
    Table {
        host: host.clone(),
        rows: rows.collect(),
        failures: failures.to_vec(),
    }
}

impl Table {
    /// Writes the files that were asked for.
    fn save(&self, arguments: &FaultsArgs) -> Result<()> {
        arguments.results.write(self, || self.markdown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_faults_are_compared_with_is_made_once_a_round() {
        let faults: Vec<&Planted> = PLANTED.iter().collect();
        let steps = steps(&faults);
        let mut once = steps.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), steps.len());
        let healthy = |ip, kind| {
            steps
                .iter()
                .filter(move |one| one.ip == ip && one.kind == kind && one.faults.is_empty())
        };
        for kind in [TrialKind::Whole, TrialKind::First, TrialKind::Start] {
            assert_eq!(healthy(IpVersion::V4, kind).count(), 1, "{kind:?}");
        }
        assert_eq!(healthy(IpVersion::V6, TrialKind::Start).count(), 1);
        for one in &faults {
            let all = [true, false].map(|with| one.settings(with));
            let mut all = all.iter().flatten();
            assert!(all.all(|setting| steps.contains(setting)), "{one:?}");
        }
    }

    #[test]
    fn a_driver_is_loaded_without_its_fault_too() {
        for one in PLANTED {
            let loaded = |with| {
                one.settings(with)
                    .map(|one| !planted::words(&one.faults).is_empty())
            };
            assert_eq!(loaded(true), loaded(false), "{one:?}");
            let faults = |with| one.settings(with).map(|one| one.faults.len());
            assert_eq!(faults(true), faults(false).map(|count| count + 1));
        }
    }
}
