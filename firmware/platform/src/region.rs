//! Memory to measure with: a card's, and the program's own.

use crate::Clock;
use crate::claim::pci::Candidate;
use crate::memory::{self, PAGE, Pages};
use crate::memory_type::{self, MemoryType, Unchanged};
use crate::pci::{Dma, Function, maps_elsewhere};
use core::ptr::NonNull;
use core::slice;
use wireboot_nic::platform::{DmaMemory, PciFunction, PlatformError, Registers};

/// Bytes of a [`Region`]: a large page, so that page tables need no smaller ones for it, and a range that one MTRR can have.
pub const BYTES: usize = 2 << 20;

/// Memory of [`BYTES`] bytes that nobody else uses.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    /// The device has another address for it: `None` where it was not asked.
    mapped_elsewhere: Option<bool>,
    #[expect(dead_code, reason = "is dropped")]
    memory: Memory,
}

#[derive(Debug)]
#[expect(dead_code, reason = "are dropped")]
enum Memory {
    Card(Dma),
    Own(Pages),
}

impl Region {
    /// Memory as the card's rings and buffers are in, by AllocateBuffer of its `EFI_PCI_IO_PROTOCOL`. The card is not told of it.
    ///
    /// # Errors
    /// When the firmware gives none.
    pub fn of_card(card: &Candidate, clock: Clock) -> Result<Self, PlatformError> {
        let function = function(card, clock).ok_or(PlatformError::OutOfMemory)?;
        // A large page's beginning lies in the first half, or at its end.
        let dma = function.allocate(2 * BYTES)?;
        let elsewhere = dma.device_address() != dma.as_ptr().as_ptr() as u64;
        Ok(Self {
            start: aligned(dma.as_ptr()),
            mapped_elsewhere: Some(elsewhere),
            memory: Memory::Card(dma),
        })
    }

    /// Ordinary pages. With a card, it is asked which address they have for it.
    ///
    /// # Errors
    /// When the firmware gives none.
    pub fn ordinary(card: Option<&Candidate>) -> uefi::Result<Self> {
        Ok(Self::own(Pages::allocate(2 * BYTES)?, card))
    }

    /// Pages above 4 GiB. `None` where no memory is free there.
    #[must_use]
    pub fn above_4_gib() -> Option<Self> {
        Some(Self::own(memory::above_4_gib(2 * BYTES)?, None))
    }

    fn own(pages: Pages, card: Option<&Candidate>) -> Self {
        let start = aligned(pages.start());
        // SAFETY: within the pages, which are ours.
        unsafe { start.write_bytes(0, BYTES) };
        let io = card.and_then(|card| card.io().ok());
        Self {
            start,
            mapped_elsewhere: io.and_then(|io| maps_elsewhere(io, start, PAGE)),
            memory: Memory::Own(pages),
        }
    }

    /// The address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Whether the card has another address for it: a copy elsewhere (bounce buffer), or an IOMMU. `None` where the firmware does not tell.
    #[must_use]
    pub fn mapped_elsewhere(&self) -> Option<bool> {
        self.mapped_elsewhere
    }

    /// The region's [`BYTES`] bytes, to be read.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as many bytes, of memory that lives as long as this does, and were written when it was made. Nobody else writes them.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), BYTES) }
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; this is the only reference.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), BYTES) }
    }

    /// Does `work` while the region has another memory type.
    ///
    /// # Errors
    /// [`Unchanged`] where it does not get it; then nothing was done.
    pub fn as_type(
        &mut self,
        kind: MemoryType,
        work: &mut dyn FnMut(&mut Self),
    ) -> Result<(), Unchanged> {
        let (address, bytes) = (self.address(), BYTES as u64);
        memory_type::change(address, bytes, kind, &mut || work(self))
    }
}

/// The first beginning of a large page from here on.
fn aligned(start: NonNull<u8>) -> NonNull<u8> {
    let offset = start.as_ptr().align_offset(BYTES).min(BYTES);
    // SAFETY: there are two large pages of bytes, of which a whole one is left behind its beginning.
    unsafe { start.add(offset) }
}

fn function(card: &Candidate, clock: Clock) -> Option<Function> {
    let io = card.io().ok()?;
    Some(Function { io, clock })
}

/// Number, address and length of the card's first BAR in memory.
#[must_use]
pub fn first_bar(card: &Candidate, clock: Clock) -> Option<(u8, u64, u64)> {
    const BARS: u8 = 6;
    let function = function(card, clock)?;
    (0..BARS).find_map(|number| {
        let bar = function.map_bar(number).ok()?;
        Some((number, bar.address(), bar.len() as u64))
    })
}
