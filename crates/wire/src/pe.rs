//! The headers of PE images (Microsoft PE/COFF specification).

use core::ops::Range;

/// Bytes at an image's start that hold its headers.
pub const HEADERS: usize = 4096;

/// The headers of an image. They are not trusted.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    /// Where the signature is.
    signature: usize,
}

impl<'a> Headers<'a> {
    /// The headers that a file or an image begins with; `None` when it is no PE image.
    pub fn new(begin: &'a [u8]) -> Option<Self> {
        let signature = usize::try_from(u32_at(begin, 0x3c)?).ok()?;
        let is_signed = begin.starts_with(b"MZ") && begin.get(signature..)?.starts_with(b"PE\0\0");
        is_signed.then_some(Self {
            bytes: begin,
            signature,
        })
    }

    /// `Machine` of the COFF header; `None` where the header is cut off.
    pub fn machine(&self) -> Option<u16> {
        u16_at(self.bytes, self.signature.checked_add(4)?)
    }

    /// `Subsystem` of the optional header; `None` where the header is cut off.
    pub fn subsystem(&self) -> Option<u16> {
        u16_at(self.bytes, self.signature.checked_add(24 + 68)?)
    }

    /// `MajorImageVersion` of the optional header; `None` where the header is cut off.
    pub fn image_version(&self) -> Option<u16> {
        u16_at(self.bytes, self.signature.checked_add(24 + 44)?)
    }

    /// Where section `name` is in the image, `len` bytes in all, when it is loaded: within it.
    pub fn section(&self, name: &str, len: usize) -> Option<Range<usize>> {
        const SECTION_HEADER: usize = 40;
        let sections = usize::from(u16_at(self.bytes, self.signature.checked_add(6)?)?);
        let optional_header = usize::from(u16_at(self.bytes, self.signature.checked_add(20)?)?);
        let table = self.signature.checked_add(24 + optional_header)?;
        (0..sections).find_map(|index| {
            let header = self
                .bytes
                .get(table.checked_add(index * SECTION_HEADER)?..)?;
            let (own_name, _) = header.get(..SECTION_HEADER)?.split_at(8);
            let own_name = own_name.split(|&b| b == 0).next()?;
            if own_name != name.as_bytes() {
                return None;
            }
            let (size, start) = (u32_at(header, 8)? as usize, u32_at(header, 12)? as usize);
            let end = start.checked_add(size)?;
            (end <= len).then_some(start..end)
        })
    }
}

/// A section's content without the zeros that pad it.
pub fn trimmed(content: &[u8]) -> &[u8] {
    let used = content.iter().rposition(|&b| b != 0);
    used.and_then(|last| content.get(..=last))
        .unwrap_or_default()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn find(headers: &[u8], len: usize, name: &str) -> Option<Range<usize>> {
        Headers::new(headers)?.section(name, len)
    }

    fn image() -> Vec<u8> {
        let mut image = vec![0; 0x300];
        image[..2].copy_from_slice(b"MZ");
        image[0x3c] = 0x80;
        image[0x80..0x84].copy_from_slice(b"PE\0\0");
        image[0x86] = 2;
        image[0x94] = 16;
        let table = 0x80 + 24 + 16;
        image[table..table + 5].copy_from_slice(b".text");
        let second = table + 40;
        image[second..second + 7].copy_from_slice(b".wbconf");
        image[second + 8] = 0x40;
        image[second + 13] = 2;
        image[0x200..0x207].copy_from_slice(b"title A");
        image
    }

    #[test]
    fn found_by_the_headers_alone() {
        let image = image();
        let headers = &image[..0x200];
        assert_eq!(find(headers, 0x240, ".wbconf"), Some(0x200..0x240));
        assert_eq!(find(headers, 0x23f, ".wbconf"), None);
        assert_eq!(find(headers, 0x240, ".other"), None);
        assert_eq!(trimmed(&image[0x200..0x240]), b"title A");
        assert_eq!(trimmed(&[0; 3]), b"");
    }

    #[test]
    fn lies_are_no_harm() {
        let good = image();
        for len in 0..good.len() {
            find(&good[..len], 0x300, ".wbconf");
        }
        for at in 0..0x200 {
            let mut bad = good.clone();
            bad[at] = 0xff;
            let found = find(&bad, 0x300, ".wbconf");
            assert!(found.is_none_or(|place| place.end <= 0x300));
        }
        for at in [0, 1, 0x80, 0x81] {
            let mut unsigned = good.clone();
            unsigned[at] = 0;
            assert!(Headers::new(&unsigned).is_none());
        }
        let mut far = good;
        far[0x3c..0x40].fill(0xff);
        assert_eq!(find(&far, 0x300, ".wbconf"), None);
    }
}
