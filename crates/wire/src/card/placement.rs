//! Placement: the card writes a TCP connection's payload to where it belongs, and gives the driver headers alone, where both have agreed on it.
//!
//! The driver names a connection and a region of memory for the bytes of its stream from a sequence number on, by a frame to the card itself
//! ([`PlacementRequest`]). Regions of a connection follow each other in the stream and may lie anywhere. The first begins where the peer
//! cannot have sent yet: behind the window that was advertised. So no byte of it is on its way when the card hears of it.
//!
//! A unit of the connection whose payload is the next of its stream, and reaches into the region, comes to the driver marked
//! ([the module above](super)): its headers, and what of its payload lies before the region, then a [`Note`] that says what was placed. Its
//! IP and TCP headers are those of the whole unit. The rest of the payload is in the region, and goes on in the connection's next one.
//!
//! The first segment that leaves a gap, has another flag than ACK and PSH, or whose checksum the card does not vouch for, ends the connection's placement: it comes
//! whole, with a note behind it that says so. From then on the card writes to none of the regions, and all comes as without placement.
//! The same where a unit is longer than what is left of the regions, and when the driver asks for it: then the note comes alone, also from a card that
//! has been started again and knows of no region. A segment that brings nothing new ends nothing, and comes as without placement. A reset of the device
//! ends all.
//!
//! A request, big-endian:
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 14 | link header | 01-80-C2-00-00-0E, the driver's address, 0x88B5 |
//! | 14 | 4 | magic | `wbpl`: 0x7762706c |
//! | 18 | 1 | version | 1; a later one only adds behind this |
//! | 19 | 1 | kind | 1 fill this region, 2 fill none of the connection's any more |
//! | 20 | 2 | | 0 |
//! | 22 | 4 | id | of the region: larger than those before, of any connection; with kind 2, of the last one |
//! | 26 | 16 | remote | address of the peer; IPv4 ones mapped (RFC 4291, section 2.5.5.2) |
//! | 42 | 16 | local | address of the driver's side |
//! | 58 | 2 | remote port | |
//! | 60 | 2 | local port | |
//! | 62 | 4 | sequence | number of the region's first byte; of a further one, that behind the region before |
//! | 66 | 8 | address | of the region, as the device sees it |
//! | 74 | 4 | length | of the region in bytes, at least 1 |
//!
//! A note, little-endian as virtio-net's header, the last 16 bytes of its unit:
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 4 | id | the region in which the placed bytes begin; with bit 0 of the flags, the last one of its connection that the card has heard of |
//! | 4 | 4 | at | where they begin in it |
//! | 8 | 4 | length | how many there are |
//! | 12 | 1 | flags | bit 0: this region and those of its connection before it are filled no further |
//! | 13 | 3 | | 0 |
//!
//! A note of placed bytes has no flag, and one with the flag has no bytes.

use super::{ETHERTYPE, GROUP};

/// Bytes of a request's frame.
pub const REQUEST_LEN: usize = 78;
/// Bytes of a note.
pub const NOTE_LEN: usize = 16;

const MAGIC: [u8; 4] = *b"wbpl";
const VERSION: u8 = 1;
const ENDED: u8 = 1;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The peer's address, IPv4 ones mapped.
    pub remote: [u8; 16],
    /// The driver's address, in the same form.
    pub local: [u8; 16],
    /// The peer's port.
    pub remote_port: u16,
    /// The port at the driver's side.
    pub local_port: u16,
}

/// A region of memory for the bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Larger than those before.
    pub id: u32,
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// Where the device finds it.
    pub address: u64,
    /// Its bytes, at least 1.
    pub len: u32,
}

/// What a driver asks of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementRequest {
    /// Fill this region with the connection's bytes.
    Fill(Ends, Region),
    /// Fill none of the connection's any more, of which this one is the last.
    Leave(Ends, u32),
}

/// What the card says of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Payload was placed.
    Placed {
        /// The region in which it begins.
        id: u32,
        /// Where it begins there.
        at: u32,
        /// How many bytes were placed, at least 1.
        len: u32,
    },
    /// This region, and those of its connection before it, are filled no further.
    Ended {
        /// The last region of the connection that the card has heard of.
        id: u32,
    },
}

/// Takes the next bytes.
fn next<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*bytes)
}

impl PlacementRequest {
    /// Reads a frame, link header included. `None` when it is no request.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let mut rest = frame.get(..REQUEST_LEN)?;
        let group = next(&mut rest)?;
        let [_, _, _, _, _, _] = next(&mut rest)?;
        let (ethertype, magic) = (next(&mut rest)?, next(&mut rest)?);
        let [version, kind, _, _] = next(&mut rest)?;
        let ours = group == GROUP && ethertype == ETHERTYPE.to_be_bytes() && magic == MAGIC;
        (ours && version >= VERSION).then_some(())?;
        let id = u32::from_be_bytes(next(&mut rest)?);
        let ends = Ends {
            remote: next(&mut rest)?,
            local: next(&mut rest)?,
            remote_port: u16::from_be_bytes(next(&mut rest)?),
            local_port: u16::from_be_bytes(next(&mut rest)?),
        };
        let region = Region {
            id,
            sequence: u32::from_be_bytes(next(&mut rest)?),
            address: u64::from_be_bytes(next(&mut rest)?),
            len: u32::from_be_bytes(next(&mut rest)?),
        };
        match kind {
            1 if region.len > 0 => Some(Self::Fill(ends, region)),
            2 => Some(Self::Leave(ends, id)),
            _ => None,
        }
    }

    /// The frame, link header included, of the driver with this address.
    #[must_use]
    pub fn emit(&self, source: [u8; 6]) -> [u8; REQUEST_LEN] {
        let only = |id| Region {
            id,
            sequence: 0,
            address: 0,
            len: 0,
        };
        let (kind, ends, region) = match self {
            Self::Fill(ends, region) => (1, ends, *region),
            Self::Leave(ends, id) => (2, ends, only(*id)),
        };
        let fields: [&[u8]; 13] = [
            &GROUP,
            &source,
            &ETHERTYPE.to_be_bytes(),
            &MAGIC,
            &[VERSION, kind, 0, 0],
            &region.id.to_be_bytes(),
            &ends.remote,
            &ends.local,
            &ends.remote_port.to_be_bytes(),
            &ends.local_port.to_be_bytes(),
            &region.sequence.to_be_bytes(),
            &region.address.to_be_bytes(),
            &region.len.to_be_bytes(),
        ];
        let mut frame = [0; REQUEST_LEN];
        for (to, from) in frame.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        frame
    }
}

