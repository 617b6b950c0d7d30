//! The network under a boot loader: it stays while the loader runs, and EFI protocols lead to it.

use crate::error::Error;
use crate::network::{Network, instant};
use crate::origin::Origin;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::IpAddr;
use efi_protocols::{Buffer, Failure, Packets, Resident, Station};
use wireboot_fetch::tftp::TftpError;
use wireboot_fetch::url::{Host, Url};
use wireboot_fetch::{Command, Event, FetchError, File, Job, Leases};
use wireboot_net::{Duration, Instant, Memory, tap};
use wireboot_platform::device_path::PathBuf;
use wireboot_platform::memory::{self, DownloadReader};
use wireboot_protocols::link::Link;
use wireboot_protocols::near_end::{Files, NearEnd, Progress};
use wireboot_protocols::packet;
use wireboot_protocols::simple_network::MEDIA_HEADER;

/// Jobs of loaders are numbered from here on: others' late events are not taken for theirs.
const FIRST_JOB: Job = 1 << 16;
/// Payload of the frames and packets that loaders send and receive themselves, whatever the link carries: they are written for this.
const MTU: u16 = 1500;
/// The length of an IPv6 network's prefix: addresses of DHCPv6 have none, and nearly all networks have this one (RFC 4291, section 2.5.1).
const PREFIX6: u8 = 64;
/// Bytes of a file that the near end has in memory at most; a larger one comes by the loader's own means.
const LARGEST: usize = 64 << 20;
/// How long a server may be silent, as loaders try others themselves.
const PATIENCE: Duration = Duration::ZERO;

/// The network with what loaders' calls have left behind.
struct LoaderNetwork {
    network: Network,
    last_job: Job,
    /// A file that was too long for its buffer, or only measured: the next call wants it.
    kept: Option<File>,
    /// For the near end.
    downloads: Vec<Download>,
}

/// Offers `network` by the protocols to a loader that came from `url` and is given `path`.
pub(crate) fn offer(
    mut network: Network,
    origin: &Origin,
    url: &Url,
    path: &PathBuf,
    near_end: bool,
) -> Result<Resident, Error> {
    let (tap, port) = tap(MTU);
    network.send(Command::Tap(Box::new(tap)))?;
    let (address, prefix_len) = address(network.leases(), url).ok_or(Error::Nothing)?;
    let interfaces = path.interfaces().ok_or(Error::Nothing)?;
    let station = Station {
        mac: network.mac(),
        mtu: MTU,
        address,
        prefix_len,
        mac_path: interfaces.mac,
        ip_path: interfaces.ip,
    };
    let packets = packets(origin, network.leases(), url);
    let network = Shared(Rc::new(RefCell::new(LoaderNetwork {
        network,
        last_job: FIRST_JOB,
        kept: None,
        downloads: Vec::new(),
    })));
    let link: Box<dyn Link> = if near_end {
        let longest = MEDIA_HEADER + usize::from(MTU);
        Box::new(NearEnd::new(port, network.clone(), longest))
    } else {
        Box::new(port)
    };
    Resident::offer(Box::new(network), link, station, &packets).map_err(|error| Error::Firmware {
        what: "handles for the boot loader's network",
        status: error.status(),
    })
}

/// The address for a loader, and the length of its network's prefix: of the version that the loader came by, if the URL tells.
fn address(leases: &Leases, url: &Url) -> Option<(IpAddr, u8)> {
    let v4 = leases.v4.as_ref().map(|lease| {
        let address = lease.address;
        (IpAddr::V4(address.address()), address.prefix_len())
    });
    let v6 = leases.v6.as_ref().and_then(|lease| lease.addresses.first());
    let v6 = v6.map(|address| (IpAddr::V6(*address), PREFIX6));
    if matches!(url.host(), Host::Address(IpAddr::V6(_))) {
        v6.or(v4)
    } else {
        v4.or(v6)
    }
}

/// The packets of the DHCP exchange, the firmware's or ours. The acknowledgement names the loader.
fn packets(origin: &Origin, leases: &Leases, url: &Url) -> Packets {
    let (mut packets, version) = match (&origin.cached, &leases.v4) {
        (Some(cached), _) => {
            let [discover, ack, proxy_offer, pxe_discover, pxe_reply] = cached.raw();
            let packets = Packets {
                discover,
                ack,
                proxy_offer,
                pxe_discover,
                pxe_reply,
            };
            (packets, cached.station)
        }
        (None, Some(lease)) if !lease.ack.is_empty() => {
            let packets = Packets {
                ack: Some(packet::padded(&lease.ack)),
                ..Packets::default()
            };
            (packets, lease.address.address().into())
        }
        _ => return Packets::default(),
    };
    if version.is_ipv4() {
        packets.each(packet::end_options);
    }
    let file = url.resource().trim_start_matches('/');
    match (&mut packets.ack, url.host()) {
        (Some(ack), Host::Address(IpAddr::V4(server))) if version.is_ipv4() => {
            packet::name_file(ack, *server, file);
        }
        (Some(ack), Host::Address(server)) if version.is_ipv6() => {
            packet::name_file6(ack, *server, file);
        }
        _ => {}
    }
    packets
}

