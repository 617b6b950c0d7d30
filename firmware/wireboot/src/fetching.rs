//! Driving the fetch service from the BSP (bootstrap processor): memory for its downloads, their check, progress on screen, Escape.
//!
//! Where the service runs on an AP (application processor), the BSP checks the start of a file while the rest still comes.

mod either;
mod known_hosts;
mod post;

use crate::account::Account;
use crate::error::Error;
use crate::network::Network;
use crate::origin;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::ControlFlow;
use known_hosts::KnownHosts;
use wireboot_fetch::url::Url;
use wireboot_fetch::verify::Check;
use wireboot_fetch::{Command, Event, File, Job};
use wireboot_fetch::{DhcpRequest, Leases};
use wireboot_net::{Duration, Memory};
use wireboot_platform::console::{self, Key};
#[cfg(feature = "faults")]
use wireboot_platform::faults;
use wireboot_platform::initrd;
use wireboot_platform::memory::{self, DownloadBuffer, DownloadReader, Free};

/// Time between two looks at the keyboard, in microseconds: each costs a firmware call.
const KEYS: u64 = 100_000;

const MIB: u64 = 1 << 20;
/// Time between two redrawings of the progress line, in microseconds.
const REDRAW: u64 = 250_000;
/// Bytes that are checked between two looks at the network: a millisecond of a slow processor.
const CHECK: usize = 64 * 1024;

/// How long the lease of one version of IP may follow the other's, in microseconds: there are servers that look for 3 s whether an address
/// is in use.
const OTHER_VERSION: u64 = 5_000_000;

/// Fetches files and shows how far it is.
pub struct Fetcher {
    network: Network,
    next_job: Job,
    next_look: u64,
    known: KnownHosts,
    summary: Summary,
    account: Account,
    /// What is asked of DHCP when a name has no address by the firmware's lease, which is of one version of IP.
    unasked: Option<DhcpRequest>,
}

/// What has been downloaded in all.
#[derive(Default)]
struct Summary {
    bytes: u64,
    /// While at least one download ran.
    micros: u64,
    retransmissions: u64,
}

/// A file that is wanted.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// Of any scheme that the service knows.
    pub url: &'a Url,
    /// What it must hash to, if it is to be checked.
    pub sha256: Option<[u8; 32]>,
    /// It is an initial RAM disk: it may be in several pieces of memory, and Linux must find room for a copy.
    pub is_initrd: bool,
}

impl<'a> Wanted<'a> {
    /// A file that is no initial RAM disk, and is not checked.
    pub fn plain(url: &'a Url) -> Self {
        Self {
            url,
            sha256: None,
            is_initrd: false,
        }
    }
}

/// One of the files under way.
struct Download {
    job: Job,
    url: String,
    is_initrd: bool,
    /// What Linux' copy of it takes, in bytes: nothing unless it is an initial RAM disk.
    room: u64,
    received: u64,
    total: Option<u64>,
    file: Option<File>,
    /// When it had come, in microseconds.
    ended: u64,
    /// The bytes that have come without a gap, while the file comes.
    reader: Option<DownloadReader>,
    /// The check of its digest, until it is over.
    check: Option<Check>,
}

impl Fetcher {
    /// On an open network.
    pub fn new(network: Network) -> Self {
        Self {
            account: Account::new(network.mac()),
            network,
            next_job: 0,
            next_look: 0,
            known: KnownHosts::default(),
            summary: Summary::default(),
            unasked: None,
        }
    }

    /// With so much patience for servers that a file has come from: wireboot.efi from `origin`, others from now on.
    pub fn with_patience(mut self, patience: Duration, origin: Option<&Url>) -> Self {
        self.known = KnownHosts::new(patience, origin);
        self
    }

    /// Events that are taken from it here are lost to the fetcher.
    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Empty until DHCP has answered or [`Self::configure`] was called.
    pub fn leases(&self) -> &Leases {
        self.network.leases()
    }

