//! The UDP ports of a DHCP server of either IP version, and questions to somebody else's.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::interface::Networks;
use crate::stop::Stop;

/// Why a message of somebody beyond the server's networks is not answered.
pub(crate) const FROM_BEYOND: &str =
    "it comes from beyond this server's networks, where it is easily forged (--anyone answers it)";

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
    /// Whose messages are answered; `None`: anyone's.
    pub(crate) networks: Option<Networks>,
}

impl Ports {
    pub(crate) fn socket(&self, port: Port) -> &UdpSocket {
        match (port, &self.pxe) {
            (Port::Pxe, Some(pxe)) => pxe,
            _ => &self.server,
        }
    }

    /// Whether who sends from `source` is answered: a machine of the server's networks, or one that has no address of them yet.
    pub(crate) fn answers(&self, source: IpAddr) -> bool {
        let has_none = match source {
            IpAddr::V4(source) => source.is_unspecified(),
            IpAddr::V6(source) => source.is_unicast_link_local(),
        };
        let networks = self.networks.as_ref();
        has_none || networks.is_none_or(|networks| networks.contain(source))
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

/// A transaction id that nobody foretells.
///
/// # Errors
/// When the system gives no random numbers.
pub(crate) fn random_id() -> io::Result<u32> {
    let mut id = [0; 4];
    getrandom(&mut id, GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(id))
}

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
    fn who_is_beyond_the_networks_is_not_answered() {
        let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let here = [("10.0.0.1", 24), ("fd00::1", 64)];
        let here = here.map(|(address, prefix)| (address.parse().unwrap(), prefix));
        let mut ports = Ports {
            server: socket(),
            pxe: None,
            networks: Some(here.to_vec().into()),
        };
        let cases = [
            ("10.0.0.9", true),
            ("0.0.0.0", true),
            ("10.0.1.9", false),
            ("198.51.100.9", false),
            ("fd00::9", true),
            ("fe80::9", true),
            ("::", false),
            ("2001:db8::9", false),
        ];
        for (source, answered) in cases {
            let source = source.parse().unwrap();
            assert_eq!(ports.answers(source), answered, "{source}");
        }
        ports.networks = None;
        for (source, _) in cases {
            assert!(ports.answers(source.parse().unwrap()), "{source}");
        }
    }

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
