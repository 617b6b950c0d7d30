//! The other end of the cable.

use std::collections::VecDeque;

use etherparse::{SlicedPacket, TcpOptionElement, TcpSlice, TransportSlice, UdpSlice};

use super::super::evaluate;
use super::Stream;
use super::frames::{ACK, FIN, SYN, arp_reply, discovery_reply, tcp, udp};
use super::nic::{TRANSFER_PORT, Unit, block_size, unit};
use wireboot_lab::ip::IpVersion;

/// The server and, over IPv6, the router before it: answers ARP, neighbour discovery, TFTP (RFC 7440) and one HTTP request, and sends as fast as the client's window lets it.
#[derive(Debug)]
pub(super) struct Peer {
    ip: IpVersion,
    bytes: u64,
    unit: u64,
    window_blocks: u64,
    /// It was asked for the file.
    pub asked: bool,
    pub connection: Option<Connection>,
}

#[derive(Debug)]
pub(super) struct Connection {
    port: u16,
    /// The client's window scale (RFC 7323).
    scale: u8,
    /// Our next sequence number, and the oldest that is not acknowledged.
    next: u32,
    oldest: u32,
    /// The client's next sequence number.
    theirs: u32,
    /// Bytes of the file that are not sent yet.
    unsent: u64,
}

impl Peer {
    pub(super) fn new(stream: Stream, ip: IpVersion, bytes: u64) -> Self {
        Self {
            ip,
            bytes,
            unit: unit(stream, ip) as u64,
            window_blocks: 1,
            asked: false,
            connection: None,
        }
    }

    pub(super) fn frame(&mut self, frame: &[u8], queue: &mut VecDeque<Unit>) {
        queue.extend(arp_reply(frame).map(Unit::Frame));
        match SlicedPacket::from_ethernet(frame)
            .ok()
            .and_then(|packet| packet.transport)
        {
            Some(TransportSlice::Udp(datagram)) => self.tftp(&datagram, queue),
            Some(TransportSlice::Tcp(segment)) => self.http(&segment, queue),
            Some(TransportSlice::Icmpv6(message)) => {
                queue.extend(discovery_reply(&message).map(Unit::Frame));
            }
            _ => {}
        }
    }

    fn tftp(&mut self, datagram: &UdpSlice<'_>, queue: &mut VecDeque<Unit>) {
        let port = datagram.source_port();
        let block = block_size(self.ip) as u64;
        self.asked = true;
        match datagram.payload() {
            [0, 1, request @ ..] => {
                // After the file's name and the mode, options as in an OACK.
                let mut strings = request.splitn(3, |&byte| byte == 0);
                let options = strings.nth(2).unwrap_or_default();
                self.window_blocks = evaluate::option(options, b"windowsize").unwrap_or(1);
                let answer = format!(
                    "\0\x06tsize\0{}\0blksize\0{block}\0windowsize\0{}\0",
                    self.bytes, self.window_blocks
                );
                queue.push_back(Unit::Frame(udp(
                    self.ip,
                    TRANSFER_PORT,
                    port,
                    answer.as_bytes(),
                )));
            }
            [0, 4, high, low] => {
                let last = self.bytes / block + 1;
                // The file has fewer blocks than numbers.
                let acknowledged = u64::from(u16::from_be_bytes([*high, *low]));
                for number in acknowledged + 1..=last.min(acknowledged + self.window_blocks) {
                    let wire = number as u16;
                    queue.push_back(if number < last {
                        Unit::Block { port, number: wire }
                    } else {
                        let mut data = vec![0, 3];
                        data.extend(wire.to_be_bytes());
                        data.resize(4 + (self.bytes % block) as usize, 0x55);
                        Unit::Frame(udp(self.ip, TRANSFER_PORT, port, &data))
                    });
                }
            }
            _ => {}
        }
    }

    fn http(&mut self, segment: &TcpSlice<'_>, queue: &mut VecDeque<Unit>) {
        let port = segment.source_port();
        self.asked = true;
        if segment.syn() {
            let scale = segment
                .options_iterator()
                .filter_map(Result::ok)
                .find_map(|option| match option {
                    TcpOptionElement::WindowScale(scale) => Some(scale),
                    _ => None,
                });
            let theirs = segment.sequence_number().wrapping_add(1);
            self.connection = Some(Connection {
                port,
                scale: scale.unwrap_or(0),
                next: 1,
                oldest: 1,
                theirs,
                unsent: 0,
            });
            queue.push_back(Unit::Frame(tcp(self.ip, port, 0, theirs, SYN | ACK, &[])));
            return;
        }
        let Some(connection) = self
            .connection
            .as_mut()
            .filter(|connection| connection.port == port)
        else {
            return;
        };
        connection.oldest = segment.acknowledgment_number();
        let new = segment.sequence_number() == connection.theirs;
        if let Some(get) = evaluate::Get::parse(segment.payload()).filter(|_| new) {
            connection.theirs = connection
                .theirs
                .wrapping_add(segment.payload().len() as u32);
            let (first, end) = get.range.unwrap_or_default();
            let end = end.unwrap_or(self.bytes);
            let length = end - first;
            let status = if length == self.bytes {
                "200 OK".to_owned()
            } else {
                format!(
                    "206 Partial Content\r\nContent-Range: bytes {first}-{}/{}",
                    end - 1,
                    self.bytes
                )
            };
            let header = format!(
                "HTTP/1.1 {status}\r\nETag: \"1\"\r\nAccept-Ranges: bytes\r\nContent-Length: {length}\r\n\r\n"
            );
            queue.push_back(Unit::Frame(tcp(
                self.ip,
                port,
                connection.next,
                connection.theirs,
                ACK,
                header.as_bytes(),
            )));
            connection.next = connection.next.wrapping_add(header.len() as u32);
            connection.unsent = length;
        }
        if new && segment.fin() {
            connection.theirs = connection.theirs.wrapping_add(1);
            queue.push_back(Unit::Frame(tcp(
                self.ip,
                port,
                connection.next,
                connection.theirs,
                FIN | ACK,
                &[],
            )));
        }
        let window = u64::from(segment.window_size()) << connection.scale;
        loop {
            let under_way = u64::from(connection.next.wrapping_sub(connection.oldest));
            let fits = connection
                .unsent
                .min(self.unit)
                .min(window.saturating_sub(under_way));
            // A part of a unit only where it is the last or the window holds no whole one.
            if fits == 0 || (fits < self.unit && fits < connection.unsent && under_way > 0) {
                return;
            }
            let (sequence, acknowledged) = (connection.next, connection.theirs);
            queue.push_back(if fits == self.unit {
                Unit::Segments {
                    port,
                    sequence,
                    acknowledged,
                }
            } else {
                Unit::Frame(tcp(
                    self.ip,
                    port,
                    sequence,
                    acknowledged,
                    ACK,
                    &vec![0x55; fits as usize],
                ))
            });
            connection.next = connection.next.wrapping_add(fits as u32);
            connection.unsent -= fits;
        }
    }
}
