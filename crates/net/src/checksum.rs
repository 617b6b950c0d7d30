//! The internet checksum (RFC 1071) of IPv4 transport segments, for devices that leave it to software.

use crate::parts::Parts;
use smoltcp::wire::Ipv4Address;

/// Ones' complement sum of `chunks` as one byte string, folded to 16 bits.
fn sum<'a>(mut total: u64, chunks: impl Iterator<Item = &'a [u8]>) -> u16 {
    // A byte string cut at an odd place continues in the low half of the word.
    let mut odd = false;
    for mut chunk in chunks {
        if odd && let Some((&first, rest)) = chunk.split_first() {
            total += u64::from(first);
            chunk = rest;
            odd = false;
        }
        // Four bytes at a time: the ones' complement sum of 32-bit words folds to that of 16-bit ones.
        let (words, tail) = chunk.as_chunks::<4>();
        for word in words {
            total += u64::from(u32::from_be_bytes(*word));
        }
        match *tail {
            [a] => {
                total += u64::from(a) << 8;
                odd = true;
            }
            [a, b] => total += u64::from(u16::from_be_bytes([a, b])),
            [a, b, c] => {
                total += u64::from(u16::from_be_bytes([a, b])) + (u64::from(c) << 8);
                odd = true;
            }
            _ => {}
        }
    }
    fold(total)
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Sum of the IPv4 pseudo header (RFC 793, RFC 768), not complemented.
pub fn pseudo_header(
    source: Ipv4Address,
    destination: Ipv4Address,
    protocol: u8,
    len: usize,
) -> u16 {
    fold(
        u64::from(u32::from(source))
            + u64::from(u32::from(destination))
            + u64::from(protocol)
            + len as u64,
    )
}

/// True when the transport segment's checksum (its field included in `segment`) is right.
pub fn verify(pseudo: u16, segment: Parts<'_>) -> bool {
    sum(u64::from(pseudo), segment.chunks()) == 0xffff
}

/// The checksum of `segment`, whose checksum field holds zero.
pub fn compute(pseudo: u16, segment: &[u8]) -> u16 {
    !sum(u64::from(pseudo), core::iter::once(segment))
}

/// True when the checksum of an IPv4 header without options is right.
pub fn header_ok(header: &[u8; 20]) -> bool {
    let words = header.as_chunks::<4>().0.iter();
    fold(words.map(|word| u64::from(u32::from_be_bytes(*word))).sum()) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn any_cut_verifies_and_any_flip_does_not(
            mut bytes in prop::collection::vec(any::<u8>(), 4..200), pseudo in any::<u16>(),
            cuts in prop::collection::vec(0usize..200, 0..4), flip in 0usize..1600,
        ) {
            bytes[..2].fill(0);
            let check = compute(pseudo, &bytes);
            bytes[..2].copy_from_slice(&check.to_be_bytes());
            let mut cuts: Vec<usize> = cuts.iter().map(|c| c % bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert!(verify(pseudo, Parts::new(&parts)));
            let bit = flip % (bytes.len() * 8);
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!verify(pseudo, Parts::new(&[&bad])));
        }
    }
}
