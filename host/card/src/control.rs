//! The control thread of a port: it waits for monitors, and does what they say. Each port has its own, so what holds up one, by a monitor or a
//! guest, holds up no other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::poller::Handle;
use crate::port::Port;
use crate::say::say;
use crate::statistics::PortStatistics;

/// How long the counters of a port are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// A port that runs.
pub(crate) struct Control {
    /// The thread ends when it is closed, and closes the other end then.
    end: Option<UnixStream>,
    poller: Handle,
    /// As last told.
    statistics: PortStatistics,
    /// What the port did, when the thread has ended.
    last: Receiver<PortStatistics>,
}

impl Control {
    /// Has a thread of its own serve the port's guests.
    ///
    /// # Errors
    /// Those of the kernel's calls.
    pub(crate) fn start(port: Port) -> Result<Self> {
        let (end, ended) = UnixStream::pair().context("making a pipe for the card's end")?;
        let (poller, statistics) = (port.handle(), port.statistics()?);
        let (sender, last) = channel();
        Builder::new()
            .name("port".to_owned())
            .spawn(move || {
                let mut port = port;
                if let Err(error) = run(&mut port, &ended) {
                    say!("{}: {error:#}; it serves nobody any more", port.name());
                }
                port.hang_up();
                let statistics = port.statistics();
                // Its socket goes, before anybody hears of the end.
                drop(port);
                if let Ok(statistics) = statistics {
                    // Nobody waits where the card has lost its patience.
                    let _ = sender.send(statistics);
                }
            })
            .context("starting the card")?;
        Ok(Self {
            end: Some(end),
            poller,
            statistics,
            last,
        })
    }

    /// Readable when the thread has ended by itself; none when that is known, or wanted.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.end.as_ref().map(UnixStream::as_fd)
    }

    /// What the port did so far, or had done when it last answered.
    pub(crate) fn statistics(&mut self) -> &PortStatistics {
        if let Some(statistics) = self.poller.statistics(PATIENCE) {
            self.statistics.statistics = statistics;
        }
        &self.statistics
    }

    /// Ends the session, if there is one, and the thread.
    pub(crate) fn hang_up(&mut self) {
        self.end = None;
    }

    /// What the port did, after [`Self::hang_up`].
    pub(crate) fn end(self) -> PortStatistics {
        self.last.recv_timeout(PATIENCE).unwrap_or(self.statistics)
    }
}

/// Until the other side of `ended` is closed.
fn run(port: &mut Port, ended: &UnixStream) -> Result<()> {
    loop {
        let [end, listener, monitor] = wait(port, ended).context("waiting for a monitor")?;
        if end {
            return Ok(());
        }
        port.look([listener, monitor])?;
    }
}

/// Whether the port is to end, and what it was woken by.
fn wait(port: &Port, ended: &UnixStream) -> io::Result<[bool; 3]> {
    let ended = ended.as_fd();
    let [listener, monitor] = port.descriptors();
    // The end stands in for what is not there.
    let fds = [Some(ended), listener, monitor];
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd.unwrap_or(ended), PollFlags::IN));
    match poll(&mut polled, port.patience().map(timeout).as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled.map(|fd| !fd.revents().is_empty()))
}

/// As the kernel has it.
pub(crate) fn timeout(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as _,
        tv_nsec: time.subsec_nanos().into(),
    }
}
