//! The card's side to its guest: a receive and a transmit queue, units in lent buffers.

mod buffers;
mod receive;
mod transmit;

pub(crate) use receive::{Delivered, ReceiveQueue};
pub use transmit::{LONGEST_UNIT, Unit};
pub(crate) use transmit::{Next, TransmitQueue};
