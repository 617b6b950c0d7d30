//! Poll-mode network interface drivers, and the traits between them, the engine above and the
//! machine below.
//!
//! A driver is asked for bursts: [`Receive::burst`] lends each received unit to a closure as slices of
//! DMA memory and takes the memory back when the burst ends; [`Transmit::send`] lends transmit memory to be
//! filled. Nothing here blocks, allocates per packet, or raises an interrupt.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(any(test, feature = "testing"))]
extern crate std;

mod checksum;
pub mod e1000e;
mod either;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit"
)]
pub mod fault;
#[cfg(any(test, feature = "testing"))]
pub mod middleware;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit"
)]
pub mod model;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit"
)]
pub mod pcap;
pub mod placer;
pub mod platform;
pub mod relay;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit"
)]
pub mod sim;
mod state;
mod steering;
pub mod virtio;
pub mod vlan;
#[cfg(test)]
mod wrapped;

use core::fmt;

pub use either::Either;
pub use placer::{LentMemory, Placer};
pub use state::NicState;
pub use steering::Steering;

/// An Ethernet (EUI-48) address.
pub type MacAddress = [u8; 6];

/// What a NIC is and what it can do, fixed once the driver has started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The NIC's own Ethernet address. Drivers refuse to start where it is zero or a group's.
    pub mac: MacAddress,
    /// Largest IP packet the link carries, in bytes (1500 on plain Ethernet).
    pub mtu: u16,
    /// Largest received unit in bytes, link header included. Above `mtu + 18`, a frame with a VLAN tag, when the device
    /// coalesces segments (GUEST_TSO, LRO).
    pub max_receive: usize,
    /// Full-size frames (`mtu + 14` bytes) that the receive buffers hold between two bursts. Windows
    /// are computed from this.
    pub receive_frames: usize,
    /// Further frames that they may well hold where nobody tells how many they are: windows may try them, and do without where
    /// that loses frames. 0 where it is known.
    pub receive_frames_probe: usize,
    /// Bytes that the receive buffers hold when the device packs segments into large units.
    pub receive_bytes: usize,
    /// The device completes TCP and UDP checksums on transmit when asked by [`Offload::L4Checksum`].
    pub transmit_checksum: bool,
    /// Longest frame that may be sent with [`Offload::TcpSegmentation`], link header included; 0 where the device does not cut TCP segments
    /// of both IP versions.
    pub transmit_unit: usize,
}

/// How far the device vouches for the TCP or UDP checksum of a received unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Not looked at: software must verify.
    Unverified,
    /// Verified by the device, or produced on this host and never on a wire (virtio NEEDS_CSUM, whose
    /// checksum field is only partial): software must not verify.
    Trusted,
}

/// One received unit on loan: a frame, or several TCP segments or UDP datagrams that the device coalesced.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The unit's bytes in order, link header first. At least one part; the first part holds at least
    /// the first 128 bytes of the unit (or all of it if shorter). Of a segment whose payload the device has placed ([`placer`]), it holds at
    /// least all headers.
    pub parts: &'a [&'a [u8]],
    /// Sum of the parts' lengths, in bytes.
    pub len: usize,
    /// State of the transport checksum.
    pub checksum: Checksum,
    /// When the device coalesced UDP datagrams (virtio GSO_UDP_L4): payload bytes of each datagram but
    /// the last, which may be shorter.
    pub udp_segment: Option<u16>,
}

/// What the device shall do to a frame on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Send the frame as it is.
    None,
    /// Complete the transport checksum: `start` is the offset of the transport header in the frame,
    /// `offset` that of the checksum field within that header. The field holds the pseudo-header sum.
    L4Checksum {
        /// Offset of the transport header from the start of the frame, in bytes.
        start: u16,
        /// Offset of the checksum field from `start`, in bytes.
        offset: u16,
    },
    /// Cut the TCP payload into segments of `mss` bytes, the last perhaps shorter, give each the headers, with numbers and lengths of its
    /// own, and complete its checksums. The headers speak of the whole frame: lengths, and the pseudo-header sum that the checksum field
    /// holds. SYN, RST, URG and CWR are not set, and FIN and PSH are the last segment's. What contradicts this is lost.
    ///
    /// Only for frames of up to [`Properties::transmit_unit`] bytes: longer ones are [`SendError::TooLong`].
    TcpSegmentation {
        /// Offset of the TCP header from the start of the frame, in bytes.
        start: u16,
        /// Bytes of all headers, the link header included: where the payload begins.
        header_len: u16,
        /// Payload bytes of each segment, at least 1.
        mss: u16,
    },
}

/// The device broke its contract or is gone. Once returned, the driver has stopped using the
/// device, and each later call returns the same fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Registers read as all ones: the device was removed or has lost power.
    #[error("the network card is gone (removed or powered down)")]
    Removed,
    /// The device reports a failure of its own (virtio DEVICE_NEEDS_RESET).
    #[error("the network card reports a failure and asks for a reset")]
    NeedsReset,
    /// The device returned something impossible: a descriptor that it does not own, a length beyond
    /// its buffer, a chain out of range. The text says what.
    #[error("the network card misbehaves: {0}")]
    Misbehaved(&'static str),
}

