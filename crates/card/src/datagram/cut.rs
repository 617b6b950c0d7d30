//! A datagram to fragments.

use core::ops::Range;

use super::{CHECKSUM, FRAGMENT, FRAGMENT_LEN, MORE, UDP_LEN};
use crate::checksum::Sum;
use crate::frame::{Ip, MAX_HEAD, UDP, Version, put};
use crate::header::{GSO_UDP, Header};
use crate::memory::{GuestMemory, Span, Unmapped};

/// The least data of a fragment: a guest is not to have the card send a frame for each 8 of 65,535 bytes.
const MIN_SIZE: usize = 16;

/// The checksum of the unit of `len` bytes in these spans, whose own field has the sum of the pseudo-header.
pub(crate) fn checksum<M: GuestMemory>(
    header: Header,
    memory: &M,
    spans: &[Span],
    len: usize,
) -> Result<u16, Unmapped> {
    let udp = usize::from(header.csum_start);
    let mut sum = Sum::default();
    sum.add_spans(memory, spans, udp, len.saturating_sub(udp))?;
    // 0 would say that there is none.
    Ok(match !sum.fold() {
        0 => 0xffff,
        sum => sum,
    })
}

/// Cuts the unit of `len` bytes that begins with `head` and has this header. `checksum` is the whole datagram's; `id` becomes its
/// identification where the unit has none (IPv6). `each` gets the first bytes and the place of the data behind them in the unit of each frame, in
/// order. `None`, before the first frame, for a unit that cannot be cut.
pub(crate) fn cut(
    header: Header,
    head: &[u8],
    len: usize,
    checksum: u16,
    id: u32,
    mut each: impl FnMut(&[u8], Range<usize>),
) -> Option<()> {
    let ip = Ip::parse(head)?;
    let udp = ip.end;
    let size = usize::from(header.gso_size) & !7;
    let data = len.checked_sub(udp)?;
    if header.gso_type != GSO_UDP
        || ip.protocol != UDP
        || usize::from(header.csum_start) != udp
        || header.csum_offset != CHECKSUM
        || size < MIN_SIZE
        || data < UDP_LEN
        || len - ip.at > 0xffff
    {
        return None;
    }
    let mut first = [0; UDP_LEN];
    put(&mut first, 0, head.get(udp..udp + UDP_LEN)?)?;
    put(&mut first, CHECKSUM.into(), &checksum.to_be_bytes())?;
    let mut bytes = [0; MAX_HEAD];
    put(&mut bytes, 0, head.get(..udp)?)?;
    let whole = data <= usize::from(header.gso_size);
    let count = if whole { 1 } else { data.div_ceil(size) };
    for n in 0..count {
        let start = n * size;
        let end = if whole { data } else { data.min(start + size) };
        let more = n + 1 != count;
        let mut behind = udp;
        let mut extra = 0;
        match ip.version {
            _ if whole => {}
            Version::V4 => {
                let field = (start as u16 / 8) | if more { MORE } else { 0 };
                put(&mut bytes, ip.at + 6, &field.to_be_bytes())?;
            }
            Version::V6 => {
                put(&mut bytes, ip.at + 6, &[FRAGMENT])?;
                let field = start as u16 | u16::from(more);
                put(&mut bytes, udp, &[UDP, 0])?;
                put(&mut bytes, udp + 2, &field.to_be_bytes())?;
                put(&mut bytes, udp + 4, &id.to_be_bytes())?;
                extra = FRAGMENT_LEN;
                behind += extra;
            }
        }
        ip.set_len(&mut bytes, extra + end - start)?;
        let mut place = udp + start..udp + end;
        if n == 0 {
            put(&mut bytes, behind, &first)?;
            behind += UDP_LEN;
            place.start += UDP_LEN;
        }
        each(bytes.get(..behind)?, place);
    }
    Some(())
}
