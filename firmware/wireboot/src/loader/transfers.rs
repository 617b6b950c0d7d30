//! Whole files, into the caller's memory.

use super::{LoaderNetwork, PATIENCE, failure};
use crate::error::Error;
use efi_protocols::{Buffer, Failure};
use wireboot_fetch::url::Url;
use wireboot_fetch::{Command, Event, File, Job};
use wireboot_net::Memory;
use wireboot_platform::memory;

enum Outcome {
    File(File),
    Size(u64),
}

impl LoaderNetwork {
    /// Downloads `url` to `buffer` where the server tells that it fits; else, and where the transfer begins anew, to memory of ours. Stops as
    /// soon as the size is known when that does not fit, or when there is no buffer. Afterwards nobody has that, unless it is the file's
    /// memory. Where an AP (application processor) that runs the network is lost, it begins anew on the BSP (bootstrap processor).
    fn transfer(&mut self, url: &Url, mut buffer: Option<Buffer>) -> Result<Outcome, Failure> {
        let mut wanted = self.get(url)?;
        let mut losses = self.losses;
        let room = buffer.as_ref().map(|buffer| buffer.len() as u64);
        let mut size = None;
        let mut cancelled = false;
        loop {
            if let Err(error) = self.network.turn() {
                self.lose_all();
                if !matches!(error, Error::Processor) {
                    return Err(Failure::Device);
                }
            }
            // Here, or when something else was sent. Nobody has the buffer any more.
            if self.losses != losses {
                losses = self.losses;
                wanted = self.get(url)?;
                (size, cancelled) = (None, false);
            }
            match self.network.event() {
                Some(Event::NeedMemory { job, bytes }) if job == wanted => {
                    let fits = |buffer: &mut Buffer| buffer.len() as u64 >= bytes;
                    let memory = match size.and_then(|_| buffer.take_if(fits)) {
                        _ if cancelled => None,
                        Some(buffer) => Some(Memory::new(buffer)),
                        None => usize::try_from(bytes)
                            .ok()
                            .and_then(|bytes| memory::download_buffer(bytes).ok())
                            .map(|(buffer, _)| Memory::new(buffer)),
                    };
                    let answer = match memory {
                        Some(memory) => Command::Memory { job, memory },
                        None => Command::NoMemory { job },
                    };
                    self.send(answer)?;
                }
                Some(Event::Progress {
                    job,
                    // So servers say that do not know it; of an empty file, its end tells.
                    total: Some(total @ 1..),
                    ..
                }) if job == wanted && size.is_none() => {
                    size = Some(total);
                    if room.is_none_or(|room| total > room) {
                        cancelled = true;
                        self.send(Command::Cancel { job })?;
                    }
                }
                Some(Event::Done { job, result }) if job == wanted => {
                    return match (result, size.filter(|_| cancelled)) {
                        (Ok(file), _) => Ok(Outcome::File(file)),
                        (Err(_), Some(size)) => Ok(Outcome::Size(size)),
                        (Err(error), None) => Err(failure(&error)),
                    };
                }
                Some(event) => self.take(event),
                None => self.network.idle(),
            }
        }
    }

    /// Begins to download `url`.
    fn get(&mut self, url: &Url) -> Result<Job, Failure> {
        let job = self.next_job();
        self.send(Command::Get {
            job,
            url: url.as_str().into(),
            patience: PATIENCE,
        })?;
        Ok(job)
    }

    pub(super) fn size(&mut self, url: &Url) -> Result<u64, Failure> {
        match self.transfer(url, None)? {
            Outcome::Size(size) => Ok(size),
            Outcome::File(file) => {
                let size = file.len;
                self.kept = Some(file);
                Ok(size)
            }
        }
    }

    pub(super) fn read(&mut self, url: &Url, buffer: Buffer) -> Result<File, Failure> {
        let room = buffer.len() as u64;
        let kept = self.kept.take().filter(|file| file.url == url.as_str());
        let outcome = match kept {
            Some(file) => Outcome::File(file),
            None => self.transfer(url, Some(buffer))?,
        };
        match outcome {
            Outcome::Size(size) => Err(Failure::TooSmall(size)),
            Outcome::File(file) if file.len <= room => Ok(file),
            Outcome::File(file) => {
                let size = file.len;
                self.kept = Some(file);
                Err(Failure::TooSmall(size))
            }
        }
    }
}
