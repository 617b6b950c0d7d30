//! The hello: a driver asks once what its card does beyond virtio-net, and the card answers.
//!
//! The question is an Ethernet frame that the driver sends like any other, with an empty `virtio_net_hdr`. A card of this kind does not send
//! it on. The answer is a frame of the same form, marked as [the module above](super) says. A card of another kind sends the question to its
//! wire, where it ends at the first bridge. Nobody waits for an answer: without one, the driver goes on as without a question.
//!
//! Numbers are big-endian.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 6 | destination | 01-80-C2-00-00-0E, in both |
//! | 6 | 6 | source | the driver's address, in both |
//! | 12 | 2 | EtherType | 0x88B5 |
//! | 14 | 4 | magic | `wbtc`: 0x77627463 |
//! | 18 | 1 | version | 1; a later one only adds behind this |
//! | 19 | 1 | kind | 1 a question, 2 an answer |
//! | 20 | 2 | | 0 |
//! | 22 | 8 | token | random in the question, the same in the answer |
//! | 30 | 4 | features | what the driver understands; of that, what the card does from here on |
//! | 34 | 2 | chunk frames | frames in a chunk at most |
//! | 36 | 4 | chunk bytes | bytes of a chunk at most |
//! | 40 | 4 | chunk micros | microseconds that a frame waits for others at most |
//! | 44 | 16 | | 0 |
//!
//! | feature | bit | |
//! |---|---|---|
//! | [`DATAGRAMS`] | 0 | the card puts the fragments of UDP datagrams together, up to 65,507 bytes of payload, and gives each as one unit (`VIRTIO_NET_HDR_GSO_UDP`). Needs GUEST_UFO, whose units have 65,550 bytes at most: 65,488 of payload over IPv6 |
//! | [`CHUNKS`] | 1 | several units in one buffer ([`chunk`](super::chunk)), both ways. The three fields above are the most that a driver takes, and what the card keeps to; the last frame may make them more bytes. Needs the header of 12 bytes |
//! | [`PLACEMENT`] | 2 | the card writes payload to where the driver wants it ([`placement`](super::placement)). Needs the header of 12 bytes and GUEST_CSUM |
//!
//! Who reads takes a version of 1 or more, and frames longer than this one; passes over unknown bits, fields of features that are not set, and
//! what should be 0; and drops what is shorter, or has another magic, version 0 or another kind. A driver drops an answer whose token is not its
//! question's, and passes over features that it did not name. A new question replaces all that was agreed on; a reset of the device ends it.

use super::{ETHERTYPE, GROUP};

/// Length of the frame, the shortest of Ethernet without its check sequence.
pub const LEN: usize = 60;

/// The card puts UDP datagrams together.
pub const DATAGRAMS: u32 = 1 << 0;
/// Several units come in one buffer.
pub const CHUNKS: u32 = 1 << 1;
/// The card writes payload to where the driver wants it.
pub const PLACEMENT: u32 = 1 << 2;

const MAGIC: [u8; 4] = *b"wbtc";
const VERSION: u8 = 1;

/// Which of the two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the driver: what it understands.
    Question,
    /// From the card: what of that it does from here on.
    Answer,
}

/// How far frames are gathered, with [`CHUNKS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// Frames in a chunk at most.
    pub frames: u16,
    /// Bytes of a chunk at most.
    pub bytes: u32,
    /// Microseconds that a frame waits for others at most.
    pub micros: u32,
}

/// A question or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Whether it is a question or an answer.
    pub kind: Kind,
    /// The driver's Ethernet address.
    pub source: [u8; 6],
    /// Random in a question, the same in its answer.
    pub token: u64,
    /// [`DATAGRAMS`], [`CHUNKS`], [`PLACEMENT`], and bits that are not known.
    pub features: u32,
    /// How far frames are gathered; means nothing without [`CHUNKS`].
    pub chunks: Chunks,
}

/// Takes the next bytes.
fn next<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*bytes)
}