/// Why a frame was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The transmit ring is full, or all memory for frames to be cut is in use; try again after the device has made progress.
    #[error("the transmit ring is full")]
    Full,
    /// The frame is longer than a transmit buffer, or is to be cut and longer than the device does that.
    #[error("the frame is longer than the link allows")]
    TooLong,
    /// The device failed, and is of no more use.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// What went through a NIC since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Units received (a coalesced unit counts once).
    pub receive_units: u64,
    /// Bytes received, link headers included.
    pub receive_bytes: u64,
    /// Received units thrown away by the driver as malformed.
    pub receive_dropped: u64,
    /// Doorbells rung for receive buffers.
    pub receive_doorbells: u64,
    /// Frames sent (one that the device cuts into segments counts once).
    pub transmit_frames: u64,
    /// Bytes sent, link headers included.
    pub transmit_bytes: u64,
    /// Frames refused because the ring was full.
    pub transmit_full: u64,
    /// Doorbells rung for transmit.
    pub transmit_doorbells: u64,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rx {} units {} bytes {} dropped {} doorbells, tx {} frames {} bytes {} full {} doorbells",
            self.receive_units,
            self.receive_bytes,
            self.receive_dropped,
            self.receive_doorbells,
            self.transmit_frames,
            self.transmit_bytes,
            self.transmit_full,
            self.transmit_doorbells
        )
    }
}

/// The receive half of a NIC.
pub trait Receive {
    /// Lends up to `budget` received units, in order, to `sink`, then hands their buffers back
    /// to the device. Returns the number of units lent; 0 when nothing has arrived.
    fn burst(&mut self, budget: usize, sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault>;
}

impl<R: Receive> Receive for &mut R {
    fn burst(&mut self, budget: usize, sink: impl FnMut(Frame<'_>)) -> Result<usize, Fault> {
        R::burst(self, budget, sink)
    }
}

/// The transmit half of a NIC. It can be called as `dyn`, so that what sends is built once for all NICs.
pub trait Transmit {
    /// Queues one frame of `len` bytes, link header first, written by `fill` into transmit memory
    /// (whose former content is unspecified), called once. The device need not hear of it until [`Transmit::flush`].
    ///
    /// # Errors
    /// [`SendError`]; `fill` is then not called.
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError>;

    /// Frames of up to the MTU that can be queued now without [`SendError::Full`].
    fn room(&mut self) -> usize;

    /// Tells the device of all queued frames, with one doorbell at most. Also takes back completed buffers.
    fn flush(&mut self) -> Result<(), Fault>;

    /// True when the device has sent all that was queued (used to drain before [`Nic::stop`]).
    fn idle(&mut self) -> bool;
}

impl<T: Transmit> Transmit for &mut T {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        T::send(self, len, offload, fill)
    }

    fn room(&mut self) -> usize {
        T::room(self)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        T::flush(self)
    }

    fn idle(&mut self) -> bool {
        T::idle(self)
    }
}

/// One network interface, owned by one processor at a time.
///
/// ```
/// use wireboot_nic::{Fault, Nic, Offload, Receive, Transmit};
///
/// /// Sends each frame of a burst back as it is. Returns how many have come; those for which the ring has no room are lost.
/// fn echo(nic: &mut impl Nic) -> Result<usize, Fault> {
///     let (mut receive, mut transmit) = nic.split();
///     let come = receive.burst(64, |frame| {
///         // The frame is on loan until this closure returns, the memory to fill until the inner one does.
///         let bytes = frame.parts.concat();
///         let _ = transmit.send(bytes.len(), Offload::None, &mut |memory| memory.copy_from_slice(&bytes));
///     })?;
///     transmit.flush()?;
///     Ok(come)
/// }
/// ```
pub trait Nic {
    /// The receive half, on loan.
    type Rx<'a>: Receive
    where
        Self: 'a;
    /// The transmit half, on loan.
    type Tx<'a>: Transmit
    where
        Self: 'a;

    /// What this NIC is and can do.
    fn properties(&self) -> Properties;

    /// True when the link is up, or when the device cannot tell.
    fn link_up(&mut self) -> bool;

    /// True once the device has said that it puts the fragments of UDP datagrams together and lends each datagram as one unit, so that long
    /// ones cost no more than short ones.
    fn joins_datagrams(&self) -> bool {
        false
    }

    /// A way to have the device write payload to where it belongs, once it has said that it does so.
    fn placer(&mut self) -> Option<&mut dyn Placer> {
        None
    }

    /// Both halves at once, so that a received unit can be answered while it is on loan.
    fn split(&mut self) -> (Self::Rx<'_>, Self::Tx<'_>);

    /// What went through so far.
    fn counters(&self) -> Counters;

    /// Resets the device and waits (bounded) until it has stopped all DMA. The NIC is of no more use
    /// afterwards: bursts are empty and sends fail with [`Fault::Removed`].
    fn stop(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn counters_are_all_shown() {
        let counters = Counters {
            receive_units: 1,
            receive_bytes: 20,
            receive_dropped: 3,
            receive_doorbells: 4,
            transmit_frames: 5,
            transmit_bytes: 600,
            transmit_full: 7,
            transmit_doorbells: 8,
        };
        assert_eq!(
            counters.to_string(),
            "rx 1 units 20 bytes 3 dropped 4 doorbells, tx 5 frames 600 bytes 7 full 8 doorbells"
        );
    }
}
