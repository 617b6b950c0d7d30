//! Receive offloads: which frames a card hands over together, and what that costs on the bus and in the host.

use super::arrival::Arrival;
use super::bus::Bus;
use super::on_bus;
use super::time::Picos;
use crate::coalesce::Limits;

/// Headers of IPv4 and TCP.
pub const TCP_IP: u32 = 40;
/// Headers of IPv4 and UDP.
const UDP_IP: u32 = 28;
/// Fragments of the longest datagram with an MTU of 1500 bytes.
pub const FRAGMENTS: u32 = 45;
/// Bytes of a host's buffer, where a unit may take several.
pub const BUFFER: usize = 2048;

/// How a card hands received frames over to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOffload {
    /// Each frame alone.
    Single,
    /// Frames of any flow, as they are, in one buffer for all.
    Chunks,
    /// Consecutive segments of a flow joined to one, with one header. What does not continue it ends it.
    Segments,
    /// Fragments put together to the datagram that they are of. One that is not whole is given up when its flow goes on with the next.
    Datagrams,
    /// Consecutive data of a flow where the host wants it, and its headers in a buffer: two transfers. What comes behind a gap goes as in
    /// chunks, in one transfer; the host then names the place anew.
    Placement,
}

/// What a unit costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Time on the bus.
    pub time: Picos,
    /// Transfers on the bus.
    pub transfers: u64,
    /// Buffers of the host.
    pub buffers: u64,
    /// Headers that the host looks at.
    pub headers: u64,
    /// Bytes of data that the host copies to their place.
    pub copied: u64,
}

impl Cost {
    pub(super) fn add(&mut self, more: &Self) {
        self.time = self.time + more.time;
        self.transfers += more.transfers;
        self.buffers += more.buffers;
        self.headers += more.headers;
        self.copied += more.copied;
    }
}

impl ReceiveOffload {
    /// All of them, as tables list them.
    pub const ALL: [Self; 5] = [
        Self::Single,
        Self::Segments,
        Self::Datagrams,
        Self::Chunks,
        Self::Placement,
    ];

    /// Frames of different flows are apart where they are not to go together.
    pub(super) fn lane(self, frame: &Arrival) -> u32 {
        match self {
            Self::Single | Self::Chunks => 0,
            Self::Segments | Self::Datagrams | Self::Placement => frame.flow,
        }
    }

    /// Whether a frame may go with those of its lane that wait, where `next` continues them.
    pub(super) fn continues(self, waiting: &[Arrival], next: u64, frame: &Arrival) -> bool {
        let message = |number: u64| number / u64::from(FRAGMENTS);
        match self {
            Self::Single | Self::Chunks => true,
            Self::Segments | Self::Placement => frame.number == next,
            Self::Datagrams => waiting
                .first()
                .is_none_or(|first| message(first.number) == message(frame.number)),
        }
    }

    /// Whether the host can do nothing with these alone.
    pub(super) fn is_useless(self, frames: &[Arrival]) -> bool {
        self == Self::Datagrams && frames.len() < FRAGMENTS as usize
    }

    /// What ends the gathering, where the host has set `limits`.
    pub(super) fn limits(self, limits: Limits<Picos>) -> Limits<Picos> {
        match self {
            Self::Single => Limits {
                frames: 1,
                ..limits
            },
            Self::Datagrams => Limits {
                frames: FRAGMENTS as usize,
                bytes: usize::MAX,
                wait: Picos::MAX,
            },
            Self::Chunks | Self::Segments | Self::Placement => limits,
        }
    }

    /// What of a frame counts for the limit of bytes.
    pub(super) fn len(self, frame: &Arrival) -> usize {
        match self {
            Self::Single | Self::Chunks | Self::Datagrams => on_bus(frame.payload),
            Self::Segments | Self::Placement => frame.data as usize,
        }
    }

    /// What it costs that these go together; `ordinary` behind a gap.
    pub(super) fn cost(self, bus: &Bus, frames: &[Arrival], ordinary: bool) -> Cost {
        let whole: usize = frames.iter().map(|frame| on_bus(frame.payload)).sum();
        let data: usize = frames.iter().map(|frame| frame.data as usize).sum();
        let count = frames.len() as u64;
        let one = |bytes: usize, buffers: usize, headers: u64| Cost {
            time: bus.transfer(bytes),
            transfers: 1,
            buffers: buffers as u64,
            headers,
            copied: data as u64,
        };
        match self {
            Self::Single => one(whole, whole.div_ceil(BUFFER), count),
            Self::Segments => {
                let unit = on_bus(TCP_IP) + data;
                one(unit, unit.div_ceil(BUFFER), 1)
            }
            Self::Datagrams => {
                let unit = on_bus(UDP_IP) + data;
                one(unit, unit.div_ceil(BUFFER), 1)
            }
            Self::Placement if !ordinary => Cost {
                time: bus.transfer(data) + bus.transfer(frames.len() * on_bus(TCP_IP)),
                transfers: 2,
                buffers: 1,
                headers: count,
                copied: 0,
            },
            Self::Chunks | Self::Placement => one(whole, 1, count),
        }
    }
}

/// Payload and data of a fragment of the longest datagram, by its number: 65,507 bytes of data in all.
pub(super) fn fragment(number: u64) -> (u32, u32) {
    match (number % u64::from(FRAGMENTS)) as u32 {
        0 => (1500, 1472),
        last if last == FRAGMENTS - 1 => (415, 395),
        _ => (1500, 1480),
    }
}
