//! `wireboot lab boot`: one boot from power-on to an operating system, watched.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use regex::Regex;
use serde::Serialize;

use crate::accel;
use crate::host::{self, Host};
use crate::ip::IpVersion;
use crate::netns::Lab;
use crate::network::{Network, NetworkOptions};
use crate::nic::CardChoice;
use crate::payload;
use crate::qemu::{Accelerator, Machine, RunningMachine};
use crate::server::{Server, advertise};
use crate::timeline::{Timeline, Watcher, plot};

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AcceleratorChoice {
    /// KVM where it runs firmware, else TCG
    Auto,
    /// The processor itself
    Kvm,
    /// QEMU's translator: works everywhere
    Tcg,
}

impl AcceleratorChoice {
    /// The accelerator to use.
    ///
    /// # Errors
    /// When the probe for KVM cannot be made.
    pub fn choose(self, lab: &Lab) -> Result<Accelerator> {
        match self {
            Self::Auto => accel::best(lab, false),
            Self::Kvm => Ok(Accelerator::Kvm),
            Self::Tcg => Ok(Accelerator::Tcg),
        }
    }
}

/// Boot a virtual machine over the network, from power-on to an operating system.
///
/// Starts `wireboot serve` and a virtual machine on a network of their own, follows the machine's serial console, and shows at the end
/// when each step came. Needs nothing of the host's network; as an ordinary user it needs user namespaces.
#[derive(Args, Clone, Debug)]
pub struct BootArgs {
    /// The version of IP that the machine boots over; with 6 its network has no IPv4
    #[arg(long, value_enum, value_name = "VERSION", default_value = "4")]
    pub ip: IpVersion,
    /// Directory to boot from [default: Debian 12's installer]
    #[arg(long, value_name = "DIR")]
    pub payload: Option<PathBuf>,
    /// Console text (regular expression) that the boot must reach [default: the installer's first question; with --payload, user space]
    #[arg(long, value_name = "REGEX")]
    pub until: Option<Regex>,
    /// What runs the guest's instructions
    #[arg(long, value_enum, default_value = "auto")]
    pub accel: AcceleratorChoice,
    /// Memory of the machine
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub memory: u32,
    /// Processors of the machine
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cpus: u32,
    /// Who carries frames between the machine and the network
    #[arg(long, value_enum, value_name = "CARD", default_value = "qemu")]
    pub card: CardChoice,
    /// Network boot program [default: the wireboot.efi beside this program]
    #[arg(long, value_name = "FILE")]
    pub nbp: Option<PathBuf>,
    /// Give up after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub timeout: u64,
    /// Write the timeline, and what wireboot said on the console, to FILE as JSON
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub json: Option<PathBuf>,
    /// Draw the timeline into FILE as SVG
    #[arg(long, value_name = "FILE", value_parser = wireboot_output::file)]
    pub plot: Option<PathBuf>,
    /// Show the machine's serial console
    #[arg(long)]
    pub console: bool,
}

/// Boots, and tells how it went. Call it before the program has threads: see [`Lab::enter`].
///
/// # Errors
/// When the boot does not reach its aim: the last step, the end of the console, and what it may mean.
pub fn run(arguments: BootArgs) -> Result<()> {
    // Relative names are the user's, and mistakes are told before anything starts.
    let nbp = network_boot_program(arguments.nbp.as_deref())?;
    let lab = Lab::enter()?;
    let (payload, until) = match &arguments.payload {
        Some(directory) => (directory.clone(), arguments.until.clone()),
        None => {
            let question = || Regex::new(payload::FIRST_QUESTION).ok();
            (
                payload::debian_installer(&lab)?,
                arguments.until.clone().or_else(question),
            )
        }
    };
    let network = Network::new(&lab, NetworkOptions::of(arguments.ip))?;
    let program = std::env::current_exe().context("finding this program's own file")?;
    let more = advertise(arguments.ip);
    let mut server = Server::start(&lab, lab.command(&program), &payload, &nbp, more.as_slice())?;

    let accelerator = arguments.accel.choose(&lab)?;
    let mut machine = Machine::new(accelerator);
    machine.memory_mib = arguments.memory;
    machine.processors = arguments.cpus;
    machine.network = Some(network.card());
    machine.pxe_only(Some(arguments.ip));
    let nic = arguments
        .card
        .attach(&lab, &program, &network, None, &mut machine)?;
    let host = arguments.json.is_some().then(|| {
        let (busy, mtu, ip) = (host::other_work(), network.mtu(), arguments.ip);
        let host = Host::new(Some(&nbp), busy, accelerator, ip, mtu, Vec::new());
        host.with_guests_like(&machine)
    });
    machine.trace = vec!["virtio_set_status".to_owned()];
    let view = View::new(arguments.console, machine.accelerator);
    let show = arguments.console;
    let mut running = machine.start(&lab, "machine", move |text| {
        if show {
            let mut output = std::io::stdout().lock();
            let _ = output
                .write_all(text.as_bytes())
                .and_then(|()| output.flush());
        }
    })?;
    let mut watcher = Watcher::new(machine.accelerator, running.power_on, until)?;
    let result = follow(
        &mut running,
        &mut server,
        &mut watcher,
        &view,
        Duration::from_secs(arguments.timeout),
    );
    view.end();

    let timeline = watcher.finish();
    println!("{}", timeline.table());
    if let Some(nic) = nic {
        println!("The card: {}", nic.end()?);
    }
    if let Some(host) = host {
        let transcript = running.console.transcript();
        let watched = Watched {
            timeline: &timeline,
            console: said(&transcript),
        };
        wireboot_output::json(arguments.json.as_deref(), &host.before(&watched))?;
    }
    if let Some(file) = &arguments.plot {
        plot::draw(&timeline, file)?;
    }
    result
}

