//! The network of an examination, with what is wrong on it, and its servers.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use wireboot_lab::background::{Background, Pauses};
use wireboot_lab::ip::{IpVersion, host};
use wireboot_lab::loaders::{FOLDER, shim_and_grub};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{self, INTERFACE, Network, NetworkOptions, SERVER, SERVER6};
use wireboot_lab::payload::{self, INSTALLER_FILES};
use wireboot_lab::qemu::{Machine, RunningMachine};
use wireboot_lab::station::Station;
use wireboot_lab::{Impairment, atftpd, nginx, tftpd_hpa};

use super::{Hardware, Trial, names};

/// What is wrong with the network, or with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
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
    /// The TFTP server knows no windows and refuses block sizes (tftpd-hpa)
    NoBlksize,
    /// One packet in a hundred is lost
    Loss,
    /// The way there and back takes 20 ms
    Delay,
    /// The machine's port belongs to a group that waits 12 s for LACP before it falls back
    Lacp,
    /// The DHCP server says that it knows the boot file (option 60), and its port 4011 never answers
    SilentProxy,
    /// The TFTP server stands still for 0.3 s, again and again, as with a slow disk
    SlowDisk,
    /// The way's MTU is 1400, so that the firmware's blocks fit no packet
    SmallMtu,
    /// The firmware tries HTTP Boot over IPv6 first, which nobody speaks
    #[value(name = "ipv6-first")]
    Ipv6First,
    /// The name server answers after 1 s, and the boot file's URL has a name; with --ip 6, as PXE over IPv4 asks for none. shim takes no names: the boot ends there
    SlowNames,
    /// The first network boot option is that of a card without a cable; found from inside
    DeadOption,
    /// The firmware waits 5 s for its menu; found from inside
    MenuTimeout,
    /// The time of day takes the firmware 1 ms longer, and it asks for it with each packet; found from inside
    SlowTime,
    /// Each variable takes the firmware 5 ms longer to write; found from inside
    SlowVariables,
    /// The console is as slow as a serial port of 9600 bits a second; found from inside
    SlowConsole,
    /// Four more receivers get each frame that the card receives; found from inside
    Receivers,
    /// The firmware has the marks of a DEBUG build; found from inside
    DebugBuild,
    /// The firmware has no random numbers; found from inside
    NoRng,
    /// The machine stands still for 0.3 s of every 0.6 s; found from inside
    StoppedMachine,
    /// The memory that the firmware gives the card is not cached; found from inside
    UncachedMemory,
}

impl Fault {
    /// Whether there is none of it with HTTP Boot: a fault of the TFTP server or of DHCP's answer for PXE, or HTTP Boot itself.
    pub(super) fn is_of_pxe(self) -> bool {
        matches!(
            self,
            Self::NoBootFile
                | Self::MissingFile
                | Self::NoWindowsize
                | Self::NoBlksize
                | Self::SilentProxy
                | Self::SlowDisk
                | Self::Ipv6First
        )
    }

    /// Whether it says which server gives files by TFTP. There is one such server, so no two of these.
    pub(super) fn is_of_one_server(self) -> bool {
        matches!(self, Self::NoWindowsize | Self::NoBlksize | Self::SlowDisk)
    }

    /// The version of IP whose own servers and options it is one of; `None` where it is of both.
    pub(super) fn version(self) -> Option<IpVersion> {
        match self {
            Self::LateDhcp
            | Self::TwoDhcp
            | Self::Option43
            | Self::NoBootFile
            | Self::MissingFile
            | Self::SilentProxy
            | Self::Ipv6First => Some(IpVersion::V4),
            Self::SlowNames => Some(IpVersion::V6),
            _ => None,
        }
    }
}

/// How long the machine's port waits for LACP.
const FALLBACK: Duration = Duration::from_secs(12);
/// How long the slow TFTP server stands still, and how long it then works.
const STANDS: Duration = Duration::from_millis(300);
const WORKS: Duration = Duration::from_millis(200);
/// How long the machine that is stopped stands still, and how long it then runs.
const STOPPED: Duration = Duration::from_millis(300);
const RUNS: Duration = Duration::from_millis(300);
/// The MTU of the narrow way.
const SMALL_MTU: u16 = 1400;
/// The port of proxyDHCP and boot servers (PXE 2.1).
const PROXY: u16 = 4011;
/// The card without a cable.
const DEAD: &str = "dead";

/// The file that GRUB asks for when it has all others.
const END: &str = "end";
/// Where the second DHCP server is.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);

/// What iperf3 says of each test, in the lab's scratch directory.
pub const IPERF3: &str = "iperf3.json";

/// The network's MTU in bytes.
pub(super) fn mtu(hardware: &Hardware, faults: &[Fault]) -> u16 {
    let usual = if faults.contains(&Fault::SmallMtu) {
        SMALL_MTU
    } else {
        1500
    };
    hardware.mtu.unwrap_or(usual)
}

