//! What a machine that measures itself (doctor.efi) and the sender on the host say to each other: short texts in UDP
//! datagrams, a request and its answer.
//!
//! ```text
//!   machine                                sender
//!     │  hello 1                             │
//!     ├─────────────────────────────────────>│  a token of the address that asks: whoever names
//!     │                   welcome 1 7235…    │  a stranger's as his own never hears it
//!     │<─────────────────────────────────────┤
//!     │  send 2 7235… 1472 300000            │
//!     ├─────────────────────────────────────>│
//!     │         datagrams, for 300 ms        │
//!     │<═════════════════════════════════════┤
//!     │              sent 2 861234 0 …       │
//!     │<─────────────────────────────────────┤
//! ```
//!
//! Requests carry a number and may be sent again: the sender answers one that it has served already from memory. It is free to send for a shorter time than
//! it was asked to, and to say nothing while others have their turn.

use alloc::format;
use alloc::string::String;
use core::str::FromStr;

/// The sender's UDP port.
pub const PORT: u16 = 7077;
/// Port that what is sent to be counted goes to, at the machine and at the sender.
pub const DATA_PORT: u16 = 7078;
/// The longest payload that a sender sends, in bytes: a full frame's.
pub const MAX_PAYLOAD: u16 = 1472;
/// The longest that a sender sends, in microseconds. After that its kernel wants to hear from the machine, which answers nobody meanwhile.
pub const MAX_MICROS: u32 = 5_000_000;

/// What the machine asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// `hello NUMBER`: for a token, which comes to the address that asks and to no other.
    Hello {
        /// Names the request.
        number: u32,
    },
    /// `send NUMBER TOKEN PAYLOAD MICROS`: datagrams to [`DATA_PORT`] of the one who asks, as fast as the cable takes them.
    Send {
        /// Names the request.
        number: u32,
        /// What [`Answer::Welcome`] brought.
        token: u64,
        /// Bytes of each datagram's payload, 1 to [`MAX_PAYLOAD`].
        payload: u16,
        /// For how long, up to [`MAX_MICROS`].
        micros: u32,
    },
    /// `count NUMBER TOKEN`: how many frames have come from the machine.
    Count {
        /// Names the request.
        number: u32,
        /// What [`Answer::Welcome`] brought.
        token: u64,
    },
}

/// What the sender answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `welcome NUMBER TOKEN`
    Welcome {
        /// As the request has it.
        number: u32,
        /// For the requests that follow.
        token: u64,
    },
    /// `sent NUMBER DATAGRAMS DROPPED MICROS WAITED`: all is sent, and this came behind it.
    Sent {
        /// As the request has it.
        number: u32,
        /// How many datagrams the sender had for the cable.
        datagrams: u64,
        /// How many of those found no room in the cable.
        dropped: u64,
        /// How long it took, in microseconds.
        micros: u64,
        /// How much of that the sender waited for room in the cable, in microseconds. With none, the sender was the limit.
        waited: u64,
    },
    /// `counted NUMBER FRAMES`
    Counted {
        /// As the request has it.
        number: u32,
        /// Frames that came from the machine since the cable was made.
        frames: u64,
    },
}

impl Request {
    /// The text of the request's datagram.
    #[must_use]
    pub fn emit(&self) -> String {
        match self {
            Self::Hello { number } => format!("hello {number}"),
            Self::Send {
                number,
                token,
                payload,
                micros,
            } => format!("send {number} {token} {payload} {micros}"),
            Self::Count { number, token } => format!("count {number} {token}"),
        }
    }

