//! The network under a boot loader: it stays while the loader runs, and EFI protocols lead to it.

use crate::error::Error;
use crate::network::Network;
use crate::origin::Origin;
use alloc::boxed::Box;
use core::net::IpAddr;
use efi_protocols::{Buffer, Failure, Packets, Resident, Station};
use wireboot_fetch::tftp::TftpError;
use wireboot_fetch::url::{Host, Url};
use wireboot_fetch::{Command, Event, FetchError, File, Job};
use wireboot_net::{Duration, Memory, tap};
use wireboot_platform::device_path::PathBuf;
use wireboot_platform::memory;
use wireboot_protocols::packet;

/// Jobs of loaders are numbered from here on: others' late events are not taken for theirs.
const FIRST_JOB: Job = 1 << 16;
/// Payload of the frames and packets that loaders send and receive themselves, whatever the link carries: they are written for this.
const MTU: u16 = 1500;
/// How long a server may be silent, as loaders try others themselves.
const PATIENCE: Duration = Duration::ZERO;

/// The network with what loaders' calls have left behind.
struct LoaderNetwork {
    network: Network,
    last_job: Job,
    /// A file that was too long for its buffer, or only measured: the next call wants it.
    kept: Option<File>,
}

/// Offers `network` by the protocols to a loader that came from `url` and is given `path`. The network comes back where
/// there is no address or no memory for that.
pub(crate) fn offer(
    mut network: Network,
    origin: &Origin,
    url: &Url,
    path: &PathBuf,
) -> Result<Resident, Error> {
    let (tap, port) = tap(MTU);
    network.send(Command::Tap(Box::new(tap)))?;
    let (address, prefix_len) = match &network.leases().v4 {
        Some(lease) => (lease.address.address(), lease.address.prefix_len()),
        None => return Err(Error::Nothing),
    };
    let interfaces = path.interfaces().ok_or(Error::Nothing)?;
    let station = Station {
        mac: network.mac(),
        mtu: MTU,
        address: address.into(),
        prefix_len,
        mac_path: interfaces.mac,
        ip_path: interfaces.ip,
    };
    let packets = packets(origin, url);
    let network = LoaderNetwork {
        network,
        last_job: FIRST_JOB,
        kept: None,
    };
    Resident::offer(Box::new(network), port, station, &packets).map_err(|error| Error::Firmware {
        what: "handles for the boot loader's network",
        status: error.status(),
    })
}

/// The packets of the firmware's own network boot, which name the loader.
fn packets(origin: &Origin, url: &Url) -> Packets {
    let Some(cached) = &origin.cached else {
        return Packets::default();
    };
    let file = url.resource().trim_start_matches('/');
    let [discover, mut ack, proxy_offer, pxe_discover, pxe_reply] = cached.raw();
    let server = match url.host() {
        Host::Address(IpAddr::V4(server)) => Some(*server),
        _ => None,
    };
    if let (Some(ack), Some(server)) = (&mut ack, server) {
        packet::name_file(ack, server, file);
    }
    let ended = |packet: Option<packet::Packet>| {
        packet.map(|mut packet| {
            packet::end_options(&mut packet);
            packet
        })
    };
    Packets {
        discover: ended(discover),
        ack,
        proxy_offer: ended(proxy_offer),
        pxe_discover: ended(pxe_discover),
        pxe_reply: ended(pxe_reply),
    }
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
                _ => {}
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

impl efi_protocols::Network for LoaderNetwork {
    fn turn(&mut self) {
        let _ = self.network.turn();
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

    fn halt(&mut self) {
        self.network.halt();
    }
}
