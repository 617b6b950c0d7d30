//! Virtual machines: what they are made of, how they end, and how to ask them things.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::console::Console;
use crate::ip::IpVersion;
use crate::netns::Lab;
use crate::patience::wait_until;
use crate::qmp::Qmp;
use crate::variables::{self, Driver, HttpBoot6};

/// How long QEMU may take to read a snapshot.
const SNAPSHOT: Duration = Duration::from_secs(30);

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accelerator {
    fn qemu(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg,thread=multi",
        }
    }

    /// The newest processor that it has. In emulation it does not say that `rep movsb` is fast (ERMS, FSRM): Linux copies by that where it is said,
    /// and QEMU makes it byte by byte.
    fn processor(self) -> &'static str {
        match self {
            Self::Kvm => "max",
            Self::Tcg => "max,erms=off,fsrm=off",
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG",
        })
    }
}

/// What the machine runs at power-on.
#[derive(Clone, Debug)]
pub enum Firmware {
    /// UEFI: an OVMF build's code and its template of variables. The machine gets a copy of the variables.
    Ovmf {
        /// The code image, mapped read-only.
        code: PathBuf,
        /// The template of the variable store.
        variables: PathBuf,
    },
    /// QEMU's own legacy BIOS.
    SeaBios,
}

impl Firmware {
    /// OVMF as Debian's package `ovmf` installs it, without Secure Boot.
    #[must_use]
    pub fn debian_ovmf() -> Self {
        Self::Ovmf {
            code: "/usr/share/OVMF/OVMF_CODE_4M.fd".into(),
            variables: "/usr/share/OVMF/OVMF_VARS_4M.fd".into(),
        }
    }
}

/// The machine's network card, and what is at the other end of its cable.
#[derive(Clone, Debug)]
pub struct NetworkCard {
    /// What it is, as QEMU names devices.
    pub model: String,
    /// The value of `-netdev`, whose id is `net0`: see [`crate::network::Network::qemu_netdev`].
    pub netdev: String,
    /// Its MAC address, as text.
    pub mac: String,
    /// Its place in the firmware's boot order, from 1; none to leave it out.
    pub boot_index: Option<u32>,
    /// An option ROM; none for an empty one, so that UEFI uses the driver it has.
    pub rom: Option<PathBuf>,
    /// More properties of the device, as `name=value`.
    pub properties: Vec<String>,
}

impl NetworkCard {
    /// A virtio network card, the first boot device, on the given `-netdev`.
    #[must_use]
    pub fn new(netdev: String) -> Self {
        Self {
            model: "virtio-net-pci".into(),
            netdev,
            mac: "52:54:00:77:00:02".into(),
            boot_index: Some(1),
            rom: None,
            properties: Vec::new(),
        }
    }
}

/// A disk of the machine.
#[derive(Clone, Debug)]
pub enum Disk {
    /// A raw image; what the machine writes goes to a temporary file.
    Image {
        /// Path of the image on the host.
        path: PathBuf,
        /// Its place in the boot order, from 1.
        boot_index: Option<u32>,
    },
    /// A host directory shown as a FAT disk: an EFI system partition without tools.
    Directory {
        /// Path of the directory on the host.
        path: PathBuf,
        /// Its place in the boot order, from 1.
        boot_index: Option<u32>,
    },
}

/// A Linux kernel that QEMU itself loads.
#[derive(Clone, Debug)]
pub struct DirectKernel {
    /// The image, as QEMU's `-kernel` takes it.
    pub kernel: PathBuf,
    /// The initial RAM disk.
    pub initrd: Option<PathBuf>,
    /// What the kernel is told: its command line.
    pub command_line: String,
}

/// Ticks of the time-stamp counter for an instruction, where it counts those. That is 62.5 million instructions a second of the machine's
/// time: about what emulation does, so that neither its waits nor those of the network are much too long.
pub const TICKS_PER_INSTRUCTION: u32 = 16;

