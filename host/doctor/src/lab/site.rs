//! The network of an examination, with what is wrong on it, and its servers.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use wireboot_lab::loaders::{FOLDER, shim_and_grub};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{INTERFACE, Network, NetworkOptions, SERVER};
use wireboot_lab::payload::{self, INSTALLER_FILES};
use wireboot_lab::station::Station;
use wireboot_lab::{Impairment, atftpd};

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

/// The file that GRUB asks for when it has all others.
const END: &str = "end";
/// Where the second DHCP server is.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);

/// What iperf3 says of each test, in the lab's scratch directory.
pub const IPERF3: &str = "iperf3.json";

/// The network and its servers. They end with this value.
pub(crate) struct Site {
    pub(crate) network: Network,
    servers: Vec<Server>,
    /// The second DHCP server's.
    _station: Option<Station>,
}

impl Site {
    /// With wireboot.efi in front of shim, where it is given.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub(crate) fn new(lab: &Lab, faults: &[Fault], wireboot: Option<&Path>) -> Result<Self> {
        let has = |fault| faults.contains(&fault);
        let root = lab.scratch().join("root");
        files(&root)?;
        if let Some(program) = wireboot {
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
            dnsmasq(lab, &root, faults, wireboot.is_some()),
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
        Ok(Self {
            network,
            servers,
            _station: second,
        })
    }

    /// Starts iperf3, whose results in JSON go to the file [`IPERF3`] of the lab.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn serve_iperf3(&mut self, lab: &Lab) -> Result<()> {
        let mut command = lab.command("iperf3");
        command.args(["--server", "--json", "--forceflush"]);
        let server = Server::start(command, lab.scratch().join(IPERF3))?;
        self.servers.push(server);
        Ok(())
    }

    /// # Errors
    /// When a server has ended, with what it said.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.servers.iter_mut().try_for_each(Server::check)
    }
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
fn dnsmasq(lab: &Lab, root: &Path, faults: &[Fault], wireboot: bool) -> Command {
    let has = |fault| faults.contains(&fault);
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
        let first = if wireboot {
            "wireboot.efi"
        } else {
            "bootnetx64.efi"
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
