//! Where the headers of a frame lie.

use crate::checksum::Sum;

/// The longest headers that are read or written: of Ethernet with a tag, of IPv4 and of TCP with all options.
pub const MAX_HEAD: usize = 14 + 4 + 60 + 60;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

/// The header of IP in a frame. The bytes from `at` to `end` are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub version: Version,
    /// Where its first byte is in the frame.
    pub at: usize,
    /// The first byte behind it and its options; extension headers are behind it.
    pub end: usize,
    /// Bytes of the packet, as it says. Not checked.
    pub len: usize,
    /// The protocol, or the next header.
    pub protocol: u8,
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*two))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*four))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    bytes
        .get_mut(at..)?
        .get_mut(..value.len())?
        .copy_from_slice(value);
    Some(())
}

impl Ip {
    /// Finds it in the first bytes of a frame, tagged or not.
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let (ethertype, at) = match u16_at(frame, 12)? {
            0x8100 => (u16_at(frame, 16)?, 18),
            other => (other, 14),
        };
        let first = *frame.get(at)?;
        let ip = match (ethertype, first >> 4) {
            (0x0800, 4) => Self {
                version: Version::V4,
                at,
                end: at + 4 * usize::from(first & 0xf),
                len: u16_at(frame, at + 2)?.into(),
                protocol: *frame.get(at + 9)?,
            },
            (0x86dd, 6) => Self {
                version: Version::V6,
                at,
                end: at + 40,
                len: 40 + usize::from(u16_at(frame, at + 4)?),
                protocol: *frame.get(at + 6)?,
            },
            _ => return None,
        };
        let whole = ip.end >= at + 20 && ip.end <= frame.len();
        whole.then_some(ip)
    }

    /// Source and destination.
    pub(crate) fn addresses<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        match self.version {
            Version::V4 => frame.get(self.at + 12..self.at + 20),
            Version::V6 => frame.get(self.at + 8..self.at + 40),
        }
    }

    /// True when the header's own checksum is right; IPv6 has none.
    pub(crate) fn is_intact(&self, frame: &[u8]) -> bool {
        let mut sum = Sum::default();
        sum.add(frame.get(self.at..self.end).unwrap_or_default());
        self.version == Version::V6 || sum.fold() == 0xffff
    }

    /// The sum of the pseudo-header before `len` bytes of a protocol.
    pub(crate) fn pseudo(&self, frame: &[u8], protocol: u8, len: usize) -> Option<Sum> {
        let mut sum = Sum::default();
        sum.add(self.addresses(frame)?);
        sum.add(&(len as u32).to_be_bytes());
        sum.add(&u32::from(protocol).to_be_bytes());
        Some(sum)
    }

    /// Writes the length of a packet with `len` bytes behind this header, and the header's checksum.
    pub(crate) fn set_len(&self, frame: &mut [u8], len: usize) -> Option<()> {
        match self.version {
            Version::V4 => {
                let total = u16::try_from(self.end - self.at + len).ok()?;
                put(frame, self.at + 2, &total.to_be_bytes())?;
                put(frame, self.at + 10, &[0; 2])?;
                let mut sum = Sum::default();
                sum.add(frame.get(self.at..self.end)?);
                put(frame, self.at + 10, &(!sum.fold()).to_be_bytes())
            }
            Version::V6 => {
                let len = u16::try_from(len).ok()?;
                put(frame, self.at + 4, &len.to_be_bytes())
            }
        }
    }
}
