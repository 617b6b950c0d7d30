//! A connection as a task sees it.

use super::{Flow, window};
use crate::error::NetError;
use crate::memory::Region;
use crate::packet::{Ends, IPV4_HEADER, IPV6_HEADER, TCP_HEADER};
use crate::stack::{Inner, Stack};
use alloc::rc::Rc;
use core::cell::Cell;
use core::net::{IpAddr, SocketAddr};
use core::task::Poll;
use wireboot_tcp::{Config, Connection, Duration, Error, State};

/// Bytes that [`TcpStream::write_all`] copies before it waits.
const SEND_BUFFER: usize = 16 * 1024;
/// A reader that hears nothing for so long is told [`NetError::TimedOut`].
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a closed connection may take to say goodbye.
const LINGER: Duration = Duration::from_secs(3);

impl From<Error> for NetError {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused => Self::Refused,
            Error::Reset => Self::Reset,
            Error::TimedOut => Self::TimedOut,
        }
    }
}

impl Stack {
    /// Opens a TCP connection.
    ///
    /// # Errors
    /// [`NetError::Refused`], [`NetError::TimedOut`] after `timeout`, [`NetError::Unreachable`].
    pub async fn connect(
        &self,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<TcpStream, NetError> {
        TcpStream::connect(self.clone(), remote, timeout).await
    }
}

/// A TCP connection. Dropping it resets the connection, unless [`TcpStream::close`] was called.
pub struct TcpStream {
    stack: Stack,
    slot: usize,
    received: Rc<Cell<u64>>,
    closed: bool,
    idle_timeout: Duration,
}

impl TcpStream {
    pub(crate) async fn connect(
        stack: Stack,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, NetError> {
        let local = stack.source(remote.ip()).ok_or(NetError::Unreachable)?;
        // What the server sends must come to this engine.
        let comes_here = |inner: &Inner, port| {
            let team = inner.team.as_ref();
            team.is_none_or(|team| team.owns(remote, SocketAddr::new(local, port)))
        };
        let port = stack
            .rare_port(|inner, port| !inner.flows.uses(port) && comes_here(inner, port))
            .ok_or(NetError::NoPort)?;
        let local = SocketAddr::new(local, port);
        let now = stack.now();
        let header = match remote.ip() {
            IpAddr::V4(_) => IPV4_HEADER,
            IpAddr::V6(_) => IPV6_HEADER,
        } + TCP_HEADER;
        let mss = stack.path_mtu(remote.ip()).saturating_sub(header as u16);
        let config = Config {
            mss,
            send_mss: mss,
            keep_alive: None,
        };
        let ring = stack.ring(remote.ip());
        let connection = Connection::connect(config, stack.iss(local, remote), now);
        let flow = Flow::new(
            Ends::new(remote, local),
            connection,
            window::held(ring),
            now,
        );
        let received = flow.received.clone();
        let slot = {
            let mut inner = stack.inner();
            inner.interface.want(remote.ip(), now);
            inner.flows.ring = ring;
            inner.flows.add(flow)
        };
        let stream = Self {
            stack,
            slot,
            received,
            closed: false,
            idle_timeout: IDLE_TIMEOUT,
        };
        let established = stream.stack.timeout(
            timeout,
            core::future::poll_fn(|_| {
                let connection =
                    stream.with(|flow| (flow.connection.state(), flow.connection.error()));
                match connection {
                    Some((State::SynSent | State::SynReceived, _)) => Poll::Pending,
                    Some((State::Closed, error)) => {
                        Poll::Ready(Err(error.map_or(NetError::Reset, NetError::from)))
                    }
                    Some(_) => Poll::Ready(Ok(())),
                    None => Poll::Ready(Err(NetError::Reset)),
                }
            }),
        );
        match established.await {
            Some(Ok(())) => Ok(stream),
            Some(Err(error)) => Err(error),
            None => Err(NetError::TimedOut),
        }
    }

    /// A read that receives nothing for so long ends with [`NetError::TimedOut`] (10 s unless set).
    pub fn set_idle_timeout(&mut self, timeout: Duration) {
        self.idle_timeout = timeout;
    }

    /// Bytes received so far, as a counter that can be read while a read is under way.
    #[must_use]
    pub fn received(&self) -> Rc<Cell<u64>> {
        self.received.clone()
    }

    /// Bytes received so far.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.received.get()
    }

    /// The shortest round trip seen on this connection, if any was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.with(|flow| flow.connection.round_trip()).flatten()
    }

    /// Connections live as long as their stream, so there is always one.
    fn with<R>(&self, f: impl FnOnce(&mut Flow) -> R) -> Option<R> {
        self.stack.inner().flows.get(self.slot).map(f)
    }

