//! The servers, each on threads of its own.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use wireboot_wire::dhcp::Message;
use wireboot_wire::dhcpv6::duid;
use wireboot_wire::tftp;

use super::ServeArgs;
use super::address::{AddressRange, Addresses};
use super::end::{self, Body, End};
use crate::arp_probe::Arp;
use crate::check;
use crate::dhcp::{self, DhcpServer, DhcpSockets};
use crate::dhcpv6::{self, DhcpV6Server, DhcpV6Sockets};
use crate::directory::Directory;
use crate::event::Events;
use crate::http::HttpServer;
use crate::interface::{Interface, Networks};
use crate::ladder::{self, LadderServer, Turns};
use crate::leases::Leases;
use crate::link_socket::LinkSocket;
use crate::listen::Listen;
use crate::other_servers::{ADVICE, OtherServers, look_out};
use crate::ports::PATIENCE;
use crate::ra::{Advertisement, RaServer, RaSocket};
use crate::reports::Reports;
use crate::stop::Stop;
use crate::tftp::{TftpConfig, TftpServer};

/// Most addresses in a range that nobody asked for.
const DEFAULT_RANGE: u32 = 1024;
/// Where leases are kept, unless systemd names a place.
const STATE: &str = "/var/lib/wireboot";

type Serve = Box<dyn FnOnce(&Stop) -> io::Result<()> + Send>;

/// The threads of the servers.
struct Threads<'a> {
    started: Vec<JoinHandle<()>>,
    /// `None` when no addresses are given.
    leases: Option<Leases>,
    directory: &'a Arc<Directory>,
    events: &'a Events,
    end: &'a End,
}

impl Threads<'_> {
    /// Starts a server.
    fn start(&mut self, what: &'static str, body: Serve) -> io::Result<()> {
        let ended = move || format!("the {what} server ended");
        let body = move |stop: &Stop| body(stop).with_context(ended);
        self.spawn(what, Box::new(body))
    }

    fn spawn(&mut self, name: &str, body: Body) -> io::Result<()> {
        let thread = self.end.spawn(name, body, self.events)?;
        self.started.push(thread);
        Ok(())
    }

    /// Looks for another server that gives addresses, from now on.
    fn look_out<T: Display + 'static>(
        &mut self,
        service: &'static str,
        others: &OtherServers,
        interface: &Interface,
        ask: fn(&Interface, Option<&Message>) -> io::Result<Option<T>>,
    ) -> io::Result<()> {
        let (others, interface) = (others.clone(), interface.clone());
        let events = self.events.clone();
        let body = move |stop: &Stop| {
            let ask = |request: Option<&Message>| ask(&interface, request);
            look_out(&others, service, ask, &events, stop);
            Ok(())
        };
        // Nobody waits for it at the end: a question takes up to ten seconds, and leaves nothing behind.
        self.end
            .spawn(service, Box::new(body), self.events)
            .map(drop)
    }
}

/// Sockets that may need rights which the server has only at its start.
pub(super) struct Opened {
    tftp: Vec<TftpServer>,
    http: Vec<HttpServer>,
    ladder: Vec<LadderServer>,
    ra: Option<RaSocket>,
    /// Whether this machine passes on what comes from the interface.
    forwards: bool,
    /// For DHCP answers to clients without an address, and for ARP. `None` without the permission.
    link: Option<LinkSocket>,
    arp: Option<io::Result<LinkSocket>>,
    /// Where leases are kept.
    pub leases: PathBuf,
    /// Those that are known already: what this user may read, the one that the server becomes may not.
    known: Leases,
}

