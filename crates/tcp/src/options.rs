//! TCP options (RFC 9293, section 3.2): MSS, window scale (RFC 7323) and SACK (RFC 2018).

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;

/// Largest window scale (RFC 7323, section 2.3).
const MAX_SHIFT: u8 = 14;
/// SACK blocks that fit into the options without timestamps.
pub(crate) const SACK_BLOCKS: usize = 4;

/// What the options of a segment say. An option that is malformed, and all behind it, says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Largest segment that the sender takes, in bytes of payload.
    pub mss: Option<u16>,
    /// Shift of the sender's window fields, 14 at most.
    pub window_scale: Option<u8>,
    /// The sender takes SACK options.
    pub sack_permitted: bool,
    sack: [(u32, u32); SACK_BLOCKS],
    sack_count: usize,
}

impl Options {
    /// Reads the options of a segment.
    #[must_use]
    pub fn parse(mut bytes: &[u8]) -> Self {
        let mut options = Self::default();
        loop {
            match *bytes {
                [NOP, ref rest @ ..] => bytes = rest,
                [END, ..] | [] | [_] => return options,
                [kind, len, ..] => {
                    let len = usize::from(len);
                    let Some((option, rest)) = bytes.split_at_checked(len) else {
                        return options;
                    };
                    // A length below 2 would not move on.
                    let Some(data) = option.get(2..) else {
                        return options;
                    };
                    options.option(kind, data);
                    bytes = rest;
                }
            }
        }
    }

    fn option(&mut self, kind: u8, data: &[u8]) {
        match (kind, data) {
            (MSS, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAX_SHIFT)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (SACK, blocks) => {
                let (edges, rest) = blocks.as_chunks::<4>();
                let (blocks, odd) = edges.as_chunks::<2>();
                if !rest.is_empty() || !odd.is_empty() {
                    return;
                }
                for (to, [left, right]) in self.sack.iter_mut().zip(blocks) {
                    *to = (u32::from_be_bytes(*left), u32::from_be_bytes(*right));
                }
                self.sack_count = blocks.len().min(SACK_BLOCKS);
            }
            _ => {}
        }
    }

    /// The SACK blocks: first sequence number, and the one behind the last.
    pub fn sack(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        self.sack.into_iter().take(self.sack_count)
    }
}

/// Options of a segment that leaves: whole 32-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionBytes {
    bytes: [u8; 4 + SACK_BLOCKS * 8],
    len: usize,
}

impl OptionBytes {
    pub(crate) const NONE: Self = Self {
        bytes: [NOP; 4 + SACK_BLOCKS * 8],
        len: 0,
    };

    /// The bytes, a multiple of four.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    /// The options of a SYN. `scale` and `sack` are left out of the answer to a SYN without them.
    pub(crate) fn syn(mss: u16, scale: Option<u8>, sack: bool) -> Self {
        let mut options = Self::NONE;
        let [high, low] = mss.to_be_bytes();
        options.push(&[MSS, 4, high, low]);
        if let Some(shift) = scale {
            options.push(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        if sack {
            options.push(&[NOP, NOP, SACK_PERMITTED, 2]);
        }
        options
    }

    /// A SACK option, if there are blocks; four at most are told.
    pub(crate) fn sack(blocks: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut options = Self::NONE;
        options.push(&[NOP, NOP, SACK, 2]);
        for (left, right) in blocks.take(SACK_BLOCKS) {
            options.push(&left.to_be_bytes());
            options.push(&right.to_be_bytes());
        }
        if options.len == 4 {
            return Self::NONE;
        }
        if let Some(len) = options.bytes.get_mut(3) {
            *len = (options.len - 2) as u8;
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn a_syn_of_linux() {
        // MSS 1460, SACK permitted, timestamps, NOP, window scale 7.
        let bytes = [
            2, 4, 5, 180, 4, 2, 8, 10, 0, 1, 2, 3, 0, 0, 0, 0, 1, 3, 3, 7,
        ];
        let options = Options::parse(&bytes);
        assert_eq!(
            (options.mss, options.window_scale, options.sack_permitted),
            (Some(1460), Some(7), true)
        );
    }

    #[test]
    fn malformed_options_say_nothing() {
        for bytes in [
            &[2, 4, 5][..],
            &[2, 0, 2, 4, 5, 180],
            &[2, 1, 2, 4, 5, 180],
            &[2, 3, 5],
            &[3],
            &[3, 200, 7],
            &[4, 3, 0],
            &[0, 2, 4, 5, 180],
            &[5, 6, 0, 0, 0, 1],
            &[5, 11, 0, 0, 0, 1, 0, 0, 0, 2, 0],
        ] {
            assert_eq!(Options::parse(bytes), Options::default(), "{bytes:?}");
        }
        assert_eq!(Options::parse(&[3, 3, 15]).window_scale, Some(14));
        // What comes after an unknown option counts.
        assert_eq!(Options::parse(&[99, 3, 0, 2, 4, 1, 0]).mss, Some(256));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(mss: u16, scale in prop::option::of(0u8..15), sack: bool,
            blocks in prop::collection::vec(any::<(u32, u32)>(), 0..6)) {
            let bytes = OptionBytes::syn(mss, scale, sack);
            prop_assert_eq!(bytes.as_slice().len() % 4, 0);
            let options = Options::parse(bytes.as_slice());
            prop_assert_eq!((options.mss, options.window_scale, options.sack_permitted), (Some(mss), scale, sack));
            let bytes = OptionBytes::sack(blocks.iter().copied());
            prop_assert_eq!(bytes.as_slice().len() % 4, 0);
            let read: Vec<_> = Options::parse(bytes.as_slice()).sack().collect();
            prop_assert_eq!(&read[..], &blocks[..blocks.len().min(4)]);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Options::parse(&bytes).sack().count();
        }
    }
}
