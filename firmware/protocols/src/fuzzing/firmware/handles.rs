//! Handles, and protocols on them.

use super::{HANDLES, allocate_pool, check_running, find, handle, has_room, index_of, with};
use core::ffi::c_void;
use core::ptr;
use uefi_raw::table::boot::{InterfaceType, MemoryType};
use uefi_raw::{Guid, Handle, Status};

/// InstallProtocolInterface.
pub(in super::super) fn install_on(
    on: Handle,
    guid: &Guid,
    interface: *const c_void,
) -> Result<Handle, Status> {
    with(|state| {
        let index = if on.is_null() {
            state.handles.push(Vec::new());
            state.handles.len() - 1
        } else {
            index_of(on.addr(), HANDLES)
        };
        let protocols = state.handles.get_mut(index);
        let protocols = protocols.filter(|all| on.is_null() || !all.is_empty());
        let protocols = protocols.ok_or(Status::INVALID_PARAMETER)?;
        if protocols.iter().any(|(one, _)| one == guid) {
            return Err(Status::INVALID_PARAMETER);
        }
        protocols.push((*guid, interface.cast_mut()));
        Ok(handle(index))
    })
}

/// UninstallProtocolInterface.
pub(in super::super) fn uninstall_from(
    on: Handle,
    guid: &Guid,
    interface: *const c_void,
) -> Status {
    with(|state| {
        let index = index_of(on.addr(), HANDLES);
        let Some(protocols) = state.handles.get_mut(index) else {
            return Status::INVALID_PARAMETER;
        };
        let is = |(one, at): &(Guid, *mut c_void)| one == guid && ptr::eq(*at, interface);
        let Some(place) = protocols.iter().position(is) else {
            return Status::NOT_FOUND;
        };
        if state.in_use.contains(guid) {
            return Status::ACCESS_DENIED;
        }
        protocols.remove(place);
        protocols.shrink_to_fit();
        Status::SUCCESS
    })
}

pub(super) unsafe extern "efiapi" fn install_protocol_interface(
    on: *mut Handle,
    guid: *const Guid,
    _: InterfaceType,
    interface: *const c_void,
) -> Status {
    check_running();
    if !has_room() {
        return Status::OUT_OF_RESOURCES;
    }
    // SAFETY: the caller's variables.
    unsafe {
        match install_on(*on, &*guid, interface) {
            Ok(handle) => {
                *on = handle;
                Status::SUCCESS
            }
            Err(status) => status,
        }
    }
}

pub(super) unsafe extern "efiapi" fn uninstall_protocol_interface(
    on: Handle,
    guid: *const Guid,
    interface: *const c_void,
) -> Status {
    check_running();
    // SAFETY: the caller's variable.
    uninstall_from(on, unsafe { &*guid }, interface)
}

fn interface_of(on: Handle, guid: &Guid) -> Option<*mut c_void> {
    let found = find(guid);
    let mut found = found.iter().filter(|(handle, _)| *handle == on);
    found.next().map(|(_, interface)| *interface)
}

pub(super) unsafe extern "efiapi" fn handle_protocol(
    on: Handle,
    guid: *const Guid,
    interface: *mut *mut c_void,
) -> Status {
    check_running();
    // SAFETY: the caller's variables.
    unsafe {
        let Some(found) = interface_of(on, &*guid) else {
            return Status::UNSUPPORTED;
        };
        *interface = found;
    }
    Status::SUCCESS
}

pub(super) unsafe extern "efiapi" fn open_protocol(
    on: Handle,
    guid: *const Guid,
    interface: *mut *mut c_void,
    _: Handle,
    _: Handle,
    _: u32,
) -> Status {
    // SAFETY: the same arguments.
    unsafe { handle_protocol(on, guid, interface) }
}

pub(super) unsafe extern "efiapi" fn close_protocol(
    _: Handle,
    _: *const Guid,
    _: Handle,
    _: Handle,
) -> Status {
    Status::SUCCESS
}

pub(super) unsafe extern "efiapi" fn locate_handle_buffer(
    _: i32,
    guid: *const Guid,
    _: *const c_void,
    count: *mut usize,
    buffer: *mut *mut Handle,
) -> Status {
    check_running();
    // SAFETY: the caller's variables, and memory that was just allocated for as many handles.
    unsafe {
        let found = find(&*guid);
        if found.is_empty() {
            return Status::NOT_FOUND;
        }
        let mut at = ptr::null_mut();
        let size = found.len() * size_of::<Handle>();
        let status = allocate_pool(MemoryType::BOOT_SERVICES_DATA, size, &raw mut at);
        if status.is_error() {
            return status;
        }
        for (index, (handle, _)) in found.iter().enumerate() {
            at.cast::<Handle>().add(index).write_unaligned(*handle);
        }
        *count = found.len();
        *buffer = at.cast();
    }
    Status::SUCCESS
}
