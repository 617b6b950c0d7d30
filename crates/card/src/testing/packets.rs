//! Packets of TCP and UDP for tests, with right checksums.

use std::vec;
use std::vec::Vec;

use crate::checksum::Sum;
use crate::frame::{Ip, TCP, UDP, put};
use crate::header::Header;

/// What is in front of the transport header.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// IPv6, else IPv4.
    pub v6: bool,
    /// With a tag (802.1Q).
    pub tagged: bool,
    /// Identification in the IPv4 header; unused with `v6`.
    pub id: u16,
    /// The last byte of the source address.
    pub host: u8,
}

/// What a TCP header says.
#[derive(Clone, Copy, Debug)]
pub struct TcpFields {
    /// The source port.
    pub port: u16,
    /// The sequence number of the first byte of payload.
    pub sequence: u32,
    /// The byte of control bits (RFC 9293, section 3.1).
    pub flags: u8,
    /// With 12 bytes of options.
    pub options: bool,
}

/// A frame of Ethernet, whatever its length, without a checksum behind the header of IP. The place of the transport header, too.
fn frame(link: Link, protocol: u8, rest: &[u8]) -> (Vec<u8>, usize) {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if link.tagged {
        frame.extend([0x81, 0, 0, 5]);
    }
    if link.v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, protocol, 64]);
        for last in [link.host, 2] {
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
    } else {
        let [high, low] = link.id.to_be_bytes();
        frame.extend([8, 0, 0x45, 0, 0, 0, high, low, 0, 0, 64, protocol, 0, 0]);
        frame.extend([10, 0, 0, link.host, 10, 0, 0, 2]);
    }
    let ip = Ip::parse(&frame).unwrap();
    // A unit to be cut may be longer than IP can say.
    ip.set_len(&mut frame, rest.len()).unwrap();
    frame.extend_from_slice(rest);
    (frame, ip.end)
}

/// A frame with a TCP segment to port 80, its checksums right.
#[must_use]
pub fn tcp(link: Link, fields: TcpFields, payload: &[u8]) -> Vec<u8> {
    let mut bytes = fields.port.to_be_bytes().to_vec();
    bytes.extend([0, 80]);
    bytes.extend(fields.sequence.to_be_bytes());
    let offset = if fields.options { 8 << 4 } else { 5 << 4 };
    bytes.extend([1, 2, 3, 4, offset, fields.flags, 0x10, 0, 0, 0, 0, 0]);
    if fields.options {
        bytes.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    }
    bytes.extend_from_slice(payload);
    let (mut frame, at) = frame(link, TCP, &bytes);
    sum_up(&mut frame, TCP, at, 16);
    frame
}

/// A frame with a UDP datagram from port 69 to port 70, its checksums right.
#[must_use]
pub fn udp(link: Link, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() + 8) as u16;
    let mut bytes = vec![0, 69, 0, 70];
    bytes.extend(len.to_be_bytes());
    bytes.extend([0; 2]);
    bytes.extend_from_slice(payload);
    let (mut frame, at) = frame(link, UDP, &bytes);
    sum_up(&mut frame, UDP, at, 6);
    frame
}

fn sum_up(frame: &mut [u8], protocol: u8, at: usize, offset: usize) {
    let ip = Ip::parse(frame).unwrap();
    let mut sum = ip.pseudo(frame, protocol, frame.len() - at).unwrap();
    sum.add(&frame[at..]);
    let sum = match !sum.fold() {
        0 => 0xffff,
        sum => sum,
    };
    put(frame, at + offset, &sum.to_be_bytes()).unwrap();
}

/// The frame as the guest hands it over when the card is to complete its checksum, and the header that says so.
#[must_use]
pub fn incomplete(frame: &[u8]) -> (Header, Vec<u8>) {
    let ip = Ip::parse(frame).unwrap();
    let offset = if ip.protocol == TCP { 16 } else { 6 };
    let sum = ip.pseudo(frame, ip.protocol, frame.len() - ip.end).unwrap();
    let mut bytes = frame.to_vec();
    put(&mut bytes, ip.end + offset, &sum.fold().to_be_bytes()).unwrap();
    let header = Header {
        flags: 1,
        csum_start: ip.end as u16,
        csum_offset: offset as u16,
        ..Header::default()
    };
    (header, bytes)
}

/// The frame with its checksum completed, where the header asks for that.
#[must_use]
pub fn completed(header: Header, frame: &[u8]) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    if header.flags & 1 != 0 {
        let start = usize::from(header.csum_start);
        let mut sum = Sum::default();
        sum.add(&bytes[start..]);
        let at = start + usize::from(header.csum_offset);
        let sum = match !sum.fold() {
            0 => 0xffff,
            sum => sum,
        };
        put(&mut bytes, at, &sum.to_be_bytes()).unwrap();
    }
    bytes
}

/// True when the header of IP says the frame's length and has a right checksum, and that of TCP or UDP is right.
#[must_use]
pub fn is_right(frame: &[u8]) -> bool {
    let ip = Ip::parse(frame).unwrap();
    let mut sum = ip.pseudo(frame, ip.protocol, frame.len() - ip.end).unwrap();
    sum.add(&frame[ip.end..]);
    ip.at + ip.len == frame.len() && ip.is_intact(frame) && sum.fold() == 0xffff
}

/// A frame with the part of a datagram from `offset` on, of which more follow or not.
#[must_use]
pub fn fragment(link: Link, data: &[u8], offset: usize, more: bool) -> Vec<u8> {
    let head = udp(link, &[]);
    let ip = Ip::parse(&head).unwrap();
    let mut frame = head.get(..ip.end).unwrap().to_vec();
    let mut extra = 0;
    if link.v6 {
        frame[ip.at + 6] = 44;
        let field = (offset as u16 & !7) | u16::from(more);
        frame.extend([17, 0]);
        frame.extend(field.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(link.id.to_be_bytes());
        extra = 8;
    } else {
        let field = (offset / 8) as u16 & 0x1fff | if more { 0x2000 } else { 0 };
        frame[ip.at + 6..ip.at + 8].copy_from_slice(&field.to_be_bytes());
    }
    ip.set_len(&mut frame, extra + data.len()).unwrap();
    frame.extend_from_slice(data);
    frame
}
