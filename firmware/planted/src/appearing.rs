//! Protocols that are there, or appear later.

use crate::services;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use uefi::boot::{self, EventType, SearchType, Tpl};
use uefi::{Event, Guid, Handle, Status, StatusExt};

/// What is done with each: the handle, and the protocol on it.
pub(crate) type Do = fn(Handle, NonNull<c_void>);

/// Who waits for a protocol.
struct Watcher {
    protocol: Guid,
    found: Do,
    search: Option<SearchType<'static>>,
}

/// Does something with each interface of a protocol: those that are there, and each that appears.
pub(crate) fn watch(protocol: &'static Guid, found: Do) -> uefi::Result {
    let place = boot::allocate_pool(boot::MemoryType::BOOT_SERVICES_DATA, size_of::<Watcher>())?;
    let place = place.cast::<Watcher>();
    let watcher = Watcher {
        protocol: *protocol,
        found,
        search: None,
    };
    // SAFETY: fresh memory of this size; pool memory is aligned to 8 bytes. It stays allocated.
    unsafe { place.write(watcher) };
    // SAFETY: the function is this image's, which stays, and takes the context for what it is.
    let event = unsafe {
        boot::create_event(
            EventType::NOTIFY_SIGNAL,
            Tpl::CALLBACK,
            Some(on_interface),
            Some(place.cast()),
        )
    }?;
    services::stay();
    each(SearchType::ByProtocol(protocol), protocol, found);
    let search = boot::register_protocol_notify(protocol, &event)?;
    // SAFETY: as above; the function reads it when somebody installs the protocol, which nobody does here.
    unsafe { (*place.as_ptr()).search = Some(search) };
    Ok(())
}

unsafe extern "efiapi" fn on_interface(_: Event, context: Option<NonNull<c_void>>) {
    let Some(watcher) = context else { return };
    // SAFETY: written in `watch`, and never freed.
    let watcher = unsafe { watcher.cast::<Watcher>().as_ref() };
    // Each look finds the next one.
    while let Some(search) = watcher.search
        && each(search, &watcher.protocol, watcher.found)
    {}
}

/// Does it with each that a search finds, the first few. Whether there was one.
fn each(search: SearchType<'_>, protocol: &Guid, found: Do) -> bool {
    let mut handles = [const { MaybeUninit::<Handle>::uninit() }; 16];
    let Ok(handles) = boot::locate_handle(search, &mut handles) else {
        return false;
    };
    for handle in handles.iter() {
        if let Ok(interface) = interface(*handle, protocol) {
            found(*handle, interface);
        }
    }
    !handles.is_empty()
}

/// A protocol of a handle's, opened in this image's name.
pub(crate) fn interface(handle: Handle, protocol: &Guid) -> uefi::Result<NonNull<c_void>> {
    let system = services::system()?;
    let mut interface = ptr::null_mut();
    // SAFETY: boot services are live; the firmware checks the handle, and writes to a local.
    unsafe {
        let boot = system.as_ref().boot_services;
        ((*boot).open_protocol)(
            handle.as_ptr(),
            protocol,
            &raw mut interface,
            boot::image_handle().as_ptr(),
            ptr::null_mut(),
            boot::OpenProtocolAttributes::GetProtocol as u32,
        )
    }
    .to_result()?;
    NonNull::new(interface).ok_or_else(|| Status::UNSUPPORTED.into())
}
