//! A wire that has frames, in memory, and what they are made of.

use std::time::Duration;

use wireboot_card::{Header, Received, Span, Unit, Wire, feature};

use crate::memory::Mapping;

/// Bytes of the longest frame of plain Ethernet.
pub(super) const LONGEST: usize = 1514;
/// Of its link header, with an IP header, and with one of UDP.
pub(super) const LINK: usize = 14;
pub(super) const LINK_AND_IP: usize = LINK + 20;
const HEAD: usize = LINK_AND_IP + 8;

/// One of two stations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Station {
    pub mac: [u8; 6],
    pub ip: [u8; 4],
}

/// The server, which has the files.
pub(super) const SERVER: Station = Station {
    mac: [2, 0, 0, 0, 0, 1],
    ip: [10, 77, 0, 1],
};
/// The guest, which asks the server for them.
pub(super) const CLIENT: Station = Station {
    mac: [2, 0, 0, 0, 0, 2],
    ip: [10, 77, 0, 2],
};

/// What is said of a datagram whose checksum the guest is to complete.
pub(super) const CHECKSUM: Header = Header {
    flags: 1,
    gso_type: 0,
    hdr_len: 0,
    gso_size: 0,
    csum_start: LINK_AND_IP as u16,
    csum_offset: 6,
};

/// The headers of a datagram of `len` bytes from the server to the guest.
pub(super) fn head(from: u16, to: u16, len: usize) -> [u8; HEAD] {
    let packet = ((HEAD - LINK + len) as u16).to_be_bytes();
    let datagram = (8 + len as u16).to_be_bytes();
    let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
    let words = [[0x45, 0], packet, [0, 0], [0x40, 0], [64, 17]];
    let [a, b, c, d] = SERVER.ip;
    let [e, f, g, h] = CLIENT.ip;
    let addresses = [[a, b], [c, d], [e, f], [g, h]];
    let sum = words.iter().chain(&addresses);
    let sum: u32 = sum.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    let fields: [&[u8]; 10] = [
        &CLIENT.mac,
        &SERVER.mac,
        &[8, 0],
        words.as_flattened(),
        &sum.to_be_bytes(),
        addresses.as_flattened(),
        &from,
        &to,
        &datagram,
        &[0, 0],
    ];
    let mut head = [0; HEAD];
    for (place, byte) in head.iter_mut().zip(fields.into_iter().flatten()) {
        *place = *byte;
    }
    head
}

/// Frames of [`LONGEST`] bytes, all the same.
#[derive(Debug)]
pub(super) struct Frames {
    left: usize,
    frame: [u8; LONGEST],
}

impl Frames {
    pub(super) fn new() -> Self {
        let mut frame = [0x55; LONGEST];
        let head = head(5000, 5001, LONGEST - HEAD);
        for (place, byte) in frame.iter_mut().zip(head) {
            *place = byte;
        }
        Self { left: 0, frame }
    }

    /// So many more come.
    pub(super) fn give(&mut self, count: usize) {
        self.left += count;
    }
}

impl Wire<Mapping> for Frames {
    fn offloads(&self) -> u64 {
        feature::KNOWN & !feature::RINGS
    }

    fn agree(&mut self, _: u64) {}

    fn max_unit(&self) -> usize {
        LONGEST
    }

    fn send(&mut self, _: &Mapping, _: &Unit<'_>, _: Duration) -> bool {
        true
    }

    fn flush(&mut self) {}

    fn receive(&mut self, memory: &Mapping, room: &[Span], _: Duration) -> Received {
        if self.left == 0 {
            return Received::Nothing;
        }
        self.left -= 1;
        match memory.scatter(room, 0, &self.frame) {
            Ok(()) => Received::Unit {
                header: CHECKSUM,
                len: LONGEST,
            },
            Err(_) => Received::TooLong,
        }
    }
}
