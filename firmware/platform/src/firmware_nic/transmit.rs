//! The transmit half: a pool of buffers, each the driver's from its transmission until the driver hands it back.

use super::{Driver, ERRORS_ONLY, FAILURES, Port, Refusal};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::slice;
use wireboot_nic::{Counters, Fault, Offload, SendError, Transmit};

/// Frames under way at most.
const BUFFERS: usize = 32;
/// Length of a buffer in bytes: longer than a tagged frame.
const BUFFER: usize = 2048;
/// Least length of a frame on the wire, without its check sequence. Some drivers and their devices do not pad shorter ones.
const MIN_FRAME: usize = 60;

/// The buffers, and where each is.
pub(super) struct Outbox {
    /// One behind the other.
    memory: NonNull<[u8; BUFFERS * BUFFER]>,
    free: Vec<usize>,
    /// Filled, with the frame's length, for the next flush.
    queued: VecDeque<(usize, usize)>,
    /// Which the driver has, the oldest first.
    lent: VecDeque<usize>,
    max: usize,
    /// The driver takes a frame before it has been asked for the buffer of the one before.
    several: bool,
    /// Questions in a row that the driver answered by an error.
    failures: u32,
    counters: Counters,
}

impl Outbox {
    /// For frames of up to `max` bytes, to a driver that takes `several`, or one at a time.
    pub(super) fn new(max: usize, several: bool) -> Self {
        Self {
            memory: NonNull::from(Box::leak(Box::new([0; BUFFERS * BUFFER]))),
            free: (0..BUFFERS).collect(),
            queued: VecDeque::with_capacity(BUFFERS),
            lent: VecDeque::with_capacity(BUFFERS),
            max: max.min(BUFFER),
            several,
            failures: 0,
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
    pub(super) fn recycle(&mut self, port: &Port<impl Driver>) -> Result<(), Fault> {
        // Once more than there are buffers, for one that somebody before us has left.
        self.ask(port, BUFFERS + 1)
    }

    /// The same in so many calls.
    fn ask(&mut self, port: &Port<impl Driver>, calls: usize) -> Result<(), Fault> {
        let answer = port.driver.recycle(calls, |back| {
            // Not every driver names the buffer: some only say that one has left.
            let place = self
                .lent
                .iter()
                .position(|&index| self.buffer(index) == back);
            let index = self.lent.remove(place.unwrap_or(0));
            self.free.extend(index);
        });
        match answer {
            Ok(()) | Err(Refusal::Later) => self.failures = 0,
            Err(Refusal::Lost) if self.failures < FAILURES => self.failures += 1,
            Err(Refusal::Lost) => return Err(port.fail(ERRORS_ONLY)),
            Err(Refusal::Fault(fault)) => return Err(port.fail(fault)),
        }
        Ok(())
    }

    /// Gives the memory back. For when the device has been stopped, and has none of the buffers.
    pub(super) fn free(&mut self) {
        self.free.clear();
        let memory = core::mem::replace(&mut self.memory, NonNull::dangling());
        // SAFETY: leaked in `new`; nothing refers to it any more, and no buffer is free to be lent.
        drop(unsafe { Box::from_raw(memory.as_ptr()) });
    }
}

/// The transmit half of an interface.
pub struct FirmwareNicTransmit<'a, D> {
    port: &'a Port<D>,
    outbox: &'a mut Outbox,
}

impl<'a, D: Driver> FirmwareNicTransmit<'a, D> {
    pub(super) fn new(port: &'a Port<D>, outbox: &'a mut Outbox) -> Self {
        Self { port, outbox }
    }

    /// Gives the driver a filled buffer. False when it has no room now.
    fn transmit(&mut self, index: usize, len: usize) -> Result<bool, Fault> {
        // U-Boot remembers one buffer: that of the last frame.
        if !self.outbox.several && !self.outbox.lent.is_empty() {
            self.outbox.ask(self.port, 1)?;
        }
        let frame = NonNull::slice_from_raw_parts(self.outbox.buffer(index), len);
        match self.port.driver.transmit(frame) {
            Ok(()) => {
                self.outbox.lent.push_back(index);
                self.outbox.counters.transmit_doorbells += 1;
                Ok(true)
            }
            Err(Refusal::Later) => Ok(false),
            Err(Refusal::Lost) => {
                self.outbox.free.push(index);
                Ok(true)
            }
            Err(Refusal::Fault(fault)) => Err(self.port.fail(fault)),
        }
    }
}

impl<D: Driver> Transmit for FirmwareNicTransmit<'_, D> {
    fn send(
        &mut self,
        len: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        if !self.port.running()? {
            return Err(Fault::Removed.into());
        }
        if len > self.outbox.max || matches!(offload, Offload::TcpSegmentation { .. }) {
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
        let padded = len.max(MIN_FRAME);
        // SAFETY: a buffer holds `max` bytes and those of the shortest frame, initialised at the start. It was free, so neither the driver
        // nor anybody else has it.
        let bytes = unsafe { slice::from_raw_parts_mut(buffer.as_ptr(), padded) };
        let (frame, padding) = bytes.split_at_mut(len);
        fill(frame);
        padding.fill(0);
        self.outbox.queued.push_back((index, padded));
        self.outbox.counters.transmit_frames += 1;
        self.outbox.counters.transmit_bytes += len as u64;
        Ok(())
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
