//! `wireboot serve`: its arguments, and what is opened before the server runs.

mod address;
mod end;
mod start;

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::Args;
use landlock::PathFd;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::rand::GetRandomFlags;
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

pub use self::address::{AddressRange, Cidr};
use self::address::{Addresses, TemporaryAddress, choose_interface};
use self::end::End;
use self::start::{check_ipv4, http as http_url, open, start};
use crate::boot_conf::{BOOT_PROGRAM, DOCTOR};
use crate::check;
use crate::confine::{self, Account, Needs};
use crate::directory::Directory;
use crate::event::{Console, Events};
use crate::interface;
use crate::reports::Reports;
use crate::station::Station;
use crate::stop::Stop;

/// Serve a directory to machines that boot from the network.
///
/// Gives x64 UEFI machines an address (unless another server does), wireboot.efi, and the directory's files, by DHCP, TFTP and
/// HTTP. What to boot is said by DIR/wireboot.conf; without one it is made from the kernels, RAM disks and EFI programs that DIR
/// holds.
///
/// IPv6 is served beside IPv4 where the interface has an IPv6 address: TFTP, HTTP and DHCPv6, which gives addresses of the interface's network
/// unless another DHCPv6 server does, and says what to boot. Routers and prefixes are told to nobody without --ra.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Directory to serve
    pub dir: PathBuf,
    /// Network interface to serve; needed when there are several
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,
    /// Address of this server, such as 192.168.7.1/24 or fd00:7::1/64, one of each version; the interface is given it while the server runs, unless it has it; nobody else may have it
    #[arg(long, value_name = "CIDR")]
    pub address: Vec<Cidr>,
    /// Leave addresses to the DHCP server that the network has, without looking for it; only say what to boot (proxyDHCP)
    #[arg(long, conflicts_with_all = ["no_dhcp", "range", "authoritative", "router", "dns"])]
    pub proxy: bool,
    /// Serve nothing: say what is wrong with DIR (its wireboot.conf, files that are missing, wireboot.efi), and end
    #[arg(long)]
    pub check: bool,
    /// The wireboot.efi to hand out [default: the one beside this program, else DIR/wireboot.efi]
    #[arg(long, value_name = "FILE")]
    pub nbp: Option<PathBuf>,
    /// IPv4 addresses to give [default: the upper half of the interface's network, at most 1024]
    #[arg(long, value_name = "FROM-TO")]
    pub range: Option<AddressRange>,
    /// IPv4 default gateway to tell clients of, in the interface's network
    #[arg(long, value_name = "ADDRESS")]
    pub router: Option<Ipv4Addr>,
    /// Name server to tell clients of, IPv4 or IPv6; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub dns: Vec<IpAddr>,
    /// Send IPv6 router advertisements: the interface's prefix, and where DHCPv6 is. For networks without an IPv6 router
    #[arg(long, conflicts_with = "no_ipv6")]
    pub ra: bool,
    /// Give addresses whether or not another DHCP server does, without looking for one
    #[arg(long)]
    pub authoritative: bool,
    /// Keep leases in FILE, so that they outlive this server [default: /var/lib/wireboot/IF.leases]
    #[arg(long, value_name = "FILE")]
    pub leases: Option<PathBuf>,
    /// Who the server becomes, when root starts it, once it has its ports; the files in DIR must be readable for this user [default: nobody]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// TCP port of the HTTP server
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..))]
    pub http_port: u16,
    /// Answer TFTP, DHCP and DHCPv6 requests from beyond the interface's networks, too. They are easily forged, to send the answers to somebody
    /// else
    #[arg(long)]
    pub anyone: bool,
    /// Largest TFTP window granted, in blocks
    #[arg(long, value_name = "BLOCKS", default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_window: u16,
    /// Take in the reports that doctor.efi sends (by HTTP, POST /report), a file each in the folder REPORTS, which is made if it is not there.
    /// `wireboot report REPORTS` shows them. A machine that measures its network, as an examination by doctor.efi does, is sent as many frames as this
    /// computer can send, 0.3 s each time, 1 s at most (UDP port 7077)
    #[arg(long, value_name = "REPORTS", conflicts_with = "no_http")]
    pub reports: Option<PathBuf>,
    /// Append what happens to FILE, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// Log JSON lines to standard error
    #[arg(long)]
    pub json: bool,
    /// No DHCP: another server says what to boot
    #[arg(long)]
    pub no_dhcp: bool,
    /// No TFTP
    #[arg(long)]
    pub no_tftp: bool,
    /// No HTTP
    #[arg(long)]
    pub no_http: bool,
    /// IPv4 only
    #[arg(long)]
    pub no_ipv6: bool,
}