/// What a machine is made of. Change what you need in [`Machine::new`]'s and [`start`](Machine::start) it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The QEMU program.
    pub qemu: PathBuf,
    /// `-machine`: `q35` or `pc`.
    pub machine: String,
    /// What runs the guest's instructions.
    pub accelerator: Accelerator,
    /// The processors take turns, and the time-stamp counter ticks [`TICKS_PER_INSTRUCTION`] times for each instruction of theirs. Only
    /// with [`Accelerator::Tcg`].
    pub counts_instructions: bool,
    /// The value of `-cpu`, such as `max`.
    pub processor: String,
    /// Virtual processors, as `-smp` has them.
    pub processors: u32,
    /// Memory of the guest, in MiB.
    pub memory_mib: u32,
    /// Touch all memory before power-on, so that the host's page faults are not in the guest's time.
    pub preallocate: bool,
    /// Another process may map the machine's memory: a card's ([`crate::nic`]).
    pub shares_memory: bool,
    /// What the machine boots with: UEFI or a BIOS.
    pub firmware: Firmware,
    /// The network card, if any.
    pub network: Option<NetworkCard>,
    /// Disks, each a virtio block device; empty for none.
    pub disks: Vec<Disk>,
    /// A kernel for QEMU to load.
    pub kernel: Option<DirectKernel>,
    /// Entries of the firmware configuration device, as name and text.
    pub firmware_configuration: Vec<(String, String)>,
    /// Begin with the firmware's HTTP Boot over IPv6, which it would come to only after that over IPv4 has found nobody (60 s).
    pub http_boot_ipv6: bool,
    /// A driver that the firmware loads from a disk, before it boots. Only with [`Firmware::Ovmf`].
    pub driver: Option<Driver>,
    /// A virtio entropy device.
    pub entropy: bool,
    /// QEMU's trace events to record: see [`RunningMachine::trace`].
    pub trace: Vec<String>,
    /// Never begin with a snapshot of the firmware ([`crate::snapshot`]), for who asks how long the firmware took.
    pub from_power_on: bool,
    /// More arguments of QEMU's command line.
    pub extra: Vec<OsString>,
}

impl Machine {
    /// Two processors, 2 GiB and Debian's OVMF on a q35 board.
    #[must_use]
    pub fn new(accelerator: Accelerator) -> Self {
        Self {
            qemu: "qemu-system-x86_64".into(),
            machine: "q35".into(),
            accelerator,
            counts_instructions: false,
            processor: accelerator.processor().into(),
            processors: 2,
            memory_mib: 2048,
            preallocate: false,
            shares_memory: false,
            firmware: Firmware::debian_ovmf(),
            network: None,
            disks: Vec::new(),
            kernel: None,
            firmware_configuration: Vec::new(),
            http_boot_ipv6: false,
            driver: None,
            entropy: true,
            trace: Vec::new(),
            from_power_on: false,
            extra: Vec::new(),
        }
    }

    /// Gives the machine a stub for a debugger, which listens at `socket`.
    pub fn debugged_at(&mut self, socket: &Path) {
        let stub = format!("unix:{},server=on,wait=off", socket.display());
        self.extra.extend(["-gdb".into(), stub.into()]);
    }

    /// Leaves OVMF its PXE over one version of IP, or over none, so that the boot goes straight to what comes next (HTTP Boot).
    pub fn pxe_only(&mut self, version: Option<IpVersion>) {
        let names = [
            (IpVersion::V4, "opt/org.tianocore/IPv4PXESupport"),
            (IpVersion::V6, "opt/org.tianocore/IPv6PXESupport"),
        ];
        self.firmware_configuration
            .retain(|(name, _)| names.iter().all(|(_, ours)| name != ours));
        let off = names.into_iter().filter(|(of, _)| version != Some(*of));
        self.firmware_configuration
            .extend(off.map(|(_, name)| (name.to_owned(), "no".to_owned())));
    }

    /// Has the machine's next boot find the variables that its last one, as `name`, has left.
    ///
    /// # Errors
    /// When there are none: it has not run, or has no UEFI.
    pub fn keep_variables(&mut self, lab: &Lab, name: &str) -> Result<()> {
        let Firmware::Ovmf { variables, .. } = &mut self.firmware else {
            bail!("a machine without UEFI has no variables")
        };
        let left = variables_of(lab, name);
        let kept = left.with_extension("kept");
        fs::copy(&left, &kept).with_context(|| format!("reading {}", left.display()))?;
        *variables = kept;
        Ok(())
    }