/// Opens what the arguments ask for, but for the ports of DHCP: whether they may be shared is known only after asking for other servers.
pub(super) fn open(
    args: &ServeArgs,
    interface: &Interface,
    addresses: Addresses,
    directory: &Arc<Directory>,
    reports: Option<&Arc<Reports>>,
    events: &Events,
) -> anyhow::Result<Opened> {
    let ports = |port| {
        let ipv4 = addresses.ipv4;
        let ipv4 = ipv4.map(|(address, _)| Listen::from(SocketAddrV4::new(address, port)));
        let ipv6 = addresses.ipv6.map(|_| Listen::ipv6(interface, port));
        ipv4.into_iter().chain(ipv6)
    };
    let (mut tftp_servers, mut http_servers) = (Vec::new(), Vec::new());
    if !args.no_tftp {
        for listen in ports(tftp::PORT) {
            let option = without(&listen, "--no-tftp");
            let config = TftpConfig {
                listen,
                max_window: args.max_window,
                networks: answered(args, interface),
            };
            let bound = TftpServer::bind(config, directory.clone(), events.clone());
            let server =
                bound.map_err(|error| bind_error(error, "UDP", tftp::PORT, "TFTP", option))?;
            tftp_servers.push(server);
        }
    }
    if !args.no_http {
        for listen in ports(args.http_port) {
            let option = without(&listen, "--http-port");
            let bound =
                HttpServer::bind(listen, directory.clone(), reports.cloned(), events.clone());
            let server =
                bound.map_err(|error| bind_error(error, "TCP", args.http_port, "HTTP", option))?;
            http_servers.push(server);
        }
    }
    let mut ladder_servers = Vec::new();
    if reports.is_some() {
        let turns = Turns::default();
        for listen in ports(ladder::PORT) {
            let networks = interface.networks();
            // Reports are taken without it, too.
            match LadderServer::bind(listen, networks, turns.clone(), events.clone()) {
                Ok(server) => ladder_servers.push(server),
                Err(error) => events.say(format!(
                    "reports are taken, but machines that measure their network are sent no frames: UDP port {} cannot be used ({error}){}",
                    ladder::PORT,
                    remedy(error.kind(), "UDP", ladder::PORT).map_or(String::new(), |remedy| format!("; {remedy}"))
                )),
            }
        }
    }
    if args.ra && addresses.ipv6_network().is_none() {
        bail!(
            "--ra needs an IPv6 address on {}; give it one with --address, such as --address fd00:7::1/64",
            interface.name
        );
    }
    let ra = args.ra.then(|| RaSocket::open(interface)).transpose().context(
        "cannot send router advertisements: run as root, or give this program the capability cap_net_raw",
    )?;
    let serves_dhcp = !args.no_dhcp && addresses.ipv4.is_some();
    let link = || LinkSocket::open(interface.index);
    let leases = leases_path(args, interface)?;
    Ok(Opened {
        tftp: tftp_servers,
        http: http_servers,
        ladder: ladder_servers,
        ra,
        forwards: forwards(interface, "ipv6"),
        link: serves_dhcp.then(link).and_then(Result::ok),
        arp: (serves_dhcp && !args.proxy).then(link),
        known: Leases::read(&leases, events),
        leases,
    })
}

/// Starts what the arguments ask for.
pub(super) fn start(
    args: &ServeArgs,
    interface: &Interface,
    addresses: Addresses,
    directory: &Arc<Directory>,
    opened: Opened,
    events: &Events,
    end: &End,
) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let mut threads = Threads {
        started: Vec::new(),
        leases: None,
        directory,
        events,
        end,
    };
    for server in opened.tftp {
        threads.start("TFTP", Box::new(move |stop| server.run(stop)))?;
    }
    for server in opened.http {
        threads.start("HTTP", Box::new(move |stop| server.run(stop)))?;
    }
    for server in opened.ladder {
        threads.start("ladder", Box::new(move |stop| server.run(stop)))?;
    }
    let (watched, told) = (directory.clone(), events.clone());
    let watch = move |stop: &Stop| {
        check::watch(&watched, &told, stop);
        Ok(())
    };
    threads.start("configuration", Box::new(watch))?;
    let told = events.clone();
    let tell = move |stop: &Stop| {
        told.tell_left_out(stop);
        Ok(())
    };
    threads.start("log", Box::new(tell))?;
    let served = interface.clone();
    let watch = move |stop: &Stop| end::watch(&served, stop);
    threads.spawn("interface", Box::new(watch))?;
    for host in addresses.hosts() {
        let tftp = (!args.no_tftp).then(|| format!("tftp://{host}"));
        let http = (!args.no_http).then(|| http(args, &host));
        let urls: Vec<String> = tftp.into_iter().chain(http).collect();
        events.say(format!("files at {}", urls.join(" and ")));
    }
    let mut managed = false;
    if !args.no_dhcp {
        let ranges = ranges(args, interface, addresses, events)?;
        managed = ranges.ipv6.is_some();
        let gives = ranges.ipv4.is_some() || managed;
        threads.leases = gives.then(|| leases(&opened.leases, opened.known, events));
        if let Some(network) = addresses.ipv4 {
            let sockets = (opened.link, opened.arp);
            dhcp(args, interface, network, ranges.ipv4, sockets, &mut threads)?;
        }
        if let Some(network) = addresses.ipv6 {
            dhcpv6(args, interface, network, ranges.ipv6, &mut threads)?;
        }
    }
    if let (Some(socket), Some(prefix)) = (opened.ra, addresses.ipv6_network()) {
        let advertisement = Advertisement {
            managed,
            other: !args.no_dhcp,
            router: opened.forwards,
            prefix,
            dns: ipv6_dns(args),
            mac: interface.mac,
        };
        let server = RaServer::new(socket, advertisement);
        threads.start(
            "router advertisement",
            Box::new(move |stop| server.run(stop)),
        )?;
    }
    Ok(threads.started)
}

