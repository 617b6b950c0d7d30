//! Packets in frames to an Ethernet address of our choice: IPv4 for clients that cannot answer ARP yet, and ARP.

use std::io::{self, Read};
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use etherparse::{
    ArpEthIpv4Packet, ArpHardwareId, ArpOperation, ArpPacketSlice, EtherType, PacketBuilder,
};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

/// A packet socket of one interface.
#[derive(Debug)]
pub(crate) struct LinkSocket {
    socket: Socket,
    interface: i32,
}

const EVERYBODY: [u8; 6] = [0xff; 6];

impl LinkSocket {
    /// Opens it; needs the capability `CAP_NET_RAW`.
    pub(crate) fn open(interface: u32) -> io::Result<Self> {
        // Protocol 0: it only sends.
        Ok(Self {
            socket: Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?,
            interface: i32::try_from(interface).map_err(io::Error::other)?,
        })
    }

    /// Hears ARP from now on, and waits for it no longer than `patience`.
    pub(crate) fn hear_arp(&self, patience: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(patience))?;
        self.socket.bind(&self.address(EtherType::ARP, EVERYBODY)?)
    }

    /// Who speaks in the next ARP packet. An error when none comes, or one that is none.
    pub(crate) fn hear(&self) -> io::Result<(Ipv4Addr, [u8; 6])> {
        let mut packet = [0; 128];
        let length = (&self.socket).read(&mut packet)?;
        speaker(packet.get(..length).unwrap_or_default()).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Asks everybody for `address` without naming one of its own (RFC 5227 section 2.1.1), as `mac`.
    pub(crate) fn probe(&self, address: Ipv4Addr, mac: [u8; 6]) -> io::Result<()> {
        let probe = ArpEthIpv4Packet {
            operation: ArpOperation::REQUEST,
            sender_mac: mac,
            sender_ipv4: [0; 4],
            target_mac: [0; 6],
            target_ipv4: address.octets(),
        };
        let to = self.address(EtherType::ARP, EVERYBODY)?;
        self.socket.send_to(&probe.to_bytes(), &to).map(drop)
    }

    /// Sends a UDP datagram.
    pub(crate) fn send(
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
        self.socket
            .send_to(&packet, &self.address(EtherType::IPV4, to_mac)?)?;
        Ok(())
    }

    fn address(&self, protocol: EtherType, mac: [u8; 6]) -> io::Result<SockAddr> {
        let mut hardware_address = [0; 8];
        hardware_address[..6].copy_from_slice(&mac);
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.0.to_be(),
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

/// The addresses of who speaks in an ARP packet for IPv4 over Ethernet, if it is one and they are of a single host.
fn speaker(packet: &[u8]) -> Option<(Ipv4Addr, [u8; 6])> {
    speaker_of(&ArpPacketSlice::from_slice(packet).ok()?)
}

/// The same of a packet that is whole.
pub(crate) fn speaker_of(arp: &ArpPacketSlice<'_>) -> Option<(Ipv4Addr, [u8; 6])> {
    let kind = (arp.hw_addr_type(), arp.proto_addr_type());
    (kind == (ArpHardwareId::ETHERNET, EtherType::IPV4)).then_some(())?;
    let mac: [u8; 6] = arp.sender_hw_addr().try_into().ok()?;
    let address: [u8; 4] = arp.sender_protocol_addr().try_into().ok()?;
    let address = Ipv4Addr::from(address);
    let single = mac[0] & 1 == 0 && !address.is_unspecified() && !address.is_multicast();
    single.then_some((address, mac))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speaker_of_an_arp_packet() {
        let mut answer = ArpEthIpv4Packet {
            operation: ArpOperation::REPLY,
            sender_mac: [2, 0, 0, 0, 0, 5],
            sender_ipv4: [10, 0, 0, 5],
            target_mac: [2, 0, 0, 0, 0, 1],
            target_ipv4: [0; 4],
        };
        let said = (Ipv4Addr::new(10, 0, 0, 5), [2, 0, 0, 0, 0, 5]);
        assert_eq!(speaker(&answer.to_bytes()), Some(said));
        // Padded to the shortest frame.
        let mut padded = answer.to_bytes().to_vec();
        padded.resize(46, 0);
        assert_eq!(speaker(&padded), Some(said));
        assert_eq!(speaker(&answer.to_bytes()[..27]), None);
        let mut other_medium = answer.to_bytes();
        other_medium[1] = 6;
        assert_eq!(speaker(&other_medium), None);
        let mut other_protocol = answer.to_bytes();
        other_protocol[3] = 1;
        assert_eq!(speaker(&other_protocol), None);
        answer.sender_ipv4 = [0; 4];
        assert_eq!(speaker(&answer.to_bytes()), None, "a probe");
        answer.sender_ipv4 = [224, 0, 0, 5];
        assert_eq!(speaker(&answer.to_bytes()), None);
        answer.sender_ipv4 = [10, 0, 0, 5];
        answer.sender_mac = [0xff; 6];
        assert_eq!(speaker(&answer.to_bytes()), None);
    }
}
