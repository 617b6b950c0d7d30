//! `struct virtio_net_hdr`, in front of each unit (virtio 1.2, section 5.1.6).

use crate::feature;

/// The transport checksum is still to be completed.
const NEEDS_CSUM: u8 = 1;
/// The transport checksum has been found right.
const DATA_VALID: u8 = 2;
/// The unit is one frame.
const GSO_NONE: u8 = 0;

/// What a header says of its unit, without the number of buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// NEEDS_CSUM 1, DATA_VALID 2.
    pub flags: u8,
    /// 0: one frame.
    pub gso_type: u8,
    /// Bytes of all headers, where the unit is to be cut.
    pub hdr_len: u16,
    /// Payload bytes of each frame, where the unit is to be cut.
    pub gso_size: u16,
    /// Offset of the transport header, with NEEDS_CSUM.
    pub csum_start: u16,
    /// Offset of the checksum in it, with NEEDS_CSUM.
    pub csum_offset: u16,
}

impl Header {
    /// Bytes of what both forms of the header have.
    pub const LEN: usize = 10;

    /// Bytes of the header where these features are agreed on: 12 with a number of buffers behind it, else 10.
    #[must_use]
    pub fn len(features: u64) -> usize {
        if features & (feature::VERSION_1 | feature::MRG_RXBUF) != 0 {
            Self::LEN + 2
        } else {
            Self::LEN
        }
    }

    /// Reads it.
    #[must_use]
    pub fn parse(bytes: [u8; Self::LEN]) -> Self {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = bytes;
        Self {
            flags,
            gso_type,
            hdr_len: u16::from_le_bytes([h0, h1]),
            gso_size: u16::from_le_bytes([g0, g1]),
            csum_start: u16::from_le_bytes([s0, s1]),
            csum_offset: u16::from_le_bytes([o0, o1]),
        }
    }

    /// Writes it.
    #[must_use]
    pub fn emit(self) -> [u8; Self::LEN] {
        let [h0, h1] = self.hdr_len.to_le_bytes();
        let [g0, g1] = self.gso_size.to_le_bytes();
        let [s0, s1] = self.csum_start.to_le_bytes();
        let [o0, o1] = self.csum_offset.to_le_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// What the wire gets of a guest's header for a frame of `len` bytes. `None` when it asks for what was not agreed on, or for a
    /// checksum beyond the frame.
    pub(crate) fn leaving(self, features: u64, len: usize) -> Option<Self> {
        self.agreed(features & feature::CSUM != 0, 0, len)
    }

    /// The same for what the guest gets of a wire's.
    pub(crate) fn arriving(self, features: u64, len: usize) -> Option<Self> {
        let agreed = features & feature::GUEST_CSUM != 0;
        self.agreed(agreed, if agreed { DATA_VALID } else { 0 }, len)
    }

    fn agreed(self, checksums: bool, more: u8, len: usize) -> Option<Self> {
        if self.gso_type != GSO_NONE {
            return None;
        }
        if self.flags & NEEDS_CSUM == 0 {
            return Some(Self {
                flags: self.flags & more,
                ..Self::default()
            });
        }
        let end = usize::from(self.csum_start) + usize::from(self.csum_offset) + 2;
        (checksums && end <= len).then_some(Self {
            flags: NEEDS_CSUM,
            csum_start: self.csum_start,
            csum_offset: self.csum_offset,
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: Header = Header {
        flags: NEEDS_CSUM,
        gso_type: GSO_NONE,
        hdr_len: 0x3412,
        gso_size: 0x7856,
        csum_start: 34,
        csum_offset: 16,
    };

    #[test]
    fn bytes_are_those_of_the_specification() {
        let bytes = [1, 0, 0x12, 0x34, 0x56, 0x78, 34, 0, 16, 0];
        assert_eq!(ASKS.emit(), bytes);
        assert_eq!(Header::parse(bytes), ASKS);
    }

    #[test]
    fn only_the_oldest_devices_have_the_short_header() {
        assert_eq!(Header::len(feature::CSUM), 10);
        assert_eq!(Header::len(feature::MRG_RXBUF), 12);
        assert_eq!(Header::len(feature::VERSION_1), 12);
    }

    #[test]
    fn a_checksum_must_be_agreed_on_and_lie_in_the_frame() {
        let passed = Header {
            hdr_len: 0,
            gso_size: 0,
            ..ASKS
        };
        assert_eq!(ASKS.leaving(feature::CSUM, 52), Some(passed));
        assert_eq!(ASKS.leaving(feature::CSUM, 51), None);
        assert_eq!(ASKS.leaving(feature::GUEST_CSUM, 52), None);
        assert_eq!(ASKS.arriving(feature::GUEST_CSUM, 52), Some(passed));
        assert_eq!(ASKS.arriving(feature::CSUM, 52), None);
    }

    #[test]
    fn nothing_is_cut_or_joined() {
        let header = Header {
            gso_type: 1,
            ..Header::default()
        };
        assert_eq!(header.leaving(feature::OFFERED, 1500), None);
        assert_eq!(header.arriving(feature::OFFERED, 1500), None);
    }

    #[test]
    fn only_a_guest_that_agreed_hears_that_a_checksum_is_right() {
        let header = Header {
            flags: DATA_VALID,
            ..Header::default()
        };
        assert_eq!(header.arriving(feature::GUEST_CSUM, 60), Some(header));
        assert_eq!(header.arriving(0, 60), Some(Header::default()));
        assert_eq!(header.leaving(feature::CSUM, 60), Some(Header::default()));
    }
}
