//! The streams of data: connections, and pairs of UDP ports.

use crate::datagram::{Tally, stamp};
use crate::error::Error;
use crate::test::{Limit, MOST_STREAMS, Test};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::pending;
use core::net::SocketAddr;
use core::pin::Pin;
use wireboot_net::{Duration, Instant, NetError, Region, Stack, TcpStream, UdpSocket};
use wireboot_report::throughput::Transport;

/// How long a connection may take to be opened.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// The first datagram of a stream, and how often and when it is sent again.
const HELLO: &[u8; 4] = b"9876";
const HELLOS: u32 = 3;
const HELLO_AGAIN: Duration = Duration::from_secs(1);
/// Bytes of TCP that wait to be sent or acknowledged, all streams together: more than any local path holds. What waits when the test ends
/// still goes to the server, which counts some of it.
const WAITING: usize = 4 << 20;
/// Of small writes no more wait than this: each is looked at for each segment.
const WRITES: usize = 1024;

/// What a stream's data goes through.
enum Link {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// One connection or one sequence of datagrams, in one direction.
pub(crate) struct Stream {
    pub id: u32,
    pub sends: bool,
    pub local: SocketAddr,
    link: Link,
    pub counts: Counts,
}

/// What a stream has moved, to be read while it moves more.
#[derive(Clone)]
pub(crate) enum Counts {
    /// Bytes of a connection, and how many of them are no data.
    Connection(Rc<Cell<u64>>, u64),
    /// Bytes and datagrams that were sent.
    Sent(Rc<Cell<(u64, u64)>>),
    /// Datagrams that were received, with those that are missing.
    Came(Rc<RefCell<Tally>>),
}

impl Counts {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Connection(bytes, other) => bytes.get().saturating_sub(*other),
            Self::Sent(sent) => sent.get().0,
            Self::Came(tally) => tally.borrow().bytes,
        }
    }

    /// From now on they stay as they are.
    fn end(&mut self) {
        match self {
            Self::Connection(..) => *self = Self::Connection(Rc::new(Cell::new(self.bytes())), 0),
            Self::Came(tally) => tally.borrow_mut().counts = false,
            // Its sender has ended.
            Self::Sent(_) => {}
        }
    }

    pub(crate) fn datagrams(&self) -> u64 {
        match self {
            Self::Connection(..) => 0,
            Self::Sent(sent) => sent.get().1,
            Self::Came(tally) => tally.borrow().datagrams,
        }
    }
}

/// A test that runs: what all its streams share.
pub(crate) struct RunningTest<'a> {
    pub stack: &'a Stack,
    pub test: &'a Test,
    /// Bytes of a message.
    pub length: usize,
    /// Bytes that may still be sent.
    budget: Cell<u64>,
}

impl<'a> RunningTest<'a> {
    pub(crate) fn new(stack: &'a Stack, test: &'a Test, length: usize) -> Self {
        let budget = match test.limit {
            Limit::Seconds(_) => u64::MAX,
            Limit::Bytes(bytes) => bytes,
        };
        Self {
            stack,
            test,
            length,
            budget: Cell::new(budget),
        }
    }

    /// Takes up to `most` bytes out of what may still be sent; waits for ever where that is none.
    async fn take(&self, most: usize) -> usize {
        let left = self.budget.get();
        if left == 0 {
            pending::<()>().await;
        }
        let count = left.min(most as u64);
        self.budget.set(left - count);
        count as usize
    }

    /// Waits until a stream that began `began` may send more than `sent` bytes.
    async fn pace(&self, began: Instant, sent: u64) {
        if let Some(rate) = self.test.bandwidth {
            while !is_due(rate, self.stack.now() - began, sent) {
                self.stack.next_turn().await;
            }
        }
    }
}

/// Whether `sent` bytes are no more than `rate` bits a second allow in a time.
fn is_due(rate: u64, time: Duration, sent: u64) -> bool {
    u128::from(sent) * 8_000_000 <= u128::from(rate) * u128::from(time.total_micros())
}

impl Stream {
    /// Opens one. `cookie` tells the server whose connection it is.
    pub(crate) async fn open(
        shared: &RunningTest<'_>,
        (id, sends): (u32, bool),
        cookie: &[u8],
    ) -> Result<Self, Error> {
        let RunningTest { stack, test, .. } = shared;
        let server = test.server;
        let (local, link, counts) = if test.transport == Transport::Udp {
            let tally = Rc::new(RefCell::new(Tally::new(server)));
            let socket = stack.udp_with_sink(tally.clone());
            greet(stack, &socket, &tally, server).await?;
            let address = stack.source(server.ip());
            let address = address.ok_or(Error::Stream(NetError::Unreachable))?;
            let local = SocketAddr::new(address, socket.port());
            let counts = if sends {
                Counts::Sent(Rc::default())
            } else {
                Counts::Came(tally)
            };
            (local, Link::Udp(socket), counts)
        } else {
            let connected = stack.connect(server, CONNECT).await;
            let mut stream = connected.map_err(Error::Stream)?;
            stream.write_all(cookie).await.map_err(Error::Stream)?;
            let counts = if sends {
                Counts::Connection(stream.acknowledged(), cookie.len() as u64)
            } else {
                Counts::Connection(stream.received(), 0)
            };
            (stream.local(), Link::Tcp(stream), counts)
        };
        Ok(Self {
            id,
            sends,
            local,
            link,
            counts,
        })
    }

