//! One file over several connections, all into the same memory (RFC 9110 section 14).
//!
//! The first connection receives the file from its start, as ever. Helpers take pieces from the end of what it has
//! still to receive, each by a request of its own. That end moves towards the first connection until nothing is left:
//!
//! ```text
//!  0            position ->                <- front.end                       total
//!  |== received ===|--- first connection ----|== helper ==|-- helper --|= done =|
//! ```
//!
//! What a helper gives up goes back to the first connection's part where it touches that. Else it is a hole. The next helper fills
//! it, or the first connection at the end of its part. So helpers make a download faster, and never make it fail: only the first
//! connection reports an error.
//!
//! On a path that loses packets, a connection's rate is proportional to one over its round trip. So files of distant servers are
//! split among connections of one engine. On a local network one connection fills the wire, and more of them would only
//! share its buffers.
//!
//! Where other APs (application processors) have engines ([`super::team`]), each of these workers gets one connection before further
//! helpers run here. On a local network, too: one connection keeps an engine busy there. The memory of such a piece is lent to the
//! worker, which alone writes it meanwhile. A worker that falls silent is lost together with that memory, as it may write there at
//! any time. When all other parts are there, the file goes on from the first such gap, in other memory and on one connection.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::IpAddr;

use wireboot_net::{Duration, Region, Stack};

use super::connections::Connections;
use super::head::Head;
use super::piece::{Carrier, Piece, Tally};
use super::source::{HttpStats, Source};
use super::team::{PieceOutcome, PieceState, PieceTicket, Workers};

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

/// Whether a server is distant. A queue at the server or on the way makes round trips longer, and is no distance: with many machines that
/// boot together, more connections would only make it longer still. So the shortest round trip counts that any connection to the server has
/// seen, and a host on the link is near.
pub(super) fn is_distant(stack: &Stack, connections: &Connections, server: IpAddr) -> bool {
    let far = connections.round_trip(server) >= Some(DISTANT);
    far && !stack.is_on_link(server)
}

/// The number of helpers on this engine, beside so many workers, for a file whose first response had this head. `None` when the file
/// is not to be split at all. `distant`: the server is ([`is_distant`]).
pub(super) fn helpers(
    stack: &Stack,
    distant: bool,
    head: &Head,
    total: u64,
    workers: usize,
) -> Option<usize> {
    if total < LARGE || !head.accepts_ranges || head.validator().is_none() {
        return None;
    }
    let connections = if distant {
        MOST.min(stack.receive_frames() / FRAMES)
    } else {
        1
    };
    let helpers = connections.saturating_sub(1 + workers);
    (helpers + workers > 0).then_some(helpers)
}

/// A file that several connections receive.
pub(super) struct Split {
    pub(super) source: Source,
    connections: usize,
    /// What the first connection fills. Its end moves as helpers take pieces.
    pub(super) front: Region,
    /// Position of the first connection, in bytes from the start of the file.
    pub(super) position: Cell<u64>,
    /// Helpers take nothing before this byte, where the first connection's response ends before the file does.
    kept: Cell<u64>,
    /// Counts over all helpers.
    pub(super) tally: Tally,
    /// Where the pieces begin that helpers have.
    pieces: RefCell<Vec<u64>>,
    /// Parts that helpers gave up: first byte and end.
    holes: RefCell<Vec<(u64, u64)>>,
    /// Where the pieces begin that were lost with their engine.
    lost: RefCell<Vec<u64>>,
    /// Pieces whose memory is lent.
    lent: Cell<usize>,
}

impl Split {
    pub(super) fn new(source: Source, front: Region, connections: usize) -> Rc<Self> {
        front.set_end(source.total as usize);
        Rc::new(Self {
            source,
            connections,
            front,
            position: Cell::new(0),
            kept: Cell::new(0),
            tally: Tally::default(),
            pieces: RefCell::default(),
            holes: RefCell::default(),
            lost: RefCell::default(),
            lent: Cell::new(0),
        })
    }

    /// Has helpers take no more pieces, and end those of workers.
    pub(super) fn refuse(&self) {
        self.tally.refused.set(true);
    }

    /// Whether any helper has a piece.
    pub(super) fn busy(&self) -> bool {
        !self.pieces.borrow().is_empty()
    }

    /// Whether other engines may write to the memory.
    pub(super) fn lends(&self) -> bool {
        self.lent.get() > 0
    }

    /// The first byte that was lost with its engine.
    pub(super) fn lost(&self) -> Option<u64> {
        self.lost.borrow().iter().copied().min()
    }

    /// The first hole, to be filled by the caller.
    pub(super) fn hole(&self) -> Option<(u64, u64)> {
        let mut holes = self.holes.borrow_mut();
        let first = (0..holes.len()).min_by_key(|&index| holes.get(index))?;
        Some(holes.swap_remove(first))
    }

