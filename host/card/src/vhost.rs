//! vhost-user: the protocol by which a monitor hands a guest's memory and rings to another process. Here are the back-end's side, and the monitor's
//! as far as [`crate::guest`] needs it.

mod connection;
mod front_end;
#[cfg(any(test, feature = "fuzzing"))]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit"
)]
pub(crate) mod fuzz;
mod message;
mod session;

pub(crate) use connection::{Connection, ConnectionError};
pub(crate) use front_end::{FrontEnd, FrontEndError, Offered};
pub(crate) use message::{MAX_PAIRS, MemoryRegion, Request, RingEvent};
pub(crate) use session::{PairQueue, Rings, RunningRing, Session, SessionError};
