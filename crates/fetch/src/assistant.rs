//! An engine that receives pieces of files for another processor's [`Service`](crate::Service).

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use wireboot_net::{Duration, Engine, Forwarded, Instant, Region, Route, Stack};
use wireboot_nic::{Fault, Nic};

use crate::http::source::Source;
use crate::http::{Carrier, Connections, Piece, Tally};
use crate::service::unless;
use crate::team::{Assignment, Link, Order, Outcome, Post, Report};

/// Time between two reports on pieces.
const INTERVAL: Duration = Duration::from_millis(5);

/// The network of a processor that helps another one's [`Service`](crate::Service).
pub struct Assistant<N: Nic> {
    engine: Engine<N>,
    shared: Rc<Shared>,
}

/// What the tasks of an assistant share.
struct Shared {
    stack: Stack,
    /// Kept from one piece to the next.
    connections: Connections,
    errands: RefCell<Vec<Rc<Errand>>>,
    /// Dropped with the last task, so the lead hears last that all is over.
    post: RefCell<Post>,
    /// When they were last told of.
    told: Cell<Instant>,
}

/// A piece under way.
struct Errand {
    id: u32,
    tally: Tally,
    cancelled: Cell<bool>,
}

impl<N: Nic> Assistant<N> {
    /// An assistant on `nic`, the pair of the card that is the link's. It learns how to get to hosts from the lead. `seed` comes from
    /// the machine's best source of randomness, and is no other engine's.
    #[must_use]
    pub fn new(nic: N, seed: [u8; 32], link: Link) -> Self {
        let mut engine = Engine::new(nic, seed);
        engine.join(link.place);
        let shared = Rc::new(Shared {
            stack: engine.stack(),
            connections: Connections::new(),
            errands: RefCell::default(),
            post: RefCell::new(link.post),
            told: Cell::new(Instant::ZERO),
        });
        Self { engine, shared }
    }

    /// One turn: takes orders, runs the engine, reports. Returns whether frames arrived or work is under way. Never blocks.
    ///
    /// # Errors
    /// [`Fault`] when the NIC failed. The assistant is of no more use then, and to be dropped, which tells the lead.
    pub fn poll(&mut self, now: Instant) -> Result<bool, Fault> {
        loop {
            let order = self.shared.post.borrow_mut().orders.pop();
            let Some(order) = order else { break };
            self.order(order);
        }
        let received = self.engine.poll(now)?;
        Ok(self.shared.report(now) || received)
    }

    /// The NIC, for its counters and link state.
    pub fn nic_mut(&mut self) -> &mut N {
        self.engine.nic_mut()
    }

    /// Frames that the engine gave to that of the lead.
    #[must_use]
    pub fn forwarded(&self) -> Forwarded {
        self.engine.forwarded()
    }

    /// Gives up all pieces and gives the NIC back, still running.
    #[must_use]
    pub fn into_nic(self) -> N {
        self.engine.into_nic()
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Receive(assignment) => {
                let Assignment {
                    id,
                    source,
                    route,
                    start,
                    memory,
                } = *assignment;
                self.shared.take_route(route);
                let work = Work::new(self.shared.clone(), id, start, Region::new(memory));
                self.engine.spawn(work.run(source));
            }
            Order::Cancel(id) => {
                let errands = self.shared.errands.borrow();
                if let Some(errand) = errands.iter().find(|errand| errand.id == id) {
                    errand.cancelled.set(true);
                }
            }
        }
    }
}

impl Shared {
    fn take_route(&self, route: Route) {
        let former = self.stack.source(route.remote);
        if former.is_some_and(|former| former != route.local) {
            // Connections of the former address lead nowhere.
            self.connections.clear();
        }
        self.stack.take_route(route);
    }

    /// Tells how far the pieces are, when it is time. Returns whether there are any.
    fn report(&self, now: Instant) -> bool {
        let reports = &mut self.post.borrow_mut().reports;
        reports.flush();
        let errands = self.errands.borrow();
        if !errands.is_empty() && now >= self.told.get() + INTERVAL {
            self.told.set(now);
            for errand in errands.iter() {
                let (id, received) = (errand.id, errand.tally.received.get());
                // Where there is no room, the next one tells more.
                let _ = reports.offer(Report::Progress { id, received });
            }
        }
        !errands.is_empty() || reports.waits()
    }
}

/// A piece at work. However that ends, the lead is told, when its memory is dropped.
struct Work {
    shared: Rc<Shared>,
    errand: Rc<Errand>,
    piece: Piece,
    failed: bool,
}

impl Work {
    fn new(shared: Rc<Shared>, id: u32, start: u64, region: Region) -> Self {
        let errand = Rc::new(Errand {
            id,
            tally: Tally::default(),
            cancelled: Cell::new(false),
        });
        shared.errands.borrow_mut().push(errand.clone());
        Self {
            shared,
            errand,
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
        let (shared, errand) = (self.shared.clone(), self.errand.clone());
        let mut carrier = Carrier::new(&shared.stack, &shared.connections, &source, &errand.tally);
        let receive = carrier.receive(&mut self.piece);
        match unless(|| errand.cancelled.get(), receive).await {
            Some(Ok(())) => {
                carrier.finish();
                self.failed = false;
            }
            Some(Err(problem)) => log::debug!("{}: an assistant ends: {problem}", source.url),
            None => {}
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let Shared { errands, post, .. } = &*self.shared;
        // The lead has the memory again before it hears of it.
        drop(self.piece.region.take());
        let id = self.errand.id;
        errands.borrow_mut().retain(|errand| errand.id != id);
        let tally = &self.errand.tally;
        let outcome = Outcome {
            received: self.piece.at.saturating_sub(self.piece.origin),
            stats: tally.stats.get(),
            refused: tally.refused.get(),
            failed: self.failed,
        };
        let reports = &mut post.borrow_mut().reports;
        reports.tell(Report::Done { id, outcome });
    }
}
