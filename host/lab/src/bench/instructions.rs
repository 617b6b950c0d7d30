//! What engine and protocols cost the processor, counted rather than timed: instructions per byte received, by valgrind's callgrind.
//!
//! ```text
//!  callgrind counts inside counted():   Service ── Engine ── LoopNic
//!  and not outside:                                             └ units and frames ─ Peer: a TFTP and HTTP server in memory
//! ```
//!
//! Of several engines, each has a NIC and a peer of its own, and takes its turn after the others.
//!
//! The NIC lends frames that are prepared once, so that what is counted is the engine's work and the copy to the destination.

use std::collections::VecDeque;
use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use etherparse::{
    PacketBuilder, SlicedPacket, TcpOptionElement, TcpSlice, TransportSlice, UdpSlice,
};
use serde::Serialize;
use wireboot_fetch::{Assistant, Command as Ask, Event, Lease, LeaseSource, Service};
use wireboot_net::{Instant, Ipv4Cidr, Memory};
use wireboot_nic::{
    Checksum, Counters, Fault, Frame, Nic, Offload, Properties, Receive, SendError, Steering,
    Transmit,
};
use wireboot_ring::{HeapBlock, prefix};

use super::evaluate;

/// A sort of stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stream {
    /// TFTP, blocks of 1468 bytes.
    Tftp,
    /// HTTP in units of up to 64 KiB, as a NIC hands them over that joins segments.
    Http,
    /// HTTP in single segments.
    HttpSegments,
    /// As `Http`, by two engines.
    HttpTwo,
    /// As `Http`, by four engines.
    HttpFour,
}

impl Stream {
    fn engines(self) -> usize {
        match self {
            Stream::HttpTwo => 2,
            Stream::HttpFour => 4,
            Stream::Tftp | Stream::Http | Stream::HttpSegments => 1,
        }
    }
}

/// Instructions per byte received of one sort of stream.
#[derive(Clone, Debug, Serialize)]
pub struct Instructions {
    /// What was received.
    pub stream: String,
    /// Bytes of payload received.
    pub bytes: u64,
    /// Instructions that it took.
    pub instructions: u64,
    /// Instructions per byte.
    pub per_byte: f64,
}

/// The file's size in bytes: enough for the start not to matter.
const BYTES: u64 = 64 << 20;

/// Counts all streams. An empty list when valgrind is not installed.
///
/// # Errors
/// When a stream does not come to its end.
pub fn count_all() -> Result<Vec<Instructions>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        log::info!("valgrind is not installed: no instructions are counted");
        return Ok(Vec::new());
    }
    let streams = [
        (Stream::Tftp, "TFTP, 1468-byte blocks"),
        (Stream::Http, "HTTP, joined segments"),
        (Stream::HttpSegments, "HTTP, single segments"),
        (Stream::HttpTwo, "HTTP, joined segments, two engines"),
        (Stream::HttpFour, "HTTP, joined segments, four engines"),
    ];
    streams
        .into_iter()
        .map(|(stream, name)| count(stream, name))
        .collect()
}

