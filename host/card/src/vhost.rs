//! vhost-user, the back-end's side: the protocol by which a monitor hands a guest's memory and rings to another process.

mod connection;
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
pub(crate) use message::MAX_PAIRS;
pub(crate) use session::{PairQueue, Rings, RunningRing, Session, SessionError};
