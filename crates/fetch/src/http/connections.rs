//! Connections kept open for the next file from the same server (RFC 9112 section 9.3).

use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::Future;
use core::net::{IpAddr, SocketAddr};
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use wireboot_net::{Duration, Instant, NetError, Stack, TcpStream};

/// Idle connections kept at most.
const LIMIT: usize = 4;
/// Servers whose round trips are kept at most.
const SERVERS: usize = 16;

/// How long a connection is kept. Servers close theirs after 5 s (Apache httpd) to 75 s (nginx).
const LIFETIME: Duration = Duration::from_secs(4);

/// Idle connections, each waiting for the next request to its server; and the round trips that connections have measured.
#[derive(Default)]
pub struct Connections {
    idle: RefCell<Vec<Idle>>,
    /// The shortest round trip to each server.
    round_trips: RefCell<Vec<(IpAddr, Duration)>>,
}

struct Idle {
    server: SocketAddr,
    stream: TcpStream,
    since: Instant,
}

impl Connections {
    /// A pool without connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Closes all connections and forgets the round trips: the path may be another one now.
    pub fn clear(&self) {
        self.round_trips.borrow_mut().clear();
        for mut idle in self.idle.take() {
            idle.stream.close();
        }
    }

    /// Keeps the shortest round trip that a connection has seen, if that is the shortest of all to its server.
    pub(super) fn measured(&self, server: IpAddr, stream: &TcpStream) {
        let Some(seen) = stream.round_trip() else {
            return;
        };
        let mut all = self.round_trips.borrow_mut();
        let shortest = match all.iter().position(|(other, _)| *other == server) {
            Some(index) => all.remove(index).1.min(seen),
            None => seen,
        };
        if all.len() >= SERVERS {
            all.remove(0);
        }
        all.push((server, shortest));
    }

    /// The shortest round trip to a server, over all connections that there were.
    pub(super) fn round_trip(&self, server: IpAddr) -> Option<Duration> {
        let all = self.round_trips.borrow();
        let of_server = all.iter().find(|(other, _)| *other == server);
        of_server.map(|(_, shortest)| *shortest)
    }

    /// A connection to one of `servers` that is good for another request, as far as one can tell: young,
    /// open, and with nothing on it, for what comes unasked belongs to no request.
    pub(super) fn take(
        &self,
        stack: &Stack,
        servers: &[SocketAddr],
    ) -> Option<(SocketAddr, TcpStream)> {
        let mut idle = self.idle.borrow_mut();
        let now = stack.now();
        idle.retain_mut(|idle| {
            let fresh = now < idle.since + LIFETIME && pending(&mut idle.stream).is_none();
            if !fresh {
                idle.stream.close();
            }
            fresh
        });
        let index = idle
            .iter()
            .position(|idle| servers.contains(&idle.server))?;
        let Idle { server, stream, .. } = idle.swap_remove(index);
        Some((server, stream))
    }

    /// Keeps a connection whose last response was read to its end.
    pub(super) fn put(&self, stack: &Stack, server: SocketAddr, mut stream: TcpStream) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= LIMIT {
            stream.close();
            return;
        }
        idle.push(Idle {
            server,
            stream,
            since: stack.now(),
        });
    }
}

/// What a read would say at once: bytes, the end (0) or an error; none while the connection is open and silent.
/// Bytes are lost.
pub(super) fn pending(stream: &mut TcpStream) -> Option<Result<usize, NetError>> {
    let read = pin!(stream.read(<[u8]>::len));
    match read.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}
