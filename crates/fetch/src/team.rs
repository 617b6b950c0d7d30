//! Engines on other processors that help with large files: what the lead, whose [`Service`](crate::Service) has the jobs, tells its
//! assistants, and what they tell it. Each has a ring there and one back, beside those for frames ([`wireboot_net::team()`]).
//!
//! A piece of a file goes to an assistant together with its memory, and is the assistant's alone until that is dropped. While
//! it has any, an assistant tells every few milliseconds how far it is, and so that it is alive. One that says nothing for
//! [`PATIENCE`] is lost, for good: nobody can tell when its processor will write next, so its memory is never touched again. One
//! that is dropped says so, gives back what it has, and gets no more.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use wireboot_net::{Duration, Instant, Member, Memory, Route};
use wireboot_nic::Steering;
use wireboot_ring::{Receiver, Sender, channel};

use crate::http::source::{HttpStats, Source};
use crate::outbox::Outbox;

/// Messages under way in each direction. Each of the few files that come at the same time has one piece at an assistant.
const RING: usize = 64;
/// Silence after which an assistant that has a piece is lost.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most of the time between two turns of the lead that counts as silence: where all processors stood still, as those of a virtual
/// machine do, assistants must have time to speak.
const TURN: Duration = Duration::from_millis(100);

/// What the lead tells an assistant.
pub(crate) enum Order {
    /// Receive a piece.
    Receive(Box<Assignment>),
    /// The piece of this number is of no use any more; it is still to be reported.
    Cancel(u32),
}

/// A piece of a file for an assistant.
pub(crate) struct Assignment {
    pub(crate) id: u32,
    pub(crate) source: Source,
    /// How to get to its server.
    pub(crate) route: Route,
    /// Its first byte, in bytes from the start of the file.
    pub(crate) start: u64,
    /// Where it goes, and how long it is.
    pub(crate) memory: Memory,
}

/// What an assistant tells the lead.
pub(crate) enum Report {
    /// So many bytes of a piece are there.
    Progress { id: u32, received: u64 },
    /// A piece is over, and its memory dropped.
    Done { id: u32, outcome: Outcome },
    /// The assistant is no more, or never was.
    Gone,
}

/// The rings at an assistant's end.
pub(crate) struct Post {
    pub(crate) orders: Receiver<Order>,
    pub(crate) reports: Outbox<Report>,
}

impl Drop for Post {
    fn drop(&mut self) {
        // Orders that nobody will carry out hold memory.
        while self.orders.pop().is_some() {}
        self.reports.tell(Report::Gone);
    }
}

/// How a piece ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Bytes at its start that are there.
    pub(crate) received: u64,
    pub(crate) stats: HttpStats,
    /// The server does not send ranges of this version.
    pub(crate) refused: bool,
    /// It did not come whole.
    pub(crate) failed: bool,
}

/// The lead's end of a team, for [`Service::with_assistants`](crate::Service::with_assistants).
pub struct Lead {
    pub(crate) place: Member,
    desks: Vec<Desk>,
}

/// An assistant's end of a team, for [`Assistant::new`](crate::Assistant::new). One that is dropped is an assistant less.
pub struct Link {
    pub(crate) place: Member,
    pub(crate) post: Post,
}

/// A team of engines, one for each queue pair that `steering` has: the lead's end, for the first pair, and those of its assistants
/// for the others, in their order.
#[must_use]
pub fn team(steering: &Steering) -> (Lead, Vec<Link>) {
    let (place, places) = wireboot_net::team(steering);
    let (desks, links) = places
        .into_iter()
        .map(|place| {
            let (there, orders) = channel(RING);
            let (reports, back) = channel(RING);
            let reports = Outbox::new(reports);
            let post = Post { orders, reports };
            (Desk::new(there, back), Link { place, post })
        })
        .unzip();
    (Lead { place, desks }, links)
}

/// What the lead knows of an assistant.
struct Desk {
    orders: Outbox<Order>,
    reports: Receiver<Report>,
    /// Pieces that it has.
    open: Vec<Open>,
    /// How long it has said nothing though it has a piece.
    silent: Duration,
    /// It gets no more pieces, and those that it has are never back: what it gave back it has reported.
    lost: bool,
}

struct Open {
    id: u32,
    received: u64,
    outcome: Option<Outcome>,
}