    /// Builds the machine, which stands still; it goes on from the state that QEMU reads from `incoming`, if there is any.
    pub(crate) fn build(
        &self,
        lab: &Lab,
        name: &str,
        incoming: Option<&str>,
        watch: impl FnMut(&str) + Send + 'static,
    ) -> Result<RunningMachine> {
        let socket = lab.scratch().join(format!("{name}.qmp"));
        let _ = fs::remove_file(&socket);
        let messages = lab.scratch().join(format!("{name}.qemu.log"));
        let mut command = lab.command(&self.qemu);
        self.arguments(&mut command, lab, name, &socket)?;
        if let Some(incoming) = incoming {
            command.args(["-incoming", incoming]);
            // QEMU would tell the network of the machine, in its name.
            command.args(["-global", "migration.announce-rounds=0"]);
        }
        log::debug!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(&messages).context("making a file for QEMU's messages")?);
        let mut child = command
            .spawn()
            .with_context(|| format!("starting {}: is it installed?", self.qemu.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("QEMU has no console")
        };
        let console = Console::new(output, input, watch);
        let connected = Qmp::connect(&socket, Duration::from_secs(30));
        let mut running = RunningMachine {
            child,
            qmp: None,
            console,
            power_on: 0.0,
            from_snapshot: incoming.is_some(),
            messages,
            trace_log: trace_log(lab, name),
        };
        match connected {
            Ok(qmp) => running.qmp = Some(qmp),
            Err(error) => bail!("QEMU did not start ({error:#}): {}", running.messages()),
        }
        Ok(running)
    }

    /// What the machine finds in its firmware's variable store; none without one.
    pub(crate) fn variables(&self) -> Result<Option<Vec<u8>>> {
        let Firmware::Ovmf { variables, .. } = &self.firmware else {
            return Ok(None);
        };
        let mut content = fs::read(variables).with_context(|| {
            format!(
                "reading {}: is the package ovmf installed?",
                variables.display()
            )
        })?;
        if self.http_boot_ipv6 {
            variables::boot_next(&mut content, self.http_boot()?)?;
        }
        if let Some(driver) = &self.driver {
            variables::load_driver(&mut content, driver)?;
        }
        Ok(Some(content))
    }

    fn arguments(&self, command: &mut Command, lab: &Lab, name: &str, socket: &Path) -> Result<()> {
        let memory = format!("{}M", self.memory_mib);
        let mut machine = self.machine.clone();
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-vga",
            "std",
            "-name",
            name,
        ]);
        if self.preallocate || self.shares_memory {
            machine.push_str(",memory-backend=ram");
            let kind = if self.shares_memory {
                "memory-backend-memfd,share=on"
            } else {
                "memory-backend-ram"
            };
            let touched = if self.preallocate { "on" } else { "off" };
            command.args([
                "-object",
                &format!("{kind},id=ram,size={memory},prealloc={touched}"),
            ]);
        }
        command.args([
            "-machine",
            &machine,
            "-accel",
            if self.counts_instructions {
                "tcg,thread=single"
            } else {
                self.accelerator.qemu()
            },
            "-cpu",
            &self.processor,
        ]);
        if self.counts_instructions {
            let shift = TICKS_PER_INSTRUCTION.ilog2();
            command.args(["-icount", &format!("shift={shift}")]);
        }
        command.args(["-smp", &self.processors.to_string(), "-m", &memory]);
        command.args([
            "-chardev",
            "stdio,id=console,signal=off",
            "-serial",
            "chardev:console",
        ]);
        command.args([
            "-qmp",
            &format!("unix:{},server=on,wait=off", escaped(socket)),
            "-S",
            "-no-reboot",
        ]);
        if self.entropy {
            command.args(["-device", "virtio-rng-pci"]);
        }
        if !self.trace.is_empty() {
            let log = trace_log(lab, name);
            let _ = fs::remove_file(&log);
            command.args(["-msg", "timestamp=on", "-D"]).arg(log);
            command.args(self.trace.iter().flat_map(|event| ["-trace", event]));
        }
        if self.http_boot_ipv6 {
            // Time for the firmware's own IPv6 address: without it, its HTTP Boot fails at once.
            command.args(["-boot", "menu=on,splash-time=3000"]);
        }
        if let (Firmware::Ovmf { code, .. }, Some(variables)) = (&self.firmware, self.variables()?)
        {
            let copy = variables_of(lab, name);
            fs::write(&copy, variables).with_context(|| format!("writing {}", copy.display()))?;
            command.args([
                "-drive",
                &format!(
                    "if=pflash,unit=0,format=raw,readonly=on,file={}",
                    escaped(code)
                ),
            ]);
            command.args([
                "-drive",
                &format!("if=pflash,unit=1,format=raw,file={}", escaped(&copy)),
            ]);
        }
        if let Some(card) = &self.network {
            let mut device = format!("{},netdev=net0,id=nic0,mac={}", card.model, card.mac);
            if let Some(index) = card.boot_index {
                device.push_str(&format!(",bootindex={index}"));
            }
            device.push_str(&format!(
                ",romfile={}",
                card.rom.as_deref().map(escaped).unwrap_or_default()
            ));
            if self.http_boot_ipv6 {
                device.push_str(&format!(",addr={SLOT:#x}"));
            }
            for property in &card.properties {
                device.push(',');
                device.push_str(property);
            }
            command.args(["-netdev", &card.netdev, "-device", &device]);
        } else {
            command.args(["-nic", "none"]);
        }
        for (number, disk) in self.disks.iter().enumerate() {
            let (drive, index) = match disk {
                Disk::Image { path, boot_index } => (
                    format!("file={},format=raw,snapshot=on", escaped(path)),
                    boot_index,
                ),
                Disk::Directory { path, boot_index } => (
                    format!("file=fat:rw:{},format=raw", escaped(path)),
                    boot_index,
                ),
            };
            let index = index
                .map(|index| format!(",bootindex={index}"))
                .unwrap_or_default();
            command.args(["-drive", &format!("if=none,id=disk{number},{drive}")]);
            command.args([
                "-device",
                &format!("virtio-blk-pci,drive=disk{number}{index}"),
            ]);
        }
        if let Some(direct) = &self.kernel {
            command
                .arg("-kernel")
                .arg(&direct.kernel)
                .args(["-append", &direct.command_line]);
            if let Some(initrd) = &direct.initrd {
                command.arg("-initrd").arg(initrd);
            }
        }
        for (name, text) in &self.firmware_configuration {
            command.args([
                "-fw_cfg",
                &format!("name={name},string={}", text.replace(',', ",,")),
            ]);
        }
        command.args(&self.extra);
        Ok(())
    }

    /// Where the firmware will have its HTTP Boot over IPv6.
    fn http_boot(&self) -> Result<HttpBoot6> {
        let card = self
            .network
            .as_ref()
            .context("HTTP Boot needs a network card")?;
        let mut bytes = card.mac.split(':').map(|byte| u8::from_str_radix(byte, 16));
        let mut mac = [0; 6];
        for to in &mut mac {
            *to = bytes
                .next()
                .with_context(|| format!("{} is no MAC address", card.mac))??;
        }
        Ok(HttpBoot6 { slot: SLOT, mac })
    }
}

