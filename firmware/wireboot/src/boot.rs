//! Fetching the files of an entry, checking them, and starting what they are.

use crate::error::Error;
use crate::fetching::Fetcher;
use crate::network::{Network, Quiet};
use crate::origin::Origin;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::convert::Infallible;
use wireboot_fetch::File;
use wireboot_fetch::url::Url;
use wireboot_fetch::verify;
use wireboot_platform::device_path::{Ipv4Node, PathBuf};
use wireboot_platform::exit::StopOnExit;
use wireboot_platform::image::Loaded;
use wireboot_platform::initrd::{Initrds, Part};

/// What is started.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An EFI program, which finds the firmware's network as it was.
    Efi,
    /// A Linux kernel, by its EFI stub.
    Linux,
}

/// A file to be fetched, or fetched already.
pub struct Planned {
    /// Where it is.
    pub url: Url,
    /// What it must hash to.
    pub sha256: Option<[u8; 32]>,
    /// It.
    pub file: Option<File>,
}

/// What to boot, with nothing left to decide.
pub struct Plan {
    /// The program.
    pub program: Planned,
    /// What it is.
    pub kind: Kind,
    /// Its initial RAM disks.
    pub initrds: Vec<Planned>,
    /// Its arguments.
    pub options: String,
}

/// The bytes of a file.
pub fn content(file: &File) -> &[u8] {
    let len = usize::try_from(file.len).unwrap_or(usize::MAX);
    file.memory.as_slice().get(..len).unwrap_or_default()
}

/// Fetches what is missing, checks and starts it. Returns only when that did not boot.
pub fn run(mut fetcher: Fetcher, origin: &Origin, plan: Plan) -> Result<Infallible, Error> {
    let Plan {
        mut program,
        kind,
        mut initrds,
        options,
    } = plan;
    let mut all: Vec<&mut Planned> = core::iter::once(&mut program).chain(&mut initrds).collect();
    all.retain(|planned| planned.file.is_none());
    let urls: Vec<Url> = all.iter().map(|planned| planned.url.clone()).collect();
    for (planned, file) in all.into_iter().zip(fetcher.get(&urls)?) {
        planned.file = Some(file);
    }
    for planned in core::iter::once(&program).chain(&initrds) {
        check(planned)?;
    }
    fetcher.tell_summary();
    let program = Program {
        path: path(&mut fetcher, origin, &program.url),
        url: program.url,
        file: program.file.ok_or(Error::Nothing)?,
        options,
    };
    let network = fetcher.into_network();
    match kind {
        Kind::Efi => efi(network, origin, program),
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

fn check(planned: &Planned) -> Result<(), Error> {
    let (Some(expected), Some(file)) = (&planned.sha256, &planned.file) else {
        return Ok(());
    };
    verify::verify(expected, content(file)).map_err(|error| Error::Digest {
        url: planned.url.to_string(),
        error,
    })?;
    log::info!("{}: sha256 is right", planned.url);
    Ok(())
}

/// The device path of a file that was fetched.
fn path(fetcher: &mut Fetcher, origin: &Origin, url: &Url) -> Option<PathBuf> {
    let ipv4 = fetcher.lease().map(|lease| Ipv4Node {
        local: lease.address.address(),
        remote: lease.next_server,
        gateway: lease.router,
        prefix: Some(lease.address.prefix_len()),
    });
    let network = fetcher.network();
    // The handle that the firmware's PXE boots from is the one where loaders look for its packets, and the
    // longest path that leads to a handle decides which handle a loader is told.
    let interface = origin
        .cached
        .as_ref()
        .map_or(network.interface(), |cached| cached.path());
    PathBuf::fetched(interface, network.mac(), ipv4, url.as_str())
}

/// Has the firmware copy the program to where it runs; the download's memory is free afterwards.
fn load(program: Program) -> Result<(Loaded, Url), Error> {
    let Program {
        url,
        path,
        file,
        options,
    } = program;
    match Loaded::load(content(&file), path.as_ref(), &options) {
        Ok(loaded) => Ok((loaded, url)),
        Err(error) => Err(Error::Load {
            url: url.to_string(),
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
    let (loaded, url) = load(program)?;
    let refused = |what, error: wireboot_platform::Error| Error::Firmware {
        what,
        status: error.status(),
    };
    let parts: Vec<Part> = initrds
        .into_iter()
        .map(|file| Part {
            len: content(&file).len(),
            memory: file.memory,
        })
        .collect();
    // Without any, a kernel must find none rather than an empty one.
    let offered = if parts.is_empty() {
        None
    } else {
        let offered = Initrds::offer(parts);
        Some(offered.map_err(|error| refused("a handle for the initrd", error))?)
    };
    let quiet = network.quiet().ok_or(Error::Nothing)?;
    let guard = StopOnExit::new(quiet, Quiet::stop)
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
        "starting efi {url} after {} ms: {arguments}",
        clock.micros() / 1000
    );
    Err(started(loaded, &url))
}
