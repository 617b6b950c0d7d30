//! UDP port 68 before there is an address: what DHCP (RFC 2131) needs and other sockets cannot do.

use crate::datagrams::Queue;
use crate::stack::{Stack, until};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

/// The BOOTP client port.
pub(crate) const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;

impl Stack {
    /// The DHCP client's port.
    #[must_use]
    pub fn bootp(&self) -> Bootp {
        self.state().bootp = Some(Queue::default());
        Bootp {
            stack: self.clone(),
        }
    }
}

/// The DHCP client's port. There is one: the newest value receives, and dropping it closes the port.
pub struct Bootp {
    stack: Stack,
}

impl Bootp {
    /// Sends `payload` (a BOOTP message) from 0.0.0.0:68 to 255.255.255.255:67, Ethernet broadcast.
    pub fn broadcast(&self, payload: &[u8]) {
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, CLIENT_PORT));
        let remote = SocketAddr::from((Ipv4Addr::BROADCAST, SERVER_PORT));
        let mut state = self.stack.state();
        state.interface.broadcast(local, remote, payload);
    }

    /// The next datagram that came to port 68, whatever address it was sent to: the sender's address and the
    /// BOOTP message. Its UDP checksum has been verified.
    pub async fn receive(&self) -> (Ipv4Addr, Vec<u8>) {
        until(|| match self.stack.state().bootp.as_mut()?.pop()? {
            (SocketAddr::V4(sender), message) => Some((*sender.ip(), message)),
            _ => None,
        })
        .await
    }
}

impl Drop for Bootp {
    fn drop(&mut self) {
        self.stack.state().bootp = None;
    }
}
