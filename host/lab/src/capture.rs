//! What went over the wire: packets to a file while it happens, transfers out of the file afterwards.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use etherparse::{LaxSlicedPacket, TcpOptionElement, TcpSlice, TransportSlice};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use crate::ip::IpPacket;
use crate::netns::Lab;
use crate::pcap::Packets;

/// How much of each packet is kept, in bytes: all headers, and a request's first line.
const SNAP_LENGTH: &str = "256";

/// Waits until tcpdump, whose error output these messages are, captures.
///
/// # Errors
/// When it ends before, with what it said.
pub fn wait_until_listening(messages: &mut impl BufRead) -> Result<()> {
    let mut said = String::new();
    while !said.contains("listening on") {
        if messages
            .read_line(&mut said)
            .context("reading tcpdump's messages")?
            == 0
        {
            bail!("tcpdump did not start: {}", said.trim());
        }
    }
    Ok(())
}

/// A capture under way. It ends with this value.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Child,
    messages: BufReader<std::process::ChildStderr>,
    file: PathBuf,
}

impl Capture {
    /// Captures an interface's packets that match `filter` (a pcap filter, empty for all) to `file`, from when this returns.
    ///
    /// # Errors
    /// When tcpdump does not start, with what it said.
    pub fn start(lab: &Lab, interface: &str, filter: &str, file: &Path) -> Result<Self> {
        let mut command = lab.command("tcpdump");
        // A large buffer, because the writer shares the processors with QEMU. As root: a user namespace has no other user.
        command.args([
            "-i",
            interface,
            "-n",
            "-B",
            "65536",
            "-s",
            SNAP_LENGTH,
            "--time-stamp-precision=nano",
            "-Z",
            "root",
            "-w",
        ]);
        command
            .arg(file)
            .arg(filter)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut tcpdump = command
            .spawn()
            .context("starting tcpdump: is it installed?")?;
        let mut messages = BufReader::new(
            tcpdump
                .stderr
                .take()
                .context("tcpdump has no error output")?,
        );
        wait_until_listening(&mut messages)?;
        Ok(Self {
            tcpdump,
            messages,
            file: file.to_owned(),
        })
    }

    /// Ends the capture and reads it.
    ///
    /// # Errors
    /// When packets were lost to the capture, or its file cannot be read.
    pub fn finish(mut self) -> Result<Vec<Transfer>> {
        // The kernel hands packets over in blocks, at the latest after a second; those of an unfinished block would be missing.
        std::thread::sleep(Duration::from_millis(1200));
        let pid = Pid::from_raw(i32::try_from(self.tcpdump.id()).context("tcpdump's process id")?);
        kill(pid, Signal::SIGINT).context("stopping tcpdump")?;
        let mut said = String::new();
        self.messages
            .read_to_string(&mut said)
            .context("reading tcpdump's messages")?;
        self.tcpdump.wait().context("waiting for tcpdump")?;
        if let Some(dropped) = said
            .lines()
            .find(|line| line.contains("dropped by kernel") && !line.starts_with("0 "))
        {
            bail!("the capture is not whole: {dropped}");
        }
        transfers(&self.file)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
    }
}

/// The protocol of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Trivial File Transfer Protocol, RFC 1350.
    Tftp,
    /// HTTP/1 without encryption, RFC 9112.
    Http,
}

/// One file on its way from a server to a client, as the wire showed it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transfer {
    /// The protocol.
    pub protocol: Protocol,
    /// What was asked for: the file name, or the request's target.
    pub file: String,
    /// Who asked.
    pub client: SocketAddr,
    /// The request's first appearance, in seconds since the Unix epoch.
    pub request: f64,
    /// The last acknowledgement, in seconds since the Unix epoch: for TFTP the last ACK, for HTTP the first that covers the last byte.
    pub last_ack: f64,
    /// Payload bytes, each counted once: for TFTP the file, for HTTP the response with its header.
    pub bytes: u64,
    /// Data packets as they pass on a real wire: what a large segment stands for, counted by the connection's MSS.
    pub data_packets: u64,
    /// Packets from the client after its request.
    pub client_packets: u64,
    /// Data packets (TFTP) or segments as captured (HTTP) that carried nothing new.
    pub repeated: u64,
    /// TFTP: the options that the server agreed to, as `blksize=1468 windowsize=4`; HTTP: empty.
    pub options: String,
    #[serde(skip)]
    state: State,
}

impl Transfer {
    /// From the first request to the last acknowledgement, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.last_ack - self.request
    }
}

