//! Memory that a driver in this process shares with a card in another: pieces of one file, which the card maps, too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::rc::Rc;

use std::cell::Cell;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use wireboot_nic::platform::{DmaMemory, PlatformError};

use crate::vhost::MemoryRegion;

/// More than a driver takes for a pair of queues. What it leaves is no memory, but addresses.
const LEN: usize = 64 << 20;
const PAGE: usize = 4096;
/// Where the device sees it: not where the driver does, so that who mistakes one for the other is found out.
const DEVICE_ADDRESS: u64 = 0x1_0000_0000;

/// All memory of one driver. No piece is given twice.
#[derive(Debug)]
pub(super) struct Shared {
    file: OwnedFd,
    first: NonNull<u8>,
    given: Cell<usize>,
}

impl Shared {
    pub(super) fn new() -> io::Result<Rc<Self>> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("wireboot", flags)?;
        ftruncate(&file, LEN as u64)?;
        // As monitors do it: a card that finds it so need not fear that it is taken away.
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
        let place = unsafe { mmap(ptr::null_mut(), LEN, access, MapFlags::SHARED, &file, 0) }?;
        Ok(Rc::new(Self {
            file,
            first: NonNull::new(place.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            given: Cell::new(0),
        }))
    }

    /// For the card.
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

    pub(super) fn allocate(self: &Rc<Self>, len: usize) -> Result<Piece, PlatformError> {
        let offset = self.given.get();
        let len = len.max(1).checked_next_multiple_of(PAGE);
        let len = len.ok_or(PlatformError::OutOfMemory)?;
        let end = offset.checked_add(len).filter(|end| *end <= LEN);
        self.given.set(end.ok_or(PlatformError::OutOfMemory)?);
        Ok(Piece {
            // SAFETY: the piece is not beyond the end of the mapping.
            first: unsafe { self.first.add(offset) },
            len,
            device: DEVICE_ADDRESS + offset as u64,
            _shared: self.clone(),
        })
    }
}

impl Drop for Shared {
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
    _shared: Rc<Shared>,
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
