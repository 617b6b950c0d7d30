//! Datagrams of a flow that came as one unit (Linux' UDP_SEGMENT), a frame each.

use core::ops::Range;

use super::{CHECKSUM, UDP_LEN};
use crate::frame::{Ip, MAX_HEAD, UDP, Version, put, u16_at};
use crate::header::{GSO_UDP_L4, Header, NEEDS_CSUM};

/// Splits the unit of `len` bytes that begins with `head` and has this header. `each` gets the header, the first bytes and the place of the payload
/// in the unit of each frame, in order. `None`, before the first frame, for a unit that cannot be split, or whose frames are to have less than `least`
/// bytes of payload.
pub(crate) fn split(
    header: Header,
    head: &[u8],
    len: usize,
    least: usize,
    mut each: impl FnMut(Header, &[u8], Range<usize>),
) -> Option<()> {
    let ip = Ip::parse(head)?;
    let udp = usize::from(header.csum_start);
    let size = usize::from(header.gso_size);
    // Extension headers of IPv6 may lie between.
    let placed = match ip.version {
        Version::V4 => udp == ip.end && ip.protocol == UDP,
        Version::V6 => udp >= ip.end,
    };
    if header.gso_type != GSO_UDP_L4
        || header.csum_offset != CHECKSUM
        || !placed
        || size < least.max(1)
    {
        return None;
    }
    let payload = udp + UDP_LEN;
    let data = len.checked_sub(payload)?;
    let mut bytes = [0; MAX_HEAD];
    let frame = bytes.get_mut(..payload)?;
    frame.copy_from_slice(head.get(..payload)?);
    let id = u16_at(frame, ip.at + 4)?;
    for n in 0..data.div_ceil(size).max(1) {
        let start = payload + n * size;
        let part = start..len.min(start + size);
        let datagram = UDP_LEN + part.len();
        if ip.version == Version::V4 {
            put(frame, ip.at + 4, &id.wrapping_add(n as u16).to_be_bytes())?;
        }
        ip.set_len(frame, udp - ip.end + datagram)?;
        put(frame, udp + 4, &u16::try_from(datagram).ok()?.to_be_bytes())?;
        let sum = ip.pseudo(frame, UDP, datagram)?.fold();
        put(frame, udp + usize::from(CHECKSUM), &sum.to_be_bytes())?;
        let header = Header {
            flags: NEEDS_CSUM,
            csum_start: header.csum_start,
            csum_offset: CHECKSUM,
            ..Header::default()
        };
        each(header, frame, part);
    }
    Some(())
}
