//! One file over several connections, all into the same memory (RFC 9110 section 14).
//!
//! The first connection receives the file from its start, as ever. Helpers take pieces from the end of what it has
//! still to do, each by a request of its own, and that end moves towards it until all is given out:
//!
//! ```text
//!  0            position ->                <- front.end                       total
//!  |== received ===|--- first connection ----|== helper ==|-- helper --|= done =|
//! ```
//!
//! What a helper gives up goes back to the first connection's part where it touches that. Else it is a hole, which the next
//! helper fills, or the first connection when it is through with its part. So helpers make a download faster, and never make it fail: it is the first connection that reports an error.
//!
//! A connection's rate on a path that loses packets goes with one over its round trip, so it is distant servers whose files
//! are split. On a local network one connection fills the wire, and more of them would only share its buffers.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::SocketAddrV4;

use wireboot_net::{Duration, NetError, Region, Stack, TcpStream};

use super::connections::{self, Connections};
use super::head::{Framing, Head, Validator};
use super::{
    BACKOFF, CONNECT_TIMEOUT, HttpStats, Problem, SILENCE, WORTHWHILE, exchange, range_request,
    watch,
};
use crate::url::Url;

/// Round trip from which on a server is distant.
const DISTANT: Duration = Duration::from_millis(5);
/// Connections to a distant server. Eight keep a path full on which one gets an eighth of it.
const MOST: usize = 8;
/// Frames of the receive buffers that each connection must be able to have: fewer make a loss slow to repair.
const FRAMES: usize = 16;
/// Smallest file that is split, in bytes.
pub(super) const LARGE: u64 = 4 * 1024 * 1024;
/// Smallest piece, in bytes: many times what a request costs on a path of average length.
const PIECE: u64 = 256 * 1024;
/// Requests of a helper that may fail in a row without progress.
const ATTEMPTS: u32 = 3;

/// On how many connections a file comes best whose first response had this head.
pub(super) fn connections(stack: &Stack, stream: &TcpStream, head: &Head, total: u64) -> usize {
    let distant = stream.round_trip().is_some_and(|rtt| rtt >= DISTANT);
    if !distant || total < LARGE || !head.accepts_ranges || head.validator().is_none() {
        return 1;
    }
    MOST.min(stack.receive_frames() / FRAMES).max(1)
}

/// A file that several connections receive.
pub(super) struct Split {
    pub(super) url: Url,
    pub(super) server: SocketAddrV4,
    pub(super) validator: Validator,
    pub(super) total: u64,
    pub(super) connections: usize,
    /// What the first connection fills. Its end moves as helpers take pieces.
    pub(super) front: Region,
    /// How far the first connection is.
    pub(super) position: Cell<u64>,
    /// Bytes that helpers have received.
    pub(super) helped: Cell<u64>,
    /// Where the pieces begin that helpers have.
    pieces: RefCell<Vec<u64>>,
    /// Pieces given up.
    holes: RefCell<Vec<(u64, u64)>>,
    /// The server does not send ranges of this version: no more pieces.
    refused: Cell<bool>,
    /// What helpers took.
    stats: Cell<HttpStats>,
}

impl Split {
    pub(super) fn new(
        url: Url,
        server: SocketAddrV4,
        validator: Validator,
        front: Region,
        total: u64,
        connections: usize,
    ) -> Rc<Self> {
        front.set_end(total as usize);
        Rc::new(Split {
            url,
            server,
            validator,
            total,
            connections,
            front,
            position: Cell::new(0),
            helped: Cell::new(0),
            pieces: RefCell::default(),
            holes: RefCell::default(),
            refused: Cell::new(false),
            stats: Cell::default(),
        })
    }

    /// Ends the help.
    pub(super) fn refuse(&self) {
        self.refused.set(true);
    }

    /// Whether any helper has a piece.
    pub(super) fn busy(&self) -> bool {
        !self.pieces.borrow().is_empty()
    }

    /// The first hole, to be filled by the caller.
    pub(super) fn hole(&self) -> Option<(u64, u64)> {
        let mut holes = self.holes.borrow_mut();
        let first = (0..holes.len()).min_by_key(|&index| holes.get(index))?;
        Some(holes.swap_remove(first))
    }

    /// Bytes at the start of the file that are all there: up to the first that the first connection, a helper or nobody
    /// is still to receive.
    pub(super) fn settled(&self) -> u64 {
        let position = self.position.get();
        let own = (position < self.front.end() as u64).then_some(position);
        let (pieces, holes) = (self.pieces.borrow(), self.holes.borrow());
        let missing = pieces
            .iter()
            .copied()
            .chain(holes.iter().map(|hole| hole.0));
        missing.chain(own).min().unwrap_or(self.total)
    }

    fn give_back(&self, at: u64, end: u64) {
        let mut holes = self.holes.borrow_mut();
        holes.push((at, end));
        let touching = |holes: &[(u64, u64)]| {
            let end = self.front.end() as u64;
            holes.iter().position(|hole| hole.0 == end)
        };
        while let Some(index) = touching(&holes) {
            let (_, end) = holes.swap_remove(index);
            self.front.set_end(end as usize);
        }
    }

