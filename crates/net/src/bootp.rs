//! UDP port 68 before there is an address: what DHCP (RFC 2131) needs and other sockets cannot do.

use crate::output::Packet;
use crate::stack::Stack;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use core::task::Poll;

/// The BOOTP client port.
pub const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;
/// Replies kept for a client that is slow to look at them; later ones are dropped.
pub const QUEUE: usize = 32;

impl Stack {
    /// The DHCP client's port.
    #[must_use]
    pub fn bootp(&self) -> Bootp {
        Bootp::new(self.clone())
    }
}

/// The DHCP client's port. There is one: the newest value receives, and dropping it closes the port.
pub struct Bootp {
    stack: Stack,
}

impl Bootp {
    pub(crate) fn new(stack: Stack) -> Self {
        stack.inner().bootp = Some(Default::default());
        Self { stack }
    }

    /// Sends `payload` (a BOOTP message) from 0.0.0.0:68 to 255.255.255.255:67, Ethernet broadcast.
    pub fn broadcast(&self, payload: &[u8]) {
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, CLIENT_PORT));
        let remote = SocketAddr::from((Ipv4Addr::BROADCAST, SERVER_PORT));
        let packet = Packet::udp(local, remote, payload);
        let now = self.stack.now();
        self.stack.inner().interface.broadcast(&packet, now);
    }

    /// The next datagram that came to port 68, whatever address it was sent to: the sender's address and the
    /// BOOTP message. Its UDP checksum has been verified.
    pub async fn receive(&self) -> (Ipv4Addr, Vec<u8>) {
        core::future::poll_fn(|_| {
            match self
                .stack
                .inner()
                .bootp
                .as_mut()
                .and_then(|queue| queue.pop_front())
            {
                Some(message) => Poll::Ready(message),
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl Drop for Bootp {
    fn drop(&mut self) {
        self.stack.inner().bootp = None;
    }
}
