//! The internet checksum (RFC 1071) of headers and transport segments, for devices that leave it to software.

use crate::parts::Parts;
use core::net::IpAddr;

/// Ones' complement sum of `chunks` as one byte string and of `start`, folded to 16 bits.
///
/// Summed in this machine's byte order, which only exchanges the sum's two bytes (RFC 1071, section 2B), and eight bytes
/// at a time, whose carries go to the upper half.
fn sum<'a>(start: u16, chunks: impl Iterator<Item = &'a [u8]>) -> u16 {
    let mut total = u128::from(start.swap_bytes());
    // A byte string cut at an odd place continues in the other half of the word.
    let mut odd = false;
    for mut chunk in chunks {
        if odd && let Some((&first, rest)) = chunk.split_first() {
            total += u128::from(first) << 8;
            chunk = rest;
            odd = false;
        }
        // Eight words at once, whatever the compiler thinks of unrolling.
        let (lines, rest) = chunk.as_chunks::<64>();
        for line in lines {
            for word in line.as_chunks::<8>().0 {
                total += u128::from(u64::from_le_bytes(*word));
            }
        }
        let (words, tail) = rest.as_chunks::<8>();
        for word in words {
            total += u128::from(u64::from_le_bytes(*word));
        }
        for (index, &byte) in tail.iter().enumerate() {
            total += u128::from(byte) << (index % 2 * 8);
        }
        odd ^= tail.len() % 2 == 1;
    }
    let total = (total as u64 as u128) + (total >> 64);
    fold((total & 0xffff_ffff) as u64 + (total >> 32) as u64).swap_bytes()
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Sum of the pseudo header (RFC 9293, section 3.1; RFC 768; RFC 8200, section 8.1), not complemented.
#[must_use]
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> u16 {
    fold(address(source) + address(destination) + u64::from(protocol) + len as u64)
}

/// Sum of an address, not folded.
fn address(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => {
            let octets = address.octets();
            let words = octets.as_chunks::<4>().0.iter();
            words.map(|word| u64::from(u32::from_be_bytes(*word))).sum()
        }
    }
}

/// True when the transport segment's checksum (its field included in `segment`) is right.
pub(crate) fn verify(pseudo: u16, segment: Parts<'_>) -> bool {
    sum(pseudo, segment.chunks()) == 0xffff
}

/// The checksum of `segment`, whose checksum field holds zero; zero where that holds the right one. `pseudo`: the sum of the pseudo header, or
/// zero without one.
#[must_use]
pub fn compute(pseudo: u16, segment: &[u8]) -> u16 {
    !sum(pseudo, core::iter::once(segment))
}

/// True when the checksum of an IPv4 header without options, which is not all zero, is right.
#[inline]
pub(crate) fn header_ok(header: &[u8; 20]) -> bool {
    // In either byte order. Folded, the multiples of 0xffff, and they alone, are 0xffff.
    let words = header.as_chunks::<4>().0.iter();
    let sum: u64 = words.map(|word| u64::from(u32::from_le_bytes(*word))).sum();
    sum.is_multiple_of(0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// As RFC 1071 defines it, word by word.
    fn by_words(start: u16, bytes: &[u8]) -> u16 {
        bytes.chunks(2).fold(start, |sum, word| {
            let word = u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]);
            let (sum, carry) = sum.overflowing_add(word);
            sum + u16::from(carry)
        })
    }

    #[test]
    fn an_example() {
        // RFC 1071, section 3: the sum of these bytes is ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(compute(0, &bytes), !0xddf2);
    }

    proptest! {
        #[test]
        fn it_is_the_sum_of_words(start in any::<u16>(), bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(compute(start, &bytes), !by_words(start, &bytes));
            let ones = std::vec![0xff; bytes.len()];
            prop_assert_eq!(compute(start, &ones), !by_words(start, &ones));
        }

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