/// The card's slot where it has to be known: far from those that QEMU gives by itself.
const SLOT: u8 = 0x10;

/// A path inside a QEMU option, where a comma is doubled.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// What the machine has of its firmware's variables.
fn variables_of(lab: &Lab, name: &str) -> PathBuf {
    lab.scratch().join(format!("{name}.variables"))
}

fn trace_log(lab: &Lab, name: &str) -> PathBuf {
    lab.scratch().join(format!("{name}.trace"))
}

/// Something that QEMU did.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEvent {
    /// When, in seconds since the Unix epoch.
    pub time: f64,
    /// QEMU's name for it.
    pub name: String,
    /// What follows the name, as QEMU writes it; empty for an event without arguments.
    pub arguments: String,
}

impl TraceEvent {
    /// `thread@seconds:name arguments`
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once('@')?;
        let (time, rest) = rest.split_once(':')?;
        let (name, arguments) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(Self {
            time: time.parse().ok()?,
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        })
    }
}

/// A machine that is switched on. It ends with this value.
pub struct RunningMachine {
    child: Child,
    qmp: Option<Qmp>,
    /// Its serial console.
    pub console: Console,
    /// When it was switched on, or went on from a snapshot, in seconds since the Unix epoch.
    pub power_on: f64,
    /// It began with a snapshot.
    pub from_snapshot: bool,
    messages: PathBuf,
    trace_log: PathBuf,
}

impl RunningMachine {
    /// QEMU's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What QEMU itself said so far.
    #[must_use]
    pub fn messages(&self) -> String {
        fs::read_to_string(&self.messages).unwrap_or_default()
    }

    /// The trace events so far.
    #[must_use]
    pub fn trace(&self) -> Vec<TraceEvent> {
        let log = fs::read_to_string(&self.trace_log).unwrap_or_default();
        log.lines().filter_map(TraceEvent::parse).collect()
    }

