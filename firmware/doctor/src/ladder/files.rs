//! The rungs of files: TFTP and HTTP, the firmware's and ours.

use super::Sample;
use super::sender::own_address;
use crate::error::{Error, refused};
use alloc::string::ToString;
use core::net::IpAddr;
use wireboot_boot::fetching::{Fetcher, Wanted};
use wireboot_fetch::url::Url;
use wireboot_fetch::{Command, Event, Leases, Service};
use wireboot_net::{Duration, Instant, Memory};
use wireboot_nic::{Fault, Nic};
use wireboot_platform::claim::pci::Candidate;
use wireboot_platform::firmware_net::{Http, Pxe};
use wireboot_platform::memory;
use wireboot_platform::trace::PacketWork;
use wireboot_platform::{Clock, random};

/// Commands and events under way at most.
const MAILBOX: usize = 64;
/// Room for a file by the protocols, in bytes.
const ROOM: usize = 64 << 20;
/// How long a file may take to come, in microseconds.
const PATIENCE: u64 = 60_000_000;

/// Whose network is above an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The firmware's, over the firmware's driver: its work is counted there.
    Firmwares,
    Ours,
}

/// A file by a protocol of the interface's.
fn by_protocol(
    interface: &Candidate,
    whose: Whose,
    clock: Clock,
    read: impl FnOnce() -> Result<u64, Error>,
) -> Result<Sample, Error> {
    let work = match whose {
        Whose::Firmwares => Some(PacketWork::start(interface)?),
        Whose::Ours => None,
    };
    let begin = clock.micros();
    let bytes = read()?;
    let micros = clock.micros() - begin;
    let worked = work.map(PacketWork::finish).unwrap_or_default();
    Ok(Sample {
        packets: worked.frames,
        bytes,
        micros,
        busy: worked.ticks,
        least: worked.least,
        ..Sample::default()
    })
}

/// TFTP by the PXE base code, the firmware's or ours.
pub(crate) fn by_base_code(
    (interface, whose): (&Candidate, Whose),
    leases: &Leases,
    server: IpAddr,
    file: &str,
    clock: Clock,
) -> Result<Sample, Error> {
    let station = own_address(leases, server)?;
    let mask = leases.v4.as_ref().map(|lease| lease.address.netmask());
    let mut pxe = Pxe::open(interface, station, mask.map(IpAddr::V4))
        .map_err(refused("PXE on this interface"))?;
    let (mut room, _) = memory::download_buffer(ROOM).map_err(refused("memory for the file"))?;
    by_protocol(interface, whose, clock, || {
        let read = pxe.read(server, file, room.rest_mut(0));
        read.map_err(refused("the file by the base code's TFTP"))
    })
}

/// HTTP by its protocol, the firmware's or ours. The firmware's obtains an address first, which is not counted.
pub(crate) fn by_http_protocol(
    (interface, whose): (&Candidate, Whose),
    url: &Url,
    clock: Clock,
) -> Result<Sample, Error> {
    let mut http = Http::open(interface).map_err(refused("HTTP on this interface"))?;
    let (mut room, _) = memory::download_buffer(ROOM).map_err(refused("memory for the file"))?;
    by_protocol(interface, whose, clock, || {
        let read = http.read(url.as_str(), room.rest_mut(0));
        read.map_err(refused("the file by the HTTP protocol"))
    })
}

/// Ours, as a boot has it, with the time that the BSP did not idle.
pub(crate) fn boot(fetcher: &mut Fetcher, url: &Url, clock: Clock) -> Result<Sample, Error> {
    let idle = fetcher.network().idle_micros();
    let files = fetcher.get(&[Wanted::plain(url)])?;
    let stats = files.first().map(|file| file.stats).unwrap_or_default();
    let idle = fetcher.network().idle_micros() - idle;
    Ok(Sample {
        bytes: stats.bytes,
        micros: stats.micros,
        busy: clock.ticks_of(stats.micros.saturating_sub(idle)),
        ..Sample::default()
    })
}

/// Makes a turn of a service.
pub(crate) type Serve<N> = fn(&mut Service<N>, Instant) -> Result<bool, Fault>;

/// Ours on the BSP, with the time of each turn. Gives the interface back.
pub(crate) fn turns<N: Nic>(
    nic: N,
    serve: Serve<N>,
    leases: &Leases,
    url: &Url,
    clock: Clock,
) -> (N, Result<Sample, Error>) {
    let (mut commands, for_service) = wireboot_ring::channel(MAILBOX);
    let (to_us, mut events) = wireboot_ring::channel(MAILBOX);
    let mut service = Service::new(nic, random::seed().0, for_service, to_us);
    let before = service.nic_mut().counters();
    let room = || {
        let buffer = memory::download_buffer(ROOM * 2).ok();
        buffer.map(|(memory, _)| Memory::new(memory))
    };
    let mut memory = room();
    let mut sample = Sample::default();
    // Into an empty mailbox.
    for command in leases.clone().commands() {
        let _ = commands.push(command);
    }
    let _ = commands.push(Command::Get {
        job: 1,
        url: url.to_string(),
        patience: Duration::ZERO,
    });
    let end = clock.micros() + PATIENCE;
    let result = loop {
        let start = clock.ticks();
        let now = clock.micros();
        let worked = match serve(&mut service, Instant::from_micros(now as i64)) {
            Ok(worked) => worked,
            Err(fault) => break Err(fault.into()),
        };
        let took = clock.ticks() - start;
        if worked {
            sample.busy += took;
        }
        match events.pop() {
            None => {}
            Some(Event::NeedMemory { job, .. }) => {
                // A transfer that begins anew asks again.
                let answer = match memory.take().or_else(room) {
                    Some(memory) => Command::Memory { job, memory },
                    None => Command::NoMemory { job },
                };
                let _ = commands.push(answer);
            }
            Some(Event::Done { result, .. }) => match result {
                Ok(file) => {
                    sample.bytes = file.stats.bytes;
                    sample.micros = file.stats.micros;
                    break Ok(());
                }
                Err(error) => break Err(error.into()),
            },
            Some(_) => {}
        }
        if now > end {
            break Err(Error::Slow(url.to_string()));
        }
    };
    let after = service.nic_mut().counters();
    sample.packets = after.receive_units - before.receive_units;
    (service.into_nic(), result.map(|()| sample))
}