/// The network and its servers. They end with this value.
pub(crate) struct Site {
    pub(crate) network: Network,
    /// What stops the TFTP server: before that ends.
    _stopping: Option<Background>,
    servers: Vec<Server>,
    /// The second DHCP server's.
    _station: Option<Station>,
    /// Keeps the port open, and never answers.
    _silent: Option<UdpSocket>,
    /// The name server that is slow.
    _names: Option<Background>,
}

impl Site {
    /// With wireboot.efi in front of shim, where the trial names one. The boot file comes by HTTP, else by TFTP.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub(crate) fn new(lab: &Lab, trial: &Trial<'_>, http: bool) -> Result<Self> {
        let Trial {
            ip,
            faults,
            wireboot,
            hardware,
            is_short,
            ..
        } = *trial;
        let has = |fault| faults.contains(&fault);
        let root = lab.scratch().join("root");
        files(&root, is_short)?;
        if let Some(program) = wireboot {
            in_front(program, &root)?;
        }
        let impaired = has(Fault::Loss) || has(Fault::Delay);
        let network = Network::new(
            lab,
            NetworkOptions {
                bridge: true,
                spanning_tree: has(Fault::Stp),
                aggregation: has(Fault::Lacp).then_some(FALLBACK),
                mtu: mtu(hardware, faults),
                impairment: impaired.then(|| Impairment {
                    loss: if has(Fault::Loss) { 0.01 } else { 0.0 },
                    delay: Duration::from_millis(if has(Fault::Delay) { 10 } else { 0 }),
                    ..Impairment::default()
                }),
                ..NetworkOptions::of(ip)
            },
        )?;
        let mut servers = vec![Server::start(
            dnsmasq(lab, &root, trial, http),
            lab.scratch().join("dnsmasq.log"),
        )?];
        let mut stopping = None;
        let address = network::server(ip);
        let files = if http {
            let command = nginx::serve(lab.command("nginx"), address, &root, lab.scratch())?;
            Some((command, "nginx.log"))
        } else if has(Fault::NoBlksize) {
            let command = tftpd_hpa::serve(lab, address, &root, &["blksize"])?;
            Some((command, "tftpd-hpa.log"))
        } else if has(Fault::NoWindowsize) {
            // dnsmasq serves them, too.
            None
        } else {
            let command = atftpd::serve(lab.command("atftpd"), address, &root)?;
            Some((command, "atftpd.log"))
        };
        if let Some((command, log)) = files {
            let server = Server::start(command, lab.scratch().join(log))?;
            stopping = has(Fault::SlowDisk)
                .then(|| stop_again_and_again(server.child.id(), STANDS, WORKS));
            servers.push(server);
        }
        let silent = has(Fault::SilentProxy)
            .then(|| UdpSocket::bind((SERVER, PROXY)))
            .transpose()
            .context("opening the port of boot servers")?;
        let names = has(Fault::SlowNames)
            .then(|| names::serve(SERVER6))
            .transpose()?;
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
            _stopping: stopping,
            servers,
            _station: second,
            _silent: silent,
            _names: names,
        })
    }

    /// What is wrong with the machine itself, before it starts.
    pub(crate) fn prepare(faults: &[Fault], machine: &mut Machine) {
        let mut more: Vec<&str> = Vec::new();
        let netdev = format!("hubport,id={DEAD},hubid=1");
        // Behind the disk that the machine may have, and before the card that works.
        let device =
            format!("virtio-net-pci,netdev={DEAD},mac=52:54:00:77:00:dd,bootindex=2,romfile=");
        if faults.contains(&Fault::DeadOption) {
            more.extend(["-netdev", &netdev, "-device", &device]);
            if let Some(card) = &mut machine.network {
                card.boot_index = Some(3);
            }
        }
        machine.entropy = !faults.contains(&Fault::NoRng);
        machine.http_boot_ipv6 = faults.contains(&Fault::Ipv6First);
        if faults.contains(&Fault::MenuTimeout) {
            more.extend(["-boot", "menu=on,splash-time=5000"]);
        }
        machine.extra.extend(more.into_iter().map(Into::into));
    }

    /// The word that has doctor.efi itself make what is wrong, if it does.
    pub(crate) fn planted(faults: &[Fault]) -> Option<&'static str> {
        let uncached = faults.contains(&Fault::UncachedMemory);
        uncached.then_some("plant=uncached-memory")
    }

    /// What is wrong with the machine that runs. It goes on until the result is dropped, which is to be before the machine.
    ///
    /// # Errors
    /// When QEMU refuses.
    pub(crate) fn disturb(
        faults: &[Fault],
        running: &mut RunningMachine,
    ) -> Result<Option<Background>> {
        if faults.contains(&Fault::DeadOption) {
            let card = json!({ "name": DEAD, "up": false });
            running.ask("set_link", card)?;
        }
        // Not by QEMU's own command: that stops the machine's clock, too, and nothing inside notices.
        let stops = || stop_again_and_again(running.pid(), STOPPED, RUNS);
        Ok(faults.contains(&Fault::StoppedMachine).then(stops))
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

/// Has a process of ours stand still and work by turns.
fn stop_again_and_again(process: u32, stands: Duration, works: Duration) -> Background {
    let process = Pid::from_raw(process.cast_signed());
    Background::start(move |pauses| {
        let signal = |signal| kill(process, signal).is_ok();
        // On a busy host a thread stops later than it was told.
        while signal(Signal::SIGSTOP)
            && stops(process, pauses)
            && pauses.pause(stands)
            && signal(Signal::SIGCONT)
            && pauses.pause(works)
        {}
        signal(Signal::SIGCONT);
    })
}

/// Waits until each thread of a process that was told to stop has stopped. False when the work is to end, or it has ended.
fn stops(process: Pid, pauses: &Pauses) -> bool {
    loop {
        match is_stopped(process) {
            Ok(true) => return true,
            Ok(false) if pauses.pause(Duration::from_millis(1)) => {}
            _ => return false,
        }
    }
}

fn is_stopped(process: Pid) -> io::Result<bool> {
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread that ends meanwhile is one that has not stopped.
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else {
            return Ok(false);
        };
        // proc_pid_stat(5): the state is behind the name, which may have parentheses of its own.
        let state = stat.rsplit_once(") ").map(|(_, fields)| fields);
        if !state.is_some_and(|fields| fields.starts_with('T')) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A short trial's initial RAM disk, in bytes.
const SHORT: u64 = 1 << 20;
/// A file of zeros that nobody boots, as large as what others have measured with, and its bytes.
const LARGE: (&str, u64) = ("192-mib", 192 << 20);

/// What the servers offer: shim, GRUB, the installer, and a large file.
fn files(root: &Path, is_short: bool) -> Result<()> {
    let [kernel, initrd] = INSTALLER_FILES;
    let menu = format!(
        "set timeout=0\nmenuentry x {{\nlinux /{kernel}\ninitrd /{initrd}\ncat /{END}\nsleep 1000\n}}\n"
    );
    shim_and_grub(root, &menu)?;
    payload::copy_installer(root)?;
    if is_short {
        let file = fs::File::options().write(true).open(root.join(initrd));
        file.and_then(|file| file.set_len(SHORT))
            .context("cutting the initial RAM disk")?;
    }
    let (name, bytes) = LARGE;
    let large = fs::File::create(root.join(name));
    large
        .and_then(|file| file.set_len(bytes))
        .context("making the large file")?;
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
fn dnsmasq(lab: &Lab, root: &Path, trial: &Trial<'_>, http: bool) -> Command {
    let has = |fault| trial.faults.contains(&fault);
    let mut command = lab.command("dnsmasq");
    common(&mut command, &lab.scratch().join("dnsmasq.leases"));
    let first = match trial.wireboot {
        Some(_) => "wireboot.efi",
        None => "bootnetx64.efi",
    };
    match trial.ip {
        IpVersion::V4 => addresses(&mut command, trial, first, http),
        IpVersion::V6 => {
            let mut server = host(network::server(IpVersion::V6));
            if has(Fault::SlowNames) {
                command.arg(format!("--dhcp-option=option6:dns-server,{server}"));
                server = names::NAME.to_owned();
            }
            let scheme = if http { "http" } else { "tftp" };
            let url = format!("{scheme}://{server}/{FOLDER}/{first}");
            if http {
                // dnsmasq writes the vendor class as texts with their lengths, so the first one stands for the enterprise number.
                command.arg("--dhcp-option=option6:16,ab,HTTPClient");
            }
            command.args([
                "--enable-ra",
                "--dhcp-range=fd00:77::100,fd00:77::1ff,64,1h",
                &format!("--dhcp-option=option6:bootfile-url,{url}"),
            ]);
        }
    }
    if has(Fault::NoWindowsize) && !has(Fault::NoBlksize) {
        command
            .arg("--enable-tftp")
            .arg(format!("--tftp-root={}", root.display()));
    }
    command
}

/// DHCP of IPv4, with what may be wrong with it.
fn addresses(command: &mut Command, trial: &Trial<'_>, first: &str, http: bool) {
    let has = |fault| trial.faults.contains(&fault);
    // shim reads its own file's name from the packet's field.
    command.args([
        "--dhcp-range=10.77.0.50,10.77.0.99,255.255.255.0",
        "--no-ping",
        "--dhcp-no-override",
    ]);
    if has(Fault::MissingFile) {
        command.arg("--dhcp-boot=grubx46.efi");
    } else if has(Fault::SilentProxy) {
        command.arg("--dhcp-option-force=60,PXEClient");
    } else if http {
        command.args([
            "--dhcp-option-force=60,HTTPClient",
            &format!("--dhcp-boot=http://{SERVER}/{FOLDER}/{first}"),
        ]);
    } else if !has(Fault::NoBootFile) {
        command.arg(format!("--dhcp-boot={FOLDER}/{first}"));
    }
    if has(Fault::LateDhcp) {
        command.arg("--dhcp-reply-delay=5");
    }
    if has(Fault::Option43) {
        // An access point's controller.
        command.arg("--dhcp-option-force=43,f1:04:0a:4d:00:09");
    }
}
