//! One trial: a fresh virtual machine that downloads one file once.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::evaluate::{FirstByte, Waited, Watch};
use super::files;
use super::linux;
use super::observe::{Observer, View};
use super::servers::{BootFile, Servers};
use super::stacks::{Loader, Server, Stack, Start};
use crate::grub;
use crate::protocol::TransferProtocol;
use wireboot_lab::ip::{IpVersion, host};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{self, Network, with_prefix};
use wireboot_lab::nic::Nic;
use wireboot_lab::qemu::{Accelerator, DirectKernel, Disk, Firmware, Machine, RunningMachine};

/// Where trials take place.
#[derive(Debug)]
pub(crate) struct BenchTestbed<'a> {
    pub lab: &'a Lab,
    pub network: &'a Network,
    /// In which version of IP everything happens.
    pub ip: IpVersion,
    /// What runs the guests.
    pub accelerator: Accelerator,
    /// The wireboot command, whose server takes part.
    pub command: PathBuf,
    /// The directory whose files the servers offer.
    pub root: PathBuf,
}

/// What one trial measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// From the request to the acknowledgement of the last byte, in seconds.
    pub seconds: f64,
    /// Packets handed to the guest meanwhile, in thousands a second; none where no interface counts them.
    pub kpps: Option<f64>,
}

/// A download, and what took part in it: it goes on until this value is dropped.
pub(crate) struct Downloaded {
    /// Its time and packets, seen from outside the guest.
    pub measured: Measured,
    /// The card, where it is ours.
    pub nic: Option<Nic>,
    _machine: RunningMachine,
    _servers: Servers,
}

/// Under which name `wireboot serve` offers the firmware its program, whatever the file's own name.
pub(super) const OUR_BOOT_PROGRAM: &str = "wireboot.efi";
/// From power-on to the request: the slowest firmware under a translator, with room for a busy host.
pub(crate) const UNTIL_REQUEST: Duration = Duration::from_secs(120);
/// Without progress in the transfer.
const STALL: Duration = Duration::from_secs(20);
/// After the last byte, for the packets still in the capture's buffers. tcpdump hands them over once a second at least.
pub(crate) const AFTERGLOW: Duration = Duration::from_millis(1500);
/// How often the machine and servers are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

