//! Servers that others wrote, with the configurations of docs/deploy.

use std::fs::{self, File};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use wireboot_lab::netns::Lab;
use wireboot_lab::{atftpd, nginx};

use crate::fixture::Daemon;

/// A file of docs/deploy.
pub(crate) fn configuration(name: &str) -> Result<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deploy")).join(name);
    path.canonicalize()
        .with_context(|| format!("finding {}", path.display()))
}

fn log(lab: &Lab, name: &str) -> Result<File> {
    File::create(lab.scratch().join(name)).context("making a log")
}

/// Waits until `ready`, or tells what the server said.
fn wait(
    lab: &Lab,
    daemon: &mut Daemon,
    name: &str,
    mut ready: impl FnMut(&str) -> bool,
) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let said = fs::read_to_string(lab.scratch().join(name)).unwrap_or_default();
        if ready(&said) {
            return Ok(());
        }
        daemon.still_runs().with_context(|| said.clone())?;
        ensure!(Instant::now() < deadline, "{name}: not ready: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// dnsmasq with a configuration of docs/deploy; `command` is for the program dnsmasq, wherever it is to run.
pub(crate) fn dnsmasq(lab: &Lab, mut command: Command, file: &str) -> Result<Daemon> {
    let output = log(lab, "dnsmasq.log")?;
    command.arg(format!("--conf-file={}", configuration(file)?.display()));
    command.args([
        "--keep-in-foreground",
        "--log-facility=-",
        "--log-dhcp",
        "--user=root",
        "--pid-file=",
        "--interface=lab0",
        "--bind-interfaces",
    ]);
    command.arg(format!(
        "--dhcp-leasefile={}",
        lab.scratch().join("dnsmasq.leases").display()
    ));
    command.stdout(output.try_clone()?).stderr(output);
    let mut daemon = Daemon::start(command)?;
    wait(lab, &mut daemon, "dnsmasq.log", |said| {
        said.contains("started, version")
    })?;
    Ok(daemon)
}

/// The same on the laboratory's own computer, with its TFTP.
pub(crate) fn dnsmasq_with_tftp(lab: &Lab, file: &str, directory: &Path) -> Result<Daemon> {
    let mut command = lab.command("dnsmasq");
    command.arg("--enable-tftp");
    command.arg(format!("--tftp-root={}", directory.display()));
    dnsmasq(lab, command, file)
}

/// dnsmasq as a TFTP server alone; `command` is for the program dnsmasq, wherever it is to run.
pub(crate) fn dnsmasq_tftp(lab: &Lab, command: Command, directory: &Path) -> Result<Daemon> {
    let root = format!("--tftp-root={}", directory.display());
    dnsmasq_for(lab, command, "tftp", &["--port=0", "--enable-tftp", &root])
}

/// dnsmasq as a DNS server alone, which knows the addresses of one name.
pub(crate) fn dnsmasq_dns(lab: &Lab, name: &str, addresses: &[IpAddr]) -> Result<Daemon> {
    let records = addresses
        .iter()
        .map(|address| format!("--address=/{name}/{address}"));
    let mut arguments = vec!["--no-resolv".to_owned(), "--no-hosts".to_owned()];
    arguments.extend(records);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    dnsmasq_for(lab, lab.command("dnsmasq"), "dns", &arguments)
}

/// dnsmasq with nothing but these arguments.
pub(crate) fn dnsmasq_for(
    lab: &Lab,
    mut command: Command,
    what: &str,
    arguments: &[&str],
) -> Result<Daemon> {
    let name = format!("dnsmasq-{what}.log");
    let output = log(lab, &name)?;
    command.args([
        "--conf-file=/dev/null",
        "--keep-in-foreground",
        "--log-facility=-",
        "--user=root",
        "--pid-file=",
    ]);
    command.args(arguments);
    command.stdout(output.try_clone()?).stderr(output);
    let mut daemon = Daemon::start(command)?;
    wait(lab, &mut daemon, &name, |said| {
        said.contains("started, version")
    })?;
    Ok(daemon)
}

/// Kea for DHCP with a configuration of docs/deploy.
pub(crate) fn kea(lab: &Lab, file: &str) -> Result<Daemon> {
    start_kea(lab, "kea-dhcp4", file, "DHCP4_STARTED")
}

/// Kea for DHCPv6 with a configuration of docs/deploy.
pub(crate) fn kea6(lab: &Lab, file: &str) -> Result<Daemon> {
    start_kea(lab, "kea-dhcp6", file, "DHCP6_STARTED")
}

fn start_kea(lab: &Lab, program: &str, file: &str, ready: &str) -> Result<Daemon> {
    let output = log(lab, "kea.log")?;
    let mut command = lab.command(program);
    command.arg("-c").arg(configuration(file)?);
    for place in ["KEA_PIDFILE_DIR", "KEA_LOCKFILE_DIR"] {
        command.env(place, lab.scratch());
    }
    command.stdout(output.try_clone()?).stderr(output);
    let mut daemon = Daemon::start(command)?;
    wait(lab, &mut daemon, "kea.log", |said| said.contains(ready))?;
    Ok(daemon)
}

/// radvd with a configuration of docs/deploy.
pub(crate) fn radvd(lab: &Lab, file: &str) -> Result<Daemon> {
    start_radvd(lab, &configuration(file)?)
}

/// radvd with a configuration of its own.
pub(crate) fn radvd_with(lab: &Lab, text: &str) -> Result<Daemon> {
    let file = lab.scratch().join("radvd.conf");
    fs::write(&file, text)?;
    start_radvd(lab, &file)
}

fn start_radvd(lab: &Lab, file: &Path) -> Result<Daemon> {
    let output = log(lab, "radvd.log")?;
    let mut command = lab.command("radvd");
    command.args(["--nodaemon", "--logmethod", "stderr", "--debug", "1"]);
    command.arg("--config").arg(file);
    command
        .arg("--pidfile")
        .arg(lab.scratch().join("radvd.pid"));
    command.stdout(output.try_clone()?).stderr(output);
    let mut daemon = Daemon::start(command)?;
    wait(lab, &mut daemon, "radvd.log", |said| {
        said.contains("started")
    })?;
    Ok(daemon)
}

/// atftpd at an address of this computer, serving a directory.
pub(crate) fn atftpd(lab: &Lab, address: IpAddr, directory: &Path) -> Result<Daemon> {
    let output = log(lab, "atftpd.log")?;
    let mut command = atftpd::serve(lab.command("atftpd"), address, directory)?;
    command.stdout(output.try_clone()?).stderr(output);
    Daemon::start(command)
}

/// nginx at an address, serving a directory; `command` is for the program nginx, wherever it is to run.
pub(crate) fn nginx(
    lab: &Lab,
    command: Command,
    address: IpAddr,
    directory: &Path,
) -> Result<Daemon> {
    let name = format!("nginx-{address}.log");
    let output = log(lab, &name)?;
    let mut command = nginx::serve(command, address, directory, lab.scratch())?;
    command.stdin(Stdio::null());
    command.stdout(output.try_clone()?).stderr(output);
    let mut daemon = Daemon::start(command)?;
    wait(lab, &mut daemon, &name, |_| {
        TcpStream::connect((address, 80)).is_ok()
    })?;
    Ok(daemon)
}
