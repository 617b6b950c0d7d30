//! UDP sockets. Datagrams go straight from the received unit to the socket's sink.

use crate::datagrams::{Binding, DatagramSink, Queue};
use crate::error::NetError;
use crate::stack::{Stack, until};
use crate::state::NetState;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{IpAddr, SocketAddr};

impl Stack {
    /// A UDP socket on the port `port`, which nothing else has.
    #[must_use]
    pub fn udp_on(&self, port: u16) -> UdpSocket {
        let queue = Rc::<RefCell<Queue>>::default();
        UdpSocket::bind(self, port, queue.clone(), Some(queue))
    }

    /// A UDP socket on a random ephemeral port (RFC 6056).
    #[must_use]
    pub fn udp(&self) -> UdpSocket {
        self.udp_on(self.udp_port(free))
    }

    /// A UDP socket on a random port whose datagrams go to `sink` while they are on loan.
    #[must_use]
    pub fn udp_with_sink(&self, sink: Rc<RefCell<dyn DatagramSink>>) -> UdpSocket {
        self.udp_on_with_sink(self.udp_port(free), sink)
    }

    /// The same on the port `port`, which nothing else has.
    #[must_use]
    pub fn udp_on_with_sink(&self, port: u16, sink: Rc<RefCell<dyn DatagramSink>>) -> UdpSocket {
        UdpSocket::bind(self, port, sink, None)
    }
}

/// A UDP socket. Dropping it closes the port; what was sent still leaves.
pub struct UdpSocket {
    stack: Stack,
    port: u16,
    queue: Option<Rc<RefCell<Queue>>>,
}

impl UdpSocket {
    fn bind(
        stack: &Stack,
        port: u16,
        sink: Rc<RefCell<dyn DatagramSink>>,
        queue: Option<Rc<RefCell<Queue>>>,
    ) -> Self {
        stack.state().udp.push(Binding {
            port,
            sink,
            refused: None,
        });
        let stack = stack.clone();
        Self { stack, port, queue }
    }

    /// The local port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends one datagram. It leaves at the next turn of the engine, after its next hop has answered if need be.
    ///
    /// # Errors
    /// [`NetError::Unreachable`] without an address or route, [`NetError::TooLong`] beyond the link's MTU, [`NetError::Full`] when too many datagrams wait.
    pub fn send_to(&self, remote: SocketAddr, payload: &[u8]) -> Result<(), NetError> {
        self.send((None, self.port), remote, payload)
    }

    /// The same from `local`, by which `remote` knows us, as long as that is an address of ours.
    ///
    /// # Errors
    /// Those of [`Self::send_to`].
    pub fn send_from(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        payload: &[u8],
    ) -> Result<(), NetError> {
        self.send((Some(local), self.port), remote, payload)
    }

    fn send(
        &self,
        local: (Option<IpAddr>, u16),
        remote: SocketAddr,
        payload: &[u8],
    ) -> Result<(), NetError> {
        let now = self.stack.now();
        let mut state = self.stack.state();
        state.interface.send(local, remote, payload, now)
    }

    /// Whether a host has said, since this was last asked, that nobody listens at `remote` (ICMP port unreachable, RFC 792, RFC 4443). A
    /// server that is being started again may well listen later.
    #[must_use]
    pub fn was_refused_by(&self, remote: SocketAddr) -> bool {
        let mut state = self.stack.state();
        let mut ports = state.udp.iter_mut();
        let binding = ports.find(|binding| binding.port == self.port);
        binding.is_some_and(|binding| binding.refused.take() == Some(remote))
    }

    /// The next datagram: its sender and its payload. Never ready on a socket with a sink of its own.
    pub async fn receive(&self) -> (SocketAddr, Vec<u8>) {
        until(|| self.try_receive()).await
    }

    /// The same, if there is one already.
    #[must_use]
    pub fn try_receive(&self) -> Option<(SocketAddr, Vec<u8>)> {
        self.queue.as_ref()?.borrow_mut().pop()
    }
}

/// Whether no socket has the port.
fn free(state: &NetState, port: u16) -> bool {
    state.udp.iter().all(|binding| binding.port != port)
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        let mut state = self.stack.state();
        if let Some(at) = state.udp.iter().position(|b| b.port == self.port) {
            state.udp.swap_remove(at);
        }
    }
}