/// Whose requests are answered by UDP; `None`: anyone's.
fn answered(args: &ServeArgs, interface: &Interface) -> Option<Networks> {
    (!args.anyone).then(|| interface.networks())
}

/// The addresses to give.
struct Ranges {
    ipv4: Option<RangeInclusive<Ipv4Addr>>,
    ipv6: Option<RangeInclusive<Ipv6Addr>>,
}

/// None beside another server that gives addresses.
fn ranges(
    args: &ServeArgs,
    interface: &Interface,
    addresses: Addresses,
    events: &Events,
) -> anyhow::Result<Ranges> {
    if args.proxy {
        return Ok(Ranges {
            ipv4: None,
            ipv6: None,
        });
    }
    let ipv4 = addresses.ipv4.map(|network| ipv4_range(args, network));
    let (ipv4, ipv6) = (ipv4.transpose()?, ipv6_range(addresses));
    if args.authoritative {
        return Ok(Ranges { ipv4, ipv6 });
    }
    events.say(format!(
        "asking for {} s whether another server gives addresses",
        PATIENCE.as_secs()
    ));
    Ok(std::thread::scope(|scope| {
        let asks_ipv6 = || is_alone(dhcpv6::another_gives_addresses(interface), 6, events);
        let ipv6 = scope.spawn(move || ipv6.filter(|_| asks_ipv6()));
        let asks_ipv4 = || is_alone(dhcp::another_gives_addresses(interface, None), 4, events);
        Ranges {
            ipv4: ipv4.filter(|_| asks_ipv4()),
            ipv6: ipv6.join().unwrap_or_default(),
        }
    }))
}

/// Whether there is no other server that gives addresses of this IP version; says so if there is.
fn is_alone<T: Display>(other: io::Result<Option<T>>, version: u8, events: &Events) -> bool {
    let why = match other {
        Ok(None) => return true,
        Ok(Some(server)) => format!("the server {server} does"),
        Err(error) => format!("whether another server does could not be asked: {error}"),
    };
    events.say(format!(
        "giving no IPv{version} addresses, only boot files: {why} ({ADVICE})"
    ));
    false
}

/// Refuses what machines would be told over IPv4 in vain, or not at all. Says so when the router that they are told of passes nothing on.
pub(super) fn check_ipv4(
    args: &ServeArgs,
    interface: &Interface,
    addresses: Addresses,
    events: &Events,
) -> anyhow::Result<()> {
    if args.no_dhcp {
        return Ok(());
    }
    let Some((server, prefix)) = addresses.ipv4 else {
        return refuse_ipv4(args, interface);
    };
    let Some(router) = args.router else {
        return Ok(());
    };
    let here = Networks::from(vec![(server.into(), prefix)]);
    if !here.contain(router.into()) {
        bail!(
            "--router {router} is not of this server's network, {server}/{prefix}: machines could not reach it; name the router's address in this network, or leave --router out"
        );
    }
    let is_own = interface.addresses.iter().any(|(own, _)| *own == router);
    if is_own && !forwards(interface, "ipv4") {
        events.say(format!(
            "warning: --router {router} is this computer, which passes on nothing that comes from {}: machines reach nobody beyond this network (`sysctl -w net.ipv4.ip_forward=1` has it pass packets on)",
            interface.name
        ));
    }
    Ok(())
}

