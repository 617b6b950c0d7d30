//! Engines on other APs (application processors) that receive parts of large files: what the leader, whose [`Service`](crate::Service) has
//! the jobs, asks of its workers, and what they report. Each worker has a ring for requests and one for reports, beside those for frames
//! ([`wireboot_net::team()`]).
//!
//! A worker gets each piece of a file together with the memory for it. That memory is the worker's alone until the worker drops it.
//! While a worker has a piece, it reports its progress every few milliseconds, which shows that it is alive. One that reports
//! nothing for [`PATIENCE`] is lost for good: nobody can tell when its AP will write next, so its memory is never touched
//! again. A worker that is dropped reports that, gives back what it has, and gets no more pieces.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use wireboot_net::{Duration, Instant, Memory, Peer, Route};
use wireboot_nic::Steering;
use wireboot_ring::{Receiver, Sender, channel};

use super::source::{HttpStats, Source};
use crate::outbox::Outbox;

/// Messages that each ring holds. A worker has one piece of each file, and only a few files come at the same time.
const RING: usize = 64;
/// Silence after which a worker that has a piece is lost.
const PATIENCE: Duration = Duration::from_secs(3);
/// The most that one turn of the leader adds to a worker's silence. All processors of a virtual machine may stand still for longer;
/// the workers need time to report after that.
const TURN: Duration = Duration::from_millis(100);

/// From the leader to a worker.
pub(crate) enum Request {
    /// A piece to be received, with the memory for it.
    Receive(Box<Assignment>),
    /// The piece with this number is not needed any more. The worker still reports its end.
    Cancel(u32),
}

/// A piece of a file for a worker.
pub(crate) struct Assignment {
    /// The piece's number, used once.
    pub(crate) id: u32,
    pub(crate) source: Source,
    /// The route to the file's server.
    pub(crate) route: Route,
    /// The piece's first byte, counted from the start of the file.
    pub(crate) start: u64,
    /// Where the piece goes. The piece is as long as this memory.
    pub(crate) memory: Memory,
}

/// From a worker to the leader.
pub(crate) enum Report {
    /// The first `received` bytes of a piece are there.
    Progress { id: u32, received: u64 },
    /// A piece has ended, and the worker has dropped its memory.
    Done { id: u32, outcome: PieceOutcome },
    /// The worker was dropped, or its [`Link`] before there was one.
    Gone,
}

/// The worker's ends of the two rings.
pub(crate) struct WorkerEnd {
    pub(crate) requests: Receiver<Request>,
    pub(crate) reports: Outbox<Report>,
}

impl Drop for WorkerEnd {
    fn drop(&mut self) {
        // Requests that nobody will carry out hold memory.
        while self.requests.pop().is_some() {}
        self.reports.send(Report::Gone);
    }
}

/// How a piece ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceOutcome {
    /// Bytes at its start that are there.
    pub(crate) received: u64,
    pub(crate) stats: HttpStats,
    /// The server does not send ranges of this version of the file.
    pub(crate) refused: bool,
    /// The piece is not complete.
    pub(crate) failed: bool,
}

/// The leader's end of a team, for [`Service::with_workers`](crate::Service::with_workers).
pub struct Leader {
    peer: Peer,
    workers: Vec<WorkerHandle>,
}

/// A worker's end of a team, for [`Worker::new`](crate::Worker::new). When one is dropped, the team goes on without that worker.
pub struct Link {
    pub(crate) peer: Peer,
    pub(crate) end: WorkerEnd,
}

/// A team with an engine for each queue pair of `steering`: the leader's end, for the first pair, and the workers' for the others,
/// in their order.
#[must_use]
pub fn team(steering: &Steering) -> (Leader, Vec<Link>) {
    let (peer, peers) = wireboot_net::team(steering);
    let (workers, links) = peers
        .into_iter()
        .map(|peer| {
            let (to_worker, requests) = channel(RING);
            let (reports, from_worker) = channel(RING);
            let reports = Outbox::new(reports);
            let end = WorkerEnd { requests, reports };
            (
                WorkerHandle::new(to_worker, from_worker),
                Link { peer, end },
            )
        })
        .unzip();
    (Leader { peer, workers }, links)
}

/// What the leader knows of a worker.
struct WorkerHandle {
    requests: Outbox<Request>,
    reports: Receiver<Report>,
    /// Pieces that the worker has.
    open: Vec<OpenPiece>,
    /// For how long it has reported nothing though it has a piece.
    silent: Duration,
    /// It gets no more pieces. Those that it has reported as done are back; the others never come back.
    lost: bool,
}

struct OpenPiece {
    id: u32,
    received: u64,
    /// `None` until the worker has reported the piece's end.
    outcome: Option<PieceOutcome>,
}

impl WorkerHandle {
    fn new(requests: Sender<Request>, reports: Receiver<Report>) -> Self {
        Self {
            requests: Outbox::new(requests),
            reports,
            open: Vec::new(),
            silent: Duration::ZERO,
            lost: false,
        }
    }

