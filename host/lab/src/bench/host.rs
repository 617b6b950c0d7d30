//! Where the benchmark ran: without it the figures mean little.

use std::fs;
use std::process::Command;

use serde::Serialize;

use crate::ip::IpVersion;
use crate::qemu::Accelerator;

/// The host and the machines on it.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The processor's name.
    pub cpu: String,
    /// Processors that the benchmark may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// QEMU's version.
    pub qemu: String,
    /// What runs the guests: `kvm` or `tcg`.
    pub accel: Accelerator,
    /// The guests' processors.
    pub guest_processors: u32,
    /// The guests' memory in MiB.
    pub guest_memory_mib: u32,
    /// The version of IP in which everything happened.
    pub ip: IpVersion,
    /// The tap interface's MTU in bytes.
    pub mtu: u16,
    /// The version of each server.
    pub servers: Vec<String>,
}

impl Host {
    /// Looks it up; what cannot be found is left empty.
    #[must_use]
    pub fn new(accel: Accelerator, ip: IpVersion, mtu: u16, servers: Vec<String>) -> Host {
        let machine = crate::qemu::Machine::new(accel);
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let qemu = Command::new(&machine.qemu)
            .arg("--version")
            .output()
            .map(|output| output.stdout)
            .unwrap_or_default();
        Host {
            cpu: value(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: value(&read("/proc/meminfo"), "MemTotal")
                .split(' ')
                .next()
                .and_then(|kib| kib.parse::<u64>().ok())
                .unwrap_or(0)
                >> 10,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            qemu: String::from_utf8_lossy(&qemu)
                .split_whitespace()
                .nth(3)
                .unwrap_or_default()
                .to_owned(),
            accel,
            guest_processors: machine.processors,
            guest_memory_mib: machine.memory_mib,
            ip,
            mtu,
            servers,
        }
    }
}

/// What else keeps the host busy, where it is enough to spoil the figures: packet-by-packet stacks suffer several times more from it
/// than others, so the comparison would be unfair.
#[must_use]
pub fn busy() -> Option<String> {
    let average = fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = average.split(' ').next()?.parse().ok()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let warn = load > cores as f64 / 4.0;
    warn.then(|| format!("the host is busy (load average {load} on {cores} processors): the figures will be wrong, and unfair to the slow"))
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
    fn values_are_found_by_key() {
        let text = "processor\t: 0\nmodel name\t: Some CPU\nmodel name\t: Other\n";
        assert_eq!(value(text, "model name"), "Some CPU");
        assert_eq!(value(text, "model"), "");
    }
}
