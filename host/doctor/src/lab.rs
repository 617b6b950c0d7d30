//! `wireboot doctor lab`: a virtual machine boots on a network with chosen faults, and is examined.

pub(crate) mod accuracy;
pub(crate) mod gains;
mod hardware;
mod inside;
mod names;
mod outside;
mod planted;
mod site;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use nix::unistd::geteuid;
use regex::Regex;
use wireboot_lab::boot::{AcceleratorChoice, firmware_program};
use wireboot_lab::capture::Capture;
use wireboot_lab::console::ConsoleMatch;
use wireboot_lab::host::{self, Host};
use wireboot_lab::ip::IpVersion;
use wireboot_lab::loaders;
use wireboot_lab::netns::Lab;
use wireboot_lab::qemu::{Accelerator, Machine};
use wireboot_lab::tftpd_hpa;
use wireboot_report::Report;

pub use hardware::Hardware;
pub use inside::{Examination, examine as examine_inside, examine_sampled, examine_until_esc};
pub use site::{Fault, IPERF3};

use crate::output::OutputArgs;
use crate::{examine, status};
use site::Site;

/// Boot a virtual machine on a network with faults of your choice, and examine it: by its packets, or from inside.
///
/// By its packets: stock firmware (Debian's OVMF) gets shim and GRUB by PXE, and GRUB gets the kernel and RAM disk of Debian's installer, from
/// dnsmasq and atftpd, on a network of their own. Without a fault it shows what such a boot takes at best.
///
/// From inside: with words behind `lab`, the machine boots doctor.efi from a disk with these words as its options.
#[derive(Args, Clone, Debug)]
pub struct LabArgs {
    /// Examine from inside: `standard`, `quick`, `all` or checks of doctor.efi, and their options, KEY=VALUE
    #[arg(value_name = "CHECK|KEY=VALUE", value_parser = words::known)]
    words: Vec<String>,
    /// What is wrong with the network or the machine; may be given several times
    #[arg(long, value_enum, value_name = "FAULT")]
    fault: Vec<Fault>,
    /// Put wireboot.efi in front of shim: the one beside this program, or FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with = "words")]
    wireboot: Option<Option<PathBuf>>,
    /// The program that examines from inside [default: the doctor.efi beside this program]
    #[arg(long, value_name = "FILE", requires = "words")]
    program: Option<PathBuf>,
    /// Count the machine's instructions instead of time, which are the same on every host: by emulation
    #[arg(long, requires = "words", conflicts_with = "accel")]
    count: bool,
    /// Show the machine's serial console
    #[arg(long, requires = "words")]
    console: bool,
    /// The firmware boots by HTTP, from nginx, not by PXE, for the check `boot`; with --ip 6 it tries IPv4 before, for 60 s
    #[arg(long, requires = "words")]
    http: bool,
    /// Boot over this version of IP: the network has no other
    #[arg(long, value_enum, value_name = "VERSION", default_value = "4")]
    ip: IpVersion,
    #[command(flatten)]
    hardware: Hardware,
    /// What runs the guest's instructions
    #[arg(long, value_enum, default_value = "auto")]
    accel: AcceleratorChoice,
    /// Examine what there was until then, where the boot takes longer; with loss or delay it does
    #[arg(long, value_name = "SECONDS", default_value_t = 240)]
    timeout: u64,
    /// Keep the capture, for Wireshark and for `wireboot doctor pcap`
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    capture: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Bytes of each packet that are captured: DHCP messages whole.
const CAPTURED: u32 = 1024;
/// What the console shows when the firmware starts what it has loaded.
const STARTED: &str = r"BdsDxe: starting Boot\S+ .*(?:PXE|HTTP)v[46]";
/// What the console shows at the end: that file, or that the firmware gave up.
const ENDED: &str = r"the end of the boot|BdsDxe: failed to (?:load|start) Boot\S+ .*PXEv[46]";

/// Boots and examines. Call it before the program has threads: see [`Lab::enter`].
///
/// # Errors
/// When a part of the lab does not start, or the machine sends nothing.
pub(crate) fn run(arguments: &LabArgs) -> Result<ExitCode> {
    if !geteuid().is_root() {
        bail!("run it as root: tcpdump, which captures, does not work in a user namespace");
    }
    // Outside the lab's namespaces there is a network to fetch from; inside, what was fetched lies in the cache.
    if !Lab::is_inside() {
        fetch(&arguments.fault)?;
    }
    can_be(arguments.ip, arguments.http, &arguments.fault)?;
    let wireboot = arguments.wireboot.as_ref();
    let wireboot = wireboot.map(|named| firmware_program(named.as_deref(), "wireboot.efi"));
    let wireboot = wireboot.transpose().context(
        "no wireboot.efi; `make build` leaves one in dist, --wireboot=FILE names another",
    )?;
    let doctor = (!arguments.words.is_empty())
        .then(|| firmware_program(arguments.program.as_deref(), "doctor.efi"))
        .transpose()
        .context("no doctor.efi; `make build` leaves one in dist, --program names another")?;
    let planted = (!planted::words(&arguments.fault).is_empty())
        .then(|| firmware_program(None, planted::PROGRAM))
        .transpose()
        .context("no driver that plants faults; `make build` leaves one in dist")?;
    let lab = Lab::enter()?;
    let capture = arguments
        .capture
        .clone()
        .unwrap_or_else(|| lab.scratch().join("doctor.pcap"));
    let trial = Trial {
        accelerator: if arguments.count {
            Accelerator::Tcg
        } else {
            arguments.accel.choose(&lab)?
        },
        ip: arguments.ip,
        faults: &arguments.fault,
        wireboot: wireboot.as_deref(),
        planted: planted.as_deref(),
        hardware: &arguments.hardware,
        is_short: false,
        longest: Duration::from_secs(arguments.timeout),
    };
    let host = Host::new(
        doctor.as_deref().or(trial.wireboot),
        host::other_work(),
        trial.accelerator,
        trial.ip,
        site::mtu(trial.hardware, trial.faults),
        Vec::new(),
    );
    let progress = ProgressBar::new_spinner();
    progress.enable_steady_tick(Duration::from_millis(200));
    progress.set_message(format!(
        "a machine boots on {}, run by {}; at most {} s",
        network_with(trial.faults),
        trial.accelerator,
        arguments.timeout
    ));
    let report = match &doctor {
        None => boot(&lab, &trial, &capture),
        Some(program) => {
            let examination = Examination {
                program,
                words: &arguments.words.join(" "),
                http: arguments.http,
                counts_instructions: arguments.count,
                goes_on: false,
            };
            let (bar, console) = (progress.clone(), arguments.console);
            examine_inside(&lab, &trial, examination, &capture, move |text| {
                inside::watch(text, console, &bar);
            })
        }
    };
    progress.finish_and_clear();
    let report = report?;
    let measured = host.before(&report);
    arguments.output.give_with(&report, &measured)?;
    Ok(status(std::iter::once(&report)))
}

/// A boot to be examined.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// What runs the machine.
    pub accelerator: Accelerator,
    /// The network's version of IP.
    pub ip: IpVersion,
    /// What is wrong with the network and the machine.
    pub faults: &'a [Fault],
    /// wireboot.efi, where it is to be in front of shim.
    pub wireboot: Option<&'a Path>,
    /// The driver that makes those faults that are the firmware's own.
    pub planted: Option<&'a Path>,
    /// What the machine is made of.
    pub hardware: &'a Hardware,
    /// Whether the installer's initial RAM disk is cut to its first MiB: nothing starts it, and GRUB is slow.
    pub is_short: bool,
    /// When the boot is examined at the latest.
    pub longest: Duration,
}

