//! A TCP connection of the engine's, which may be on an AP (application processor), for somebody on the BSP (bootstrap processor): bytes
//! both ways, with bounded memory.
//!
//! ```text
//! server ──> connection ──> memory of the other end's, committed as it fills ──> SocketPort::read
//!        <── connection <── chunks <── SocketPort::write
//! ```
//!
//! The server is never acknowledged beyond the memory that the other end has given, and what the engine holds for a connection
//! that has none. Each direction ends by itself.

use crate::memory_window::{Window, WindowReader};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::pin::pin;
use core::task::Poll;
use futures_util::future::join;
use wireboot_net::{Duration, NetError, ReadHalf, Region, Stack, WriteHalf};
use wireboot_ring::{Block, PrefixReader, PrefixWriter, Receiver, Sender, channel};

/// Pieces of memory that wait to be filled or read.
const MEMORIES: usize = 4;
/// Chunks on their way to the engine, and the bytes of each.
const CHUNKS: usize = 4;
const CHUNK: usize = 16 * 1024;
/// Most that is told of a connection: opened, two ends.
const REPORTS: usize = 4;
/// Longer than TCP itself tries to connect (RFC 9293, section 3.8.3: R2).
const CONNECT: Duration = Duration::from_secs(180);

/// What goes to the server.
#[derive(Debug)]
enum Outgoing {
    Bytes(Vec<u8>),
    Fin,
}

#[derive(Clone, Copy, Debug)]
enum Report {
    Open,
    Ended(Ending),
}

/// How a connection, or what the peer sends, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By the peer's FIN.
    Finished,
    /// By a reset after it was open.
    Reset,
    /// A reset answered the SYN.
    Refused,
    /// The peer answers nothing.
    Silent,
    /// No SYN has left: there is no address or no port for it.
    Unreachable,
}

impl From<NetError> for Ending {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Refused => Self::Refused,
            NetError::TimedOut => Self::Silent,
            NetError::Unreachable | NetError::NoPort | NetError::Full | NetError::TooLong => {
                Self::Unreachable
            }
            NetError::Reset | NetError::Fault(_) => Self::Reset,
        }
    }
}

/// The engine's end of a socket.
#[derive(Debug)]
pub struct Socket {
    window: Window,
    outgoing: Receiver<Outgoing>,
    reports: Sender<Report>,
}

/// The end of whoever wants the connection, and has the memory for what comes.
pub struct SocketPort<B> {
    outgoing: Sender<Outgoing>,
    reports: Receiver<Report>,
    window: WindowReader<B>,
    /// What it has no chunk for yet.
    waiting: Vec<u8>,
    finished: bool,
    /// The FIN has gone to the engine.
    fin_sent: bool,
    open: bool,
    ending: Option<Ending>,
}

/// Both ends of a socket.
#[must_use]
pub fn socket<B: Block + 'static>() -> (Socket, SocketPort<B>) {
    let (window, reader) = WindowReader::new(usize::MAX);
    let (outgoing, to_send) = channel(CHUNKS);
    let (reporter, reports) = channel(REPORTS);
    let socket = Socket {
        window,
        outgoing: to_send,
        reports: reporter,
    };
    let port = SocketPort {
        outgoing,
        reports,
        window: reader,
        waiting: Vec::new(),
        finished: false,
        fin_sent: false,
        open: false,
        ending: None,
    };
    (socket, port)
}

impl<B: Block + 'static> SocketPort<B> {
    /// Whether it has use for more memory.
    #[must_use]
    pub fn wants_memory(&self) -> bool {
        self.open && self.ending.is_none() && self.window.pieces() < MEMORIES
    }

    /// Gives it a piece of memory for what comes: its two ends.
    pub fn give(&mut self, memory: (PrefixWriter<B>, PrefixReader<B>)) {
        self.window.give(memory);
    }

    /// Takes what the engine tells, and gives it what waits.
    pub fn turn(&mut self) {
        while let Some(report) = self.reports.pop() {
            match report {
                Report::Open => self.open = true,
                Report::Ended(ending) => self.end(ending),
            }
        }
        while !self.waiting.is_empty() && self.outgoing.room() > 0 {
            let count = self.waiting.len().min(CHUNK);
            let chunk = self.waiting.drain(..count).collect();
            let _ = self.outgoing.push(Outgoing::Bytes(chunk));
        }
        if self.finished && !self.fin_sent && self.waiting.is_empty() {
            self.fin_sent = self.outgoing.push(Outgoing::Fin).is_ok();
        }
    }

    /// Nothing comes any more: memory without bytes is free. A FIN may be followed by a reset, and by nothing else.
    pub fn end(&mut self, ending: Ending) {
        if matches!(self.ending, None | Some(Ending::Finished)) {
            self.ending = Some(ending);
            // Nobody fills what there is of it any more.
            let _ = self.window.renew(0);
        }
    }

    /// Whether it has been open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// How it has ended, once it has; what has come before can still be read.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Whether both directions have ended as TCP wants it, and the engine knows.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.ending == Some(Ending::Finished) && self.fin_sent
    }

    /// Bytes that have come and were not released.
    #[must_use]
    pub fn ready(&mut self) -> usize {
        self.window.ready()
    }

    /// Copies bytes that have come, from the one `at` bytes behind the first that was not released on. Returns how many.
    pub fn read(&self, at: usize, to: &mut [u8]) -> usize {
        self.window.read(at, to)
    }

    /// The first `count` bytes that have come are of no more use.
    pub fn release(&mut self, count: usize) {
        self.window.release(count);
    }

    /// Bytes that it takes now.
    #[must_use]
    pub fn room(&self) -> usize {
        CHUNK.saturating_sub(self.waiting.len())
    }

    /// Sends `bytes`, for which there is room.
    pub fn write(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        self.turn();
    }

    /// Sends a FIN behind all that was written.
    pub fn finish(&mut self) {
        self.finished = true;
        self.turn();
    }
}

