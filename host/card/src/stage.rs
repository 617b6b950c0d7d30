//! What stands between the card and its wire, and the capture of what goes through.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use wireboot_card::{
    Offload, OffloadCounters, Pace, Paced, PacedCounters, Received, Span, Unit, Wire,
};

use crate::memory::Mapping;
use crate::pcap::Capture;
use crate::wires::HostWire;

/// The way to the wire, and its capture, if there is one.
pub(crate) struct Stage {
    way: Way,
    capture: Option<Capture>,
}

/// The card's offloads alone, or at the speed of a model.
enum Way {
    Plain(Box<Offload<HostWire>>),
    Paced(Box<Paced<HostWire>>),
}

/// What ends a wait, besides doorbells.
#[derive(Debug)]
pub(crate) struct Wake<'a> {
    /// Readable when something has come.
    pub descriptor: Option<BorrowedFd<'a>>,
    /// There may be something to do from then on.
    pub due: Option<Duration>,
}

macro_rules! either {
    ($way:expr, $stage:ident => $what:expr) => {
        match $way {
            Way::Plain($stage) => $what,
            Way::Paced($stage) => $what,
        }
    };
}

impl Stage {
    /// This wire, as far away as `pace` says.
    pub(crate) fn new(wire: HostWire, pace: Pace, capture: Option<Capture>) -> Self {
        let way = if pace.bus.is_none() && pace.line.is_none() {
            Way::Plain(Box::new(Offload::new(wire)))
        } else {
            Way::Paced(Box::new(Paced::new(wire, pace)))
        };
        Self { way, capture }
    }

    pub(crate) fn wire_mut(&mut self) -> &mut HostWire {
        either!(&mut self.way, stage => stage.wire_mut())
    }

    pub(crate) fn offload_counters(&self) -> OffloadCounters {
        match &self.way {
            Way::Plain(offload) => offload.counters(),
            Way::Paced(paced) => paced.offload_counters(),
        }
    }

    pub(crate) fn paced_counters(&self) -> PacedCounters {
        match &self.way {
            Way::Plain(_) => PacedCounters::default(),
            Way::Paced(paced) => paced.counters(),
        }
    }

    /// What to wait for, where the guest has room or not.
    pub(crate) fn wake(&self, room: bool) -> Wake<'_> {
        let (wire, due, asks) = match &self.way {
            Way::Plain(offload) => (offload.wire(), None, room),
            Way::Paced(paced) => {
                let due = paced.due();
                let home = due.home.filter(|_| room);
                let first = due.out.into_iter().chain(home).min();
                (paced.wire(), first, room && due.wire)
            }
        };
        let wires = wire.due().filter(|_| asks);
        Wake {
            descriptor: wire.descriptor().filter(|_| asks),
            due: due.into_iter().chain(wires).min(),
        }
    }
}

impl Wire<Mapping> for Stage {
    fn offloads(&self) -> u64 {
        either!(&self.way, stage => Wire::<Mapping>::offloads(&**stage))
    }

    fn agree(&mut self, features: u64) {
        either!(&mut self.way, stage => Wire::<Mapping>::agree(&mut **stage, features));
    }

    fn max_unit(&self) -> usize {
        either!(&self.way, stage => Wire::<Mapping>::max_unit(&**stage))
    }

    fn useful_room(&self) -> usize {
        either!(&self.way, stage => Wire::<Mapping>::useful_room(&**stage))
    }

    fn advance(&mut self, memory: &Mapping, now: Duration) {
        either!(&mut self.way, stage => stage.advance(memory, now));
    }

    fn takes(&self) -> bool {
        either!(&self.way, stage => Wire::<Mapping>::takes(&**stage))
    }

    fn send(&mut self, memory: &Mapping, unit: &Unit<'_>, now: Duration) -> bool {
        if let Some(capture) = &mut self.capture {
            capture.sent(memory, unit);
        }
        either!(&mut self.way, stage => stage.send(memory, unit, now))
    }

    fn flush(&mut self) {
        either!(&mut self.way, stage => Wire::<Mapping>::flush(&mut **stage));
        if let Some(capture) = &self.capture {
            capture.flush();
        }
    }

    fn receive(&mut self, memory: &Mapping, room: &[Span], now: Duration) -> Received {
        let received = either!(&mut self.way, stage => stage.receive(memory, room, now));
        if let (Some(capture), Received::Unit { len, .. }) = (&mut self.capture, received) {
            capture.received(memory, room, len);
        }
        received
    }
}
