//! `wireboot serve`.

use std::fs::OpenOptions;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;
use wireboot_wire::tftp;

use crate::dhcp::{Answers, DhcpServer, DhcpSockets, Responder, find_other_server};
use crate::directory::{BOOT_PROGRAM, Directory};
use crate::event::{Console, Events};
use crate::http::HttpServer;
use crate::interface::{self, Interface};
use crate::stop::Stop;
use crate::tftp::{TftpConfig, TftpServer};

/// Most addresses in a range that nobody asked for.
const DEFAULT_RANGE: u32 = 1024;

/// Serve a directory to machines that boot from the network.
///
/// Gives x64 UEFI machines an address, wireboot.efi, and the directory's files, by DHCP, TFTP and HTTP. What to boot is said
/// by DIR/wireboot.conf; without one it is made from the kernels, RAM disks and EFI programs that DIR holds.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Directory to serve
    pub dir: PathBuf,
    /// Network interface to serve; needed when there are several
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,
    /// Address of this server, such as 192.168.7.1/24; the interface is given it while the server runs, unless it has it
    #[arg(long, value_name = "CIDR")]
    pub address: Option<Cidr>,
    /// Leave addresses to the DHCP server that the network has; only say what to boot (proxyDHCP)
    #[arg(long, conflicts_with_all = ["no_dhcp", "range", "authoritative", "router", "dns"])]
    pub proxy: bool,
    /// The wireboot.efi to hand out [default: the one beside this program, else DIR/wireboot.efi]
    #[arg(long, value_name = "FILE")]
    pub nbp: Option<PathBuf>,
    /// Addresses to give [default: the upper half of the interface's network, at most 1024]
    #[arg(long, value_name = "FROM-TO")]
    pub range: Option<AddressRange>,
    /// Default gateway to tell clients of
    #[arg(long, value_name = "ADDRESS")]
    pub router: Option<Ipv4Addr>,
    /// Name server to tell clients of; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub dns: Vec<Ipv4Addr>,
    /// Give addresses without asking first whether another DHCP server does
    #[arg(long)]
    pub authoritative: bool,
    /// TCP port of the HTTP server
    #[arg(long, value_name = "N", default_value_t = 80)]
    pub http_port: u16,
    /// Largest TFTP window granted, in blocks
    #[arg(long, value_name = "BLOCKS", default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_window: u16,
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
}

/// An IPv4 address with the bits of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: Ipv4Addr,
    /// 0 to 32.
    pub prefix: u8,
}

impl FromStr for Cidr {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            Some(Self {
                address: address.parse().ok()?,
                prefix: prefix.parse().ok().filter(|prefix| *prefix <= 32)?,
            })
        });
        parsed.ok_or("expected an address with its prefix, such as 192.168.7.1/24")
    }
}

/// The first and the last of some IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first.
    pub first: Ipv4Addr,
    /// The last; not before the first.
    pub last: Ipv4Addr,
}

impl FromStr for AddressRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('-').and_then(|(first, last)| {
            Some(Self {
                first: first.trim().parse().ok()?,
                last: last.trim().parse().ok()?,
            })
        });
        parsed
            .filter(|range| range.first <= range.last)
            .ok_or("expected the first and the last address, such as 192.168.7.100-192.168.7.200")
    }
}

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// What keeps it from serving, and what to do about it.
pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let events = events(&args)?;
    let directory = Arc::new(directory(&args)?);
    let interface = choose_interface(
        interface::all()?,
        args.interface.as_deref(),
        args.address.is_some(),
    )?;
    let _address = args
        .address
        .map(|cidr| TemporaryAddress::add(&interface, cidr))
        .transpose()?;
    let cidr = server_address(&interface, args.address)?;
    events.say(format!(
        "serving {} at {} on {}",
        args.dir.display(),
        cidr.address,
        interface.name
    ));
    say_what_is_served(&args, &directory, &events);

    allow_many_files();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let stop = Stop::default();
    let threads = start(&args, &interface, cidr, &directory, &events, &stop)?;
    events.say("ready");
    let signal = signals.forever().next().and_then(signal_name);
    events.say(format!("{} received, ending", signal.unwrap_or("a signal")));
    stop.set();
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}

