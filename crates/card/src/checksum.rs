//! The Internet checksum (RFC 1071).

use crate::memory::{GuestMemory, Span, Unmapped};

/// A sum of 16-bit numbers, of bytes that come in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    total: u64,
    /// The next byte is the second of its number.
    odd: bool,
}

impl Sum {
    /// Goes on with these bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        if self.odd
            && let Some((&first, behind)) = rest.split_first()
        {
            self.total += u64::from(first);
            self.odd = false;
            rest = behind;
        }
        let (pairs, last) = rest.as_chunks::<2>();
        self.total += pairs
            .iter()
            .map(|pair| u64::from(u16::from_be_bytes(*pair)))
            .sum::<u64>();
        if let [last] = last {
            self.total += u64::from(*last) << 8;
            self.odd = true;
        }
    }

    /// Goes on with `len` bytes of guest memory, `skip` bytes behind the beginning of the spans.
    pub(crate) fn add_spans<M: GuestMemory>(
        &mut self,
        memory: &M,
        spans: &[Span],
        mut skip: usize,
        mut len: usize,
    ) -> Result<(), Unmapped> {
        let mut piece = [0; 1024];
        for span in spans {
            let past = skip.min(span.len as usize);
            skip -= past;
            let (mut at, end) = (past, span.len as usize);
            while at < end && len != 0 {
                let now = (end - at).min(len).min(piece.len());
                let bytes = piece.get_mut(..now).unwrap_or_default();
                memory.read(span.address.wrapping_add(at as u64), bytes)?;
                self.add(bytes);
                at += now;
                len -= now;
            }
        }
        Ok(())
    }

    /// The sum, not complemented.
    pub(crate) fn fold(self) -> u16 {
        let mut total = self.total;
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::VecMemory;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let mut sum = Sum::default();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.fold(), 0xddf2);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes in vec(any::<u8>(), 0..3000), cuts in vec(0..400u32, 0..8), skip in 0..50usize) {
            let mut whole = Sum::default();
            whole.add(bytes.get(skip..).unwrap_or_default());
            let memory = VecMemory::new(0x100, 4000);
            memory.write(0x100, &bytes).unwrap();
            let mut address = 0x100;
            let mut spans = std::vec::Vec::new();
            for len in cuts.into_iter().chain([4000]) {
                let left = 0x100 + bytes.len() as u64 - address;
                let len = len.min(left as u32);
                spans.push(Span { address, len });
                address += u64::from(len);
            }
            let mut sum = Sum::default();
            sum.add_spans(&memory, &spans, skip, bytes.len().saturating_sub(skip)).unwrap();
            prop_assert_eq!(sum.fold(), whole.fold());
        }
    }
}
