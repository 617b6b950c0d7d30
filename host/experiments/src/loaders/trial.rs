//! One trial: a fresh virtual machine whose loader reads its file once.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use sha2::{Digest, Sha256};

use super::catalogue::{Loader, NearEnd, Network, Program, Unit};
use super::span::{Span, SpanBegin, SpanEnd};
use crate::bench::evaluate::Transfer;
use crate::bench::files;
use crate::bench::observe::{Observer, View};
use crate::bench::servers::{BootFile, Servers};
use crate::bench::stacks::Server;
use crate::bench::trial::{AFTERGLOW, BenchTestbed, LOOK, UNTIL_REQUEST, reason};
use crate::ladder::{self, Kind};
use wireboot_lab::embed;
use wireboot_lab::host::hexadecimal;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::loaders::{FOLDER, shim_and_grub};
use wireboot_lab::network::SERVER;
use wireboot_lab::payload::{self, INSTALLER_FILES};
use wireboot_lab::qemu::Machine;

/// GRUB by DHCPv6 and the callers' HTTP over IPv6 are not to be had.
pub(super) const IP: IpVersion = IpVersion::V4;
/// The file that a loader asks for once it has the one that is measured.
const NEXT: &str = "end";
/// Without a packet of the loader's.
const STALL: Duration = Duration::from_secs(60);
/// For all of a trial.
const LONGEST: Duration = Duration::from_secs(400);

/// The programs that take part.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Path of wireboot.efi on the host.
    pub wireboot: PathBuf,
    /// Path of wireboot-callers.efi on the host.
    pub callers: PathBuf,
    /// Path of doctor.efi on the host.
    pub doctor: PathBuf,
    /// The wireboot command.
    pub command: PathBuf,
}

/// Bench's testbed, with what the trials of loaders need beside it.
pub(super) struct LoaderTestbed<'a> {
    pub testbed: BenchTestbed<'a>,
    pub programs: &'a Programs,
    /// The size of the file that loaders without one of their own read.
    pub bytes: u64,
}

/// What the machine runs, and what of it is timed.
struct LoaderRun {
    /// The loader's place among the files that are served.
    loader: String,
    /// A script for it that DHCP names.
    script: Option<String>,
    span: Span,
    /// What the console shows when the loader has its file.
    has_it: Option<Regex>,
    /// What it shows, then or later, when all of it was right.
    is_right: Option<Regex>,
}