impl LoaderNetwork {
    /// Downloads `url` to `buffer`, or where that is too small or none to memory of ours. Stops as soon as the size is known when `measure`.
    fn transfer(
        &mut self,
        url: &Url,
        mut buffer: Option<Buffer>,
        measure: bool,
    ) -> Result<Outcome, Failure> {
        self.last_job += 1;
        let wanted = self.last_job;
        self.network
            .send(Command::Get {
                job: wanted,
                url: url.as_str().into(),
                patience: PATIENCE,
            })
            .map_err(|_| Failure::Device)?;
        let mut measured = None;
        let mut measure = measure;
        loop {
            // Lost or dead: nobody has the buffer any more.
            self.network.turn().map_err(|_| Failure::Device)?;
            match self.network.event() {
                Some(Event::NeedMemory { job, bytes }) if job == wanted => {
                    let memory = match buffer.take() {
                        Some(buffer) if buffer.len() as u64 >= bytes => Some(Memory::new(buffer)),
                        _ => {
                            measure = true;
                            usize::try_from(bytes)
                                .ok()
                                .and_then(|bytes| memory::download_buffer(bytes).ok())
                                .map(|(buffer, _)| Memory::new(buffer))
                        }
                    };
                    let answer = match memory {
                        Some(memory) => Command::Memory { job, memory },
                        None => Command::NoMemory { job },
                    };
                    self.network.send(answer).map_err(|_| Failure::Device)?;
                }
                Some(Event::Progress {
                    job,
                    total: Some(total),
                    ..
                }) if job == wanted && measure && measured.is_none() => {
                    measured = Some(total);
                    self.network
                        .send(Command::Cancel { job })
                        .map_err(|_| Failure::Device)?;
                }
                Some(Event::Done { job, result }) if job == wanted => {
                    return match (result, measured) {
                        (Ok(file), _) => Ok(Outcome::File(file)),
                        (Err(_), Some(size)) => Ok(Outcome::Size(size)),
                        (Err(error), None) => Err(failure(&error)),
                    };
                }
                Some(event) => self.take(event),
                None => {}
            }
        }
    }
}

enum Outcome {
    File(File),
    Size(u64),
}

fn failure(error: &FetchError) -> Failure {
    log::debug!("{error}");
    match error {
        FetchError::Tftp { error, .. } => match &**error {
            TftpError::Server { code, text } => Failure::Tftp {
                code: *code as u8,
                text: text.clone(),
            },
            _ => Failure::Timeout,
        },
        _ => Failure::Timeout,
    }
}

impl LoaderNetwork {
    /// Looks after the network for a moment.
    fn turn(&mut self) {
        if self.network.turn().is_err() {
            // A processor was lost, or the card: what ran is lost with it.
            self.downloads
                .iter_mut()
                .for_each(|one| one.end = Some(Progress::Silent));
        }
        while let Some(event) = self.network.event() {
            self.take(event);
        }
    }

    fn size(&mut self, url: &Url) -> Result<u64, Failure> {
        match self.transfer(url, None, true)? {
            Outcome::Size(size) => Ok(size),
            Outcome::File(file) => {
                let size = file.len;
                self.kept = Some(file);
                Ok(size)
            }
        }
    }

    fn read(&mut self, url: &Url, mut buffer: Buffer) -> Result<u64, Failure> {
        if let Some(file) = self.kept.take().filter(|file| file.url == url.as_str()) {
            if file.len > buffer.len() as u64 {
                let size = file.len;
                self.kept = Some(file);
                return Err(Failure::TooSmall(size));
            }
            buffer.fill(file.content());
            return Ok(file.len);
        }
        let room = buffer.len() as u64;
        match self.transfer(url, Some(buffer), false)? {
            Outcome::Size(size) => Err(Failure::TooSmall(size)),
            Outcome::File(file) if file.len <= room => Ok(file.len),
            Outcome::File(file) => {
                let size = file.len;
                self.kept = Some(file);
                Err(Failure::TooSmall(size))
            }
        }
    }
}

