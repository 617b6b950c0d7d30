//! Files for the near end.

use super::{LoaderNetwork, PATIENCE, SharedLoaderNetwork};
use crate::network::instant;
use alloc::vec::Vec;
use core::net::IpAddr;
use wireboot_fetch::url::Url;
use wireboot_fetch::{Command, Event, Job, MAX_CONCURRENT};
use wireboot_net::Instant;
use wireboot_platform::memory::{self, Pieces};
use wireboot_protocols::near_end::download::{Download, Piece};
use wireboot_protocols::near_end::{DownloadState, Files, Progress};

/// Bytes of a file that the near end has in memory at most, read and unread.
const MOST: u64 = 64 << 20;
/// Those that a server may have to wait for. One place is left for the loader's calls that read files.
const RUNNING: usize = MAX_CONCURRENT - 1;

/// Files, by their jobs.
pub(super) type Downloads = Vec<(Job, Download<Pieces>)>;

fn piece(bytes: usize) -> Option<Piece<Pieces>> {
    memory::download_buffer(bytes).ok()
}

impl LoaderNetwork {
    /// What runs is lost with its AP (application processor), or with the card.
    pub(super) fn lose_downloads(&mut self) {
        self.downloads.iter_mut().for_each(|(_, one)| one.lose());
    }

    /// Lets downloads go on where there is room.
    pub(super) fn turn_downloads(&mut self) {
        self.downloads
            .iter_mut()
            .for_each(|(_, one)| one.give(piece));
    }

    /// Takes an event of a download for the near end.
    pub(super) fn take_download(&mut self, event: Event) {
        let (Event::NeedMemory { job, .. }
        | Event::Progress { job, .. }
        | Event::Done { job, .. }
        | Event::Exchange { job, .. }
        | Event::Lease { job, .. }) = event
        else {
            return;
        };
        let Some(download) = self.download_mut(job) else {
            return;
        };
        match event {
            Event::NeedMemory { .. } => {
                let first = !download.has_begun();
                let answer = match download.begin(piece) {
                    Some(memory) => Command::Memory { job, memory },
                    None => Command::NoMemory { job },
                };
                if first {
                    self.counts.reads += 1;
                }
                let _ = self.send(answer);
            }
            Event::Progress { total, .. } => download.tell(total),
            Event::Done { result, .. } => download.finish(result.as_ref().map(|file| file.len)),
            Event::Lease { .. } | Event::Exchange { .. } | Event::Link { .. } => {}
        }
    }

    fn download(&self, job: Job) -> Option<&Download<Pieces>> {
        let mut downloads = self.downloads.iter();
        let (_, download) = downloads.find(|(of, _)| *of == job)?;
        Some(download)
    }

    fn download_mut(&mut self, job: Job) -> Option<&mut Download<Pieces>> {
        let mut downloads = self.downloads.iter_mut();
        let (_, download) = downloads.find(|(of, _)| *of == job)?;
        Some(download)
    }
}

impl Files for SharedLoaderNetwork {
    type File = Job;

    fn now(&self) -> Instant {
        instant(self.0.borrow().network.clock)
    }

    fn open(&mut self, client: IpAddr, url: &Url) -> Option<Job> {
        let network = &mut *self.0.borrow_mut();
        let running = network.downloads.iter().filter(|(_, one)| !one.is_over());
        if running.count() >= RUNNING || !network.has_address(client) {
            return None;
        }
        let job = network.next_job();
        let command = Command::Get {
            job,
            url: url.as_str().into(),
            patience: PATIENCE,
        };
        network.send(command).ok()?;
        log::debug!("near end: the boot loader reads {}", url.as_str());
        network.downloads.push((job, Download::new(MOST)));
        Some(job)
    }

    fn progress(&mut self, job: &Job) -> Progress {
        let network = &mut *self.0.borrow_mut();
        network.download_mut(*job).map_or(
            Progress {
                announced: None,
                ready: 0,
                state: DownloadState::Silent,
            },
            Download::progress,
        )
    }

    fn read(&self, job: &Job, at: u64, to: &mut [u8]) -> usize {
        let network = self.0.borrow();
        network.download(*job).map_or(0, |one| one.read(at, to))
    }

    fn release(&mut self, job: &Job, at: u64) {
        let network = &mut *self.0.borrow_mut();
        let download = network.download_mut(*job);
        let count = download.map_or(0, |one| one.release(at));
        network.counts.received += count;
    }

    fn close(&mut self, job: Job) {
        let network = &mut *self.0.borrow_mut();
        let Some(index) = network.downloads.iter().position(|(of, _)| *of == job) else {
            return;
        };
        let (_, download) = network.downloads.swap_remove(index);
        if !download.is_over() {
            let _ = network.send(Command::Cancel { job });
        }
    }
}
