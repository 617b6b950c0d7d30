//! From packets to figures: when a download began and when it was complete, seen from outside the guest.
//!
//! The client's packets suffice: its request, and its acknowledgements up to the last byte. The few small packets of
//! the server that matter (a TFTP OACK) pass the capture's filter too.

use std::net::IpAddr;
use std::ops::Range;

use crate::protocol::TransferProtocol;
use wireboot_observe::{Content, Frame, LinkType};

/// What one captured packet says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A DHCPDISCOVER, or what begins DHCPv6 where a boot file is asked for. (Firmware asks without, too, for its own address.)
    Discover,
    /// A TFTP read request, from the client's transfer port.
    ReadRequest {
        /// The client's transfer port.
        port: u16,
        /// The file asked for, as asked.
        file: String,
    },
    /// A TFTP option acknowledgement to the client.
    OptionAck {
        /// The client's transfer port.
        port: u16,
        /// The block size in bytes, where it was granted.
        block_size: Option<u64>,
    },
    /// TFTP data to the client.
    Data {
        /// The client's transfer port.
        port: u16,
    },
    /// A TFTP acknowledgement of the client.
    Ack {
        /// The client's transfer port.
        port: u16,
        /// The block acknowledged.
        block: u16,
    },
    /// A TFTP error, in either direction.
    Error {
        /// The client's transfer port.
        port: u16,
        /// The sender's words (RFC 1350, section 5); may be empty.
        message: String,
    },
    /// A segment of the client's to TCP port 80.
    FromClient {
        /// The client's port.
        port: u16,
        /// Its sequence number.
        sequence: u32,
        /// Its acknowledgement number.
        acknowledged: u32,
        /// The GET request it begins, if it does.
        get: Option<Get>,
    },
    /// A segment of the server's from TCP port 80 that carries data.
    FromServer {
        /// The client's port.
        port: u16,
    },
}

/// A GET request (RFC 9110 section 9.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get {
    /// The target, as asked.
    pub target: String,
    /// The bytes asked for, where not all of them are: the first, and where they end if that is said.
    pub range: Option<(u64, Option<u64>)>,
}

const HTTP: u16 = 80;
const TFTP: u16 = 69;
const DHCP_SERVER: u16 = 67;
const DHCPV6_SERVER: u16 = 547;
/// Message types and options of DHCPv6 (RFC 8415 sections 7.3 and 21.7, RFC 5970 section 3.1).
const SOLICIT: u8 = 1;
const INFORMATION_REQUEST: u8 = 11;
const OPTION_ORO: u16 = 6;
const OPT_BOOTFILE_URL: u16 = 59;

impl Packet {
    /// Reads an Ethernet frame, which the capture may have cut short. `None` for what is of no interest.
    #[must_use]
    pub fn parse(frame: &[u8], server: IpAddr) -> Option<Self> {
        let Content::Ip(ip) = Frame::parse(LinkType::Ethernet, frame)?.content else {
            return None;
        };
        let from_server = ip.source == server;
        if let Some(udp) = ip.udp() {
            return Self::udp(
                udp.source_port,
                udp.destination_port,
                udp.payload,
                from_server,
            );
        }
        let tcp = ip.tcp()?;
        let segment = tcp.segment;
        if from_server && segment.src_port() == HTTP {
            (tcp.length > 0).then(|| Self::FromServer {
                port: segment.dst_port(),
            })
        } else if !from_server && segment.dst_port() == HTTP {
            Some(Self::FromClient {
                port: segment.src_port(),
                sequence: segment.seq_number().0 as u32,
                acknowledged: segment.ack_number().0 as u32,
                get: Get::parse(segment.payload()),
            })
        } else {
            None
        }
    }

