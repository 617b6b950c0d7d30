//! Memory: an arena for Rust's heap, and pages for downloads.
//!
//! The heap is one region taken from the firmware at the start and managed here, so that allocating
//! calls no firmware and works on any processor. Downloads may be larger than any arena, so their
//! destinations come from the firmware's page allocator, one block each.

#[cfg(target_os = "uefi")]
use crate::heap::Heap;
use crate::processors::on_boot_processor;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use uefi::boot::{self, AllocateType, MemoryType};
use wireboot_ring::{Block, PrefixReader, PrefixWriter, prefix};

/// Bytes of a page, UEFI's unit of allocation.
pub const PAGE: usize = 4096;

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

/// Locks the heap for good.
#[cfg(feature = "faults")]
pub(crate) fn hold_heap() {
    #[cfg(target_os = "uefi")]
    HEAP.hold();
}

/// The region behind the heap, for giving it back.
pub(crate) struct Arena(Pages);

impl Arena {
    /// Takes the arena from the firmware and makes it Rust's heap.
    pub(crate) fn open() -> Result<Self, uefi::Error> {
        let mut size = ARENA;
        let pages = loop {
            match Pages::allocate(size) {
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
        collect();
        let pages = bytes.div_ceil(PAGE).max(1);
        let start = boot::allocate_pages(AllocateType::AnyPages, MemoryType::LOADER_DATA, pages)?;
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

// SAFETY: the block is ours until it is dropped, and any bytes are valid `u8`s (the firmware handed out the memory, so its content
// is some value, not uninitialised in Rust's sense).
unsafe impl Block for Pages {
    fn start(&self) -> NonNull<u8> {
        self.start
    }
    fn len(&self) -> usize {
        self.bytes
    }
}

/// Pages to be filled by the engine, wherever it runs.
pub type Landing = PrefixWriter<Pages>;

/// What is settled of a [`Landing`].
pub type Landed = PrefixReader<Pages>;

/// Allocates at least `bytes` bytes for a file; their content is unspecified.
///
/// # Errors
/// As of [`Pages::allocate`].
pub fn landing(bytes: usize) -> uefi::Result<(Landing, Landed)> {
    Ok(prefix(Pages::allocate(bytes)?))
}
