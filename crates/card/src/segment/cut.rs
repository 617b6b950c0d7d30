//! A unit to segments.

use core::ops::Range;

use super::{CHECKSUM, CWR, FIN, PSH};
use crate::frame::{Ip, MAX_HEAD, TCP, Version, put, u16_at, u32_at};
use crate::header::{GSO_ECN, GSO_TCPV4, GSO_TCPV6, Header, NEEDS_CSUM};

/// Cuts the unit of `len` bytes that begins with `head` and has this header. `each` gets the header, the first bytes and the place of the payload
/// in the unit of each frame, in order. `None`, before the first frame, for a unit that cannot be cut, or whose frames are to have less than `least`
/// bytes of payload.
pub(crate) fn cut(
    header: Header,
    head: &[u8],
    len: usize,
    least: usize,
    mut each: impl FnMut(Header, &[u8], Range<usize>),
) -> Option<()> {
    let ip = Ip::parse(head)?;
    let tcp = usize::from(header.csum_start);
    let size = usize::from(header.gso_size);
    let gso_type = match ip.version {
        Version::V4 => GSO_TCPV4,
        Version::V6 => GSO_TCPV6,
    };
    // Extension headers of IPv6 may lie between.
    let placed = match ip.version {
        Version::V4 => tcp == ip.end && ip.protocol == TCP,
        Version::V6 => tcp >= ip.end,
    };
    if header.gso_type & !GSO_ECN != gso_type
        || header.csum_offset != CHECKSUM
        || !placed
        || size < least.max(1)
    {
        return None;
    }
    let payload = tcp + 4 * usize::from(head.get(tcp + 12)? >> 4);
    let mut bytes = [0; MAX_HEAD];
    let frame = bytes.get_mut(..payload)?;
    frame.copy_from_slice(head.get(..payload)?);
    if payload < tcp + 20 || payload > len {
        return None;
    }
    let id = u16_at(frame, ip.at + 4)?;
    let sequence = u32_at(frame, tcp + 4)?;
    let flags = *frame.get(tcp + 13)?;
    let count = (len - payload).div_ceil(size).max(1);
    for n in 0..count {
        let start = payload + n * size;
        let part = start..len.min(start + size);
        let behind = payload + part.len();
        let mut now = flags;
        if n != 0 {
            now &= !CWR;
        }
        if n + 1 != count {
            now &= !(FIN | PSH);
        }
        if ip.version == Version::V4 {
            put(frame, ip.at + 4, &id.wrapping_add(n as u16).to_be_bytes())?;
        }
        ip.set_len(frame, behind - ip.end)?;
        let sequence = sequence.wrapping_add((start - payload) as u32);
        put(frame, tcp + 4, &sequence.to_be_bytes())?;
        put(frame, tcp + 13, &[now])?;
        let sum = ip.pseudo(frame, TCP, behind - tcp)?.fold();
        put(frame, tcp + usize::from(CHECKSUM), &sum.to_be_bytes())?;
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
