//! Fetching the files of an entry, checking them, and starting what they are.

use crate::above;
use crate::account::Account;
use crate::error::Error;
use crate::fetching::{Fetcher, Wanted};
use crate::loader;
use crate::network::{IdleNic, Network};
use crate::origin::Origin;
use crate::plan::{Kind, Plan};
use crate::settings::{NetworkOwner, Settings};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::IpAddr;
use wireboot_fetch::url::{Scheme, Url};
use wireboot_fetch::{File, Lease};
use wireboot_platform::Clock;
use wireboot_platform::boot_report::BootReport;
use wireboot_platform::device_path::{IpNode, PathBuf};
use wireboot_platform::exit::StopOnExit;
use wireboot_platform::image::Loaded;
use wireboot_platform::initrd::{self, Initrds, Part};
use wireboot_platform::loader_times::{self, LoaderTimes};
use wireboot_platform::started::Started;
use wireboot_wire::filetype;

/// Fetches what is missing and starts it. Returns only when that did not boot.
pub(crate) fn run(
    mut fetcher: Fetcher,
    origin: &Origin,
    plan: Plan,
    settings: &Settings,
) -> Result<Infallible, Error> {
    let Plan {
        mut program,
        kind,
        mut initrds,
        options,
    } = plan;
    #[cfg(feature = "faults")]
    wireboot_platform::faults::plant(&options);
    let initrds_too = initrds.iter_mut().map(|initrd| (initrd, true));
    let all = core::iter::once((&mut program, false)).chain(initrds_too);
    let missing: Vec<_> = all.filter(|(planned, _)| planned.file.is_none()).collect();
    let wanted = missing.iter().map(|(planned, is_initrd)| Wanted {
        url: &planned.url,
        sha256: planned.sha256,
        is_initrd: *is_initrd,
    });
    let files = fetcher.get(&wanted.collect::<Vec<_>>())?;
    for ((planned, _), file) in missing.into_iter().zip(files) {
        planned.file = Some(file);
    }
    fetcher.report_summary();
    if let Some(url) = &settings.report {
        match fetcher.post_account(url) {
            Ok(()) => log::info!("{url}: has the report"),
            Err(Error::Stopped) => return Err(Error::Stopped),
            Err(error) => log::warn!("{error}"),
        }
    }
    let program = Program {
        url: program.url,
        file: program.file.ok_or(Error::Nothing)?,
        options,
    };
    let account = fetcher.account().clone();
    let network = fetcher.into_network();
    match kind {
        Kind::Efi => efi(network, origin, program, settings, &account),
        Kind::Linux => {
            let initrds = initrds.into_iter().filter_map(|planned| planned.file);
            linux(network, origin, program, initrds.collect(), &account)
        }
    }
}

/// A program that is here and checked.
struct Program {
    url: Url,
    file: File,
    options: String,
}

/// The device path of a file that was fetched, for a program that goes on over that network.
pub fn path(network: &Network, origin: &Origin, url: &Url, over: NetworkOwner) -> Option<PathBuf> {
    let leases = network.leases();
    let by_http_alone = origin.http && url.scheme() == Scheme::Http;
    let server = network.server_of(url);
    let by_tftp = server.filter(|_| url.scheme() == Scheme::Tftp);
    let v4 = leases.v4.as_ref();
    let v4 = v4.map(|lease| v4_node(lease, by_http_alone, by_tftp));
    let v6 = leases.v6.as_ref().and_then(|lease| lease.addresses.first());
    let v6 = v6.map(|address| IpNode {
        local: (*address).into(),
        remote: None,
        gateway: None,
        prefix: Some(loader::PREFIX6),
    });
    // Where there are both, that of the file's server, if it is known.
    let ip = if server.is_some_and(|server| server.is_ipv6()) {
        v6.or(v4)
    } else {
        v4.or(v6)
    };
    // The handle that the firmware's PXE boots from is the one where loaders look for its packets, and the
    // longest path that leads to a handle decides which handle a loader is told.
    // A loader that goes on by HTTP over ours reads its addresses from the path, which in that of PXE are not.
    let by_http = over == NetworkOwner::Wireboot && url.scheme() == Scheme::Http;
    let cached = origin.cached.as_ref().filter(|_| !by_http);
    let interface = cached.map_or(network.interface(), |cached| cached.path());
    let interface = match over {
        NetworkOwner::Wireboot => without_vlan(interface),
        NetworkOwner::Firmware => interface.into(),
    };
    PathBuf::fetched(&interface, network.mac(), ip, url.as_str())
}