    /// Adds what the helpers took since the last call.
    pub(super) fn account(&self, stats: &mut HttpStats) {
        let helpers = self.stats.take();
        stats.requests += helpers.requests;
        stats.connections += helpers.connections;
        stats.resumed += helpers.resumed;
    }

    fn count(&self, change: impl FnOnce(&mut HttpStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    /// The next piece for a helper: its share of what is left, from the end.
    fn claim(&self) -> Option<Piece<'_>> {
        if self.refused.get() {
            return None;
        }
        let (at, end) = self.hole().or_else(|| {
            let end = self.front.end() as u64;
            let left = end.saturating_sub(self.position.get());
            if left < 2 * PIECE {
                return None;
            }
            let start = end - (left / self.connections as u64).max(PIECE);
            self.front.set_end(start as usize);
            Some((start, end))
        })?;
        self.pieces.borrow_mut().push(at);
        Some(Piece {
            split: self,
            start: at,
            at,
            end,
        })
    }
}

/// Takes pieces and receives them until there are none, or the server does not play along.
pub(super) async fn help(stack: &Stack, pool: &Connections, split: Rc<Split>) {
    let mut stream = None;
    while let Some(mut piece) = split.claim() {
        if let Err(problem) = piece.receive(stack, pool, &mut stream).await {
            log::debug!("{}: a helper ends: {problem}", split.url);
            return;
        }
    }
    if let Some(stream) = stream {
        pool.put(stack, split.server, stream);
    }
}

/// A piece of the file that a helper has taken on; what is not received of it when it is dropped becomes a hole.
struct Piece<'a> {
    split: &'a Split,
    /// Its entry among [`Split::pieces`].
    start: u64,
    at: u64,
    end: u64,
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.split
            .pieces
            .borrow_mut()
            .retain(|&start| start != self.start);
        if self.at < self.end {
            self.split.give_back(self.at, self.end);
        }
    }
}

impl Piece<'_> {
    /// Receives the piece. When the connection breaks, only its rest is asked for again.
    async fn receive(
        &mut self,
        stack: &Stack,
        pool: &Connections,
        kept: &mut Option<TcpStream>,
    ) -> Result<(), Problem> {
        let mut failures = 0;
        let mut since = self.at;
        while self.at < self.end {
            let Err(problem) = self.request(stack, pool, kept).await else {
                continue;
            };
            if self.at >= since + WORTHWHILE {
                failures = 0;
                since = self.at;
            }
            failures += 1;
            // A server that does not want so many connections says so by its status.
            let passing = problem.is_transient() && !matches!(problem, Problem::Status { .. });
            if !passing || failures >= ATTEMPTS || self.split.refused.get() {
                return Err(problem);
            }
            self.split.count(|stats| stats.resumed += 1);
            stack.sleep(BACKOFF * failures).await;
        }
        Ok(())
    }

    async fn request(
        &mut self,
        stack: &Stack,
        pool: &Connections,
        kept: &mut Option<TcpStream>,
    ) -> Result<(), Problem> {
        let split = self.split;
        let idle = || pool.take(stack, &[split.server]).map(|(_, stream)| stream);
        let mut stream = match kept.take().or_else(idle) {
            Some(stream) => stream,
            None => {
                split.count(|stats| stats.connections += 1);
                let connected = stack.connect(split.server, CONNECT_TIMEOUT).await;
                let mut stream = connected.map_err(Problem::Connect)?;
                stream.set_idle_timeout(SILENCE);
                stream
            }
        };
        split.count(|stats| stats.requests += 1);
        let request = range_request(&split.url, self.at, Some(self.end), &split.validator);
        let head = exchange(stack, &mut stream, &request).await?;
        if !self.fits(&head) {
            if matches!(head.status, 200..=299) {
                split.refuse();
                return Err(Problem::Range);
            }
            return Err(Problem::Status {
                status: head.status,
                reason: head.reason,
                retry_after: head.retry_after,
            });
        }
        let part = split.front.part(self.end as usize);
        let received = stream.received();
        let mut told = received.get();
        let start = told;
        let result = watch(stream.read_into(&part, self.at as usize), || {
            let now = received.get();
            if now != told {
                split.helped.set(split.helped.get() + (now - told));
                told = now;
            }
        })
        .await;
        let count = result.map_err(Problem::connection)? as u64;
        split
            .helped
            .set((split.helped.get() + count).saturating_sub(told - start));
        self.at += count;
        if self.at < self.end {
            // It ended early: either nothing came for too long, or the next read tells why.
            let error = match connections::pending(&mut stream) {
                Some(Err(error)) => error,
                Some(Ok(_)) => NetError::Reset,
                None => NetError::TimedOut,
            };
            return Err(Problem::connection(error));
        }
        if head.keep_alive {
            *kept = Some(stream);
        } else {
            stream.close();
        }
        Ok(())
    }

    /// Whether a response brings exactly the rest of this piece, of the right version.
    fn fits(&self, head: &Head) -> bool {
        let content = head
            .range
            .filter(|content| content.total.is_none_or(|total| total == self.split.total))
            .and_then(|content| content.range);
        head.status == 206
            && content == Some((self.at, self.end - 1))
            && head.framing == Framing::Length(self.end - self.at)
            && !self.split.validator.contradicts(head)
    }
}