impl LoaderTestbed<'_> {
    /// Puts the files in place that do not change.
    ///
    /// # Errors
    /// When there is no room.
    pub(super) fn prepare(&self) -> Result<()> {
        files::write(&self.testbed.root, self.bytes)?;
        self.testbed.write(NEXT, "the end\n")
    }

    /// Lets the `loader` read its file over the network, in memory that the host gives the guest before it starts, or, `cold`, as the guest
    /// writes to it. Returns the figure in the loader's unit.
    ///
    /// # Errors
    /// When the loader does not get its file, with what is known about why.
    pub(super) fn measure(&self, loader: &Loader, network: &Network, cold: bool) -> Result<f64> {
        let mut machine = Machine::new(self.testbed.accelerator);
        machine.firmware = network.firmware.clone();
        if matches!(loader.program, Program::ReceiveLoop) {
            return self.receive_loop(machine, network);
        }
        machine.preallocate = !cold;
        machine.network = Some(self.testbed.network.card());
        machine.pxe_only(Some(IP));
        let run = self.run(&loader.program)?;
        let mut servers = self.serve(loader, network, &run)?;
        let Transfer { start, end } = self.watch(&machine, &mut servers, run)?;
        Ok(match loader.unit {
            Unit::MbitS => self.bytes as f64 * 8.0 / (end - start) / 1e6,
            Unit::Ms => (end - start) * 1e3,
        })
    }

    /// Puts the loader's files in place.
    fn run(&self, program: &Program) -> Result<LoaderRun> {
        let BenchTestbed { root, .. } = &self.testbed;
        let file = files::name(self.bytes);
        let span = |end| Span::new(&file, self.bytes, SpanBegin::Asked, end);
        let url = |scheme: &str, file: &str| format!("{scheme}://{SERVER}/{file}");
        Ok(match program {
            Program::Calls(verb) => {
                let name = "callers.efi";
                let wanted = if verb.ends_with("-http") {
                    url("http", &file)
                } else {
                    file.clone()
                };
                let job = format!("{verb} {wanted}\n");
                embed::configuration(&self.programs.callers, &job, &root.join(name))?;
                LoaderRun {
                    loader: name.to_owned(),
                    script: None,
                    span: span(SpanEnd::Console),
                    has_it: Some(Regex::new(&format!("callers: {verb} \\S+ came"))?),
                    is_right: Some(Regex::new(&format!("sha256 {}", self.digest()?))?),
                }
            }
            Program::Shim => {
                shim_and_grub(root, "")?;
                let grub = "grubx64.efi";
                let bytes = fs::metadata(root.join(FOLDER).join(grub))?.len();
                LoaderRun {
                    loader: format!("{FOLDER}/bootnetx64.efi"),
                    script: None,
                    span: Span::new(grub, bytes, SpanBegin::Asked, SpanEnd::Acknowledged),
                    has_it: None,
                    is_right: None,
                }
            }
            Program::Installer => {
                payload::copy_installer(root)?;
                let [kernel, initrd] = INSTALLER_FILES;
                let menu = format!(
                    "set timeout=0\nmenuentry x {{\nif linux /{kernel}; then if initrd /{initrd}; then cat /{NEXT}; fi; fi\nsleep 1000\n}}\n"
                );
                shim_and_grub(root, &menu)?;
                let bytes = fs::metadata(root.join(initrd))?.len();
                LoaderRun {
                    loader: format!("{FOLDER}/bootnetx64.efi"),
                    script: None,
                    span: Span::new(initrd, bytes, SpanBegin::PowerOn, SpanEnd::Next(NEXT)),
                    has_it: None,
                    is_right: Some(Regex::new("the end")?),
                }
            }
            Program::Grub(scheme) => {
                let device = format!("({scheme},{SERVER})");
                let script = format!(
                    "testspeed -s 65536 {device}/{file}\ncat {device}/{NEXT}\nsleep 1000\n"
                );
                // GRUB ends a file that breaks off as if it had come to its end, and tells how much there was.
                let read = format!(r"{}\.00MiB", self.bytes / files::MIB);
                LoaderRun {
                    loader: self.testbed.grub(&script)?,
                    script: None,
                    span: span(SpanEnd::Next(NEXT)),
                    has_it: None,
                    is_right: Some(Regex::new(&read)?),
                }
            }
            Program::Ipxe(scheme, program) => {
                let name = "read.ipxe";
                let (wanted, next) = (url(scheme, &file), url(scheme, NEXT));
                let script = format!(
                    "#!ipxe\nimgfetch {wanted} && imgfetch {next} || echo it failed\nsleep 1000\n"
                );
                self.testbed.write(name, &script)?;
                LoaderRun {
                    loader: self.testbed.offer(program)?,
                    script: Some(name.to_owned()),
                    span: span(SpanEnd::Next(NEXT)),
                    has_it: None,
                    is_right: None,
                }
            }
            Program::ReceiveLoop => bail!("it reads no file"),
        })
    }

    /// Starts the servers, with the loader as the firmware's boot program, or behind wireboot.
    fn serve(&self, loader: &Loader, network: &Network, run: &LoaderRun) -> Result<Servers> {
        let BenchTestbed {
            lab, command, root, ..
        } = &self.testbed;
        let mut boot = BootFile {
            firmware: run.loader.clone(),
            ipxe: run.script.clone(),
            wireboot: None,
        };
        if let Some(near_end) = network.wireboot {
            let settings = match near_end {
                NearEnd::On => "network wireboot\n",
                NearEnd::Off => "network wireboot\nnear-end 0\n",
            };
            let (program, conf) = ("wireboot.efi", "wireboot.conf");
            embed::configuration(&self.programs.wireboot, settings, &root.join(program))?;
            let entry = format!(
                "timeout 0\ntitle loader\nefi tftp://{SERVER}/{}\n",
                run.loader
            );
            self.testbed.write(conf, &entry)?;
            boot.firmware = program.to_owned();
            boot.wireboot = Some(format!("tftp://{SERVER}/{conf}"));
        }
        match loader.server {
            Server::Wireboot => Servers::ours(lab, command, root, &root.join(&boot.firmware), IP),
            Server::Card => bail!("the server in the card is on no cable"),
            Server::Atftpd | Server::Nginx => Servers::others(lab, root, &boot, IP),
        }
    }

    /// Switches the machine on, and takes the time.
    fn watch(&self, machine: &Machine, servers: &mut Servers, run: LoaderRun) -> Result<Transfer> {
        let LoaderRun {
            mut span,
            has_it,
            is_right,
            ..
        } = run;
        let observer = Observer::start(self.testbed.lab, View::Client, IP)?;
        let mut running = machine.start(self.testbed.lab, "loader", |_| {})?;
        let power_on = Instant::now();
        let (mut heard, mut looked) = (power_on, power_on);
        let mut over: Option<(f64, Instant)> = None;
        let end = loop {
            if let Some((time, packet)) = observer.packet(LOOK)? {
                heard = Instant::now();
                span.packet(time, &packet);
            }
            if let Some((end, since)) = over {
                if since.elapsed() > AFTERGLOW {
                    // A file in memory may have been acknowledged in several packets at its end.
                    break span.ended().unwrap_or(end);
                }
                continue;
            }
            let mut ended = span.ended();
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                let shown = has_it.as_ref().and_then(|text| running.console.seen(text));
                ended = ended.or(shown.map(|shown| shown.time));
                servers.check()?;
                let patience = if span.watch().started().is_some() {
                    STALL
                } else {
                    UNTIL_REQUEST
                };
                if heard.elapsed() > patience || power_on.elapsed() > LONGEST {
                    bail!("{}", reason(span.watch(), &mut running));
                }
                if let Some(failure) = running.failure() {
                    bail!("{failure}");
                }
            }
            over = ended.map(|end| (end, Instant::now()));
        };
        ensure!(
            span.watch().transfer().is_some(),
            "it went on without the file: {}",
            reason(span.watch(), &mut running)
        );
        if let Some(text) = is_right {
            running.console.wait_for(&text, STALL)?;
        }
        let start = span.began().context("it never asked for a file")?;
        Ok(Transfer { start, end })
    }

    /// Frames by SNP's Receive, in Mbit/s of their payload: the firmware's, or ours.
    fn receive_loop(&self, mut machine: Machine, network: &Network) -> Result<f64> {
        let name = match network.wireboot {
            None => "SNP",
            Some(_) => "SNP, ours",
        };
        let BenchTestbed {
            lab,
            network,
            command,
            ..
        } = &self.testbed;
        machine.network = Some(self.testbed.network.card());
        let doctor = &self.programs.doctor;
        let _counterpart = ladder::counterpart(lab, (network, IP), (command, doctor))?;
        let options = "rounds=1 ms=1000 only=SNP";
        let ladder = ladder::measure(lab, machine, IP, doctor, options, LONGEST, |_| {})?;
        let rung = ladder.of(Kind::Receive).find(|rung| rung.name == name);
        let rung = rung.with_context(|| format!("no rung {name} in\n{}", ladder.text()))?;
        if let Some(error) = &rung.error {
            bail!("{name}: {error}");
        }
        Ok(rung.mbit_s)
    }

    /// The file's SHA-256, in hexadecimal digits.
    fn digest(&self) -> Result<String> {
        let file = self.testbed.root.join(files::name(self.bytes));
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        Ok(hexadecimal(&Sha256::digest(bytes)))
    }
}
