//! The sockets of the DHCPv6 server.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use wireboot_wire::dhcp::PXE_PORT;
use wireboot_wire::dhcpv6::{ALL_SERVERS, CLIENT_PORT, SERVER_PORT};

use super::responder::Responder;
use crate::event::{Event, Events, Kind};
use crate::interface::{Interface, Networks};
use crate::leases::Leases;
use crate::ports::{FROM_BEYOND, Port, Ports, pxe_port};
use crate::stop::Stop;

/// When an answer of port 4011 is sent again. Stock firmware asks there once, for all that it waits 3 s, and begins to listen after it has
/// asked: an answer that is there before is lost.
const AGAIN: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];
/// Answers to be sent again, at most; others are sent once.
const MOST_AGAIN: usize = 512;

/// Answers to be sent again.
#[derive(Debug, Default)]
struct Repetitions(Vec<(Instant, Vec<u8>, SocketAddrV6)>);

impl Repetitions {
    /// A client's last answer alone is repeated.
    fn add(&mut self, now: Instant, answer: &[u8], client: SocketAddrV6) {
        self.0.retain(|(.., other)| other.ip() != client.ip());
        if self.0.len() + AGAIN.len() <= MOST_AGAIN {
            let later = AGAIN.iter().map(|after| now + *after);
            self.0.extend(later.map(|at| (at, answer.to_vec(), client)));
        }
    }

    /// How long until the next one.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let next = self.0.iter().map(|(at, ..)| *at).min();
        next.map(|at| at.saturating_duration_since(now))
    }

    /// Those whose time has come.
    fn due(&mut self, now: Instant) -> Vec<(Instant, Vec<u8>, SocketAddrV6)> {
        let (due, rest) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(at, ..)| *at <= now);
        self.0 = rest;
        due
    }
}

/// The sockets, of one interface.
#[derive(Debug)]
pub struct DhcpV6Sockets(Ports);

impl DhcpV6Sockets {
    /// Binds port 547, and 4011 for when it gives no addresses. Machines of `networks` are answered, and those with a link-local address;
    /// `None`: anyone.
    ///
    /// # Errors
    /// When a port is in use or needs a permission that is not there.
    pub fn bind(
        interface: &Interface,
        proxy: bool,
        networks: Option<Networks>,
    ) -> io::Result<Self> {
        // Bound to the group: a server must not answer what was sent to it alone (RFC 8415 section 16). Others may have their own.
        let server = bound(interface, ALL_SERVERS, SERVER_PORT)?;
        server.join_multicast_v6(&ALL_SERVERS, interface.index)?;
        Ok(Self(Ports {
            server,
            pxe: pxe_port(proxy, || bound(interface, Ipv6Addr::UNSPECIFIED, PXE_PORT))?,
            networks,
        }))
    }
}

/// A UDP socket of one interface.
pub(super) fn bound(interface: &Interface, address: Ipv6Addr, port: u16) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(true)?;
    socket.bind_device(Some(interface.name.as_bytes()))?;
    socket.bind(&SocketAddrV6::new(address, port, 0, interface.index).into())?;
    Ok(socket.into())
}

/// A DHCPv6 server at its sockets.
#[derive(Debug)]
pub struct DhcpV6Server {
    sockets: DhcpV6Sockets,
    responder: Responder,
    leases: Option<Leases>,
    events: Events,
}

impl DhcpV6Server {
    /// A server that answers through `sockets`.
    pub(crate) fn new(
        sockets: DhcpV6Sockets,
        responder: Responder,
        leases: Option<Leases>,
        events: Events,
    ) -> Self {
        Self {
            sockets,
            responder,
            leases,
            events,
        }
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// When a socket fails for good.
    pub fn run(mut self, stop: &Stop) -> io::Result<()> {
        let (DhcpV6Sockets(ports), responder) = (&self.sockets, &mut self.responder);
        let repetitions = RefCell::new(Repetitions::default());
        let repeat = |now| {
            let mut repetitions = repetitions.borrow_mut();
            for (_, answer, client) in repetitions.due(now) {
                // Whoever does not need it any more refuses it.
                let _ = ports.socket(Port::Pxe).send_to(&answer, client);
            }
            repetitions.wait(now).unwrap_or(Stop::CHECK_EVERY)
        };
        ports.serve(stop, repeat, |port, datagram, source| {
            let SocketAddr::V6(source) = source else {
                return;
            };
            if !ports.answers((*source.ip()).into()) {
                let event = Event::now(Kind::Dhcpv6Ignored, source.ip());
                self.events.record(event.message(FROM_BEYOND));
                return;
            }
            let now = Instant::now();
            let (reply, events) = responder.answer(datagram, source, port, now);
            let mut client = source;
            if port == Port::Server {
                // Where clients listen (RFC 8415 section 7.2), whatever port they send from.
                client.set_port(CLIENT_PORT);
            }
            if let Some(leases) = &self.leases {
                leases.keep(responder.changed());
            }
            // The answer first: the client waits, the log does not.
            let sent = reply
                .as_ref()
                .map(|reply| ports.socket(port).send_to(reply, client));
            if let (Port::Pxe, Some(reply)) = (port, &reply) {
                repetitions.borrow_mut().add(now, reply, client);
            }
            for event in events {
                self.events.record(event);
            }
            if let Some(Err(error)) = sent {
                let event = Event::now(Kind::DhcpError, source.ip());
                let message = format!("the answer could not be sent: {error}");
                self.events.record(event.message(message));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_repeated_and_not_without_end() {
        let client = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 4011, 0, 0);
        let now = Instant::now();
        let mut repetitions = Repetitions::default();
        assert_eq!(repetitions.wait(now), None);
        repetitions.add(now, b"answer", client);
        let [first, second] = AGAIN;
        assert_eq!(repetitions.wait(now), Some(first));
        assert_eq!(repetitions.due(now), []);
        let at = now + first;
        assert_eq!(repetitions.due(at), [(at, b"answer".to_vec(), client)]);
        assert_eq!(repetitions.wait(at), Some(second - first));
        let at = now + second;
        assert_eq!(repetitions.due(at), [(at, b"answer".to_vec(), client)]);
        assert_eq!(repetitions.wait(at), None);
        // A client's last answer alone.
        repetitions.add(now, b"answer", client);
        repetitions.add(now, b"another", client);
        let again = (now + first, b"another".to_vec(), client);
        assert_eq!(repetitions.due(now + first), [again]);
        assert_eq!(repetitions.due(at).len(), 1);
        for n in 0..MOST_AGAIN {
            let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n as u16);
            repetitions.add(now, b"answer", SocketAddrV6::new(address, 4011, 0, 0));
        }
        assert_eq!(repetitions.due(at).len(), MOST_AGAIN);
    }
}
