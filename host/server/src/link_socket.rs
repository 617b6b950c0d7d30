//! IPv4 packets in frames to an Ethernet address of our choice, for clients that cannot answer ARP yet.

use std::io;
use std::mem;
use std::net::SocketAddrV4;

use etherparse::PacketBuilder;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

/// A packet socket of one interface.
#[derive(Debug)]
pub(crate) struct LinkSocket {
    socket: Socket,
    interface: i32,
}

impl LinkSocket {
    /// Opens it; needs the capability `CAP_NET_RAW`.
    pub fn open(interface: u32) -> io::Result<Self> {
        // Protocol 0: it only sends.
        Ok(Self {
            socket: Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?,
            interface: i32::try_from(interface).map_err(io::Error::other)?,
        })
    }

    /// Sends a UDP datagram.
    pub fn send(
        &self,
        to_mac: [u8; 6],
        from: SocketAddrV4,
        to: SocketAddrV4,
        payload: &[u8],
    ) -> io::Result<()> {
        let builder = PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), 64)
            .udp(from.port(), to.port());
        let mut packet = Vec::with_capacity(builder.size(payload.len()));
        builder
            .write(&mut packet, payload)
            .map_err(io::Error::other)?;
        self.socket.send_to(&packet, &self.address(to_mac)?)?;
        Ok(())
    }

    fn address(&self, mac: [u8; 6]) -> io::Result<SockAddr> {
        let mut hardware_address = [0; 8];
        hardware_address[..6].copy_from_slice(&mac);
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_IP as u16).to_be(),
            sll_ifindex: self.interface,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: hardware_address,
        };
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: `sockaddr_ll` is one of the types that fit into the storage (packet(7)), made of integers only.
        *unsafe { storage.view_as::<libc::sockaddr_ll>() } = address;
        // SAFETY: the storage holds an address of the family AF_PACKET, of exactly this length.
        Ok(unsafe {
            SockAddr::new(
                storage,
                mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })
    }
}