impl Hello {
    /// Reads a frame, link header included. `None` when it is no hello.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let mut rest = frame.get(..LEN)?;
        if next(&mut rest)? != GROUP {
            return None;
        }
        let source = next(&mut rest)?;
        let ours = next(&mut rest)? == ETHERTYPE.to_be_bytes() && next(&mut rest)? == MAGIC;
        let [version, kind] = next(&mut rest)?;
        let [_, _] = next(&mut rest)?;
        let kind = match kind {
            1 => Kind::Question,
            2 => Kind::Answer,
            _ => return None,
        };
        (ours && version >= VERSION).then_some(())?;
        Some(Self {
            kind,
            source,
            token: u64::from_be_bytes(next(&mut rest)?),
            features: u32::from_be_bytes(next(&mut rest)?),
            chunks: Chunks {
                frames: u16::from_be_bytes(next(&mut rest)?),
                bytes: u32::from_be_bytes(next(&mut rest)?),
                micros: u32::from_be_bytes(next(&mut rest)?),
            },
        })
    }

    /// The frame, link header included.
    #[must_use]
    pub fn emit(&self) -> [u8; LEN] {
        let kind = match self.kind {
            Kind::Question => 1,
            Kind::Answer => 2,
        };
        let fields: [&[u8]; 10] = [
            &GROUP,
            &self.source,
            &ETHERTYPE.to_be_bytes(),
            &MAGIC,
            &[VERSION, kind, 0, 0],
            &self.token.to_be_bytes(),
            &self.features.to_be_bytes(),
            &self.chunks.frames.to_be_bytes(),
            &self.chunks.bytes.to_be_bytes(),
            &self.chunks.micros.to_be_bytes(),
        ];
        let mut frame = [0; LEN];
        for (to, from) in frame.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::is_for_card;
    use proptest::prelude::*;
    use std::vec::Vec;

    const ASKS: Hello = Hello {
        kind: Kind::Question,
        source: [2, 0, 0, 0, 0, 7],
        token: 0x0102_0304_0506_0708,
        features: DATAGRAMS | CHUNKS,
        chunks: Chunks {
            frames: 0x2b,
            bytes: 0x0001_0000,
            micros: 0x64,
        },
    };

    /// By the table above, written by hand.
    const BYTES: [u8; LEN] = [
        0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 7, 0x88, 0xb5, 0x77, 0x62, 0x74, 0x63, 1, 1,
        0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 3, 0, 0x2b, 0, 1, 0, 0, 0, 0, 0, 0x64, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn bytes_are_those_of_the_table() {
        assert_eq!(ASKS.emit(), BYTES);
        assert_eq!(Hello::parse(&BYTES), Some(ASKS));
        let answer = Hello {
            kind: Kind::Answer,
            features: PLACEMENT,
            ..ASKS
        };
        let bytes = answer.emit();
        assert_eq!((bytes[19], &bytes[30..34]), (2, &[0, 0, 0, 4][..]));
        assert_eq!(Hello::parse(&bytes), Some(answer));
        assert!(is_for_card(BYTES.first_chunk().unwrap()));
    }

    /// The frame with one byte changed.
    fn with(at: usize, value: u8) -> [u8; LEN] {
        let mut bytes = BYTES;
        bytes[at] = value;
        bytes
    }

    #[test]
    fn what_a_later_version_may_add_is_passed_over() {
        for (at, value) in [(18, 2), (18, 255), (20, 1), (21, 9), (44, 1), (59, 1)] {
            assert_eq!(Hello::parse(&with(at, value)), Some(ASKS), "{at}");
        }
        let longer: Vec<u8> = BYTES.iter().copied().chain([7; 1000]).collect();
        assert_eq!(Hello::parse(&longer), Some(ASKS));
        let unknown = Hello::parse(&with(30, 0x80)).unwrap();
        assert_eq!(unknown.features, ASKS.features | 1 << 31);
    }

    #[test]
    fn the_rest_is_no_hello() {
        for at in (0..6).chain(12..20) {
            if at == 18 {
                assert_eq!(Hello::parse(&with(at, 0)), None);
                continue;
            }
            for value in [0, 3, 0xff] {
                assert_eq!(Hello::parse(&with(at, value ^ 0x10)), None, "{at}");
            }
        }
        for len in 0..LEN {
            assert_eq!(Hello::parse(&BYTES[..len]), None);
        }
        for at in (0..6).chain(12..14) {
            let bytes = with(at, BYTES[at] ^ 1);
            assert!(!is_for_card(bytes.first_chunk().unwrap()), "{at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes(changes in prop::collection::vec((0..LEN, any::<u8>()), 0..6), longer in 0..9usize) {
            let mut bytes = BYTES.to_vec();
            for (at, value) in changes {
                bytes[at] = value;
            }
            bytes.resize(LEN + longer, 1);
            crate::fuzzing::fuzz_hello(&bytes);
        }
    }
}
