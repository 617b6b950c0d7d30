//! Memory: an arena for Rust's heap, and pages for downloads.
//!
//! The heap is one region taken from the firmware at the start and managed here, so that allocating
//! calls no firmware and works on any processor. Downloads may be larger than any arena, so their
//! destinations come from the firmware's page allocator.

use crate::bsp::on_bsp;
use crate::dropped::DROPPED;
pub use crate::dropped::collect;
#[cfg(target_os = "uefi")]
use crate::heap::Heap;
pub use crate::place::Free;
use crate::place::{self, Span};
use alloc::vec::Vec;
use core::ptr::NonNull;
use uefi::Status;
use uefi::boot::{self, AllocateType, MemoryAttribute, MemoryType};
use wireboot_ring::{Block, PrefixReader, PrefixWriter, prefix};

/// Bytes of a page, UEFI's unit of allocation.
pub const PAGE: usize = boot::PAGE_SIZE;

/// Wanted size of the arena in bytes, where a program says no other. Small machines get a half, a quarter or an eighth of it.
pub const ARENA: usize = 48 << 20;

/// Wanted size of the arena that stands in for the first in bytes, should an AP (application processor) die in an allocation.
#[cfg(target_os = "uefi")]
const SPARE: usize = 16 << 20;

#[cfg(target_os = "uefi")]
#[global_allocator]
static HEAP: Heap = Heap::new(spare);

/// Only the BSP (bootstrap processor) may call the firmware.
#[cfg(target_os = "uefi")]
fn spare() -> Option<(*mut u8, usize)> {
    let pages = on_bsp().then(|| Pages::allocate(SPARE).ok())??;
    let pages = core::mem::ManuallyDrop::new(pages);
    Some((pages.start.as_ptr(), pages.bytes))
}

/// Locks the heap for good.
#[cfg(feature = "faults")]
pub(crate) fn hold_heap() {
    #[cfg(target_os = "uefi")]
    HEAP.hold();
}

/// The region behind the heap, for giving it back.
pub(crate) struct Arena(Pages);

