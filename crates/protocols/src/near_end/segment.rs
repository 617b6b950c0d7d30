//! TCP segments in frames.

use super::frames::Frames;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use smoltcp::phy::ChecksumCapabilities;
#[cfg(any(test, feature = "fuzzing"))]
use smoltcp::wire::IpAddress;
use smoltcp::wire::{
    IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, TcpPacket, TcpSeqNumber,
};
use wireboot_net::checksum::{compute, pseudo_header};
use wireboot_tcp::{Flags, Segment, Transmit};

const ETHERTYPE: usize = 12;
const IPV4: [u8; 2] = [8, 0];
const IPV6: [u8; 2] = [0x86, 0xdd];
const HOPS: u8 = 64;
/// The protocol's number (RFC 9293, section 3.1).
const TCP: u8 = 6;
/// A header without options.
const HEADER: usize = 20;
/// Of the control bits in a header.
const CONTROL: usize = 13;

/// A segment on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived<'a> {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub segment: Segment<'a>,
    pub payload: &'a [u8],
}

/// Bytes before the options of a segment from `host`, Ethernet header included.
pub(super) fn headers(host: IpAddr) -> usize {
    14 + HEADER + if host.is_ipv4() { 20 } else { 40 }
}

/// The segment in a frame, whole and with right checksums; `None` where it holds none, or one in fragments.
pub(super) fn parse<'a>(header: &[u8; 14], packet: &'a [u8]) -> Option<Arrived<'a>> {
    let (source, destination, tcp): (IpAddr, IpAddr, _) = match header.get(ETHERTYPE..)? {
        kind if kind == IPV4 => {
            let ip = Ipv4Packet::new_checked(packet).ok()?;
            let whole = ip.frag_offset() == 0 && !ip.more_frags() && ip.verify_checksum();
            let tcp = ip.next_header() == IpProtocol::Tcp;
            (whole && tcp && ip.version() == 4).then_some(())?;
            (ip.src_addr().into(), ip.dst_addr().into(), ip.payload())
        }
        kind if kind == IPV6 => {
            let ip = Ipv6Packet::new_checked(packet).ok()?;
            (ip.next_header() == IpProtocol::Tcp && ip.version() == 6).then_some(())?;
            (ip.src_addr().into(), ip.dst_addr().into(), ip.payload())
        }
        _ => return None,
    };
    let flags = *tcp.get(CONTROL)?;
    let tcp = TcpPacket::new_checked(tcp).ok()?;
    tcp.verify_checksum(&source.into(), &destination.into())
        .then_some(())?;
    Some(Arrived {
        source: SocketAddr::new(source, tcp.src_port()),
        destination: SocketAddr::new(destination, tcp.dst_port()),
        segment: Segment {
            seq: tcp.seq_number().0.cast_unsigned(),
            ack: tcp.ack_number().0.cast_unsigned(),
            flags: Flags(flags),
            wnd: tcp.window_len(),
            options: tcp.options(),
            len: tcp.payload().len(),
        },
        payload: tcp.payload(),
    })
}

/// The frame of a segment that answers the frame with `header`, in memory of `frames`; its payload is written by `fill`.
pub(super) fn answer(
    frames: &mut Frames,
    header: &[u8; 14],
    source: SocketAddr,
    destination: SocketAddr,
    out: &Transmit,
    fill: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let [a, b, c, d, e, f, g, h, i, j, k, l, kind @ ..] = *header;
    let link = [g, h, i, j, k, l, a, b, c, d, e, f];
    let options = out.options.as_slice();
    let payload_len = HEADER + options.len() + out.len;
    let mut frame = frames.room(headers(source.ip()) + options.len() + out.len);
    let Some((place, packet)) = frame.split_first_chunk_mut::<14>() else {
        return frame;
    };
    if let Some(place) = place.first_chunk_mut() {
        *place = link;
    }
    if let Some(place) = place.last_chunk_mut() {
        *place = kind;
    }
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ipv4Repr {
            src_addr: from,
            dst_addr: to,
            next_header: IpProtocol::Tcp,
            payload_len,
            hop_limit: HOPS,
        }
        .emit(
            &mut Ipv4Packet::new_unchecked(&mut *packet),
            &ChecksumCapabilities::default(),
        ),
        (from, to) => {
            let six = |address| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            Ipv6Repr {
                src_addr: six(from),
                dst_addr: six(to),
                next_header: IpProtocol::Tcp,
                payload_len,
                hop_limit: HOPS,
            }
            .emit(&mut Ipv6Packet::new_unchecked(&mut *packet));
        }
    }
    let start = packet.len().saturating_sub(payload_len);
    let Some(tcp) = packet.get_mut(start..) else {
        return frame;
    };
    if let Some(place) = tcp.get_mut(..HEADER) {
        place.fill(0);
    }
    if let Some(place) = tcp.get_mut(HEADER..HEADER + options.len()) {
        place.copy_from_slice(options);
    }
    if let Some(place) = tcp.get_mut(HEADER + options.len()..) {
        fill(place);
    }
    if let Some(place) = tcp.get_mut(CONTROL) {
        *place = out.flags.0;
    }
    let mut tcp = TcpPacket::new_unchecked(tcp);
    tcp.set_src_port(source.port());
    tcp.set_dst_port(destination.port());
    tcp.set_seq_number(TcpSeqNumber(out.seq.cast_signed()));
    tcp.set_ack_number(TcpSeqNumber(out.ack.cast_signed()));
    tcp.set_header_len((HEADER + options.len()) as u8);
    tcp.set_window_len(out.wnd);
    let pseudo = pseudo_header(source.ip(), destination.ip(), TCP, payload_len);
    tcp.set_checksum(compute(pseudo, tcp.as_ref()));
    frame
}

/// Writes the checksums of a segment in a frame, where it holds one.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fill_checksums(header: &[u8; 14], packet: &mut [u8]) {
    let fill = |from: IpAddress, to: IpAddress, segment: &mut [u8]| {
        if let Ok(mut segment) = TcpPacket::new_checked(segment) {
            segment.fill_checksum(&from, &to);
        }
    };
    match header.get(ETHERTYPE..) {
        Some(kind) if kind == IPV4 => {
            if let Ok(mut ip) = Ipv4Packet::new_checked(packet) {
                ip.fill_checksum();
                let (from, to) = (ip.src_addr(), ip.dst_addr());
                fill(from.into(), to.into(), ip.payload_mut());
            }
        }
        _ => {
            if let Ok(mut ip) = Ipv6Packet::new_checked(packet) {
                let (from, to) = (ip.src_addr(), ip.dst_addr());
                fill(from.into(), to.into(), ip.payload_mut());
            }
        }
    }
}
