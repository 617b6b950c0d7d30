//! What may be behind the card.

mod tap;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use wireboot_card::{Received, Span, Unit, Wire, feature};

use crate::memory::Mapping;
pub(crate) use tap::Tap;

/// One of the wires.
#[derive(Debug)]
pub(crate) enum HostWire {
    /// Nothing: what is sent vanishes, and nothing comes.
    None,
    /// A tap interface.
    Tap(Tap),
}

impl HostWire {
    /// Readable when something has come.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::None => None,
            Self::Tap(tap) => tap.descriptor(),
        }
    }

    /// Tells the user once that the wire has failed.
    pub(crate) fn tell_failure(&mut self) {
        if let Self::Tap(tap) = self {
            tap.tell_failure();
        }
    }
}

impl Wire<Mapping> for HostWire {
    fn offloads(&self) -> u64 {
        match self {
            Self::None => feature::KNOWN & !feature::RINGS,
            Self::Tap(_) => Tap::OFFLOADS,
        }
    }

    fn max_unit(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Tap(tap) => tap.max_unit(),
        }
    }

    fn agree(&mut self, features: u64) {
        if let Self::Tap(tap) = self {
            tap.agree(features);
        }
    }

    fn send(&mut self, memory: &Mapping, unit: &Unit<'_>, _: Duration) -> bool {
        match self {
            Self::None => true,
            Self::Tap(tap) => tap.send(memory, unit),
        }
    }

    // A tap has sent a frame when it has it.
    fn flush(&mut self) {}

    fn receive(&mut self, memory: &Mapping, room: &[Span], _: Duration) -> Received {
        match self {
            Self::None => Received::Nothing,
            Self::Tap(tap) => tap.receive(memory, room),
        }
    }
}
