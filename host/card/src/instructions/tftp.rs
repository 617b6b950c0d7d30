//! A wire with a TFTP server behind it: one file, in memory, for one client, and nothing is lost on the way.

use std::time::Duration;

use wireboot_card::{Header, Received, Span, Unit, Wire, feature};
use wireboot_wire::tftp::{PORT, Packet, Request, TransferOptions, data_header};

use super::frames::{CHECKSUM, CLIENT, LINK, LINK_AND_IP, LONGEST, SERVER, head};
use crate::memory::Mapping;

/// Bytes in front of TFTP, and of a DATA packet's payload.
const HEADERS: usize = LINK_AND_IP + 8;
/// The server's port for DATA.
const TRANSFER: u16 = 5000;
/// In a header: a datagram that is longer than a frame, and what each fragment of it would have.
const UDP: u8 = 3;
const FRAGMENT: u16 = 1480;

/// A TFTP server with one client and one file, each byte of which is [`Tftp::BYTE`].
#[derive(Debug)]
pub(super) struct Tftp {
    bytes: usize,
    block: usize,
    window: usize,
    /// Blocks that have been sent, that the client has, and that may be sent.
    sent: usize,
    acknowledged: usize,
    limit: usize,
    client: u16,
    /// An answer to ARP, or an OACK, which goes before blocks.
    answer: Option<Vec<u8>>,
    /// The next block, whose payload is always the same.
    packet: Vec<u8>,
}

impl Tftp {
    /// What the file is made of.
    pub(super) const BYTE: u8 = 0x55;

    /// With a file of so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes,
            block: 0,
            window: 0,
            sent: 0,
            acknowledged: 0,
            limit: 0,
            client: 0,
            answer: None,
            packet: Vec::new(),
        }
    }

    /// Blocks of the file, the last of them shorter than others.
    fn blocks(&self) -> usize {
        self.bytes / self.block.max(1) + 1
    }

    fn hear(&mut self, frame: &[u8]) {
        let ethertype = frame.get(12..LINK).unwrap_or_default();
        if ethertype == [8, 6] {
            self.answer = Some(arp());
            return;
        }
        let ports = frame.get(LINK_AND_IP..LINK_AND_IP + 4);
        let Some(&[a, b, c, d]) = ports.and_then(<[u8]>::first_chunk::<4>) else {
            return;
        };
        let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        match Packet::parse(frame.get(HEADERS..).unwrap_or_default()) {
            Ok(Packet::Rrq(request)) if to == PORT => self.begin(from, &request),
            Ok(Packet::Ack { block }) if to == TRANSFER => {
                // Fewer are under way than there are numbers.
                let more = block.wrapping_sub(self.acknowledged as u16);
                self.acknowledged = self.sent.min(self.acknowledged + usize::from(more));
                self.limit = self.blocks().min(self.acknowledged + self.window);
            }
            _ => {}
        }
    }

    fn begin(&mut self, client: u16, request: &Request<'_>) {
        let asked = TransferOptions::from_request(request.options);
        let block_size = asked.block_size.unwrap_or(512);
        self.block = block_size.into();
        self.window = asked.window_size.unwrap_or(1).into();
        (self.client, self.sent, self.acknowledged, self.limit) = (client, 0, 0, 0);
        let granted = TransferOptions {
            block_size: Some(block_size),
            window_size: asked.window_size,
            transfer_size: Some(self.bytes as u64),
            slide: asked.slide,
            ..TransferOptions::default()
        };
        let mut options = vec![0, 6];
        granted.emit(&mut options);
        self.answer = Some([&head(TRANSFER, client, options.len())[..], &options].concat());
        self.packet = head(TRANSFER, client, 4 + self.block).to_vec();
        self.packet.resize(HEADERS + 4 + self.block, Self::BYTE);
    }

    /// Writes the next block, if it may go, to the beginning of the room.
    fn next_block(&mut self, memory: &Mapping, room: &[Span]) -> Received {
        if self.sent == self.limit {
            return Received::Nothing;
        }
        self.sent += 1;
        if self.sent == self.blocks() {
            let last = self.bytes % self.block;
            self.packet.truncate(HEADERS + 4 + last);
            let head = head(TRANSFER, self.client, 4 + last);
            for (place, byte) in self.packet.iter_mut().zip(head) {
                *place = byte;
            }
        }
        let number = data_header(self.sent as u16);
        if let Some(place) = self.packet.get_mut(HEADERS..HEADERS + number.len()) {
            place.copy_from_slice(&number);
        }
        let mut header = CHECKSUM;
        if self.packet.len() > LONGEST {
            header.gso_type = UDP;
            header.hdr_len = HEADERS as u16;
            header.gso_size = FRAGMENT;
        }
        put(memory, room, header, &self.packet)
    }
}

/// What is at [`SERVER`].
fn arp() -> Vec<u8> {
    let (server, client) = (SERVER, CLIENT);
    let link = [&client.mac[..], &server.mac, &[8, 6]];
    let fixed = [0, 1, 8, 0, 6, 4, 0, 2];
    let who = [&server.mac[..], &server.ip, &client.mac, &client.ip];
    [&link.concat()[..], &fixed, &who.concat()].concat()
}

fn put(memory: &Mapping, room: &[Span], header: Header, unit: &[u8]) -> Received {
    match memory.scatter(room, 0, unit) {
        Ok(()) => Received::Unit {
            header,
            len: unit.len(),
        },
        Err(_) => Received::TooLong,
    }
}

impl Wire<Mapping> for Tftp {
    fn offloads(&self) -> u64 {
        feature::KNOWN & !feature::RINGS
    }

    fn agree(&mut self, _: u64) {}

    fn max_unit(&self) -> usize {
        LONGEST
    }

    fn send(&mut self, memory: &Mapping, unit: &Unit<'_>, _: Duration) -> bool {
        let mut rest = vec![0; unit.len - unit.head.len()];
        let read = memory.gather(unit.spans, &mut rest);
        self.hear(&[unit.head, &rest].concat());
        read.is_ok()
    }

    fn flush(&mut self) {}

    fn receive(&mut self, memory: &Mapping, room: &[Span], _: Duration) -> Received {
        match self.answer.take() {
            Some(answer) => put(memory, room, Header::default(), &answer),
            None => self.next_block(memory, room),
        }
    }
}
