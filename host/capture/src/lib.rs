//! The packets of a capture, pcap or pcapng, out of what tcpdump, Wireshark and switches write.

#![forbid(unsafe_code)]

use std::io::Read;

use anyhow::{Result, anyhow, bail};
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use wireboot_observe::LinkType;

/// Room for what is read at once, in bytes: more than any packet has.
const BUFFER: usize = 1 << 18;

/// The most interfaces of a capture; packets of more are passed over.
const INTERFACES: usize = 1 << 16;

/// A packet that went over the wire.
#[derive(Debug, PartialEq)]
pub struct Captured {
    /// When, in seconds since 1970.
    pub time: f64,
    /// What it begins with; `None` for what is not looked at, Wi-Fi's headers for example.
    pub link: Option<LinkType>,
    /// Its bytes, as many as the capture has.
    pub data: Vec<u8>,
}

/// Where packets were captured, and how their times are counted.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Option<LinkType>,
    /// Seconds in a unit of time.
    tick: f64,
    /// Seconds to be added to each time.
    offset: f64,
}

/// The packets of a capture, one by one, also while it is still written.
pub struct Packets<'a> {
    reader: Box<dyn PcapReaderIterator + Send + 'a>,
    /// A pcap file has one, whose number is 0.
    interfaces: Vec<Interface>,
    /// Bytes that were taken in.
    at: u64,
    is_cut_off: bool,
}

impl<'a> Packets<'a> {
    /// Of `capture`, whose first read must bring its head.
    ///
    /// # Errors
    /// When it is no capture or cannot be read.
    pub fn new(capture: impl Read + Send + 'a) -> Result<Self> {
        match create_reader(BUFFER, capture) {
            Ok(reader) => Ok(Self {
                reader,
                interfaces: Vec::new(),
                at: 0,
                is_cut_off: false,
            }),
            Err(error) => bail!("no capture: {error}"),
        }
    }

    /// The byte at which the packet begins that the end of the capture cuts off, once the end was reached.
    #[must_use]
    pub fn cut_off_at(&self) -> Option<u64> {
        self.is_cut_off.then_some(self.at)
    }

    fn broken(&self, error: &str) -> anyhow::Error {
        anyhow!(
            "the capture cannot be read on, at byte {}: {error}",
            self.at
        )
    }

    /// The packet of interface `number` at `ticks`.
    fn packet(
        interfaces: &[Interface],
        number: usize,
        ticks: u64,
        data: &[u8],
    ) -> Option<Captured> {
        let interface = interfaces.get(number)?;
        Some(Captured {
            time: interface.offset + ticks as f64 * interface.tick,
            link: interface.link,
            data: data.to_vec(),
        })
    }

    /// Takes a block in: a packet comes out, or something about those that follow.
    fn block(interfaces: &mut Vec<Interface>, block: &PcapBlockOwned<'_>) -> Option<Captured> {
        match block {
            PcapBlockOwned::LegacyHeader(head) => {
                let tick = if head.is_nanosecond_precision() {
                    1e-9
                } else {
                    1e-6
                };
                interfaces.push(Interface {
                    link: LinkType::from_number(head.network.0),
                    tick,
                    offset: 0.0,
                });
                None
            }
            PcapBlockOwned::Legacy(block) => {
                let mut packet = Self::packet(interfaces, 0, block.ts_usec.into(), block.data)?;
                packet.time += f64::from(block.ts_sec);
                Some(packet)
            }
            // A new section numbers its interfaces anew.
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                interfaces.clear();
                None
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                if interfaces.len() == INTERFACES {
                    return None;
                }
                interfaces.push(Interface {
                    link: LinkType::from_number(interface.linktype.0),
                    tick: 1.0 / interface.ts_resolution().unwrap_or(1_000_000).max(1) as f64,
                    offset: interface.ts_offset() as f64,
                });
                None
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let number = usize::try_from(packet.if_id).ok()?;
                Self::packet(interfaces, number, ticks, packet.packet_data())
            }
            // Others tell of no packet, or of one without its time.
            PcapBlockOwned::NG(_) => None,
        }
    }
}

impl Iterator for Packets<'_> {
    type Item = Result<Captured>;

    /// The next packet; none at the end, also where a capture that was cut off ends in the middle of a packet ([`Packets::cut_off_at`]).
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (read, packet) = match self.reader.next() {
                Ok((read, block)) => (read, Self::block(&mut self.interfaces, &block)),
                Err(PcapError::Incomplete(_)) => match self.reader.refill() {
                    Ok(()) => continue,
                    Err(error) => {
                        let error = error.to_string();
                        return Some(Err(self.broken(&error)));
                    }
                },
                Err(PcapError::Eof) => return None,
                Err(PcapError::UnexpectedEof) => {
                    self.is_cut_off = true;
                    return None;
                }
                Err(error) => {
                    let error = error.to_string();
                    return Some(Err(self.broken(&error)));
                }
            };
            self.reader.consume(read);
            self.at += read as u64;
            if packet.is_some() {
                return packet.map(Ok);
            }
        }
    }
}

/// The body of the fuzz target.
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing {
    use wireboot_observe::{Clients, Mac, Observer};

    use super::{Captured, Packets};

    /// Any file is refused, or read to its end or to an error, and its packets are taken in.
    pub fn fuzz_capture(data: &[u8]) {
        let Ok(packets) = Packets::new(data) else {
            return;
        };
        let mut clients = Clients::default();
        let mut observer = Observer::new(Mac([2, 0, 0, 0, 0, 1]), 0.0);
        for packet in packets.map_while(Result::ok) {
            if let Captured {
                time,
                link: Some(link),
                data,
            } = packet
            {
                clients.frame(time, link, &data);
                observer.frame(time, link, &data);
            }
        }
        let _ = clients.found();
        let _ = observer.report();
    }
}

