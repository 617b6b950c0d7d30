//! A NIC whose cable ends in memory: what it lends was prepared once, and what it sends is kept.

use std::collections::VecDeque;

use wireboot_nic::{
    Checksum, Counters, Fault, Frame, Nic, Offload, Properties, Receive, SendError, Transmit,
};

use super::Stream;
use super::frames::{ACK, CLIENT_MAC, segment, tcp, transport, udp};
use wireboot_lab::ip::IpVersion;

/// What the NIC will lend next.
#[derive(Debug)]
pub(super) enum Unit {
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
pub(super) struct LoopNic {
    pub receive: LoopReceive,
    pub transmit: LoopTransmit,
}

#[derive(Debug)]
pub(super) struct LoopReceive {
    /// Where the header behind IP begins.
    transport: usize,
    pub queue: VecDeque<Unit>,
    block: Vec<u8>,
    segments: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct LoopTransmit {
    pub sent: Vec<Vec<u8>>,
}

/// As many segments as a unit of 64 KiB can hold.
const JOINED: usize = 44;
/// The buffers of a card that spreads a unit over several.
const BUFFER: usize = 4096;
const MOST_BUFFERS: usize = 17;
/// The server's port for TFTP data.
pub(super) const TRANSFER_PORT: u16 = 5000;

impl LoopNic {
    pub(super) fn new(stream: Stream, ip: IpVersion) -> Self {
        let mut block = vec![0, 3, 0, 0];
        block.resize(4 + block_size(ip), 0x55);
        let segments = tcp(ip, 0, 0, 0, ACK, &vec![0x55; unit(stream, ip)]);
        Self {
            receive: LoopReceive {
                transport: transport(ip),
                queue: VecDeque::new(),
                block: udp(ip, TRANSFER_PORT, 0, &block),
                segments,
            },
            transmit: LoopTransmit::default(),
        }
    }
}

/// RFC 1350 data in an Ethernet frame of full size.
pub(super) fn block_size(ip: IpVersion) -> usize {
    segment(ip) + 8
}

/// Bytes of TCP data in a unit.
pub(super) fn unit(stream: Stream, ip: IpVersion) -> usize {
    if stream == Stream::HttpSegments {
        segment(ip)
    } else {
        JOINED * segment(ip)
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
            receive_frames_probe: 0,
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
                    if let Some(header) = header(&mut self.block, self.transport) {
                        header[2..4].copy_from_slice(&port.to_be_bytes());
                        header[10..12].copy_from_slice(&number.to_be_bytes());
                    }
                    &self.block
                }
                Unit::Segments {
                    port,
                    sequence,
                    acknowledged,
                } => {
                    if let Some(header) = header(&mut self.segments, self.transport) {
                        header[2..4].copy_from_slice(&port.to_be_bytes());
                        header[4..8].copy_from_slice(&sequence.to_be_bytes());
                        header[8..12].copy_from_slice(&acknowledged.to_be_bytes());
                    }
                    &self.segments
                }
            };
            let whole = [frame.as_slice()];
            let mut cut;
            let parts = if frame.len() <= BUFFER {
                whole.as_slice()
            } else {
                cut = [[].as_slice(); MOST_BUFFERS];
                let mut used = 0;
                for (part, chunk) in cut.iter_mut().zip(frame.chunks(BUFFER)) {
                    *part = chunk;
                    used += 1;
                }
                cut.get(..used).unwrap_or_default()
            };
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

/// The first bytes of a prepared frame's TCP or UDP header, and of what is behind that.
fn header(frame: &mut [u8], transport: usize) -> Option<&mut [u8; 12]> {
    frame.get_mut(transport..)?.first_chunk_mut()
}

impl Transmit for LoopTransmit {
    fn send(
        &mut self,
        len: usize,
        _offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        let mut frame = vec![0; len];
        fill(&mut frame);
        self.sent.push(frame);
        Ok(())
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