impl BenchTestbed<'_> {
    /// Lets `stack` download the file of `bytes` bytes from a server on the network's cable, into memory that the host has given the guest before (`warm`) or gives it
    /// as the guest writes to it; `attach` may put a card of ours between.
    ///
    /// # Errors
    /// When the download does not come to its end, with what is known about why.
    pub(crate) fn download_by_cable(
        &self,
        stack: &Stack,
        bytes: u64,
        warm: bool,
        attach: impl FnOnce(&mut Machine) -> Result<Option<Nic>>,
    ) -> Result<Downloaded> {
        let (mut servers, mut machine, wanted) = self.prepare(stack, &files::name(bytes), false)?;
        machine.preallocate = warm;
        let nic = attach(&mut machine)?;
        let observer = Observer::start(self.lab, View::Client, self.ip)?;
        let mut running = machine.start(self.lab, "bench", |_| {})?;

        let mut watch = Watch::new(&wanted, bytes);
        let (mut received, mut progress, mut looked) = (0, Instant::now(), Instant::now());
        let mut complete = None;
        let transfer = loop {
            if let Some((time, packet)) = observer.packet(LOOK)? {
                watch.packet(time, &packet);
            }
            if let Some(transfer) = watch.transfer() {
                let since = *complete.get_or_insert_with(Instant::now);
                if since.elapsed() > AFTERGLOW {
                    break transfer;
                }
                continue;
            }
            if looked.elapsed() < LOOK {
                continue;
            }
            looked = Instant::now();
            if watch.received() != received {
                (received, progress) = (watch.received(), Instant::now());
            }
            servers.check()?;
            let patience = if received > 0 { STALL } else { UNTIL_REQUEST };
            if progress.elapsed() > patience || running.failure().is_some() {
                bail!("{}", reason(&watch, &mut running));
            }
        };
        let seconds = transfer.end - transfer.start;
        let packets = observer
            .packets_to_guest(transfer)
            .context("the interface's counters were not read")?;
        Ok(Downloaded {
            measured: Measured {
                seconds,
                kpps: Some(packets as f64 / seconds / 1e3),
            },
            nic,
            _machine: running,
            _servers: servers,
        })
    }

    /// Has a machine start `program` from a stick, and the firmware not boot by the network. Returns the folder in which it lies.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub(super) fn start_from_stick(
        &self,
        program: &Path,
        machine: &mut Machine,
    ) -> Result<PathBuf> {
        let disk = self.lab.scratch().join("disk");
        let place = disk.join("EFI/BOOT");
        fs::create_dir_all(&place).context("making a stick")?;
        fs::copy(program, place.join("BOOTX64.EFI"))
            .with_context(|| format!("copying {}", program.display()))?;
        machine.disks.push(Disk::Directory {
            path: disk,
            boot_index: Some(1),
        });
        if let Some(card) = &mut machine.network {
            card.boot_index = None;
        }
        Ok(place)
    }

    /// How long a machine waits for the first byte of the file that DHCP names to `stack`, which it gets to run by `start`.
    ///
    /// # Errors
    /// When no data comes.
    pub(super) fn first_byte(&self, stack: &Stack, start: Start) -> Result<Waited> {
        let (mut servers, mut machine, wanted) =
            self.prepare(stack, &files::name(files::MIB), true)?;
        if let (Start::Stick, Loader::Wireboot { program } | Loader::Ipxe { program, .. }) =
            (start, &stack.loader)
        {
            let stick = self.start_from_stick(program, &mut machine)?;
            // iPXE runs it from 1.21 on, and wireboot does not look for it. Else iPXE would ask by the other version of IP, too, for seconds.
            let protocol = match self.ip {
                IpVersion::V4 => "dhcp",
                IpVersion::V6 => "ipv6",
            };
            let script = format!("#!ipxe\nifconf -c {protocol}\nimgfetch ${{filename}}\n");
            fs::write(stick.join("autoexec.ipxe"), script).context("writing a script")?;
        }
        let observer = Observer::start(self.lab, View::Both, self.ip)?;
        let mut running = machine.start(self.lab, "bench", |_| {})?;
        let begin = Instant::now();
        let mut first = FirstByte::new(&wanted);
        while begin.elapsed() < UNTIL_REQUEST {
            if let Some((time, packet)) = observer.packet(LOOK)? {
                first.packet(time, &packet);
            }
            if let Some(waited) = first.waited() {
                return Ok(waited);
            }
            servers.check()?;
            if let Some(failure) = running.failure() {
                bail!("{failure}");
            }
        }
        bail!(
            "no file after {} s; the console: {}",
            UNTIL_REQUEST.as_secs(),
            console_end(&running)
        )
    }

    /// Puts the files in place, starts the servers and builds the machine. Also returns the name under which the file will be asked for.
    /// `directly`: DHCP names the file, not a configuration or script that does.
    fn prepare(
        &self,
        stack: &Stack,
        file: &str,
        directly: bool,
    ) -> Result<(Servers, Machine, String)> {
        let scheme = stack.protocol.name().to_lowercase();
        let server = host(network::server(self.ip));
        let url = format!("{scheme}://{server}/{file}");
        let mut machine = Machine::new(self.accelerator);
        machine.firmware = stack.firmware.clone();
        let mut card = self.network.card();
        let mut boot = BootFile {
            firmware: file.to_owned(),
            ipxe: None,
            wireboot: None,
        };
        // PXE over the other version would only lengthen the way to what is measured.
        let http_boot =
            matches!(stack.loader, Loader::Firmware) && stack.protocol == TransferProtocol::Http;
        machine.pxe_only((!http_boot).then_some(self.ip));
        machine.http_boot_ipv6 = http_boot && self.ip == IpVersion::V6;
        match &stack.loader {
            Loader::Firmware => {
                if stack.protocol == TransferProtocol::Http {
                    boot.firmware = url;
                }
            }
            Loader::Wireboot { program } => {
                boot.firmware = self.offer(program)?;
                boot.wireboot = Some(if directly {
                    url
                } else {
                    self.write(
                        "wireboot.conf",
                        &format!("timeout 0\ntitle download\nefi {url}\n"),
                    )?;
                    format!("{scheme}://{server}/wireboot.conf")
                });
            }
            Loader::Ipxe { program, .. } => {
                boot.firmware = self.offer(program)?;
                boot.ipxe = Some(self.ipxe_file(url, directly)?);
            }
            Loader::IpxeRom { bios, rom } => {
                boot.ipxe = Some(self.ipxe_file(url, directly)?);
                machine
                    .extra
                    .extend(bios.iter().flat_map(|bios| ["-bios".into(), bios.into()]));
                card.rom = Some(rom.clone());
                // The ROM names the virtio 1.0 device, so the BIOS runs it for no other.
                card.properties.push("disable-legacy=on".into());
            }
            Loader::Grub => {
                let script = format!("testspeed -s 65536 ({scheme},{server})/{file}\nsleep 1000\n");
                boot.firmware = self.grub(&script)?;
            }
            Loader::Linux { kernel } => {
                let ram_disk = self.lab.scratch().join("initramfs");
                let address = with_prefix(guest(self.ip));
                let script = format!("/bin/busybox wget -q -O /dev/null {url} && echo downloaded");
                linux::write_ram_disk(&ram_disk, kernel, &address, &[], &script)?;
                let command_line = "console=ttyS0 quiet".into();
                machine.kernel = Some(DirectKernel {
                    kernel: kernel.image.clone(),
                    initrd: Some(ram_disk),
                    command_line,
                });
                card.boot_index = None;
            }
        }
        if matches!(machine.firmware, Firmware::SeaBios) {
            machine.firmware_configuration.clear();
        }
        machine.network = Some(card);
        Ok(match stack.server {
            Server::Wireboot => {
                let program = self.root.join(&boot.firmware);
                let servers =
                    Servers::ours(self.lab, &self.command, &self.root, &program, self.ip)?;
                let wanted = match stack.loader {
                    Loader::Firmware => OUR_BOOT_PROGRAM,
                    _ => file,
                };
                (servers, machine, wanted.to_owned())
            }
            Server::Card => bail!("the server in the card is on no cable"),
            Server::Atftpd | Server::Nginx => {
                let servers = Servers::others(self.lab, &self.root, &boot, self.ip)?;
                (servers, machine, file.to_owned())
            }
        })
    }

    /// Puts a program among the files offered; its name there.
    pub(crate) fn offer(&self, program: &Path) -> Result<String> {
        let name = program
            .file_name()
            .context("a program without a name")?
            .to_string_lossy()
            .into_owned();
        fs::copy(program, self.root.join(&name))
            .with_context(|| format!("copying {}", program.display()))?;
        Ok(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.root.join(name), text).with_context(|| format!("writing {name}"))
    }

    /// What DHCP names to iPXE: the URL, or a script that fetches it and starts nothing.
    fn ipxe_file(&self, url: String, directly: bool) -> Result<String> {
        if directly {
            return Ok(url);
        }
        let name = "download.ipxe";
        self.write(
            name,
            &format!("#!ipxe\nimgfetch {url} || echo it failed\nsleep 1000\n"),
        )?;
        Ok(name.to_owned())
    }

    /// Builds a GRUB that reads files as a script says.
    pub(crate) fn grub(&self, script: &str) -> Result<String> {
        let name = "grub.efi";
        let file = self.lab.scratch().join("grub.cfg");
        fs::write(&file, script).context("writing grub.cfg")?;
        let modules = [
            "efinet",
            "tftp",
            "http",
            "testspeed",
            "cat",
            "sleep",
            "normal",
        ];
        grub::image(&self.root.join(name), &file, &modules, None)?;
        Ok(name.to_owned())
    }
}

/// The Linux guest's address: it asks nobody for one.
fn guest(ip: IpVersion) -> IpAddr {
    match ip {
        IpVersion::V4 => Ipv4Addr::new(10, 77, 0, 40).into(),
        IpVersion::V6 => Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 0x40).into(),
    }
}

/// Why a trial did not come to its end.
pub(crate) fn reason(watch: &Watch, running: &mut RunningMachine) -> String {
    let mut parts = Vec::new();
    match watch.started() {
        None => parts.push("it never asked for the file".to_owned()),
        Some(_) => parts.push(format!(
            "the download stopped after {} KiB",
            watch.received() >> 10
        )),
    }
    parts.extend(watch.error().map(|text| format!("TFTP error: {text}")));
    parts.extend(running.failure());
    parts.push(format!("the console: {}", console_end(running)));
    parts.join("; ")
}

/// The last of what the console shows, on one line.
pub(super) fn console_end(running: &RunningMachine) -> String {
    let tail = running.console.tail(4);
    tail.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" | ")
}