    /// Something is done now: `kind` of phase, and what in particular.
    pub(crate) fn passed(&mut self, kind: &'static str, what: String) {
        self.account.passed(kind, what, self.network.clock.micros());
    }

    /// What the boot took so far.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// The network back: dropping it stops the device.
    pub fn into_network(self) -> Network {
        self.network
    }

    fn job(&mut self) -> Job {
        self.next_job += 1;
        self.next_job
    }

    /// Has the service use leases that the firmware has got.
    pub fn configure(&mut self, leases: Leases) -> Result<(), Error> {
        leases
            .commands()
            .try_for_each(|command| self.network.send(command))
    }

    /// Has DHCP asked when a host has no address by the lease that there is.
    pub(crate) fn ask_for_names(&mut self, request: DhcpRequest) {
        self.unasked = Some(request);
    }

    /// Does `work`, and once more when an AP that ran the network was lost meanwhile, or when DHCP has brought a lease by which a host may
    /// have an address.
    fn retry_once<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match work(self) {
            Err(error) if self.may_do_better(&error)? => work(self),
            result => result,
        }
    }

    fn may_do_better(&mut self, error: &Error) -> Result<bool, Error> {
        if matches!(error, Error::Processor) {
            return Ok(true);
        }
        let Some(request) = self.unasked.take_if(|_| error.is_of_a_name()) else {
            return Ok(false);
        };
        log::warn!("{error}; asking DHCP");
        let before = self.leases().clone();
        let leases = match self.dhcp(request) {
            // The name is what fails.
            Err(Error::Fetch(_)) => return Ok(false),
            result => result?,
        };
        self.configure(origin::beyond(&leases, &before))?;
        Ok(true)
    }

    /// By DHCP and DHCPv6 at the same time; asked anew, once, when an AP that runs the network is lost.
    pub fn dhcp(&mut self, request: DhcpRequest) -> Result<Leases, Error> {
        self.retry_once(|fetcher| fetcher.discover(request.clone()))
    }

    fn discover(&mut self, request: DhcpRequest) -> Result<Leases, Error> {
        let wanted = self.job();
        self.network.send(Command::Dhcp {
            job: wanted,
            request,
        })?;
        let leases = self.drive(|_, event| match event {
            Some(Event::Lease { job, result }) if job == wanted => ControlFlow::Break(result),
            _ => ControlFlow::Continue(false),
        })??;
        Ok(*leases)
    }

    /// Waits a little for a lease of `server`'s version of IP, which may follow the other's.
    pub(crate) fn wait_for_lease(&mut self, server: IpAddr) -> Result<(), Error> {
        let end = self.network.clock.micros() + OTHER_VERSION;
        self.drive(|network, _| {
            let over = network.clock.micros() >= end;
            if over || network.leases().have_version_of(server) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(false)
            }
        })
    }

    /// Downloads all of `wanted` at the same time, checks the SHA-256 digests of those that have one, and returns the files in the
    /// same order. The first that fails ends all.
    pub fn get(&mut self, wanted: &[Wanted<'_>]) -> Result<Vec<File>, Error> {
        self.retry_once(|fetcher| fetcher.download(wanted, None))
    }

    /// The same, doing some of `work` whenever there is nothing else to do.
    pub fn get_beside(
        &mut self,
        wanted: &[Wanted<'_>],
        work: &mut dyn FnMut(),
    ) -> Result<Vec<File>, Error> {
        self.retry_once(|fetcher| fetcher.download(wanted, Some(&mut *work)))
    }

    fn download(
        &mut self,
        wanted: &[Wanted<'_>],
        mut work: Option<&mut dyn FnMut()>,
    ) -> Result<Vec<File>, Error> {
        let begin = self.network.clock.micros();
        let mut downloads = Vec::new();
        for wanted in wanted {
            let job = self.job();
            let (network, known) = (&mut self.network, &self.known);
            downloads.push(Download::begin(network, known, job, *wanted)?);
        }
        let mut progress = Progress::new(begin);
        let mut received = begin;
        let result = self.drive(|network, event| {
            let now = network.clock.micros();
            let step = match event {
                Some(event) => take(network, &mut downloads, event).map(|()| {
                    received = now;
                    false
                }),
                None => {
                    progress.draw(now, &downloads);
                    let mut worked = check(&mut downloads, network.is_remote());
                    if let (Ok(false), Some(work)) = (&worked, &mut work) {
                        work();
                        worked = Ok(true);
                    }
                    worked
                }
            };
            match step {
                Err(error) => ControlFlow::Break(Err(error)),
                Ok(_) if downloads.iter().all(Download::is_over) => ControlFlow::Break(Ok(())),
                Ok(worked) => ControlFlow::Continue(worked),
            }
        });
        console::clear_progress();
        if !matches!(result, Ok(Ok(()))) {
            for download in downloads.iter().filter(|download| download.file.is_none()) {
                self.network.send(Command::Cancel { job: download.job })?;
            }
        }
        result??;
        self.summary.micros += received - begin;
        let come = |one: Download| Some((one.ended, one.file?));
        let files: Vec<(u64, File)> = downloads.into_iter().filter_map(come).collect();
        for (ended, file) in &files {
            self.arrived(file, *ended);
        }
        Ok(files.into_iter().map(|(_, file)| file).collect())
    }

    fn arrived(&mut self, file: &File, ended: u64) {
        if let Ok(url) = Url::parse(&file.url) {
            self.known.add(&url);
        }
        let stats = &file.stats;
        self.account
            .file(&file.url, stats.bytes, stats.micros, ended);
        self.summary.bytes += stats.bytes;
        self.summary.retransmissions += stats.retransmissions;
        log::info!(
            "{}: {} bytes in {} s, {} Mbit/s",
            file.url,
            stats.bytes,
            seconds(stats.micros),
            stats.megabits()
        );
    }

    /// Logs what all downloads together took.
    pub fn report_summary(&self) {
        let Summary {
            bytes,
            micros,
            retransmissions,
        } = &self.summary;
        log::info!(
            "{} MB in {} s, {} Mbit/s, {retransmissions} retransmissions",
            tenths(*bytes),
            seconds(*micros),
            (bytes * 8).checked_div(*micros).unwrap_or(0)
        );
    }

    /// Turns the network until `step` says to stop. `step` sees each event, and `None` when there is none; it says whether it
    /// found something to do.
    fn drive<T>(
        &mut self,
        mut step: impl FnMut(&mut Network, Option<Event>) -> ControlFlow<T, bool>,
    ) -> Result<T, Error> {
        loop {
            self.network.turn()?;
            let event = self.network.event();
            let idle = event.is_none();
            let worked = match step(&mut self.network, event) {
                ControlFlow::Break(value) => return Ok(value),
                ControlFlow::Continue(worked) => worked,
            };
            if !idle {
                continue;
            }
            let now = self.network.clock.micros();
            if now >= self.next_look {
                self.next_look = now + KEYS;
                if console::key() == Some(Key::Escape) {
                    return Err(Error::Stopped);
                }
            }
            if !worked {
                self.network.idle();
            }
        }
    }
}

impl Download {
    /// Asks the network for a file.
    fn begin(
        network: &mut Network,
        known: &KnownHosts,
        job: Job,
        wanted: Wanted<'_>,
    ) -> Result<Self, Error> {
        let patience = known.patience(wanted.url);
        let url = wanted.url.to_string();
        network.send(Command::Get {
            job,
            url: url.clone(),
            patience,
        })?;
        Ok(Self {
            job,
            url,
            is_initrd: wanted.is_initrd,
            room: 0,
            received: 0,
            total: None,
            file: None,
            ended: 0,
            reader: None,
            check: wanted.sha256.map(Check::new),
        })
    }

    /// Memory for the file's `bytes` bytes; `None` where there is too little. Linux' copy of the other initial RAM disks takes `others` bytes.
    fn buffer(&mut self, bytes: u64, others: u64) -> Option<(DownloadBuffer, DownloadReader)> {
        if !self.is_initrd {
            return memory::download_buffer(usize::try_from(bytes).ok()?).ok();
        }
        self.room = initrd::padded(bytes);
        let copy = self.room.saturating_add(others);
        let refused = |free: Free| {
            log::warn!(
                "{} does not fit: it has {} MiB, Linux' copy of all initrds {} MiB in one piece; {} MiB are free, {} of them in one piece",
                self.url,
                bytes.div_ceil(MIB),
                copy.div_ceil(MIB),
                free.bytes / MIB,
                free.largest / MIB,
            );
        };
        memory::initrd_buffer(bytes, copy).map_err(refused).ok()
    }

    fn is_over(&self) -> bool {
        self.file.is_some() && self.check.is_none()
    }

    /// Goes on with the check by what has come, and gives the verdict at its end. False when there is nothing to do.
    fn check(&mut self) -> Result<bool, Error> {
        let Some(check) = &mut self.check else {
            return Ok(false);
        };
        let next = match (&self.file, &self.reader) {
            (Some(file), _) => file.rest(check.position()),
            (None, Some(reader)) => reader.committed(check.position()),
            (None, None) => return Ok(false),
        };
        if check.follow(next, CHECK) {
            return Ok(true);
        }
        if self.file.is_none() {
            return Ok(false);
        }
        let verdict = self.check.take().map_or(Ok(()), Check::finish);
        verdict.map_err(|error| Error::Digest {
            url: self.url.to_string(),
            error,
        })?;
        log::info!("{}: sha256 is right", self.url);
        Ok(true)
    }
}

/// Goes on with the check of the first of `downloads` that has more to check; of one that still comes, only when `early`. False
/// when there is none.
fn check(downloads: &mut [Download], early: bool) -> Result<bool, Error> {
    for download in downloads {
        if (early || download.file.is_some()) && download.check()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes an event of one of `downloads`.
fn take(network: &mut Network, downloads: &mut [Download], event: Event) -> Result<(), Error> {
    let (Event::NeedMemory { job, .. }
    | Event::Progress { job, .. }
    | Event::Done { job, .. }
    | Event::Exchange { job, .. }
    | Event::Lease { job, .. }) = event
    else {
        return Ok(());
    };
    let others = others(downloads, job);
    let Some(download) = downloads.iter_mut().find(|download| download.job == job) else {
        return Ok(());
    };
    match event {
        Event::NeedMemory { bytes, .. } => {
            // What is given up for this memory is free before it is asked for.
            download.reader = None;
            let (buffer, reader) = download.buffer(bytes, others).unzip();
            download.reader = reader;
            // The file grew beyond its memory, or comes anew.
            if let Some(check) = &mut download.check {
                check.restart();
            }
            network.send(match buffer {
                Some(buffer) => Command::Memory {
                    job,
                    memory: Memory::new(buffer),
                },
                None => Command::NoMemory { job },
            })?;
        }
        Event::Progress {
            received, total, ..
        } => {
            download.received = received;
            download.total = total;
            #[cfg(feature = "faults")]
            faults::reach_receiving(faults::Place::Boot, received);
        }
        Event::Done { result, .. } => {
            let file = result?;
            download.received = file.len;
            download.total = Some(file.len);
            download.file = Some(file);
            download.ended = network.clock.micros();
        }
        Event::Lease { .. } | Event::Exchange { .. } | Event::Link { .. } => {}
    }
    Ok(())
}

/// What Linux' copy of the initial RAM disks takes but for that of `job`, as far as they are known.
fn others(downloads: &[Download], job: Job) -> u64 {
    downloads
        .iter()
        .filter(|one| one.job != job)
        .fold(0, |sum, one| sum.saturating_add(one.room))
}

/// When the progress line is drawn next, and what it was drawn from; times in microseconds.
struct Progress {
    next: u64,
    before: (u64, u64),
    /// Bytes a second, smoothed.
    rate: u64,
}

impl Progress {
    fn new(begin: u64) -> Self {
        Self {
            next: begin + REDRAW,
            before: (begin, 0),
            rate: 0,
        }
    }

    fn draw(&mut self, now: u64, downloads: &[Download]) {
        if now < self.next {
            return;
        }
        self.next = now + REDRAW;
        let received: u64 = downloads.iter().map(|d| d.received).sum();
        let (then, had) = self.before;
        let latest = received.saturating_sub(had) * 1_000_000 / (now - then).max(1);
        self.before = (now, received);
        self.rate = if self.rate == 0 {
            latest
        } else {
            (3 * self.rate + latest) / 4
        };
        console::progress(&line(downloads, self.rate));
    }
}

/// `wireboot: linux 8.1 MB, initrd.gz 12.0/40.3 MB, 310.2 MB/s, 1 s left`, and at the end, where a digest takes longer than the
/// network, `wireboot: linux 8.1 MB, initrd.gz checked 20.1/40.3 MB`
fn line(downloads: &[Download], rate: u64) -> String {
    let mut line = String::from("wireboot: ");
    for download in downloads {
        let name = download.url.rsplit('/').next().unwrap_or(&download.url);
        let received = tenths(download.received);
        line += &match (download.total, &download.file, &download.check) {
            (Some(total), Some(_), Some(check)) => {
                let checked = tenths(check.position() as u64);
                format!("{name} checked {checked}/{} MB, ", tenths(total))
            }
            (Some(total), ..) if total != download.received => {
                format!("{name} {received}/{} MB, ", tenths(total))
            }
            _ => format!("{name} {received} MB, "),
        };
    }
    line += &format!("{} MB/s", tenths(rate));
    let left = |d: &Download| Some(d.total?.saturating_sub(d.received));
    let left: Option<u64> = downloads.iter().map(left).sum();
    if let Some(left) = left
        && rate > 0
    {
        line += &format!(", {} s left", left.div_ceil(rate));
    }
    line
}

/// Bytes as megabytes with one decimal.
fn tenths(bytes: u64) -> String {
    format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10)
}

/// Microseconds as seconds with three decimals.
fn seconds(micros: u64) -> String {
    format!("{}.{:03}", micros / 1_000_000, micros / 1_000 % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line() {
        let download = |url: &str, received, total| Download {
            job: 1,
            url: String::from(url),
            is_initrd: false,
            room: 0,
            received,
            total,
            file: None,
            ended: 0,
            reader: None,
            check: None,
        };
        let mut downloads = alloc::vec![
            download("http://a/linux", 8_100_000, Some(8_100_000)),
            download("http://a/d/initrd.gz", 12_040_000, Some(40_310_000)),
        ];
        assert_eq!(
            line(&downloads, 20_000_000),
            "wireboot: linux 8.1 MB, initrd.gz 12.0/40.3 MB, 20.0 MB/s, 2 s left"
        );
        // Without a size there is no end to foresee.
        downloads.push(download("tftp://a/x", 5, None));
        assert_eq!(
            line(&downloads, 0),
            "wireboot: linux 8.1 MB, initrd.gz 12.0/40.3 MB, x 0.0 MB, 0.0 MB/s"
        );
    }

    #[test]
    fn linux_copies_all_initrds() {
        let download = |job, room| Download {
            job,
            url: String::new(),
            is_initrd: true,
            room,
            received: 0,
            total: None,
            file: None,
            ended: 0,
            reader: None,
            check: None,
        };
        let downloads = [download(1, 8), download(2, 4), download(3, 12)];
        assert_eq!(others(&downloads, 2), 20);
        // A server may say anything.
        let downloads = [download(1, u64::MAX), download(2, 4), download(3, 12)];
        assert_eq!(others(&downloads, 2), u64::MAX);
    }

    #[test]
    fn times() {
        assert_eq!(seconds(1_023_456), "1.023");
        assert_eq!(tenths(67_108_864), "67.1");
    }
}
