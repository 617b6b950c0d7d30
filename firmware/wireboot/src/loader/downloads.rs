//! Files for the near end.

use super::{LoaderNetwork, PATIENCE, Shared, failure};
use crate::network::instant;
use alloc::string::String;
use efi_protocols::Failure;
use wireboot_fetch::tftp::TftpError;
use wireboot_fetch::url::Url;
use wireboot_fetch::window::WindowReader;
use wireboot_fetch::{Command, Event, FetchError, Job, MAX_CONCURRENT};
use wireboot_net::{Instant, Memory};
use wireboot_platform::memory::{self, Pieces};
use wireboot_protocols::near_end::{Files, Progress, State};

/// Bytes of a file that the near end has in memory at most, read and unread.
const MOST: u64 = 64 << 20;
/// Bytes of one piece of that.
const PIECE: u64 = 1 << 20;
/// Beyond what has come of a file whose size nobody has told.
const AHEAD: u64 = 4 << 20;
/// Beyond the size that was told: more than a block.
const BEYOND: u64 = 64 << 10;
/// Those that a server may have to wait for. One place is left for the loader's calls that read files.
const RUNNING: usize = MAX_CONCURRENT - 1;

/// A file for the near end.
pub(super) struct Download {
    job: Job,
    window: WindowReader<Pieces>,
    announced: Option<u64>,
    /// The server has answered.
    coming: bool,
    /// There was no memory for another piece.
    short: bool,
    /// What has become of it, once that is known.
    end: Option<State>,
    /// The service knows no more of it.
    over: bool,
}

impl Download {
    /// Bytes that have come.
    fn ready(&mut self) -> u64 {
        self.window.released() + self.window.ready() as u64
    }

    /// Gives memory as far as there may be.
    fn give(&mut self) {
        if self.short || self.end.is_some() || !self.coming {
            return;
        }
        let ready = self.ready();
        let wanted = match self.announced {
            Some(size) if size > ready => size,
            Some(_) => ready + BEYOND,
            None => ready + AHEAD,
        };
        let limit = wanted.min(self.window.released() + MOST);
        while let Some(left) = limit.checked_sub(self.window.end())
            && left > 0
        {
            match memory::download_buffer(left.min(PIECE) as usize) {
                Ok(piece) => self.window.give(piece),
                Err(_) => {
                    // Asked for again when the loader has read some.
                    self.short = true;
                    return;
                }
            }
        }
    }

    /// Another transfer begins: the first, or one in the place of one that the server gave up. `bytes`: the file's size, if it was announced.
    fn begin(&mut self, job: Job, bytes: u64) -> Command {
        let window = self.window.renew(usize::MAX);
        self.coming = true;
        self.short = false;
        self.give();
        if self.window.end() == 0 && bytes > 0 {
            self.end = Some(State::TooLarge);
        }
        match self.end {
            Some(_) => Command::NoMemory { job },
            None => Command::Memory {
                job,
                memory: Memory::new(window),
            },
        }
    }

    fn changed(&mut self) {
        self.end = Some(State::Refused {
            code: 0,
            text: String::from("the file has changed on the server"),
        });
    }

    /// The transfer is over, with a file of `len` bytes or an error.
    fn finish(&mut self, result: Result<u64, &FetchError>) {
        self.over = true;
        // What was not filled is of no more use.
        let _ = self.window.renew(0);
        let ready = self.ready();
        let len = match result {
            // It is the loader's to see.
            Err(FetchError::Tftp { error, .. }) => match &**error {
                TftpError::WrongSize { received, .. } => Ok(*received),
                _ => Err(result),
            },
            Ok(len) => Ok(len),
            Err(_) => Err(result),
        };
        match len {
            Ok(len) if len == ready => self.end = Some(State::Whole),
            Ok(_) => self.changed(),
            Err(Err(error)) => {
                let state = match failure(error) {
                    Failure::Tftp { code, text } => State::Refused {
                        code: code.into(),
                        text,
                    },
                    _ => State::Silent,
                };
                self.end.get_or_insert(state);
            }
            Err(Ok(_)) => {}
        }
    }
}

