//! The transmit half: a pool of buffers, one for each descriptor.

use alloc::boxed::Box;
use core::slice;

use super::HEADER_LEN;
use super::device::User;
use super::ring::Ring;
use crate::platform::PciFunction;
use crate::{Counters, Fault, Offload, SendError, Transmit, checksum};

/// In `struct virtio_net_hdr_v1`, whose words are: flags, GSO type, header length; GSO size, checksum start;
/// checksum offset, number of buffers.
const VIRTIO_NET_HDR_F_NEEDS_CSUM: u32 = 1;

/// The transmit half of a [`VirtioNet`](super::VirtioNet) or a [`VirtioPair`](super::VirtioPair), on loan.
pub struct VirtioTransmit<'a, P: PciFunction> {
    pub(super) queue: &'a mut TransmitQueue,
    pub(super) user: User<'a, P>,
}

/// A transmit queue and its buffers.
pub(super) struct TransmitQueue {
    ring: Ring,
    /// Buffers that the device does not have, as a stack: the first `free_len` are valid.
    free: Box<[u16]>,
    free_len: usize,
    max_frame: usize,
    checksums: bool,
    counters: Counters,
}

impl TransmitQueue {
    pub fn new(mut ring: Ring, max_frame: usize, checksums: bool) -> Self {
        let size = ring.queue.size();
        for id in 0..size {
            let address = ring.buffer_address(id);
            ring.queue.describe(id, address, 0, 0);
        }
        TransmitQueue {
            ring,
            free: (0..size).rev().collect(),
            free_len: size.into(),
            max_frame,
            checksums,
            counters: Counters::default(),
        }
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes back the buffers of frames that the device has sent.
    fn reclaim(&mut self) -> Result<(), &'static Fault> {
        for _ in 0..self.ring.queue.returned()? {
            let (id, _) = self.ring.queue.peek()?;
            self.ring.queue.take(id);
            if let Some(slot) = self.free.get_mut(self.free_len) {
                *slot = id;
                self.free_len += 1;
            }
        }
        Ok(())
    }

    fn next_free(&mut self) -> Option<u16> {
        let at = self.free_len.checked_sub(1)?;
        let id = *self.free.get(at)?;
        self.free_len = at;
        Some(id)
    }
}

impl<P: PciFunction> VirtioTransmit<'_, P> {
    /// Takes back what the device has sent, if it is in use: `Ok(false)` when the driver was stopped.
    fn reclaim(&mut self) -> Result<bool, Fault> {
        if !self.user.running()? {
            return Ok(false);
        }
        match self.queue.reclaim() {
            Ok(()) => Ok(true),
            Err(fault) => self.user.fail(fault),
        }
    }
}

impl<P: PciFunction> Transmit for VirtioTransmit<'_, P> {
    fn send<R>(
        &mut self,
        len: usize,
        offload: Offload,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, SendError> {
        if !self.user.running()? {
            return Err(Fault::Removed.into());
        }
        if len > self.queue.max_frame {
            return Err(SendError::TooLong);
        }
        if self.queue.free_len == 0 {
            self.reclaim()?;
        }
        let queue = &mut *self.queue;
        let Some(id) = queue.next_free() else {
            queue.counters.transmit_full += 1;
            return Err(SendError::Full);
        };
        let buffer = queue.ring.buffer(id);
        // SAFETY: a buffer holds the header and `max_frame` bytes, initialised (zeroed at allocation), and lives
        // as long as the ring. It was free, so the device does not have it; there is no other reference to it.
        let frame = unsafe { slice::from_raw_parts_mut(buffer.add(HEADER_LEN).as_ptr(), len) };
        let value = fill(frame);
        let mut header = [0u32; HEADER_LEN / 4];
        if let Offload::L4Checksum { start, offset } = offload {
            if queue.checksums {
                header = [
                    VIRTIO_NET_HDR_F_NEEDS_CSUM,
                    u32::from(start) << 16,
                    u32::from(offset),
                ];
            } else {
                checksum::complete(frame, start.into(), offset.into());
            }
        }
        // SAFETY: as for the frame, whose last use is above; a buffer is aligned to 2048 bytes.
        unsafe { buffer.cast::<[u32; HEADER_LEN / 4]>().write(header) };
        queue.ring.queue.set_len(id, (HEADER_LEN + len) as u32);
        queue.ring.queue.offer(id);
        queue.counters.transmit_frames += 1;
        queue.counters.transmit_bytes += len as u64;
        Ok(value)
    }

    fn room(&mut self) -> usize {
        match self.reclaim() {
            Ok(true) => self.queue.free_len,
            _ => 0,
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if !self.reclaim()? {
            return Err(Fault::Removed);
        }
        let queue = &mut *self.queue;
        if queue.ring.publish(self.user.shared) {
            queue.counters.transmit_doorbells += 1;
        }
        Ok(())
    }

    /// Frames that wait for [`Transmit::flush`] are not sent yet.
    fn idle(&mut self) -> bool {
        match self.reclaim() {
            Ok(true) => self.queue.free_len == self.queue.free.len(),
            _ => true,
        }
    }
}
