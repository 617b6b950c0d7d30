//! What a driver needs of the machine: registers, configuration space and memory that a device may
//! access. The firmware implements these over EFI_PCI_IO_PROTOCOL; tests and fuzzers over a device model.

use core::ptr::NonNull;

/// A block of device registers (a PCI BAR or part of one). Offsets are in bytes from its start.
///
/// An access beyond [`Registers::len`] is a bug in the driver: reads return all ones, writes do nothing.
#[expect(
    clippy::len_without_is_empty,
    reason = "a device without registers is none"
)]
pub trait Registers {
    /// Size in bytes.
    fn len(&self) -> usize;
    /// Reads 8 bits, the byte at `offset`.
    fn read8(&self, offset: usize) -> u8;
    /// Reads 16 bits, little endian; `offset` is a multiple of 2.
    fn read16(&self, offset: usize) -> u16;
    /// Reads 32 bits, little endian; `offset` is a multiple of 4.
    fn read32(&self, offset: usize) -> u32;
    /// Writes 8 bits, the byte at `offset`.
    fn write8(&self, offset: usize, value: u8);
    /// Writes 16 bits, little endian; `offset` is a multiple of 2.
    fn write16(&self, offset: usize, value: u16);
    /// Writes 32 bits, little endian; `offset` is a multiple of 4.
    fn write32(&self, offset: usize, value: u32);
}

/// Memory that both the processor and a device access: physically contiguous, cached (write-back),
/// coherent, at a fixed place until dropped. Dropping it frees it, so a device must have
/// stopped using it before.
///
/// # Safety
/// `as_ptr` must be valid for reads and writes of `len` bytes for the life of the value, aligned to 4096
/// bytes, zeroed at allocation, and referenced by no Rust reference. `device_address` must be where the
/// device sees byte 0, with the following bytes contiguous.
#[expect(
    clippy::len_without_is_empty,
    reason = "nobody asks for memory of no bytes"
)]
pub unsafe trait DmaMemory {
    /// First byte, as the processor sees it.
    fn as_ptr(&self) -> NonNull<u8>;
    /// Size in bytes.
    fn len(&self) -> usize;
    /// First byte, as the device sees it.
    fn device_address(&self) -> u64;
}

/// Why the machine refused something a driver asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlatformError {
    /// No memory that the device can reach.
    #[error("no memory for device buffers")]
    OutOfMemory,
    /// The BAR does not exist, is not memory, or was given no address.
    #[error("PCI base address register {0} cannot be mapped")]
    NoBar(u8),
}

/// One PCI function with memory decoding and bus mastering on.
pub trait PciFunction {
    /// Memory for the device.
    type Dma: DmaMemory;
    /// The registers behind a BAR, mapped into the processor's addresses.
    type Bar: Registers;

    /// Reads 32 bits of configuration space at `offset`, a multiple of 4 below 256.
    fn config32(&self, offset: u8) -> u32;

    /// Maps memory BAR `index` (0 to 5).
    fn map_bar(&self, index: u8) -> Result<Self::Bar, PlatformError>;

    /// Allocates `len` bytes (rounded up to pages), zeroed, page aligned.
    fn allocate(&self, len: usize) -> Result<Self::Dma, PlatformError>;

    /// Lets the processor rest for about a microsecond, so that waits for a reset end in bounded time.
    fn stall_microsecond(&self);
}
