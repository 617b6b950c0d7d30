//! The packets of a capture, out of what tcpdump writes.

use std::io::Read;

use anyhow::{Result, bail};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError};

/// Room for what is read at once, in bytes: more than any packet has.
const BUFFER: usize = 1 << 18;

/// A packet that went over the wire.
#[derive(Debug, PartialEq)]
pub struct Captured {
    /// When, in seconds since 1970.
    pub time: f64,
    /// Its bytes from the Ethernet header on, as many as the capture has.
    pub data: Vec<u8>,
}

/// The packets of a capture, one by one, also while tcpdump still writes.
pub struct Packets<R: Read> {
    reader: LegacyPcapReader<R>,
    /// Seconds in a unit of the second part of a time.
    tick: f64,
}

impl<R: Read> Packets<R> {
    /// Of `capture`, whose first read must bring its head.
    ///
    /// # Errors
    /// When it is no capture or cannot be read.
    pub fn new(capture: R) -> Result<Self> {
        match LegacyPcapReader::new(BUFFER, capture) {
            Ok(reader) => Ok(Self { reader, tick: 1e-6 }),
            Err(error) => bail!("no capture: {error}"),
        }
    }
}

impl<R: Read> Iterator for Packets<R> {
    type Item = Result<Captured>;

    /// The next packet; none at the end, also where a capture that was cut off ends in the middle of a packet.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (read, packet) = match self.reader.next() {
                Ok((read, PcapBlockOwned::LegacyHeader(head))) => {
                    if head.is_nanosecond_precision() {
                        self.tick = 1e-9;
                    }
                    (read, None)
                }
                Ok((read, PcapBlockOwned::Legacy(block))) => {
                    let time = f64::from(block.ts_sec) + f64::from(block.ts_usec) * self.tick;
                    let data = block.data.to_vec();
                    (read, Some(Captured { time, data }))
                }
                Ok((read, PcapBlockOwned::NG(_))) => (read, None),
                Err(PcapError::Incomplete(_)) => match self.reader.refill() {
                    Ok(()) => continue,
                    Err(error) => return Some(Err(broken(&error))),
                },
                Err(PcapError::Eof | PcapError::UnexpectedEof) => return None,
                Err(error) => return Some(Err(broken(&error))),
            };
            self.reader.consume(read);
            if packet.is_some() {
                return packet.map(Ok);
            }
        }
    }
}

fn broken(error: &PcapError<&[u8]>) -> anyhow::Error {
    anyhow::anyhow!("the capture cannot be read on: {error}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A capture in the pcap format, its times in nanoseconds where `nanoseconds` says so: seconds, parts, the packet, and its length
    /// on the wire.
    pub(crate) fn capture(nanoseconds: bool, packets: &[(u32, u32, &[u8], usize)]) -> Vec<u8> {
        let magic: u32 = if nanoseconds {
            0xa1b2_3c4d
        } else {
            0xa1b2_c3d4
        };
        // Version 2.4, no correction of times, snap length, Ethernet.
        let head = [magic, 0x0004_0002, 0, 0, 65535, 1];
        let mut out: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (seconds, parts, data, length) in packets {
            let [kept, length] = [data.len(), *length].map(|n| u32::try_from(n).unwrap());
            out.extend(
                [*seconds, *parts, kept, length]
                    .map(u32::to_le_bytes)
                    .concat(),
            );
            out.extend_from_slice(data);
        }
        out
    }

    /// Hands out a byte at a time behind the head, as a pipe may.
    struct Slowly<'a>(&'a [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let most = if self.0.len() > 60 { 24 } else { 1 };
            let count = into.len().min(most);
            self.0.read(&mut into[..count])
        }
    }

    #[test]
    fn packets_come_with_their_times_as_they_are_written() {
        let packets: [(u32, u32, &[u8], usize); 2] =
            [(7, 500_000, b"one", 3), (8, 250_000, b"two..", 9000)];
        let file = capture(false, &packets);
        let read: Result<Vec<_>> = Packets::new(Slowly(&file)).unwrap().collect();
        let captured = |time, data: &[u8]| Captured {
            time,
            data: data.to_vec(),
        };
        let both = [captured(7.5, b"one"), captured(8.25, b"two..")];
        assert_eq!(read.unwrap(), both);

        let file = capture(true, &[(7, 500_000_000, b"one", 3)]);
        let read: Result<Vec<_>> = Packets::new(&file[..]).unwrap().collect();
        assert_eq!(read.unwrap(), both[..1]);
    }

    #[test]
    fn a_capture_that_was_cut_off_ends_before_its_last_packet() {
        let file = capture(false, &[(7, 0, b"one", 3), (8, 0, b"two", 3)]);
        let read: Result<Vec<_>> = Packets::new(&file[..file.len() - 1]).unwrap().collect();
        assert_eq!(read.unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_capture_is_an_error() {
        assert!(Packets::new(&b"GIF89a, and more than twenty-four bytes"[..]).is_err());
        assert!(Packets::new(&b""[..]).is_err());
        let mut file = capture(false, &[(7, 0, b"one", 3)]);
        // A packet longer than any.
        file[24 + 8..24 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut packets = Packets::new(&file[..]).unwrap();
        assert!(packets.next().unwrap().is_err());
    }
}
