//! Frames as a wire has them, of what a card has joined or has not completed: TCP segments of a large unit (virtio's GUEST_TSO),
//! UDP datagrams of one (GUEST_USO), and transport checksums that hold the pseudo header's sum alone (NEEDS_CSUM).

use crate::checksum;
use crate::packet::{
    ETHERNET_HEADER, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_HEADER, IPV6_HEADER, PROTOCOL_TCP,
    PROTOCOL_UDP, TCP_HEADER, UDP_HEADER, array, be16, be32, put,
};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// Where the headers of a unit lie.
struct Layout {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    /// Of the transport header, in the unit.
    start: usize,
    /// Of the payload.
    payload: usize,
    end: usize,
}

fn layout(unit: &[u8]) -> Option<Layout> {
    let ip = ETHERNET_HEADER;
    let (source, destination, protocol, start, end): (IpAddr, IpAddr, _, _, _) =
        match be16(unit, 12)? {
            // Not in fragments.
            ETHERTYPE_IPV4 if be16(unit, ip + 6)? & 0x3fff == 0 => {
                let words = usize::from(unit.get(ip)? & 0xf);
                (
                    Ipv4Addr::from(array::<4>(unit, ip + 12)?).into(),
                    Ipv4Addr::from(array::<4>(unit, ip + 16)?).into(),
                    *unit.get(ip + 9)?,
                    ip + (words * 4).max(IPV4_HEADER),
                    ip + usize::from(be16(unit, ip + 2)?),
                )
            }
            ETHERTYPE_IPV6 => (
                Ipv6Addr::from(array::<16>(unit, ip + 8)?).into(),
                Ipv6Addr::from(array::<16>(unit, ip + 24)?).into(),
                *unit.get(ip + 6)?,
                ip + IPV6_HEADER,
                ip + IPV6_HEADER + usize::from(be16(unit, ip + 4)?),
            ),
            _ => return None,
        };
    let transport = match protocol {
        PROTOCOL_TCP => usize::from(unit.get(start + 12)? >> 4) * 4,
        PROTOCOL_UDP => UDP_HEADER,
        _ => return None,
    };
    let least = if protocol == PROTOCOL_TCP {
        TCP_HEADER
    } else {
        UDP_HEADER
    };
    let payload = start + transport;
    let whole = transport >= least && payload <= end && end <= unit.len();
    whole.then_some(Layout {
        source,
        destination,
        protocol,
        start,
        payload,
        end,
    })
}

/// Gives the frames that `unit` stands for, none longer than `longest` bytes, with all checksums. `udp_segment`: as
/// [`Frame`](wireboot_nic::Frame) has it. What is neither TCP nor UDP is given as it is; what cannot be cut and is too long, not at all.
pub(crate) fn cut(
    unit: &[u8],
    udp_segment: Option<u16>,
    longest: usize,
    mut give: impl FnMut(&[u8]),
) {
    let Some(layout) = layout(unit) else {
        if unit.len() <= longest {
            give(unit);
        }
        return;
    };
    let Layout {
        payload: headers,
        end,
        ..
    } = layout;
    let (Some(head), Some(payload)) = (unit.get(..headers), unit.get(headers..end)) else {
        return;
    };
    let fits = longest.saturating_sub(headers);
    let step = match (layout.protocol, udp_segment) {
        (PROTOCOL_TCP, _) => fits,
        (_, Some(segment)) => usize::from(segment),
        (_, None) => payload.len(),
    };
    if step > fits || step == 0 && !payload.is_empty() {
        return;
    }
    let mut frame = Vec::with_capacity(longest);
    let mut at = 0;
    for index in 0.. {
        let rest = payload.get(at..).unwrap_or_default();
        let piece = rest.get(..step).unwrap_or(rest);
        frame.clear();
        frame.extend_from_slice(head);
        frame.extend_from_slice(piece);
        let last = piece.len() == rest.len();
        complete(&mut frame, &layout, (index, at), last);
        give(&frame);
        at += piece.len();
        if last {
            return;
        }
    }
}

/// Makes the headers those of the piece `index` that begins `at` so many bytes of the payload.
fn complete(
    frame: &mut [u8],
    layout: &Layout,
    (index, at): (u16, usize),
    last: bool,
) -> Option<()> {
    let (ip, start) = (ETHERNET_HEADER, layout.start);
    let len = frame.len().saturating_sub(start);
    if layout.source.is_ipv4() {
        put(frame, ip + 2, ((frame.len() - ip) as u16).to_be_bytes());
        let id = be16(frame, ip + 4)?.wrapping_add(index);
        put(frame, ip + 4, id.to_be_bytes());
        put(frame, ip + 10, [0, 0]);
        let sum = checksum::compute(0, frame.get(ip..start)?);
        put(frame, ip + 10, sum.to_be_bytes());
    } else {
        put(frame, ip + 4, (len as u16).to_be_bytes());
    }
    let field = if layout.protocol == PROTOCOL_TCP {
        let seq = be32(frame, start + 4)?.wrapping_add(at as u32);
        put(frame, start + 4, seq.to_be_bytes());
        let flags = frame.get_mut(start + 13)?;
        if !last {
            *flags &= !FIN_PSH;
        }
        if index > 0 {
            *flags &= !CWR;
        }
        start + 16
    } else {
        put(frame, start + 4, (len as u16).to_be_bytes());
        if be16(frame, start + 6)? == 0 {
            // Its sender does without (RFC 768).
            return Some(());
        }
        start + 6
    };
    put(frame, field, [0, 0]);
    let pseudo = checksum::pseudo_header(layout.source, layout.destination, layout.protocol, len);
    let mut sum = checksum::compute(pseudo, frame.get(start..)?);
    if sum == 0 && layout.protocol == PROTOCOL_UDP {
        sum = 0xffff;
    }
    put(frame, field, sum.to_be_bytes());
    Some(())
}
