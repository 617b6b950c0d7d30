//! What follows from the features, address and MTU of a device: lengths and numbers of buffers, and the properties of a pair.

use super::{ETHERNET_LEN, HEADER_LEN, feature};
use crate::vlan::TAG_LEN;
use crate::{MacAddress, Properties};

/// Fewer buffers than this could not hold one large unit.
pub(super) const QUEUE_SIZE_MIN: u16 = 32;
const RECEIVE_QUEUE_MAX: u16 = 1024;
/// Enough with buffers for whole large units; more only leave the processor's cache.
const RECEIVE_QUEUE_LARGE: u16 = 128;
pub(super) const TRANSMIT_QUEUE_MAX: u16 = 256;

/// Least length of a mergeable buffer, and what all of them hold: a short ring, such as QEMU's default of 256,
/// has longer buffers instead, so that large units find as much room.
pub(super) const MERGEABLE_BUFFER: usize = 4096;
const MERGEABLE_TOTAL: usize = RECEIVE_QUEUE_MAX as usize * MERGEABLE_BUFFER;
/// At least the 65,562 bytes that the specification asks for when units are large and not mergeable.
pub(super) const LARGE_BUFFER: usize = 66 * 1024;
/// Frames to be cut that may be under way at once. A power of two.
pub(super) const TRANSMIT_UNITS: u16 = 16;
/// Longest frame to be cut: an IPv4 packet of 65,535 bytes.
pub(super) const TRANSMIT_UNIT: usize = ETHERNET_LEN + 65_535;
/// Buffers for single frames are multiples of this.
const FRAME_BUFFER: usize = 2048;
/// Largest unit that a device may coalesce: what remains of 65,562 bytes behind the header.
pub(super) const MAX_UNIT: usize = 65_562 - HEADER_LEN;
/// What all pairs of a device are like.
pub(super) struct Shape {
    pub features: u64,
    pub mac: MacAddress,
    pub mtu: u16,
}

impl Shape {
    pub(super) fn has(&self, features: u64) -> bool {
        self.features & features != 0
    }

    fn coalescing(&self) -> bool {
        self.has(feature::COALESCING)
    }

    fn mergeable(&self) -> bool {
        self.has(feature::MRG_RXBUF)
    }

    /// Length of the longest frame.
    pub(super) fn frame(&self) -> usize {
        usize::from(self.mtu) + ETHERNET_LEN + TAG_LEN
    }

    /// Length of a buffer for one frame.
    pub(super) fn frame_buffer(&self) -> usize {
        (HEADER_LEN + self.frame()).next_multiple_of(FRAME_BUFFER)
    }

    pub(super) fn max_receive(&self) -> usize {
        if self.coalescing() {
            MAX_UNIT
        } else {
            self.frame()
        }
    }

    pub(super) fn receive_queue_max(&self) -> u16 {
        if self.coalescing() && !self.mergeable() {
            RECEIVE_QUEUE_LARGE
        } else {
            RECEIVE_QUEUE_MAX
        }
    }

    /// Length of each of so many receive buffers.
    pub(super) fn receive_buffer(&self, buffers: usize) -> usize {
        match (self.mergeable(), self.coalescing()) {
            (true, true) => MERGEABLE_TOTAL / buffers,
            (true, false) => self.frame_buffer().max(MERGEABLE_BUFFER),
            (false, true) => LARGE_BUFFER,
            (false, false) => self.frame_buffer(),
        }
    }

    fn transmit_unit(&self) -> usize {
        if self.has(feature::SEGMENTATION) {
            TRANSMIT_UNIT
        } else {
            0
        }
    }

    /// Properties of a pair with so many receive buffers.
    pub(super) fn properties(&self, buffers: usize) -> Properties {
        let (frame, buffer) = (self.frame(), self.receive_buffer(buffers));
        Properties {
            mac: self.mac,
            mtu: self.mtu,
            max_receive: self.max_receive(),
            receive_frames: buffers / (HEADER_LEN + frame).div_ceil(buffer),
            receive_frames_probe: 0,
            receive_bytes: buffers
                * match (self.mergeable(), self.coalescing()) {
                    (true, true) => buffer,
                    (false, true) => MAX_UNIT,
                    (_, false) => frame,
                },
            transmit_checksum: self.has(feature::CSUM),
            transmit_unit: self.transmit_unit(),
        }
    }
}