    fn udp(source: u16, destination: u16, payload: &[u8], from_server: bool) -> Option<Self> {
        if destination == DHCP_SERVER {
            return is_discover(payload).then_some(Self::Discover);
        }
        if destination == DHCPV6_SERVER {
            return is_solicit(payload).then_some(Self::Discover);
        }
        let (opcode, rest) = payload.split_first_chunk::<2>()?;
        match (u16::from_be_bytes(*opcode), from_server) {
            (1, false) if destination == TFTP => {
                let file = rest.split(|&byte| byte == 0).next()?;
                Some(Self::ReadRequest {
                    port: source,
                    file: String::from_utf8_lossy(file).into_owned(),
                })
            }
            (3, true) => Some(Self::Data { port: destination }),
            (4, false) => Some(Self::Ack {
                port: source,
                block: u16::from_be_bytes(*rest.first_chunk()?),
            }),
            (5, _) => {
                let text = rest.get(2..)?.split(|&byte| byte == 0).next()?;
                let port = if from_server { destination } else { source };
                Some(Self::Error {
                    port,
                    message: String::from_utf8_lossy(text).into_owned(),
                })
            }
            (6, true) => Some(Self::OptionAck {
                port: destination,
                block_size: option(rest, b"blksize"),
            }),
            _ => None,
        }
    }
}

/// RFC 2131: BOOTREQUEST with option 53 = 1. The options begin after 236 bytes and the magic cookie.
fn is_discover(payload: &[u8]) -> bool {
    let Some(mut options) = payload.get(240..).filter(|_| payload.first() == Some(&1)) else {
        return false;
    };
    while let [code, rest @ ..] = options {
        match (code, rest) {
            (0, _) => options = rest,
            (53, [_, kind, ..]) => return *kind == 1,
            (_, [length, rest @ ..]) => {
                options = rest.get(usize::from(*length)..).unwrap_or_default()
            }
            _ => return false,
        }
    }
    false
}

/// A Solicit or Information-request of DHCPv6 that asks for a boot file. The options begin after type and transaction id.
fn is_solicit(payload: &[u8]) -> bool {
    let [SOLICIT | INFORMATION_REQUEST, _, _, _, options @ ..] = payload else {
        return false;
    };
    let mut options = options;
    while let [c0, c1, l0, l1, rest @ ..] = options {
        let length = usize::from(u16::from_be_bytes([*l0, *l1]));
        let Some((value, rest)) = rest.split_at_checked(length) else {
            return false;
        };
        if u16::from_be_bytes([*c0, *c1]) == OPTION_ORO {
            let mut codes = value.chunks_exact(2);
            return codes.any(|code| code == OPT_BOOTFILE_URL.to_be_bytes());
        }
        options = rest;
    }
    false
}

/// The numeric value of a TFTP option (RFC 2347: names and values, each ended by a zero byte).
pub(super) fn option(options: &[u8], name: &[u8]) -> Option<u64> {
    let mut strings = options.split(|&byte| byte == 0);
    while let (Some(key), Some(value)) = (strings.next(), strings.next()) {
        if key.eq_ignore_ascii_case(name) {
            return str::from_utf8(value).ok()?.parse().ok();
        }
    }
    None
}

impl Get {
    /// Reads a segment that may begin a request. The capture may have cut the request short behind the header that matters.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        if !payload.starts_with(b"GET ") {
            return None;
        }
        // More than fit into what is captured of a packet.
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut request = httparse::Request::new(&mut headers);
        request.parse(payload).ok()?;
        let target = request.path?.to_owned();
        let range = request
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case("range"))
            .and_then(|header| byte_range(str::from_utf8(header.value).ok()?));
        Some(Self { target, range })
    }
}

/// A range of bytes with a first one (RFC 9110 section 14.1.2), as [`Get::range`] has it.
fn byte_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (first, last) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
    let end = match last {
        "" => None,
        last => Some(last.parse::<u64>().ok()?.checked_add(1)?),
    };
    Some((first.parse().ok()?, end))
}

/// Watches for the download of one file.
#[derive(Debug)]
pub struct Watch {
    file: String,
    bytes: u64,
    progress: Progress,
    error: Option<String>,
}

/// When a download began and ended, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// When the request was seen.
    pub start: f64,
    /// The acknowledgement of the last byte.
    pub end: f64,
}

#[derive(Debug)]
enum Progress {
    Nothing,
    Tftp {
        port: u16,
        start: f64,
        last: f64,
        block_size: u64,
        block: u64,
    },
    Http {
        start: f64,
        last: f64,
        /// Every request for the file or a part of it, on whatever connection, in order.
        answers: Vec<ObservedResponse>,
    },
}

