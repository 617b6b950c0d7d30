//! The driver's queue over memory of loom's own, for models with a device on the other end.

use loom::sync::Arc;

use super::queue::{Queue, VIRTQ_DESC_F_WRITE};
pub use super::tables::loom_tables::Parts;
use crate::Fault;

/// A queue that the device writes to.
pub struct DriverQueue(Queue);

impl DriverQueue {
    /// One of `size` buffers, and what the device sees of it.
    pub fn new(size: u16) -> (Self, Arc<Parts>) {
        let (queue, parts) = Queue::in_loom_memory(size);
        (Self(queue), parts)
    }

    /// Describes a buffer and offers it; the device sees it after [`Self::publish`].
    pub fn offer(&mut self, id: u16, address: u64, len: u32) {
        self.0.describe(id, address, len, VIRTQ_DESC_F_WRITE);
        self.0.offer(id);
    }

    /// Shows the device all that was offered. True when it asks for a doorbell.
    pub fn publish(&mut self) -> bool {
        self.0.publish()
    }

    /// How many buffers the device has returned and nobody has taken.
    pub fn returned(&self) -> Result<u16, &'static Fault> {
        self.0.returned()
    }

    /// Takes the next returned buffer: its number, and how much of it was written.
    pub fn take(&mut self) -> Result<(u16, u32), &'static Fault> {
        let (id, len) = self.0.peek()?;
        self.0.take(id);
        Ok((id, len))
    }
}