/// Refuses options that say something over IPv4: there is none.
fn refuse_ipv4(args: &ServeArgs, interface: &Interface) -> anyhow::Result<()> {
    let range = args.range;
    let range = range.map(|AddressRange { first, last }| format!("--range {first}-{last}"));
    let router = args.router.map(|router| format!("--router {router}"));
    let dns = args.dns.iter().find(|dns| dns.is_ipv4());
    let dns = dns.map(|dns| format!("--dns {dns}"));
    if let Some(option) = range.or(router).or(dns) {
        bail!(
            "{option} is for machines with IPv4, and the interface {} has no IPv4 address; give it one with --address, such as --address 192.168.7.1/24, or leave the option out",
            interface.name
        );
    }
    Ok(())
}

fn ipv4_range(
    args: &ServeArgs,
    network: (Ipv4Addr, u8),
) -> anyhow::Result<RangeInclusive<Ipv4Addr>> {
    let (server, prefix) = network;
    let Some(AddressRange { first, last }) = args.range else {
        return default_range(server, prefix);
    };
    let here = Networks::from(vec![(server.into(), prefix)]);
    if !here.contain(first.into()) || !here.contain(last.into()) {
        bail!(
            "--range {first}-{last} is not of this server's network, {server}/{prefix}: machines of another could not reach it"
        );
    }
    if first == server && last == server {
        bail!("--range {first}-{last} is this server's own address: there is none to give");
    }
    Ok(first..=last)
}

fn ipv6_range(addresses: Addresses) -> Option<RangeInclusive<Ipv6Addr>> {
    let (address, prefix) = addresses.ipv6_network()?;
    dhcpv6::range_of(address, prefix)
}

fn dhcpv6(
    args: &ServeArgs,
    interface: &Interface,
    network: (Ipv6Addr, u8),
    range: Option<RangeInclusive<Ipv6Addr>>,
    threads: &mut Threads<'_>,
) -> anyhow::Result<()> {
    let bound = DhcpV6Sockets::bind(interface, range.is_none(), answered(args, interface));
    let sockets = bound.map_err(|error| bind_error(error, "UDP", 547, "DHCPv6", "--no-ipv6"))?;
    if let Some(range) = &range {
        threads.events.say(format!(
            "giving addresses {} to {}",
            range.start(),
            range.end()
        ));
    }
    let gives = range.is_some();
    let (server, prefix) = network;
    let answers = dhcpv6::Answers {
        server_id: duid::from_mac(interface.mac.unwrap_or_default()).to_vec(),
        server,
        own: ipv6_own(interface),
        link_local: interface.link_local(),
        prefix,
        range,
        dns: ipv6_dns(args),
        directory: threads.directory.clone(),
        tftp: !args.no_tftp,
        http: (!args.no_http).then(|| http(args, &format!("[{server}]"))),
    };
    let others = OtherServers::default();
    if gives && !args.authoritative {
        let ask =
            |interface: &Interface, _: Option<&Message>| dhcpv6::another_gives_addresses(interface);
        threads.look_out("DHCPv6", &others, interface, ask)?;
    }
    let leases = threads.leases.clone();
    let longest = dhcpv6::LEASE_TIME;
    let kept = leases.as_ref().map(|leases| leases.of(ipv6_of, longest));
    let responder = dhcpv6::Responder::new(answers)
        .with(kept.unwrap_or_default())
        .unless(others);
    let server = DhcpV6Server::new(sockets, responder, leases, threads.events.clone());
    threads.start("DHCPv6", Box::new(move |stop| server.run(stop)))?;
    Ok(())
}

fn ipv6_own(interface: &Interface) -> Vec<Ipv6Addr> {
    let own = interface.ipv6_addresses.iter();
    own.map(|(address, _)| *address).collect()
}

fn ipv6_dns(args: &ServeArgs) -> Vec<Ipv6Addr> {
    args.dns.iter().copied().filter_map(ipv6_of).collect()
}

