//! What may be behind the card.

mod dgram;
mod headed;
mod interface;
mod packet;
mod server;
mod switch;
mod tap;
#[cfg(test)]
pub(crate) mod testing;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::Errno;
use wireboot_card::{Received, Span, Unit, Wire, feature};

use crate::memory::Mapping;
pub(crate) use dgram::Dgram;
pub(crate) use packet::Packet;
pub(crate) use server::ServerWire;
pub(crate) use switch::{PortPlan, SwitchPort, switch};
pub(crate) use tap::Tap;

/// Units that are thrown away at once, at most: who sends without end holds up no guest.
const STALE: usize = 4096;

/// One of the wires.
pub(crate) enum HostWire {
    /// Nothing: what is sent vanishes, and nothing comes.
    None,
    /// A queue of a tap of this host's.
    Tap(Tap),
    /// An interface of this host's.
    Packet(Packet),
    /// A boot server in this process.
    Server(Box<ServerWire>),
    /// The other ports of this process.
    Switch(SwitchPort),
    /// A socket for datagrams.
    Dgram(Dgram),
}

impl HostWire {
    /// Readable when something has come.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::None => None,
            Self::Server(server) => Some(server.descriptor()),
            Self::Tap(tap) => tap.descriptor(),
            Self::Packet(socket) => Some(socket.descriptor()),
            Self::Switch(port) => Some(port.descriptor()),
            Self::Dgram(socket) => Some(socket.descriptor()),
        }
    }

    /// When something may come, on the clock of [`Wire::receive`], though the guest sends nothing.
    pub(crate) fn due(&self) -> Option<Duration> {
        match self {
            Self::Server(server) => server.due(),
            _ => None,
        }
    }

    /// The guest's driver begins anew. What came before, it does not get: it may be another machine's.
    pub(crate) fn restart(&mut self) {
        match self {
            Self::Server(server) => server.restart(),
            Self::Switch(port) => port.restart(),
            Self::Tap(tap) => tap.restart(),
            Self::Packet(socket) => socket.restart(),
            Self::Dgram(socket) => socket.restart(),
            Self::None => {}
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
        match self {
            Self::Tap(tap) => tap.tell_failure(),
            Self::Packet(socket) => socket.tell_failure(),
            _ => {}
        }
    }
}

/// Reads units that the kernel has kept, and throws them away. The error at which it ends.
fn throw_away(file: BorrowedFd<'_>, aside: &mut [u8]) -> Option<Errno> {
    for _ in 0..STALE {
        match rustix::io::read(file, &mut *aside) {
            // Behind these more may follow.
            Ok(_) | Err(Errno::INVAL | Errno::INTR | Errno::CONNRESET) => {}
            Err(error) => return Some(error),
        }
    }
    None
}

impl Wire<Mapping> for HostWire {
    fn offloads(&self) -> u64 {
        match self {
            Self::None => feature::KNOWN & !feature::RINGS,
            Self::Tap(tap) => tap.offloads(),
            Self::Packet(_) => Packet::OFFLOADS,
            Self::Server(_) => ServerWire::OFFLOADS,
            // Plain frames.
            Self::Switch(_) | Self::Dgram(_) => 0,
        }
    }

    fn max_unit(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Tap(tap) => tap.max_unit(),
            Self::Packet(socket) => socket.max_unit(),
            Self::Server(server) => server.max_unit(),
            Self::Switch(port) => port.max_unit(),
            Self::Dgram(socket) => socket.max_unit(),
        }
    }

    fn useful_room(&self) -> usize {
        match self {
            Self::Server(server) => server.useful_room(),
            _ => self.max_unit(),
        }
    }

    fn agree(&mut self, features: u64) {
        match self {
            Self::Tap(tap) => tap.agree(features),
            Self::Packet(socket) => socket.agree(features),
            Self::Server(server) => server.agree(features),
            Self::None | Self::Switch(_) | Self::Dgram(_) => {}
        }
    }

    fn send(&mut self, memory: &Mapping, unit: &Unit<'_>, now: Duration) -> bool {
        match self {
            Self::None => true,
            Self::Tap(tap) => tap.send(memory, unit),
            Self::Packet(socket) => socket.send(memory, unit),
            Self::Server(server) => server.send(memory, unit, now),
            Self::Switch(port) => port.send(memory, unit, now),
            Self::Dgram(socket) => socket.send(memory, unit),
        }
    }

    fn flush(&mut self) {
        // Others have sent a frame when they have it.
        if let Self::Switch(port) = self {
            port.flush();
        }
    }

    fn receive(&mut self, memory: &Mapping, room: &[Span], now: Duration) -> Received {
        match self {
            Self::None => Received::Nothing,
            Self::Tap(tap) => tap.receive(memory, room),
            Self::Packet(socket) => socket.receive(memory, room),
            Self::Server(server) => server.receive(memory, room, now),
            Self::Switch(port) => port.receive(memory, room, now),
            Self::Dgram(socket) => socket.receive(memory, room),
        }
    }
}