impl Note {
    /// Reads the note at the end of a marked unit. `None` when there is none.
    #[must_use]
    pub fn parse(bytes: &[u8; NOTE_LEN]) -> Option<Self> {
        let mut rest = bytes.as_slice();
        let id = u32::from_le_bytes(next(&mut rest)?);
        let at = u32::from_le_bytes(next(&mut rest)?);
        let len = u32::from_le_bytes(next(&mut rest)?);
        let [flags, _, _, _] = next(&mut rest)?;
        match (flags, len) {
            (ENDED, 0) => Some(Self::Ended { id }),
            (0, 1..) => Some(Self::Placed { id, at, len }),
            _ => None,
        }
    }

    /// The note as it lies at the end of its unit.
    #[must_use]
    pub fn emit(&self) -> [u8; NOTE_LEN] {
        let (id, at, len, flags) = match *self {
            Self::Placed { id, at, len } => (id, at, len, 0),
            Self::Ended { id } => (id, 0, 0, ENDED),
        };
        let mut bytes = [0; NOTE_LEN];
        let fields = [
            id.to_le_bytes(),
            at.to_le_bytes(),
            len.to_le_bytes(),
            [flags, 0, 0, 0],
        ];
        for (to, from) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *to = from;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::is_for_card;
    use proptest::prelude::*;

    const ENDS: Ends = Ends {
        remote: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1],
        local: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 9],
        remote_port: 80,
        local_port: 0xc001,
    };
    const REGION: Region = Region {
        id: 7,
        sequence: 0x8000_0001,
        address: 0x1_2345_6000,
        len: 0x10_0000,
    };
    /// By the table above, written by hand.
    const BYTES: [u8; REQUEST_LEN] = [
        0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 7, 0x88, 0xb5, 0x77, 0x62, 0x70, 0x6c, 1, 1,
        0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 9, 0, 80, 0xc0, 1, 0x80, 0, 0, 1, 0, 0, 0, 1, 0x23,
        0x45, 0x60, 0, 0, 0x10, 0, 0,
    ];

    #[test]
    fn a_request_is_that_of_the_table() {
        let request = PlacementRequest::Fill(ENDS, REGION);
        assert_eq!(request.emit([2, 0, 0, 0, 0, 7]), BYTES);
        assert_eq!(PlacementRequest::parse(&BYTES), Some(request));
        let leave = PlacementRequest::Leave(ENDS, 7).emit([2, 0, 0, 0, 0, 7]);
        assert_eq!((leave[19], &leave[22..62]), (2, &BYTES[22..62]));
        assert_eq!(
            PlacementRequest::parse(&leave),
            Some(PlacementRequest::Leave(ENDS, 7))
        );
        assert!(is_for_card(BYTES.first_chunk().unwrap()));
    }

    #[test]
    fn the_rest_is_no_request() {
        for at in (0..6).chain(12..18) {
            let mut bytes = BYTES;
            bytes[at] ^= 1;
            assert_eq!(PlacementRequest::parse(&bytes), None, "{at}");
        }
        for (at, value) in [(18, 0), (19, 0), (19, 3), (75, 0)] {
            let mut bytes = BYTES;
            bytes[at] = value;
            assert_eq!(PlacementRequest::parse(&bytes), None, "{at}");
        }
        for len in 0..REQUEST_LEN {
            assert_eq!(PlacementRequest::parse(&BYTES[..len]), None);
        }
    }

    #[test]
    fn a_note_is_that_of_the_table() {
        let placed = Note::Placed {
            id: 0x0102_0304,
            at: 5,
            len: 0xfeed,
        };
        let bytes = [4, 3, 2, 1, 5, 0, 0, 0, 0xed, 0xfe, 0, 0, 0, 0, 0, 0];
        assert_eq!(placed.emit(), bytes);
        assert_eq!(Note::parse(&bytes), Some(placed));
        let ended = Note::Ended { id: 9 };
        let bytes = [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(ended.emit(), bytes);
        assert_eq!(Note::parse(&bytes), Some(ended));
    }

    #[test]
    fn a_note_says_one_of_both() {
        let with = |at: usize, value: u8| {
            let mut bytes = Note::Ended { id: 9 }.emit();
            bytes[at] = value;
            Note::parse(&bytes)
        };
        for (at, value) in [(8, 1), (12, 0), (12, 2), (12, 3)] {
            assert_eq!(with(at, value), None, "{at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes(changes in prop::collection::vec((0..REQUEST_LEN, any::<u8>()), 0..6)) {
            let mut bytes = BYTES;
            for (at, value) in changes {
                bytes[at] = value;
            }
            crate::fuzzing::fuzz_placement(&bytes);
        }
    }
}
