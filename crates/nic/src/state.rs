//! Whether a NIC is in use: what its halves have to know.

use crate::Fault;

/// The state of a NIC that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicState {
    /// Frames may be sent and received.
    Running,
    /// Stopped by [`Nic::stop`](crate::Nic::stop).
    Stopped,
    /// Of no more use.
    Failed(Fault),
}

impl NicState {
    /// `Ok(false)` when the NIC was stopped.
    ///
    /// # Errors
    /// The fault that it failed with.
    #[inline]
    pub fn running(self) -> Result<bool, Fault> {
        match self {
            Self::Running => Ok(true),
            Self::Stopped => Ok(false),
            Self::Failed(fault) => Err(fault),
        }
    }
}
