//! TCP over the engine: [`wireboot_tcp`] keeps the protocol, this gives it segments, memory and a NIC.
//!
//! A segment's payload is copied once, from DMA memory to its place in the destination, behind a gap too. What comes while there is no
//! destination, or behind its end, is held until somebody reads it.

mod buffer;
pub(crate) mod flows;
pub(crate) mod mss;
mod segments;
mod send_buffer;
pub(crate) mod window;
