//! The boot services that loaders use, as they use them: raw tables, not what is safe.

use crate::report::{Failure, succeeded};
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::boot::{self, SearchType};
use uefi::proto::device_path::DevicePath;
use uefi::{Guid, Handle, Identify};
use uefi_raw::table::boot::BootServices;

/// Attributes of OpenProtocol (UEFI 2.10, section 7.3.9).
const EXCLUSIVE: u32 = 0x20;

/// The table, while boot services last.
pub(crate) fn services() -> Result<&'static BootServices, Failure> {
    // SAFETY: the firmware's own table; this program ends before boot services do.
    unsafe {
        let table = uefi::table::system_table_raw().ok_or(Failure::Absent("boot services"))?;
        let services = table.as_ref().boot_services.as_ref();
        services.ok_or(Failure::Absent("boot services"))
    }
}

/// HandleProtocol.
pub(crate) fn protocol<T>(
    handle: Handle,
    guid: &Guid,
    what: &'static str,
) -> Result<NonNull<T>, Failure> {
    let mut found = ptr::null_mut();
    // SAFETY: all three are variables of ours or the firmware's.
    let status = unsafe { (services()?.handle_protocol)(handle.as_ptr(), guid, &mut found) };
    let found = NonNull::new(found.cast()).filter(|_| status == uefi::Status::SUCCESS);
    found.ok_or(Failure::Absent(what))
}

/// OpenProtocol, exclusively: the drivers above are disconnected.
pub(crate) fn exclusively<T>(handle: Handle, guid: &Guid) -> Result<NonNull<T>, Failure> {
    let mut found = ptr::null_mut();
    // SAFETY: variables of ours and the firmware's; no controller, as an application has none.
    let status = unsafe {
        (services()?.open_protocol)(
            handle.as_ptr(),
            guid,
            &mut found,
            boot::image_handle().as_ptr(),
            ptr::null_mut(),
            EXCLUSIVE,
        )
    };
    succeeded("exclusive open", status)?;
    NonNull::new(found.cast()).ok_or(Failure::Wrong("an open that leads nowhere"))
}

/// CloseProtocol.
pub(crate) fn close(handle: Handle, guid: &Guid) {
    if let Ok(services) = services() {
        // SAFETY: as opened by `exclusively`.
        let _ = unsafe {
            (services.close_protocol)(
                handle.as_ptr(),
                guid,
                boot::image_handle().as_ptr(),
                ptr::null_mut(),
            )
        };
    }
}

/// All handles that have the protocol.
pub(crate) fn handles(guid: &Guid) -> Vec<Handle> {
    let found = boot::locate_handle_buffer(SearchType::ByProtocol(guid));
    found.map(|handles| handles.to_vec()).unwrap_or_default()
}

/// The device path's nodes, as types, subtypes and bytes of each.
pub(crate) fn nodes(handle: Handle) -> Vec<((u8, u8), Vec<u8>)> {
    let Ok(path) = protocol::<c_void>(handle, &DevicePath::GUID, "device path") else {
        return Vec::new();
    };
    // SAFETY: the firmware's device path, which ends with an end node.
    let path = unsafe { DevicePath::from_ffi_ptr(path.as_ptr().cast()) };
    path.node_iter()
        .map(|node| {
            let (kind, subtype) = node.full_type();
            ((kind.0, subtype.0), node.data().to_vec())
        })
        .collect()
}

/// LocateDevicePath: the handle with the protocol on the way to `device`.
pub(crate) fn on_the_way(
    device: Handle,
    guid: &Guid,
    what: &'static str,
) -> Result<Handle, Failure> {
    let path = protocol::<c_void>(device, &DevicePath::GUID, "device path")?;
    let mut path = path.as_ptr().cast_const().cast();
    let mut found = ptr::null_mut();
    // SAFETY: the firmware's device path, and variables of ours.
    let status = unsafe { (services()?.locate_device_path)(guid, &mut path, &mut found) };
    // SAFETY: null or a handle of the firmware's.
    let found = unsafe { Handle::from_ptr(found) }.filter(|_| status == uefi::Status::SUCCESS);
    found.ok_or(Failure::Absent(what))
}