/// Captures for tests.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    /// A capture in the pcap format, its times in nanoseconds where `nanoseconds` says so: seconds, parts, the packet, and its length
    /// on the wire.
    pub fn capture(nanoseconds: bool, packets: &[(u32, u32, &[u8], usize)]) -> Vec<u8> {
        let magic: u32 = if nanoseconds {
            0xa1b2_3c4d
        } else {
            0xa1b2_c3d4
        };
        // Version 2.4, no correction of times, snap length, Ethernet.
        let head = [magic, 0x0004_0002, 0, 0, 65535, 1];
        let mut out: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (seconds, parts, data, length) in packets {
            let [kept, length] = [data.len(), *length].map(|n| n as u32);
            out.extend(
                [*seconds, *parts, kept, length]
                    .map(u32::to_le_bytes)
                    .concat(),
            );
            out.extend_from_slice(data);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::testing::capture;
    use super::*;

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
            link: Some(LinkType::Ethernet),
            data: data.to_vec(),
        };
        let both = [captured(7.5, b"one"), captured(8.25, b"two..")];
        assert_eq!(read.unwrap(), both);

        let file = capture(true, &[(7, 500_000_000, b"one", 3)]);
        let read: Result<Vec<_>> = Packets::new(&file[..]).unwrap().collect();
        assert_eq!(read.unwrap(), both[..1]);
    }

    /// A block of pcapng.
    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let length = (12 + padded as u32).to_le_bytes();
        let mut block = [kind.to_le_bytes().as_slice(), &length, body].concat();
        block.resize(8 + padded, 0);
        block.extend(length);
        block
    }

    /// An interface whose times are counted in 10 to the power of -`digits` seconds, or by default.
    fn interface(link: u16, digits: Option<u8>) -> Vec<u8> {
        let mut body = [link.to_le_bytes(), [0; 2]].concat();
        body.extend(65535_u32.to_le_bytes());
        if let Some(digits) = digits {
            // Option 9, one byte, padding; the end of the options.
            body.extend([9, 0, 1, 0, digits, 0, 0, 0, 0, 0, 0, 0]);
        }
        block(1, &body)
    }

    fn enhanced(interface: u32, ticks: u64, data: &[u8]) -> Vec<u8> {
        let words = [
            interface,
            (ticks >> 32) as u32,
            ticks as u32,
            data.len() as u32,
            data.len() as u32,
        ];
        block(
            6,
            &[words.map(u32::to_le_bytes).concat(), data.to_vec()].concat(),
        )
    }

    #[test]
    fn pcapng_counts_times_by_interface() {
        let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xff; 8]);
        let section = block(0x0a0d_0d0a, &section);
        let file = [
            section.clone(),
            interface(1, None),
            interface(113, Some(9)),
            enhanced(0, 7_500_000, b"one"),
            enhanced(1, 8_250_000_000, b"two.."),
            // Of no interface.
            enhanced(2, 1, b"lost"),
            // The next section's interfaces are its own.
            section,
            interface(127, Some(3)),
            enhanced(0, 9_000, b"wifi"),
        ]
        .concat();
        let read: Vec<_> = Packets::new(&file[..])
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let seen: Vec<_> = read
            .iter()
            .map(|one| (one.time, one.link, one.data.as_slice()))
            .collect();
        assert_eq!(
            seen,
            [
                (7.5, Some(LinkType::Ethernet), b"one".as_slice()),
                (8.25, Some(LinkType::LinuxCooked), b"two.."),
                (9.0, None, b"wifi"),
            ]
        );
    }

    #[test]
    fn a_capture_that_was_cut_off_ends_before_its_last_packet() {
        let file = capture(false, &[(7, 0, b"one", 3), (8, 0, b"two", 3)]);
        let mut cut = Packets::new(&file[..file.len() - 1]).unwrap();
        assert_eq!(cut.by_ref().map(Result::unwrap).count(), 1);
        // Behind the head, and a packet of three bytes with its own.
        assert_eq!(cut.cut_off_at(), Some(24 + 16 + 3));
        let mut whole = Packets::new(&file[..]).unwrap();
        assert_eq!(whole.by_ref().map(Result::unwrap).count(), 2);
        assert_eq!(whole.cut_off_at(), None);
    }

    #[test]
    fn interfaces_without_end_are_not_kept() {
        let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xff; 8]);
        let mut file = block(0x0a0d_0d0a, &section);
        for _ in 0..=INTERFACES {
            file.extend(interface(1, None));
        }
        file.extend(enhanced(INTERFACES as u32 - 1, 0, b"last"));
        file.extend(enhanced(INTERFACES as u32, 0, b"beyond"));
        let read: Result<Vec<_>> = Packets::new(&file[..]).unwrap().collect();
        let [one] = &read.unwrap()[..] else { panic!() };
        assert_eq!(one.data, b"last");
    }

    #[test]
    fn what_is_no_capture_is_an_error() {
        assert!(Packets::new(&b"GIF89a, and more than twenty-four bytes"[..]).is_err());
        assert!(Packets::new(&b""[..]).is_err());
        let mut file = capture(false, &[(7, 0, b"one", 3), (8, 0, b"two", 3)]);
        // A packet longer than any.
        let second = 24 + 16 + 3;
        file[second + 8..second + 12].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut packets = Packets::new(&file[..]).unwrap();
        assert!(packets.next().unwrap().is_ok());
        let error = packets.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("at byte 43: "), "{error}");
    }
}
