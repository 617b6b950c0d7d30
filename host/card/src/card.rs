//! A card from its start to its end: the control thread.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::listener::Listener;
use crate::port::{Offer, Plan, Port};
use crate::statistics::{self, PortStatistics};
use crate::statistics_file::StatisticsFile;

/// What lines in the log begin with where there is one port.
const NAME: &str = "wireboot nic";

/// A card, one port for each guest.
pub(crate) struct HostCard {
    ports: Vec<Port>,
    statistics: Option<StatisticsFile>,
    signals: UnixStream,
}

impl HostCard {
    /// Listens at the sockets of these plans. Guests are offered that.
    ///
    /// # Errors
    /// What keeps it from that, and what to do.
    pub(crate) fn new(plans: Vec<Plan>, offer: Offer, statistics: Option<&Path>) -> Result<Self> {
        let several = plans.len() > 1;
        // Before there is a thread: where the umask changes, no other may make a file.
        let listeners = plans
            .into_iter()
            .map(|plan| Ok((Listener::bind(&plan.socket)?, plan)))
            .collect::<Result<Vec<_>>>()?;
        let (signals, raised) = UnixStream::pair().context("making a pipe for signals")?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let raised = raised.try_clone().context("making a pipe for signals")?;
            pipe::register(signal, raised).context("listening for signals")?;
        }
        let ports = listeners.into_iter().map(|(listener, plan)| {
            let name: Arc<str> = match several {
                true => format!("{NAME}, {}", plan.socket.display()).into(),
                false => NAME.into(),
            };
            Port::start(name, listener, plan, offer)
        });
        let mut card = Self {
            ports: ports.collect::<Result<_>>()?,
            statistics: None,
            signals,
        };
        if let Some(path) = statistics {
            let text = statistics::json(&card.statistics()?)?;
            card.statistics = Some(StatisticsFile::new(path, &text)?);
        }
        Ok(card)
    }

    /// Serves monitors, one at a time for each port, until a signal ends it.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn run(mut self) -> Result<Vec<PortStatistics>> {
        loop {
            let (signal, woken) = self.wait().context("waiting for a monitor")?;
            if signal {
                // Sessions end before their pollers do.
                self.ports.iter_mut().for_each(Port::hang_up);
                let statistics = self.statistics()?;
                if let Some(file) = &mut self.statistics {
                    file.write(&statistics::json(&statistics)?)?;
                }
                let _ = self.signals.read(&mut [0; 8]);
                return Ok(statistics);
            }
            for (port, woken) in self.ports.iter_mut().zip(woken) {
                port.look(woken)?;
            }
            if self.statistics.as_ref().is_some_and(StatisticsFile::due) {
                let text = statistics::json(&self.statistics()?)?;
                if let Some(file) = &mut self.statistics {
                    file.write(&text)?;
                }
            }
        }
    }

    fn statistics(&self) -> Result<Vec<PortStatistics>> {
        self.ports.iter().map(Port::statistics).collect()
    }

    /// Whether a signal came, and what each port was woken by.
    fn wait(&self) -> io::Result<(bool, Vec<[bool; 2]>)> {
        // The pipe of signals stands in for what is not there.
        let signals = self.signals.as_fd();
        let fds = self.ports.iter().flat_map(Port::descriptors);
        let mut polled: Vec<_> = [Some(signals)]
            .into_iter()
            .chain(fds)
            .map(|fd| PollFd::from_borrowed_fd(fd.unwrap_or(signals), PollFlags::IN))
            .collect();
        let until = self
            .ports
            .iter()
            .filter_map(Port::patience)
            .chain(self.statistics.as_ref().map(StatisticsFile::remaining))
            .min();
        match poll(&mut polled, until.map(timeout).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut woken = polled.iter().map(|fd| !fd.revents().is_empty());
        let signal = woken.next().unwrap_or(false);
        let woken: Vec<_> = woken.collect();
        Ok((signal, woken.as_chunks().0.to_vec()))
    }
}

fn timeout(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as _,
        tv_nsec: time.subsec_nanos().into(),
    }
}