/// The nodes of a path without those of VLANs, by which loaders tag their frames: over ours the engine does that.
fn without_vlan(mut nodes: &[u8]) -> Vec<u8> {
    const VLAN: (u8, u8) = (3, 20);
    let mut others = Vec::new();
    while let [kind, sub_kind, low, high, ..] = nodes {
        let len = usize::from(u16::from_le_bytes([*low, *high])).clamp(4, nodes.len());
        let (node, rest) = nodes.split_at(len);
        if (*kind, *sub_kind) != VLAN {
            others.extend(node);
        }
        nodes = rest;
    }
    others
}

/// The node of the address. `by_http_alone`: of a loader and a machine that came by HTTP. As HTTP Boot has it, the URL alone names the server then:
/// GRUB would go on by TFTP where the node names one. `by_tftp`: the server from which the loader came, where that is known.
fn v4_node(lease: &Lease, by_http_alone: bool, by_tftp: Option<IpAddr>) -> IpNode {
    let next = lease.next_server.filter(|_| !by_http_alone);
    IpNode {
        local: lease.address.address().into(),
        remote: by_tftp.filter(IpAddr::is_ipv4).or(next.map(IpAddr::V4)),
        gateway: lease.router.map(IpAddr::V4),
        prefix: Some(lease.address.prefix_len()),
    }
}

/// Has the firmware copy the program to where it runs; the download's memory is free afterwards.
fn load(program: Program, path: Option<&PathBuf>) -> Result<(Loaded, Url), Error> {
    let Program { url, file, options } = program;
    match Loaded::load(file.content(), path, &options) {
        Ok(loaded) => Ok((loaded, url)),
        Err(error) => Err(Error::Load {
            url: url.to_string(),
            what: filetype::misfit(file.content()),
            status: error.status(),
        }),
    }
}

/// `told`: to a wireboot.efi that it may start.
fn started(loaded: Loaded, url: &Url, clock: &Clock, account: &Account, told: &str) -> Error {
    // Gone again when it comes back: the next boot option's loader tells its own.
    let _times = LoaderTimes::tell(clock);
    let report = account.json(loader_times::since_reset(clock), clock.micros());
    let _report = BootReport::tell(&report);
    let _started = Started::tell(told);
    let status = match loaded.start() {
        Ok(()) => wireboot_platform::Status::SUCCESS,
        Err(error) => error.status(),
    };
    Error::Returned {
        url: url.to_string(),
        status,
    }
}

/// Starts a kernel. The interface stays ours until boot services end, or the kernel comes back.
fn linux(
    network: Network,
    origin: &Origin,
    program: Program,
    initrds: Vec<File>,
    account: &Account,
) -> Result<Infallible, Error> {
    let clock = network.clock;
    let path = path(&network, origin, &program.url, NetworkOwner::Firmware);
    let arguments = program.options.clone();
    let refused = |what, error: wireboot_platform::Error| Error::Firmware {
        what,
        status: error.status(),
    };
    let parts: Vec<Part> = initrds
        .into_iter()
        .map(|file| Part {
            len: usize::try_from(file.len).unwrap_or(usize::MAX),
            memory: file.memory,
        })
        .collect();
    if let Some(what) = filetype::takes_no_initrd(program.file.content())
        && !parts.is_empty()
    {
        log::warn!("{}: is {what}", program.url);
    }
    let nic = network.into_idle().ok_or(Error::Nothing)?;
    initrd::take_path();
    // Before the kernel takes memory, and as late as can be: while the firmware knows them, a panic resets the machine. Without any, it must
    // find none rather than an empty one.
    let offered = if parts.is_empty() {
        None
    } else {
        let offered = Initrds::offer(parts);
        Some(offered.map_err(|error| refused("memory for Linux' copy of the initrds", error))?)
    };
    let (loaded, url) = load(program, path.as_ref())?;
    let guard = StopOnExit::new(nic, IdleNic::stop)
        .map_err(|(_, error)| refused("an event for the end of boot services", error))?;
    log::info!(
        "starting linux {url} after {} ms: {arguments}",
        clock.micros() / 1000
    );
    let error = started(loaded, &url, &clock, account, "");
    drop(guard);
    drop(offered);
    Err(error)
}

