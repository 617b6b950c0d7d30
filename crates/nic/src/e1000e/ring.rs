//! A ring of legacy descriptors, each with a buffer of its own for good.
//!
//! A descriptor is an address, which stays, and a word with all the rest, which goes back and forth. The chip has those
//! from its head to the tail that it was told, and sets DD in each that it is done with:
//!
//! ```text
//!     63..48   47..40  39..32  31..16         15..0
//!     VLAN     errors  status  checksum       length     received
//!     VLAN     CSS     status  command, CSO   length     to send
//! ```

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{InitError, SharedChip};
use crate::platform::{DmaMemory, PciFunction};

// The descriptors are little endian, and so is every machine with UEFI: no conversions.
const _: () = assert!(cfg!(target_endian = "little"));

/// Bytes of a buffer.
pub(crate) const BUFFER_LEN: usize = 2048;

/// Descriptor done: the first bit of the status.
pub(crate) const DD: u64 = 1 << 32;

const DESCRIPTOR_LEN: usize = 16;

/// One ring. Indices run freely and are taken modulo its size, a power of two.
pub(super) struct Ring {
    descriptors: NonNull<u8>,
    descriptors_address: u64,
    buffers: NonNull<u8>,
    size: u16,
}

impl Ring {
    /// Allocates a ring of `size` (a power of two from 8 to 4096) descriptors, and its buffers. They live in `shared`.
    pub(super) fn new<P: PciFunction>(
        shared: &SharedChip<P>,
        size: u16,
    ) -> Result<Self, InitError> {
        debug_assert!(size.is_power_of_two());
        let descriptors = shared.pci.allocate(DESCRIPTOR_LEN * usize::from(size))?;
        let buffers = shared.pci.allocate(BUFFER_LEN * usize::from(size))?;
        let ring = Self {
            descriptors: descriptors.as_ptr(),
            descriptors_address: descriptors.device_address(),
            buffers: buffers.as_ptr(),
            size,
        };
        for index in 0..size {
            let address = buffers.device_address() + u64::from(index) * BUFFER_LEN as u64;
            // SAFETY: `descriptor` stays inside memory that was just allocated, page aligned, which the chip does not know
            // yet and nothing refers to.
            unsafe { ring.descriptor(index).cast::<u64>().write(address) };
        }
        shared.memory.borrow_mut().extend([descriptors, buffers]);
        Ok(ring)
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Where the chip sees the descriptors.
    pub(super) fn address(&self) -> u64 {
        self.descriptors_address
    }

    /// Their length in bytes.
    pub(super) fn len(&self) -> usize {
        DESCRIPTOR_LEN * usize::from(self.size)
    }

    /// The index as the head and tail registers count.
    pub(super) fn position(&self, index: u16) -> u32 {
        u32::from(index & (self.size - 1))
    }

    /// The second half of a descriptor, once the chip is done with it.
    #[inline]
    pub(super) fn done(&self, index: u16) -> Option<u64> {
        let word = self.word(index).load(Ordering::Acquire);
        (word & DD != 0).then_some(word)
    }

    /// Writes the second half of a descriptor that the chip does not have.
    #[inline]
    pub(super) fn set(&self, index: u16, word: u64) {
        self.word(index).store(word, Ordering::Relaxed);
    }

    /// First byte of a descriptor's buffer.
    #[inline]
    pub(super) fn buffer(&self, index: u16) -> NonNull<u8> {
        let slot = usize::from(index & (self.size - 1));
        // SAFETY: there are as many buffers as descriptors, one behind the other.
        unsafe { self.buffers.add(BUFFER_LEN * slot) }
    }

    fn descriptor(&self, index: u16) -> NonNull<u8> {
        let slot = usize::from(index & (self.size - 1));
        // SAFETY: the masked slot is one of `size` descriptors, one behind the other.
        unsafe { self.descriptors.add(DESCRIPTOR_LEN * slot) }
    }

    fn word(&self, index: u16) -> &AtomicU64 {
        // SAFETY: the second half of a descriptor is inside its memory, which lives in `shared` as long as the ring, and
        // aligned to 8 bytes; atomics allow the chip to write at the same time.
        unsafe { AtomicU64::from_ptr(self.descriptor(index).add(8).cast::<u64>().as_ptr()) }
    }
}