/// Serves until SIGINT, SIGTERM or SIGHUP.
///
/// # Errors
/// What keeps it from serving, or from going on, and what to do about it.
pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let events = events(&args)?;
    if args.no_dhcp && args.no_tftp && args.no_http {
        bail!("--no-dhcp, --no-tftp and --no-http leave nothing to serve");
    }
    let directory = Arc::new(directory(&args.dir, args.nbp.as_deref())?);
    let account = Account::choose(args.user.as_deref())?;
    if args.check {
        confine::become_user(account.as_ref(), CapabilitySet::empty())?;
        if !args.no_http {
            directory.reached_at("http://SERVER/".to_owned());
        }
        return check_only(&directory);
    }
    let has_address = !args.address.is_empty();
    let mut interface =
        choose_interface(interface::all()?, args.interface.as_deref(), has_address)?;
    let given: Result<Vec<_>, _> = args
        .address
        .iter()
        .map(|cidr| TemporaryAddress::add(&interface, *cidr, &events))
        .collect();
    let _given = given?;
    if has_address {
        // The interface may have come up with them, and got its link-local address.
        interface = choose_interface(interface::all()?, Some(&interface.name), true)?;
    }
    let addresses = Addresses::of(&interface, &args.address, args.no_ipv6)?;
    check_ipv4(&args, &interface, addresses, &events)?;
    let hosts: Vec<String> = addresses.hosts().collect();
    // Installers ask by IPv4 where there is both.
    if let Some(host) = hosts.first()
        && !args.no_http
    {
        directory.reached_at(http_url(&args, host) + "/");
    }
    events.say(format!(
        "serving {} at {} on {}",
        args.dir.display(),
        hosts.join(" and "),
        interface.name
    ));
    allow_many_files();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    if !ignores_hangup() {
        signals.add_signal(SIGHUP)?;
    }
    let reports = args.reports.as_deref();
    let reports = reports.map(|path| ReportsFolder::open(path, account.as_ref()));
    let reports = reports.transpose()?;
    let taken = reports.as_ref().map(|folder| &folder.reports);
    let opened = open(&args, &interface, addresses, &directory, taken, &events)?;
    let gives = !args.proxy && !args.no_dhcp;
    let folder = || folder_of_leases(&opened.leases, &args, account.as_ref(), &events);
    let folder = if gives {
        folder()?
    } else {
        LeasesFolder::default()
    };
    let of_reports = reports
        .as_ref()
        .map(|folder| PathFd::new(folder.reports.path()));
    let needs = Needs {
        low_ports: !args.no_dhcp,
        served: directory.as_fd(),
        read: directory.folders_of_programs(),
        written: folder
            .written
            .into_iter()
            .chain(of_reports.transpose()?)
            .collect(),
        emptied: Vec::new(),
        confined: confine::Confined::Server,
    };
    events.say(confine::confine(account.as_ref(), &needs)?);
    if let Some(folder) = &reports {
        folder.check()?;
    }
    say_what_is_served(&directory, &events);
    // From here on a thread writes the log. Started after confining, it is confined, too; it ends after the servers.
    let _writer = events.start_writer().context("starting the log")?;
    let (end, failure) = End::new(signals.handle());
    let threads = start(
        &args, &interface, addresses, &directory, opened, &events, &end,
    )?;
    events.say("ready");
    let failed = match signals.forever().next() {
        Some(signal) => {
            let signal = signal_name(signal).unwrap_or("a signal");
            events.say(format!("{signal} received, ending"));
            None
        }
        None => failure.try_recv().ok(),
    };
    end.stop.set();
    for thread in threads {
        let _ = thread.join();
    }
    failed.map_or(Ok(()), Err)
}

fn events(args: &ServeArgs) -> anyhow::Result<Events> {
    let file = args.events.as_ref().map(|path| {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened.with_context(|| format!("cannot write events to {}", path.display()))
    });
    let console = if args.json {
        Console::Json
    } else {
        Console::Human
    };
    Ok(Events::new(console, file.transpose()?))
}

/// The folder that leases are written in.
#[derive(Default)]
struct LeasesFolder {
    written: Option<PathFd>,
    /// Open as long as the server runs, if it was given to the server's user: no server of another user takes it.
    _kept: Option<File>,
}

/// The folder that leases are written in, made ready for `account`. Says why it cannot be had.
///
/// # Errors
/// When a server that runs as another user has it: it could keep its leases no more.
fn folder_of_leases(
    path: &Path,
    args: &ServeArgs,
    account: Option<&Account>,
    events: &Events,
) -> anyhow::Result<LeasesFolder> {
    let say =
        |error: &dyn Display| events.say(format!("the folder of {}: {error}", path.display()));
    let kept = match confine::prepare_folder(path, args.leases.is_none(), account) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => bail!(
            "another server, which runs as another user, keeps its leases in the folder of {}, too: start this one with the same --user, or name a file in another folder with --leases",
            path.display()
        ),
        prepared => prepared.inspect_err(|error| say(error)).ok().flatten(),
    };
    let opened = path.parent().map(PathFd::new);
    let opened = opened.and_then(|opened| opened.inspect_err(|error| say(error)).ok());
    Ok(LeasesFolder {
        written: opened,
        _kept: kept,
    })
}

/// The folder that reports are kept in.
pub struct ReportsFolder {
    reports: Arc<Reports>,
    /// Open as long as the server runs, if it was given to the server's user.
    _kept: Option<File>,
}

