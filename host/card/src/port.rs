//! A port of the card: the socket of one guest, its monitor's connection, and the thread that turns its queues.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use wireboot_card::{Beyond, Lies, feature};

use crate::data_path::DataPath;
use crate::listener::Listener;
use crate::outage::{LOOK, Outage, Outages};
use crate::poller::{Handle, Poller, Polling};
use crate::say::say;
use crate::statistics::PortStatistics;
use crate::vhost::{Connection, ConnectionError, Session, SessionError};

/// How long after the guest's features its memory may take. Monitors send both at once.
const MEMORY_WITHIN: Duration = Duration::from_secs(2);
/// Monitors that come, and messages of one that is there, before there is a look at all else: more are there at the next look.
const MONITORS: usize = 4;
const MESSAGES: usize = 32;

/// What guests are offered, as far as the card can.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Bits of [`feature`], of which those that the wire can are offered.
    pub offloads: u64,
    /// What is done for drivers that ask.
    pub beyond: Beyond,
    /// How long the card looks before it waits.
    pub polling: Polling,
}

/// What a port is to be.
pub(crate) struct Plan {
    /// The path of the socket that monitors connect to.
    pub socket: PathBuf,
    /// A pair of queues for each.
    pub data_paths: Vec<DataPath>,
    pub lies: Lies,
    pub outages: Outages,
}

/// A port that waits for a monitor.
pub(crate) struct Port {
    /// What its lines in the log begin with.
    name: Arc<str>,
    socket: PathBuf,
    listener: Listener,
    poller: Poller,
    session: Option<Active>,
    /// Features, for each guest.
    offered: u64,
    pairs: usize,
    outages: Outages,
}

/// A monitor that is connected, and its guest.
struct Active {
    name: Arc<str>,
    connection: Connection,
    session: Session<Handle>,
    /// Since when its guest's memory is missing, until the user is told.
    lacks_memory: Option<Instant>,
    told: bool,
}

/// Why a session is over.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl Port {
    /// Starts a port at a socket that is there.
    ///
    /// # Errors
    /// Those of the kernel's calls.
    pub(crate) fn start(
        name: Arc<str>,
        listener: Listener,
        plan: Plan,
        offer: Offer,
    ) -> Result<Self> {
        let pairs = plan.data_paths.len();
        let poller = Poller::start(
            name.clone(),
            plan.data_paths,
            plan.lies,
            offer.beyond,
            offer.polling,
        )
        .context("starting the card")?;
        let several = if pairs > 1 { feature::MQ } else { 0 };
        let offloads = poller.offloads() & offer.offloads;
        let offered = feature::consistent(feature::RINGS | several | offloads);
        Ok(Self {
            name,
            socket: plan.socket,
            listener,
            poller,
            session: None,
            offered,
            pairs,
            outages: plan.outages,
        })
    }

    /// Who may have something for [`Self::look`]: monitors that come, and the one that is there.
    pub(crate) fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let session = self.session.as_ref();
        [
            Some(self.listener.as_fd()),
            session.map(|active| active.connection.as_fd()),
        ]
    }

    /// How long [`Self::look`] may be left alone.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let session = self.session.as_ref()?;
        let memory = session.lacks_memory;
        let memory = memory.map(|since| MEMORY_WITHIN.saturating_sub(since.elapsed()));
        let outage = self.outages.are_coming().then_some(LOOK);
        memory.into_iter().chain(outage).min()
    }

    /// Does what is to be done. By which descriptors it was woken, is told.
    ///
    /// # Errors
    /// Those of the kernel's calls.
    pub(crate) fn look(&mut self, [listener, connection]: [bool; 2]) -> Result<()> {
        if connection {
            self.serve();
        }
        self.look_for_memory();
        self.look_for_outages()?;
        if listener {
            self.accept()?;
        }
        Ok(())
    }

    /// What its lines in the log begin with.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// For those who want its counters.
    pub(crate) fn handle(&self) -> Handle {
        self.poller.handle()
    }

    /// Ends the session, if there is one.
    pub(crate) fn hang_up(&mut self) {
        self.session = None;
    }

    /// What it did so far.
    ///
    /// # Errors
    /// When its thread has ended.
    pub(crate) fn statistics(&self) -> Result<PortStatistics> {
        Ok(PortStatistics {
            name: self.name.clone(),
            socket: self.socket.clone(),
            statistics: self.poller.statistics().context("the card has ended")?,
        })
    }

    fn accept(&mut self) -> Result<()> {
        for _ in 0..MONITORS {
            let Some(stream) = self.listener.accept().context("taking a connection")? else {
                break;
            };
            if self.session.is_some() {
                // It sees the connection close.
                say!(
                    "{}: a second monitor was refused: this card has a guest",
                    self.name
                );
                continue;
            }
            let handle = self.poller.handle();
            self.session = Some(Active {
                name: self.name.clone(),
                connection: Connection::new(stream).context("taking a connection")?,
                session: Session::new(handle, self.offered, self.pairs),
                lacks_memory: None,
                told: false,
            });
            say!("{}: a monitor has connected", self.name);
        }
        Ok(())
    }

    /// Obeys what the monitor has sent. A session that cannot go on ends, not the card.
    fn serve(&mut self) {
        let Some(active) = &mut self.session else {
            return;
        };
        if let Err(ended) = active.serve() {
            // It stops the rings.
            self.session = None;
            say!("{}: {ended}; waiting for the next one", self.name);
        }
    }

    /// A monitor that cannot share its guest's memory says so to its own user, and nothing to us.
    fn look_for_memory(&mut self) {
        let Some(active) = &mut self.session else {
            return;
        };
        if active.told || !active.session.lacks_memory() {
            active.lacks_memory = None;
            return;
        }
        let since = *active.lacks_memory.get_or_insert_with(Instant::now);
        if since.elapsed() >= MEMORY_WITHIN {
            // It may come yet, so the session goes on.
            say!("{}: {}", self.name, SessionError::NoSharedMemory);
            active.told = true;
            active.lacks_memory = None;
        }
    }

    fn look_for_outages(&mut self) -> Result<()> {
        if self.session.is_none() || !self.outages.are_coming() {
            return Ok(());
        }
        let statistics = self.statistics()?.statistics;
        match self.outages.look(statistics.card.received.units) {
            None => {}
            Some(Outage::Flap) => {
                self.session = None;
                say!(
                    "{}: the connection is closed, as --fault flap says",
                    self.name
                );
            }
            Some(Outage::Death) => {
                say!("{}: the card dies, as --fault death says", self.name);
                crate::say::finish();
                std::process::exit(1);
            }
        }
        Ok(())
    }
}

impl Active {
    fn serve(&mut self) -> Result<(), Ended> {
        for _ in 0..MESSAGES {
            let Some(message) = self.connection.receive()? else {
                break;
            };
            let (number, asks) = (message.number, message.need_reply);
            let result = self.session.obey(message);
            if self.session.take_open_memory() {
                say!(
                    "{}: the monitor can take memory out of its file, which would end this card; QEMU cannot with memory-backend-memfd without huge pages",
                    self.name
                );
            }
            match result {
                Ok(reply) => {
                    if let Some(bytes) = reply.bytes() {
                        self.connection.reply(number, &bytes)?;
                    }
                }
                Err(error) => {
                    if asks {
                        // The monitor may tell its user, too.
                        self.connection.reply(number, &1u64.to_le_bytes())?;
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}
