//! Where a server takes requests: IPv4 at one address, IPv6 at all addresses of one interface.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn6, getsockopt, recvmsg, sendmsg,
    setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::interface::Interface;

/// Connections that wait to be accepted; the system takes fewer where it is set to.
const BACKLOG: i32 = 1024;
/// Bytes of IPv4 and UDP headers.
const IPV4_UDP_HEADERS: usize = 28;
/// Bytes of IPv6 and UDP headers.
pub(crate) const IPV6_UDP_HEADERS: usize = 48;
/// MTU when the kernel does not know the path's.
const ETHERNET_MTU: usize = 1500;

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

    /// A datagram from `socket`, which is one of [`Self::udp`]: its length, and its ends.
    pub(crate) fn receive(
        &self,
        socket: &UdpSocket,
        buffer: &mut [u8],
    ) -> io::Result<(usize, Path)> {
        if self.address.is_ipv6() {
            return receive_ipv6(socket, buffer);
        }
        let (length, client) = socket.recv_from(buffer)?;
        let local = SocketAddr::new(self.address.ip(), 0);
        Ok((length, Path { client, local }))
    }

    /// A UDP socket of its own for `path`, to `port` of the client.
    pub(crate) fn connected(&self, path: Path, port: u16) -> io::Result<UdpSocket> {
        let socket = self.socket(Type::DGRAM, Protocol::UDP)?;
        socket.bind(&path.local.into())?;
        let mut client = path.client;
        client.set_port(port);
        socket.connect(&client.into())?;
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

/// The interface may have several IPv6 addresses: the datagram tells which one it came to.
fn receive_ipv6(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, Path)> {
    let mut slices = [IoSliceMut::new(buffer)];
    let mut control = nix::cmsg_space!(libc::in6_pktinfo);
    let message = recvmsg::<SockaddrIn6>(
        socket.as_raw_fd(),
        &mut slices,
        Some(&mut control),
        MsgFlags::empty(),
    )?;
    let sent_to = message.cmsgs()?.find_map(|one| match one {
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            Some(SocketAddrV6::new(address, 0, 0, info.ipi6_ifindex))
        }
        _ => None,
    });
    let client = message.address.ok_or(io::ErrorKind::Interrupted)?;
    let path = Path {
        client: SocketAddrV6::from(client).into(),
        local: sent_to.ok_or(io::ErrorKind::Interrupted)?.into(),
    };
    Ok((message.bytes, path))
}

/// The two ends of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub client: SocketAddr,
    /// The address that the request came to, and no port.
    pub local: SocketAddr,
}

impl Path {
    /// Answers by the socket that the request came to, from the same address.
    pub(crate) fn answer(&self, socket: &UdpSocket, datagram: &[u8]) -> io::Result<()> {
        let (SocketAddr::V6(client), SocketAddr::V6(local)) = (self.client, self.local) else {
            return socket.send_to(datagram, self.client).map(drop);
        };
        let info = libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr {
                s6_addr: local.ip().octets(),
            },
            ipi6_ifindex: local.scope_id(),
        };
        sendmsg(
            socket.as_raw_fd(),
            &[IoSlice::new(datagram)],
            &[ControlMessage::Ipv6PacketInfo(&info)],
            MsgFlags::empty(),
            Some(&SockaddrIn6::from(client)),
        )?;
        Ok(())
    }
}

/// MTU of the path of a connected IPv6 socket, as [`sockopt::IpMtu`] is for IPv4.
#[derive(Clone, Copy, Debug)]
struct Ipv6Mtu;

nix::getsockopt_impl!(
    Ipv6Mtu,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU,
    libc::c_int,
    sockopt::GetStruct<libc::c_int>
);

/// The most bytes of a datagram by a connected UDP socket that cross the path to `client` in one piece.
pub(crate) fn max_payload(socket: &UdpSocket, client: SocketAddr) -> usize {
    let (mtu, headers) = match client.is_ipv6() {
        true => (getsockopt(socket, Ipv6Mtu), IPV6_UDP_HEADERS),
        false => (getsockopt(socket, sockopt::IpMtu), IPV4_UDP_HEADERS),
    };
    mtu.ok()
        .and_then(|mtu| usize::try_from(mtu).ok())
        .unwrap_or(ETHERNET_MTU)
        .saturating_sub(headers)
}

/// The number of the interface that a socket is bound to (SO_BINDTOIFINDEX of `linux/net/core/sock.c`).
#[derive(Clone, Copy, Debug)]
struct BoundIndex;

nix::getsockopt_impl!(
    BoundIndex,
    libc::SOL_SOCKET,
    libc::SO_BINDTOIFINDEX,
    libc::c_int,
    sockopt::GetStruct<libc::c_int>
);

/// The number that the interface of this name has now. if_nametoindex(3) asks by a call that the confined server has no more.
pub(crate) fn index_of(name: &str) -> io::Result<u32> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(name.as_bytes()))?;
    let index = getsockopt(&socket, BoundIndex)?;
    u32::try_from(index).map_err(io::Error::other)
}

/// Errors of a UDP socket after which the next call may well succeed.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(
        error.kind(),
        WouldBlock | TimedOut | Interrupted | ConnectionRefused
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use nix::net::if_::if_nametoindex;

    #[test]
    fn an_interface_has_the_number_that_the_system_says() {
        assert_eq!(index_of("lo").unwrap(), if_nametoindex("lo").unwrap());
        assert!(index_of("nothing").is_err());
    }
}
