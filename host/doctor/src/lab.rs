//! `wireboot doctor lab`: a virtual machine boots on a network with chosen faults, and is examined.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use nix::unistd::geteuid;
use regex::Regex;
use wireboot_lab::boot::{AcceleratorChoice, firmware_program};
use wireboot_lab::capture::Capture;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::loaders::{self, FOLDER, shim_and_grub};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{INTERFACE, Network, NetworkOptions, SERVER};
use wireboot_lab::payload::{self, INSTALLER_FILES};
use wireboot_lab::qemu::{Accelerator, Machine};
use wireboot_lab::{Impairment, atftpd};
use wireboot_report::Report;

use crate::output::OutputArgs;
use crate::{examine, status};

/// What is wrong with the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// The switch's spanning tree holds the machine's port for 30 s
    Stp,
    /// The DHCP server offers after 5 s, when the firmware has asked twice
    LateDhcp,
    /// A second DHCP server gives addresses of its own
    TwoDhcp,
    /// The DHCP server gives an access point's vendor options (43) to everybody
    #[value(name = "option-43")]
    Option43,
    /// The DHCP server names no boot file
    NoBootFile,
    /// The TFTP server has no file of the name that DHCP gives
    MissingFile,
    /// The TFTP server knows no windows (dnsmasq)
    NoWindowsize,
    /// The TFTP server knows neither windows nor block sizes
    NoBlksize,
    /// One packet in a hundred is lost
    Loss,
    /// The way there and back takes 20 ms
    Delay,
}

/// Boot a virtual machine on a network with faults of your choice, and examine it by its packets.
///
/// Stock firmware (Debian's OVMF) gets shim and GRUB by PXE, and GRUB gets the kernel and RAM disk of Debian's installer, from dnsmasq and
/// atftpd, on a network of their own. Without a fault it shows what such a boot takes at best.
#[derive(Args, Clone, Debug)]
pub struct LabArgs {
    /// What is wrong with the network; may be given several times
    #[arg(long, value_enum, value_name = "FAULT")]
    fault: Vec<Fault>,
    /// Put wireboot.efi in front of shim: the one beside this program, or FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    wireboot: Option<Option<PathBuf>>,
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
/// The file that GRUB asks for when it has all others.
const END: &str = "end";
/// What the console shows at the end: that file, or that the firmware gave up.
const ENDED: &str = r"the end of the boot|BdsDxe: failed to (?:load|start) Boot\S+ .*PXEv4";
/// Where the second DHCP server is.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);

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
        loaders::fetch().context("fetching Debian's shim and GRUB")?;
    }
    let wireboot = arguments.wireboot.as_ref();
    let wireboot = wireboot.map(|named| firmware_program(named.as_deref(), "wireboot.efi"));
    let wireboot = wireboot.transpose().context(
        "no wireboot.efi; `make build` leaves one in dist, --wireboot=FILE names another",
    )?;
    let lab = Lab::enter()?;
    let capture = arguments
        .capture
        .clone()
        .unwrap_or_else(|| lab.scratch().join("doctor.pcap"));
    let trial = Trial {
        accelerator: arguments.accel.choose(&lab)?,
        faults: &arguments.fault,
        wireboot: wireboot.as_deref(),
        longest: Duration::from_secs(arguments.timeout),
    };
    let progress = ProgressBar::new_spinner();
    progress.enable_steady_tick(Duration::from_millis(200));
    progress.set_message(format!(
        "a machine boots on {}, run by {}; at most {} s",
        network_with(trial.faults),
        trial.accelerator,
        arguments.timeout
    ));
    let report = boot(&lab, &trial, &capture);
    progress.finish_and_clear();
    let report = report?;
    arguments.output.give(&report)?;
    Ok(status(!report.findings.is_empty()))
}

/// A server that ends with this value.
struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    fn start(mut command: Command, log: PathBuf) -> Result<Self> {
        let file = fs::File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let started = command.stdout(file.try_clone()?).stderr(file).spawn();
        let program = command.get_program().to_string_lossy().into_owned();
        let child = started.with_context(|| format!("starting {program}: is it installed?"))?;
        Ok(Self { child, log })
    }

    /// # Errors
    /// When it has ended, with what it said.
    fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("looking after a server")? {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("a server ended with {status}: {}", said.trim());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A boot to be examined.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// What runs the machine.
    pub accelerator: Accelerator,
    /// What is wrong with the network.
    pub faults: &'a [Fault],
    /// wireboot.efi, where it is to be in front of shim.
    pub wireboot: Option<&'a Path>,
    /// When the boot is examined at the latest.
    pub longest: Duration,
}