    /// Bytes at the start of the file that are final: all before the first missing one, whoever is to receive that.
    pub(super) fn committed(&self) -> u64 {
        let position = self.position.get();
        let own = (position < self.front.end() as u64).then_some(position);
        let (pieces, holes) = (self.pieces.borrow(), self.holes.borrow());
        let missing = pieces
            .iter()
            .copied()
            .chain(holes.iter().map(|hole| hole.0));
        let missing = missing.chain(own).chain(self.lost());
        missing.min().unwrap_or(self.source.total)
    }

    /// What a response on the first connection fills that brings the bytes before `end`: its part, whose end moves; or no more than the
    /// response has.
    pub(super) fn part(&self, end: usize) -> Region {
        if end as u64 >= self.source.total {
            self.kept.set(0);
            return self.front.clone();
        }
        let part = self.front.part(end.min(self.front.end()));
        self.kept.set(part.end() as u64);
        part
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
        stats.add_help(&self.tally.stats.take());
    }

    /// The next piece for a helper: its share of what is left, from the end.
    fn claim(&self) -> Option<Claim<'_>> {
        if self.tally.refused.get() {
            return None;
        }
        let (at, end) = self.hole().or_else(|| {
            let end = self.front.end() as u64;
            let left = end.saturating_sub(self.position.get().max(self.kept.get()));
            if left < 2 * PIECE {
                return None;
            }
            let start = end - (left / self.connections as u64).max(PIECE);
            self.front.set_end(start as usize);
            Some((start, end))
        })?;
        self.pieces.borrow_mut().push(at);
        Some(Claim {
            split: self,
            start: at,
            piece: Piece {
                at,
                end,
                region: self.front.part(end as usize),
                origin: 0,
            },
        })
    }
}

/// A piece of the file that a helper has taken on; what is not received of it when it is dropped becomes a hole.
struct Claim<'a> {
    split: &'a Split,
    /// Its entry among [`Split::pieces`].
    start: u64,
    piece: Piece,
}

impl Claim<'_> {
    /// The piece went with its engine, which may still write to it.
    fn lose(mut self) {
        self.split.lost.borrow_mut().push(self.start);
        self.piece.at = self.piece.end;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.split
            .pieces
            .borrow_mut()
            .retain(|&start| start != self.start);
        if self.piece.at < self.piece.end {
            self.split.give_back(self.piece.at, self.piece.end);
        }
    }
}

/// Takes pieces and receives them until there are none, or the server does not play along.
pub(super) async fn help(stack: &Stack, pool: &Connections, split: Rc<Split>) {
    let mut carrier = Carrier::new(stack, pool, &split.source, &split.tally);
    while let Some(mut claim) = split.claim() {
        if let Err(problem) = carrier.receive(&mut claim.piece).await {
            log::debug!("{}: a helper ends: {problem}", split.source.url);
            return;
        }
    }
    carrier.finish();
}

/// Takes pieces and has a worker receive them until there are none, or it cannot.
pub(super) async fn help_by_worker(
    stack: &Stack,
    workers: &Workers,
    index: usize,
    split: Rc<Split>,
) {
    while let Some(route) = stack.route(split.source.server.ip()).await
        && let Some(mut claim) = split.claim()
    {
        let (start, end) = (claim.start, claim.piece.end);
        let memory = split.front.lend(start as usize..end as usize);
        let source = || split.source.clone();
        let ticket = memory.and_then(|memory| workers.send(index, source(), route, start, memory));
        let Some(ticket) = ticket else { return };
        split.lent.set(split.lent.get() + 1);
        let Some(outcome) = split.attend(stack, &ticket).await else {
            log::warn!(
                "{}: worker {index} is lost, and with it {} bytes from {start} on",
                split.source.url,
                end - start
            );
            claim.lose();
            return;
        };
        split.lent.set(split.lent.get().saturating_sub(1));
        claim.piece.at = (start + outcome.received).min(end);
        split.tally.count(|stats| stats.add_help(&outcome.stats));
        if outcome.refused {
            split.refuse();
        }
        if outcome.failed {
            return;
        }
    }
}

impl Split {
    /// Waits until a worker is through with its piece; `None` when it is lost.
    async fn attend(&self, stack: &Stack, ticket: &PieceTicket<'_>) -> Option<PieceOutcome> {
        let mut reported = 0;
        let received = &self.tally.received;
        let mut note = |now: u64| {
            received.set((received.get() + now).saturating_sub(reported));
            reported = now;
        };
        loop {
            match ticket.state() {
                PieceState::Receiving(count) => note(count),
                PieceState::Done(outcome) => {
                    note(outcome.received);
                    return Some(outcome);
                }
                PieceState::Lost => {
                    note(0);
                    return None;
                }
            }
            if self.tally.refused.get() {
                ticket.cancel();
            }
            stack.next_turn().await;
        }
    }
}
