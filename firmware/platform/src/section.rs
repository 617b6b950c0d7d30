//! Finding a section in a PE image in memory (Microsoft PE/COFF specification).

/// Content of section `name` of a loaded image, without the zeros that pad it. Nothing outside `image` is
/// trusted.
pub(crate) fn find<'a>(image: &'a [u8], name: &str) -> Option<&'a [u8]> {
    const SECTION_HEADER: usize = 40;
    let u16_at = |at: usize| Some(u16::from_le_bytes(*image.get(at..)?.first_chunk()?));
    let u32_at = |at: usize| Some(u32::from_le_bytes(*image.get(at..)?.first_chunk()?));
    if !image.starts_with(b"MZ") {
        return None;
    }
    let pe = u32_at(0x3c)? as usize;
    if image.get(pe..pe.checked_add(4)?)? != b"PE\0\0" {
        return None;
    }
    let sections = usize::from(u16_at(pe + 6)?);
    let optional_header = usize::from(u16_at(pe + 20)?);
    let table = pe.checked_add(24 + optional_header)?;
    (0..sections).find_map(|index| {
        let header = table.checked_add(index * SECTION_HEADER)?;
        let bytes = image.get(header..header.checked_add(SECTION_HEADER)?)?;
        let (own_name, _) = bytes.split_at(8);
        let own_name = own_name.split(|&b| b == 0).next()?;
        if own_name != name.as_bytes() {
            return None;
        }
        let (size, address) = (u32_at(header + 8)? as usize, u32_at(header + 12)? as usize);
        let content = image.get(address..address.checked_add(size)?)?;
        let used = content
            .iter()
            .rposition(|&b| b != 0)
            .map_or(0, |last| last + 1);
        content.get(..used)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

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
    fn found_and_trimmed() {
        assert_eq!(find(&image(), ".wbconf"), Some(&b"title A"[..]));
        assert_eq!(find(&image(), ".other"), None);
    }

    #[test]
    fn lies_are_no_harm() {
        let good = image();
        for len in 0..good.len() {
            find(&good[..len], ".wbconf");
        }
        for at in 0..0x200 {
            let mut bad = good.clone();
            bad[at] = 0xff;
            find(&bad, ".wbconf");
        }
        let mut far = good;
        far[0x3c..0x40].fill(0xff);
        assert_eq!(find(&far, ".wbconf"), None);
    }
}
