//! A tap on the engine's link, as Linux has it: a port by which somebody else, with a network stack of their own, sends and receives
//! frames under the station's Ethernet address. A boot loader is such a one.
//!
//! While the port is up, what is for the station and nobody here takes goes to it, and the engine answers none of that: no resets, no
//! port unreachable, no echo. What helps both goes to both: ARP, neighbour discovery, ICMP. Frames are copied, once each way, to and
//! from buffers that go round between the two ends. Where no buffer is free a frame is lost, as on a wire.

pub(crate) mod cut;

use crate::packet::ETHERNET_HEADER;
use crate::parts::Parts;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use wireboot_nic::{Checksum, Fault, Frame, Offload, SendError, Transmit};
use wireboot_ring::{Receiver, Sender, channel};

/// Buffers for what is received: several units that a card has joined.
const RECEIVE: usize = 256;
/// Buffers for what is sent.
const SEND: usize = 64;
/// Bytes of a VLAN tag (IEEE 802.1Q).
const TAG: usize = 4;

/// A buffer with a frame in it.
#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
}

impl Buffer {
    fn pool(count: usize, size: usize) -> impl Iterator<Item = Self> {
        (0..count).map(move |_| Self {
            bytes: vec![0; size].into(),
            len: 0,
        })
    }

    fn content(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Copies a frame. False when it is too long.
    fn fill(&mut self, parts: &[&[u8]]) -> bool {
        let parts = Parts::new(parts);
        self.len = parts.len();
        let fits = self.len <= self.bytes.len();
        if fits {
            parts.copy_to(&mut self.bytes);
        }
        fits
    }
}

#[derive(Debug)]
enum ToPort {
    Received(Buffer),
    /// A buffer of a frame that has been sent.
    Sent(Buffer),
}

#[derive(Debug)]
enum ToTap {
    Up(bool),
    /// A buffer to receive into.
    Empty(Buffer),
    Send(Buffer),
}

/// The engine's end of a tap.
#[derive(Debug)]
pub struct Tap {
    to_port: Sender<ToPort>,
    from_port: Receiver<ToTap>,
    empty: Vec<Buffer>,
    /// What does not fit the transmit ring yet.
    unsent: Option<Buffer>,
    up: bool,
    /// Longest frame that the port takes, in bytes.
    longest: usize,
}

/// The end of a tap that its user has: on the BSP (bootstrap processor), where the engine may be on an AP (application processor).
pub struct TapPort {
    to_tap: Sender<ToTap>,
    from_tap: Receiver<ToPort>,
    received: VecDeque<Buffer>,
    spare: Vec<Buffer>,
    up: bool,
    /// The engine has heard of `up`.
    told: bool,
}

/// Both ends of a tap, down at first, on a link that carries IP packets of `mtu` bytes.
#[must_use]
pub fn tap(mtu: u16) -> (Tap, TapPort) {
    let longest = ETHERNET_HEADER + usize::from(mtu);
    let (to_port, from_tap) = channel(RECEIVE + SEND);
    let (to_tap, from_port) = channel(RECEIVE + SEND + 1);
    let tap = Tap {
        to_port,
        from_port,
        empty: Buffer::pool(RECEIVE, longest + TAG).collect(),
        unsent: None,
        up: false,
        longest,
    };
    let port = TapPort {
        to_tap,
        from_tap,
        received: VecDeque::with_capacity(RECEIVE),
        spare: Buffer::pool(SEND, longest + TAG).collect(),
        up: false,
        told: true,
    };
    (tap, port)
}

impl Tap {
    /// Whether somebody listens.
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// Gives a received unit to the port, where that is up. `linear`: memory for it in one piece.
    pub(crate) fn give(&mut self, unit: &Frame<'_>, linear: &mut Vec<u8>) {
        if !self.up {
            return;
        }
        if unit.len <= self.longest + TAG && unit.checksum == Checksum::Unverified {
            self.receive(unit.parts);
            return;
        }
        linear.clear();
        for chunk in Parts::new(unit.parts).chunks() {
            linear.extend_from_slice(chunk);
        }
        cut::cut(linear, unit.udp_segment, self.longest, |frame| {
            self.receive(&[frame]);
        });
    }

    fn receive(&mut self, parts: &[&[u8]]) {
        if let Some(mut buffer) = self.empty.pop() {
            if buffer.fill(parts) {
                // There is room for all buffers that there are.
                let _ = self.to_port.push(ToPort::Received(buffer));
            } else {
                self.empty.push(buffer);
            }
        }
    }

    /// Does what the port has asked for, and sends its frames as far as there is room. Returns whether there was something to do.
    pub(crate) fn turn(&mut self, tx: &mut dyn Transmit) -> Result<bool, Fault> {
        let mut worked = false;
        loop {
            let buffer = match self.unsent.take() {
                Some(buffer) => buffer,
                None => match self.from_port.pop() {
                    Some(ToTap::Send(buffer)) => buffer,
                    Some(ToTap::Up(up)) => {
                        self.up = up;
                        continue;
                    }
                    Some(ToTap::Empty(buffer)) => {
                        self.empty.push(buffer);
                        continue;
                    }
                    None => return Ok(worked),
                },
            };
            let frame = buffer.content();
            match tx.send(frame.len(), Offload::None, &mut |memory| {
                memory.copy_from_slice(frame)
            }) {
                Err(SendError::Full) => {
                    self.unsent = Some(buffer);
                    return Ok(worked);
                }
                Err(SendError::Fault(fault)) => return Err(fault),
                Ok(()) | Err(SendError::TooLong) => {
                    worked = true;
                    let _ = self.to_port.push(ToPort::Sent(buffer));
                }
            }
        }
    }
}

impl TapPort {
    /// Begins or ends to listen. What was received and not taken is forgotten.
    pub fn set_up(&mut self, up: bool) {
        self.turn();
        while self.received.front().is_some() {
            self.skip();
        }
        (self.up, self.told) = (up, false);
        self.turn();
    }

    /// The next frame, from its Ethernet header on; [`Self::skip`] leads to the one behind it.
    pub fn peek(&mut self) -> Option<&[u8]> {
        self.turn();
        self.received.front().map(Buffer::content)
    }

    /// Forgets the frame that [`Self::peek`] has shown.
    pub fn skip(&mut self) {
        if let Some(buffer) = self.received.pop_front() {
            let _ = self.to_tap.push(ToTap::Empty(buffer));
        }
    }

    /// Sends a frame, from its Ethernet header on and with all checksums, that lies in several parts. False when it is too long, or when
    /// as many as there are buffers for wait already.
    pub fn send(&mut self, parts: &[&[u8]]) -> bool {
        self.turn();
        let Some(mut buffer) = self.spare.pop() else {
            return false;
        };
        if !buffer.fill(parts) {
            self.spare.push(buffer);
            return false;
        }
        self.to_tap.push(ToTap::Send(buffer)).is_ok()
    }

    fn turn(&mut self) {
        while let Some(message) = self.from_tap.pop() {
            match message {
                ToPort::Sent(buffer) => self.spare.push(buffer),
                ToPort::Received(buffer) if self.up => self.received.push_back(buffer),
                ToPort::Received(buffer) => {
                    let _ = self.to_tap.push(ToTap::Empty(buffer));
                }
            }
        }
        if !self.told {
            self.told = self.to_tap.push(ToTap::Up(self.up)).is_ok();
        }
    }
}