/// A file for the near end.
struct Download {
    job: Job,
    /// The bytes that have come without a gap, while it comes.
    reader: Option<DownloadReader>,
    size: Option<u64>,
    /// Something has come.
    coming: bool,
    file: Option<File>,
    /// How it ended, if without a file.
    end: Option<Progress>,
}

impl LoaderNetwork {
    /// Takes an event of a download for the near end.
    fn take(&mut self, event: Event) {
        let (Event::NeedMemory { job, .. }
        | Event::Progress { job, .. }
        | Event::Done { job, .. }
        | Event::Lease { job, .. }) = event;
        let Some(download) = self.downloads.iter_mut().find(|one| one.job == job) else {
            return;
        };
        match event {
            Event::NeedMemory { bytes, .. } => {
                download.reader = None;
                let bytes = usize::try_from(bytes)
                    .ok()
                    .filter(|&bytes| bytes <= LARGEST);
                let memory = bytes.and_then(|bytes| memory::download_buffer(bytes).ok());
                let answer = match memory {
                    Some((buffer, reader)) => {
                        download.reader = Some(reader);
                        Command::Memory {
                            job,
                            memory: Memory::new(buffer),
                        }
                    }
                    None => {
                        download.end = Some(Progress::TooLarge);
                        Command::NoMemory { job }
                    }
                };
                let _ = self.network.send(answer);
            }
            Event::Progress { total, .. } => {
                download.coming = true;
                download.size = total;
            }
            Event::Done { result, .. } => match result {
                Ok(file) => download.file = Some(file),
                Err(error) => {
                    let end = match failure(&error) {
                        Failure::Tftp { code, text } => Progress::Refused {
                            code: code.into(),
                            text,
                        },
                        _ => Progress::Silent,
                    };
                    download.end.get_or_insert(end);
                }
            },
            Event::Lease { .. } => {}
        }
    }

    fn download(&self, job: Job) -> Option<&Download> {
        self.downloads.iter().find(|one| one.job == job)
    }
}

/// The network, for the protocols and for the near end. They take turns.
#[derive(Clone)]
struct Shared(Rc<RefCell<LoaderNetwork>>);

impl efi_protocols::Network for Shared {
    fn turn(&mut self) {
        self.0.borrow_mut().turn();
    }

    fn size(&mut self, url: &Url) -> Result<u64, Failure> {
        self.0.borrow_mut().size(url)
    }

    fn read(&mut self, url: &Url, buffer: Buffer) -> Result<u64, Failure> {
        self.0.borrow_mut().read(url, buffer)
    }

    fn halt(&mut self) {
        self.0.borrow_mut().network.halt();
    }
}

impl Files for Shared {
    type File = Job;

    fn now(&self) -> Instant {
        instant(self.0.borrow().network.clock)
    }

    fn open(&mut self, url: &Url) -> Option<Job> {
        let network = &mut *self.0.borrow_mut();
        network.last_job += 1;
        let job = network.last_job;
        let command = Command::Get {
            job,
            url: url.as_str().into(),
            patience: PATIENCE,
        };
        network.network.send(command).ok()?;
        network.downloads.push(Download {
            job,
            reader: None,
            size: None,
            coming: false,
            file: None,
            end: None,
        });
        Some(job)
    }

    fn progress(&mut self, job: &Job) -> Progress {
        let network = &mut *self.0.borrow_mut();
        network.turn();
        match network.download(*job) {
            Some(Download {
                file: Some(file), ..
            }) => Progress::Whole { size: file.len },
            Some(Download { end: Some(end), .. }) => end.clone(),
            Some(Download {
                coming: true,
                reader: Some(reader),
                size,
                ..
            }) => Progress::Coming {
                size: *size,
                ready: reader.committed(0).len() as u64,
            },
            Some(_) => Progress::Asked,
            None => Progress::Silent,
        }
    }

    fn read(&self, job: &Job, at: u64, to: &mut [u8]) -> usize {
        let network = self.0.borrow();
        let (Some(download), Ok(at)) = (network.download(*job), usize::try_from(at)) else {
            return 0;
        };
        let bytes = match (&download.file, &download.reader) {
            (Some(file), _) => file.rest(at),
            (None, Some(reader)) => reader.committed(at),
            (None, None) => &[],
        };
        let count = bytes.len().min(to.len());
        if let (Some(to), Some(from)) = (to.get_mut(..count), bytes.get(..count)) {
            to.copy_from_slice(from);
        }
        count
    }

    fn close(&mut self, job: Job) {
        let network = &mut *self.0.borrow_mut();
        let open = network
            .download(job)
            .is_some_and(|one| one.file.is_none() && one.end.is_none());
        network.downloads.retain(|one| one.job != job);
        if open {
            let _ = network.network.send(Command::Cancel { job });
        }
    }
}
