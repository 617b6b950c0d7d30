//! UDP datagrams in frames.

use super::frames::Frames;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, UdpPacket, UdpRepr,
};

const ETHERTYPE: usize = 12;
const IPV4: [u8; 2] = [8, 0];
const IPV6: [u8; 2] = [0x86, 0xdd];
const HOPS: u8 = 64;

/// A datagram on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram<'a> {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub payload: &'a [u8],
}

/// Bytes before the payload of a datagram from `host`, Ethernet header included.
pub(super) fn headers(host: IpAddr) -> usize {
    14 + 8 + if host.is_ipv4() { 20 } else { 40 }
}

/// The datagram in a frame; `None` where it holds none, or one in fragments.
pub(super) fn parse<'a>(header: &[u8; 14], packet: &'a [u8]) -> Option<Datagram<'a>> {
    let (source, destination, udp): (IpAddr, IpAddr, _) = match header.get(ETHERTYPE..)? {
        kind if kind == IPV4 => {
            let ip = Ipv4Packet::new_checked(packet).ok()?;
            let whole = ip.frag_offset() == 0 && !ip.more_frags();
            let udp = ip.next_header() == IpProtocol::Udp;
            (whole && udp && ip.version() == 4).then_some(())?;
            (ip.src_addr().into(), ip.dst_addr().into(), ip.payload())
        }
        kind if kind == IPV6 => {
            let ip = Ipv6Packet::new_checked(packet).ok()?;
            (ip.next_header() == IpProtocol::Udp && ip.version() == 6).then_some(())?;
            (ip.src_addr().into(), ip.dst_addr().into(), ip.payload())
        }
        _ => return None,
    };
    let udp = UdpPacket::new_checked(udp).ok()?;
    Some(Datagram {
        source: SocketAddr::new(source, udp.src_port()),
        destination: SocketAddr::new(destination, udp.dst_port()),
        payload: udp.payload(),
    })
}

/// The frame of a datagram that answers the frame with `header`, in memory of `frames`; its payload is written by `fill`.
pub(super) fn answer(
    frames: &mut Frames,
    header: &[u8; 14],
    source: SocketAddr,
    destination: SocketAddr,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let [a, b, c, d, e, f, g, h, i, j, k, l, kind @ ..] = *header;
    let link = [g, h, i, j, k, l, a, b, c, d, e, f];
    let mut frame = frames.room(headers(source.ip()) + len);
    let udp = UdpRepr {
        src_port: source.port(),
        dst_port: destination.port(),
    };
    let payload_len = 8 + len;
    if let Some((place, packet)) = frame.split_first_chunk_mut::<14>() {
        if let Some(place) = place.first_chunk_mut() {
            *place = link;
        }
        if let Some(place) = place.last_chunk_mut() {
            *place = kind;
        }
        let (from, to) = (source.ip(), destination.ip());
        // Over IPv4 a datagram may do without a checksum (RFC 768): nothing can happen to it on this way.
        let mut checksums = ChecksumCapabilities::default();
        let ends: (IpAddress, IpAddress) = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                checksums.udp = smoltcp::phy::Checksum::None;
                Ipv4Repr {
                    src_addr: from,
                    dst_addr: to,
                    next_header: IpProtocol::Udp,
                    payload_len,
                    hop_limit: HOPS,
                }
                .emit(&mut Ipv4Packet::new_unchecked(&mut *packet), &checksums);
                (from.into(), to.into())
            }
            (from, to) => {
                let six = |address| match address {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                let (from, to) = (six(from), six(to));
                Ipv6Repr {
                    src_addr: from,
                    dst_addr: to,
                    next_header: IpProtocol::Udp,
                    payload_len,
                    hop_limit: HOPS,
                }
                .emit(&mut Ipv6Packet::new_unchecked(&mut *packet));
                (from.into(), to.into())
            }
        };
        let start = packet.len().saturating_sub(payload_len);
        if let Some(segment) = packet.get_mut(start..) {
            udp.emit(
                &mut UdpPacket::new_unchecked(segment),
                &ends.0,
                &ends.1,
                len,
                fill,
                &checksums,
            );
        }
    }
    frame
}
