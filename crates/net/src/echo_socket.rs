//! Echo sockets: whether a host answers, how long that takes, and how long packets to it may be.

use crate::echo::{self, Binding};
use crate::error::NetError;
use crate::stack::Stack;
use core::net::IpAddr;

/// A socket of one host's echo replies. Dropping it closes it.
pub struct EchoSocket {
    stack: Stack,
    remote: IpAddr,
    identifier: u16,
}

impl Stack {
    /// A socket for echo requests to `remote`.
    #[must_use]
    pub fn echo(&self, remote: IpAddr) -> EchoSocket {
        let mut identifier = self.random() as u16;
        // Sixteen random bits may be another socket's. There are more of them than sockets.
        while echo::find(&mut self.state().echoes, remote, identifier).is_some() {
            identifier = identifier.wrapping_add(1);
        }
        self.state().echoes.push(Binding::new(remote, identifier));
        EchoSocket {
            stack: self.clone(),
            remote,
            identifier,
        }
    }
}

impl EchoSocket {
    /// Sends a request in an IP packet of `packet_bytes`, or of the shortest that holds one, which nobody on its way may cut.
    ///
    /// # Errors
    /// [`NetError::Unreachable`] without an address or route, [`NetError::TooLong`] beyond the link's MTU, [`NetError::Full`] when too many packets wait.
    pub fn send(&self, sequence: u16, packet_bytes: u16) -> Result<(), NetError> {
        let message = echo::request(self.remote, self.identifier, sequence, packet_bytes);
        let now = self.stack.now();
        let mut state = self.stack.state();
        state.interface.send_echo(self.remote, message, now)
    }

    /// The sequence number of the next reply that came whole: what came in fragments is forgotten. It came in this turn, which began before it did, or in an
    /// earlier one.
    #[must_use]
    pub fn try_receive(&self) -> Option<u16> {
        self.binding(|binding| binding.replies.pop_front())
    }

    /// How long a packet may be at most, by what somebody on the way has said last of a request (RFC 1191, RFC 8201).
    #[must_use]
    pub fn too_big(&self) -> Option<u16> {
        self.binding(|binding| binding.too_big)
    }

    /// Forgets what [`Self::too_big`] tells.
    pub fn forget_too_big(&self) {
        self.binding(|binding| binding.too_big.take());
    }

    fn binding<T>(&self, with: impl FnOnce(&mut Binding) -> Option<T>) -> Option<T> {
        let mut state = self.stack.state();
        let (remote, identifier) = (self.remote, self.identifier);
        with(echo::find(&mut state.echoes, remote, identifier)?)
    }
}

impl Drop for EchoSocket {
    fn drop(&mut self) {
        let mut state = self.stack.state();
        let (remote, identifier) = (self.remote, self.identifier);
        state.echoes.retain(|one| !one.is_of(remote, identifier));
    }
}