/// What came in answer to a GET for the file or a part of it.
#[derive(Debug)]
struct ObservedResponse {
    port: u16,
    /// The request's own sequence number.
    sequence: u32,
    /// The sequence number of the answer's first byte.
    first: u32,
    /// Which of the file's bytes were asked for.
    asked: Range<u64>,
    /// Bytes that the client has acknowledged, its header included.
    received: u64,
}

/// RFC 1350's block size, where no other was agreed on.
const DEFAULT_BLOCK: u64 = 512;
/// No header of an HTTP answer is longer than this many bytes; what the client acknowledges beyond is a next answer.
const LONGEST_HEADER: u64 = 8192;

impl Watch {
    /// For the file named `file` of `bytes` bytes.
    #[must_use]
    pub fn new(file: &str, bytes: u64) -> Self {
        Self {
            file: file.to_owned(),
            bytes,
            progress: Progress::Nothing,
            error: None,
        }
    }

    /// Takes note of a packet.
    pub fn packet(&mut self, time: f64, packet: &Packet) {
        match packet {
            Packet::ReadRequest { port, file } if self.is_wanted(file) => {
                // The same request again, from the same port before anything came, is the same transfer.
                let again = matches!(&self.progress, Progress::Tftp { port: old, block: 0, .. } if old == port);
                if !again && self.transfer().is_none() {
                    let (port, block_size) = (*port, DEFAULT_BLOCK);
                    self.progress = Progress::Tftp {
                        port,
                        start: time,
                        last: time,
                        block_size,
                        block: 0,
                    };
                }
            }
            Packet::FromClient {
                port,
                sequence,
                acknowledged,
                get: Some(get),
            } if self.is_wanted(&get.target) => {
                // It may acknowledge the end of what came before it on its connection.
                self.progress.packet(time, packet);
                if self.transfer().is_none() {
                    let (first, end) = get.range.unwrap_or((0, None));
                    let answer = ObservedResponse {
                        port: *port,
                        sequence: *sequence,
                        first: *acknowledged,
                        asked: first..end.unwrap_or(self.bytes).min(self.bytes),
                        received: 0,
                    };
                    self.progress.ask(time, answer, get.range.is_some());
                }
            }
            Packet::Error { port, message } if self.is_tftp(*port) => {
                self.error = Some(message.clone())
            }
            other => self.progress.packet(time, other),
        }
    }

    fn is_wanted(&self, target: &str) -> bool {
        is_called(target, &self.file)
    }

    fn is_tftp(&self, wanted: u16) -> bool {
        matches!(self.progress, Progress::Tftp { port, .. } if port == wanted)
    }

    /// When the request was seen.
    #[must_use]
    pub fn started(&self) -> Option<f64> {
        match self.progress {
            Progress::Nothing => None,
            Progress::Tftp { start, .. } | Progress::Http { start, .. } => Some(start),
        }
    }

    /// Bytes of the file that the client has acknowledged. With HTTP each answer's header is taken for bytes of the file, too.
    #[must_use]
    pub fn received(&self) -> u64 {
        match self.progress {
            Progress::Nothing => 0,
            Progress::Tftp {
                block_size, block, ..
            } => self.bytes.min(block * block_size),
            Progress::Http { ref answers, .. } => covered(answers),
        }
    }

    /// The download, once all of it was acknowledged. With HTTP its end may move on by a packet or two afterwards: the
    /// length of the answers' headers is not known.
    #[must_use]
    pub fn transfer(&self) -> Option<Transfer> {
        match self.progress {
            // The last block is the first that is not full (RFC 1350), so a file of whole blocks has one more.
            Progress::Tftp {
                start,
                last,
                block_size,
                block,
                ..
            } if block > self.bytes / block_size => Some(Transfer { start, end: last }),
            Progress::Http {
                start,
                last,
                ref answers,
            } if covered(answers) >= self.bytes => Some(Transfer { start, end: last }),
            _ => None,
        }
    }

