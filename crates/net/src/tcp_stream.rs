//! A TCP connection as a task sees it.

use crate::error::NetError;
use crate::memory::Region;
use crate::packet::Ends;
use crate::stack::{Stack, until};
use crate::state::NetState;
use crate::tcp::flows::Flow;
use crate::tcp::mss::mss;
use crate::tcp::window;
use alloc::rc::Rc;
use core::cell::Cell;
use core::net::SocketAddr;
use wireboot_tcp::{Connection, Duration, Error, State};

/// Bytes that [`TcpStream::write_all`] copies before it waits.
const SEND_BUFFER: usize = 16 * 1024;
/// A reader that hears nothing for so long is told [`NetError::TimedOut`].
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a card may take to give memory back that it was lent.
const CARD_PATIENCE: Duration = Duration::from_millis(100);
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
        let local = self.source(remote.ip()).ok_or(NetError::Unreachable)?;
        // What the server sends must come to this engine.
        let usable = |state: &NetState, port| {
            let local = SocketAddr::new(local, port);
            !state.flows.uses(port) && state.team.owns(remote, local)
        };
        let port = self.tcp_port(usable).ok_or(NetError::NoPort)?;
        let local = SocketAddr::new(local, port);
        let now = self.now();
        let mss = mss(remote.ip(), self.path_mtu(remote.ip()));
        let ring = self.ring(remote.ip());
        let connection = Connection::connect(mss, self.iss(local, remote), now);
        let ends = Ends::new(remote, local);
        let flow = Flow::new(ends, connection, window::held(ring), now);
        let received = flow.received.clone();
        let acknowledged = flow.acknowledged.clone();
        let slot = {
            let mut state = self.state();
            state.flows.ring = ring;
            state.flows.add(flow)
        };
        let stream = TcpStream {
            stack: self.clone(),
            slot,
            received,
            acknowledged,
            local,
            closed: false,
            idle_timeout: IDLE_TIMEOUT,
        };
        let established = stream.until(|flow| match flow.connection.state() {
            State::SynSent | State::SynReceived => None,
            State::Closed => {
                let error = flow.connection.error();
                Some(Err(error.map_or(NetError::Reset, NetError::from)))
            }
            _ => Some(Ok(())),
        });
        let established = self.timeout(timeout, established).await;
        established.unwrap_or(Err(NetError::TimedOut))?;
        Ok(stream)
    }
}

/// A TCP connection. Dropping it resets the connection, unless [`TcpStream::close`] was called.
pub struct TcpStream {
    stack: Stack,
    slot: usize,
    received: Rc<Cell<u64>>,
    acknowledged: Rc<Cell<u64>>,
    local: SocketAddr,
    closed: bool,
    idle_timeout: Duration,
}

impl TcpStream {
    /// A read that receives nothing for so long ends with [`NetError::TimedOut`] (10 s unless set).
    pub fn set_idle_timeout(&mut self, timeout: Duration) {
        self.idle_timeout = timeout;
    }

    /// Bytes received so far, as a counter that can be read while a read is under way.
    #[must_use]
    pub fn received(&self) -> Rc<Cell<u64>> {
        self.received.clone()
    }

    /// Bytes that the peer has acknowledged so far, as a counter that can be read while a write is under way.
    #[must_use]
    pub fn acknowledged(&self) -> Rc<Cell<u64>> {
        self.acknowledged.clone()
    }