    /// Takes the worker's reports. `passed` is the time since the last call.
    fn turn(&mut self, passed: Duration) {
        self.silent += passed.min(TURN);
        while let Some(report) = self.reports.pop() {
            self.silent = Duration::ZERO;
            match report {
                Report::Progress { id, received } => self.note(id, |open| open.received = received),
                Report::Done { id, outcome } => self.note(id, |open| open.outcome = Some(outcome)),
                Report::Gone => self.lost = true,
            }
        }
        if self.open.iter().all(|open| open.outcome.is_some()) {
            self.silent = Duration::ZERO;
        }
        self.lost |= self.silent >= PATIENCE;
        self.requests.flush();
    }

    /// Notes what is reported of a piece, unless its ticket was dropped before.
    fn note(&mut self, id: u32, note: impl FnOnce(&mut OpenPiece)) {
        if let Some(open) = self.open.iter_mut().find(|open| open.id == id) {
            note(open);
        }
    }
}

/// The workers of a leader.
#[derive(Default)]
pub struct Workers {
    handles: RefCell<Vec<WorkerHandle>>,
    /// When [`Self::turn`] was last called.
    last: Cell<Option<Instant>>,
    /// Number of the next piece.
    next: Cell<u32>,
}

impl Workers {
    /// For a service that receives everything itself.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    pub(crate) fn new(leader: Leader) -> (Peer, Self) {
        let workers = Self {
            handles: RefCell::new(leader.workers),
            ..Self::default()
        };
        (leader.peer, workers)
    }

    /// Takes their reports. To be called before each turn of the leader's engine.
    pub(crate) fn turn(&self, now: Instant) {
        let last = self.last.replace(Some(now)).unwrap_or(now);
        for worker in self.handles.borrow_mut().iter_mut() {
            worker.turn(now - last);
        }
    }

    /// Whether any has a piece.
    pub(crate) fn busy(&self) -> bool {
        let handles = self.handles.borrow();
        handles.iter().any(|worker| !worker.open.is_empty())
    }

    /// Indices of those that are not lost.
    pub(crate) fn present(&self) -> Vec<usize> {
        let handles = self.handles.borrow();
        let present = handles
            .iter()
            .enumerate()
            .filter(|(_, worker)| !worker.lost);
        present.map(|(index, _)| index).collect()
    }

    /// Gives worker `index` a piece that begins at `start` and fills all of `memory`. `None` when it cannot take it; then the memory
    /// is dropped.
    pub(crate) fn send(
        &self,
        index: usize,
        source: Source,
        route: Route,
        start: u64,
        memory: Memory,
    ) -> Option<PieceTicket<'_>> {
        let mut handles = self.handles.borrow_mut();
        let worker = handles.get_mut(index).filter(|worker| !worker.lost)?;
        let id = self.next.get();
        self.next.set(id.wrapping_add(1));
        let assignment = Box::new(Assignment {
            id,
            source,
            route,
            start,
            memory,
        });
        worker.requests.offer(Request::Receive(assignment)).ok()?;
        worker.open.push(OpenPiece {
            id,
            received: 0,
            outcome: None,
        });
        Some(PieceTicket {
            workers: self,
            index,
            id,
            cancelled: Cell::new(false),
        })
    }
}

/// A piece that a worker has. Dropping it cancels the worker's work on it.
pub(crate) struct PieceTicket<'a> {
    workers: &'a Workers,
    index: usize,
    id: u32,
    cancelled: Cell<bool>,
}

/// How far a worker is with a piece.
pub(crate) enum PieceState {
    /// So many bytes are there.
    Receiving(u64),
    Done(PieceOutcome),
    /// The worker is lost, and may write to the piece's memory at any time.
    Lost,
}

impl PieceTicket<'_> {
    pub(crate) fn state(&self) -> PieceState {
        let handles = self.workers.handles.borrow();
        let worker = handles.get(self.index);
        let open = worker.and_then(|worker| worker.open.iter().find(|open| open.id == self.id));
        let (Some(worker), Some(open)) = (worker, open) else {
            return PieceState::Lost;
        };
        match open.outcome {
            Some(outcome) => PieceState::Done(outcome),
            None if worker.lost => PieceState::Lost,
            None => PieceState::Receiving(open.received),
        }
    }

    /// Asks the worker to end its work on the piece.
    pub(crate) fn cancel(&self) {
        if !self.cancelled.replace(true)
            && let Some(worker) = self.workers.handles.borrow_mut().get_mut(self.index)
        {
            worker.requests.send(Request::Cancel(self.id));
        }
    }
}

impl Drop for PieceTicket<'_> {
    fn drop(&mut self) {
        if !matches!(self.state(), PieceState::Done(_)) {
            self.cancel();
        }
        if let Some(worker) = self.workers.handles.borrow_mut().get_mut(self.index) {
            worker.open.retain(|open| open.id != self.id);
        }
    }
}