    /// Runs a command of the QEMU Machine Protocol; its answer.
    ///
    /// # Errors
    /// When QEMU refuses it or has ended.
    pub fn ask(&mut self, command: &str, arguments: Value) -> Result<Value> {
        self.qmp
            .as_mut()
            .context("QEMU has no control socket")?
            .execute(command, arguments)
    }

    /// Runs a command of QEMU's human monitor; its answer as text.
    ///
    /// # Errors
    /// When QEMU refuses it or has ended.
    pub fn monitor(&mut self, command: &str) -> Result<String> {
        let answer = self.ask("human-monitor-command", json!({ "command-line": command }))?;
        Ok(answer.as_str().unwrap_or_default().to_owned())
    }

    /// The status in the answer to a command of the QEMU Machine Protocol; empty where there is none yet.
    pub(crate) fn status(&mut self, command: &str) -> Result<String> {
        let answer = self.ask(command, json!({}))?;
        let status = answer.get("status").and_then(Value::as_str);
        Ok(status.unwrap_or_default().to_owned())
    }

    /// Waits until the snapshot that the machine begins with is read.
    pub(crate) fn wait_for_snapshot(&mut self) -> Result<()> {
        wait_until(SNAPSHOT, "QEMU to read the snapshot", || {
            Ok(self.status("query-status")? != "inmigrate")
        })
    }

    /// Plugs the network cable in or out.
    ///
    /// # Errors
    /// When QEMU refuses it or has ended.
    pub fn set_link(&mut self, up: bool) -> Result<()> {
        self.ask("set_link", json!({ "name": "net0", "up": up }))
            .map(drop)
    }

    /// Writes what the screen shows to a PNG file.
    ///
    /// # Errors
    /// When QEMU refuses it or has ended.
    pub fn screenshot(&mut self, file: &Path) -> Result<()> {
        self.ask("screendump", json!({ "filename": file, "format": "png" }))
            .map(drop)
    }

    /// Presses keys together on the keyboard, by QEMU's names for them (`esc`, `f2`, `ret`, `a`).
    ///
    /// # Errors
    /// When QEMU refuses it or has ended.
    pub fn press(&mut self, keys: &[&str]) -> Result<()> {
        let keys: Vec<_> = keys
            .iter()
            .map(|key| json!({ "type": "qcode", "data": key }))
            .collect();
        self.ask("send-key", json!({ "keys": keys })).map(drop)
    }

    /// Presses the power button: the system shuts down.
    ///
    /// # Errors
    /// When QEMU refuses it or has ended.
    pub fn power_button(&mut self) -> Result<()> {
        self.ask("system_powerdown", json!({})).map(drop)
    }

    /// Waits until the machine switches itself off or restarts, which ends it too. `None` when it has not in time.
    ///
    /// # Errors
    /// When its end cannot be learned.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + timeout;
        loop {
            let status = self.child.try_wait().context("waiting for QEMU")?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Why the machine ended by itself, for an error message; `None` while it runs.
    pub fn failure(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let how = match (status.code(), status.signal()) {
            (Some(0), _) => "the machine switched itself off".to_owned(),
            (Some(code), _) => format!("QEMU ended with exit status {code}"),
            (None, signal) => format!("QEMU was ended by signal {}", signal.unwrap_or(0)),
        };
        Some(format!("{how}. {}", self.messages()).trim_end().to_owned())
    }
}

impl Drop for RunningMachine {
    fn drop(&mut self) {
        // Only this one process, and only when it has not ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_lines_are_taken_apart() {
        let event =
            TraceEvent::parse("1234@1795265768.712771:virtio_set_status vdev 0x55d0 val 15")
                .unwrap();
        assert_eq!(event.name, "virtio_set_status");
        assert_eq!(event.arguments, "vdev 0x55d0 val 15");
        assert!((event.time - 1_795_265_768.712_771).abs() < 1e-6);
        assert_eq!(TraceEvent::parse("qemu: warning: something"), None);
    }

    #[test]
    fn the_last_choice_of_pxe_holds() {
        let mut machine = Machine::new(Accelerator::Tcg);
        machine.pxe_only(None);
        assert_eq!(machine.firmware_configuration.len(), 2);
        machine.pxe_only(Some(IpVersion::V6));
        let off = [(
            "opt/org.tianocore/IPv4PXESupport".to_owned(),
            "no".to_owned(),
        )];
        assert_eq!(machine.firmware_configuration, off);
    }
}
