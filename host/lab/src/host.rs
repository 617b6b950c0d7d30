//! Where something was measured: without it the figures mean little.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::ip::IpVersion;
use crate::qemu::{Accelerator, Machine};

/// The host, and the machines on it.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// When it began, UTC.
    pub date: Timestamp,
    /// The command line that measured, without the path to the program.
    pub command: String,
    /// The commit that this program was built from; empty where it was not built by `make`.
    pub commit: &'static str,
    /// SHA-256 of the firmware program that was measured, in hexadecimal digits; empty where it was none.
    pub program_sha256: String,
    /// The part of the processors' time that other work took in the second before it began; 0 where it could not be read.
    pub busy: f64,
    /// The processor's name.
    pub cpu: String,
    /// Processors that the measurement may use.
    pub cores: usize,
    /// All memory of the host, in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The virtual machines that were measured, if there were some.
    #[serde(flatten)]
    pub guests: Option<Guests>,
    /// The version of each server.
    pub servers: Vec<String>,
}

/// What virtual machines have in common.
#[derive(Clone, Debug, Serialize)]
pub struct Guests {
    /// QEMU's version.
    pub qemu: String,
    /// What runs the guests: `kvm` or `tcg`.
    pub accel: Accelerator,
    /// Processors of each guest.
    pub guest_processors: u32,
    /// Memory of each guest, in MiB.
    pub guest_memory_mib: u32,
    /// Their network, where all have the same.
    #[serde(flatten)]
    pub network: Option<GuestNetwork>,
}

/// The network of virtual machines.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GuestNetwork {
    /// The version of IP in which everything happened.
    pub ip: IpVersion,
    /// The tap interface's MTU in bytes.
    pub mtu: u16,
}

impl Guests {
    fn new(accel: Accelerator, ip: IpVersion, mtu: u16) -> Self {
        let machine = Machine::new(accel);
        let qemu = Command::new(&machine.qemu)
            .arg("--version")
            .output()
            .map(|output| output.stdout)
            .unwrap_or_default();
        Self {
            qemu: String::from_utf8_lossy(&qemu)
                .split_whitespace()
                .nth(3)
                .unwrap_or_default()
                .to_owned(),
            accel,
            guest_processors: machine.processors,
            guest_memory_mib: machine.memory_mib,
            network: Some(GuestNetwork { ip, mtu }),
        }
    }
}

impl fmt::Display for Guests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "QEMU {} with {}, guest: {} processors, {} MiB",
            self.qemu, self.accel, self.guest_processors, self.guest_memory_mib
        )?;
        self.network.map_or(Ok(()), |network| {
            write!(f, ", {}, MTU {}", network.ip, network.mtu)
        })
    }
}

impl Host {
    /// Looks it up, and the virtual machines on it; what cannot be found is left empty. `program` is the firmware program that is measured, `busy`
    /// what [`quiet`] has found.
    #[must_use]
    pub fn new(
        program: Option<&Path>,
        busy: f64,
        accel: Accelerator,
        ip: IpVersion,
        mtu: u16,
        servers: Vec<String>,
    ) -> Self {
        Self {
            program_sha256: program
                .and_then(|file| fs::read(file).ok())
                .map(|bytes| hexadecimal(&Sha256::digest(bytes)))
                .unwrap_or_default(),
            guests: Some(Guests::new(accel, ip, mtu)),
            ..Self::without_guests(busy, servers)
        }
    }

    /// The same where the virtual machines have several networks.
    #[must_use]
    pub fn with_several_networks(mut self) -> Self {
        if let Some(guests) = &mut self.guests {
            guests.network = None;
        }
        self
    }

    /// The same where the virtual machines are like this one.
    #[must_use]
    pub fn with_guests_like(mut self, machine: &Machine) -> Self {
        if let Some(guests) = &mut self.guests {
            guests.guest_processors = machine.processors;
            guests.guest_memory_mib = machine.memory_mib;
        }
        self
    }

    /// The same without virtual machines.
    #[must_use]
    pub fn without_guests(busy: f64, servers: Vec<String>) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            date: Timestamp::now(),
            command: command(std::env::args()),
            commit: option_env!("WIREBOOT_COMMIT").unwrap_or_default(),
            program_sha256: String::new(),
            busy,
            cpu: value(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: value(&read("/proc/meminfo"), "MemTotal")
                .split(' ')
                .next()
                .and_then(|kib| kib.parse::<u64>().ok())
                .unwrap_or(0)
                >> 10,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            guests: None,
            servers,
        }
    }

    /// What was measured, a struct or a map, with the host in front: its JSON has the field `host` before its own.
    #[must_use]
    pub fn before<'a, T>(&'a self, measured: &'a T) -> Hosted<'a, T> {
        Hosted {
            host: self,
            measured,
        }
    }

    /// What runs the guests' instructions, for a title.
    #[must_use]
    pub fn accelerator(&self) -> String {
        let guests = self.guests.as_ref();
        guests.map_or_else(|| "no guests".into(), |guests| guests.accel.to_string())
    }

    /// What was measured where, when and by which command.
    #[must_use]
    pub fn provenance(&self) -> String {
        let commit = match self.commit {
            "" => "unknown",
            commit => commit,
        };
        let program = match self.program_sha256.get(..12) {
            Some(digest) => format!(", the firmware's program {digest}"),
            None => String::new(),
        };
        format!(
            "Made by `{}`, {}, commit {commit}{program}. {self}. In the second before, other work took {:.0} % of the processors' time.",
            self.command,
            self.date.strftime("%Y-%m-%d %H:%M UTC"),
            self.busy * 100.0
        )
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} processors), Linux {}",
            self.cpu, self.cores, self.kernel
        )?;
        if let Some(guests) = &self.guests {
            write!(f, ", {guests}")?;
        }
        if !self.servers.is_empty() {
            write!(f, "; {}", self.servers.join(", "))?;
        }
        Ok(())
    }
}