impl Trial<'_> {
    /// Without a fault, over IPv4, and short.
    #[must_use]
    pub fn healthy(accelerator: Accelerator, longest: Duration) -> Self {
        Self {
            accelerator,
            ip: IpVersion::V4,
            faults: &[],
            wireboot: None,
            planted: None,
            hardware: &hardware::PLAIN,
            is_short: true,
            longest,
        }
    }
}

/// Fetches what is not installed and these faults need.
///
/// # Errors
/// When it is not to be had.
fn fetch(faults: &[Fault]) -> Result<()> {
    loaders::fetch().context("fetching Debian's shim and GRUB")?;
    if faults.contains(&Fault::NoBlksize) {
        tftpd_hpa::fetch().context("fetching Debian's tftpd-hpa")?;
    }
    Ok(())
}

/// # Errors
/// When a fault is of the other version of IP or the other way to boot alone, or two are of different servers.
fn can_be(ip: IpVersion, http: bool, faults: &[Fault]) -> Result<()> {
    for fault in faults {
        match fault.version().filter(|version| *version != ip) {
            Some(IpVersion::V4) => bail!("{} is a fault of IPv4; leave out --ip 6", name(*fault)),
            Some(IpVersion::V6) => bail!("{} is a fault of IPv6; add --ip 6", name(*fault)),
            None => {}
        }
        if http && fault.is_of_pxe() {
            bail!("{} is a fault of PXE; leave out --http", name(*fault));
        }
    }
    let mut servers = faults.iter().filter(|fault| fault.is_of_one_server());
    if let Some(one) = servers.next()
        && let Some(other) = servers.find(|other| *other != one)
    {
        let (one, other) = (name(*one), name(*other));
        bail!("{one} and {other} are of different servers; choose one");
    }
    Ok(())
}