impl ReportsFolder {
    /// Made, if it is not there.
    ///
    /// # Errors
    /// When it cannot be made, or read.
    pub fn new(path: &Path) -> anyhow::Result<Self> {
        Self::open(path, None)
    }

    /// Its path, as it was named.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.reports.path()
    }

    /// Made, if it is not there, for `account`.
    fn open(path: &Path, account: Option<&Account>) -> anyhow::Result<Self> {
        let named = || format!("--reports {}", path.display());
        let kept = confine::prepare_new_folder(path, account).with_context(named)?;
        let reports = Reports::open(path).with_context(named)?;
        Ok(Self {
            reports: Arc::new(reports),
            _kept: kept,
        })
    }

    /// Whether this process can keep files there.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(&self) -> anyhow::Result<()> {
        let named = || format!("--reports {}", self.reports.path().display());
        self.reports.try_to_write().with_context(named)
    }
}

/// `dir` with the programs that lie beside this one, or with `nbp` in the place of that wireboot.efi.
fn directory(dir: &Path, nbp: Option<&Path>) -> anyhow::Result<Directory> {
    if let Some(nbp) = nbp
        && !nbp.is_file()
    {
        bail!("--nbp {}: there is no such file", nbp.display());
    }
    let beside = |name| {
        let program = std::env::current_exe().ok()?;
        Some(program.parent()?.join(name)).filter(|path| path.is_file())
    };
    let boot_program = nbp.map(Path::to_owned).or_else(|| beside(BOOT_PROGRAM));
    Directory::open(dir, boot_program)
        .and_then(|directory| directory.with_doctor(beside(DOCTOR)))
        .with_context(|| format!("cannot serve {}", dir.display()))
}

/// A [`Station`] that serves `dir` and the programs beside this one on the network of this number.
///
/// # Errors
/// When `dir` cannot be read, or the system gives no random numbers.
pub fn station(
    dir: &Path,
    events: Events,
    network: u8,
    reports: Option<&ReportsFolder>,
) -> anyhow::Result<Station> {
    let directory = directory(dir, None)?;
    std::fs::read_dir(dir).with_context(|| format!("cannot serve {}", dir.display()))?;
    let mut random = [0; 18];
    let filled = rustix::rand::getrandom(&mut random, GetRandomFlags::empty())
        .context("asking the system for random numbers")?;
    ensure!(filled == 18, "the system gave too few random numbers");
    let station = Station::new(directory, events, network, random);
    Ok(match reports {
        Some(folder) => station.with_reports(folder.reports.clone()),
        None => station,
    })
}

/// Gives up all that a card does not need which serves `directory`, writes in the folders `written` and removes names from the folders `emptied`.
/// This thread and those that it starts from here on are confined. Says what is in force.
///
/// # Errors
/// When a folder is not there, or rights cannot be given up; what the kernel lacks is none.
pub fn confine_card(
    directory: &Directory,
    written: &[PathBuf],
    emptied: &[PathBuf],
) -> anyhow::Result<String> {
    let opened = |folders: &[PathBuf]| {
        let folders = folders.iter();
        let folders =
            folders.map(|path| PathFd::new(path).with_context(|| path.display().to_string()));
        folders.collect::<anyhow::Result<Vec<_>>>()
    };
    let needs = Needs {
        low_ports: false,
        served: directory.as_fd(),
        read: directory.folders_of_programs(),
        written: opened(written)?,
        emptied: opened(emptied)?,
        confined: confine::Confined::Card,
    };
    confine::confine(None, &needs)
}

/// Tells what a directory that is served holds, and what is wrong with it.
pub fn say_what_is_served(directory: &Directory, events: &Events) {
    if let Some(text) = directory.boot_configuration() {
        events.say(format!(
            "wireboot.conf, made from what {} holds:\n{text}",
            directory.path().display()
        ));
    }
    check::say(&check::check(directory), events);
}

/// Tells what is wrong with a directory that is served each time that its configuration changes, as long as this process runs.
///
/// # Errors
/// When there is no thread for it.
pub fn watch_what_is_served(directory: Arc<Directory>, events: Events) -> io::Result<()> {
    let builder = std::thread::Builder::new().name("configuration".to_owned());
    let watch = move || check::watch(&directory, &events, &Stop::default());
    builder.spawn(watch).map(drop)
}

/// Tells what is wrong with the directory; an error if a boot would fail for it.
fn check_only(directory: &Directory) -> anyhow::Result<()> {
    let findings = check::check(directory);
    for finding in findings.iter().filter(|finding| !finding.is_error) {
        println!("warning: {}", finding.text);
    }
    let errors = findings.iter().filter(|finding| finding.is_error);
    let errors: Vec<_> = errors.map(|finding| finding.text.as_str()).collect();
    if !errors.is_empty() {
        bail!("{}", errors.join("\n"));
    }
    println!("{}: nothing is missing", directory.path().display());
    Ok(())
}

/// Whether SIGHUP was ignored when this program was started, as `nohup` has it: it goes on when its terminal ends.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

/// Each transfer holds a file and a socket, and the usual limit of 1024 is for programs that use select(2).
pub fn allow_many_files() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With the usual limit it serves fewer at a time.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
