//! Debian packages: which command needs which, and installing those that are missing.

use crate::shell::{self, as_root};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A virtual machine, its network and what it boots.
pub(crate) const BOOT: &[&str] = &[
    "qemu-system-x86",
    "ovmf",
    "iproute2",
    "debian-installer-12-netboot-amd64",
    "tcpdump",
];

/// Clients that we did not write, for our servers.
pub(crate) const CLIENTS: &[&str] = &["atftp", BUSYBOX, "curl", "isc-dhcp-client", "tftp-hpa"];

/// Either serves, and they exclude each other.
pub(crate) const BUSYBOX: &str = "busybox|busybox-static";

/// Servers that we did not write.
pub(crate) const SERVERS: &[&str] = &[
    "atftpd",
    "dnsmasq-base",
    "iperf3",
    "isc-dhcp-server",
    "kea-dhcp4-server",
    "kea-dhcp6-server",
    "nginx-light",
    "radvd",
];

/// Boot programs that start ours, or that ours starts.
pub(crate) const LOADERS: &[&str] = &["grub-efi-amd64-bin", "ipxe"];

/// Drivers for network cards that stock firmware does not drive, as the cards' ROMs.
pub(crate) const ROMS: &[&str] = &["ipxe-qemu"];

/// What signs programs for Secure Boot.
pub(crate) const SIGNING: &[&str] = &["openssl", "sbsigntool"];

/// What puts a configuration into wireboot.efi.
pub(crate) const EMBEDDING: &[&str] = &["binutils"];

/// The rivals, and the instruments that time them.
pub(crate) const BENCH: &[&str] = &[
    "atftpd",
    BUSYBOX,
    "dnsmasq-base",
    "grub-efi-amd64-bin",
    "ipxe",
    "ipxe-qemu",
    "nginx-light",
    "seabios",
    "valgrind",
];

/// A rival of the card, with the drivers that it is measured by.
pub(crate) const DPDK: &[&str] = &["dpdk-dev", "librte-net-tap23", "librte-net-vhost23"];

/// What counts instructions.
pub(crate) const COUNTING: &[&str] = &["valgrind"];

/// Services that some of the packages above would start and enable.
const SERVICES: &[(&str, &str)] = &[
    ("atftpd", "atftpd.service"),
    ("iperf3", "iperf3.service"),
    ("isc-dhcp-server", "isc-dhcp-server.service"),
    ("kea-dhcp4-server", "kea-dhcp4-server.service"),
    ("kea-dhcp6-server", "kea-dhcp6-server.service"),
    ("nginx-light", "nginx.service"),
    ("radvd", "radvd.service"),
];

/// Whether all of these are installed.
pub(crate) fn installed(packages: &[&str]) -> bool {
    missing(packages).is_empty()
}

/// Installs those of the packages that are missing. Without missing ones, this neither needs a network nor takes time.
/// No service is started or enabled on the way.
pub(crate) fn ensure(packages: &[&str]) -> Result<()> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    if !shell::succeeds(Command::new("apt-get").arg("--version")) {
        bail!(
            "these Debian packages are missing and there is no apt-get; install what they hold: {}",
            missing.join(" ")
        );
    }
    println!("Installing Debian packages: {}", missing.join(" "));
    let _policy = NoServices::begin()?;
    if install(&missing).is_err() {
        // One source of several that fails does not matter if the others have what is needed.
        if shell::run(as_root("apt-get").args(["update", "-q"])).is_err() {
            println!("apt-get update has failed; trying with what apt knows");
        }
        install(&missing).context(OFFLINE)?;
    }
    for (package, service) in SERVICES {
        if missing.contains(package) {
            // Fails where systemd is not: then nothing starts services either.
            shell::succeeds(as_root("systemctl").args(["disable", service]));
        }
    }
    Ok(())
}

const OFFLINE: &str = "apt cannot install what is needed; is the machine on line, with Debian 12's main section enabled?";

fn install(packages: &[&str]) -> Result<()> {
    shell::run(
        as_root("apt-get")
            .args(["install", "-y", "-q", "--no-install-recommends"])
            // A machine that has just started may be at its own upgrades.
            .args(["-o", "DPkg::Lock::Timeout=300"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

/// The packages of which no alternative (`first|second`) is installed, each by its first alternative.
fn missing<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Status} ${Package}\n"])
        .args(packages.iter().flat_map(|package| package.split('|')))
        .stderr(Stdio::null())
        .output();
    let listed = query.map(|output| output.stdout).unwrap_or_default();
    let listed = String::from_utf8_lossy(&listed);
    let is_installed = |package: &str| {
        listed
            .lines()
            .any(|line| line.split_once(' ') == Some(("installed", package)))
    };
    let mut missing: Vec<&str> = packages
        .iter()
        .filter(|package| !package.split('|').any(is_installed))
        .filter_map(|package| package.split('|').next())
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Debian's way to say that packages may be installed but their services not started: a policy-rc.d that answers 101.
/// Ours does so only while this process lives, so that one left behind by a kill does no harm. An administrator's own stays.
struct NoServices;

impl NoServices {
    const PATH: &str = "/usr/sbin/policy-rc.d";
    const MARK: &str = "# wireboot: no services while it installs packages";

    fn begin() -> Result<Self> {
        if !Path::new(Self::PATH).exists() || Self::is_ours() {
            let process = std::process::id();
            let policy = format!(
                "#!/bin/sh\n{}\n[ -d /proc/{process} ] && exit 101\nexit 0\n",
                Self::MARK
            );
            let script = format!(
                "printf %s '{policy}' > {path} && chmod 755 {path}",
                path = Self::PATH
            );
            shell::output(as_root("sh").args(["-c", &script]))?;
        }
        Ok(Self)
    }

    fn is_ours() -> bool {
        fs::read_to_string(Self::PATH).is_ok_and(|policy| policy.contains(Self::MARK))
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if Self::is_ours() {
            shell::succeeds(as_root("rm").args(["-f", Self::PATH]));
        }
    }
}