/// Runs this program under callgrind, which counts while [`counted`] runs.
fn count(stream: Stream, name: &str) -> Result<Instructions> {
    let file = tempfile::NamedTempFile::new().context("making a file for callgrind")?;
    let program = std::env::current_exe().context("finding this program's own file")?;
    let name_of_stream = stream
        .to_possible_value()
        .context("a stream without a name")?;
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--cache-sim=no",
            "--toggle-collect=*instructions*counted*",
        ])
        .arg(format!("--callgrind-out-file={}", file.path().display()))
        .arg(program)
        .args(["lab", "bench", "--receive", name_of_stream.get_name()])
        .output()
        .context("starting valgrind")?;
    if !output.status.success() {
        bail!(
            "counting instructions failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let profile = fs::read_to_string(file.path()).context("reading callgrind's output")?;
    let instructions = totals(&profile)
        .filter(|&count| count > 0)
        .context("callgrind counted nothing")?;
    Ok(Instructions {
        stream: name.to_owned(),
        bytes: BYTES,
        instructions,
        per_byte: instructions as f64 / BYTES as f64,
    })
}

/// The sum that callgrind writes at the end of its file.
fn totals(profile: &str) -> Option<u64> {
    profile
        .lines()
        .find_map(|line| line.strip_prefix("totals:")?.trim().parse().ok())
}

/// Receives a file over `stream` from a server in memory.
///
/// # Errors
/// When the file does not come whole.
pub fn receive(stream: Stream) -> Result<()> {
    receive_bytes(stream, BYTES)
}

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Passes between two turns of the engine.
const TURN_MICROS: i64 = 20;
/// Turns without an event after which the transfer counts as dead: a minute.
const MOST_IDLE_TURNS: u32 = 3_000_000;

fn receive_bytes(stream: Stream, bytes: u64) -> Result<()> {
    let (mut ask, commands) = wireboot_ring::channel(8);
    let (events, mut told) = wireboot_ring::channel(64);
    let steering = Steering::by_port(stream.engines());
    let (lead, links) = wireboot_fetch::team(&steering);
    let nic = LoopNic::new(stream);
    let service = match stream.engines() {
        1 => Service::new(nic, [7; 32], commands, events),
        _ => Service::with_assistants(nic, [7; 32], commands, events, lead),
    };
    let mut engines = vec![Running::Service(service)];
    for (index, link) in (8..).zip(links) {
        let assistant = Assistant::new(LoopNic::new(stream), [index; 32], link);
        engines.push(Running::Assistant(assistant));
    }
    let mut engines: Vec<(Running, Peer)> = engines
        .into_iter()
        .map(|engine| (engine, Peer::new(stream, bytes)))
        .collect();
    let scheme = if stream == Stream::Tftp {
        "tftp"
    } else {
        "http"
    };
    let url = format!("{scheme}://{SERVER}/file");
    for command in [Ask::Configure(lease()), Ask::Get { job: 1, url }] {
        ask.push(command)
            .ok()
            .context("the engine takes no commands")?;
    }
    let mut now = 0;
    let mut idle = 0;
    while idle < MOST_IDLE_TURNS {
        now += TURN_MICROS;
        idle += 1;
        for (engine, peer) in &mut engines {
            counted(engine, Instant::from_micros(now)).context("the engine")?;
            let nic = engine.nic();
            for frame in nic.transmit.sent.drain(..) {
                peer.frame(&frame, &mut nic.receive.queue);
            }
        }
        while let Some(event) = told.pop() {
            idle = 0;
            match event {
                Event::NeedMemory { job, bytes } => {
                    let bytes = usize::try_from(bytes).context("a file larger than memory")?;
                    let (memory, _) = prefix(HeapBlock::from(vec![0; bytes]));
                    ask.push(Ask::Memory {
                        job,
                        memory: Memory::new(memory),
                    })
                    .ok()
                    .context("the engine takes no memory")?;
                }
                Event::Done { result, .. } => {
                    let file = result.context("receiving")?;
                    if file.len != bytes {
                        bail!("{} bytes instead of {bytes}", file.len);
                    }
                    let lazy = |(_, peer): &(Running, Peer)| peer.connection.is_none();
                    if engines.len() > 1 && bytes > MOST_ALONE && engines.iter().any(lazy) {
                        bail!("an engine had no part in the file");
                    }
                    return Ok(());
                }
                Event::Lease { .. } | Event::Progress { .. } => {}
            }
        }
    }
    bail!("the transfer stands still")
}

/// Larger files come by all engines that there are.
const MOST_ALONE: u64 = 8 << 20;

/// An engine at work.
enum Running {
    Service(Service<LoopNic>),
    Assistant(Assistant<LoopNic>),
}

impl Running {
    fn nic(&mut self) -> &mut LoopNic {
        match self {
            Running::Service(service) => service.nic_mut(),
            Running::Assistant(assistant) => assistant.nic_mut(),
        }
    }
}

/// The part whose instructions are counted: callgrind knows it by its name.
#[inline(never)]
fn counted(engine: &mut Running, now: Instant) -> Result<bool, Fault> {
    match engine {
        Running::Service(service) => service.poll(now),
        Running::Assistant(assistant) => assistant.poll(now),
    }
}

fn lease() -> Lease {
    Lease::new(Ipv4Cidr::new(CLIENT, 24), LeaseSource::Firmware)
}

/// What the NIC will lend next.
#[derive(Debug)]
enum Unit {
    /// A frame of its own.
    Frame(Vec<u8>),
    /// The prepared TFTP block, with this number.
    Block { port: u16, number: u16 },
    /// The prepared TCP unit, at this sequence number.
    Segments {
        port: u16,
        sequence: u32,
        acknowledged: u32,
    },
}

/// A NIC whose cable ends in memory.
#[derive(Debug)]
struct LoopNic {
    receive: LoopReceive,
    transmit: LoopTransmit,
}

#[derive(Debug)]
struct LoopReceive {
    queue: VecDeque<Unit>,
    block: Vec<u8>,
    segments: Vec<u8>,
}

#[derive(Debug, Default)]
struct LoopTransmit {
    sent: Vec<Vec<u8>>,
}

/// RFC 1350 data in an Ethernet frame of full size.
const BLOCK: usize = 1468;
/// A segment of full size, without options.
const SEGMENT: usize = 1460;
/// As many segments as a unit of 64 KiB can hold.
const JOINED: usize = 44 * SEGMENT;
const UDP: usize = 34;
const TCP: usize = 34;
/// The buffers of a card that spreads a unit over several.
const BUFFER: usize = 4096;
/// The server's port for TFTP data.
const TRANSFER_PORT: u16 = 5000;

impl LoopNic {
    fn new(stream: Stream) -> LoopNic {
        let mut block = vec![0, 3, 0, 0];
        block.resize(4 + BLOCK, 0x55);
        let segments = tcp(0, 0, 0, 0x10, &vec![0x55; unit(stream)]);
        LoopNic {
            receive: LoopReceive {
                queue: VecDeque::new(),
                block: udp(TRANSFER_PORT, 0, &block),
                segments,
            },
            transmit: LoopTransmit::default(),
        }
    }
}

/// Bytes of TCP data in a unit.
fn unit(stream: Stream) -> usize {
    if stream == Stream::HttpSegments {
        SEGMENT
    } else {
        JOINED
    }
}

impl Nic for LoopNic {
    type Rx<'a> = &'a mut LoopReceive;
    type Tx<'a> = &'a mut LoopTransmit;

    fn properties(&self) -> Properties {
        Properties {
            mac: CLIENT_MAC,
            mtu: 1500,
            max_receive: 65_562,
            receive_frames: 1024,
            receive_frames_hoped: 0,
            receive_bytes: 1024 * BUFFER,
            transmit_checksum: true,
            transmit_unit: 0,
        }
    }

    fn link_up(&mut self) -> bool {
        true
    }

    fn split(&mut self) -> (&mut LoopReceive, &mut LoopTransmit) {
        (&mut self.receive, &mut self.transmit)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn stop(&mut self) {}
}

impl Receive for LoopReceive {
    fn burst(&mut self, budget: usize, mut sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        let count = budget.min(self.queue.len());
        for unit in self.queue.drain(..count) {
            let frame = match &unit {
                Unit::Frame(frame) => frame,
                Unit::Block { port, number } => {
                    put(&mut self.block, UDP + 2, port.to_be_bytes());
                    put(&mut self.block, UDP + 10, number.to_be_bytes());
                    &self.block
                }
                Unit::Segments {
                    port,
                    sequence,
                    acknowledged,
                } => {
                    put(&mut self.segments, TCP + 2, port.to_be_bytes());
                    put(&mut self.segments, TCP + 4, sequence.to_be_bytes());
                    put(&mut self.segments, TCP + 8, acknowledged.to_be_bytes());
                    &self.segments
                }
            };
            let mut parts: [&[u8]; 17] = [&[]; 17];
            let mut used = 0;
            for (part, chunk) in parts.iter_mut().zip(frame.chunks(BUFFER)) {
                *part = chunk;
                used += 1;
            }
            let parts = parts.get(..used).unwrap_or_default();
            sink(Frame {
                parts,
                len: frame.len(),
                checksum: Checksum::Trusted,
                udp_segment: None,
            });
        }
        Ok(count)
    }
}

impl Transmit for LoopTransmit {
    fn send<R>(
        &mut self,
        len: usize,
        _offload: Offload,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, SendError> {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        self.sent.push(frame);
        Ok(result)
    }

    fn room(&mut self) -> usize {
        256
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn idle(&mut self) -> bool {
        true
    }
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..at + N) {
        place.copy_from_slice(&value);
    }
}

/// A datagram from the server. Its checksum is not looked at, so it may be changed afterwards.
fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(SERVER_MAC, CLIENT_MAC)
        .ipv4(SERVER.octets(), CLIENT.octets(), 64)
        .udp(from, to);
    let written = builder.write(&mut frame, payload);
    debug_assert!(written.is_ok(), "a vector takes everything");
    frame
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 0x10;

/// A segment from the server's HTTP port. Its checksum is not looked at, so it may be changed afterwards.
fn tcp(port: u16, sequence: u32, acknowledged: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut builder = PacketBuilder::ethernet2(SERVER_MAC, CLIENT_MAC)
        .ipv4(SERVER.octets(), CLIENT.octets(), 64)
        .tcp(80, port, sequence, 65_535)
        .ack(acknowledged);
    if flags & FIN != 0 {
        builder = builder.fin();
    }
    if flags & SYN != 0 {
        let options = [
            TcpOptionElement::MaximumSegmentSize(SEGMENT as u16),
            TcpOptionElement::WindowScale(7),
        ];
        builder = match builder.syn().options(&options) {
            Ok(builder) => builder,
            // Two options fit.
            Err(_) => return frame,
        };
    }
    let written = builder.write(&mut frame, payload);
    debug_assert!(written.is_ok(), "a vector takes everything");
    frame
}

/// The server: answers ARP, TFTP (RFC 7440) and one HTTP request, and sends as fast as the client's window lets it.
#[derive(Debug)]
struct Peer {
    bytes: u64,
    unit: u64,
    window_blocks: u64,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
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
    fn new(stream: Stream, bytes: u64) -> Peer {
        Peer {
            bytes,
            unit: unit(stream) as u64,
            window_blocks: 1,
            connection: None,
        }
    }

    fn frame(&mut self, frame: &[u8], queue: &mut VecDeque<Unit>) {
        // ARP: Ethernet type 0x0806, operation 1 at offset 20, the sender's hardware and protocol address at 22.
        if frame.get(12..14) == Some(&[8, 6]) && frame.get(20..22) == Some(&[0, 1]) {
            let mut reply = Vec::from(CLIENT_MAC);
            reply.extend(SERVER_MAC);
            reply.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
            reply.extend(SERVER_MAC);
            reply.extend(SERVER.octets());
            reply.extend(CLIENT_MAC);
            reply.extend(CLIENT.octets());
            reply.resize(60, 0);
            // Somebody else's address is asked for to see whether it is taken.
            if frame.get(38..42) == Some(SERVER.octets().as_slice()) {
                queue.push_back(Unit::Frame(reply));
            }
            return;
        }
        match SlicedPacket::from_ethernet(frame)
            .ok()
            .and_then(|packet| packet.transport)
        {
            Some(TransportSlice::Udp(datagram)) => self.tftp(&datagram, queue),
            Some(TransportSlice::Tcp(segment)) => self.http(&segment, queue),
            _ => {}
        }
    }

    fn tftp(&mut self, datagram: &UdpSlice<'_>, queue: &mut VecDeque<Unit>) {
        let port = datagram.source_port();
        match datagram.payload() {
            [0, 1, request @ ..] => {
                // After the file's name and the mode, options as in an OACK.
                let mut strings = request.splitn(3, |&byte| byte == 0);
                let options = strings.nth(2).unwrap_or_default();
                self.window_blocks = evaluate::option(options, b"windowsize").unwrap_or(1);
                let answer = format!(
                    "\0\x06tsize\0{}\0blksize\0{BLOCK}\0windowsize\0{}\0",
                    self.bytes, self.window_blocks
                );
                queue.push_back(Unit::Frame(udp(TRANSFER_PORT, port, answer.as_bytes())));
            }
            [0, 4, high, low] => {
                let last = self.bytes / BLOCK as u64 + 1;
                // The file has fewer blocks than numbers.
                let acknowledged = u64::from(u16::from_be_bytes([*high, *low]));
                for number in acknowledged + 1..=last.min(acknowledged + self.window_blocks) {
                    let wire = number as u16;
                    queue.push_back(if number < last {
                        Unit::Block { port, number: wire }
                    } else {
                        let mut data = vec![0, 3];
                        data.extend(wire.to_be_bytes());
                        data.resize(4 + (self.bytes % BLOCK as u64) as usize, 0x55);
                        Unit::Frame(udp(TRANSFER_PORT, port, &data))
                    });
                }
            }
            _ => {}
        }
    }

    fn http(&mut self, segment: &TcpSlice<'_>, queue: &mut VecDeque<Unit>) {
        let port = segment.source_port();
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
            queue.push_back(Unit::Frame(tcp(port, 0, theirs, SYN | ACK, &[])));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_arrives_whole() {
        for stream in Stream::value_variants() {
            for bytes in [1, BLOCK as u64 * 3, 3_000_001, 9_000_001] {
                receive_bytes(*stream, bytes)
                    .unwrap_or_else(|error| panic!("{stream:?} of {bytes} bytes: {error:#}"));
            }
        }
    }

    #[test]
    fn totals_are_read() {
        assert_eq!(
            totals("events: Ir\nsummary: 7\nfn=x\ntotals: 12345\n"),
            Some(12345)
        );
        assert_eq!(totals("events: Ir\n"), None);
    }
}
