//! Chunks: several units of virtio-net in one buffer, both ways, where a card and its driver have agreed on it.
//!
//! A unit is a frame, or what virtio-net has as one: segments to be cut, or joined ones. In virtio-net each is a chain of buffers of its own,
//! behind a header (`struct virtio_net_hdr`, virtio 1.2, section 5.1.6, in its form of 12 bytes). In a chunk, the next unit follows in the same
//! chain, behind a header of the same form:
//!
//! ```text
//!   buffer  | header, MORE | unit | 0 to 7 bytes | header, MORE | unit | 0 to 7 bytes | header | unit |
//!           0              12                    [`behind`]
//! ```
//!
//! | offset in a header | bytes | field | without [`MORE`] | with it |
//! |---|---|---|---|---|
//! | 0 | 1 | flags | of virtio-net | the same, and the bit 0x80 |
//! | 1 | 1 | gso_type | of virtio-net | of virtio-net |
//! | 2 | 2 | hdr_len | of virtio-net | bytes of this unit, little-endian; at least 14 |
//! | 4 | 6 | gso_size, csum_start, csum_offset | of virtio-net | of virtio-net, offsets in this unit |
//! | 10 | 2 | num_buffers | of virtio-net: buffers of the whole chunk | the same in the first header; else any |
//!
//! - Without [`MORE`] a header says what virtio-net has it say, and its unit ends where virtio-net has it end. So a unit alone is a chunk of one, and looks
//!   as without chunks.
//! - A unit with [`MORE`] ends in the buffer in which the chunk begins. Behind it there are up to 7 bytes of any value, then the next header, at the next multiple
//!   of 8 bytes from the beginning of the buffer, and at least 14 bytes of its unit.
//! - The last unit may go on in further buffers (MRG_RXBUF). Then the first of them has at least the first 128 bytes of it.
//! - Order is that of the units. Nothing else ties the units of a chunk together: each is of any flow, and has its own checksum.
//! - What the card gathers before it shows it to the driver may be several chunks: each buffer stands for itself.
//!
//! A chunk that contradicts this comes from the other side of the rings, not from a network. A driver ends its use of the device, a card
//! stops the queue, as for any other impossible length.

/// In the flags of a header: another unit follows. virtio 1.2 has 1, 2 and 4.
pub const MORE: u8 = 0x80;
/// Bytes of a header.
pub const HEADER_LEN: usize = 12;
/// The shortest unit: the header of Ethernet.
pub const UNIT_MIN: usize = 14;
/// What the first buffer of a unit holds of it at least, if it is so long.
pub const FIRST_PART_MIN: usize = 128;

/// Where the header behind a unit of `len` bytes begins, whose own begins at `at`, a multiple of 8.
#[inline]
#[must_use]
pub const fn behind(at: usize, len: usize) -> usize {
    (at + HEADER_LEN + len).next_multiple_of(8)
}

/// Where the header behind a unit with [`MORE`] begins, in a chunk of `total` bytes. `None` when no unit is so short, or none fits behind it.
#[inline]
#[must_use]
pub const fn next(at: usize, len: usize, total: usize) -> Option<usize> {
    let next = behind(at, len);
    if len < UNIT_MIN || total < next + HEADER_LEN + UNIT_MIN {
        return None;
    }
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_lie_at_multiples_of_eight() {
        // 12 + 60 = 72; 12 + 61 = 73, so 80; from there 80 + 12 + 1514 = 1606, so 1608.
        assert_eq!(behind(0, 60), 72);
        assert_eq!(behind(0, 61), 80);
        assert_eq!(behind(80, 1514), 1608);
    }

    #[test]
    fn a_unit_follows_where_there_is_room_for_the_shortest() {
        assert_eq!(next(0, 60, 72 + 12 + 14), Some(72));
        assert_eq!(next(0, 60, 72 + 12 + 13), None);
        assert_eq!(next(0, 13, 4096), None);
        assert_eq!(next(0, 14, 4096), Some(32));
        assert_eq!(next(72, 65_535, 65_536), None);
    }
}