impl LoaderNetwork {
    /// What runs is lost with its processor, or with the card.
    pub(super) fn lose_downloads(&mut self) {
        for download in &mut self.downloads {
            download.end.get_or_insert(State::Silent);
            download.over = true;
        }
    }

    /// Lets downloads go on where there is room.
    pub(super) fn turn_downloads(&mut self) {
        for download in &mut self.downloads {
            download.give();
        }
    }

    /// Takes an event of a download for the near end.
    pub(super) fn take_download(&mut self, event: Event) {
        let (Event::NeedMemory { job, .. }
        | Event::Progress { job, .. }
        | Event::Done { job, .. }
        | Event::Exchange { job, .. }
        | Event::Lease { job, .. }) = event;
        let Some(download) = self.download_mut(job) else {
            return;
        };
        match event {
            Event::NeedMemory { bytes, .. } => {
                let answer = download.begin(job, bytes);
                let _ = self.network.send(answer);
            }
            Event::Progress { total, .. } => match download.announced {
                Some(_) if total != download.announced => download.changed(),
                _ => download.announced = total,
            },
            Event::Done { result, .. } => download.finish(result.as_ref().map(|file| file.len)),
            Event::Lease { .. } | Event::Exchange { .. } => {}
        }
    }

    fn download(&self, job: Job) -> Option<&Download> {
        self.downloads.iter().find(|one| one.job == job)
    }

    fn download_mut(&mut self, job: Job) -> Option<&mut Download> {
        self.downloads.iter_mut().find(|one| one.job == job)
    }
}

impl Files for Shared {
    type File = Job;

    fn now(&self) -> Instant {
        instant(self.0.borrow().network.clock)
    }

    fn open(&mut self, url: &Url) -> Option<Job> {
        let network = &mut *self.0.borrow_mut();
        let running = network.downloads.iter().filter(|one| !one.over);
        if running.count() >= RUNNING {
            return None;
        }
        let job = network.next_job();
        let command = Command::Get {
            job,
            url: url.as_str().into(),
            patience: PATIENCE,
        };
        network.network.send(command).ok()?;
        let (_, window) = WindowReader::new(0);
        network.downloads.push(Download {
            job,
            window,
            announced: None,
            coming: false,
            short: false,
            end: None,
            over: false,
        });
        Some(job)
    }

    fn progress(&mut self, job: &Job) -> Progress {
        let network = &mut *self.0.borrow_mut();
        let Some(download) = network.download_mut(*job) else {
            return Progress {
                announced: None,
                ready: 0,
                state: State::Silent,
            };
        };
        let state = match &download.end {
            Some(end) => end.clone(),
            None if download.coming => State::Coming,
            None => State::Asked,
        };
        Progress {
            announced: download.announced,
            ready: download.ready(),
            state,
        }
    }

    fn read(&self, job: &Job, at: u64, to: &mut [u8]) -> usize {
        let network = self.0.borrow();
        let Some(download) = network.download(*job) else {
            return 0;
        };
        let at = at.checked_sub(download.window.released());
        at.map_or(0, |at| download.window.read(at as usize, to))
    }

    fn release(&mut self, job: &Job, at: u64) {
        let network = &mut *self.0.borrow_mut();
        let Some(download) = network.download_mut(*job) else {
            return;
        };
        let count = at.saturating_sub(download.window.released());
        if count > 0 {
            download.window.release(count as usize);
            download.short = false;
        }
    }

    fn close(&mut self, job: Job) {
        let network = &mut *self.0.borrow_mut();
        let Some(index) = network.downloads.iter().position(|one| one.job == job) else {
            return;
        };
        let download = network.downloads.swap_remove(index);
        if !download.over {
            let _ = network.network.send(Command::Cancel { job });
        }
    }
}