impl Arena {
    /// Takes the arena from the firmware, of `wanted` bytes, and makes it Rust's heap.
    pub(crate) fn open(wanted: usize) -> Result<Self, uefi::Error> {
        let mut size = wanted;
        let pages = loop {
            match Pages::allocate(size) {
                Ok(pages) => break pages,
                Err(error) if size <= wanted / 8 => return Err(error),
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

/// A page that the system leaves alone, and finds as it is. It never goes back.
///
/// # Errors
/// When there is none.
pub fn reserved_page() -> uefi::Result<&'static mut [u8; PAGE]> {
    let below_4_gib = AllocateType::MaxAddress(u32::MAX.into());
    let page = boot::allocate_pages(below_4_gib, MemoryType::RESERVED, 1)?;
    // SAFETY: a page of ours alone that nobody gives back. The system has it mapped neither at this address nor at all, but no code of this
    // image runs then.
    unsafe {
        page.as_ptr().write_bytes(0, PAGE);
        Ok(&mut *page.as_ptr().cast())
    }
}

/// Gives back what [`reserved_page`] gave.
pub fn give_back_reserved(page: &'static mut [u8; PAGE]) {
    // SAFETY: it came from the firmware, and this was its only reference.
    let _ = unsafe { boot::free_pages(NonNull::from(page).cast(), 1) };
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

    /// Address of the first byte.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// A test's own memory, which must not be dropped as pages.
    #[cfg(test)]
    pub(crate) fn of_test(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// How many bytes there are.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
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

impl Drop for Pages {
    fn drop(&mut self) {
        if !on_bsp() {
            let owner = Self {
                start: self.start,
                bytes: self.bytes,
            };
            // SAFETY: whole pages, and their former owner has no references left.
            unsafe { DROPPED.keep(self.start, owner) };
            return;
        }
        // SAFETY: allocated by `allocate` with the same page count; the owner has no references left.
        // A failure would leave the pages allocated, which harms nobody.
        let _ = unsafe { boot::free_pages(self.start, self.bytes / PAGE) };
    }
}

/// At least `bytes` bytes above 4 GiB; `None` where none are free there.
#[must_use]
pub fn above_4_gib(bytes: usize) -> Option<Pages> {
    const FOUR_GIB: u64 = 1 << 32;
    collect();
    let wanted = whole_pages(bytes as u64);
    let start = holes().iter().find_map(|hole| {
        let start = hole.end.checked_sub(wanted)?;
        (start >= hole.start.max(FOUR_GIB)).then_some(start)
    })?;
    Pages::allocate_as(AllocateType::Address(start), bytes).ok()
}

/// Pages for one file, in one piece or several.
#[derive(Debug)]
pub struct Pieces {
    /// Each with the number of its first byte, in order.
    pieces: Vec<(usize, Pages)>,
    bytes: usize,
}

impl Pieces {
    fn at(places: &[Span]) -> uefi::Result<Self> {
        let mut bytes = 0;
        let mut pieces = Vec::new();
        for place in places {
            let at = AllocateType::Address(place.start);
            let pages = Pages::allocate_as(at, place.len() as usize)?;
            let first = bytes;
            bytes += pages.bytes;
            pieces.push((first, pages));
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
    /// Virtual addresses are physical ones (UEFI 2.10, section 2.3.4). No device behind an IOMMU is given such memory.
    fn device_address(&self, at: usize) -> Option<u64> {
        Some(self.place(at).0.addr().get() as u64)
    }
}

/// Pages to be filled by the engine, wherever it runs.
pub type DownloadBuffer = PrefixWriter<Pieces>;

/// The committed bytes of a [`DownloadBuffer`], for whoever checks them.
pub type DownloadReader = PrefixReader<Pieces>;

/// Allocates at least `bytes` bytes in one piece for a file; their content is unspecified.
///
/// # Errors
/// As of [`Pages::allocate`].
pub fn download_buffer(bytes: usize) -> uefi::Result<(DownloadBuffer, DownloadReader)> {
    let pages = Pages::allocate(bytes)?;
    Ok(prefix(Pieces {
        bytes: pages.bytes,
        pieces: alloc::vec![(0, pages)],
    }))
}

/// Allocates at least `bytes` bytes for an initial RAM disk, beside which Linux finds `copy` bytes in one piece for its copy.
///
/// # Errors
/// What is free, where that is not enough.
pub fn initrd_buffer(bytes: u64, copy: u64) -> Result<(DownloadBuffer, DownloadReader), Free> {
    collect();
    let holes = holes();
    place::places(&holes, whole_pages(bytes), whole_pages(copy))
        .and_then(|places| Pieces::at(&places).ok())
        .map(prefix)
        .ok_or_else(|| place::free(&holes))
}

/// One at least; the largest number for sizes that no machine has: a server may say any.
fn whole_pages(bytes: u64) -> u64 {
    let pages = bytes.max(1).div_ceil(PAGE as u64);
    pages.saturating_mul(PAGE as u64)
}

/// The machine's free memory; none when the firmware does not tell.
fn holes() -> Vec<Span> {
    let Some((map, words)) = map() else {
        return Vec::new();
    };
    place::holes(map.chunks_exact(words).filter_map(free))
}

/// The firmware's memory map and the length of its entries, in words. On our heap, so that it does not change the map.
pub(crate) fn map() -> Option<(Vec<u64>, usize)> {
    let mut map = Vec::new();
    let words = map_into(&mut map)?;
    Some((map, words))
}

/// The same into memory that grows only where it must. Words of an entry.
pub(crate) fn map_into(map: &mut Vec<u64>) -> Option<usize> {
    // SAFETY: there is a table as long as boot services are there, and its pointers are right.
    let services = unsafe {
        uefi::table::system_table_raw()?
            .as_ref()
            .boot_services
            .as_ref()?
    };
    map.resize(map.capacity(), 0);
    let (mut key, mut entry, mut version) = (0, 0, 0);
    for _ in 0..2 {
        let mut bytes = map.len() * 8;
        // SAFETY: the buffer holds so many bytes; where they are not enough, the firmware tells how many there must be.
        let status = unsafe {
            let start = map.as_mut_ptr().cast();
            (services.get_memory_map)(&mut bytes, start, &mut key, &mut entry, &mut version)
        };
        if status == Status::SUCCESS {
            map.truncate(bytes / 8);
            return (entry >= 8).then_some(entry / 8);
        }
        map.resize(bytes / 8 + 1, 0);
    }
    None
}

/// Address and length of what an entry of the memory map says is free.
pub(crate) fn free(entry: &[u64]) -> Option<(u64, u64)> {
    let [kind, start, _, pages, attributes, ..] = *entry else {
        return None;
    };
    // The other half is padding.
    let is_free = kind as u32 == MemoryType::CONVENTIONAL.0;
    let is_special = attributes & MemoryAttribute::SPECIAL_PURPOSE.bits() != 0;
    (is_free && !is_special).then_some((start, pages.saturating_mul(PAGE as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_size_is_whole_pages() {
        for (bytes, whole) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
            assert_eq!(whole_pages(bytes), whole);
        }
        assert_eq!(whole_pages(u64::MAX), u64::MAX);
    }

    #[test]
    fn ordinary_memory_is_free() {
        let kind = u64::from(MemoryType::CONVENTIONAL.0) | 0xaaaa_aaaa << 32;
        let special = MemoryAttribute::SPECIAL_PURPOSE.bits();
        let place = Some((0x10_0000, 2 * 4096));
        assert_eq!(free(&[kind, 0x10_0000, 0, 2, 0xf, 0]), place);
        assert_eq!(free(&[kind, 0x10_0000, 0, 2, 0xf]), place);
        assert_eq!(free(&[kind, 0x10_0000, 0, 2, 0xf | special, 0]), None);
        assert_eq!(free(&[kind + 1, 0x10_0000, 0, 2, 0xf, 0]), None);
        assert_eq!(free(&[kind, 0x10_0000, 0, 2]), None);
        assert_eq!(free(&[kind, 0, 0, u64::MAX, 0]), Some((0, u64::MAX)));
    }
}