/// Whether this machine passes on what comes from the interface. `version`: `ipv4` or `ipv6`.
fn forwards(interface: &Interface, version: &str) -> bool {
    let path = format!("/proc/sys/net/{version}/conf/{}/forwarding", interface.name);
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

fn dhcp(
    args: &ServeArgs,
    interface: &Interface,
    network: (Ipv4Addr, u8),
    range: Option<RangeInclusive<Ipv4Addr>>,
    (link, arp_socket): (Option<LinkSocket>, Option<io::Result<LinkSocket>>),
    threads: &mut Threads<'_>,
) -> anyhow::Result<()> {
    let arp = range
        .clone()
        .zip(arp_socket)
        .and_then(|(range, socket)| arp(socket, interface, range, threads));
    let bound = DhcpSockets::bind(
        interface,
        range.is_none(),
        answered(args, interface),
        link,
        arp,
    );
    let sockets = bound.map_err(|error| bind_error(error, "UDP", 67, "DHCP", "--no-dhcp"))?;
    if let Some(range) = &range {
        threads.events.say(format!(
            "giving addresses {} to {}",
            range.start(),
            range.end()
        ));
    }
    let others = OtherServers::default();
    if range.is_some() && !args.authoritative {
        threads.look_out("DHCP", &others, interface, dhcp::another_gives_addresses)?;
    }
    let leases = threads.leases.clone();
    let longest = dhcp::LEASE_TIME;
    let kept = leases.as_ref().map(|leases| leases.of(ipv4_of, longest));
    let directory = threads.directory.clone();
    let answers = answers(args, directory, interface, network, range);
    let responder = dhcp::Responder::new(answers)
        .with(kept.unwrap_or_default())
        .unless(others);
    let server = DhcpServer::new(
        sockets,
        responder,
        network.0,
        leases,
        threads.events.clone(),
    );
    threads.start("DHCP", Box::new(move |stop| server.run(stop)))?;
    Ok(())
}

fn ipv4_of(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn ipv6_of(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

/// Where leases are kept, from the root on: the confined server knows no working directory.
fn leases_path(args: &ServeArgs, interface: &Interface) -> anyhow::Result<PathBuf> {
    let state = || std::env::var_os("STATE_DIRECTORY").map_or(STATE.into(), PathBuf::from);
    let usual = || state().join(format!("{}.leases", interface.name));
    let path = args.leases.clone().unwrap_or_else(usual);
    std::path::absolute(&path).with_context(|| format!("--leases {}", path.display()))
}

/// The leases of earlier runs; those of this one are kept once the file can be written.
fn leases(path: &Path, known: Leases, events: &Events) -> Leases {
    let opened = Leases::open(path, events);
    opened.unwrap_or_else(|error| {
        events.say(format!(
            "leases are not kept: {}: {error} (--leases names another file; the server's user must be able to write its folder)",
            path.display()
        ));
        known
    })
}

/// Finds out which addresses of the range somebody has.
fn arp(
    socket: io::Result<LinkSocket>,
    interface: &Interface,
    range: RangeInclusive<Ipv4Addr>,
    threads: &mut Threads<'_>,
) -> Option<Arp> {
    let opened = socket.and_then(|socket| Arp::hear(socket, interface, range));
    let opened = opened.and_then(|arp| {
        let listening = arp.clone();
        let body = move |stop: &Stop| {
            listening.listen(stop);
            Ok(())
        };
        threads.start("ARP", Box::new(body))?;
        Ok(arp)
    });
    match opened {
        Ok(arp) => {
            arp.probe_all();
            Some(arp)
        }
        Err(error) => {
            threads.events.say(format!(
                "whether somebody has an address already cannot be asked before it is given (by ARP): {error}"
            ));
            None
        }
    }
}

/// The HTTP server's URL up to the path: `http://HOST[:PORT]`.
pub(super) fn http(args: &ServeArgs, host: &str) -> String {
    match args.http_port {
        80 => format!("http://{host}"),
        port => format!("http://{host}:{port}"),
    }
}

fn answers(
    args: &ServeArgs,
    directory: Arc<Directory>,
    interface: &Interface,
    network: (Ipv4Addr, u8),
    range: Option<RangeInclusive<Ipv4Addr>>,
) -> dhcp::Answers {
    let (address, prefix) = network;
    let own = interface.addresses.iter().map(|(address, _)| *address);
    let dns = args.dns.iter().copied().filter_map(ipv4_of);
    dhcp::Answers {
        server: address,
        own: own.collect(),
        prefix,
        range,
        router: args.router,
        dns: dns.collect(),
        directory,
        tftp: !args.no_tftp,
        http: (!args.no_http).then(|| http(args, &address.to_string())),
    }
}

/// The upper half of the network, without its broadcast address.
fn default_range(address: Ipv4Addr, prefix: u8) -> anyhow::Result<RangeInclusive<Ipv4Addr>> {
    if prefix > 30 {
        bail!(
            "a /{prefix} network has no room for clients; name the addresses to give with --range"
        );
    }
    let size = 1u64 << (32 - prefix);
    let network = u64::from(u32::from(address)) & !(size - 1);
    let count = (size / 2 - 1).min(DEFAULT_RANGE.into());
    let first = network + size / 2;
    let at = |offset: u64| Ipv4Addr::from((first + offset) as u32);
    Ok(at(0)..=at(count.max(1) - 1))
}

/// The option that does without a port: one that IPv4 alone can do with is IPv6's.
fn without(listen: &Listen, option: &'static str) -> &'static str {
    match listen.address().is_ipv6() {
        true => "--no-ipv6",
        false => option,
    }
}

/// What to do about a port that could not be had, where that is known.
fn remedy(error: io::ErrorKind, protocol: &str, port: u16) -> Option<String> {
    match error {
        io::ErrorKind::AddrInUse => {
            let flags = if protocol == "UDP" { "-lunp" } else { "-ltnp" };
            Some(format!("find it with `ss {flags} sport = :{port}`"))
        }
        io::ErrorKind::PermissionDenied => Some(
            "run as root, or give this program the capabilities cap_net_bind_service, cap_net_raw and cap_net_admin".to_owned(),
        ),
        _ => None,
    }
}

/// Why a port could not be had, and what to do.
fn bind_error(
    error: io::Error,
    protocol: &str,
    port: u16,
    service: &str,
    option: &str,
) -> anyhow::Error {
    let remedy = remedy(error.kind(), protocol, port);
    let advice = match (error.kind(), remedy) {
        (io::ErrorKind::AddrInUse, Some(remedy)) => {
            format!(
                "another program, most likely another {service} server, has it: {remedy}, or use {option}"
            )
        }
        (_, Some(remedy)) => remedy,
        (_, None) => format!("see {option}"),
    };
    anyhow::Error::new(error).context(format!(
        "cannot use {protocol} port {port} for {service}: {advice}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_ipv6_is_beside_the_servers_own_address() {
        let range = |address: &str, prefix| {
            let ipv6 = Some((address.parse().unwrap(), prefix));
            let range = ipv6_range(Addresses { ipv4: None, ipv6 })?;
            Some([range.start().to_string(), range.end().to_string()])
        };
        let expected = ["2001:db8::1000", "2001:db8::ffff"].map(str::to_owned);
        assert_eq!(range("2001:db8::5", 64), Some(expected));
        let expected = ["2001:db8::7:1000", "2001:db8::7:ffff"].map(str::to_owned);
        assert_eq!(range("2001:db8::7:5", 112), Some(expected));
        assert_eq!(range("2001:db8::5", 113), None);
    }

    #[test]
    fn a_port_that_is_taken_is_said_with_what_to_do() {
        let said = |kind: io::ErrorKind, protocol| {
            format!(
                "{:#}",
                bind_error(kind.into(), protocol, 69, "TFTP", "--no-tftp")
            )
        };
        let taken = said(io::ErrorKind::AddrInUse, "UDP");
        assert!(
            taken.starts_with("cannot use UDP port 69 for TFTP: another program"),
            "{taken}"
        );
        assert!(
            taken.contains("`ss -lunp sport = :69`, or use --no-tftp"),
            "{taken}"
        );
        assert!(said(io::ErrorKind::AddrInUse, "TCP").contains("`ss -ltnp sport = :69`"));
        assert!(said(io::ErrorKind::PermissionDenied, "UDP").contains("run as root"));
        assert!(said(io::ErrorKind::AddrNotAvailable, "UDP").contains("see --no-tftp"));
    }

    #[test]
    fn the_default_range_is_the_upper_half_of_the_network() {
        let default = |cidr: &str| {
            let (address, prefix) = cidr.split_once('/').unwrap();
            default_range(address.parse().unwrap(), prefix.parse().unwrap())
        };
        let range = |cidr: &str| {
            let range = default(cidr).unwrap();
            format!("{}-{}", range.start(), range.end())
        };
        assert_eq!(range("192.168.7.1/24"), "192.168.7.128-192.168.7.254");
        assert_eq!(range("10.1.2.3/8"), "10.128.0.0-10.128.3.255");
        assert_eq!(range("10.0.0.1/30"), "10.0.0.2-10.0.0.2");
        assert_eq!(range("1.2.3.4/0"), "128.0.0.0-128.0.3.255");
        assert!(default("10.0.0.1/31").is_err());
    }
}
