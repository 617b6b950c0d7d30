//! `struct virtio_net_hdr`, in front of each unit (virtio 1.2, section 5.1.6).

use crate::feature;

/// The transport checksum is still to be completed.
pub(crate) const NEEDS_CSUM: u8 = 1;
/// The transport checksum has been found right.
pub(crate) const DATA_VALID: u8 = 2;
/// The unit is one frame.
pub(crate) const GSO_NONE: u8 = 0;
/// The unit is TCP segments over IPv4.
pub(crate) const GSO_TCPV4: u8 = 1;
/// The unit is the fragments of a UDP datagram.
pub(crate) const GSO_UDP: u8 = 3;
/// The unit is TCP segments over IPv6.
pub(crate) const GSO_TCPV6: u8 = 4;
/// The unit is datagrams of UDP.
pub(crate) const GSO_UDP_L4: u8 = 5;
/// The segments have congestion marks.
pub(crate) const GSO_ECN: u8 = 0x80;

/// What a header says of its unit, without the number of buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// NEEDS_CSUM 1, DATA_VALID 2.
    pub flags: u8,
    /// 0: one frame. TCPV4 1, UDP (fragments) 3, TCPV6 4, UDP_L4 (datagrams) 5; ECN 0x80.
    pub gso_type: u8,
    /// Bytes of all headers, where the unit is to be cut: a hint.
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

    /// Takes any bytes: what a guest writes is checked by who knows what was agreed on.
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

    /// As it stands in front of a unit, little-endian, without the number of buffers.
    #[must_use]
    pub fn emit(self) -> [u8; Self::LEN] {
        let [h0, h1] = self.hdr_len.to_le_bytes();
        let [g0, g1] = self.gso_size.to_le_bytes();
        let [s0, s1] = self.csum_start.to_le_bytes();
        let [o0, o1] = self.csum_offset.to_le_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// The same with the number of buffers, as words.
    #[inline]
    pub(crate) fn words(self, buffers: u16) -> [u32; 3] {
        let both = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        [
            both(
                u16::from_le_bytes([self.flags, self.gso_type]),
                self.hdr_len,
            ),
            both(self.gso_size, self.csum_start),
            both(self.csum_offset, buffers),
        ]
    }

    /// The features of [`crate::feature`] for units that are to be cut so, of a guest's or of a wire's; none for what is no such type.
    pub(crate) fn cut_feature(self, from_guest: bool) -> Option<u64> {
        Some(match (self.gso_type & !GSO_ECN, from_guest) {
            (GSO_TCPV4, true) => feature::HOST_TSO4,
            (GSO_TCPV6, true) => feature::HOST_TSO6,
            (GSO_UDP, true) => feature::HOST_UFO,
            (GSO_UDP_L4, true) => feature::HOST_USO,
            (GSO_TCPV4, false) => feature::GUEST_TSO4,
            (GSO_TCPV6, false) => feature::GUEST_TSO6,
            (GSO_UDP, false) => feature::GUEST_UFO,
            (GSO_UDP_L4, false) => feature::GUEST_USO,
            _ => return None,
        })
    }

    /// What the wire gets of a guest's header for a unit of `len` bytes. `None` when it asks for what was not agreed on, or for what lies
    /// beyond the unit.
    pub(crate) fn leaving(self, features: u64, len: usize) -> Option<Self> {
        let checksums = features & feature::CSUM != 0;
        let header = self.checksum_agreed(checksums, 0, len)?;
        // Without one, what is cut would have none.
        let complete = self.flags & NEEDS_CSUM != 0;
        if self.gso_type == GSO_NONE {
            return Some(header);
        }
        self.cut_agreed(header, features, true, complete, len)
    }

    /// The same for what the guest gets of a wire's.
    #[inline]
    pub(crate) fn arriving(self, features: u64, len: usize) -> Option<Self> {
        let checksums = features & feature::GUEST_CSUM != 0;
        let header =
            self.checksum_agreed(checksums, if checksums { DATA_VALID } else { 0 }, len)?;
        if self.gso_type == GSO_NONE {
            return Some(header);
        }
        self.cut_agreed(header, features, false, true, len)
    }

    #[inline]
    fn checksum_agreed(self, checksums: bool, more: u8, len: usize) -> Option<Self> {
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

    /// `header` with what this one, which is not [`GSO_NONE`], says of cutting.
    fn cut_agreed(
        self,
        header: Self,
        features: u64,
        from_guest: bool,
        complete: bool,
        len: usize,
    ) -> Option<Self> {
        let mut needed = self.cut_feature(from_guest)?;
        if self.gso_type & GSO_ECN != 0 {
            if matches!(self.gso_type & !GSO_ECN, GSO_UDP | GSO_UDP_L4) {
                return None;
            }
            needed |= if from_guest {
                feature::HOST_ECN
            } else {
                feature::GUEST_ECN
            };
        }
        let possible = self.gso_size != 0 && usize::from(self.hdr_len) <= len;
        (features & needed == needed && complete && possible).then_some(Self {
            gso_type: self.gso_type,
            hdr_len: self.hdr_len,
            gso_size: self.gso_size,
            ..header
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
        let words = ASKS.words(0x0201).map(u32::to_le_bytes);
        assert_eq!(words.as_flattened(), [&bytes[..], &[1, 2]].concat());
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
    fn each_way_of_cutting_must_be_agreed_on() {
        for (gso_type, host, guest) in [
            (GSO_TCPV4, feature::HOST_TSO4, feature::GUEST_TSO4),
            (GSO_TCPV6, feature::HOST_TSO6, feature::GUEST_TSO6),
            (GSO_UDP, feature::HOST_UFO, feature::GUEST_UFO),
            (
                GSO_UDP_L4,
                feature::HOST_USO,
                feature::GUEST_USO4 | feature::GUEST_USO6,
            ),
            (
                GSO_TCPV4 | GSO_ECN,
                feature::HOST_TSO4 | feature::HOST_ECN,
                feature::GUEST_TSO4 | feature::GUEST_ECN,
            ),
        ] {
            let header = Header {
                gso_type,
                hdr_len: 54,
                gso_size: 1000,
                ..ASKS
            };
            let (host, guest) = (host | feature::CSUM, guest | feature::GUEST_CSUM);
            assert_eq!(header.leaving(host, 3000), Some(header));
            assert_eq!(header.arriving(guest, 3000), Some(header));
            // Each bit is needed, and those of the other way are none.
            for bit in (0..64).map(|bit| 1 << bit) {
                if host & bit != 0 {
                    assert_eq!(header.leaving(feature::KNOWN & !bit, 3000), None);
                }
                if guest & bit != 0 {
                    assert_eq!(header.arriving(feature::KNOWN & !bit, 3000), None);
                }
            }
        }
        for gso_type in [2, 6, GSO_UDP | GSO_ECN, GSO_UDP_L4 | GSO_ECN, GSO_ECN] {
            let header = Header {
                gso_type,
                gso_size: 1000,
                hdr_len: 54,
                ..ASKS
            };
            assert_eq!(header.leaving(feature::KNOWN, 3000), None, "{gso_type}");
            assert_eq!(header.arriving(feature::KNOWN, 3000), None, "{gso_type}");
        }
    }

    #[test]
    fn what_is_cut_has_a_size_and_a_checksum() {
        let good = Header {
            gso_type: GSO_TCPV4,
            hdr_len: 54,
            gso_size: 1000,
            ..ASKS
        };
        let bad = [
            Header {
                gso_size: 0,
                ..good
            },
            Header {
                hdr_len: 3001,
                ..good
            },
        ];
        for header in bad {
            assert_eq!(header.leaving(feature::KNOWN, 3000), None);
            assert_eq!(header.arriving(feature::KNOWN, 3000), None);
        }
        // A wire may have found it right.
        let found = Header {
            flags: DATA_VALID,
            csum_start: 0,
            csum_offset: 0,
            ..good
        };
        assert_eq!(found.leaving(feature::KNOWN, 3000), None);
        assert_eq!(found.arriving(feature::KNOWN, 3000), Some(found));
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
