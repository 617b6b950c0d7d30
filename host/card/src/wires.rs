//! What may be behind the card.

mod server;
mod tap;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use wireboot_card::{Received, Span, Unit, Wire, feature};

use crate::memory::Mapping;
pub(crate) use server::ServerWire;
pub(crate) use tap::Tap;

/// One of the wires.
pub(crate) enum HostWire {
    /// Nothing: what is sent vanishes, and nothing comes.
    None,
    /// A tap interface.
    Tap(Tap),
    /// A boot server.
    Server(Box<ServerWire>),
}

impl HostWire {
    /// Readable when something has come.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::None | Self::Server(_) => None,
            Self::Tap(tap) => tap.descriptor(),
        }
    }

    /// When something may come, on the clock of [`Wire::receive`], though the guest sends nothing.
    pub(crate) fn due(&self) -> Option<Duration> {
        match self {
            Self::None | Self::Tap(_) => None,
            Self::Server(server) => server.due(),
        }
    }

    /// The guest's driver begins anew.
    pub(crate) fn restart(&mut self) {
        if let Self::Server(server) = self {
            server.restart();
        }
    }

    /// Whether a receive queue runs for what comes.
    pub(crate) fn set_receiving(&mut self, receiving: bool) {
        if let Self::Tap(tap) = self {
            tap.set_receiving(receiving);
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
            Self::Server(_) => ServerWire::OFFLOADS,
        }
    }

    fn max_unit(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Tap(tap) => tap.max_unit(),
            Self::Server(server) => server.max_unit(),
        }
    }

    fn useful_room(&self) -> usize {
        match self {
            Self::None | Self::Tap(_) => self.max_unit(),
            Self::Server(server) => server.useful_room(),
        }
    }

    fn agree(&mut self, features: u64) {
        match self {
            Self::None => {}
            Self::Tap(tap) => tap.agree(features),
            Self::Server(server) => server.agree(features),
        }
    }

    fn send(&mut self, memory: &Mapping, unit: &Unit<'_>, now: Duration) -> bool {
        match self {
            Self::None => true,
            Self::Tap(tap) => tap.send(memory, unit),
            Self::Server(server) => server.send(memory, unit, now),
        }
    }

    // A tap has sent a frame when it has it.
    fn flush(&mut self) {}

    fn receive(&mut self, memory: &Mapping, room: &[Span], now: Duration) -> Received {
        match self {
            Self::None => Received::Nothing,
            Self::Tap(tap) => tap.receive(memory, room),
            Self::Server(server) => server.receive(memory, room, now),
        }
    }
}
