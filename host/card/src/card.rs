//! A card from its start to its end: signals, and the file of counters.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::control::{Control, timeout};
use crate::listener::Listener;
use crate::pcap::Writer;
use crate::port::{Offer, Plan, Port};
use crate::statistics::{self, PortStatistics};
use crate::statistics_file::StatisticsFile;

/// What lines in the log begin with where there is one port.
const NAME: &str = "wireboot nic";

/// A card, one port for each guest.
pub(crate) struct HostCard {
    ports: Vec<Control>,
    statistics: Option<StatisticsFile>,
    capture: Option<Writer>,
    signals: UnixStream,
}

impl HostCard {
    /// With a port for each of these. Guests are offered that. What goes through is in the file of `capture`, if there is one.
    ///
    /// # Errors
    /// What keeps it from that, and what to do.
    pub(crate) fn new(
        plans: Vec<(Listener, Plan)>,
        offer: Offer,
        statistics: Option<&Path>,
        capture: Option<Writer>,
    ) -> Result<Self> {
        let several = plans.len() > 1;
        let (signals, raised) = UnixStream::pair().context("making a pipe for signals")?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let raised = raised.try_clone().context("making a pipe for signals")?;
            pipe::register(signal, raised).context("listening for signals")?;
        }
        let ports = plans.into_iter().map(|(listener, plan)| {
            let name: Arc<str> = match several {
                true => format!("{NAME}, {}", plan.socket.display()).into(),
                false => NAME.into(),
            };
            Control::start(Port::start(name, listener, plan, offer)?)
        });
        let mut card = Self {
            ports: ports.collect::<Result<_>>()?,
            statistics: None,
            capture,
            signals,
        };
        if let Some(path) = statistics {
            let text = statistics::json(&card.statistics())?;
            card.statistics = Some(StatisticsFile::new(path, &text)?);
        }
        Ok(card)
    }

    /// Serves monitors, one at a time for each port, until a signal ends it.
    ///
    /// # Errors
    /// The kernel's, when no port is left.
    pub(crate) fn run(mut self) -> Result<Vec<PortStatistics>> {
        loop {
            if self.wait().context("waiting for a signal")? {
                // All at once, and each for itself.
                self.ports.iter_mut().for_each(Control::hang_up);
                let statistics: Vec<_> = self.ports.into_iter().map(Control::end).collect();
                if let Some(file) = &mut self.statistics {
                    file.write(&statistics::json(&statistics)?);
                }
                if let Some(capture) = self.capture.take() {
                    capture.end();
                }
                let _ = self.signals.read(&mut [0; 8]);
                return Ok(statistics);
            }
            let left = self.ports.iter().any(|port| port.descriptor().is_some());
            ensure!(left, "no port is left");
            if self.statistics.as_ref().is_some_and(StatisticsFile::due) {
                let text = statistics::json(&self.statistics())?;
                if let Some(file) = &mut self.statistics {
                    file.write(&text);
                }
            }
        }
    }

    fn statistics(&mut self) -> Vec<PortStatistics> {
        let ports = self.ports.iter_mut();
        ports.map(|port| port.statistics().clone()).collect()
    }

    /// Waits for a signal, the end of a port, or the time for counters. True when a signal came.
    fn wait(&mut self) -> io::Result<bool> {
        // The pipe of signals stands in for what is not there.
        let signals = self.signals.as_fd();
        let ports = self.ports.iter().map(Control::descriptor);
        let mut polled: Vec<_> = [Some(signals)]
            .into_iter()
            .chain(ports)
            .map(|fd| PollFd::from_borrowed_fd(fd.unwrap_or(signals), PollFlags::IN))
            .collect();
        let until = self.statistics.as_ref().map(StatisticsFile::remaining);
        match poll(&mut polled, until.map(timeout).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let woken: Vec<_> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (signal, ended) = woken.split_first().unwrap_or((&false, &[]));
        for (port, _) in self
            .ports
            .iter_mut()
            .zip(ended)
            .filter(|(_, ended)| **ended)
        {
            port.hang_up();
        }
        Ok(*signal)
    }
}