/// Starts an EFI program, over our network where that can be and the settings say nothing else.
fn efi(
    network: Network,
    origin: &Origin,
    program: Program,
    settings: &Settings,
    account: &Account,
) -> Result<Infallible, Error> {
    let clock = network.clock;
    let mut over = settings.network.unwrap_or_default();
    if over == NetworkOwner::Wireboot
        && let Err(reason) = network.can_stay()
    {
        log::info!("{reason}, so the firmware's network goes on");
        over = NetworkOwner::Firmware;
    }
    let path_over = |over| path(&network, origin, &program.url, over);
    let (firmwares_path, ours) = (path_over(NetworkOwner::Firmware), path_over(over));
    let resident = match (over, &ours) {
        (NetworkOwner::Wireboot, Some(path)) => {
            let near_end = settings.near_end.unwrap_or(true);
            let offered = loader::offer(network, origin, &program.url, path, near_end);
            offered
                .inspect_err(|error| log::warn!("{error}; the firmware's network goes on"))
                .ok()
        }
        _ => {
            drop(network);
            None
        }
    };
    let (whose, path) = if resident.is_some() {
        ("wireboot's", ours)
    } else {
        give_lease_back(origin);
        ("the firmware's", firmwares_path)
    };
    let arguments = program.options.clone();
    let (loaded, url) = load(program, path.as_ref())?;
    log::info!(
        "starting efi {url} over {whose} network after {} ms: {arguments}",
        clock.micros() / 1000
    );
    let told = above::lines(&url, origin.http);
    let error = started(loaded, &url, &clock, account, &told);
    drop(resident);
    Err(error)
}

/// Tells the firmware's network again what it knew before we took its card.
fn give_lease_back(origin: &Origin) {
    if let Some(cached) = &origin.cached
        && cached.restore().is_none()
    {
        log::warn!(
            "the firmware did not take back its lease; a boot loader may have to ask DHCP again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use wireboot_fetch::LeaseSource;
    use wireboot_net::Ipv4Cidr;

    #[test]
    fn by_http_alone_the_url_names_the_server() {
        let address = Ipv4Cidr::new(Ipv4Addr::new(10, 0, 0, 5), 24);
        let server = Ipv4Addr::new(10, 0, 0, 1);
        let lease = Lease {
            next_server: Some(server),
            router: Some(server),
            ..Lease::new(address, LeaseSource::Dhcp)
        };
        let by_tftp = v4_node(&lease, false, None);
        assert_eq!(by_tftp.remote, Some(server.into()));
        let other = Some(Ipv4Addr::new(10, 0, 0, 9).into());
        assert_eq!(v4_node(&lease, false, other).remote, other);
        let six = Some("fd00::1".parse().unwrap());
        assert_eq!(v4_node(&lease, false, six), by_tftp);
        let by_http = v4_node(&lease, true, None);
        assert_eq!((by_http.remote, by_http.local), (None, by_tftp.local));
        assert_eq!(by_http.gateway, Some(server.into()));
        assert_eq!(by_http.prefix, Some(24));
    }

    /// The firmware has come by VLAN 5: PCI function, MAC, VLAN, IPv4.
    #[test]
    fn loaders_are_not_told_of_the_vlan() {
        let mac = [&[1_u8, 1, 6, 0, 0, 3, 3, 11, 37, 0][..], &[7; 33]].concat();
        let vlan = [3_u8, 20, 6, 0, 5, 0];
        let ip = [&[3_u8, 12, 27, 0][..], &[0; 23]].concat();
        let with = [&mac[..], &vlan[..], &ip[..]].concat();
        let without = [&mac[..], &ip[..]].concat();
        assert_eq!(without_vlan(&with), without);
        assert_eq!(without_vlan(&without), without);
        // A path that is no path.
        for len in 0..with.len() {
            assert!(without_vlan(&with[..len]).len() <= len);
        }
        assert_eq!(without_vlan(&[1, 1, 0, 0, 9]), [1, 1, 0, 0]);
    }
}
