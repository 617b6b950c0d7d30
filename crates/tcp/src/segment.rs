//! A segment without its payload, and the answers of CLOSED and LISTEN, which have no connection.

use core::ops::BitOr;

/// The control bits of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// None of the control bits is set.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronizes sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Resets the connection.
    pub const RST: Self = Self(0x04);
    /// Push function: the receiver is to hand on what has come (RFC 9293, section 3.9.1).
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);

    /// True when all of `flags` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a connection sees of a segment that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK; means nothing without [`Flags::ACK`].
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
    /// The window field, not scaled.
    pub wnd: u16,
    /// The options as they came.
    pub options: &'a [u8],
    /// Bytes of payload; of several segments that the device joined, all of them.
    pub len: usize,
}

impl Segment<'_> {
    /// SEG.LEN: payload, SYN and FIN.
    pub(crate) fn seg_len(&self) -> u32 {
        let controls =
            u32::from(self.flags.contains(Flags::SYN)) + u32::from(self.flags.contains(Flags::FIN));
        (self.len as u32).wrapping_add(controls)
    }
}

/// A segment without payload and options that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK, 0 without [`Flags::ACK`].
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
}

/// The reset that answers a segment of no connection (RFC 9293, section 3.10.7.1); none for a reset.
#[must_use]
pub fn closed(segment: &Segment<'_>) -> Option<Reply> {
    if segment.flags.contains(Flags::RST) {
        return None;
    }
    Some(if segment.flags.contains(Flags::ACK) {
        reset(segment.ack)
    } else {
        Reply {
            seq: 0,
            ack: segment.seq.wrapping_add(segment.seg_len()),
            flags: Flags::RST | Flags::ACK,
        }
    })
}

/// A reset in answer to an acknowledgement.
pub(crate) fn reset(seq: u32) -> Reply {
    Reply {
        seq,
        ack: 0,
        flags: Flags::RST,
    }
}

/// What a segment means to a port in LISTEN (RFC 9293, section 3.10.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// The segment changes nothing, and is not answered.
    Ignore,
    /// It is answered with a reset.
    Reset(Reply),
    /// A connection: [`super::Connection::accept`].
    Accept,
}

/// Judges a segment to a port in LISTEN.
#[must_use]
pub fn listen(segment: &Segment<'_>) -> Listen {
    if segment.flags.contains(Flags::RST) {
        Listen::Ignore
    } else if segment.flags.contains(Flags::ACK) {
        Listen::Reset(reset(segment.ack))
    } else if segment.flags.contains(Flags::SYN) {
        Listen::Accept
    } else {
        Listen::Ignore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_joined_whichever_are_set() {
        let both = Flags::SYN | Flags::ACK;
        assert_eq!(both.0, 0x12);
        assert_eq!(both | Flags::ACK, both);
        assert!(both.contains(Flags::SYN) && !both.contains(Flags::SYN | Flags::FIN));
    }
}
