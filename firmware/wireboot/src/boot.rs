//! Fetching the files of an entry, checking them, and starting what they are.

use crate::error::Error;
use crate::fetching::{Fetcher, Wanted};
use crate::loader;
use crate::network::{IdleNic, Network};
use crate::origin::Origin;
use crate::plan::{Kind, Plan};
use crate::settings::{LoaderNetwork, Settings};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::IpAddr;
use wireboot_fetch::File;
use wireboot_fetch::url::{Host, Scheme, Url};
use wireboot_platform::device_path::{IpNode, PathBuf};
use wireboot_platform::exit::StopOnExit;
use wireboot_platform::image::Loaded;
use wireboot_platform::initrd::{self, Initrds, Part};
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
    let program = Program {
        path: path(
            &mut fetcher,
            origin,
            &program.url,
            settings.network.unwrap_or_default(),
        ),
        url: program.url,
        file: program.file.ok_or(Error::Nothing)?,
        options,
    };
    let network = fetcher.into_network();
    match kind {
        Kind::Efi => match (settings.network.unwrap_or_default(), program.path.clone()) {
            (LoaderNetwork::Wireboot, Some(path)) => over_ours(
                network,
                origin,
                program,
                &path,
                settings.near_end.unwrap_or(true),
            ),
            _ => efi(network, origin, program),
        },
        Kind::Linux => {
            let initrds = initrds.into_iter().filter_map(|planned| planned.file);
            linux(network, program, initrds.collect())
        }
    }
}

/// A program that is here and checked.
struct Program {
    url: Url,
    path: Option<PathBuf>,
    file: File,
    options: String,
}

/// The device path of a file that was fetched.
fn path(fetcher: &mut Fetcher, origin: &Origin, url: &Url, over: LoaderNetwork) -> Option<PathBuf> {
    let leases = fetcher.leases();
    let v4 = leases.v4.as_ref().map(|lease| IpNode {
        local: lease.address.address().into(),
        remote: lease.next_server.map(IpAddr::V4),
        gateway: lease.router.map(IpAddr::V4),
        prefix: Some(lease.address.prefix_len()),
    });
    let v6 = leases.v6.as_ref().and_then(|lease| lease.addresses.first());
    let v6 = v6.map(|address| IpNode {
        local: (*address).into(),
        remote: None,
        gateway: None,
        prefix: Some(loader::PREFIX6),
    });
    // Where there are both, that of the file's server, if the URL tells.
    let ip = if matches!(url.host(), Host::Address(IpAddr::V6(_))) {
        v6.or(v4)
    } else {
        v4.or(v6)
    };
    let network = fetcher.network();
    // The handle that the firmware's PXE boots from is the one where loaders look for its packets, and the
    // longest path that leads to a handle decides which handle a loader is told.
    // A loader that goes on by HTTP over ours reads its addresses from the path, which in that of PXE are not.
    let by_http = over == LoaderNetwork::Wireboot && url.scheme() == Scheme::Http;
    let cached = origin.cached.as_ref().filter(|_| !by_http);
    let interface = cached.map_or(network.interface(), |cached| cached.path());
    PathBuf::fetched(interface, network.mac(), ip, url.as_str())
}

/// Has the firmware copy the program to where it runs; the download's memory is free afterwards.
fn load(program: Program) -> Result<(Loaded, Url), Error> {
    let Program {
        url,
        path,
        file,
        options,
    } = program;
    match Loaded::load(file.content(), path.as_ref(), &options) {
        Ok(loaded) => Ok((loaded, url)),
        Err(error) => Err(Error::Load {
            url: url.to_string(),
            what: filetype::misfit(file.content()),
            status: error.status(),
        }),
    }
}

fn started(loaded: Loaded, url: &Url) -> Error {
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
fn linux(network: Network, program: Program, initrds: Vec<File>) -> Result<Infallible, Error> {
    let clock = network.clock;
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
    let (loaded, url) = load(program)?;
    let guard = StopOnExit::new(nic, IdleNic::stop)
        .map_err(|(_, error)| refused("an event for the end of boot services", error))?;
    log::info!(
        "starting linux {url} after {} ms: {arguments}",
        clock.micros() / 1000
    );
    let error = started(loaded, &url);
    drop(guard);
    drop(offered);
    Err(error)
}

/// Starts an EFI program over our network.
fn over_ours(
    network: Network,
    origin: &Origin,
    program: Program,
    path: &PathBuf,
    near_end: bool,
) -> Result<Infallible, Error> {
    let clock = network.clock;
    let resident = loader::offer(network, origin, &program.url, path, near_end)?;
    let arguments = program.options.clone();
    let (loaded, url) = load(program)?;
    log::info!(
        "starting efi {url} over wireboot's network after {} ms: {arguments}",
        clock.micros() / 1000
    );
    let error = started(loaded, &url);
    drop(resident);
    Err(error)
}

/// Starts an EFI program, with the interface back in the firmware's hands.
fn efi(network: Network, origin: &Origin, program: Program) -> Result<Infallible, Error> {
    let clock = network.clock;
    drop(network);
    if let Some(cached) = &origin.cached
        && cached.restore().is_none()
    {
        log::warn!(
            "the firmware did not take back its lease; a boot loader may have to ask DHCP again"
        );
    }
    let arguments = program.options.clone();
    let (loaded, url) = load(program)?;
    log::info!(
        "starting efi {url} over the firmware's network after {} ms: {arguments}",
        clock.micros() / 1000
    );
    Err(started(loaded, &url))
}