/// Boots a machine, keeps its packets in the file `capture`, and examines them.
///
/// # Errors
/// When a part of the lab does not start, or the machine sends nothing.
pub fn boot(lab: &Lab, trial: &Trial<'_>, capture: &Path) -> Result<Report> {
    let has = |fault| trial.faults.contains(&fault);
    let root = lab.scratch().join("root");
    files(&root)?;
    if let Some(program) = trial.wireboot {
        in_front(program, &root)?;
    }
    let impaired = has(Fault::Loss) || has(Fault::Delay);
    let network = Network::new(
        lab,
        NetworkOptions {
            bridge: true,
            spanning_tree: has(Fault::Stp),
            impairment: impaired.then(|| Impairment {
                loss: if has(Fault::Loss) { 0.01 } else { 0.0 },
                delay: Duration::from_millis(if has(Fault::Delay) { 10 } else { 0 }),
                ..Impairment::default()
            }),
            ..NetworkOptions::default()
        },
    )?;
    let mut servers = vec![Server::start(
        dnsmasq(lab, &root, trial),
        lab.scratch().join("dnsmasq.log"),
    )?];
    if !(has(Fault::NoWindowsize) || has(Fault::NoBlksize)) {
        let command = atftpd::serve(lab.command("atftpd"), SERVER.into(), &root)?;
        servers.push(Server::start(command, lab.scratch().join("atftpd.log"))?);
    }
    let second = has(Fault::TwoDhcp)
        .then(|| network.station("second", SECOND))
        .transpose()?;
    if let Some(station) = &second {
        let mut command = station.command("dnsmasq");
        common(&mut command, &lab.scratch().join("second.leases"));
        command.args([
            "--dhcp-range=10.77.0.150,10.77.0.199,255.255.255.0",
            "--no-ping",
        ]);
        servers.push(Server::start(command, lab.scratch().join("second.log"))?);
    }
    let cable = Capture::start(lab, network.cable(), "", CAPTURED, capture)?;

    let mut machine = Machine::new(trial.accelerator);
    machine.network = Some(network.card());
    machine.pxe_only(Some(IpVersion::V4));
    servers.iter_mut().try_for_each(Server::check)?;
    let mut running = machine.start(lab, "doctor", |_| {})?;
    let ended = running.console.wait_for(&Regex::new(ENDED)?, trial.longest);
    drop(running);
    servers.iter_mut().try_for_each(Server::check)?;
    let capture = cable.stop()?;
    // A boot that came to nothing is what a doctor is called for: its packets tell why.
    if ended.is_err() {
        eprintln!(
            "wireboot: the boot was not over after {} s; this is what there was until then",
            trial.longest.as_secs()
        );
    }
    examine(&capture, None)
}

fn network_with(faults: &[Fault]) -> String {
    let names: Vec<String> = faults
        .iter()
        .filter_map(|fault| Some(fault.to_possible_value()?.get_name().to_owned()))
        .collect();
    if names.is_empty() {
        "a healthy network".to_owned()
    } else {
        format!("a network with {}", names.join(", "))
    }
}

/// What the servers offer: shim, GRUB, and the installer.
fn files(root: &Path) -> Result<()> {
    let [kernel, initrd] = INSTALLER_FILES;
    let menu = format!(
        "set timeout=0\nmenuentry x {{\nlinux /{kernel}\ninitrd /{initrd}\ncat /{END}\nsleep 1000\n}}\n"
    );
    shim_and_grub(root, &menu)?;
    payload::copy_installer(root)?;
    fs::write(root.join(END), "the end of the boot\n").context("writing the last file")
}

/// The one line of the page on deployment.
fn in_front(program: &Path, root: &Path) -> Result<()> {
    let folder = root.join(FOLDER);
    fs::copy(program, folder.join("wireboot.efi"))
        .with_context(|| format!("copying {}", program.display()))?;
    fs::write(folder.join("wireboot.conf"), "efi bootnetx64.efi\n").context("writing wireboot.conf")
}

fn common(command: &mut Command, leases: &Path) {
    command
        .args(["--keep-in-foreground", "--pid-file", "--log-facility=-"])
        .args(["--user=root", "--group=root", "--conf-file=/dev/null"])
        .args(["--port=0", "--bind-interfaces", "--except-interface=lo"])
        .arg(format!("--interface={INTERFACE}"))
        .arg("--dhcp-authoritative")
        .arg(format!("--dhcp-leasefile={}", leases.display()));
}

/// The DHCP server, and the TFTP server where atftpd is too good.
fn dnsmasq(lab: &Lab, root: &Path, trial: &Trial<'_>) -> Command {
    let has = |fault| trial.faults.contains(&fault);
    let mut command = lab.command("dnsmasq");
    common(&mut command, &lab.scratch().join("dnsmasq.leases"));
    // shim reads its own file's name from the packet's field.
    command.args([
        "--dhcp-range=10.77.0.50,10.77.0.99,255.255.255.0",
        "--no-ping",
        "--dhcp-no-override",
    ]);
    if has(Fault::MissingFile) {
        command.arg("--dhcp-boot=grubx46.efi");
    } else if !has(Fault::NoBootFile) {
        let first = match trial.wireboot {
            Some(_) => "wireboot.efi",
            None => "bootnetx64.efi",
        };
        command.arg(format!("--dhcp-boot={FOLDER}/{first}"));
    }
    if has(Fault::LateDhcp) {
        command.arg("--dhcp-reply-delay=5");
    }
    if has(Fault::Option43) {
        // An access point's controller.
        command.arg("--dhcp-option-force=43,f1:04:0a:4d:00:09");
    }
    if has(Fault::NoWindowsize) || has(Fault::NoBlksize) {
        command
            .arg("--enable-tftp")
            .arg(format!("--tftp-root={}", root.display()));
    }
    if has(Fault::NoBlksize) {
        command.arg("--tftp-no-blocksize");
    }
    command
}
