//! An engine on an AP (application processor) that receives pieces of files for the [`Service`](crate::Service) of another.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use wireboot_net::{Duration, Engine, Forwarded, Instant, Region, Route, Stack, Task};
use wireboot_nic::{Fault, Nic};

use crate::http::source::Source;
use crate::http::team::{Assignment, Link, PieceOutcome, Report, Request, WorkerEnd};
use crate::http::{Carrier, Connections, Piece, Tally};
use crate::service::unless;

/// Time between two progress reports.
const INTERVAL: Duration = Duration::from_millis(5);

/// The network of an AP that receives parts of files for the [`Service`](crate::Service) of another.
pub struct Worker<N: Nic> {
    engine: Engine<N>,
    shared: Rc<WorkerState>,
}

/// What the tasks of a worker share.
struct WorkerState {
    stack: Stack,
    /// Kept from one piece to the next.
    connections: Connections,
    pieces: RefCell<Vec<Rc<PieceProgress>>>,
    /// Dropped with the last task, so [`Report::Gone`] is the last report.
    end: RefCell<WorkerEnd>,
    /// When progress was last reported.
    reported: Cell<Instant>,
}

/// How far a task is with its piece.
struct PieceProgress {
    id: u32,
    tally: Tally,
    cancelled: Cell<bool>,
}

impl<N: Nic> Worker<N> {
    /// A worker on `nic`, which is the link's queue pair of the card. The leader gives it the routes that it needs. `seed` comes from
    /// the machine's best source of randomness and differs from every other engine's.
    #[must_use]
    pub fn new(nic: N, seed: [u8; 32], link: Link) -> Self {
        let mut engine = Engine::new(nic, seed);
        engine.join(link.peer);
        let shared = Rc::new(WorkerState {
            stack: engine.stack(),
            connections: Connections::new(),
            pieces: RefCell::default(),
            end: RefCell::new(link.end),
            reported: Cell::new(Instant::ZERO),
        });
        Self { engine, shared }
    }

    /// One turn: takes requests, runs the engine, reports. Returns whether frames arrived or work is under way. Never blocks.
    ///
    /// # Errors
    /// [`Fault`] when the NIC failed. The worker cannot be used any more. The caller drops it, which reports that to the leader.
    pub fn poll(&mut self, now: Instant) -> Result<bool, Fault> {
        loop {
            let request = self.shared.end.borrow_mut().requests.pop();
            let Some(request) = request else { break };
            self.take(request);
        }
        let received = self.engine.poll(now)?;
        Ok(self.shared.report(now) || received)
    }

    /// The NIC, for its counters and link state.
    pub fn nic_mut(&mut self) -> &mut N {
        self.engine.nic_mut()
    }

    /// Frames that this engine gave to the leader's.
    #[must_use]
    pub fn forwarded(&self) -> Forwarded {
        self.engine.forwarded()
    }

    /// Gives up all pieces and gives the NIC back, still running.
    #[must_use]
    pub fn into_nic(self) -> N {
        self.engine.into_nic()
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Receive(assignment) => self.engine.add(self.shared.receive(*assignment)),
            Request::Cancel(id) => {
                let pieces = self.shared.pieces.borrow();
                if let Some(open) = pieces.iter().find(|open| open.id == id) {
                    open.cancelled.set(true);
                }
            }
        }
    }
}

impl WorkerState {
    /// What receives a piece. Not a part of [`Worker`], so that there is one of it for all kinds of NICs.
    fn receive(self: &Rc<Self>, assignment: Assignment) -> Task {
        let Assignment {
            id,
            source,
            route,
            start,
            memory,
        } = assignment;
        self.take_route(route);
        let task = PieceTask::new(self.clone(), id, start, Region::new(memory));
        Box::pin(task.run(source))
    }

    fn take_route(&self, route: Route) {
        let former = self.stack.source(route.remote);
        if former.is_some_and(|former| former != route.local) {
            // Connections of the former address lead nowhere.
            self.connections.clear();
        }
        self.stack.take_route(route);
    }

    /// Reports the progress of the pieces, when it is time. Returns whether there are any.
    fn report(&self, now: Instant) -> bool {
        let reports = &mut self.end.borrow_mut().reports;
        reports.flush();
        let pieces = self.pieces.borrow();
        if !pieces.is_empty() && now >= self.reported.get() + INTERVAL {
            self.reported.set(now);
            for open in pieces.iter() {
                let (id, received) = (open.id, open.tally.received.get());
                // Where there is no room, a later report says more.
                let _ = reports.offer(Report::Progress { id, received });
            }
        }
        !pieces.is_empty() || reports.waits()
    }
}

/// Receives one piece. However that ends, dropping the task drops the memory and then reports the end.
struct PieceTask {
    shared: Rc<WorkerState>,
    open: Rc<PieceProgress>,
    piece: Piece,
    failed: bool,
}

impl PieceTask {
    fn new(shared: Rc<WorkerState>, id: u32, start: u64, region: Region) -> Self {
        let open = Rc::new(PieceProgress {
            id,
            tally: Tally::default(),
            cancelled: Cell::new(false),
        });
        shared.pieces.borrow_mut().push(open.clone());
        Self {
            shared,
            open,
            piece: Piece {
                at: start,
                end: start.saturating_add(region.len() as u64),
                region,
                origin: start,
            },
            failed: true,
        }
    }

    async fn run(mut self, source: Source) {
        let (shared, open) = (self.shared.clone(), self.open.clone());
        let mut carrier = Carrier::new(&shared.stack, &shared.connections, &source, &open.tally);
        let receive = carrier.receive(&mut self.piece);
        match unless(|| open.cancelled.get(), receive).await {
            Some(Ok(())) => {
                carrier.finish();
                self.failed = false;
            }
            Some(Err(problem)) => log::debug!("{}: a worker ends: {problem}", source.url),
            None => {}
        }
    }
}

impl Drop for PieceTask {
    fn drop(&mut self) {
        let WorkerState { pieces, end, .. } = &*self.shared;
        // The leader has the memory again before the report.
        drop(self.piece.region.take());
        let id = self.open.id;
        pieces.borrow_mut().retain(|open| open.id != id);
        let tally = &self.open.tally;
        let outcome = PieceOutcome {
            received: self.piece.at.saturating_sub(self.piece.origin),
            stats: tally.stats.get(),
            refused: tally.refused.get(),
            failed: self.failed,
        };
        let reports = &mut end.borrow_mut().reports;
        reports.send(Report::Done { id, outcome });
    }
}
