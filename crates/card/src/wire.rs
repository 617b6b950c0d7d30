//! What is behind the card.

use core::time::Duration;

use crate::header::Header;
use crate::host_side::Unit;
use crate::memory::Span;

/// Where a card's frames go to and come from. It copies between the guest's buffers and its own side, once.
///
/// Nothing here blocks. `now` is the time since any fixed moment, the same for all calls of a turn.
pub trait Wire<M> {
    /// The offloads that it can do ([`crate::feature`]): what it takes of the guest's (CSUM, `HOST_*`), and what it may have for a guest that
    /// agrees (`GUEST_*`).
    fn offloads(&self) -> u64;

    /// What was agreed on with the guest, while no queue runs. Until told, nothing was.
    fn agree(&mut self, features: u64);

    /// The longest unit that comes in, in bytes, link header included. The guest's buffers have room for it before the wire is asked, unless
    /// the guest has given all that it has.
    fn max_unit(&self) -> usize;

    /// Bytes of room of which it can make use, where the guest has given so many.
    fn useful_room(&self) -> usize {
        self.max_unit()
    }

    /// Time has come to `now`, at the beginning of a turn.
    fn advance(&mut self, _memory: &M, _now: Duration) {}

    /// False while units are to stay with the guest. It is asked before each.
    fn takes(&self) -> bool {
        true
    }

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
    /// Nothing has come, and the room is still the guest's.
    Nothing,
    /// A unit is in the room.
    Unit {
        /// What is to be said of it.
        header: Header,
        /// Bytes of the unit, from its Ethernet header on.
        len: usize,
    },
    /// A frame was taken, and its unit comes later.
    Kept,
    /// A unit was longer than the room, and is lost.
    TooLong,
}