type Threads = Vec<std::thread::JoinHandle<()>>;
type Serve = Box<dyn FnOnce(&Stop) -> io::Result<()> + Send>;

fn start(
    args: &ServeArgs,
    interface: &Interface,
    cidr: Cidr,
    directory: &Arc<Directory>,
    events: &Events,
    stop: &Stop,
) -> anyhow::Result<Threads> {
    let mut threads = Threads::new();
    let mut thread = |what: &'static str, body: Serve| {
        let (stop, events) = (stop.clone(), events.clone());
        let body = move || {
            if let Err(error) = body(&stop) {
                events.say(format!("the {what} server ended: {error}"));
            }
        };
        std::thread::Builder::new()
            .name(what.to_owned())
            .spawn(body)
            .map(|thread| threads.push(thread))
    };
    if !args.no_tftp {
        let config = TftpConfig {
            listen: SocketAddrV4::new(cidr.address, tftp::PORT),
            max_window: args.max_window,
        };
        let bound = TftpServer::bind(config, directory.clone(), events.clone());
        let server =
            bound.map_err(|error| bind_error(error, "UDP", tftp::PORT, "TFTP", "--no-tftp"))?;
        thread("TFTP", Box::new(move |stop| server.run(stop)))?;
    }
    if !args.no_http {
        let listen = SocketAddrV4::new(cidr.address, args.http_port);
        let bound = HttpServer::bind(listen, directory.clone(), events.clone());
        let server = bound
            .map_err(|error| bind_error(error, "TCP", args.http_port, "HTTP", "--http-port"))?;
        thread("HTTP", Box::new(move |stop| server.run(stop)))?;
    }
    if !args.no_dhcp {
        // Before the port is bound, or this server would hear the question too.
        if !args.proxy && !args.authoritative {
            refuse_beside_another(interface)?;
        }
        let bound = DhcpSockets::bind(interface, args.proxy);
        let sockets = bound.map_err(|error| bind_error(error, "UDP", 67, "DHCP", "--no-dhcp"))?;
        let answers = answers(args, cidr)?;
        if let Some(range) = &answers.range {
            events.say(format!(
                "giving addresses {} to {}",
                range.start(),
                range.end()
            ));
        }
        let server = DhcpServer::new(
            sockets,
            Responder::new(answers),
            cidr.address,
            events.clone(),
        );
        thread("DHCP", Box::new(move |stop| server.run(stop)))?;
    }
    Ok(threads)
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

fn directory(args: &ServeArgs) -> anyhow::Result<Directory> {
    if let Some(nbp) = &args.nbp
        && !nbp.is_file()
    {
        bail!("--nbp {}: there is no such file", nbp.display());
    }
    let beside = || {
        let program = std::env::current_exe().ok()?;
        Some(program.parent()?.join(BOOT_PROGRAM)).filter(|path| path.is_file())
    };
    let boot_program = args.nbp.clone().or_else(beside);
    Directory::open(&args.dir, boot_program)
        .with_context(|| format!("cannot serve {}", args.dir.display()))
}

fn say_what_is_served(args: &ServeArgs, directory: &Directory, events: &Events) {
    if directory.find(BOOT_PROGRAM).is_err() {
        let missing = "there is no wireboot.efi: firmware will find nothing to load; name one with --nbp, or put it into";
        events.say(format!("{missing} {}", args.dir.display()));
    }
    match directory.boot_configuration() {
        Some(text) => events.say(format!("wireboot.conf, made from what {} holds:\n{text}", args.dir.display())),
        None if directory.find("wireboot.conf").is_err() => events.say(format!(
            "{} has no wireboot.conf, and nothing that one could be made from (a kernel named linux, vmlinuz or bzImage, an EFI program)",
            args.dir.display()
        )),
        None => {}
    }
}

