//! A wire at the speed of a model: the host's bus, the card, and the line behind it, in virtual time.
//!
//! ```text
//!   guest ── Bus ──> Offload: cut ──> Line ──> wire
//!   guest <── Bus ── Offload: join <── Line <── wire
//! ```
//!
//! The moment at which each frame and unit is where is computed, to the picosecond, from when it set out, and not from when somebody looked. So an owner
//! that looks late changes no rate. Bus and lines take one thing after the other; the bus is shared by both directions. A line carries frames:
//! large units are cut and joined in front of it, and those frames are joined that have come when the bus is free.
//!
//! What is under way is copied to memory of the stage's own.

mod cabled;
mod store;

use alloc::boxed::Box;
use alloc::vec;
use core::ops::AddAssign;
use core::time::Duration;

use crate::counters::OffloadCounters;
use crate::header::Header;
use crate::host_side::{LONGEST_UNIT, Unit};
use crate::memory::{GuestMemory, Span, gather, scatter};
use crate::model::{Bus, Line, Picos};
use crate::offload::Offload;
use crate::wire::{Received, Wire};
use cabled::Cabled;
pub use cabled::MOST_IN_FLIGHT;

/// What is around the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Between guest and card; without one, units take no time.
    pub bus: Option<Bus>,
    /// Between card and wire; the same.
    pub line: Option<Line>,
    /// The same loses the same frames.
    pub seed: u64,
}

/// What became of frames that no longer are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacedCounters {
    /// Lost by the line, as it is to.
    pub line_lost: u64,
    /// Longer than the line's MTU.
    pub line_too_long: u64,
    /// They came to the card when its memory was full, or to a guest's buffers that were too short.
    pub no_room: u64,
    /// Not taken by the wire.
    pub wire_lost: u64,
    /// Under way to a guest that began anew.
    pub forgotten: u64,
}

impl AddAssign for PacedCounters {
    fn add_assign(&mut self, other: Self) {
        let Self {
            line_lost,
            line_too_long,
            no_room,
            wire_lost,
            forgotten,
        } = other;
        self.line_lost += line_lost;
        self.line_too_long += line_too_long;
        self.no_room += no_room;
        self.wire_lost += wire_lost;
        self.forgotten += forgotten;
    }
}

impl PacedCounters {
    /// Lost for any of these reasons.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.line_lost + self.line_too_long + self.no_room + self.wire_lost + self.forgotten
    }
}

/// When there is something to do, though nobody rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// With what the guest has sent, or is to send.
    pub from_guest: Option<Duration>,
    /// With what comes to the guest, where it has room.
    pub to_guest: Option<Duration>,
    /// The wire may be asked for more now.
    pub wire: bool,
}

/// A wire, with bus and line in front of it.
#[derive(Debug)]
pub struct Paced<W> {
    bus: Option<Bus>,
    /// From when on the bus takes the next unit.
    free: Picos,
    offload: Offload<Cabled<W>>,
    /// On the bus, towards the guest.
    held: Option<Held>,
    bytes: Box<[u8]>,
    now: Picos,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    at: Picos,
    header: Header,
    len: usize,
}

impl<W> Paced<W> {
    /// This wire, so far away.
    pub fn new(wire: W, pace: Pace) -> Self {
        Self {
            bus: pace.bus,
            free: Picos::ZERO,
            offload: Offload::new(Cabled::new(wire, pace.line, pace.seed)),
            held: None,
            bytes: vec![0; LONGEST_UNIT].into_boxed_slice(),
            now: Picos::ZERO,
        }
    }

    /// What was cut and joined.
    pub fn offload_counters(&self) -> OffloadCounters {
        self.offload.counters()
    }

    /// What was lost on the way.
    pub fn counters(&self) -> PacedCounters {
        self.offload.wire().counters
    }

    /// What is behind bus and line.
    pub fn wire(&self) -> &W {
        self.offload.wire().wire()
    }

    /// The same, to change it between turns.
    pub fn wire_mut(&mut self) -> &mut W {
        self.offload.wire_mut().wire_mut()
    }

