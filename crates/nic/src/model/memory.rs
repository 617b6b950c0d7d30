//! DMA memory of a device made of software: host memory at made-up device addresses.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec;
use std::vec::Vec;

use crate::LentMemory;
use crate::platform::{DmaMemory, PlatformError};

/// All blocks that a driver has allocated for one device.
#[derive(Clone)]
pub(super) struct Memory(Arc<Mutex<Blocks>>);

struct Blocks {
    /// By device address: place and length.
    blocks: BTreeMap<u64, (NonNull<u8>, usize)>,
    next_address: u64,
    reachable: bool,
    freed_while_reachable: bool,
}

// SAFETY: the pointers lead to plain memory that stays where it is until it is taken from here.
unsafe impl Send for Blocks {}

impl Memory {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Blocks {
            blocks: BTreeMap::new(),
            next_address: 0x1_0000_0000,
            reachable: false,
            freed_while_reachable: false,
        })))
    }

    /// What a test has broken off in the middle of is still worth looking at.
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether the device may access memory now.
    pub(super) fn set_reachable(&self, reachable: bool) {
        self.blocks().reachable = reachable;
    }

    /// True when a block was given back that the device could still reach.
    pub(super) fn freed_while_reachable(&self) -> bool {
        self.blocks().freed_while_reachable
    }

    /// Blocks that the driver holds.
    pub(super) fn count(&self) -> usize {
        self.blocks().blocks.len()
    }

    pub(super) fn allocate(&self, len: usize) -> Result<ModelMemory, PlatformError> {
        let layout = Layout::from_size_align(len.max(1).next_multiple_of(4096), 4096)
            .map_err(|_| PlatformError::OutOfMemory)?;
        // SAFETY: the size is at least 4096.
        let place =
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(PlatformError::OutOfMemory)?;
        let mut blocks = self.blocks();
        let address = blocks.next_address;
        // Far apart, so that no address runs from one block into the next.
        blocks.next_address += layout.size() as u64 + 0x1000_0000;
        blocks.blocks.insert(address, (place, layout.size()));
        Ok(ModelMemory {
            memory: self.clone(),
            place,
            layout,
            address,
        })
    }

    /// Bytes at a device address; `None` when they do not lie in one block.
    pub(super) fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let blocks = self.blocks();
        let place = blocks.locate(address, len)?;
        let mut bytes = vec![0; len];
        let target = NonNull::from(bytes.as_mut_slice()).cast();
        // SAFETY: `locate` found `len` bytes of a block that lives while we hold the lock; the new vector does not overlap it.
        unsafe { place.copy_to_nonoverlapping(target, len) };
        Some(bytes)
    }

    /// Writes to a device address; `None` when the bytes would not lie in one block.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Option<()> {
        let blocks = self.blocks();
        let place = blocks.locate(address, bytes.len())?;
        // SAFETY: `locate` found as many bytes of a block that lives while we hold the lock; the driver holds no reference to it now, since
        // models work on a queue only on the thread of its driver, between the driver's calls.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Some(())
    }
}

impl Blocks {
    fn locate(&self, address: u64, len: usize) -> Option<NonNull<u8>> {
        let (base, &(place, block)) = self.blocks.range(..=address).next_back()?;
        let offset = usize::try_from(address - base).ok()?;
        // SAFETY: only if it is inside the block.
        (offset.checked_add(len)? <= block).then(|| unsafe { place.add(offset) })
    }
}

/// One block of DMA memory of a model.
pub struct ModelMemory {
    memory: Memory,
    place: NonNull<u8>,
    layout: Layout,
    address: u64,
}

// SAFETY: plain memory that stays where it is; the last owner may be any thread.
unsafe impl Send for ModelMemory {}

// SAFETY: the block is allocated zeroed and page aligned, is freed on drop only, and never referenced; the
// model finds it at the device address.
unsafe impl DmaMemory for ModelMemory {
    fn as_ptr(&self) -> NonNull<u8> {
        self.place
    }
    fn len(&self) -> usize {
        self.layout.size()
    }
    fn device_address(&self) -> u64 {
        self.address
    }
}

impl Drop for ModelMemory {
    fn drop(&mut self) {
        let mut blocks = self.memory.blocks();
        blocks.freed_while_reachable |= blocks.reachable;
        blocks.blocks.remove(&self.address);
        // SAFETY: allocated with this layout, and the model has just forgotten it.
        unsafe { dealloc(self.place.as_ptr(), self.layout) };
    }
}

/// Memory of a model's that a test lends to the device by way of a driver.
pub struct ModelLent {
    memory: ModelMemory,
    len: usize,
    gone: Arc<Mutex<usize>>,
}

impl ModelLent {
    /// `len` bytes of `memory`. `gone` counts what was given back.
    pub(super) fn new(memory: ModelMemory, len: usize, gone: Arc<Mutex<usize>>) -> Self {
        Self { memory, len, gone }
    }
}

impl LentMemory for ModelLent {
    fn device_address(&self) -> u64 {
        self.memory.address
    }

    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: the block has as many bytes, zeroed at allocation, and lives as long as this. Models write only between calls of the
        // driver, which holds the slice no longer than one.
        let all = unsafe { slice::from_raw_parts(self.memory.place.as_ptr(), self.len) };
        all.get(range).unwrap_or_default()
    }
}

impl Drop for ModelLent {
    fn drop(&mut self) {
        *self.gone.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }
}
