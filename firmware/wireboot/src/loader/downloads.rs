//! Files for the near end.

use super::{LoaderNetwork, PATIENCE, Shared, failure};
use crate::network::instant;
use efi_protocols::Failure;
use wireboot_fetch::url::Url;
use wireboot_fetch::{Command, Event, File, Job};
use wireboot_net::{Instant, Memory};
use wireboot_platform::memory::{self, DownloadReader};
use wireboot_protocols::near_end::{Files, Progress};

/// Bytes of a file that the near end has in memory at most; a larger one comes by the loader's own means.
const LARGEST: usize = 64 << 20;

/// A file for the near end.
pub(super) struct Download {
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
    /// What runs is lost with its processor, or with the card.
    pub(super) fn lose_downloads(&mut self) {
        for download in &mut self.downloads {
            download.end = Some(Progress::Silent);
        }
    }

    /// Takes an event of a download for the near end.
    pub(super) fn take_download(&mut self, event: Event) {
        let (Event::NeedMemory { job, .. }
        | Event::Progress { job, .. }
        | Event::Done { job, .. }
        | Event::Exchange { job, .. }
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
            Event::Lease { .. } | Event::Exchange { .. } => {}
        }
    }

    fn download(&self, job: Job) -> Option<&Download> {
        self.downloads.iter().find(|one| one.job == job)
    }
}

impl Files for Shared {
    type File = Job;

    fn now(&self) -> Instant {
        instant(self.0.borrow().network.clock)
    }

    fn open(&mut self, url: &Url) -> Option<Job> {
        let network = &mut *self.0.borrow_mut();
        let job = network.next_job();
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
