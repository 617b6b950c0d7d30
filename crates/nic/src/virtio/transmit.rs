//! The transmit half: a pool of buffers, one for each descriptor.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::slice;

use super::{HEADER_LEN, Ring, Shared};
use crate::platform::PciFunction;
use crate::{Counters, Fault, Offload, SendError, Transmit, checksum};

/// In `struct virtio_net_hdr_v1`, whose words are: flags, GSO type, header length; GSO size, checksum start;
/// checksum offset, number of buffers.
const VIRTIO_NET_HDR_F_NEEDS_CSUM: u32 = 1;

/// The transmit half of a [`VirtioNet`](super::VirtioNet).
pub struct VirtioTransmit<P: PciFunction> {
    shared: Rc<Shared<P>>,
    ring: Ring,
    /// Buffers that the device does not have, as a stack: the first `free_len` are valid.
    free: Box<[u16]>,
    free_len: usize,
    max_frame: usize,
    checksums: bool,
    counters: Counters,
}

impl<P: PciFunction> VirtioTransmit<P> {
    pub(super) fn new(
        shared: Rc<Shared<P>>,
        mut ring: Ring,
        max_frame: usize,
        checksums: bool,
    ) -> Self {
        let size = ring.queue.size();
        for id in 0..size {
            let address = ring.buffer_address(id);
            ring.queue.describe(id, address, 0, 0);
        }
        VirtioTransmit {
            shared,
            ring,
            free: (0..size).rev().collect(),
            free_len: size.into(),
            max_frame,
            checksums,
            counters: Counters::default(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes back the buffers of frames that the device has sent.
    fn reclaim(&mut self) -> Result<(), Fault> {
        let result = self.try_reclaim();
        result.map_err(|fault| self.shared.fail(fault))
    }

    fn try_reclaim(&mut self) -> Result<(), Fault> {
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

impl<P: PciFunction> Transmit for VirtioTransmit<P> {
    fn send<R>(
        &mut self,
        len: usize,
        offload: Offload,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, SendError> {
        if !self.shared.running()? {
            return Err(Fault::Removed.into());
        }
        if len > self.max_frame {
            return Err(SendError::TooLong);
        }
        if self.free_len == 0 {
            self.reclaim()?;
        }
        let Some(id) = self.next_free() else {
            self.counters.transmit_full += 1;
            return Err(SendError::Full);
        };
        let buffer = self.ring.buffer(id);
        // SAFETY: a buffer holds the header and `max_frame` bytes, initialised (zeroed at allocation), and lives
        // in `shared`. It was free, so the device does not have it; there is no other reference to it.
        let frame = unsafe { slice::from_raw_parts_mut(buffer.add(HEADER_LEN).as_ptr(), len) };
        let value = fill(frame);
        let mut header = [0u32; HEADER_LEN / 4];
        if let Offload::L4Checksum { start, offset } = offload {
            if self.checksums {
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
        self.ring.queue.set_len(id, (HEADER_LEN + len) as u32);
        self.ring.queue.offer(id);
        self.counters.transmit_frames += 1;
        self.counters.transmit_bytes += len as u64;
        Ok(value)
    }

    fn room(&mut self) -> usize {
        if !matches!(self.shared.running(), Ok(true)) || self.reclaim().is_err() {
            return 0;
        }
        self.free_len
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if !self.shared.running()? {
            return Err(Fault::Removed);
        }
        self.reclaim()?;
        if self.ring.queue.publish() {
            self.shared
                .transport
                .notify(self.ring.doorbell, self.ring.number);
            self.counters.transmit_doorbells += 1;
        }
        Ok(())
    }

    /// Frames that wait for [`Transmit::flush`] are not sent yet.
    fn idle(&mut self) -> bool {
        if !matches!(self.shared.running(), Ok(true)) || self.reclaim().is_err() {
            return true;
        }
        self.free_len == self.free.len()
    }
}