    /// The error that either end of a TFTP transfer sent.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

impl Progress {
    fn packet(&mut self, time: f64, packet: &Packet) {
        match (self, packet) {
            (
                Self::Tftp {
                    port, block_size, ..
                },
                Packet::OptionAck {
                    port: to,
                    block_size: Some(agreed),
                },
            ) if port == to && *agreed > 0 => {
                *block_size = *agreed;
            }
            (
                Self::Tftp {
                    port, last, block, ..
                },
                Packet::Ack {
                    port: from,
                    block: low,
                },
            ) if port == from => {
                // Block numbers wrap at 16 bits; a step of less than half of that is a step forward.
                let step = low.wrapping_sub(*block as u16);
                if step > 0 && step < 0x8000 {
                    *block += u64::from(step);
                    *last = time;
                }
            }
            (
                Self::Http { last, answers, .. },
                Packet::FromClient {
                    port, acknowledged, ..
                },
            ) => {
                // One answer after another comes on a connection.
                let answer = answers.iter_mut().rfind(|answer| answer.port == *port);
                if answer.is_some_and(|answer| answer.acknowledge(*acknowledged)) {
                    *last = time;
                }
            }
            _ => {}
        }
    }

    /// A GET for the file or, with `part`, for a part of it.
    fn ask(&mut self, time: f64, answer: ObservedResponse, part: bool) {
        match self {
            Self::Http { answers, .. }
                if answers.iter().any(|old| {
                    (old.port, old.sequence, old.first)
                        == (answer.port, answer.sequence, answer.first)
                }) => {} // It was sent again.
            // A part goes on with a download, be it beside the other parts or behind a connection that broke. Who asks for all
            // of the file begins anew.
            Self::Http { answers, .. } if part => answers.push(answer),
            _ => {
                *self = Self::Http {
                    start: time,
                    last: time,
                    answers: vec![answer],
                }
            }
        }
    }
}

impl ObservedResponse {
    /// Whether it came further by this.
    fn acknowledge(&mut self, acknowledged: u32) -> bool {
        let step = acknowledged
            .wrapping_sub(self.first)
            .wrapping_sub(self.received as u32);
        let received = self.received + u64::from(step);
        let longest = self.asked.end.saturating_sub(self.asked.start) + LONGEST_HEADER;
        // One byte more is the server's FIN, which may come seconds later, with no data in it.
        let further = step > 1 && step < 0x8000_0000 && received <= longest;
        if further {
            self.received = received;
        }
        further
    }
}

/// Bytes of the file that have come in these answers, each counted once: a connection may bring what another was asked for, too,
/// until it is told to stop.
fn covered(answers: &[ObservedResponse]) -> u64 {
    let mut parts: Vec<Range<u64>> = answers
        .iter()
        .map(|answer| {
            let Range { start, end } = answer.asked;
            start..end.min(start.saturating_add(answer.received))
        })
        .collect();
    parts.sort_unstable_by_key(|part| part.start);
    let mut sum = 0;
    let mut at = 0;
    for part in parts {
        sum += part.end.saturating_sub(part.start.max(at));
        at = at.max(part.end);
    }
    sum
}

/// How long a machine waited for the first byte of a file, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waited {
    /// From its first DHCPDISCOVER or Solicit to the first packet with data of the file in it.
    pub seconds: f64,
    /// Of these, those until the firmware had all of the boot program that then asked for the file.
    pub firmware_seconds: Option<f64>,
}

/// Watches for the first byte of a file.
#[derive(Debug)]
pub struct FirstByte {
    file: String,
    discover: Option<f64>,
    /// The last acknowledgement by TFTP before the file was asked for.
    program: Option<f64>,
    request: Option<(TransferProtocol, u16)>,
    data: Option<f64>,
}

impl FirstByte {
    /// For the file named `file`.
    #[must_use]
    pub fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            discover: None,
            program: None,
            request: None,
            data: None,
        }
    }

    /// Takes note of a packet.
    pub fn packet(&mut self, time: f64, packet: &Packet) {
        match (packet, self.request) {
            (Packet::Discover, None) => {
                self.discover.get_or_insert(time);
            }
            (Packet::Ack { .. }, None) => self.program = Some(time),
            (Packet::ReadRequest { port, file }, None) if is_called(file, &self.file) => {
                self.request = Some((TransferProtocol::Tftp, *port))
            }
            (
                Packet::FromClient {
                    port,
                    get: Some(get),
                    ..
                },
                None,
            ) if is_called(&get.target, &self.file) => {
                self.request = Some((TransferProtocol::Http, *port))
            }
            // A request for a file's size alone ends with an error; the next one counts.
            (Packet::Error { port, .. }, Some((TransferProtocol::Tftp, wanted)))
                if *port == wanted && self.data.is_none() =>
            {
                self.request = None
            }
            (Packet::Data { port }, Some((TransferProtocol::Tftp, wanted)))
            | (Packet::FromServer { port }, Some((TransferProtocol::Http, wanted)))
                if *port == wanted =>
            {
                self.data.get_or_insert(time);
            }
            _ => {}
        }
    }

    /// The times, once they are known.
    #[must_use]
    pub fn waited(&self) -> Option<Waited> {
        let discover = self.discover?;
        Some(Waited {
            seconds: self.data? - discover,
            firmware_seconds: self.program.map(|program| program - discover),
        })
    }
}

