//! Memory: an arena for Rust's heap, and pages for downloads.
//!
//! The heap is one region taken from the firmware at the start and managed here, so that allocating
//! calls no firmware and works on any processor. Downloads may be larger than any arena, so their
//! destinations come from the firmware's page allocator.

#[cfg(target_os = "uefi")]
use crate::heap::Heap;
pub use crate::place::Free;
use crate::place::{self, Span};
use crate::processors::on_boot_processor;
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use uefi::boot::{self, AllocateType, MemoryAttribute, MemoryType};
use uefi::mem::memory_map::MemoryMap;
use wireboot_ring::{Block, PrefixReader, PrefixWriter, prefix};

/// Bytes of a page, UEFI's unit of allocation.
pub const PAGE: usize = 4096;

const FOUR_GIB: u64 = 1 << 32;

/// Wanted size of the arena in bytes. Small machines get a half, a quarter or an eighth of it.
pub const ARENA: usize = 48 << 20;

/// Wanted size of the arena that stands in for the first in bytes, should a processor die in an allocation.
#[cfg(target_os = "uefi")]
const SPARE: usize = 16 << 20;

#[cfg(target_os = "uefi")]
#[global_allocator]
static HEAP: Heap = Heap::new(spare);

/// Only the boot processor may call the firmware.
#[cfg(target_os = "uefi")]
fn spare() -> Option<(*mut u8, usize)> {
    let pages = on_boot_processor().then(|| Pages::allocate(SPARE).ok())??;
    let pages = core::mem::ManuallyDrop::new(pages);
    Some((pages.start.as_ptr(), pages.bytes))
}

/// The region behind the heap, for giving it back.
pub(crate) struct Arena(Pages);

impl Arena {
    /// Takes the arena from the firmware and makes it Rust's heap.
    pub(crate) fn open() -> Result<Self, uefi::Error> {
        let mut size = ARENA;
        let pages = loop {
            // Not above: there may be the place for Linux' copy of the initial RAM disks.
            match Pages::allocate_as(AllocateType::MaxAddress(FOUR_GIB - 1), size) {
                Ok(pages) => break pages,
                Err(error) if size <= ARENA / 8 => return Err(error),
                Err(_) => size /= 2,
            }
        };
        #[cfg(target_os = "uefi")]
        // SAFETY: the pages are ours alone, and stay allocated until `close`, after which nothing
        // allocates.
        unsafe {
            HEAP.claim(pages.start.as_ptr(), pages.bytes);
        }
        Ok(Self(pages))
    }

    /// Gives the arena back to the firmware.
    ///
    /// # Safety
    /// No value on the heap may be used afterwards, and nothing may allocate.
    pub(crate) unsafe fn close(self) {
        collect();
        drop(self.0);
        #[cfg(target_os = "uefi")]
        if let Some((start, bytes)) = HEAP.second()
            && let Some(start) = NonNull::new(start)
        {
            drop(Pages { start, bytes });
        }
    }
}

/// Whole pages from the firmware (loader data), given back on drop.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the block is plain memory that nothing else refers to.
unsafe impl Send for Pages {}

impl Pages {
    /// Allocates at least `bytes` bytes; their content is unspecified.
    ///
    /// # Errors
    /// `OUT_OF_RESOURCES` when the machine has no such contiguous region left.
    pub fn allocate(bytes: usize) -> uefi::Result<Self> {
        Self::allocate_as(AllocateType::AnyPages, bytes)
    }

    /// The first byte.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn allocate_as(place: AllocateType, bytes: usize) -> uefi::Result<Self> {
        collect();
        let pages = bytes.div_ceil(PAGE).max(1);
        let start = boot::allocate_pages(place, MemoryType::LOADER_DATA, pages)?;
        Ok(Self {
            start,
            bytes: pages * PAGE,
        })
    }
}

/// Blocks that were dropped on other processors, which may not call the firmware: linked through their own first bytes.
static DROPPED: AtomicPtr<Dropped> = AtomicPtr::new(ptr::null_mut());

struct Dropped {
    next: *mut Dropped,
    bytes: usize,
}

