//! A card from its start to its end: the control thread.

use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use wireboot_card::coalesce::Limits;
use wireboot_card::{Lies, feature};

use crate::listener::Listener;
use crate::mishap::{LOOK, Mishap, Mishaps};
use crate::poller::{Handle, Poller};
use crate::stage::Stage;
use crate::statistics::Statistics;
use crate::vhost::{Connection, ConnectionError, Session, SessionError};

/// How often the file of statistics is written anew.
const STATISTICS_EVERY: Duration = Duration::from_secs(1);
/// How long after the guest's features its memory may take. Monitors send both at once.
const MEMORY_WITHIN: Duration = Duration::from_secs(2);

/// What guests are offered, as far as the card can.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Features.
    pub offloads: u64,
    /// How far frames are gathered for drivers that ask for chunks; `None` for no chunks.
    pub chunks: Option<Limits<Duration>>,
}

/// A card that waits for a monitor.
pub(crate) struct HostCard {
    listener: Listener,
    poller: Poller,
    session: Option<Active>,
    /// Features, for each guest.
    offered: u64,
    pairs: usize,
    statistics: Option<StatisticsFile>,
    mishaps: Mishaps,
    signals: UnixStream,
}

/// A monitor's connection.
struct Active {
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

impl HostCard {
    /// Listens at `socket`. A guest has a pair of queues for each stage. Guests are offered that, and get these faults.
    ///
    /// # Errors
    /// What keeps it from that, and what to do.
    pub(crate) fn new(
        socket: &Path,
        stages: Vec<Stage>,
        offer: Offer,
        statistics: Option<&Path>,
        faults: (Lies, Mishaps),
    ) -> Result<Self> {
        let listener = Listener::bind(socket)?;
        let (signals, raised) = UnixStream::pair().context("making a pipe for signals")?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let raised = raised.try_clone().context("making a pipe for signals")?;
            pipe::register(signal, raised).context("listening for signals")?;
        }
        let statistics = statistics.map(StatisticsFile::new);
        let pairs = stages.len();
        let poller = Poller::start(stages, faults.0, offer.chunks).context("starting the card")?;
        let several = if pairs > 1 { feature::MQ } else { 0 };
        let offloads = poller.offloads() & offer.offloads;
        let offered = feature::consistent(feature::RINGS | several | offloads);
        Ok(Self {
            listener,
            poller,
            session: None,
            offered,
            pairs,
            statistics: statistics.transpose()?,
            mishaps: faults.1,
            signals,
        })
    }

    /// Serves monitors, one at a time, until a signal ends it.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn run(mut self) -> Result<Statistics> {
        loop {
            let woken = self.wait().context("waiting for a monitor")?;
            if woken.signal {
                // A session ends before the poller does.
                self.session = None;
                let statistics = self.poller.statistics().context("the card has ended")?;
                if let Some(file) = &mut self.statistics {
                    file.write(&statistics)?;
                }
                let _ = self.signals.read(&mut [0; 8]);
                return Ok(statistics);
            }
            if woken.connection {
                self.serve();
            }
            self.look_for_memory();
            self.look_for_mishaps()?;
            if woken.listener {
                self.accept()?;
            }
            if let Some(file) = &mut self.statistics
                && file.due()
            {
                let statistics = self.poller.statistics().context("the card has ended")?;
                file.write(&statistics)?;
            }
        }
    }

    fn wait(&self) -> io::Result<Woken> {
        let session = self.session.as_ref();
        let connection = session.map_or(self.signals.as_fd(), |active| active.connection.as_fd());
        let fds = [self.signals.as_fd(), self.listener.as_fd(), connection];
        let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let missing = session.and_then(|active| active.lacks_memory);
        let until = missing
            .map(|since| MEMORY_WITHIN.saturating_sub(since.elapsed()))
            .into_iter()
            .chain(self.statistics.as_ref().map(StatisticsFile::remaining))
            .chain(session.filter(|_| self.mishaps.are_coming()).map(|_| LOOK))
            .min();
        let timeout = until.map(|time| Timespec {
            tv_sec: time.as_secs() as _,
            tv_nsec: time.subsec_nanos().into(),
        });
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [signal, listener, connection] = polled.map(|fd| !fd.revents().is_empty());
        Ok(Woken {
            signal,
            listener,
            connection: connection && session.is_some(),
        })
    }

    fn accept(&mut self) -> Result<()> {
        while let Some(stream) = self.listener.accept().context("taking a connection")? {
            if self.session.is_some() {
                // It sees the connection close.
                eprintln!("wireboot nic: a second monitor was refused: this card has a guest");
                continue;
            }
            let handle = self.poller.handle();
            self.session = Some(Active {
                connection: Connection::new(stream).context("taking a connection")?,
                session: Session::new(handle, self.offered, self.pairs),
                lacks_memory: None,
                told: false,
            });
            eprintln!("wireboot nic: a monitor has connected");
        }
        Ok(())
    }

    /// Obeys what the monitor has sent. A session that cannot go on ends, not the card.
    fn serve(&mut self) {
        let Some(active) = &mut self.session else {
            return;
        };
        if let Err(ended) = active.serve() {
            self.end(&ended);
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
            eprintln!("wireboot nic: {}", SessionError::NoSharedMemory);
            active.told = true;
            active.lacks_memory = None;
        }
    }

    fn look_for_mishaps(&mut self) -> Result<()> {
        if self.session.is_none() || !self.mishaps.are_coming() {
            return Ok(());
        }
        let statistics = self.poller.statistics().context("the card has ended")?;
        match self.mishaps.look(statistics.card.received.units) {
            None => {}
            Some(Mishap::Flap) => {
                self.session = None;
                eprintln!("wireboot nic: the connection is closed, as --fault flap says");
            }
            Some(Mishap::Death) => {
                eprintln!("wireboot nic: the card dies, as --fault death says");
                std::process::exit(1);
            }
        }
        Ok(())
    }

    fn end(&mut self, why: &Ended) {
        // It stops the rings.
        self.session = None;
        eprintln!("wireboot nic: {why}; waiting for the next one");
    }
}

/// What is to be looked at.
struct Woken {
    signal: bool,
    listener: bool,
    connection: bool,
}

impl Active {
    fn serve(&mut self) -> Result<(), Ended> {
        while let Some(message) = self.connection.receive()? {
            let (number, asks) = (message.number, message.need_reply);
            let result = self.session.obey(message);
            if self.session.take_open_memory() {
                eprintln!(
                    "wireboot nic: the monitor can make its memory file shorter, which would end this card; QEMU cannot with memory-backend-memfd"
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

/// The file of `--stats`: always whole, a line of JSON.
struct StatisticsFile {
    path: PathBuf,
    aside: PathBuf,
    written: Instant,
}

impl StatisticsFile {
    fn new(path: &Path) -> Result<Self> {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".new");
        let mut file = Self {
            path: path.to_owned(),
            aside: aside.into(),
            written: Instant::now(),
        };
        file.write(&Statistics::default())?;
        Ok(file)
    }

    fn remaining(&self) -> Duration {
        STATISTICS_EVERY.saturating_sub(self.written.elapsed())
    }

    fn due(&self) -> bool {
        self.remaining().is_zero()
    }

    fn write(&mut self, statistics: &Statistics) -> Result<()> {
        self.written = Instant::now();
        let text = statistics.json().context("writing statistics as JSON")?;
        fs::write(&self.aside, text + "\n")
            .and_then(|()| fs::rename(&self.aside, &self.path))
            .with_context(|| format!("writing {}", self.path.display()))
    }
}
