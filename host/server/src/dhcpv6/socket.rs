//! The sockets of the DHCPv6 server.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::Instant;

use socket2::{Domain, Protocol, Socket, Type};
use wireboot_wire::dhcp::PXE_PORT;
use wireboot_wire::dhcpv6::{ALL_SERVERS, CLIENT_PORT, SERVER_PORT};

use super::responder::Responder;
use crate::event::Events;
use crate::interface::Interface;
use crate::leases::Leases;
use crate::ports::{Port, Ports, pxe_port};
use crate::stop::Stop;

/// The sockets, of one interface.
#[derive(Debug)]
pub struct DhcpV6Sockets(Ports);

impl DhcpV6Sockets {
    /// Binds port 547, and 4011 for when it gives no addresses.
    ///
    /// # Errors
    /// When a port is in use or needs a permission that is not there.
    pub fn bind(interface: &Interface, proxy: bool) -> io::Result<Self> {
        // Bound to the group: a server must not answer what was sent to it alone (RFC 8415 section 16). Others may have their own.
        let server = bound(interface, ALL_SERVERS, SERVER_PORT)?;
        server.join_multicast_v6(&ALL_SERVERS, interface.index)?;
        Ok(Self(Ports {
            server,
            pxe: pxe_port(proxy, || bound(interface, Ipv6Addr::UNSPECIFIED, PXE_PORT))?,
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
        ports.serve(stop, |port, datagram, source| {
            let SocketAddr::V6(source) = source else {
                return;
            };
            let (reply, events) = responder.answer(datagram, source, port, Instant::now());
            let mut client = source;
            if port == Port::Server {
                // Where clients listen (RFC 8415 section 7.2), whatever port they send from.
                client.set_port(CLIENT_PORT);
            }
            if let Some(leases) = &self.leases {
                leases.keep(responder.changed());
            }
            // The answer first: the client waits, the log does not.
            let sent = reply.map(|reply| ports.socket(port).send_to(&reply, client));
            for event in events {
                self.events.record(event);
            }
            if let Some(Err(error)) = sent {
                self.events
                    .say(format!("the DHCPv6 reply could not be sent: {error}"));
            }
        })
    }
}