/// Whether what was asked for, a path or a URL, is a file of this name.
pub(crate) fn is_called(target: &str, name: &str) -> bool {
    target.rsplit('/').next() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{IpHeaders, PacketBuilder, PacketBuilderStep};
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// A host and its port.
    type HostPort = (IpAddr, u16);

    /// A client and a server of either version.
    const ENDS: [(IpAddr, IpAddr); 2] = [
        (
            IpAddr::V4(Ipv4Addr::new(10, 77, 0, 50)),
            IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)),
        ),
        (
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 0x50)),
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 1)),
        ),
    ];

    fn ip(from: HostPort, to: HostPort) -> PacketBuilderStep<IpHeaders> {
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        match (from.0, to.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), 64),
            (IpAddr::V6(from), IpAddr::V6(to)) => ethernet.ipv6(from.octets(), to.octets(), 64),
            _ => panic!("two versions in a packet"),
        }
    }

    fn is_server(end: HostPort) -> bool {
        ENDS.iter().any(|(_, server)| *server == end.0)
    }

    fn udp(from: HostPort, to: HostPort, payload: &[u8]) -> Option<Packet> {
        let mut frame = Vec::new();
        let builder = ip(from, to).udp(from.1, to.1);
        builder.write(&mut frame, payload).unwrap();
        Packet::parse(&frame, if is_server(from) { from.0 } else { to.0 })
    }

    fn tcp(
        from: HostPort,
        to: HostPort,
        sequence: u32,
        ack: u32,
        payload: &[u8],
        keep: usize,
    ) -> Option<Packet> {
        let mut frame = Vec::new();
        let builder = ip(from, to).tcp(from.1, to.1, sequence, 1000).ack(ack);
        builder.write(&mut frame, payload).unwrap();
        frame.truncate(keep);
        Packet::parse(&frame, if is_server(from) { from.0 } else { to.0 })
    }

    #[test]
    fn packets_are_told_apart() {
        for (client, server) in ENDS {
            told_apart(client, server);
        }
    }

    fn told_apart(client: IpAddr, server: IpAddr) {
        let (tftp, http) = ((server, 69), (server, 80));
        let (client, server) = ((client, 2000), (server, 3000));
        let request = udp(client, tftp, b"\0\x01dir/64M.efi\0octet\0tsize\x000\0");
        assert_eq!(
            request,
            Some(Packet::ReadRequest {
                port: 2000,
                file: "dir/64M.efi".into()
            })
        );
        let granted = udp(
            server,
            client,
            b"\0\x06tsize\x0067108864\0BLKSIZE\x001468\0",
        );
        assert_eq!(
            granted,
            Some(Packet::OptionAck {
                port: 2000,
                block_size: Some(1468)
            })
        );
        assert_eq!(
            udp(client, server, b"\0\x04\x01\x02"),
            Some(Packet::Ack {
                port: 2000,
                block: 258
            })
        );
        assert_eq!(
            udp(server, client, b"\0\x03\0\x01data"),
            Some(Packet::Data { port: 2000 })
        );
        let error = udp(client, server, b"\0\x05\0\0User aborted\0");
        assert_eq!(
            error,
            Some(Packet::Error {
                port: 2000,
                message: "User aborted".into()
            })
        );
        let get = tcp(client, http, 7, 9, b"GET /64M.efi HTTP/1.1\r\n", 200);
        assert_eq!(
            get,
            Some(Packet::FromClient {
                port: 2000,
                sequence: 7,
                acknowledged: 9,
                get: Some(Get {
                    target: "/64M.efi".into(),
                    range: None
                })
            })
        );
        assert_eq!(udp(client, server, b"\0"), None);
    }

    #[test]
    fn data_of_the_server_is_seen_in_a_packet_cut_short() {
        for ((client, server), headers) in ENDS.into_iter().zip([54, 74]) {
            let (client, server) = ((client, 2000), (server, 80));
            assert_eq!(
                tcp(server, client, 1, 1, &[0; 1400], headers),
                Some(Packet::FromServer { port: 2000 })
            );
            assert_eq!(tcp(server, client, 1, 1, &[], headers), None);
        }
    }

    #[test]
    fn a_range_is_read_from_a_request_cut_short() {
        let get = |range: &str| {
            let request = format!(
                "GET /64M.efi HTTP/1.1\r\nHost: 10.77.0.1\r\nrange: {range}\r\nIf-Range: \"a"
            );
            Get::parse(request.as_bytes()).unwrap()
        };
        assert_eq!(get("bytes=5-9").target, "/64M.efi");
        assert_eq!(get("bytes=5-9").range, Some((5, Some(10))));
        assert_eq!(get("bytes=5-").range, Some((5, None)));
        for unknown in ["bytes=-5", "lines=1-2", "bytes=1-18446744073709551615"] {
            assert_eq!(get(unknown).range, None);
        }
        assert_eq!(Get::parse(b"GET /64M.e"), None);
        assert_eq!(Get::parse(b"HEAD /64M.efi HTTP/1.1\r\n"), None);
    }

    #[test]
    fn discover_is_told_from_request() {
        let message = |kind| {
            let mut message = vec![0; 240];
            message[0] = 1;
            message.extend([0, 61, 2, 53, 53, 53, 1, kind, 255]);
            let (from, to) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
            udp((from.into(), 68), (to.into(), 67), &message)
        };
        assert_eq!(message(1), Some(Packet::Discover));
        assert_eq!(message(3), None);
    }

    #[test]
    fn only_who_asks_for_a_boot_file_begins() {
        let message = |kind, codes: &[u8]| {
            let mut message = vec![kind, 1, 2, 3, 0, 8, 0, 2, 0, 0, 0, 6, 0];
            message.push(codes.len() as u8);
            message.extend(codes);
            let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
            udp((ENDS[1].0, 546), (to.into(), 547), &message)
        };
        assert_eq!(message(1, &[0, 23, 0, 59]), Some(Packet::Discover));
        assert_eq!(message(11, &[0, 59]), Some(Packet::Discover));
        // Firmware's own address; a Request; an option that is cut.
        assert_eq!(message(1, &[0, 23, 59, 0]), None);
        assert_eq!(message(3, &[0, 59]), None);
        assert!(!is_solicit(&[1, 0, 0, 0, 0, 6, 0, 4, 0, 59]));
    }

    fn request(port: u16) -> Packet {
        Packet::ReadRequest {
            port,
            file: "/1M.efi".into(),
        }
    }

    #[test]
    fn tftp_probe_for_the_size_is_not_the_transfer() {
        let mut watch = Watch::new("1M.efi", 1 << 20);
        watch.packet(1.0, &request(10));
        watch.packet(
            1.1,
            &Packet::Error {
                port: 10,
                message: "aborted".into(),
            },
        );
        watch.packet(2.0, &request(11));
        watch.packet(
            2.1,
            &Packet::OptionAck {
                port: 11,
                block_size: Some(1024),
            },
        );
        watch.packet(
            2.2,
            &Packet::Ack {
                port: 11,
                block: 1024,
            },
        );
        assert_eq!((watch.transfer(), watch.received()), (None, 1 << 20));
        // The empty block that ends a file of whole blocks.
        watch.packet(
            2.5,
            &Packet::Ack {
                port: 11,
                block: 1025,
            },
        );
        assert_eq!(
            watch.transfer(),
            Some(Transfer {
                start: 2.0,
                end: 2.5
            })
        );
    }

    #[test]
    fn tftp_request_sent_again_keeps_its_start() {
        let mut watch = Watch::new("1M.efi", 1000);
        watch.packet(1.0, &request(10));
        watch.packet(2.0, &request(10));
        watch.packet(2.5, &Packet::Ack { port: 10, block: 1 });
        watch.packet(3.0, &Packet::Ack { port: 10, block: 2 });
        assert_eq!(
            watch.transfer(),
            Some(Transfer {
                start: 1.0,
                end: 3.0
            })
        );
    }

    fn client(sequence: u32, acknowledged: u32, get: Option<&str>) -> Packet {
        let get = get.map(|target| Get {
            target: target.to_owned(),
            range: None,
        });
        Packet::FromClient {
            port: 5,
            sequence,
            acknowledged,
            get,
        }
    }

    fn part(port: u16, acknowledged: u32, range: Range<u64>) -> Packet {
        Packet::FromClient {
            port,
            sequence: acknowledged,
            acknowledged,
            get: Some(Get {
                target: "/1M.efi".into(),
                range: Some((range.start, Some(range.end))),
            }),
        }
    }

    fn acknowledgement(port: u16, acknowledged: u32) -> Packet {
        Packet::FromClient {
            port,
            sequence: 1,
            acknowledged,
            get: None,
        }
    }

    #[test]
    fn http_parts_on_several_connections_are_one_download() {
        let mut watch = Watch::new("1M.efi", 10_000);
        watch.packet(1.0, &client(1, 0, Some("/1M.efi")));
        watch.packet(1.1, &client(9, 2000, None));
        watch.packet(1.2, &part(6, 0, 7000..10_000));
        watch.packet(1.2, &part(7, 0, 4000..7000));
        watch.packet(1.3, &acknowledgement(6, 3200));
        // The first connection brings bytes that it need not, and counts them once.
        watch.packet(1.4, &client(9, 4500, None));
        assert_eq!((watch.transfer(), watch.received()), (None, 7500));
        // The end of one part is acknowledged by the request for the next.
        watch.packet(1.5, &part(7, 1200, 5000..7000));
        assert_eq!((watch.transfer(), watch.received()), (None, 8200));
        watch.packet(1.6, &acknowledgement(7, 2900));
        assert_eq!(watch.transfer(), None);
        watch.packet(1.7, &acknowledgement(7, 3400));
        assert_eq!(
            watch.transfer(),
            Some(Transfer {
                start: 1.0,
                end: 1.7
            })
        );
    }

    #[test]
    fn http_goes_on_where_a_connection_broke() {
        let mut watch = Watch::new("1M.efi", 10_000);
        watch.packet(1.0, &client(1, 0, Some("/1M.efi")));
        watch.packet(1.1, &client(9, 6200, None));
        watch.packet(4.0, &part(6, 70, 6000..10_000));
        watch.packet(4.1, &acknowledgement(6, 70 + 4200));
        assert_eq!(
            watch.transfer(),
            Some(Transfer {
                start: 1.0,
                end: 4.1
            })
        );
    }

    #[test]
    fn http_asked_for_whole_again_begins_anew() {
        let mut watch = Watch::new("1M.efi", 10_000);
        watch.packet(1.0, &client(1, 0, Some("/1M.efi")));
        watch.packet(1.1, &client(9, 6200, None));
        watch.packet(4.0, &client(20, 6200, Some("/1M.efi")));
        assert_eq!((watch.started(), watch.received()), (Some(4.0), 0));
    }

    #[test]
    fn http_ends_with_the_last_byte_not_with_the_fin() {
        let mut watch = Watch::new("1M.efi", 1 << 20);
        watch.packet(0.5, &client(1, 0xffff_ff00, Some("/wireboot.conf")));
        watch.packet(1.0, &client(100, 0xffff_ff80, Some("http://server/1M.efi")));
        watch.packet(1.1, &client(100, 0xffff_ff80, Some("http://server/1M.efi")));
        let end = 0xffff_ff80u32.wrapping_add((1 << 20) + 240);
        watch.packet(1.5, &client(200, end - 4000, None));
        assert_eq!(watch.transfer(), None);
        watch.packet(2.0, &client(200, end, None));
        watch.packet(7.0, &client(200, end + 1, None));
        assert_eq!(
            watch.transfer(),
            Some(Transfer {
                start: 1.0,
                end: 2.0
            })
        );
    }

    #[test]
    fn a_second_download_does_not_move_the_first() {
        let mut watch = Watch::new("1M.efi", 1000);
        watch.packet(1.0, &client(1, 0, Some("/1M.efi")));
        watch.packet(2.0, &client(9, 1200, None));
        watch.packet(3.0, &client(9, 1200, Some("/1M.efi")));
        watch.packet(4.0, &client(9, 11_000, None));
        assert_eq!(
            watch.transfer(),
            Some(Transfer {
                start: 1.0,
                end: 2.0
            })
        );
    }

    #[test]
    fn first_byte_is_that_after_the_first_discover() {
        let mut first = FirstByte::new("1M.efi");
        first.packet(1.0, &Packet::Discover);
        first.packet(5.0, &Packet::Discover);
        first.packet(5.5, &request(10));
        first.packet(
            5.6,
            &Packet::Error {
                port: 10,
                message: String::new(),
            },
        );
        first.packet(5.7, &request(11));
        first.packet(5.75, &Packet::Data { port: 11 });
        first.packet(5.8, &Packet::Data { port: 11 });
        let waited = Waited {
            seconds: 4.75,
            firmware_seconds: None,
        };
        assert_eq!(first.waited(), Some(waited));
    }

    #[test]
    fn first_byte_is_of_the_file_and_not_of_the_program_that_asks_for_it() {
        let mut first = FirstByte::new("1M.efi");
        first.packet(1.0, &Packet::Discover);
        let file = "program.efi".to_owned();
        first.packet(1.25, &Packet::ReadRequest { port: 10, file });
        for (time, block) in [(1.5, 1), (2.0, 2)] {
            first.packet(time - 0.125, &Packet::Data { port: 10 });
            first.packet(time, &Packet::Ack { port: 10, block });
        }
        first.packet(3.0, &Packet::Discover);
        first.packet(3.25, &client(1, 0, Some("/other.efi")));
        first.packet(3.5, &Packet::FromServer { port: 5 });
        first.packet(4.0, &client(2, 0, Some("/1M.efi")));
        assert_eq!(first.waited(), None);
        first.packet(4.5, &Packet::FromServer { port: 5 });
        let waited = Waited {
            seconds: 3.5,
            firmware_seconds: Some(1.0),
        };
        assert_eq!(first.waited(), Some(waited));
    }

    proptest! {
        #[test]
        fn tftp_of_any_size_and_window_ends_at_its_last_block(bytes in 0u64..1 << 30, block_size in 512u64..9000, window in 1u64..1000) {
            let mut watch = Watch::new("1M.efi", bytes);
            watch.packet(1.0, &request(10));
            watch.packet(1.1, &Packet::OptionAck { port: 10, block_size: Some(block_size) });
            let last = bytes / block_size + 1;
            let mut block = 0;
            while block < last {
                prop_assert_eq!(watch.transfer(), None);
                block = last.min(block + window);
                watch.packet(block as f64, &Packet::Ack { port: 10, block: block as u16 });
            }
            prop_assert_eq!(watch.transfer(), Some(Transfer { start: 1.0, end: last as f64 }));
        }

        #[test]
        fn http_in_any_parts_ends_with_the_last_of_them(
            sizes in prop::collection::vec(1u64..5000, 1..20),
            header in 2u64..400,
            shuffle in any::<u64>(),
        ) {
            let bytes = sizes.iter().sum();
            let mut watch = Watch::new("1M.efi", bytes);
            let mut at = 0;
            let mut ends = Vec::new();
            for (port, size) in (0..).zip(sizes) {
                watch.packet(1.0, &part(port, 0, at..at + size));
                at += size;
                ends.push((port, size + header));
            }
            fastrand::Rng::with_seed(shuffle).shuffle(&mut ends);
            let last = ends.len() as f64;
            for (time, (port, end)) in (1..).zip(ends) {
                prop_assert_eq!(watch.transfer(), None);
                watch.packet(f64::from(time), &acknowledgement(port, end as u32));
            }
            prop_assert_eq!(watch.received(), bytes);
            prop_assert_eq!(watch.transfer(), Some(Transfer { start: 1.0, end: last }));
        }

        #[test]
        fn no_frame_breaks_the_parser(frame in prop::collection::vec(any::<u8>(), 0..400)) {
            for (_, server) in ENDS {
                let _ = Packet::parse(&frame, server);
            }
        }
    }
}
