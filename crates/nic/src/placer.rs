//! NICs that write a TCP connection's payload to where it belongs.

use alloc::boxed::Box;
use core::ops::Range;

use crate::SendError;
pub use wireboot_wire::card::placement::Ends;

/// Memory that a device fills, in one piece. It is the device's until this is dropped.
pub trait LentMemory: Send {
    /// Where the device finds the first byte; the others follow.
    fn device_address(&self) -> u64;
    /// Size in bytes.
    fn len(&self) -> usize;
    /// True where there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes that the device has put there, and writes no more; those that there are of the range.
    fn bytes(&self, range: Range<usize>) -> &[u8];
}

/// A NIC that may be lent memory ([`Nic::placer`](crate::Nic::placer)).
///
/// A segment of the connection whose payload the device has put there comes as ever, in parts: its headers, what of its payload lies before the
/// memory, and the memory itself. So who copies a payload to where it lies already need not do so.
pub trait Placer {
    /// Has the device fill `memory` with what comes by a connection from the byte with this sequence number on. It follows the memory that was
    /// lent before for that connection, or nothing of it can be on its way yet. It is given back, by being dropped, when all of it is filled and was lent in
    /// a [`Frame`](crate::Frame), or when the device fills it no further; a segment that belongs there comes in a buffer again then.
    ///
    /// # Errors
    /// [`SendError`]; the memory is given back.
    fn place(
        &mut self,
        ends: &Ends,
        sequence: u32,
        memory: Box<dyn LentMemory>,
    ) -> Result<(), SendError>;

    /// Whether the device has memory of a connection's.
    fn has(&self, ends: &Ends) -> bool;

    /// Asks for all memory of a connection's, which the device gives back at some time, if it hears of it.
    ///
    /// # Errors
    /// [`SendError`]; try again.
    fn leave(&mut self, ends: &Ends) -> Result<(), SendError>;
}
