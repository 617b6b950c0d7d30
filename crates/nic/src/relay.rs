//! A NIC whose driver can only be called on the BSP (bootstrap processor), for an engine on an AP (application processor): its frames pass
//! through rings.
//!
//! ```text
//! BSP                                       AP
//! N ── DriverEnd::turn ──> units ─────────> EngineEnd (a Nic) ── burst ──> engine
//!                     <── frames to send ──     └──────── send <──
//! ```
//!
//! [`DriverEnd::turn`] has to be called again and again, as the driver would be polled. Buffers go round: each is empty at one end, on its way,
//! or full at the other, so nothing is allocated once both ends are made. A frame is copied once on its way, from the driver's memory to a
//! buffer or from a buffer to the driver's memory. Where no buffer is free, received frames stay with the driver.

mod driver_end;
mod engine_end;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use wireboot_ring::channel;

use crate::{Checksum, Fault, Frame, Nic, Offload, Properties};
pub use driver_end::DriverEnd;
pub use engine_end::{EngineEnd, EngineEndReceive, EngineEndTransmit};

/// Buffers for received units.
const UNITS: usize = 256;
/// Buffers for frames to send.
const FRAMES: usize = 64;
/// Received units a turn of the driver end, and frames to send: few, so that neither direction waits long for the other.
const BURST: usize = 32;
/// Link header with a VLAN tag, in bytes.
const HEADER: usize = 18;

/// A buffer with a unit or frame in it.
struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
    checksum: Checksum,
    udp_segment: Option<u16>,
}

impl Buffer {
    fn new(size: usize) -> Self {
        Self {
            bytes: alloc::vec![0; size].into(),
            len: 0,
            checksum: Checksum::Unverified,
            udp_segment: None,
        }
    }

    /// As many as are wanted.
    fn pool(count: usize, size: usize) -> Vec<Self> {
        (0..count).map(|_| Self::new(size)).collect()
    }

    fn content(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Copies `frame`. False when it is too long.
    fn fill(&mut self, frame: &Frame<'_>) -> bool {
        let mut at = 0;
        for part in frame.parts {
            let Some(place) = self.bytes.get_mut(at..at + part.len()) else {
                return false;
            };
            place.copy_from_slice(part);
            at += part.len();
        }
        self.len = at;
        self.checksum = frame.checksum;
        self.udp_segment = frame.udp_segment;
        true
    }
}

/// What the engine end is told in the order of receiving.
enum Arrival {
    Unit(Buffer),
    /// The NIC has failed; nothing comes after it.
    Fault(Fault),
}

/// What the engine end asks for.
enum Request {
    Send(Buffer, Offload),
    /// To be answered when all that was sent before has left the device.
    Idle,
    Link,
    Stop,
}

/// What the engine end is answered.
enum Answer {
    /// A frame was taken: its buffer.
    Taken(Buffer),
    Idle,
    Link(bool),
}

/// Makes both ends of a relay for `nic`. The engine end has its properties (but cuts no segments): as long as the driver end is looked after as well as the driver would
/// have been, the buffers in between only add to what the driver's hold.
#[must_use]
pub fn relay<N: Nic>(mut nic: N) -> (DriverEnd<N>, EngineEnd) {
    let properties = Properties {
        // No buffer is long enough.
        transmit_unit: 0,
        ..nic.properties()
    };
    let link = nic.link_up();
    // Room for all buffers, and for all else that may be under way: one of each kind.
    let (to_engine, arrivals) = channel(UNITS + 1);
    let (to_driver, empty) = channel(UNITS);
    let (ask, requests) = channel(FRAMES + 3);
    let (answer, answers) = channel(FRAMES + 2);
    let driver_end = DriverEnd::new(nic, to_engine, empty, requests, answer);
    (
        driver_end,
        EngineEnd::new(properties, link, arrivals, to_driver, ask, answers),
    )
}