/// Gives back to the firmware what other processors have dropped. For the boot processor.
pub fn collect() {
    let mut next = DROPPED.swap(ptr::null_mut(), Ordering::Acquire);
    while let Some(start) = NonNull::new(next) {
        // SAFETY: `Pages::drop` wrote it to a block that nobody else refers to, and the list was taken whole.
        let dropped = unsafe { start.read() };
        next = dropped.next;
        drop(Pages {
            start: start.cast(),
            bytes: dropped.bytes,
        });
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if !on_boot_processor() {
            let dropped = self.start.cast::<Dropped>();
            let bytes = self.bytes;
            let _ = DROPPED.fetch_update(Ordering::Release, Ordering::Relaxed, |next| {
                // SAFETY: the block is at least a page, aligned to one, and the owner has no references left.
                unsafe { dropped.write(Dropped { next, bytes }) };
                Some(dropped.as_ptr())
            });
            return;
        }
        // SAFETY: allocated by `allocate` with the same page count; the owner has no references left.
        // A failure would leave the pages allocated, which harms nobody.
        let _ = unsafe { boot::free_pages(self.start, self.bytes / PAGE) };
    }
}

/// Pages at one place or several.
#[derive(Debug)]
pub struct Pieces {
    /// Each with the number of its first byte, in order.
    pieces: Vec<(usize, Pages)>,
    bytes: usize,
}

impl Pieces {
    fn allocate(places: &[Span]) -> uefi::Result<Self> {
        let mut bytes = 0;
        let mut pieces = Vec::new();
        for place in places {
            let len = (place.end - place.start) as usize;
            let pages = Pages::allocate_as(AllocateType::Address(place.start), len)?;
            pieces.push((bytes, pages));
            bytes += len;
        }
        Ok(Self { pieces, bytes })
    }
}

// SAFETY: the pieces are ours until they are dropped, and any bytes are valid `u8`s (the firmware handed out the memory, so its content
// is some value, not uninitialised in Rust's sense). `pieces` does not change.
unsafe impl Block for Pieces {
    fn place(&self, at: usize) -> (NonNull<u8>, usize) {
        let index = self.pieces.partition_point(|(first, _)| *first <= at);
        let Some((first, pages)) = index.checked_sub(1).and_then(|i| self.pieces.get(i)) else {
            return (NonNull::dangling(), 0);
        };
        let offset = at - first;
        // SAFETY: nobody asks for bytes beyond the end, so the offset lies within the piece.
        (unsafe { pages.start.add(offset) }, pages.bytes - offset)
    }
    fn len(&self) -> usize {
        self.bytes
    }
}

/// Pages to be filled by the engine, wherever it runs.
pub type Landing = PrefixWriter<Pieces>;

/// What is settled of a [`Landing`].
pub type Landed = PrefixReader<Pieces>;

/// How a file wants to lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// In one piece.
    Whole,
    /// In pieces where it has to be, beside which so many bytes in one piece stay free.
    Pieces {
        /// How many.
        beside: u64,
    },
}

/// Allocates at least `bytes` bytes for a file; their content is unspecified.
///
/// # Errors
/// What is free, where that is not enough.
pub fn landing(bytes: usize, shape: Shape) -> Result<(Landing, Landed), Free> {
    collect();
    let holes = holes();
    let len = pages(bytes as u64);
    let places = match shape {
        Shape::Whole => place::whole(&holes, len).map(|place| alloc::vec![place]),
        Shape::Pieces { beside } => place::scattered(&holes, len, pages(beside)),
    };
    places
        .and_then(|places| Pieces::allocate(&places).ok())
        .map(prefix)
        .ok_or_else(|| place::free(&holes))
}

/// What is free for files.
#[must_use]
pub fn free() -> Free {
    collect();
    place::free(&holes())
}

/// In whole pages, one at least. A server may say any size.
fn pages(bytes: u64) -> u64 {
    let pages = bytes.max(1).div_ceil(PAGE as u64);
    pages.saturating_mul(PAGE as u64)
}

/// The machine's free memory; none when the firmware does not tell.
fn holes() -> Vec<Span> {
    let Ok(map) = boot::memory_map(MemoryType::LOADER_DATA) else {
        return Vec::new();
    };
    let usable = map.entries().filter(|entry| {
        entry.ty == MemoryType::CONVENTIONAL
            && !entry.att.contains(MemoryAttribute::SPECIAL_PURPOSE)
    });
    place::holes(usable.map(|entry| (entry.phys_start, entry.page_count * PAGE as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_size_is_whole_pages() {
        for (bytes, whole) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
            assert_eq!(pages(bytes), whole);
        }
        assert_eq!(pages(u64::MAX), u64::MAX);
    }
}