impl Desk {
    fn new(orders: Sender<Order>, reports: Receiver<Report>) -> Self {
        Self {
            orders: Outbox::new(orders),
            reports,
            open: Vec::new(),
            silent: Duration::ZERO,
            lost: false,
        }
    }

    /// Hears what it has to say. `passed` is the time since the last call.
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
        self.orders.flush();
    }

    /// Notes what is told of a piece, unless that was given up here before.
    fn note(&mut self, id: u32, note: impl FnOnce(&mut Open)) {
        if let Some(open) = self.open.iter_mut().find(|open| open.id == id) {
            note(open);
        }
    }
}

/// The assistants of a lead.
#[derive(Default)]
pub struct Assistants {
    desks: RefCell<Vec<Desk>>,
    /// When they were last heard.
    last: Cell<Option<Instant>>,
    next: Cell<u32>,
}

impl Assistants {
    /// Nobody.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    pub(crate) fn new(lead: Lead) -> (Member, Self) {
        let assistants = Self {
            desks: RefCell::new(lead.desks),
            ..Self::default()
        };
        (lead.place, assistants)
    }

    /// Hears what they have to say. To be called before each turn of the lead's engine.
    pub(crate) fn turn(&self, now: Instant) {
        let last = self.last.replace(Some(now)).unwrap_or(now);
        for desk in self.desks.borrow_mut().iter_mut() {
            desk.turn(now - last);
        }
    }

    /// Whether any has a piece.
    pub(crate) fn busy(&self) -> bool {
        let desks = self.desks.borrow();
        desks.iter().any(|desk| !desk.open.is_empty())
    }

    /// Those that are not lost.
    pub(crate) fn present(&self) -> Vec<usize> {
        let desks = self.desks.borrow();
        let present = desks.iter().enumerate().filter(|(_, desk)| !desk.lost);
        present.map(|(index, _)| index).collect()
    }

    /// Gives one of them a piece that begins at `start` and goes to all of `memory`. `None` when it cannot take it; then the memory is
    /// dropped.
    pub(crate) fn send(
        &self,
        index: usize,
        source: Source,
        route: Route,
        start: u64,
        memory: Memory,
    ) -> Option<Errand<'_>> {
        let mut desks = self.desks.borrow_mut();
        let desk = desks.get_mut(index).filter(|desk| !desk.lost)?;
        let id = self.next.get();
        self.next.set(id.wrapping_add(1));
        let assignment = Box::new(Assignment {
            id,
            source,
            route,
            start,
            memory,
        });
        desk.orders.offer(Order::Receive(assignment)).ok()?;
        desk.open.push(Open {
            id,
            received: 0,
            outcome: None,
        });
        Some(Errand {
            assistants: self,
            index,
            id,
            cancelled: Cell::new(false),
        })
    }
}

/// A piece that an assistant has. Dropping it ends the assistant's work on it.
pub(crate) struct Errand<'a> {
    assistants: &'a Assistants,
    index: usize,
    id: u32,
    cancelled: Cell<bool>,
}

/// How it is with a piece.
pub(crate) enum State {
    /// So many bytes are there.
    Under(u64),
    Done(Outcome),
    /// The assistant may write to its memory for ever.
    Lost,
}

impl Errand<'_> {
    pub(crate) fn state(&self) -> State {
        let desks = self.assistants.desks.borrow();
        let desk = desks.get(self.index);
        let open = desk.and_then(|desk| desk.open.iter().find(|open| open.id == self.id));
        let (Some(desk), Some(open)) = (desk, open) else {
            return State::Lost;
        };
        match open.outcome {
            Some(outcome) => State::Done(outcome),
            None if desk.lost => State::Lost,
            None => State::Under(open.received),
        }
    }

    /// Asks the assistant to end it.
    pub(crate) fn cancel(&self) {
        if !self.cancelled.replace(true)
            && let Some(desk) = self.assistants.desks.borrow_mut().get_mut(self.index)
        {
            desk.orders.tell(Order::Cancel(self.id));
        }
    }
}

impl Drop for Errand<'_> {
    fn drop(&mut self) {
        if !matches!(self.state(), State::Done(_)) {
            self.cancel();
        }
        if let Some(desk) = self.assistants.desks.borrow_mut().get_mut(self.index) {
            desk.open.retain(|open| open.id != self.id);
        }
    }
}
