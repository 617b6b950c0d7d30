//! What has come of frames that were asked for.

use super::frame;
use core::net::IpAddr;
use wireboot_wire::ladder::{Answer, DATA_PORT, PORT};

/// Received bytes: the parts of a unit, and the length of the datagrams that the device put together, if it did.
pub(crate) type Unit<'a> = (&'a [&'a [u8]], Option<u16>);

/// Counts what comes.
pub(crate) struct Tally<'m> {
    /// The request that is to be answered, and by whom.
    number: u32,
    sender: IpAddr,
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    /// The answer, and the sender's Ethernet address.
    pub(super) answer: Option<(Answer, [u8; 6])>,
    /// Where payload is copied to, again and again, and how far it is.
    memory: Option<&'m mut [u8]>,
    at: usize,
}

impl<'m> Tally<'m> {
    /// Nothing has come yet that answers the request to the sender.
    pub(super) fn new(number: u32, sender: IpAddr, memory: Option<&'m mut [u8]>) -> Self {
        Self {
            number,
            sender,
            datagrams: 0,
            bytes: 0,
            answer: None,
            memory,
            at: 0,
        }
    }

    /// A frame of any kind.
    #[inline]
    pub(crate) fn take(&mut self, (parts, segment): Unit<'_>) {
        let Some((start, rest)) = parts.split_first() else {
            return;
        };
        let Some(frame::Datagram { port, at, len }) = frame::parse(start) else {
            return;
        };
        if at + len > start.len() && !is_there(start, rest, at + len) {
            return;
        }
        if port == DATA_PORT {
            self.datagrams += match segment {
                Some(segment) => len.div_ceil(usize::from(segment).max(1)) as u64,
                None => 1,
            };
            self.bytes += len as u64;
            if self.memory.is_some() {
                self.copy(start.get(at..).unwrap_or_default());
                rest.iter().for_each(|part| self.copy(part));
            }
        } else if port == PORT {
            self.talk(start, at, len);
        }
    }

    /// A frame to the port that asks, with so many bytes of payload at a place.
    #[cold]
    #[inline(never)]
    fn talk(&mut self, frame: &[u8], at: usize, len: usize) {
        if let Some(text) = frame.get(at..at + len)
            && let Some((mac, address, port)) = frame::source(frame)
        {
            self.answered(text, (address, port), mac);
        }
    }

    /// So many datagrams for us, with so many bytes of payload in all.
    pub(crate) fn add(&mut self, datagrams: u64, bytes: u64) {
        self.datagrams += datagrams;
        self.bytes += bytes;
    }

    /// What came to the port that asks, from an address and a port of a station.
    pub(crate) fn answered(&mut self, text: &[u8], from: (IpAddr, u16), mac: [u8; 6]) {
        if from == (self.sender, PORT)
            && let Some(answer) = Answer::parse(text)
            && answer.number() == self.number
        {
            self.answer = Some((answer, mac));
        }
    }

    fn copy(&mut self, part: &[u8]) {
        let Some(memory) = self.memory.as_deref_mut() else {
            return;
        };
        if memory.len() - self.at < part.len() {
            self.at = 0;
        }
        if let Some(place) = memory.get_mut(self.at..self.at + part.len()) {
            place.copy_from_slice(part);
            self.at += part.len();
        }
    }
}

/// Whether the parts hold so many bytes.
#[cold]
fn is_there(start: &[u8], rest: &[&[u8]], len: usize) -> bool {
    let all = rest.iter().fold(start.len(), |sum, part| sum + part.len());
    all >= len
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::frame::FrameEndpoint;
    use super::*;
    use alloc::vec::Vec;

    /// A datagram to `port`, as the sender's or somebody else's; from port `from`.
    pub(crate) fn datagram(last: u8, from: u16, port: u16, payload: &[u8]) -> Vec<u8> {
        let end = |last, port| FrameEndpoint {
            mac: [2, 0, 0, 0, 0, last],
            address: IpAddr::from([10, 77, 0, last]),
            port,
        };
        frame::emit(end(last, from), end(9, port), payload)
    }

    #[test]
    fn what_is_there_counts_and_the_sender_answers() {
        let mut tally = Tally::new(7, IpAddr::from([10, 77, 0, 1]), None);
        let whole = datagram(1, DATA_PORT, DATA_PORT, &[7; 100]);
        tally.take((&[&whole[..whole.len() - 1]], None));
        assert_eq!((tally.datagrams, tally.bytes), (0, 0));
        tally.take((&[&whole], None));
        let (start, rest) = whole.split_at(60);
        // As two parts, and put together of three.
        tally.take((&[start, rest], Some(40)));
        assert_eq!((tally.datagrams, tally.bytes), (4, 200));
        for (last, from, number) in [(2, PORT, 7), (1, PORT + 1, 7), (1, PORT, 8)] {
            let text = Answer::Counted { number, frames: 1 }.emit();
            tally.take((&[&datagram(last, from, PORT, text.as_bytes())], None));
            assert_eq!(tally.answer, None);
        }
        // By an engine, which reads frames itself.
        tally.add(3, 54);
        assert_eq!((tally.datagrams, tally.bytes), (7, 254));
        let text = Answer::Counted {
            number: 7,
            frames: 2,
        };
        let sender = IpAddr::from([10, 77, 0, 1]);
        tally.answered(text.emit().as_bytes(), (sender, PORT), [0; 6]);
        assert_eq!(tally.answer.take(), Some((text, [0; 6])));
        let answer = Answer::Counted {
            number: 7,
            frames: 1,
        };
        tally.take((&[&datagram(1, PORT, PORT, answer.emit().as_bytes())], None));
        assert_eq!(tally.answer, Some((answer, [2, 0, 0, 0, 0, 1])));
    }
}
