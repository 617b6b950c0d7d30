//! Initial RAM disks for Linux, by `EFI_LOAD_FILE2_PROTOCOL` on the device path that Linux's EFI stub looks for.

use crate::callbacks::Callback;
use crate::memory::Pages;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use uefi::Handle;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams};
use uefi::proto::device_path::DevicePath;
use uefi::proto::media::load_file::LoadFile2;
use uefi_raw::protocol::device_path::DevicePathProtocol;
use uefi_raw::protocol::media::LoadFile2Protocol;
use uefi_raw::{Boolean, Guid, Status, guid};
use wireboot_net::Memory;

const DEVICE_PATH: Guid = DevicePathProtocol::GUID;

/// `LINUX_EFI_INITRD_MEDIA_GUID`.
const INITRD_MEDIA: Guid = guid!("5568e427-68fc-4f3d-ac74-ca555231cc68");

/// A vendor-defined media node with that GUID, and the end node.
const PATH: [u8; 24] = {
    let mut path = [0; 24];
    path[0] = 4;
    path[1] = 3;
    path[2] = 20;
    let (guid, _) = path.split_at_mut(4).1.split_at_mut(16);
    guid.copy_from_slice(&INITRD_MEDIA.to_bytes());
    path[20] = 0x7f;
    path[21] = 0xff;
    path[22] = 4;
    path
};

/// One file: memory, of which the first `len` bytes are the file.
#[derive(Debug)]
pub struct Part {
    /// Where it is, in one piece or several.
    pub memory: Memory,
    /// Its length in bytes; no more than the memory's.
    pub len: usize,
}

#[repr(C)]
struct Server {
    /// First, so that the protocol's `this` is also the server's address.
    protocol: LoadFile2Protocol,
    parts: Vec<Part>,
    /// The place of Linux' copy, free from when it asks how large that must be. Until then the stub has unpacked the kernel, to an
    /// address that it draws by lot.
    held: Option<Pages>,
    path: [u8; PATH.len()],
}

/// Takes the device path from whoever offers initrds there: Linux would take theirs. iPXE offers the script that runs, where that has come by
/// the network; it expects that its path is taken, and takes that of others.
pub fn take_path() {
    let mut path = <&DevicePath>::try_from(&PATH[..]);
    let Ok(path) = &mut path else { return };
    let Ok(handle) = boot::locate_device_path::<LoadFile2>(path) else {
        return;
    };
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: used at once, with nothing between that could remove the protocol.
    let theirs =
        unsafe { boot::open_protocol::<DevicePath>(params, OpenProtocolAttributes::GetProtocol) };
    let Some(theirs) = theirs
        .ok()
        .and_then(|open| Some(NonNull::from(open.get()?)))
    else {
        return;
    };
    // SAFETY: the pointer is the one that the protocol is installed with, and nobody here refers to it.
    let _ =
        unsafe { boot::uninstall_protocol_interface(handle, &DEVICE_PATH, theirs.as_ptr().cast()) };
}

/// Serves initrds while it lives.
#[derive(Debug)]
pub struct Initrds {
    server: NonNull<Server>,
    handle: Handle,
    known: ManuallyDrop<Callback>,
}

impl Initrds {
    /// Offers the files, one after the other in the order given, to the next image, and holds memory for its copy of them.
    ///
    /// # Errors
    /// What the firmware answers when it has no memory for that copy, or for another handle.
    pub fn offer(parts: Vec<Part>) -> uefi::Result<Self> {
        let known = Callback::new();
        let held = Pages::allocate(total(&parts))?;
        let server = Box::new(Server {
            protocol: LoadFile2Protocol { load_file },
            parts,
            held: Some(held),
            path: PATH,
        });
        let server = NonNull::from(Box::leak(server));
        let this = server.as_ptr();
        // SAFETY: path and protocol live until `drop` has removed both from the handle.
        let installed = unsafe {
            boot::install_protocol_interface(None, &DEVICE_PATH, (&raw const (*this).path).cast())
                .and_then(|handle| {
                    boot::install_protocol_interface(
                        Some(handle),
                        &LoadFile2Protocol::GUID,
                        this.cast(),
                    )
                    .inspect_err(|_| {
                        let path = (&raw const (*this).path).cast();
                        let _ = boot::uninstall_protocol_interface(handle, &DEVICE_PATH, path);
                    })
                })
        };
        match installed {
            Ok(handle) => Ok(Self {
                server,
                handle,
                known: ManuallyDrop::new(known),
            }),
            Err(error) => {
                // SAFETY: leaked above; no protocol refers to it.
                drop(unsafe { Box::from_raw(this) });
                Err(error)
            }
        }
    }
}