/// The interface to serve: the named one, or the only one that machines may be connected to.
fn choose_interface(
    all: Vec<Interface>,
    name: Option<&str>,
    has_address: bool,
) -> anyhow::Result<Interface> {
    let list = |interfaces: &[Interface]| {
        let line = |interface: &Interface| {
            let addresses: Vec<_> = interface
                .addresses
                .iter()
                .map(|(address, prefix)| format!(" {address}/{prefix}"))
                .collect();
            format!("\n  {}{}", interface.name, addresses.concat())
        };
        interfaces.iter().map(line).collect::<String>()
    };
    if let Some(name) = name {
        let Some(interface) = all.iter().find(|interface| interface.name == name) else {
            bail!(
                "there is no network interface {name}; there are:{}",
                list(&all)
            );
        };
        return Ok(interface.clone());
    }
    let usable = |interface: &Interface| {
        interface.may_have_machines && (has_address || !interface.addresses.is_empty())
    };
    let mut candidates: Vec<Interface> = all.into_iter().filter(usable).collect();
    match candidates.len() {
        1 => Ok(candidates.remove(0)),
        0 => bail!(
            "no network interface is up and has an IPv4 address; set one up, or name one with --interface and --address"
        ),
        _ => bail!(
            "several network interfaces could be meant; choose one with --interface:{}",
            list(&candidates)
        ),
    }
}

fn server_address(interface: &Interface, asked: Option<Cidr>) -> anyhow::Result<Cidr> {
    let own = || {
        interface
            .addresses
            .first()
            .map(|&(address, prefix)| Cidr { address, prefix })
    };
    asked.or_else(own).with_context(|| {
        let name = &interface.name;
        format!("the interface {name} has no IPv4 address; give it one with --address, such as --address 192.168.7.1/24")
    })
}

fn answers(args: &ServeArgs, cidr: Cidr) -> anyhow::Result<Answers> {
    let range = match (args.proxy, args.range) {
        (true, _) => None,
        (false, Some(range)) => Some(range.first..=range.last),
        (false, None) => Some(default_range(cidr)?),
    };
    let port = match args.http_port {
        80 => String::new(),
        port => format!(":{port}"),
    };
    Ok(Answers {
        server: cidr.address,
        prefix: cidr.prefix,
        range,
        router: args.router,
        dns: args.dns.clone(),
        tftp: !args.no_tftp,
        http: (!args.no_http).then(|| format!("http://{}{port}", cidr.address)),
    })
}

/// The upper half of the network, without its broadcast address.
fn default_range(cidr: Cidr) -> anyhow::Result<RangeInclusive<Ipv4Addr>> {
    if cidr.prefix > 30 {
        bail!(
            "a /{} network has no room for clients; name the addresses to give with --range",
            cidr.prefix
        );
    }
    let size = 1u64 << (32 - cidr.prefix);
    let network = u64::from(u32::from(cidr.address)) & !(size - 1);
    let count = (size / 2 - 1).min(DEFAULT_RANGE.into());
    let first = network + size / 2;
    let at = |offset: u64| Ipv4Addr::from((first + offset) as u32);
    Ok(at(0)..=at(count.max(1) - 1))
}

fn refuse_beside_another(interface: &Interface) -> anyhow::Result<()> {
    let found = find_other_server(interface).context(
        "cannot ask whether another DHCP server is there (--authoritative does not ask)",
    )?;
    if let Some(other) = found {
        bail!(
            "the DHCP server {} already gives addresses on {}; run beside it with --proxy (or instead of it with --authoritative)",
            other.address,
            interface.name
        );
    }
    Ok(())
}

/// Why a port could not be had, and what to do.
fn bind_error(
    error: io::Error,
    protocol: &str,
    port: u16,
    service: &str,
    option: &str,
) -> anyhow::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            let flags = if protocol == "UDP" { "-lunp" } else { "-ltnp" };
            format!("another program, most likely another {service} server, has it: find it with `ss {flags} sport = :{port}`, or use {option}")
        }
        io::ErrorKind::PermissionDenied => {
            "run as root, or give this program the capabilities cap_net_bind_service, cap_net_raw and cap_net_admin".to_owned()
        }
        _ => format!("see {option}"),
    };
    anyhow::Error::new(error).context(format!(
        "cannot use {protocol} port {port} for {service}: {advice}"
    ))
}

