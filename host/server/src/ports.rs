//! The UDP ports of a DHCP server of either IP version, and questions to somebody else's.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::stop::Stop;

/// Which port a message came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The server's own: 67, or 547 at the multicast address of all servers.
    Server,
    /// 4011, where a client asks a boot server directly (PXE 2.1 section 2.2).
    Pxe,
}

/// A socket for each port.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) server: UdpSocket,
    /// For a server beside somebody else's.
    pub(crate) pxe: Option<UdpSocket>,
}

impl Ports {
    pub(crate) fn socket(&self, port: Port) -> &UdpSocket {
        match (port, &self.pxe) {
            (Port::Pxe, Some(pxe)) => pxe,
            _ => &self.server,
        }
    }

    /// Gives each datagram and its source to `take`, until told to stop. `turn` comes before each wait, and says how long that may be.
    ///
    /// # Errors
    /// When a socket fails for good.
    pub(crate) fn serve(
        &self,
        stop: &Stop,
        mut turn: impl FnMut(Instant) -> Duration,
        mut take: impl FnMut(Port, &[u8], SocketAddr),
    ) -> io::Result<()> {
        let mut buffer = [0; 4096];
        while !stop.is_set() {
            // Rounded up: the time has come then.
            let wait = turn(Instant::now()).min(Stop::CHECK_EVERY) + Duration::from_millis(1);
            let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
            let mut waiting: Vec<_> = std::iter::once(&self.server)
                .chain(&self.pxe)
                .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
                .collect();
            match poll(&mut waiting, wait) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            for (port, polled) in [Port::Server, Port::Pxe].into_iter().zip(waiting) {
                if polled.any() != Some(true) {
                    continue;
                }
                match self.socket(port).recv_from(&mut buffer) {
                    Ok((length, source)) => {
                        take(port, buffer.get(..length).unwrap_or_default(), source);
                    }
                    Err(error) if passes(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// The socket of the PXE port. A server that gives addresses can do without it.
pub(crate) fn pxe_port(
    proxy: bool,
    bind: impl FnOnce() -> io::Result<UdpSocket>,
) -> io::Result<Option<UdpSocket>> {
    match bind() {
        Err(_) if !proxy => Ok(None),
        bound => bound.map(Some),
    }
}

/// Whether the socket goes on after `error`.
fn passes(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused
    )
}

/// How long an answer to a question is waited for. Before their first offer, servers make sure that nobody has the address: ISC's takes a
/// second for it, busybox's two, dnsmasq three.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two questions.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Asks `servers`, again and again, until `answer` takes a datagram for one; `None` when nothing comes.
///
/// # Errors
/// When the question cannot be asked.
pub(crate) fn ask<T>(
    socket: &UdpSocket,
    servers: SocketAddr,
    question: &[u8],
    mut answer: impl FnMut(&[u8], SocketAddr) -> Option<T>,
) -> io::Result<Option<T>> {
    let began = Instant::now();
    let mut asked = 0;
    let mut buffer = [0; 2048];
    loop {
        let elapsed = began.elapsed();
        if elapsed >= PATIENCE {
            return Ok(None);
        }
        if elapsed >= ASK_EVERY * asked {
            socket.send_to(question, servers)?;
            asked += 1;
        }
        let wait = (ASK_EVERY * asked)
            .min(PATIENCE)
            .saturating_sub(began.elapsed());
        socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let Ok((length, source)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let found = answer(buffer.get(..length).unwrap_or_default(), source);
        if found.is_some() {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::ErrorKind::{
        AddrNotAvailable, BrokenPipe, ConnectionRefused, Interrupted, NetworkDown,
        PermissionDenied, WouldBlock,
    };

    #[test]
    fn an_error_that_passes_ends_no_server() {
        for kind in [WouldBlock, Interrupted, ConnectionRefused] {
            assert!(passes(&kind.into()), "{kind}");
        }
        for kind in [NetworkDown, AddrNotAvailable, PermissionDenied, BrokenPipe] {
            assert!(!passes(&kind.into()), "{kind}");
        }
    }
}