/// Where a transfer stands while the capture is read.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    /// TFTP: the highest block in order. HTTP: sequence number after the highest byte of the response.
    highest: u32,
    /// HTTP: sequence number of the response's first byte.
    first: u32,
    /// HTTP: the highest acknowledgement lies here.
    acknowledged: u32,
    /// HTTP: the segment size.
    segment: u32,
}

/// Reads the TFTP and HTTP transfers in a capture file, in the order of their requests.
///
/// # Errors
/// When the file cannot be read or is no capture. Packets that make no sense are passed over.
pub fn transfers(file: &Path) -> Result<Vec<Transfer>> {
    let reading = || format!("reading {}", file.display());
    let packets = Packets::new(File::open(file).with_context(reading)?).with_context(reading)?;
    let mut found = Transfers::default();
    for packet in packets {
        let packet = packet.with_context(reading)?;
        let Ok(slices) = LaxSlicedPacket::from_ethernet(&packet.data) else {
            continue;
        };
        let Some(ip) = slices.net.as_ref().and_then(IpPacket::of) else {
            continue;
        };
        let (from, to) = (ip.source, ip.destination);
        let time = packet.time;
        match &slices.transport {
            Some(TransportSlice::Udp(udp)) => {
                let length = usize::from(udp.length()).saturating_sub(8);
                found.udp(
                    time,
                    (from, udp.source_port()),
                    (to, udp.destination_port()),
                    udp.payload(),
                    length,
                );
            }
            Some(TransportSlice::Tcp(tcp)) => {
                let length = ip.payload.saturating_sub(tcp.header_slice().len());
                found.tcp(
                    time,
                    (from, tcp.source_port()),
                    (to, tcp.destination_port()),
                    tcp,
                    length,
                );
            }
            _ => {}
        }
    }
    Ok(found.all)
}

type End = (IpAddr, u16);

#[derive(Default)]
struct Transfers {
    all: Vec<Transfer>,
    /// The last transfer of each client end and server, as its place in `all`.
    last: HashMap<(Protocol, End, IpAddr), usize>,
    /// The segment sizes that the ends of a connection announced, the smaller of both.
    segments: HashMap<(End, End), u32>,
}

// The map's key.
impl std::hash::Hash for Protocol {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (*self as u8).hash(state);
    }
}

impl Transfers {
    fn begin(
        &mut self,
        protocol: Protocol,
        time: f64,
        client: End,
        server: IpAddr,
        file: String,
        state: State,
    ) {
        self.last.insert((protocol, client, server), self.all.len());
        self.all.push(Transfer {
            protocol,
            file,
            client: SocketAddr::new(client.0, client.1),
            request: time,
            last_ack: time,
            bytes: 0,
            data_packets: 0,
            client_packets: 0,
            repeated: 0,
            options: String::new(),
            state,
        });
    }

    fn at(&mut self, protocol: Protocol, client: End, server: IpAddr) -> Option<&mut Transfer> {
        let index = *self.last.get(&(protocol, client, server))?;
        self.all.get_mut(index)
    }

    fn udp(&mut self, time: f64, from: End, to: End, payload: &[u8], length: usize) {
        let [0, operation, rest @ ..] = payload else {
            return;
        };
        let number = match rest {
            [high, low, ..] => u16::from_be_bytes([*high, *low]),
            _ => 0,
        };
        match operation {
            // RRQ. One that comes again for want of an answer belongs to the transfer that has begun.
            1 if to.1 == 69 => {
                let file = rest.split(|byte| *byte == 0).next().unwrap_or_default();
                let file = String::from_utf8_lossy(file).into_owned();
                let repeated = self
                    .at(Protocol::Tftp, from, to.0)
                    .is_some_and(|transfer| transfer.bytes == 0 && transfer.file == file);
                if !repeated {
                    self.begin(Protocol::Tftp, time, from, to.0, file, State::default());
                }
            }
            // DATA.
            3 => {
                let Some(transfer) = self.at(Protocol::Tftp, to, from.0) else {
                    return;
                };
                transfer.data_packets += 1;
                let next = transfer.state.highest.wrapping_add(1) as u16;
                // Ahead of the next block by less than half the number space: new, perhaps after a lost one.
                let ahead = number.wrapping_sub(next);
                if ahead < 0x8000 {
                    transfer.state.highest =
                        transfer.state.highest.wrapping_add(1 + u32::from(ahead));
                    transfer.bytes += length.saturating_sub(4) as u64;
                } else {
                    transfer.repeated += 1;
                }
            }
            // ACK.
            4 => {
                let Some(transfer) = self.at(Protocol::Tftp, from, to.0) else {
                    return;
                };
                transfer.client_packets += 1;
                transfer.last_ack = time;
            }
            // OACK: names and values by turns.
            6 => {
                let Some(transfer) = self.at(Protocol::Tftp, to, from.0) else {
                    return;
                };
                let words: Vec<_> = rest
                    .split(|byte| *byte == 0)
                    .map(String::from_utf8_lossy)
                    .collect();
                let pairs: Vec<_> = words.chunks_exact(2).map(|pair| pair.join("=")).collect();
                transfer.options = pairs.join(" ");
            }
            _ => {}
        }
    }