/// Boots a machine, keeps its packets in the file `capture`, and examines them.
///
/// # Errors
/// When a part of the lab does not start, or the machine sends nothing.
pub fn boot(lab: &Lab, trial: &Trial<'_>, capture: &Path) -> Result<Report> {
    let watched = watch(lab, trial, ENDED, capture)?;
    // A boot that came to nothing is what a doctor is called for: its packets tell why.
    if watched.ended_s.is_none() {
        eprintln!(
            "wireboot: the boot was not over after {} s; this is what there was until then",
            trial.longest.as_secs()
        );
    }
    examine(capture, None)
}

/// When the console showed what, in seconds since the machine was switched on.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// The firmware started what it has loaded.
    started_s: Option<f64>,
    /// What was waited for.
    ended_s: Option<f64>,
}

/// Boots a machine until its console shows `until`, and keeps its packets in the file `capture`.
fn watch(lab: &Lab, trial: &Trial<'_>, until: &str, capture: &Path) -> Result<Watched> {
    let mut site = Site::new(lab, trial, false)?;
    let cable = Capture::start(lab, site.network.cable(), "", CAPTURED, capture)?;

    let mut machine = Machine::new(trial.accelerator);
    machine.network = Some(site.network.card());
    trial.hardware.build(&mut machine)?;
    machine.pxe_only(Some(trial.ip));
    Site::prepare(trial.faults, &mut machine);
    let planted = planted::words(trial.faults);
    planted::plant(lab, planted, trial.planted, &mut machine)?;
    site.check()?;
    let mut running = machine.start(lab, "doctor", |_| {})?;
    let disturbed = Site::disturb(trial.faults, &mut running)?;
    let ended = running
        .console
        .wait_for(&Regex::new(until)?, trial.longest)
        .ok();
    let started = running.console.seen(&Regex::new(STARTED)?);
    let since_power_on = |seen: Option<ConsoleMatch>| seen.map(|seen| seen.time - running.power_on);
    let watched = Watched {
        started_s: since_power_on(started),
        ended_s: since_power_on(ended),
    };
    drop(disturbed);
    drop(running);
    site.check()?;
    cable.stop()?;
    Ok(watched)
}

fn name(fault: Fault) -> String {
    let value = fault.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn network_with(faults: &[Fault]) -> String {
    let names: Vec<String> = faults.iter().copied().map(name).collect();
    if names.is_empty() {
        "a healthy network".to_owned()
    } else {
        format!("a network with {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_behind_its_host_is_read_as_any_other() {
        let report = Report::new();
        let host = Host::without_guests(0.0, Vec::new());
        let json = serde_json::to_string(&host.before(&report)).unwrap();
        assert!(json.starts_with("{\"host\":{"), "{json}");
        assert_eq!(Report::from_json(&json).unwrap(), report);
    }

    #[test]
    fn a_fault_of_one_version_is_refused_over_the_other() {
        let refused =
            |ip, faults: &[Fault]| can_be(ip, false, faults).map_err(|one| one.to_string());
        let both = [Fault::Stp, Fault::Loss];
        for ip in [IpVersion::V4, IpVersion::V6] {
            assert_eq!(refused(ip, &both), Ok(()));
        }
        let of_four = [Fault::Stp, Fault::TwoDhcp];
        assert_eq!(refused(IpVersion::V4, &of_four), Ok(()));
        let words = "two-dhcp is a fault of IPv4; leave out --ip 6";
        assert_eq!(refused(IpVersion::V6, &of_four), Err(words.into()));
        let of_six = [Fault::SlowNames];
        assert_eq!(refused(IpVersion::V6, &of_six), Ok(()));
        let words = "slow-names is a fault of IPv6; add --ip 6";
        assert_eq!(refused(IpVersion::V4, &of_six), Err(words.into()));
    }

    #[test]
    fn a_fault_of_a_server_that_is_not_there_is_refused() {
        let refused = |http, faults: &[Fault]| {
            can_be(IpVersion::V4, http, faults).map_err(|one| one.to_string())
        };
        assert_eq!(refused(true, &[Fault::Stp, Fault::LateDhcp]), Ok(()));
        let words = "no-blksize is a fault of PXE; leave out --http";
        assert_eq!(
            refused(true, &[Fault::Stp, Fault::NoBlksize]),
            Err(words.into())
        );
        assert_eq!(refused(false, &[Fault::NoBlksize, Fault::Loss]), Ok(()));
        let words = "no-windowsize and slow-disk are of different servers; choose one";
        let both = [Fault::NoWindowsize, Fault::Loss, Fault::SlowDisk];
        assert_eq!(refused(false, &both), Err(words.into()));
    }
}
