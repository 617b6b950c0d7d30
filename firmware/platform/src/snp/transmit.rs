//! The transmit half: a pool of buffers, each the driver's from Transmit until GetStatus hands it back.

use super::{Port, fault};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::slice;
use uefi::Status;
use wireboot_nic::{Counters, Fault, Offload, SendError, Transmit};

/// Frames under way at most.
const BUFFERS: usize = 32;
/// Length of a buffer in bytes: longer than a tagged frame.
const BUFFER: usize = 2048;

/// The buffers, and where each is.
pub(super) struct Outbox {
    /// One behind the other; freed on drop.
    memory: NonNull<[u8; BUFFERS * BUFFER]>,
    free: Vec<usize>,
    /// Filled, with the frame's length, for the next flush.
    queued: VecDeque<(usize, usize)>,
    /// Which the driver has, the oldest first.
    lent: VecDeque<usize>,
    max: usize,
    counters: Counters,
}

impl Outbox {
    /// For frames of up to `max` bytes.
    pub(super) fn new(max: usize) -> Self {
        Self {
            memory: NonNull::from(Box::leak(Box::new([0; BUFFERS * BUFFER]))),
            free: (0..BUFFERS).collect(),
            queued: VecDeque::with_capacity(BUFFERS),
            lent: VecDeque::with_capacity(BUFFERS),
            max: max.min(BUFFER),
            counters: Counters::default(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// The first byte of a buffer.
    fn buffer(&self, index: usize) -> NonNull<u8> {
        // SAFETY: there are `BUFFERS` of them, one behind the other, and `index` is below that.
        unsafe { self.memory.cast::<u8>().add(index % BUFFERS * BUFFER) }
    }

    /// Takes back the buffers of frames that have left.
    pub(super) fn recycle(&mut self, port: &Port) -> Result<(), Fault> {
        // Once more than there are buffers, for one that somebody before us has left.
        for _ in 0..=BUFFERS {
            let back = port.call(|snp| snp.get_recycled_transmit_buffer_status());
            let back = back.map_err(|error| port.fail(fault(error.status())))?;
            let Some(back) = back else { break };
            // Not every driver names the buffer: some only say that one has left.
            let place = self
                .lent
                .iter()
                .position(|&index| self.buffer(index) == back);
            let index = self.lent.remove(place.unwrap_or(0));
            self.free.extend(index);
        }
        Ok(())
    }
}

impl Drop for Outbox {
    /// The driver has been shut down before: it has none of the buffers.
    fn drop(&mut self) {
        // SAFETY: leaked in `new`; nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}

/// The transmit half of an [`Snp`](super::Snp).
pub struct SnpTransmit<'a> {
    port: &'a Port,
    outbox: &'a mut Outbox,
}

impl<'a> SnpTransmit<'a> {
    pub(super) fn new(port: &'a Port, outbox: &'a mut Outbox) -> Self {
        Self { port, outbox }
    }

    /// Gives the driver a filled buffer. False when it has no room now.
    fn transmit(&mut self, index: usize, len: usize) -> Result<bool, Fault> {
        let buffer = self.outbox.buffer(index);
        // SAFETY: `send` filled `len` bytes of the buffer, and nobody has it until the call below.
        let frame = unsafe { slice::from_raw_parts_mut(buffer.as_ptr(), len) };
        let answer = self
            .port
            .call(|snp| snp.transmit(0, frame, None, None, None));
        match answer.map_err(|error| error.status()) {
            Ok(()) => {
                self.outbox.lent.push_back(index);
                self.outbox.counters.transmit_doorbells += 1;
                Ok(true)
            }
            // iPXE's drivers say the second.
            Err(Status::NOT_READY | Status::OUT_OF_RESOURCES) => Ok(false),
            // This frame is lost, as on any network.
            Err(Status::DEVICE_ERROR | Status::BUFFER_TOO_SMALL) => {
                self.outbox.free.push(index);
                Ok(true)
            }
            Err(status) => Err(self.port.fail(fault(status))),
        }
    }
}

impl Transmit for SnpTransmit<'_> {
    fn send<R>(
        &mut self,
        len: usize,
        _: Offload,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, SendError> {
        if !self.port.running()? {
            return Err(Fault::Removed.into());
        }
        if len > self.outbox.max {
            return Err(SendError::TooLong);
        }
        if self.outbox.free.is_empty() {
            self.outbox.recycle(self.port)?;
        }
        let Some(index) = self.outbox.free.pop() else {
            self.outbox.counters.transmit_full += 1;
            return Err(SendError::Full);
        };
        let buffer = self.outbox.buffer(index);
        // SAFETY: a buffer holds `max` bytes, initialised at the start. It was free, so neither the driver nor anybody else
        // has it.
        let frame = unsafe { slice::from_raw_parts_mut(buffer.as_ptr(), len) };
        let value = fill(frame);
        self.outbox.queued.push_back((index, len));
        self.outbox.counters.transmit_frames += 1;
        self.outbox.counters.transmit_bytes += len as u64;
        Ok(value)
    }

    fn room(&mut self) -> usize {
        if self.outbox.free.is_empty() && self.port.running() == Ok(true) {
            // A fault shows at the next call that can tell it.
            let _ = self.outbox.recycle(self.port);
        }
        self.outbox.free.len()
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if !self.port.running()? {
            return Err(Fault::Removed);
        }
        // The call is not for nothing: it may read registers. So only when buffers run short.
        if self.outbox.free.len() < BUFFERS / 2 {
            self.outbox.recycle(self.port)?;
        }
        let mut waited = false;
        while let Some(&(index, len)) = self.outbox.queued.front() {
            if self.transmit(index, len)? {
                self.outbox.queued.pop_front();
            } else if waited {
                break;
            } else {
                // Some make room only when they are asked what has left.
                waited = true;
                self.outbox.recycle(self.port)?;
            }
        }
        Ok(())
    }

    fn idle(&mut self) -> bool {
        if self.port.running() != Ok(true) || self.outbox.recycle(self.port).is_err() {
            return true;
        }
        self.outbox.queued.is_empty() && self.outbox.lent.is_empty()
    }
}
