//! UDP sockets. Datagrams go straight from the received unit to the socket's sink; smoltcp sends (and does
//! ARP and routing for it).

use crate::parts::Parts;
use crate::stack::{NetError, Stack};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{SocketAddr, SocketAddrV4};
use core::task::Poll;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::udp;
use smoltcp::time::{Duration, Instant};

/// Datagrams kept for a reader that is slow; later ones are dropped, as the network would.
const QUEUE: usize = 64;
/// Datagrams that can wait for ARP or for the transmit ring.
const SEND_QUEUE: usize = 16;

/// How long a closed port's last datagrams may wait for ARP.
const LINGER: Duration = Duration::from_secs(2);

/// Takes the datagrams of a port while they are on loan: one copy, from DMA memory to their final place.
pub trait DatagramSink {
    /// One datagram's payload. Called in the middle of a burst: it must not use the [`Stack`].
    fn datagram(&mut self, source: SocketAddr, payload: Parts<'_>, now: Instant);
}

/// A bound port.
pub struct Binding {
    pub port: u16,
    pub sink: Rc<RefCell<dyn DatagramSink>>,
    /// Who said last that nobody listens there.
    pub refused: Option<SocketAddrV4>,
    handle: SocketHandle,
}

#[derive(Default)]
struct Queue(VecDeque<(SocketAddr, Vec<u8>)>);

impl DatagramSink for Queue {
    fn datagram(&mut self, source: SocketAddr, payload: Parts<'_>, _: Instant) {
        if self.0.len() < QUEUE {
            let mut bytes = vec![0; payload.len()];
            payload.copy_to(&mut bytes);
            self.0.push_back((source, bytes));
        }
    }
}

/// A UDP socket on a random ephemeral port (RFC 6056). Dropping it closes the port.
pub struct UdpSocket {
    stack: Stack,
    port: u16,
    handle: SocketHandle,
    queue: Option<Rc<RefCell<Queue>>>,
}

impl UdpSocket {
    pub(crate) fn queued(stack: Stack) -> Self {
        let queue = Rc::new(RefCell::new(Queue::default()));
        let mut socket = Self::with_sink(stack, queue.clone());
        socket.queue = Some(queue);
        socket
    }

    pub(crate) fn with_sink(stack: Stack, sink: Rc<RefCell<dyn DatagramSink>>) -> Self {
        let port = stack.free_port(|inner, port| inner.udp.iter().all(|b| b.port != port));
        let mtu = usize::from(stack.mtu());
        let buffer = |count: usize| {
            udp::PacketBuffer::new(
                vec![udp::PacketMetadata::EMPTY; count],
                vec![0; count * mtu],
            )
        };
        let mut socket = udp::Socket::new(buffer(0), buffer(SEND_QUEUE));
        // A port that is not zero on a new socket cannot be refused.
        let _ = socket.bind(port);
        let mut inner = stack.inner();
        let handle = inner.sockets.add(socket);
        inner.udp.push(Binding {
            port,
            sink,
            refused: None,
            handle,
        });
        drop(inner);
        Self {
            stack,
            port,
            handle,
            queue: None,
        }
    }

    /// The local port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends one datagram. It leaves at the next turn of the engine, after ARP if need be.
    ///
    /// # Errors
    /// [`NetError::Unreachable`] without an address or route, [`NetError::Full`] when too many datagrams wait.
    pub fn send_to(&self, remote: SocketAddr, payload: &[u8]) -> Result<(), NetError> {
        let SocketAddr::V4(remote) = remote else {
            return Err(NetError::Unreachable);
        };
        let mut inner = self.stack.inner();
        if inner.address().is_none() {
            return Err(NetError::Unreachable);
        }
        inner.want(*remote.ip(), self.stack.now());
        inner
            .sockets
            .get_mut::<udp::Socket<'_>>(self.handle)
            .send_slice(payload, smoltcp::wire::IpEndpoint::from(remote))
            .map_err(|error| match error {
                udp::SendError::BufferFull => NetError::Full,
                udp::SendError::Unaddressable => NetError::Unreachable,
            })
    }

    /// Whether a host has said, since this was last asked, that nobody listens at `remote` (ICMP port unreachable, RFC 792). A
    /// server that is being started again may well listen later.
    #[must_use]
    pub fn was_refused_by(&self, remote: SocketAddr) -> bool {
        let mut inner = self.stack.inner();
        let mut ports = inner.udp.iter_mut();
        let binding = ports.find(|binding| binding.handle == self.handle);
        binding.is_some_and(|binding| binding.refused.take().map(SocketAddr::V4) == Some(remote))
    }

    /// The next datagram: its sender and its payload. Never ready on a socket with a sink of its own.
    pub async fn receive(&self) -> (SocketAddr, Vec<u8>) {
        core::future::poll_fn(|_| {
            match self
                .queue
                .as_ref()
                .and_then(|queue| queue.borrow_mut().0.pop_front())
            {
                Some(datagram) => Poll::Ready(datagram),
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        let mut inner = self.stack.inner();
        if let Some(at) = inner.udp.iter().position(|b| b.handle == self.handle) {
            inner.udp.swap_remove(at);
            // What was sent may still wait for ARP or for the next turn.
            let now = self.stack.now();
            inner.closing.push((self.handle, now + LINGER));
        }
    }
}