/// The network boot program named, or the one beside this program.
pub fn network_boot_program(named: Option<&Path>) -> Result<PathBuf> {
    firmware_program(named, "wireboot.efi")
        .context("no network boot program; `make build` leaves one in dist, --nbp names another")
}

/// The firmware program named, or the one called `name` beside this program.
pub fn firmware_program(named: Option<&Path>, name: &str) -> Result<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name(name));
    let path = named
        .map(Path::to_owned)
        .or_else(beside)
        .context("finding this program's own directory")?;
    path.canonicalize()
        .with_context(|| path.display().to_string())
}

/// Follows the boot until its aim, its end or the timeout.
fn follow(
    running: &mut RunningMachine,
    server: &mut Server,
    watcher: &mut Watcher,
    view: &View,
    timeout: Duration,
) -> Result<()> {
    let deadline = Instant::now() + timeout;
    let mut shown = 0;
    loop {
        // In this order: what a machine that has ended said last is still taken in.
        let failure = running.failure();
        watcher.server(&server.events()?);
        let reached = watcher.machine(running);
        for mark in watcher.timeline().marks.iter().skip(shown) {
            view.step(&mark.line());
        }
        shown = watcher.timeline().marks.len();
        if reached {
            return Ok(());
        }
        let why = match failure {
            Some(failure) => failure,
            None if Instant::now() >= deadline => format!("{} s went by", timeout.as_secs()),
            None => {
                view.now(&running.console.tail(1));
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        bail!(
            "the boot did not reach its aim: {why}\nThe console's end:\n{}The server's end:\n{}{}",
            running.console.tail(25),
            server.tail(),
            watcher.furthest().diagnosis()
        );
    }
}

/// What the JSON file has of a boot besides its host.
#[derive(Serialize)]
struct Watched<'a> {
    #[serde(flatten)]
    timeline: &'a Timeline,
    /// What wireboot said.
    console: Vec<&'a str>,
}

/// wireboot's lines on the console.
fn said(transcript: &str) -> Vec<&str> {
    let all = transcript.lines().map(str::trim);
    all.filter(|line| line.starts_with("wireboot: ")).collect()
}

/// What the user sees while it goes on: steps that came, and below them the console's last line.
struct View {
    bar: ProgressBar,
}

impl View {
    fn new(console: bool, accelerator: Accelerator) -> Self {
        eprintln!("Booting a UEFI virtual machine ({accelerator}) over the network");
        let bar = if console {
            ProgressBar::hidden()
        } else {
            ProgressBar::new_spinner()
        };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar }
    }

    fn step(&self, line: &str) {
        // A hidden bar, and one without a terminal, print nothing.
        self.bar.suspend(|| eprintln!("{line}"));
    }

    fn now(&self, line: &str) {
        self.bar.set_message(line.trim().to_owned());
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_what_wireboot_said() {
        let watcher = Watcher::new(Accelerator::Tcg, 100.0, None).unwrap();
        let transcript = "BdsDxe: starting Boot0001 \"UEFI PXEv4\"\r\nwireboot: ready after 50 ms  \n\
                          wireboot: linux 8.1 MB\nsaid by wireboot: nothing\nEFI stub: Loaded initrd\n";
        let json = serde_json::to_value(Watched {
            timeline: &watcher.finish(),
            console: said(transcript),
        })
        .unwrap();
        let lines = ["wireboot: ready after 50 ms", "wireboot: linux 8.1 MB"];
        assert_eq!(json["console"], serde_json::json!(lines));
        assert_eq!(json["marks"][0]["step"], "power-on");
    }
}