impl Socket {
    /// Connects it to `remote`. Ready when both directions have ended, or the connection is broken; dropped before, it resets the
    /// connection.
    pub(crate) async fn run(self, stack: &Stack, remote: SocketAddr) {
        let Self {
            mut window,
            mut outgoing,
            mut reports,
        } = self;
        let mut report = |report| {
            // There is room for all that is ever told.
            let _ = reports.push(report);
        };
        let mut stream = match stack.connect(remote, CONNECT).await {
            Ok(stream) => stream,
            Err(error) => return report(Report::Ended(error.into())),
        };
        // The loader decides how long it waits.
        stream.set_idle_timeout(Duration::MAX);
        report(Report::Open);
        let received = stream.received();
        let (read, write) = stream.split();
        let reading = async {
            let end = receive(stack, read, &mut window, || received.get()).await;
            let ending = end.map_or_else(Ending::from, |()| Ending::Finished);
            report(Report::Ended(ending));
            ending
        };
        let (ending, sent) = join(reading, send(stack, write, &mut outgoing)).await;
        match (ending, sent) {
            (Ending::Finished, Ok(())) => stream.close(),
            // What was sent behind the peer's FIN did not arrive.
            (Ending::Finished, Err(error)) => report(Report::Ended(error.into())),
            _ => {}
        }
    }
}

/// The next value, as soon as there is one.
async fn next<T>(stack: &Stack, mut from: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(value) = from() {
            return value;
        }
        stack.next_turn().await;
    }
}

/// Fills one memory after the other, until the peer's FIN. `received` counts what has come.
async fn receive(
    stack: &Stack,
    mut stream: ReadHalf<'_>,
    window: &mut Window,
    received: impl Fn() -> u64,
) -> Result<(), NetError> {
    loop {
        let region = Region::new(next(stack, || window.next_piece()).await);
        let mut filled = 0;
        while filled < region.len() {
            let before = received();
            let count = {
                let mut reading = pin!(stream.read_into(&region, filled));
                let mut committed = filled;
                core::future::poll_fn(|context| {
                    let result = reading.as_mut().poll(context);
                    let come = usize::try_from(received() - before).unwrap_or(0);
                    if filled + come > committed {
                        committed = filled + come;
                        region.commit(committed);
                    }
                    match result {
                        Poll::Ready(result) => Poll::Ready(result),
                        Poll::Pending => Poll::Pending,
                    }
                })
                .await?
            };
            if count == 0 {
                return Ok(());
            }
            filled += count;
        }
    }
}

/// Sends what is to be sent, up to the FIN.
async fn send(
    stack: &Stack,
    mut stream: WriteHalf<'_>,
    outgoing: &mut Receiver<Outgoing>,
) -> Result<(), NetError> {
    loop {
        match next(stack, || outgoing.pop()).await {
            Outgoing::Bytes(bytes) => stream.write_all(&bytes).await?,
            Outgoing::Fin => return stream.finish().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_net::Parts;
    use wireboot_ring::{HeapBlock, prefix};

    /// The other end may be there for long, as in TIME-WAIT.
    #[test]
    fn behind_the_end_there_is_memory_for_what_has_come_alone() {
        let (mut socket, mut port) = socket::<HeapBlock>();
        socket.reports.push(Report::Open).unwrap();
        port.turn();
        while port.wants_memory() {
            port.give(prefix(HeapBlock::in_pieces(&[0; 100], 100)));
        }
        assert_eq!(port.window.pieces(), MEMORIES);
        let mut memory = socket.window.next_piece().unwrap();
        assert_eq!(memory.write(0, Parts::new(&[b"bytes"])), 5);
        memory.commit(5);
        drop(memory);
        let ending = Ending::Finished;
        socket.reports.push(Report::Ended(ending)).unwrap();
        port.turn();
        assert!(!port.wants_memory());
        assert_eq!((port.window.pieces(), port.ready()), (1, 5));
        let mut read = [0; 9];
        assert_eq!((port.read(0, &mut read), &read[..5]), (5, &b"bytes"[..]));
        port.release(5);
        assert_eq!(port.window.pieces(), 0);
    }
}