    /// Sends all of `bytes`; ready when they are in the send buffer.
    ///
    /// # Errors
    /// [`NetError::Reset`] when the connection is gone, [`NetError::TimedOut`] when the peer takes nothing.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), NetError> {
        while !bytes.is_empty() {
            self.drained(SEND_BUFFER - 1).await?;
            self.with(|flow| {
                let room = SEND_BUFFER.saturating_sub(flow.send.len());
                let (now, later) = bytes.split_at(room.min(bytes.len()));
                flow.send.push(now);
                flow.connection.queue(now.len() as u32);
                bytes = later;
            });
        }
        Ok(())
    }

    /// Sends what `region` holds from byte `from` to before byte `to`, less than 1 GiB, straight from there. Ready when the peer has
    /// acknowledged all of it; until then it must not be written to.
    ///
    /// # Errors
    /// As [`Self::write_all`].
    pub async fn send_from(
        &mut self,
        region: &Region,
        from: usize,
        to: usize,
    ) -> Result<(), NetError> {
        self.with(|flow| {
            let before = flow.send.len();
            flow.send.push_region(region.clone(), from, to);
            flow.connection.queue((flow.send.len() - before) as u32);
        });
        self.drained(0).await
    }

    /// Waits until no more than `most` bytes wait for their acknowledgement.
    async fn drained(&self, most: usize) -> Result<(), NetError> {
        let mut since = self.stack.now();
        let mut before = usize::MAX;
        core::future::poll_fn(|_| {
            let state = self.with(|flow| {
                let ended = flow.connection.error().map(NetError::from);
                let ended = ended.or((!flow.connection.may_send()).then_some(NetError::Reset));
                (flow.send.len(), ended)
            });
            let (left, ended) = state.unwrap_or((0, Some(NetError::Reset)));
            if let Some(error) = ended {
                return Poll::Ready(Err(error));
            }
            if left <= most {
                return Poll::Ready(Ok(()));
            }
            if left < before {
                (before, since) = (left, self.stack.now());
            } else if self.stack.now() >= since + self.idle_timeout {
                return Poll::Ready(Err(NetError::TimedOut));
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for bytes and shows them to `consume`, which returns how many it took. Returns that number, or 0
    /// when the peer has closed its side and everything was read.
    ///
    /// # Errors
    /// [`NetError::Reset`] when the connection broke, [`NetError::TimedOut`] after the idle time-out.
    pub async fn read(&mut self, consume: impl FnOnce(&[u8]) -> usize) -> Result<usize, NetError> {
        let since = self.stack.now();
        let mut consume = Some(consume);
        core::future::poll_fn(|_| {
            let ready = self.with(|flow| {
                if flow.buffer.held() > 0 {
                    let count = consume
                        .take()
                        .map_or(0, |consume| flow.buffer.read(consume));
                    flow.received.set(flow.received.get() + count as u64);
                    return Some(Ok(count));
                }
                ended(&flow.connection)
            });
            match ready {
                None => Poll::Ready(Err(NetError::Reset)),
                Some(Some(result)) => Poll::Ready(result),
                Some(None) if self.stack.now() >= since + self.idle_timeout => {
                    Poll::Ready(Err(NetError::TimedOut))
                }
                Some(None) => Poll::Pending,
            }
        })
        .await
    }

    /// Fills `region` from `at` to its end straight from the wire. Ready when it is full, when the peer has
    /// closed its side, or on an error; the count is that of the bytes filled, and an error is
    /// returned only when there are none (the next read returns it again). Bytes behind those may have been written
    /// to as well.
    pub async fn read_into(&mut self, region: &Region, at: usize) -> Result<usize, NetError> {
        let mut handed = Some(region.clone());
        core::future::poll_fn(move |_| {
            let now = self.stack.now();
            let idle = self.idle_timeout;
            let ready = self.with(|flow| {
                if let Some(region) = handed.take() {
                    flow.set_destination(region, at, now);
                }
                let (filled, full) = flow.buffer.filled()?;
                let ending = if full {
                    Ok(0)
                } else if let Some(result) = ended(&flow.connection) {
                    result
                } else if now >= flow.last_data + idle {
                    Err(NetError::TimedOut)
                } else {
                    return None;
                };
                flow.leave_destination();
                Some(if filled > 0 { Ok(filled) } else { ending })
            });
            match ready {
                None => Poll::Ready(Err(NetError::Reset)),
                Some(None) => Poll::Pending,
                Some(Some(result)) => Poll::Ready(result),
            }
        })
        .await
    }

    /// Ends our side; what was written is still sent.
    pub fn close(&mut self) {
        self.closed = true;
        self.with(|flow| flow.connection.close());
    }
}

/// Whether nothing more can come, and why.
fn ended(connection: &Connection) -> Option<Result<usize, NetError>> {
    if let Some(error) = connection.error() {
        return Some(Err(error.into()));
    }
    (!connection.may_receive()).then_some(Ok(0))
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        let forget = self.stack.now() + LINGER;
        self.with(|flow| {
            flow.leave_destination();
            if !self.closed {
                flow.connection.abort();
            }
            flow.forget = Some(forget);
        });
    }
}