    /// When it is to be looked at again, after a turn that found nothing to do.
    pub fn due(&self) -> Due {
        let cabled = self.offload.wire();
        let takes = self.takes_from().filter(|from| *from > self.now);
        let free = cabled.free_to_guest();
        let asks_again = free.filter(|from| *from > self.now);
        let held = self.held.map(|held| held.at);
        let earliest = |a: Option<Picos>, b: Option<Picos>| a.into_iter().chain(b).min();
        Due {
            from_guest: earliest(cabled.due_from_guest(), takes).map(duration),
            to_guest: earliest(held.or(self.next_on_bus()), asks_again).map(duration),
            wire: free.is_some() && asks_again.is_none(),
        }
    }

    /// When the next unit for the guest sets out.
    fn next_on_bus(&self) -> Option<Picos> {
        if self.offload.holds() {
            return Some(self.free);
        }
        Some(self.offload.wire().due_to_guest()?.max(self.free))
    }

    /// From when on a unit of the guest's is taken. The bus may be behind by one, so that it need not wait for who looks late.
    fn takes_from(&self) -> Option<Picos> {
        let line = self.offload.wire().free_from_guest()?;
        Some(line.max(self.free.since(self.transfer(LONGEST_UNIT))))
    }

    fn transfer(&self, len: usize) -> Picos {
        self.bus.map_or(Picos::ZERO, |bus| bus.transfer(len))
    }
}

impl<M: GuestMemory, W: Wire<M>> Wire<M> for Paced<W> {
    fn offloads(&self) -> u64 {
        self.offload.offloads()
    }

    fn agree(&mut self, features: u64) {
        if self.held.take().is_some() {
            self.offload.wire_mut().counters.forgotten += 1;
        }
        self.offload.agree(features);
    }

    fn max_unit(&self) -> usize {
        self.offload.max_unit()
    }

    fn useful_room(&self) -> usize {
        self.offload.useful_room()
    }

    fn advance(&mut self, memory: &M, now: Duration) {
        self.now = moment(now);
        self.offload.wire_mut().send_due(memory, now);
        self.offload.advance(memory, now);
    }

    fn takes(&self) -> bool {
        self.takes_from().is_some_and(|from| from <= self.now)
    }

    fn send(&mut self, memory: &M, unit: &Unit<'_>, now: Duration) -> bool {
        self.free = self.free.max(moment(now)) + self.transfer(unit.len);
        self.offload.wire_mut().leaves = self.free;
        self.offload.send(memory, unit, now)
    }

    fn flush(&mut self) {
        self.offload.flush();
    }

    fn receive(&mut self, memory: &M, room: &[Span], now: Duration) -> Received {
        self.offload.wire_mut().fill(memory, room, now);
        if self.held.is_none() {
            let Some(begins) = self.next_on_bus().filter(|begins| *begins <= moment(now)) else {
                self.offload.wire_mut().come(moment(now));
                return Received::Nothing;
            };
            self.offload.wire_mut().come(begins);
            let received = self.offload.receive(memory, room, now);
            let Received::Unit { header, len } = received else {
                return received;
            };
            self.free = begins + self.transfer(len);
            let bytes = self.bytes.get_mut(..len);
            if !bytes.is_some_and(|bytes| gather(memory, room, bytes) == Ok(true)) {
                return Received::TooLong;
            }
            let at = self.free;
            self.held = Some(Held { at, header, len });
        }
        let Some(held) = self.held.take_if(|held| held.at <= moment(now)) else {
            self.offload.wire_mut().come(moment(now));
            return Received::Nothing;
        };
        let Held { header, len, .. } = held;
        let bytes = self.bytes.get(..len).unwrap_or_default();
        if scatter(memory, room, bytes) != Ok(true) {
            return Received::TooLong;
        }
        Received::Unit { header, len }
    }
}

fn moment(now: Duration) -> Picos {
    let picos = now.as_nanos().saturating_mul(1000);
    Picos::new(u64::try_from(picos).unwrap_or(u64::MAX))
}

/// The first nanosecond that is not before it.
fn duration(moment: Picos) -> Duration {
    Duration::from_nanos(moment.get().div_ceil(1000))
}

#[cfg(test)]
mod tests;
