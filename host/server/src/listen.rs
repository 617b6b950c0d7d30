//! Where a server takes requests: IPv4 at one address, IPv6 at all addresses of one interface.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::interface::Interface;

/// Connections that wait to be accepted; the system takes fewer where it is set to.
const BACKLOG: i32 = 1024;

/// An address and port, on one interface or on all that have the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    address: SocketAddr,
    interface: Option<String>,
}

impl Listen {
    /// All IPv6 addresses of the interface, also those that it will only get.
    pub fn ipv6(interface: &Interface, port: u16) -> Self {
        Self {
            address: (Ipv6Addr::UNSPECIFIED, port).into(),
            interface: Some(interface.name.clone()),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A UDP socket. For IPv6, a datagram comes with the address that it was sent to.
    pub(crate) fn udp(&self) -> io::Result<UdpSocket> {
        let socket = self.socket(Type::DGRAM, Protocol::UDP)?;
        if self.address.is_ipv6() {
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        }
        socket.bind(&self.address.into())?;
        Ok(socket.into())
    }

    /// A TCP socket that takes connections.
    pub(crate) fn tcp(&self) -> io::Result<TcpListener> {
        let socket = self.socket(Type::STREAM, Protocol::TCP)?;
        // A port whose last connections are still ending can be had again.
        socket.set_reuse_address(true)?;
        socket.bind(&self.address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    }

    fn socket(&self, kind: Type, protocol: Protocol) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(self.address), kind, Some(protocol))?;
        if self.address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if let Some(name) = &self.interface {
            socket.bind_device(Some(name.as_bytes()))?;
        }
        Ok(socket)
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            interface: None,
        }
    }
}

impl From<SocketAddrV4> for Listen {
    fn from(address: SocketAddrV4) -> Self {
        SocketAddr::from(address).into()
    }
}
