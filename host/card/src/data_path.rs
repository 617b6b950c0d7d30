//! What stands between the card and its wire, and the capture of what goes through.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use wireboot_card::{
    Offload, OffloadCounters, Pace, Paced, PacedCounters, Received, Span, Unit, Wire,
};

use crate::memory::Mapping;
use crate::pcap::Capture;
use crate::program::{Filter, ProgramCounters};
use crate::wires::HostWire;

/// What lies between the rings of a pair of queues and its wire: offloads, the pace of a model, and a program; and the capture of what goes through.
pub(crate) struct DataPath<W = HostWire> {
    offload: MaybePaced<W>,
    capture: Option<Capture>,
}

/// The card's offloads and the program before the wire, at any speed or at that of a model.
enum MaybePaced<W> {
    Unpaced(Box<Offload<Filter<W>>>),
    Paced(Box<Paced<Filter<W>>>),
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
    ($offload:expr, $inner:ident => $what:expr) => {
        match $offload {
            MaybePaced::Unpaced($inner) => $what,
            MaybePaced::Paced($inner) => $what,
        }
    };
}

impl<W> DataPath<W> {
    /// This wire, with a program or without, as far away as `pace` says.
    pub(crate) fn new(wire: impl Into<Filter<W>>, pace: Pace, capture: Option<Capture>) -> Self {
        let wire = wire.into();
        let offload = if pace.bus.is_none() && pace.line.is_none() {
            MaybePaced::Unpaced(Box::new(Offload::new(wire)))
        } else {
            MaybePaced::Paced(Box::new(Paced::new(wire, pace)))
        };
        Self { offload, capture }
    }

    pub(crate) fn wire_mut(&mut self) -> &mut W {
        self.filter_mut().wire_mut()
    }

    /// What the program is in.
    pub(crate) fn filter_mut(&mut self) -> &mut Filter<W> {
        either!(&mut self.offload, inner => inner.wire_mut())
    }

    /// None without a program.
    pub(crate) fn program_counters(&self) -> Option<ProgramCounters> {
        either!(&self.offload, inner => inner.wire()).counters()
    }

    pub(crate) fn offload_counters(&self) -> OffloadCounters {
        match &self.offload {
            MaybePaced::Unpaced(offload) => offload.counters(),
            MaybePaced::Paced(paced) => paced.offload_counters(),
        }
    }

    pub(crate) fn paced_counters(&self) -> PacedCounters {
        match &self.offload {
            MaybePaced::Unpaced(_) => PacedCounters::default(),
            MaybePaced::Paced(paced) => paced.counters(),
        }
    }
}

impl DataPath {
    /// What to wait for, where the guest has room or not.
    pub(crate) fn wake(&self, room: bool) -> Wake<'_> {
        let (filter, due, asks) = match &self.offload {
            MaybePaced::Unpaced(offload) => (offload.wire(), None, room),
            MaybePaced::Paced(paced) => {
                let due = paced.due();
                let to_guest = due.to_guest.filter(|_| room);
                let first = due.from_guest.into_iter().chain(to_guest).min();
                (paced.wire(), first, room && due.wire)
            }
        };
        let wire = filter.wire();
        let to_guest = [filter.due_to_guest(), wire.due()];
        let to_guest = to_guest.into_iter().flatten().min().filter(|_| asks);
        let all = [due, filter.due_from_guest(), to_guest];
        Wake {
            descriptor: wire.descriptor().filter(|_| asks),
            due: all.into_iter().flatten().min(),
        }
    }
}

impl<W: Wire<Mapping>> Wire<Mapping> for DataPath<W> {
    fn offloads(&self) -> u64 {
        either!(&self.offload, inner => Wire::<Mapping>::offloads(&**inner))
    }

    fn agree(&mut self, features: u64) {
        either!(&mut self.offload, inner => Wire::<Mapping>::agree(&mut **inner, features));
    }

    fn max_unit(&self) -> usize {
        either!(&self.offload, inner => Wire::<Mapping>::max_unit(&**inner))
    }

    fn useful_room(&self) -> usize {
        either!(&self.offload, inner => Wire::<Mapping>::useful_room(&**inner))
    }

    fn advance(&mut self, memory: &Mapping, now: Duration) {
        either!(&mut self.offload, inner => inner.advance(memory, now));
    }

    fn takes(&self) -> bool {
        either!(&self.offload, inner => Wire::<Mapping>::takes(&**inner))
    }

    fn send(&mut self, memory: &Mapping, unit: &Unit<'_>, now: Duration) -> bool {
        if let Some(capture) = &mut self.capture {
            capture.sent(memory, unit);
        }
        either!(&mut self.offload, inner => inner.send(memory, unit, now))
    }

    fn flush(&mut self) {
        either!(&mut self.offload, inner => Wire::<Mapping>::flush(&mut **inner));
        if let Some(capture) = &mut self.capture {
            capture.flush();
        }
    }

    fn receive(&mut self, memory: &Mapping, room: &[Span], now: Duration) -> Received {
        let received = either!(&mut self.offload, inner => inner.receive(memory, room, now));
        if let (Some(capture), Received::Unit { len, .. }) = (&mut self.capture, received) {
            capture.received(memory, room, len);
        }
        received
    }
}

#[cfg(test)]
mod tests {
    use wireboot_card::Header;
    use wireboot_card::model::{Bus, Line};

    use super::*;
    use crate::program::tests::program;
    use crate::program::{Hook, PairOf};
    use crate::wires::testing::memory;

    /// A frame that a program delays goes when it is due, whatever is in front of the program, and wakes who waits.
    #[test]
    fn a_delay_ends_a_wait() {
        let memory = memory();
        let line = Pace {
            line: Line::named("10g"),
            ..Pace::default()
        };
        let bus = Pace {
            bus: Bus::named("pci64-66"),
            ..Pace::default()
        };
        for pace in [Pace::default(), line, bus] {
            let program = program(Hook::Guest, "stw [r1+16], 5000\nmov r0, 0\nexit");
            let mut data_path = DataPath::new(
                Filter::new(HostWire::None, Some(program), PairOf::ONLY),
                pace,
                None,
            );
            let unit = Unit {
                header: Header::default(),
                head: &[0; 60],
                spans: &[],
                len: 60,
            };
            data_path.advance(&memory, Duration::ZERO);
            assert!(data_path.send(&memory, &unit, Duration::ZERO));
            data_path.flush();
            // It has taken bus and line.
            let there = data_path.wake(false).due.unwrap_or(Duration::ZERO);
            let there = if data_path.program_counters().unwrap().delayed == 0 {
                data_path.advance(&memory, there);
                there
            } else {
                Duration::ZERO
            };
            assert_eq!(data_path.program_counters().unwrap().delayed, 1);
            let due = there + Duration::from_millis(5);
            assert_eq!(data_path.wake(false).due, Some(due), "{pace:?}");
            data_path.advance(&memory, due);
            assert_eq!(data_path.wake(false).due, None, "{pace:?}");
        }
    }
}
