//! Boot files through `EFI_LOAD_FILE_PROTOCOL` (UEFI 2.10, section 13.1), as the firmware's boot manager gets them: PXE and HTTP Boot. Nothing
//! is started.

use crate::claim::snp;
use crate::device_path;
use crate::memory::Pages;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol, SearchType};
use uefi::proto::ProtocolPointer;
use uefi::proto::media::load_file::LoadFile as LoadFileProtocol;
use uefi::proto::network::pxe::BaseCode;
use uefi::{Handle, Status};
use uefi_raw::Boolean;
use uefi_raw::protocol::device_path::DevicePathProtocol;
use uefi_raw::protocol::media;

/// A handle that loads boot files.
#[derive(Clone, Debug)]
pub struct LoadFile {
    handle: Handle,
    /// The nodes of its device path, without end node.
    pub path: Box<[u8]>,
}

/// What it would load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A program of so many bytes.
    File(usize),
    /// A disk's image of so many bytes. Loading it would make a RAM disk of it.
    RamDisk(usize),
}

/// All handles that load boot files, in the firmware's order.
#[must_use]
pub fn all() -> Vec<LoadFile> {
    let Ok(handles) = boot::locate_handle_buffer(SearchType::from_proto::<LoadFileProtocol>())
    else {
        return Vec::new();
    };
    handles.iter().copied().filter_map(LoadFile::of).collect()
}

/// The end node of a device path (UEFI 2.10, section 10.3.1).
const END: [u8; 4] = [0x7f, 0xff, 4, 0];

fn open<P: ProtocolPointer>(handle: Handle) -> uefi::Result<ScopedProtocol<P>> {
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: used at once, by its own functions. (Opening it exclusively would disconnect the firmware's network.)
    unsafe { boot::open_protocol(params, OpenProtocolAttributes::GetProtocol) }
}

impl LoadFile {
    /// That of a handle; `None` where it has no device path.
    pub(crate) fn of(handle: Handle) -> Option<Self> {
        let path = device_path::of_handle(handle)?;
        Some(Self { handle, path })
    }

    /// Asks for the size of the file at `path` behind the handle's own (nodes without end node; empty where the boot option leads right here).
    /// The firmware gets an address and asks the server for that.
    ///
    /// # Errors
    /// The firmware's: `NO_MEDIA`, `NO_RESPONSE`, `NOT_FOUND`, `TIMEOUT`, `ABORTED` by a key and others; `LOAD_ERROR` where it loads without
    /// telling a size.
    pub fn size(&self, path: &[u8]) -> uefi::Result<Size> {
        let mut bytes = 0;
        match self.call(path, &mut bytes, ptr::null_mut())? {
            Status::BUFFER_TOO_SMALL => Ok(Size::File(bytes)),
            Status::WARN_FILE_SYSTEM => Ok(Size::RamDisk(bytes)),
            Status::SUCCESS => Err(Status::LOAD_ERROR.into()),
            status => Err(status.into()),
        }
    }

    /// Loads it into memory of ours, which is given back, and returns its size.
    ///
    /// # Errors
    /// As [`Self::size`], and `OUT_OF_RESOURCES` where the machine has no such memory.
    pub fn load(&self, path: &[u8], size: usize) -> uefi::Result<usize> {
        let memory = Pages::allocate(size)?;
        let mut bytes = size;
        match self.call(path, &mut bytes, memory.start().as_ptr())? {
            Status::SUCCESS => Ok(bytes),
            status => Err(status.into()),
        }
    }

    /// Calls the protocol with `BootPolicy` set. `buffer` is null or has room for `bytes`.
    fn call(&self, path: &[u8], bytes: &mut usize, buffer: *mut u8) -> uefi::Result<Status> {
        let mut protocol = open::<LoadFileProtocol>(self.handle)?;
        let protocol = protocol.get_mut().ok_or(Status::UNSUPPORTED)?;
        // A transparent wrapper of it.
        let protocol = NonNull::from(protocol)
            .cast::<media::LoadFileProtocol>()
            .as_ptr();
        let path = [path, &END].concat();
        let path: *const DevicePathProtocol = path.as_ptr().cast();
        // SAFETY: the protocol is the handle's, the path ends, and the buffer is as long as told. The firmware returns when it is done with
        // all of them.
        Ok(unsafe { ((*protocol).load_file)(protocol, path, Boolean::TRUE, bytes, buffer.cast()) })
    }

    /// Has PXE forget the address and the packets of its last boot, which it would use again. HTTP Boot forgets by itself.
    pub fn end(&self) {
        if let Ok(mut pxe) = open::<BaseCode>(self.handle)
            && let Some(pxe) = pxe.get_mut()
            && pxe.mode().started()
        {
            let _ = pxe.stop();
        }
    }

    /// Has HTTP Boot forget a file whose size was told and that is not loaded. There is no call for it, but EDK II's ends at any error other than
    /// that of a buffer too small: here a size without a buffer.
    pub fn decline(&self) {
        if open::<BaseCode>(self.handle).is_err() {
            let mut bytes = 1;
            let _ = self.call(&[], &mut bytes, ptr::null_mut());
        }
    }
}

/// Connects the firmware's network above the card with this Ethernet address anew: its handles are as after the machine's start, as HTTP Boot
/// changes its own. Handles that were found before are gone then.
pub fn connect_anew(mac: [u8; 6]) {
    for interface in snp::interfaces() {
        if device_path::NetworkPath::parse(&interface.path).mac == Some(mac) {
            // Its drop connects them.
            drop(snp::Claim::take(&interface));
        }
    }
}