    /// Reads a datagram. `None` when it is no request, or asks for too much.
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let mut words = core::str::from_utf8(datagram).ok()?.split(' ');
        let request = match words.next()? {
            "hello" => Self::Hello {
                number: number(words.next())?,
            },
            "send" => Self::Send {
                number: number(words.next())?,
                token: number(words.next())?,
                payload: number(words.next()).filter(|n| (1..=MAX_PAYLOAD).contains(n))?,
                micros: number(words.next()).filter(|&n| n <= MAX_MICROS)?,
            },
            "count" => Self::Count {
                number: number(words.next())?,
                token: number(words.next())?,
            },
            _ => return None,
        };
        words.next().is_none().then_some(request)
    }

    /// The token that the request brings, where it has to bring one.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        match *self {
            Self::Hello { .. } => None,
            Self::Send { token, .. } | Self::Count { token, .. } => Some(token),
        }
    }
}

impl Answer {
    /// The text of the answer's datagram.
    #[must_use]
    pub fn emit(&self) -> String {
        match self {
            Self::Welcome { number, token } => format!("welcome {number} {token}"),
            Self::Sent {
                number,
                datagrams,
                dropped,
                micros,
                waited,
            } => format!("sent {number} {datagrams} {dropped} {micros} {waited}"),
            Self::Counted { number, frames } => format!("counted {number} {frames}"),
        }
    }

    /// Reads a datagram. `None` when it is no answer.
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let mut words = core::str::from_utf8(datagram).ok()?.split(' ');
        let answer = match words.next()? {
            "welcome" => Self::Welcome {
                number: number(words.next())?,
                token: number(words.next())?,
            },
            "sent" => Self::Sent {
                number: number(words.next())?,
                datagrams: number(words.next())?,
                dropped: number(words.next())?,
                micros: number(words.next())?,
                waited: number(words.next())?,
            },
            "counted" => Self::Counted {
                number: number(words.next())?,
                frames: number(words.next())?,
            },
            _ => return None,
        };
        words.next().is_none().then_some(answer)
    }

    /// The number of the request.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::Welcome { number, .. }
            | Self::Sent { number, .. }
            | Self::Counted { number, .. } => *number,
        }
    }
}

fn number<T: FromStr>(word: Option<&str>) -> Option<T> {
    word?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            number: u32,
            token: u64,
            payload in 1..=MAX_PAYLOAD,
            micros in 0..=MAX_MICROS,
            (datagrams, dropped, took, waited) in any::<(u64, u64, u64, u64)>(),
        ) {
            for (request, brings) in [
                (Request::Hello { number }, None),
                (Request::Send { number, token, payload, micros }, Some(token)),
                (Request::Count { number, token }, Some(token)),
            ] {
                prop_assert_eq!(Request::parse(request.emit().as_bytes()), Some(request));
                prop_assert_eq!(Answer::parse(request.emit().as_bytes()), None);
                prop_assert_eq!(request.token(), brings);
            }
            let sent = Answer::Sent { number, datagrams, dropped, micros: took, waited };
            let counted = Answer::Counted { number, frames: datagrams };
            for answer in [Answer::Welcome { number, token }, sent, counted] {
                prop_assert_eq!(Answer::parse(answer.emit().as_bytes()), Some(answer));
                prop_assert_eq!(Request::parse(answer.emit().as_bytes()), None);
                prop_assert_eq!(answer.number(), number);
            }
        }

        #[test]
        fn any_bytes_are_no_harm(bytes: Vec<u8>) {
            let _ = (Request::parse(&bytes), Answer::parse(&bytes));
        }
    }

    #[test]
    fn too_much_is_refused() {
        let send =
            |payload, micros| Request::parse(format!("send 1 77 {payload} {micros}").as_bytes());
        assert!(send(1472, 1000).is_some());
        assert!(send(1473, 1000).is_none());
        assert!(send(0, 1000).is_none());
        assert!(send(1, MAX_MICROS).is_some());
        assert!(send(64, MAX_MICROS + 1).is_none());
        for other in [
            "hello",
            "hello 1 2",
            "count 1",
            "count 1 77 more",
            "count 1 -1",
        ] {
            assert!(Request::parse(other.as_bytes()).is_none(), "{other}");
        }
    }
}
