//! A queue with its doorbell and one buffer of a fixed length for each descriptor; and buffers by themselves.

use core::ptr::NonNull;

use super::InitError;
use super::device::{Device, SharedDevice};
use super::queue::Queue;
use super::tables::Layout;
use super::transport::Transport;
use crate::platform::{DmaMemory, PciFunction, Registers};

/// One queue of a pair, or the control queue.
pub(super) struct Ring {
    pub queue: Queue,
    number: u16,
    doorbell: usize,
    /// By descriptor.
    pub buffers: Buffers,
}

/// Buffers of one length, one behind the other. How many there are is a power of two.
pub(super) struct Buffers {
    first: NonNull<u8>,
    address: u64,
    count: u16,
    pub len: usize,
}

// SAFETY: the pointer leads to memory at a fixed place that any processor may use and that is reached through these buffers alone, so they may
// change processor as a whole.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Allocates zeroed memory for `count` buffers.
    ///
    /// # Safety
    /// As for [`Ring::new`].
    pub(super) unsafe fn new<P: PciFunction>(
        device: &mut Device<P>,
        count: u16,
        len: usize,
    ) -> Result<Self, InitError> {
        debug_assert!(count.is_power_of_two());
        let memory = device.allocate(len * usize::from(count))?;
        Ok(Self {
            first: memory.as_ptr(),
            address: memory.device_address(),
            count,
            len,
        })
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// First byte of buffer `id`, which is below the count, as the processor sees it.
    #[inline]
    pub(super) fn at(&self, id: u16) -> NonNull<u8> {
        let id = id & (self.count - 1);
        // SAFETY: there are as many buffers as the count says, one behind the other.
        unsafe { self.first.add(usize::from(id) * self.len) }
    }

    /// The same, as the device sees it.
    #[inline]
    pub(super) fn address(&self, id: u16) -> u64 {
        self.address + u64::from(id) * self.len as u64
    }
}

impl Ring {
    /// Allocates memory for a queue and its buffers, and enables it in the device.
    ///
    /// # Safety
    /// The ring must be used no more once the device is dropped, unless whoever uses it holds on to the device's shared part.
    pub(super) unsafe fn new<P: PciFunction>(
        device: &mut Device<P>,
        number: u16,
        size: u16,
        buffer_len: usize,
    ) -> Result<Self, InitError> {
        let layout = Layout::new(size);
        let memory = device.allocate(layout.len)?;
        let (base, address) = (memory.as_ptr(), memory.device_address());
        // SAFETY: the caller's promise.
        let buffers = unsafe { Buffers::new(device, size, buffer_len)? };
        Ok(Self {
            // SAFETY: the memory is zeroed, page aligned and long enough, and nothing else refers to it. It lives in `device` until that
            // is dropped, and is not given back even then while somebody holds on to the shared part; by our caller's promise the ring
            // is not used any longer.
            queue: unsafe { Queue::new(base, size) },
            number,
            doorbell: device
                .shared
                .transport
                .enable_queue(number, size, address, layout)?,
            buffers,
        })
    }

    /// Shows the device all that was offered. True when that took a doorbell.
    #[inline]
    pub(super) fn publish<B: Registers>(&mut self, shared: &SharedDevice<B>) -> bool {
        let wanted = self.queue.publish();
        if wanted {
            shared.transport.notify(self.doorbell, self.number);
        }
        wanted
    }
}

/// The size to use for a queue: what the device offers, from `least` up to `most`.
pub(super) fn queue_size<B: Registers>(
    transport: &Transport<B>,
    queue: u16,
    least: u16,
    most: u16,
) -> Result<u16, InitError> {
    let size = transport.queue_size_max(queue);
    if size < least {
        return Err(InitError::QueueSize { queue, size });
    }
    if !size.is_power_of_two() {
        return Err(InitError::Misbehaved(
            "a queue size that is no power of two",
        ));
    }
    Ok(size.min(most))
}
