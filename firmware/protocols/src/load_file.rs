//! EFI_LOAD_FILE_PROTOCOL: its table, and the path that a caller passes.

use crate::caller::Buffer;
use crate::failure::Failure;
use crate::http;
use crate::offered::Offered;
use crate::shared::{self, Network, SharedProtocolState};
use crate::status::status;
use alloc::boxed::Box;
use core::ffi::c_void;
use uefi_raw::protocol::device_path::DevicePathProtocol;
use uefi_raw::protocol::media::LoadFileProtocol;
use uefi_raw::{Boolean, Status};
use wireboot_fetch::url::Url;
use wireboot_protocols::{Refusal, load_file as logic};

/// The longest path that an end is looked for in, in bytes.
const LONGEST_PATH: usize = 8192;
/// TFTP's error of a file that is not there (RFC 1350, section 5).
const FILE_NOT_FOUND: u8 = 1;

static OFFERED: Offered<LoadFileTable> = Offered::none();

#[repr(C)]
pub(crate) struct LoadFileTable {
    /// First, so that `this` is also the table's address.
    protocol: LoadFileProtocol,
    /// The file where a caller names none.
    own: Url,
    shared: &'static SharedProtocolState,
}

impl LoadFileTable {
    pub(crate) fn new(shared: &'static SharedProtocolState, own: &Url) -> Box<Self> {
        let table = Box::new(Self {
            protocol: LoadFileProtocol { load_file },
            own: own.clone(),
            shared,
        });
        OFFERED.set(&table);
        table
    }

    pub(crate) fn protocol(&self) -> *const c_void {
        (&raw const self.protocol).cast()
    }
}

impl Drop for LoadFileTable {
    fn drop(&mut self) {
        OFFERED.forget(self);
    }
}

/// The caller's device path, its end node included; as far as it can be one.
///
/// # Safety
/// `path` leads to nodes of the caller's up to an end node.
unsafe fn nodes<'a>(path: *const DevicePathProtocol) -> &'a [u8] {
    let path: *const u8 = path.cast();
    let mut len = 0;
    while len < LONGEST_PATH {
        // SAFETY: the caller's word, as no end node has come yet.
        let [kind, _, low, high] = unsafe { path.add(len).cast::<[u8; 4]>().read_unaligned() };
        let node = usize::from(u16::from_le_bytes([low, high]));
        len += node;
        if kind == 0x7f || node < 4 {
            break;
        }
    }
    // SAFETY: as above; no more than the nodes themselves.
    unsafe { core::slice::from_raw_parts(path, len) }
}

unsafe extern "efiapi" fn load_file(
    this: *mut LoadFileProtocol,
    path: *const DevicePathProtocol,
    boot_policy: Boolean,
    size: *mut usize,
    buffer: *mut c_void,
) -> Status {
    let Some(table) = OFFERED.at(this) else {
        return Status::INVALID_PARAMETER;
    };
    if path.is_null() || size.is_null() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: the caller's.
    let (path, room) = unsafe { (nodes(path), size.read_unaligned()) };
    // SAFETY: the caller's buffer of as many bytes as its size says, for the length of the call.
    let memory = unsafe { Buffer::new(buffer, room as u64) };
    if memory.is_none() && !buffer.is_null() {
        return Status::INVALID_PARAMETER;
    }
    let url = match logic::wanted(path, boot_policy.into(), &table.own) {
        Ok(url) => url,
        Err(refusal) => return status(refusal),
    };
    let mut call = match table.shared.call() {
        Ok(call) => call,
        Err(refusal) => return status(refusal),
    };
    http::forget_ended(&mut call.state);
    if !call.state.network.link_up() {
        return Status::NO_MEDIA;
    }
    let result = load(&mut *call.state.network, &url, memory);
    if let Ok(len) | Err(Refusal::BufferTooSmall(len)) = result {
        // SAFETY: the caller's variable.
        unsafe { size.write_unaligned(len) };
    }
    result.map_or_else(status, |_| Status::SUCCESS)
}

/// Returns the file's size. Without memory that is what is asked for.
fn load(network: &mut dyn Network, url: &Url, memory: Option<Buffer>) -> Result<usize, Refusal> {
    let result = match memory {
        Some(memory) => shared::read(network, url, memory),
        None => network
            .size(url)
            .and_then(|size| Err(Failure::TooSmall(size))),
    };
    let size = |size| usize::try_from(size).unwrap_or(usize::MAX);
    result.map(size).map_err(|failure| match failure {
        Failure::TooSmall(len) => Refusal::BufferTooSmall(size(len)),
        Failure::NotFound
        | Failure::Tftp {
            code: FILE_NOT_FOUND,
            ..
        } => Refusal::NotFound,
        Failure::Tftp { .. } => Refusal::TftpError,
        Failure::Refused | Failure::Timeout => Refusal::NoResponse,
        Failure::OutOfResources => Refusal::OutOfResources,
        Failure::Device => Refusal::DeviceError,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_behind_its_end_node() {
        // SAFETY: each has an end node, or a node that is shorter than any.
        let read = |bytes: &'static [u8]| unsafe { nodes(bytes.as_ptr().cast()) };
        let path = &[3, 24, 5, 0, b'a', 0x7f, 0xff, 4, 0, 1, 2, 3, 4];
        assert_eq!(read(path), &path[..9]);
        assert_eq!(read(&path[5..]), &path[5..9]);
        assert_eq!(read(&[3, 24, 3, 0, 9]), &[3, 24, 3]);
        assert_eq!(read(&[3, 24, 0, 0]), &[]);
        let endless = alloc::vec![4_u8; LONGEST_PATH + 0x404];
        // SAFETY: longer than what is looked at, by one node.
        let endless = unsafe { nodes(endless.as_ptr().cast()) };
        assert!(endless.len() >= LONGEST_PATH);
    }
}