    /// Address and port of this end.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Segments of ours that were sent again.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        let count = self.with(|flow| flow.connection.retransmissions());
        count.unwrap_or(0)
    }

    /// The shortest round trip seen on this connection, if any was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.with(|flow| flow.connection.round_trip()).flatten()
    }

    /// Connections live as long as their stream, so there is always one.
    fn with<R>(&self, f: impl FnOnce(&mut Flow) -> R) -> Option<R> {
        self.stack.state().flows.get(self.slot).map(f)
    }

    /// Asks `ready` once a turn, until it has something.
    async fn until<T>(
        &self,
        mut ready: impl FnMut(&mut Flow) -> Option<Result<T, NetError>>,
    ) -> Result<T, NetError> {
        until(|| self.with(&mut ready).unwrap_or(Some(Err(NetError::Reset)))).await
    }

    /// Sends all of `bytes`; ready when they are in the send buffer.
    ///
    /// # Errors
    /// [`NetError::Reset`] when the connection is gone, [`NetError::TimedOut`] when the peer takes nothing.
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), NetError> {
        self.push(bytes).await
    }

    async fn push(&self, mut bytes: &[u8]) -> Result<(), NetError> {
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
        self.with(|flow| flow.queue(region, from, to));
        self.drained(0).await
    }

    /// Begins to send what `region` holds from byte `from` to before byte `to`, less than 1 GiB, straight from there, once no more than
    /// `waiting` bytes of what came before wait for their acknowledgement. Until it is acknowledged it must not be written to.
    ///
    /// # Errors
    /// As [`Self::write_all`].
    pub async fn queue_from(
        &mut self,
        region: &Region,
        from: usize,
        to: usize,
        waiting: usize,
    ) -> Result<(), NetError> {
        self.drained(waiting).await?;
        self.with(|flow| flow.queue(region, from, to));
        Ok(())
    }

    /// Waits until no more than `most` bytes wait for their acknowledgement.
    async fn drained(&self, most: usize) -> Result<(), NetError> {
        let mut since = self.stack.now();
        let mut before = usize::MAX;
        self.until(|flow| {
            let ended = flow.connection.error().map(NetError::from);
            let ended = ended.or((!flow.connection.may_send()).then_some(NetError::Reset));
            if let Some(error) = ended {
                return Some(Err(error));
            }
            let (left, now) = (flow.send.len(), self.stack.now());
            if left <= most {
                return Some(Ok(()));
            }
            if left < before {
                (before, since) = (left, now);
            }
            (now >= since + self.idle_timeout).then_some(Err(NetError::TimedOut))
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
        self.until(|flow| {
            if flow.buffer.held() > 0 {
                let count = flow.buffer.read(consume.take()?);
                flow.received.set(flow.received.get() + count as u64);
                return Some(Ok(count));
            }
            let idle = self.stack.now() >= since + self.idle_timeout;
            ended(&flow.connection).or(idle.then_some(Err(NetError::TimedOut)))
        })
        .await
    }

    /// Fills `region` from `at` to its end straight from the wire. Ready when it is full, when the peer has
    /// closed its side, or on an error; the count is that of the bytes filled, and an error is
    /// returned only when there are none (the next read returns it again). Bytes behind those may have been written
    /// to as well.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn read_into(&mut self, region: &Region, at: usize) -> Result<usize, NetError> {
        self.fill(region, at).await
    }

    async fn fill(&self, region: &Region, at: usize) -> Result<usize, NetError> {
        let mut handed = Some(region.clone());
        let mut over = None;
        self.until(|flow| {
            let now = self.stack.now();
            if let Some(region) = handed.take() {
                flow.set_destination(region, at, now);
            }
            flow.drain();
            let (mut filled, full) = flow.buffer.filled()?;
            let idle = now >= flow.last_data + self.idle_timeout;
            let ending = full.then_some(Ok(0));
            let ending = ending.or(ended(&flow.connection));
            let ending = ending.or(idle.then_some(Err(NetError::TimedOut)))?;
            // What a card has cannot be read, even what it has filled.
            if flow.wants_memory_back() {
                if now < *over.get_or_insert(now) + CARD_PATIENCE {
                    return None;
                }
                filled = filled.min(flow.buffer.readable());
            }
            flow.leave_destination();
            Some(if filled > 0 { Ok(filled) } else { ending })
        })
        .await
    }

    /// Its two directions, for tasks that read and write at the same time.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        (ReadHalf(self), WriteHalf(self))
    }

    /// Ends our side; what was written is still sent.
    pub fn close(&mut self) {
        self.closed = true;
        self.with(|flow| flow.connection.close());
    }
}

/// What a connection receives.
pub struct ReadHalf<'a>(&'a TcpStream);

impl ReadHalf<'_> {
    /// As [`TcpStream::read_into`].
    ///
    /// # Errors
    /// As [`TcpStream::read`].
    pub async fn read_into(&mut self, region: &Region, at: usize) -> Result<usize, NetError> {
        self.0.fill(region, at).await
    }
}

/// What a connection sends.
pub struct WriteHalf<'a>(&'a TcpStream);

impl WriteHalf<'_> {
    /// As [`TcpStream::write_all`].
    ///
    /// # Errors
    /// As [`TcpStream::write_all`].
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), NetError> {
        self.0.push(bytes).await
    }

    /// Ends our side, once the peer has acknowledged all that was written.
    ///
    /// # Errors
    /// As [`TcpStream::write_all`].
    pub async fn finish(self) -> Result<(), NetError> {
        self.0.drained(0).await?;
        self.0.with(|flow| flow.connection.close());
        Ok(())
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
