//! What is behind the card.

use core::time::Duration;

use crate::header::Header;
use crate::host_side::Unit;
use crate::memory::Span;

/// Where a card's frames go to and come from. It copies between the guest's buffers and its own side, once.
///
/// Nothing here blocks. `now` is the time since any fixed moment, the same for all calls of a turn.
pub trait Wire<M> {
    /// The longest unit that comes in, in bytes, link header included. The guest's buffers have room for it before the wire is asked.
    fn max_unit(&self) -> usize;

    /// Whether the guest takes units whose checksum is still to be completed (NEEDS_CSUM). Until told, it does not.
    fn set_partial_checksums(&mut self, taken: bool);

    /// Takes one unit from the guest, whose buffers are lent until this returns. False when the unit is lost.
    fn send(&mut self, memory: &M, unit: &Unit<'_>, now: Duration) -> bool;

    /// Units of a burst have all been given to [`Self::send`].
    fn flush(&mut self);

    /// Writes the next unit that has come to the beginning of `room`, the guest's buffers in order.
    fn receive(&mut self, memory: &M, room: &[Span], now: Duration) -> Received;
}

/// What a wire has for the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing has come.
    Nothing,
    /// A unit is in the room.
    Unit {
        /// What is to be said of it.
        header: Header,
        /// Its bytes.
        len: usize,
    },
    /// A unit was longer than the room, and is lost.
    TooLong,
}