/// What [`Host::before`] makes.
#[derive(Debug, Serialize)]
pub struct Hosted<'a, T> {
    host: &'a Host,
    #[serde(flatten)]
    measured: &'a T,
}

/// Other work above this part of the processors' time spoils the figures.
const BUSY: f64 = 0.2;

/// Looks for a second at what else keeps the host's processors busy, other machines on the same host among it, and returns its part of
/// their time, 0 to 1.
///
/// # Errors
/// When that is so much that the figures would be wrong, unless `force`d: packet-by-packet stacks suffer several times more from it
/// than others, so the comparison would be unfair.
pub fn quiet(force: bool) -> Result<f64> {
    allowed(other_work(), force)
}

/// The part that other work takes, where it is little, or `force`d.
fn allowed(busy: f64, force: bool) -> Result<f64> {
    if busy > BUSY {
        let message = format!(
            "the host is busy: {:.0} % of its processors' time goes elsewhere, so the figures will be wrong, and unfair to slow stacks",
            busy * 100.0
        );
        if !force {
            bail!("{message}. Wait until it is quiet, or measure all the same with --force");
        }
        eprintln!("{message}");
    }
    Ok(busy)
}

/// Looks for a second at what else keeps the host's processors busy: its part of their time, 0 to 1, and 0 where it cannot be read.
#[must_use]
pub fn other_work() -> f64 {
    let stat = || fs::read_to_string("/proc/stat").unwrap_or_default();
    let before = stat();
    std::thread::sleep(Duration::from_secs(1));
    busy(&before, &stat()).unwrap_or(0.0)
}

/// The part of all processors' time that was not idle between two readings of /proc/stat.
fn busy(before: &str, after: &str) -> Option<f64> {
    let times = |stat: &str| -> Option<(f64, f64)> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let times: Vec<f64> = line
            .split_whitespace()
            .map_while(|time| time.parse().ok())
            .collect();
        // user, nice, system, idle, waiting for disks, interrupts, soft interrupts, stolen; guests' time is the user's as well.
        let times = times.get(..8)?;
        Some((times.iter().sum(), times.get(3)? + times.get(4)?))
    };
    let ((all_before, idle_before), (all, idle)) = (times(before)?, times(after)?);
    let all = all - all_before;
    (all > 0.0).then(|| 1.0 - (idle - idle_before) / all)
}

/// Two digits for each byte.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The command as somebody would type it, whatever the path to the program.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let arguments: Vec<String> = arguments.skip(1).collect();
    format!("wireboot {}", arguments.join(" "))
}

/// The value of the first line `key: value`.
fn value(text: &str, key: &str) -> String {
    let found = text
        .lines()
        .find_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == key));
    found
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_idle_is_busy() {
        let before = "cpu  100 0 50 1000 10 0 0 5 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        // 20 ticks of users, 10 stolen, 60 idle, 10 waiting for a disk.
        let after = "cpu  120 0 50 1060 20 0 0 15 27 0\n";
        assert!((busy(before, after).unwrap() - 0.3).abs() < 1e-9);
        assert_eq!(busy(before, before), None);
        assert_eq!(busy("", after), None);
        assert_eq!(busy("cpu  1 2 3\n", after), None);
    }

    #[test]
    fn a_busy_host_is_refused_unless_forced() {
        for force in [false, true] {
            assert_eq!(allowed(BUSY, force).unwrap(), BUSY);
        }
        assert_eq!(allowed(0.26, true).unwrap(), 0.26);
        let refused = allowed(0.26, false).unwrap_err().to_string();
        assert!(
            refused.contains("busy: 26 % of") && refused.ends_with("with --force"),
            "{refused}"
        );
    }

    #[test]
    fn json_names_the_host_before_what_was_measured() {
        #[derive(Serialize)]
        struct Measured {
            seconds: [f64; 2],
        }
        let seconds = [0.5, 1.5];
        let host = Host::without_guests(0.25, Vec::new());
        let text = serde_json::to_string(&host.before(&Measured { seconds })).unwrap();
        assert!(text.starts_with("{\"host\":{"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["seconds"], serde_json::json!(seconds));
        assert_eq!(json["host"]["busy"], 0.25);
        for key in ["date", "command", "commit", "cpu", "cores", "kernel"] {
            assert!(json["host"].get(key).is_some(), "host.{key}");
        }
    }

    #[test]
    fn the_command_is_told_without_the_programs_path() {
        let arguments = ["/a/b/wireboot", "lab", "bench", "--ip", "6"];
        assert_eq!(
            command(arguments.into_iter().map(str::to_owned)),
            "wireboot lab bench --ip 6"
        );
    }

    #[test]
    fn values_are_found_by_key() {
        let text = "processor\t: 0\nmodel name\t: Some CPU\nmodel name\t: Other\n";
        assert_eq!(value(text, "model name"), "Some CPU");
        assert_eq!(value(text, "model"), "");
    }
}