    /// What comes from now on does not belong to the test.
    pub(crate) fn end(&mut self) {
        self.counts.end();
    }

    /// Segments that were sent again.
    pub(crate) fn retransmissions(&self) -> Option<u64> {
        match &self.link {
            Link::Tcp(stream) if self.sends => Some(stream.retransmissions()),
            _ => None,
        }
    }

    /// Moves data from or to the part of `memory` that begins at `start`, until it fails.
    pub(crate) fn moves<'s>(
        &'s mut self,
        shared: &'s RunningTest<'_>,
        memory: Region,
        start: usize,
    ) -> Pin<Box<dyn Future<Output = NetError> + 's>> {
        let Self {
            link,
            counts,
            sends,
            ..
        } = self;
        let failed = async move {
            match (link, counts, *sends) {
                (Link::Tcp(stream), _, true) => send(shared, stream, &memory, start).await,
                (Link::Tcp(stream), _, false) => receive(stream, &memory, start).await,
                (Link::Udp(socket), Counts::Sent(sent), _) => {
                    send_datagrams(shared, socket, sent).await
                }
                // Its sink takes what comes.
                (Link::Udp(_), ..) => pending().await,
            }
        };
        Box::pin(failed)
    }
}

/// Says the first word, and waits for the answer: the server learns our port by it.
async fn greet(
    stack: &Stack,
    socket: &UdpSocket,
    tally: &RefCell<Tally>,
    server: SocketAddr,
) -> Result<(), Error> {
    for _ in 0..HELLOS {
        socket.send_to(server, HELLO).map_err(Error::Stream)?;
        let answer = async {
            while !tally.borrow().answered {
                stack.next_turn().await;
            }
        };
        if stack.timeout(HELLO_AGAIN, answer).await.is_some() {
            return Ok(());
        }
    }
    Err(Error::NoDatagrams(server.port()))
}

/// Sends by TCP.
async fn send(
    shared: &RunningTest<'_>,
    stream: &mut TcpStream,
    memory: &Region,
    start: usize,
) -> NetError {
    let began = shared.stack.now();
    let (mut at, mut sent) = (start, 0_u64);
    let most = shared.length.min(memory.end().saturating_sub(start));
    let share = WAITING / shared.test.parallel.clamp(1, MOST_STREAMS) as usize;
    let waiting = share.min(most.saturating_mul(WRITES)).saturating_sub(most);
    loop {
        let count = shared.take(most).await;
        shared.pace(began, sent).await;
        if at + count > memory.end() {
            at = start;
        }
        if let Err(error) = stream.queue_from(memory, at, at + count, waiting).await {
            return error;
        }
        at += count;
        sent += count as u64;
    }
}

/// Receives by TCP, into the same memory again and again.
async fn receive(stream: &mut TcpStream, memory: &Region, start: usize) -> NetError {
    loop {
        match stream.read_into(memory, start).await {
            Ok(0) => return NetError::Reset,
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

/// Sends by UDP.
async fn send_datagrams(
    shared: &RunningTest<'_>,
    socket: &UdpSocket,
    sent: &Cell<(u64, u64)>,
) -> NetError {
    let (stack, server) = (shared.stack, shared.test.server);
    let began = stack.now();
    let mut datagram: Vec<u8> = vec![0x55; shared.length];
    loop {
        // The last one, too, is a whole one.
        shared.take(shared.length).await;
        let (bytes, count) = sent.get();
        shared.pace(began, bytes).await;
        loop {
            stamp(&mut datagram, count + 1, stack.now());
            match socket.send_to(server, &datagram) {
                Ok(()) => break,
                Err(NetError::Full) => stack.next_turn().await,
                Err(error) => return error,
            }
            if socket.was_refused_by(server) {
                return NetError::Refused;
            }
        }
        sent.set((bytes + datagram.len() as u64, count + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_allows_so_many_bytes_by_now() {
        let second = Duration::from_secs(1);
        assert!(is_due(8_000_000, Duration::from_micros(0), 0));
        assert!(!is_due(8_000_000, Duration::from_micros(0), 1));
        assert!(is_due(8_000_000, second, 1_000_000));
        assert!(!is_due(8_000_000, second, 1_000_001));
        assert!(is_due(u64::MAX, Duration::from_secs(1 << 30), u64::MAX));
    }
}