/// Each transfer holds a file and a socket, and the usual limit of 1024 is for programs that use select(2).
fn allow_many_files() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With the usual limit it serves fewer at a time.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// An address that the interface has while this lives.
#[derive(Debug)]
struct TemporaryAddress {
    cidr: String,
    interface: String,
    added: bool,
}

impl TemporaryAddress {
    fn add(interface: &Interface, cidr: Cidr) -> anyhow::Result<Self> {
        let this = Self {
            cidr: format!("{}/{}", cidr.address, cidr.prefix),
            interface: interface.name.clone(),
            added: !interface.addresses.contains(&(cidr.address, cidr.prefix)),
        };
        if this.added {
            ip(&["link", "set", "dev", &this.interface, "up"])?;
            ip(&[
                "address",
                "add",
                &this.cidr,
                "broadcast",
                "+",
                "dev",
                &this.interface,
            ])?;
        }
        Ok(this)
    }
}

impl Drop for TemporaryAddress {
    fn drop(&mut self) {
        if self.added {
            let _ = ip(&["address", "delete", &self.cidr, "dev", &self.interface]);
        }
    }
}

/// Runs the command `ip` of iproute2.
fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("cannot run `ip` (Debian's package iproute2)")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`ip {}` failed: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addresses: &[(Ipv4Addr, u8)], may_have_machines: bool) -> Interface {
        Interface {
            name: name.to_owned(),
            index: 1,
            mac: None,
            addresses: addresses.to_vec(),
            may_have_machines,
        }
    }

    #[test]
    fn the_only_interface_that_serves_is_chosen() {
        let lan = (Ipv4Addr::new(10, 0, 0, 1), 24);
        let all = vec![
            interface("lo", &[(Ipv4Addr::LOCALHOST, 8)], false),
            interface("down", &[], true),
            interface("lan", &[lan], true),
        ];
        let chosen = choose_interface(all.clone(), None, false).unwrap();
        assert_eq!(chosen.name, "lan");
        assert_eq!(
            choose_interface(all.clone(), Some("lo"), false)
                .unwrap()
                .name,
            "lo"
        );
        let error = choose_interface(all.clone(), Some("eth9"), false)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("eth9") && error.contains("lan 10.0.0.1/24"),
            "{error}"
        );
        let error = choose_interface(all, None, true).unwrap_err().to_string();
        assert!(
            error.contains("--interface") && error.contains("down"),
            "{error}"
        );
        let error = choose_interface(vec![], None, false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("--address"), "{error}");
    }

    #[test]
    fn the_default_range_is_the_upper_half_of_the_network() {
        let range = |cidr: &str| {
            let range = default_range(cidr.parse().unwrap()).unwrap();
            format!("{}-{}", range.start(), range.end())
        };
        assert_eq!(range("192.168.7.1/24"), "192.168.7.128-192.168.7.254");
        assert_eq!(range("10.1.2.3/8"), "10.128.0.0-10.128.3.255");
        assert_eq!(range("10.0.0.1/30"), "10.0.0.2-10.0.0.2");
        assert_eq!(range("1.2.3.4/0"), "128.0.0.0-128.0.3.255");
        assert!(default_range("10.0.0.1/31".parse().unwrap()).is_err());
    }

    #[test]
    fn arguments_are_checked() {
        assert!("10.0.0.1".parse::<Cidr>().is_err());
        assert!("10.0.0.1/33".parse::<Cidr>().is_err());
        assert!("10.0.0.9-10.0.0.1".parse::<AddressRange>().is_err());
        let range: AddressRange = "10.0.0.1-10.0.0.9".parse().unwrap();
        assert_eq!(range.last, Ipv4Addr::new(10, 0, 0, 9));
    }
}
