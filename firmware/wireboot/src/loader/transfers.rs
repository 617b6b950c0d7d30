//! Whole files, into the caller's memory.

use super::{LoaderNetwork, PATIENCE, failure};
use efi_protocols::{Buffer, Failure};
use wireboot_fetch::url::Url;
use wireboot_fetch::{Command, Event, File};
use wireboot_net::Memory;
use wireboot_platform::memory;

enum Outcome {
    File(File),
    Size(u64),
}

impl LoaderNetwork {
    /// Downloads `url` to `buffer`, or where that is too small or none to memory of ours. Stops as soon as the size is known when `measure`.
    fn transfer(
        &mut self,
        url: &Url,
        mut buffer: Option<Buffer>,
        measure: bool,
    ) -> Result<Outcome, Failure> {
        let wanted = self.next_job();
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
                Some(event) => self.take_download(event),
                None => {}
            }
        }
    }

    pub(super) fn size(&mut self, url: &Url) -> Result<u64, Failure> {
        match self.transfer(url, None, true)? {
            Outcome::Size(size) => Ok(size),
            Outcome::File(file) => {
                let size = file.len;
                self.kept = Some(file);
                Ok(size)
            }
        }
    }

    pub(super) fn read(&mut self, url: &Url, mut buffer: Buffer) -> Result<u64, Failure> {
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
