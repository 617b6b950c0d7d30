//! The Internet checksum (RFC 1071), where no device completes it.

/// Ones' complement sum of `bytes` as big-endian 16-bit words, folded, added to `start`.
pub(crate) fn sum(bytes: &[u8], start: u32) -> u32 {
    let mut sum = u64::from(start);
    let (words, rest) = bytes.as_chunks();
    for word in words {
        sum += u64::from(u16::from_be_bytes(*word));
    }
    if let [last] = rest {
        sum += u64::from(u16::from_be_bytes([*last, 0]));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u32
}

/// Completes a transport checksum whose field holds the pseudo-header sum, as a device does for
/// [`crate::Offload::L4Checksum`]. Offsets beyond the frame leave it as it is.
pub(crate) fn complete(frame: &mut [u8], start: usize, offset: usize) {
    let Some(segment) = frame.get_mut(start..) else {
        return;
    };
    let value = !(sum(segment, 0) as u16);
    if let Some(field) = segment.get_mut(offset..offset + 2) {
        // Zero means "no checksum" in UDP; its equal in ones' complement does not.
        let value = if value == 0 { 0xffff } else { value };
        field.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, section 3, and a byte more.
    #[test]
    fn the_sum_is_that_of_the_rfc() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7, 0x01];
        assert_eq!(sum(&bytes[..8], 0), 0xddf2);
        assert_eq!(sum(&bytes, 0), 0xdef2);
        assert_eq!(sum(&bytes[..8], 0x220d), 0xffff);
        assert_eq!(sum(&bytes[..8], 0x220e), 0x0001);
    }

    #[test]
    fn a_checksum_is_never_zero() {
        // The sum of the pseudo-header and of what follows is 0xffff.
        let mut frame = [9, 9, 0x12, 0x34, 0xed, 0xcb];
        complete(&mut frame, 2, 2);
        assert_eq!(frame, [9, 9, 0x12, 0x34, 0xff, 0xff]);
        for (start, offset) in [(7, 0), (2, 3), (6, 0)] {
            complete(&mut frame, start, offset);
            assert_eq!(frame, [9, 9, 0x12, 0x34, 0xff, 0xff]);
        }
    }
}
