//! Hosts that say that nobody listens on a port: Destination Unreachable (RFC 792; RFC 1122, section 3.2.2.1).

use crate::ethernet::{PROTOCOL_UDP, UDP_HEADER, be16, be32};
use core::net::SocketAddrV4;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, IpProtocol,
    Ipv4Address, Ipv4Packet,
};

/// A datagram of ours that came to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Our port.
    pub port: u16,
    /// Where it went.
    pub remote: SocketAddrV4,
}

/// Which datagram of the station at `address` the frame says was refused, if that is what it says. The host that was meant
/// must say so itself: what routers say is often passing.
pub fn refused(frame: &[u8], address: Ipv4Address) -> Option<Refused> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    if frame.ethertype() != EthernetProtocol::Ipv4 {
        return None;
    }
    let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
    let fragment = packet.more_frags() || packet.frag_offset() != 0;
    if fragment || packet.next_header() != IpProtocol::Icmp || packet.dst_addr() != address {
        return None;
    }
    let message = Icmpv4Packet::new_checked(packet.payload()).ok()?;
    let code = Icmpv4DstUnreachable::from(message.msg_code());
    if message.msg_type() != Icmpv4Message::DstUnreachable
        || code != Icmpv4DstUnreachable::PortUnreachable
        || !message.verify_checksum()
    {
        return None;
    }
    // The datagram's start: its IPv4 header and at least eight bytes, so smoltcp's check of a whole packet does not fit.
    let start = message.data();
    let first = *start.first()?;
    let udp: &[u8; UDP_HEADER] = start.get(usize::from(first & 0xf) * 4..)?.first_chunk()?;
    let remote = Ipv4Address::from(be32(start, 16)?);
    let ours = first >> 4 == 4
        && start.get(9) == Some(&PROTOCOL_UDP)
        && be32(start, 12)? == address.to_bits()
        && remote == packet.src_addr();
    ours.then_some(Refused {
        port: be16(udp, 0)?,
        remote: SocketAddrV4::new(remote, be16(udp, 2)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use smoltcp::wire::EthernetAddress;

    const US: Ipv4Address = Ipv4Address::new(10, 0, 0, 1);
    const HOST: Ipv4Address = Ipv4Address::new(10, 0, 0, 2);

    /// The host's answer to a datagram from port 50,000 to port 69, of which it repeats `repeated` bytes.
    fn answer(repeated: usize) -> Vec<u8> {
        let mut datagram = [0; 128];
        datagram[0] = 0x45;
        datagram[2..4].copy_from_slice(&128_u16.to_be_bytes());
        datagram[9] = PROTOCOL_UDP;
        datagram[12..16].copy_from_slice(&US.octets());
        datagram[16..20].copy_from_slice(&HOST.octets());
        datagram[20..22].copy_from_slice(&50_000_u16.to_be_bytes());
        datagram[22..24].copy_from_slice(&69_u16.to_be_bytes());
        let mut bytes = vec![0; 14 + 20 + 8 + repeated];
        let mut frame = EthernetFrame::new_unchecked(&mut bytes);
        frame.set_ethertype(EthernetProtocol::Ipv4);
        frame.set_dst_addr(EthernetAddress([2, 0, 0, 0, 0, 1]));
        let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
        packet.set_version(4);
        packet.set_header_len(20);
        packet.set_total_len(28 + repeated as u16);
        packet.set_next_header(IpProtocol::Icmp);
        packet.set_src_addr(HOST);
        packet.set_dst_addr(US);
        packet.fill_checksum();
        let mut message = Icmpv4Packet::new_unchecked(packet.payload_mut());
        message.set_msg_type(Icmpv4Message::DstUnreachable);
        message.set_msg_code(Icmpv4DstUnreachable::PortUnreachable.into());
        message.data_mut().copy_from_slice(&datagram[..repeated]);
        message.fill_checksum();
        bytes
    }

    #[test]
    fn a_host_refuses() {
        let want = Refused {
            port: 50_000,
            remote: SocketAddrV4::new(HOST, 69),
        };
        // Windows repeats as little as RFC 792 asks for, Linux all.
        for repeated in [28, 128] {
            assert_eq!(refused(&answer(repeated), US), Some(want));
        }
        assert_eq!(refused(&answer(27), US), None);
        assert_eq!(refused(&answer(28), HOST), None);
        // Another code, another host that speaks for this one, a flipped bit.
        for at in [35, 29, 60] {
            let mut other = answer(28);
            other[at] ^= 1;
            let header = other[14..34].to_vec();
            if at == 29 {
                let mut packet = Ipv4Packet::new_unchecked(header);
                packet.fill_checksum();
                other[14..34].copy_from_slice(&packet.into_inner());
            }
            assert_eq!(refused(&other, US), None, "{at}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, cut in 0..170_usize, at in 0..170_usize, flip: u8) {
            refused(&bytes, US);
            let mut answer = answer(128);
            answer[at] ^= flip;
            refused(&answer[..cut], US);
        }
    }
}
