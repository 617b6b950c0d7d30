//! Chunks as the format's table has them, by another way than the card's.

use std::vec;
use std::vec::Vec;

use crate::header::Header;

const MORE: u8 = 0x80;

/// Units as one chunk: the first header, and all behind it.
#[must_use]
pub fn chunk_of(units: &[(Header, Vec<u8>)]) -> (Header, Vec<u8>) {
    let mut bytes = Vec::new();
    for (n, (header, unit)) in units.iter().enumerate() {
        let mut header = *header;
        if n + 1 < units.len() {
            header.flags |= MORE;
            header.hdr_len = unit.len() as u16;
        }
        bytes.extend(header.emit());
        bytes.extend([0; 2]);
        bytes.extend(unit);
        while n + 1 < units.len() && bytes.len() % 8 != 0 {
            bytes.push(0xee);
        }
    }
    let first = bytes.first_chunk().map(|first| Header::parse(*first));
    (first.unwrap_or_default(), bytes.split_off(12))
}

/// The units of a chunk: the first header, and all behind it.
///
/// # Panics
/// When it contradicts itself.
#[must_use]
pub fn units_of(first: Header, behind: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut bytes = vec![0; 12];
    bytes[..10].copy_from_slice(&first.emit());
    bytes.extend_from_slice(behind);
    let mut units = Vec::new();
    let mut at = 0;
    loop {
        let mut header = Header::parse(bytes[at..at + 10].try_into().unwrap());
        if header.flags & MORE == 0 {
            units.push((header, bytes[at + 12..].to_vec()));
            return units;
        }
        let end = at + 12 + usize::from(header.hdr_len);
        assert!(header.hdr_len >= 14);
        header.flags &= !MORE;
        header.hdr_len = 0;
        units.push((header, bytes[at + 12..end].to_vec()));
        at = end.div_ceil(8) * 8;
    }
}
