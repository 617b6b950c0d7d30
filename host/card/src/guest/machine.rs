//! The driver, engine and protocols of a network boot on a device at a card.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use wireboot_fetch::dhcp::VendorClass;
use wireboot_fetch::{Command, DhcpRequest, Event, FetchError, File, Job, Leases, Service};
use wireboot_nic::virtio::{InitError, VirtioNet};
use wireboot_nic::{Counters, Fault, Nic, SendError};
use wireboot_ring::{Receiver, Sender, channel};
use wireboot_wire::card::hello::Hello;

use super::memory::FileMemory;
use super::{Guest, GuestPci};
use crate::vhost::FrontEndError;

/// Commands and events under way.
const MAILBOX: usize = 64;
/// Bytes of the largest file that is downloaded.
const MOST: u64 = 4 << 30;
/// How long it asks in vain for frames before it rests in between, and how long it rests.
const SPIN: Duration = Duration::from_micros(200);
const REST: Duration = Duration::from_micros(50);
/// How often the card is looked after when nothing comes.
const LOOK: Duration = Duration::from_millis(10);

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

/// Why a machine got no further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineError {
    #[error("memory for the card: {0}")]
    Memory(#[from] io::Error),
    #[error(transparent)]
    Init(#[from] InitError),
    #[error(transparent)]
    Card(#[from] FrontEndError),
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("asking the card what it does: {0}")]
    Question(#[from] SendError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

/// A machine whose network card is a device at a card of software.
pub(crate) struct Machine<'a> {
    guest: &'a Guest,
    files: FileMemory,
    service: Service<VirtioNet<GuestPci>>,
    commands: Sender<Command>,
    events: Receiver<Event>,
    job: Job,
    begun: Instant,
    /// Nothing has come since then.
    idle: Option<Instant>,
    looked: Instant,
}

impl<'a> Machine<'a> {
    /// Starts the driver, and has it ask the card what that does beyond virtio, with this number that nobody else knows.
    ///
    /// # Errors
    /// [`MachineError`].
    pub(crate) fn start(
        guest: &'a Guest,
        seed: [u8; 32],
        question: Option<u64>,
    ) -> Result<Self, MachineError> {
        let pci = guest.pci()?;
        let files = pci.file_memory();
        let mut nic = VirtioNet::new(pci).map_err(|error| why(guest, error.into()))?;
        if let Some(token) = question {
            nic.ask_card(token)
                .map_err(|error| why(guest, error.into()))?;
        }
        let (commands, inbox) = channel(MAILBOX);
        let (outbox, events) = channel(MAILBOX);
        let now = Instant::now();
        Ok(Self {
            guest,
            files,
            service: Service::new(nic, seed, inbox, outbox),
            commands,
            events,
            job: 0,
            begun: now,
            idle: None,
            looked: now,
        })
    }

    /// What the card does beyond virtio, once it has answered.
    pub(crate) fn agreed(&mut self) -> Option<Hello> {
        self.service.nic_mut().agreed()
    }

    pub(crate) fn counters(&mut self) -> Counters {
        self.service.nic_mut().counters()
    }

    /// Obtains an address by DHCP or DHCPv6, within so long; one of `version`, if that is said, where it comes in that time.
    ///
    /// # Errors
    /// [`MachineError`].
    pub(crate) fn lease(
        &mut self,
        patience: Duration,
        version: Option<Version>,
    ) -> Result<Box<Leases>, MachineError> {
        self.ask_for_lease(patience);
        let begun = Instant::now();
        let mut leases = None;
        loop {
            if let Some(Event::Lease { result, .. }) = self.turn()? {
                let result = result?;
                let is_there = match version {
                    None => true,
                    Some(Version::V4) => result.v4.is_some(),
                    Some(Version::V6) => result.v6.is_some(),
                };
                if is_there {
                    return Ok(result);
                }
                leases = Some(result);
            }
            if begun.elapsed() >= patience
                && let Some(leases) = leases.take()
            {
                return Ok(leases);
            }
        }
    }

    /// Asks for an address by DHCP. [`Event::Lease`] of [`Self::turn`] tells of the answer.
    pub(crate) fn ask_for_lease(&mut self, patience: Duration) {
        let job = self.next_job();
        let request = DhcpRequest {
            architecture: 7,
            uuid: None,
            client_id: None,
            vendor_class: VendorClass::Pxe,
            user_class: "wireboot".to_owned(),
            requested_address: None,
            want_boot_file: false,
            proxied: false,
            patience: Some(wireboot_net::Duration::from_micros(micros(patience))),
        };
        self.tell(Command::Dhcp { job, request });
    }

    /// Downloads a file, and turns the engine until all of it has come.
    ///
    /// # Errors
    /// [`MachineError`].
    pub(crate) fn fetch(&mut self, url: &str) -> Result<File, MachineError> {
        self.begin(url);
        loop {
            if let Some(Event::Done { result, .. }) = self.turn()? {
                return Ok(result?);
            }
        }
    }

    /// Begins to download a file. [`Event::Done`] of [`Self::turn`] tells of its end.
    pub(crate) fn begin(&mut self, url: &str) {
        let job = self.next_job();
        let url = url.to_owned();
        let patience = wireboot_net::Duration::ZERO;
        self.tell(Command::Get { job, url, patience });
    }

    /// One turn of the engine, and what it tells, if anything. Files get the memory that they need.
    ///
    /// # Errors
    /// [`MachineError::Fault`] and [`MachineError::Card`].
    pub(crate) fn turn(&mut self) -> Result<Option<Event>, MachineError> {
        let micros = micros(self.begun.elapsed());
        let now = wireboot_net::Instant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX));
        let polled = self.service.poll(now);
        if polled.map_err(|fault| why(self.guest, fault.into()))? {
            self.idle = None;
        } else {
            self.rest();
        }
        Ok(match self.events.pop() {
            Some(Event::NeedMemory { job, bytes }) => {
                let fits = usize::try_from(bytes).ok().filter(|_| bytes <= MOST);
                self.tell(match fits.map(|bytes| self.files.allocate(bytes)) {
                    Some(memory) => Command::Memory { job, memory },
                    None => Command::NoMemory { job },
                });
                None
            }
            event => event,
        })
    }

    /// Nothing has come: leaves the processor to others, and looks after the card at times.
    fn rest(&mut self) {
        let now = Instant::now();
        let since = now.duration_since(*self.idle.get_or_insert(now));
        if now.duration_since(self.looked) >= LOOK {
            self.looked = now;
            // What it finds out, the next turn tells.
            self.service.nic_mut().link_up();
        }
        if since < SPIN {
            thread::yield_now();
        } else {
            thread::sleep(REST);
        }
    }

    /// Lets time pass for the engine alone, where nothing has come for some: who waits in vain need not wait for long.
    #[cfg(test)]
    pub(super) fn hasten(&mut self) {
        if self.idle.is_some_and(|since| since.elapsed() > LOOK) {
            self.begun -= 10 * LOOK;
        }
    }

    fn next_job(&mut self) -> Job {
        self.job += 1;
        self.job
    }

    fn tell(&mut self, command: Command) {
        // Each turn takes all commands, and there are never many.
        let told = self.commands.push(command);
        debug_assert!(told.is_ok(), "the mailbox is full");
    }
}

/// A device that is gone is so for a reason.
fn why(guest: &Guest, error: MachineError) -> MachineError {
    guest.take_failure().map_or(error, MachineError::Card)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
