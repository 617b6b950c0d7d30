//! A boot manager that starts another file of the server that it came from, as systemd-boot does: LoadImage by the path of its device with
//! another URL. Before, the calls of LoadFile that the firmware makes of that.

use crate::efi::{self, services};
use crate::report::{Failure, succeeded};
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::boot;
use uefi::{Handle, Status};
use uefi_raw::Boolean;
use uefi_raw::protocol::device_path::DevicePathProtocol;
use uefi_raw::protocol::media::LoadFileProtocol;

const END: [u8; 4] = [0x7f, 0xff, 4, 0];
/// Type and subtype of a node with a URI.
const URI: (u8, u8) = (3, 24);

fn node(kind: (u8, u8), data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(data.len() + 4).unwrap_or(u16::MAX);
    [&[kind.0, kind.1][..], &len.to_le_bytes(), data].concat()
}

/// The device's path with `url` in the place of its own.
fn path(device: Handle, url: &str) -> Vec<u8> {
    let own = efi::nodes(device).into_iter();
    let own = own.filter(|(kind, _)| *kind != URI);
    let mut path: Vec<u8> = own.flat_map(|(kind, data)| node(kind, &data)).collect();
    path.extend(node(URI, url.as_bytes()));
    path.extend(END);
    path
}

/// The protocol on the way to a path, and what is left of that.
struct LoadFile<'a> {
    protocol: NonNull<LoadFileProtocol>,
    rest: &'a [u8],
}

impl<'a> LoadFile<'a> {
    fn of(path: &'a [u8]) -> Result<Self, Failure> {
        const ABSENT: Failure = Failure::Absent("LoadFile");
        let mut rest: *const DevicePathProtocol = path.as_ptr().cast();
        let mut found = ptr::null_mut();
        // SAFETY: a path with an end node, and variables of ours.
        let status = unsafe {
            (services()?.locate_device_path)(&LoadFileProtocol::GUID, &mut rest, &mut found)
        };
        succeeded("LocateDevicePath", status)?;
        // SAFETY: a handle of the firmware's.
        let found = unsafe { Handle::from_ptr(found) }.ok_or(ABSENT)?;
        let at = (rest as usize).wrapping_sub(path.as_ptr() as usize);
        Ok(Self {
            protocol: efi::protocol(found, &LoadFileProtocol::GUID, "LoadFile")?,
            rest: path.get(at..).ok_or(ABSENT)?,
        })
    }

    fn call(&self, path: &[u8], boot_policy: Boolean, size: &mut usize, to: *mut u8) -> Status {
        // SAFETY: the protocol stays while a program that came by it runs; the arguments are this program's.
        unsafe {
            (self.protocol.as_ref().load_file)(
                self.protocol.as_ptr(),
                path.as_ptr().cast(),
                boot_policy,
                size,
                to.cast::<c_void>(),
            )
        }
    }

    /// The answer that is `wanted` of a call without a buffer, or with `room`. Returns the size that it tells.
    fn answers(
        &self,
        what: &'static str,
        path: &[u8],
        boot_policy: Boolean,
        room: &mut [u8],
        wanted: Status,
    ) -> Result<usize, Failure> {
        let mut size = room.len();
        let to = if room.is_empty() {
            ptr::null_mut()
        } else {
            room.as_mut_ptr()
        };
        let status = self.call(path, boot_policy, &mut size, to);
        if status == wanted {
            Ok(size)
        } else {
            Err(Failure::Refused(what, status))
        }
    }
}

/// The file by LoadFile, and then started.
pub(crate) fn start(device: Handle, url: &str) -> Result<Vec<u8>, Failure> {
    let path = path(device, url);
    let bytes = by_hand(&path, url)?;
    let services = services()?;
    let mut image = ptr::null_mut();
    // SAFETY: the firmware loads the file by our path; variables of ours.
    unsafe {
        let status = (services.load_image)(
            Boolean::TRUE,
            boot::image_handle().as_ptr(),
            path.as_ptr().cast(),
            ptr::null(),
            0,
            &mut image,
        );
        succeeded("LoadImage", status)?;
        let status = (services.start_image)(image, ptr::null_mut(), ptr::null_mut());
        succeeded("StartImage", status)?;
    }
    Ok(bytes)
}

/// LoadFile of the device's own file, which is not read: that it is there is told by BUFFER_TOO_SMALL.
pub(crate) fn own(device: Handle) -> Result<Status, Failure> {
    let file = LoadFile {
        protocol: efi::protocol(device, &LoadFileProtocol::GUID, "LoadFile")?,
        rest: &END,
    };
    Ok(file.call(file.rest, Boolean::TRUE, &mut 0, ptr::null_mut()))
}

fn by_hand(path: &[u8], url: &str) -> Result<Vec<u8>, Failure> {
    const SMALL: Status = Status::BUFFER_TOO_SMALL;
    let file = LoadFile::of(path)?;
    let policy = "without boot policy";
    for path in [file.rest, &END] {
        file.answers(policy, path, Boolean::FALSE, &mut [], Status::UNSUPPORTED)?;
    }
    let own = file.answers("own size", &END, Boolean::TRUE, &mut [], SMALL)?;
    let size = file.answers("size", file.rest, Boolean::TRUE, &mut [], SMALL)?;
    if own == 0 || size < 2 {
        return Err(Failure::Wrong("no size"));
    }
    let mut short = vec![0; size - 1];
    let told = file.answers("short", file.rest, Boolean::TRUE, &mut short, SMALL)?;
    let mut room = vec![0; size];
    let read = file.answers(
        "whole",
        file.rest,
        Boolean::TRUE,
        &mut room,
        Status::SUCCESS,
    )?;
    if [told, read] != [size; 2] {
        return Err(Failure::Wrong("another size than was told"));
    }
    let absent = node(URI, &[url.as_bytes(), b".absent"].concat());
    let absent = [&absent[..], &END].concat();
    let none = Status::NOT_FOUND;
    file.answers("absent", &absent, Boolean::TRUE, &mut [], none)?;
    Ok(room)
}