impl Drop for Initrds {
    fn drop(&mut self) {
        let this = self.server.as_ptr();
        // SAFETY: installed by `offer` with these addresses. Only when the firmware knows neither any more is
        // the memory freed, and the function forgotten.
        unsafe {
            let file = boot::uninstall_protocol_interface(
                self.handle,
                &LoadFile2Protocol::GUID,
                this.cast(),
            );
            let path = boot::uninstall_protocol_interface(
                self.handle,
                &DEVICE_PATH,
                (&raw const (*this).path).cast(),
            );
            if file.is_ok() && path.is_ok() {
                drop(Box::from_raw(this));
                ManuallyDrop::drop(&mut self.known);
            }
        }
    }
}

unsafe extern "efiapi" fn load_file(
    this: *mut LoadFile2Protocol,
    _path: *const DevicePathProtocol,
    boot_policy: Boolean,
    buffer_size: *mut usize,
    buffer: *mut c_void,
) -> Status {
    if this.is_null() || buffer_size.is_null() {
        return Status::INVALID_PARAMETER;
    }
    if bool::from(boot_policy) {
        return Status::UNSUPPORTED;
    }
    // SAFETY: `this` is the server's first field, alive while installed, and nobody else refers to the server meanwhile.
    let Server { parts, held, .. } = unsafe { &mut *this.cast::<Server>() };
    let needed = total(parts);
    // SAFETY: the caller's variable, as the specification says.
    let given = unsafe { buffer_size.replace(needed) };
    if given < needed || buffer.is_null() {
        *held = None;
        return Status::BUFFER_TOO_SMALL;
    }
    #[cfg(feature = "faults")]
    crate::faults::reach(crate::faults::Place::Initrd);
    // SAFETY: the caller's buffer holds `given` bytes, at least `needed`; it is written before it is read.
    let out = unsafe { core::slice::from_raw_parts_mut(buffer.cast::<u8>(), needed) };
    if concatenate(parts, out) {
        Status::SUCCESS
    } else {
        Status::DEVICE_ERROR
    }
}

/// What a file of so many bytes takes of the copy: each begins at a multiple of 4 bytes, as Linux wants it of archives in a row.
#[must_use]
pub fn padded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(4).unwrap_or(bytes)
}

fn room(part: &Part) -> usize {
    padded(part.len as u64) as usize
}

fn total(parts: &[Part]) -> usize {
    parts.iter().map(room).sum()
}

/// False where a file is longer than its memory, or `out` is too short.
fn concatenate(parts: &[Part], mut out: &mut [u8]) -> bool {
    for part in parts {
        let Some((mut place, rest)) = out.split_at_mut_checked(room(part)) else {
            return false;
        };
        let mut at = 0;
        while at < part.len {
            let piece = part.memory.rest(at);
            let piece = piece.get(..part.len - at).unwrap_or(piece);
            let Some((to, behind)) = place.split_at_mut_checked(piece.len()) else {
                return false;
            };
            if piece.is_empty() {
                return false;
            }
            to.copy_from_slice(piece);
            place = behind;
            at += piece.len();
        }
        place.fill(0);
        out = rest;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_ring::{HeapBlock, prefix};

    #[test]
    fn files_in_a_row_start_at_multiples_of_4() {
        let part = |bytes: &[u8], len| Part {
            memory: Memory::from(bytes.to_vec()),
            len,
        };
        let parts = [
            part(b"abcdeXX", 5),
            part(b"", 0),
            part(b"1234", 4),
            part(b"z", 1),
        ];
        assert_eq!(total(&parts), 16);
        let mut out = [0xff; 16];
        assert!(concatenate(&parts, &mut out));
        assert_eq!(&out, b"abcde\0\0\x001234z\0\0\0");
    }

    #[test]
    fn a_length_beyond_the_memory_is_no_harm() {
        let parts = [Part {
            memory: Memory::from(alloc::vec![1, 2]),
            len: 3,
        }];
        assert_eq!(total(&parts), 4);
        assert!(!concatenate(&parts, &mut [0; 4]));
        assert!(!concatenate(&parts, &mut [0; 3]));
    }

    #[test]
    fn a_file_in_pieces_comes_out_in_one() {
        let bytes: Vec<u8> = (0..20).collect();
        let (memory, _) = prefix(HeapBlock::in_pieces(&bytes, 3));
        let parts = [Part {
            memory: Memory::new(memory),
            len: 17,
        }];
        let mut out = [0xff; 20];
        assert!(concatenate(&parts, &mut out));
        assert_eq!(out[..17], bytes[..17]);
        assert_eq!(out[17..], [0; 3]);
    }
}
