//! The transmit half: frames in ring order, taken back as the chip is done with them.

use alloc::rc::Rc;
use core::slice;
use core::sync::atomic::{Ordering, fence};

use super::registers::{TAIL, TRANSMIT};
use super::ring::Ring;
use super::{MAX_FRAME, SharedChip};
use crate::platform::PciFunction;
use crate::{Counters, Fault, Offload, SendError, Transmit, checksum};

// The command: end of packet, insert the frame check sequence, report status (set DD).
pub(crate) const EOP: u64 = 1 << 24;
pub(crate) const IFCS: u64 = 1 << 25;
pub(crate) const RS: u64 = 1 << 27;

/// Least length of a frame on the wire, without its check sequence. The chip would pad too, but not very short ones.
const MIN_FRAME: usize = 60;

/// The transmit half of an [`E1000e`](super::E1000e).
pub struct E1000eTransmit<P: PciFunction> {
    shared: Rc<SharedChip<P>>,
    ring: Ring,
    /// The oldest descriptor that the chip has.
    taken: u16,
    /// The tail that the chip was told: it has the descriptors from `taken` to here.
    published: u16,
    /// Behind the last frame that was written.
    queued: u16,
    counters: Counters,
}

impl<P: PciFunction> E1000eTransmit<P> {
    pub(super) fn new(shared: Rc<SharedChip<P>>, ring: Ring) -> Self {
        Self {
            shared,
            ring,
            taken: 0,
            published: 0,
            queued: 0,
            counters: Counters::default(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes back the descriptors of frames that the chip has sent.
    fn reclaim(&mut self) {
        while self.taken != self.published && self.ring.done(self.taken).is_some() {
            self.taken = self.taken.wrapping_add(1);
        }
    }

    /// Free descriptors. One stays empty: head and tail at the same place say that nothing is to be sent.
    fn free(&self) -> u16 {
        self.ring.size() - 1 - self.queued.wrapping_sub(self.taken)
    }
}

impl<P: PciFunction> Transmit for E1000eTransmit<P> {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        if !self.shared.running()? {
            return Err(Fault::Removed.into());
        }
        if len > MAX_FRAME || matches!(offload, Offload::TcpSegmentation { .. }) {
            return Err(SendError::TooLong);
        }
        if self.free() == 0 {
            self.reclaim();
        }
        if self.free() == 0 {
            self.counters.transmit_full += 1;
            return Err(SendError::Full);
        }
        let padded = len.max(MIN_FRAME);
        let buffer = self.ring.buffer(self.queued);
        // SAFETY: a buffer is longer than any frame, initialised (zeroed at allocation), and lives in `shared`. Its
        // descriptor is free, so the chip does not have it; there is no other reference to it.
        let buffer = unsafe { slice::from_raw_parts_mut(buffer.as_ptr(), padded) };
        let (frame, padding) = buffer.split_at_mut(len);
        fill(frame);
        if let Offload::L4Checksum { start, offset } = offload {
            checksum::complete(frame, start.into(), offset.into());
        }
        padding.fill(0);
        self.ring.set(self.queued, padded as u64 | EOP | IFCS | RS);
        self.queued = self.queued.wrapping_add(1);
        self.counters.transmit_frames += 1;
        self.counters.transmit_bytes += len as u64;
        Ok(())
    }

    fn room(&mut self) -> usize {
        if !matches!(self.shared.running(), Ok(true)) {
            return 0;
        }
        self.reclaim();
        self.free().into()
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if !self.shared.running()? {
            return Err(Fault::Removed);
        }
        self.reclaim();
        if self.published != self.queued {
            self.published = self.queued;
            fence(Ordering::Release);
            let chip = &self.shared.chip;
            chip.write(TRANSMIT + TAIL, self.ring.position(self.published));
            self.counters.transmit_doorbells += 1;
        }
        Ok(())
    }

    /// Frames that wait for [`Transmit::flush`] are not sent yet.
    fn idle(&mut self) -> bool {
        if !matches!(self.shared.running(), Ok(true)) {
            return true;
        }
        self.reclaim();
        self.taken == self.queued
    }
}
