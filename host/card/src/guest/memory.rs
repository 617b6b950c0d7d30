//! Memory that a driver in this process shares with a card in another: pieces of one file, which the card maps, too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use wireboot_net::Memory;
use wireboot_nic::platform::{DmaMemory, PlatformError};
use wireboot_ring::{Block, prefix};

use crate::vhost::MemoryRegion;

/// More than a driver takes for a pair of queues, and files. What they leave is no memory, but addresses.
const LEN: usize = 256 << 20;
const PAGE: usize = 4096;
/// Where the device sees it: not where the driver does, so that who mistakes one for the other is found out.
const DEVICE_ADDRESS: u64 = 0x1_0000_0000;

/// All memory of one driver: a mapped memfd, of which pieces are allocated. No piece is given twice.
#[derive(Debug)]
pub(super) struct MemfdPool {
    file: OwnedFd,
    first: NonNull<u8>,
    given: AtomicUsize,
}

impl MemfdPool {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("wireboot", flags)?;
        ftruncate(&file, LEN as u64)?;
        // As monitors do it: a card that finds it so need not fear that it is taken away.
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
        let place = unsafe { mmap(ptr::null_mut(), LEN, access, MapFlags::SHARED, &file, 0) }?;
        Ok(Arc::new(Self {
            file,
            first: NonNull::new(place.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            given: AtomicUsize::new(0),
        }))
    }

    /// The file behind it, which the card maps.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// What the card is told of it.
    pub(super) fn region(&self) -> MemoryRegion {
        MemoryRegion {
            guest: DEVICE_ADDRESS,
            len: LEN as u64,
            user: self.first.as_ptr().expose_provenance() as u64,
            offset: 0,
        }
    }

    /// What a monitor calls the place that the device sees there.
    pub(super) fn user_address(&self, device: u64) -> u64 {
        let user = self.region().user;
        user.wrapping_add(device.wrapping_sub(DEVICE_ADDRESS))
    }

    pub(super) fn allocate(self: &Arc<Self>, len: usize) -> Result<Piece, PlatformError> {
        let len = len.max(1).checked_next_multiple_of(PAGE);
        let len = len.ok_or(PlatformError::OutOfMemory)?;
        let next = |given: usize| given.checked_add(len).filter(|end| *end <= LEN);
        let offset = self
            .given
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .map_err(|_| PlatformError::OutOfMemory)?;
        Ok(Piece {
            // SAFETY: the piece is not beyond the end of the mapping.
            first: unsafe { self.first.add(offset) },
            len,
            device: DEVICE_ADDRESS + offset as u64,
            _shared: self.clone(),
        })
    }
}

impl Drop for MemfdPool {
    fn drop(&mut self) {
        // SAFETY: mapped so, and pieces, which have pointers into it, hold on to it.
        let result = unsafe { munmap(self.first.as_ptr().cast(), LEN) };
        debug_assert!(result.is_ok());
    }
}

/// A piece for the driver.
#[derive(Debug)]
pub(crate) struct Piece {
    first: NonNull<u8>,
    len: usize,
    device: u64,
    /// Keeps it mapped.
    _shared: Arc<MemfdPool>,
}

// SAFETY: plain memory that stays where it is; nobody else has the piece, and the mapping's owners may be on any threads.
unsafe impl Send for Piece {}
// SAFETY: the mapping is shared to be kept and to be asked for what does not change.
unsafe impl Send for MemfdPool {}
// SAFETY: as above; what was given is an atomic number.
unsafe impl Sync for MemfdPool {}

/// What gives a download its memory: a piece of the pool, to which the card can write.
pub(super) struct FileMemory(pub Arc<MemfdPool>);

impl FileMemory {
    /// So many bytes; elsewhere when there is too little.
    pub(super) fn allocate(&self, len: usize) -> Memory {
        match self.0.allocate(len) {
            Ok(piece) => Memory::new(prefix(FilePiece(piece)).0),
            Err(_) => Memory::from(vec![0; len]),
        }
    }
}

/// A piece for a file.
struct FilePiece(Piece);

// SAFETY: as of `DmaMemory` below: ours while it lives, at its place, zeros at first. The card writes where the driver has lent it a part alone.
unsafe impl Block for FilePiece {
    fn place(&self, at: usize) -> (NonNull<u8>, usize) {
        // SAFETY: nobody asks for bytes beyond the end.
        (unsafe { self.0.first.add(at) }, self.0.len - at)
    }

    fn len(&self) -> usize {
        self.0.len
    }

    fn device_address(&self, at: usize) -> Option<u64> {
        Some(self.0.device + at as u64)
    }
}

// SAFETY: the piece is mapped for reading and writing while it holds on to the mapping; it begins at a page; the file's bytes are zeros until
// written, and no piece is given twice; nobody makes references to it; the card was told that the device sees the mapping at DEVICE_ADDRESS, in one.
unsafe impl DmaMemory for Piece {
    fn as_ptr(&self) -> NonNull<u8> {
        self.first
    }

    fn len(&self) -> usize {
        self.len
    }

    fn device_address(&self) -> u64 {
        self.device
    }
}