    fn tcp(&mut self, time: f64, from: End, to: End, tcp: &TcpSlice<'_>, length: usize) {
        let connection = if from < to { (from, to) } else { (to, from) };
        if tcp.syn() {
            let announced = tcp
                .options_iterator()
                .filter_map(Result::ok)
                .find_map(|option| match option {
                    TcpOptionElement::MaximumSegmentSize(size) => Some(u32::from(size)),
                    _ => None,
                });
            // RFC 9293, 3.7.1: 536 when there is none.
            let size = announced.unwrap_or(536);
            let known = self.segments.entry(connection).or_insert(size);
            *known = size.min(*known);
        }
        let length = length as u32;
        let payload = tcp.payload();
        if payload.starts_with(b"GET ") {
            let target = payload
                .split(|byte| *byte == b' ')
                .nth(1)
                .unwrap_or_default();
            let file = String::from_utf8_lossy(target).into_owned();
            let first = tcp.acknowledgment_number();
            let repeated = self
                .at(Protocol::Http, from, to.0)
                .is_some_and(|transfer| transfer.state.first == first);
            if !repeated {
                let segment = self
                    .segments
                    .get(&connection)
                    .copied()
                    .unwrap_or(1460)
                    .max(1);
                let state = State {
                    highest: first,
                    first,
                    acknowledged: first,
                    segment,
                };
                self.begin(Protocol::Http, time, from, to.0, file, state);
            }
            return;
        }
        if let Some(transfer) = self.at(Protocol::Http, to, from.0) {
            if length == 0 {
                return;
            }
            let end = tcp.sequence_number().wrapping_add(length);
            transfer.data_packets += u64::from(length.div_ceil(transfer.state.segment));
            // RFC 9293, 3.4: sequence numbers compare modulo 2^32.
            let new = end.wrapping_sub(transfer.state.highest);
            if new != 0 && new < 1 << 31 {
                transfer.bytes += u64::from(new);
                transfer.state.highest = end;
            } else {
                transfer.repeated += 1;
            }
        } else if let Some(transfer) = self.at(Protocol::Http, from, to.0) {
            transfer.client_packets += 1;
            let acknowledged = tcp.acknowledgment_number();
            let new = acknowledged.wrapping_sub(transfer.state.acknowledged);
            if tcp.ack() && new != 0 && new < 1 << 31 && transfer.bytes > 0 {
                // The FIN takes a number too; its acknowledgement is no byte's.
                let covered = transfer.state.acknowledged == transfer.state.highest;
                transfer.state.acknowledged = acknowledged;
                if !covered {
                    transfer.last_ack = time;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    use crate::ip::IpVersion;
    use etherparse::{Ethernet2Header, IpHeaders, PacketBuilderStep};

    /// A frame's headers up to IP, from or to the client.
    fn ip(version: IpVersion, from_client: bool) -> PacketBuilderStep<IpHeaders> {
        let ethernet: PacketBuilderStep<Ethernet2Header> = PacketBuilder::ethernet2([2; 6], [4; 6]);
        match version {
            IpVersion::V4 if from_client => ethernet.ipv4([10, 77, 0, 2], [10, 77, 0, 1], 64),
            IpVersion::V4 => ethernet.ipv4([10, 77, 0, 1], [10, 77, 0, 2], 64),
            IpVersion::V6 if from_client => ethernet.ipv6([0xfd; 16], [0xfc; 16], 64),
            IpVersion::V6 => ethernet.ipv6([0xfc; 16], [0xfd; 16], 64),
        }
    }

    /// A packet each tenth of a second, cut to `snap` bytes, written and read back.
    fn read_back(packets: &[Vec<u8>], snap: usize) -> Vec<Transfer> {
        let records: Vec<_> = packets
            .iter()
            .zip(10..)
            .map(|(packet, tenths)| {
                let kept = packet.get(..snap).unwrap_or(packet);
                (tenths / 10, tenths % 10 * 100_000, kept, packet.len())
            })
            .collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), crate::pcap::tests::capture(false, &records)).unwrap();
        transfers(file.path()).unwrap()
    }

    fn udp(
        version: IpVersion,
        from_client: bool,
        client_port: u16,
        server_port: u16,
        payload: &[u8],
    ) -> Vec<u8> {
        let ip = ip(version, from_client);
        let builder = if from_client {
            ip.udp(client_port, server_port)
        } else {
            ip.udp(server_port, client_port)
        };
        let mut packet = Vec::new();
        builder.write(&mut packet, payload).unwrap();
        packet
    }

    fn data(version: IpVersion, number: u16, length: usize) -> Vec<u8> {
        let mut payload = vec![0, 3];
        payload.extend(number.to_be_bytes());
        payload.resize(4 + length, 0);
        udp(version, false, 2000, 3000, &payload)
    }

    #[test]
    fn a_tftp_transfer_counts_each_block_once() {
        tftp_counts_each_block_once(IpVersion::V4);
        tftp_counts_each_block_once(IpVersion::V6);
    }

    fn tftp_counts_each_block_once(version: IpVersion) {
        let packets = [
            udp(
                version,
                true,
                2000,
                69,
                b"\0\x01kernel\0octet\0windowsize\x004\0",
            ),
            udp(
                version,
                true,
                2000,
                69,
                b"\0\x01kernel\0octet\0windowsize\x004\0",
            ),
            udp(version, false, 2000, 3000, b"\0\x06windowsize\x004\0"),
            udp(version, true, 2000, 3000, b"\0\x04\0\0"),
            data(version, 1, 512),
            data(version, 2, 512),
            data(version, 2, 512),
            data(version, 3, 100),
            udp(version, true, 2000, 3000, b"\0\x04\0\x03"),
        ];
        let transfers = read_back(&packets, 80);
        let [transfer] = transfers.as_slice() else {
            panic!("{transfers:?}")
        };
        assert_eq!(
            (transfer.protocol, transfer.file.as_str()),
            (Protocol::Tftp, "kernel")
        );
        assert_eq!(
            (transfer.bytes, transfer.data_packets, transfer.repeated),
            (1124, 4, 1)
        );
        assert_eq!(transfer.options, "windowsize=4");
        assert_eq!(IpVersion::of(transfer.client.ip()), version);
        assert!(
            (transfer.seconds() - 0.8).abs() < 1e-6,
            "{}",
            transfer.seconds()
        );
    }

    fn tcp(
        version: IpVersion,
        from_client: bool,
        sequence: u32,
        acknowledgment: u32,
        syn: bool,
        payload: &[u8],
    ) -> Vec<u8> {
        let ip = ip(version, from_client);
        let mut builder = if from_client {
            ip.tcp(40000, 80, sequence, 65535)
        } else {
            ip.tcp(80, 40000, sequence, 65535)
        };
        builder = builder.ack(acknowledgment);
        if syn {
            builder = builder
                .syn()
                .options(&[TcpOptionElement::MaximumSegmentSize(1000)])
                .unwrap();
        }
        let mut packet = Vec::new();
        builder.write(&mut packet, payload).unwrap();
        packet
    }

    #[test]
    fn an_http_transfer_ends_with_the_ack_of_its_last_byte() {
        http_ends_with_the_ack_of_its_last_byte(IpVersion::V4);
        http_ends_with_the_ack_of_its_last_byte(IpVersion::V6);
    }

    fn http_ends_with_the_ack_of_its_last_byte(version: IpVersion) {
        // The server's numbers wrap in the middle of the response.
        let start = u32::MAX - 1500;
        let packets = [
            tcp(version, true, 99, 0, true, b""),
            tcp(version, false, start.wrapping_sub(1), 100, true, b""),
            tcp(
                version,
                true,
                100,
                start,
                false,
                b"GET /linux HTTP/1.1\r\n\r\n",
            ),
            tcp(version, false, start, 123, false, &[0; 2500]),
            tcp(version, true, 123, start.wrapping_add(2500), false, b""),
            tcp(
                version,
                false,
                start.wrapping_add(2500),
                123,
                false,
                &[0; 500],
            ),
            tcp(
                version,
                false,
                start.wrapping_add(2500),
                123,
                false,
                &[0; 500],
            ),
            tcp(version, true, 123, start.wrapping_add(3000), false, b""),
            // The acknowledgement of a FIN is no byte's.
            tcp(version, true, 123, start.wrapping_add(3001), false, b""),
        ];
        let transfers = read_back(&packets, 100);
        let [transfer] = transfers.as_slice() else {
            panic!("{transfers:?}")
        };
        assert_eq!(
            (transfer.protocol, transfer.file.as_str()),
            (Protocol::Http, "/linux")
        );
        assert_eq!(
            (transfer.bytes, transfer.data_packets, transfer.repeated),
            (3000, 5, 1)
        );
        assert!(
            (transfer.seconds() - 0.5).abs() < 1e-6,
            "{}",
            transfer.seconds()
        );
    }
}
