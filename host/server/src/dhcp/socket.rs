//! The sockets of the DHCP server.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Instant;

use socket2::{Domain, Protocol, Socket, Type};
use wireboot_wire::dhcp::{CLIENT_PORT, MessageType, PXE_PORT, SERVER_PORT};

use super::responder::{Destination, Reply, Responder, hardware_address};
use crate::arp_probe::Arp;
use crate::event::{Event, Events, Kind};
use crate::interface::{Interface, Networks};
use crate::leases::Leases;
use crate::link_socket::LinkSocket;
use crate::ports::{FROM_BEYOND, Port, Ports, pxe_port};
use crate::stop::Stop;

/// The sockets, bound to one interface.
#[derive(Debug)]
pub struct DhcpSockets {
    ports: Ports,
    /// `None` without the permission for it: replies are broadcast then.
    link: Option<LinkSocket>,
    /// For a server that gives addresses, and has that permission.
    arp: Option<Arp>,
}

impl DhcpSockets {
    /// Binds port 67, and 4011 for when it gives no addresses. A proxy shares port 67 with a DHCP server on the same machine that allows it, and
    /// leaves to it what is sent to this machine alone: clients renew and release so. Relays send so, too: one that answers anyone hears it.
    /// Machines of `networks` are answered, and those that have no address; `None`: anyone.
    ///
    /// # Errors
    /// When a port is in use or needs a permission that is not there.
    pub(crate) fn bind(
        interface: &Interface,
        proxy: bool,
        networks: Option<Networks>,
        link: Option<LinkSocket>,
        arp: Option<Arp>,
    ) -> io::Result<Self> {
        let every = Ipv4Addr::UNSPECIFIED;
        let server = match networks {
            Some(_) if proxy => Ipv4Addr::BROADCAST,
            _ => every,
        };
        Ok(Self {
            ports: Ports {
                server: bound(interface, server, SERVER_PORT, proxy)?,
                pxe: pxe_port(proxy, || bound(interface, every, PXE_PORT, true))?,
                networks,
            },
            link,
            arp,
        })
    }

    /// Addresses that somebody has, as was heard since the last call.
    fn heard(&self) -> HashMap<Ipv4Addr, [u8; 6]> {
        self.arp.as_ref().map(Arp::heard).unwrap_or_default()
    }

    fn send(&self, reply: &Reply, server: Ipv4Addr, port: Port) -> io::Result<()> {
        let payload = reply.message.emit();
        let socket = self.ports.socket(port);
        if let (Some(MessageType::Offer), Some(arp)) = (reply.message.message_type(), &self.arp) {
            // Who has it answers before the client takes it.
            arp.probe(reply.message.yiaddr);
        }
        let everyone = SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT);
        match (&reply.destination, &self.link) {
            (Destination::Unicast(client), _) => socket.send_to(&payload, client).map(drop),
            (Destination::Hardware(mac, address), Some(link)) => {
                let from = SocketAddrV4::new(server, SERVER_PORT);
                link.send(
                    *mac,
                    from,
                    SocketAddrV4::new(*address, CLIENT_PORT),
                    &payload,
                )
            }
            _ => socket.send_to(&payload, everyone).map(drop),
        }
    }
}

/// A UDP socket that hears one interface only: what is sent to `address`, or with 0.0.0.0 to any. It may send broadcasts. One that is bound to
/// 255.255.255.255 hears them alone, and sends from the interface's address.
pub(super) fn bound(
    interface: &Interface,
    address: Ipv4Addr,
    port: u16,
    shared: bool,
) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(shared)?;
    socket.set_broadcast(true)?;
    socket.bind_device(Some(interface.name.as_bytes()))?;
    socket.bind(&SocketAddr::from((address, port)).into())?;
    Ok(socket.into())
}

/// A DHCP or proxyDHCP server at its sockets.
#[derive(Debug)]
pub struct DhcpServer {
    sockets: DhcpSockets,
    responder: Responder,
    server: Ipv4Addr,
    leases: Option<Leases>,
    events: Events,
}

impl DhcpServer {
    /// A server that answers from the address `server` through `sockets`.
    pub(crate) fn new(
        sockets: DhcpSockets,
        responder: Responder,
        server: Ipv4Addr,
        leases: Option<Leases>,
        events: Events,
    ) -> Self {
        let responder = responder.within(sockets.ports.networks.clone());
        Self {
            sockets,
            responder,
            server,
            leases,
            events,
        }
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// When a socket fails for good.
    pub fn run(mut self, stop: &Stop) -> io::Result<()> {
        let (sockets, responder) = (&self.sockets, &mut self.responder);
        sockets.ports.serve(
            stop,
            |_| Stop::CHECK_EVERY,
            |port, datagram, source| {
                let SocketAddr::V4(source) = source else {
                    return;
                };
                let from = *source.ip();
                if responder.is_own(from) {
                    // This server's own question for others.
                    return;
                }
                let answers = sockets.ports.answers(from.into());
                if !answers && !responder.is_renewal_from_elsewhere(datagram, from) {
                    let event = Event::now(Kind::DhcpIgnored, source.ip());
                    self.events.record(event.message(FROM_BEYOND));
                    return;
                }
                let now = Instant::now();
                for (address, mac) in sockets.heard() {
                    if responder.heard(address, mac, now) {
                        let event = Event::now(Kind::DhcpInUse, hardware_address(&mac));
                        let event = event.address(address);
                        self.events
                            .record(event.message("it is given to nobody else"));
                    }
                }
                let (reply, events) = responder.answer(datagram, source, port, now);
                if let Some(leases) = &self.leases {
                    leases.keep(responder.changed());
                }
                // The answer first: the client waits, the log does not.
                let sent = reply.map(|reply| sockets.send(&reply, self.server, port));
                for event in events {
                    self.events.record(event);
                }
                if let Some(Err(error)) = sent {
                    let event = Event::now(Kind::DhcpError, source.ip());
                    let message = format!("the answer could not be sent: {error}");
                    self.events.record(event.message(message));
                }
            },
        )
    }
}
