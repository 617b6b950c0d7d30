//! More receivers of frames: each gets a copy of all of them.

use crate::appearing;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::boot::{self, EventType, Tpl};
use uefi::{Event, Handle, Status, StatusExt};
use uefi_raw::Boolean;
use uefi_raw::protocol::driver::ServiceBindingProtocol;
use wireboot_platform::raw::managed_network::{
    MANAGED_NETWORK_SERVICE_BINDING, ManagedNetworkCompletionToken, ManagedNetworkConfigData,
    ManagedNetworkProtocol, ManagedNetworkReceiveData,
};

/// So many for each card.
const MORE: usize = 4;

/// A receiver with its one token.
#[repr(C)]
struct Receiver {
    protocol: *mut ManagedNetworkProtocol,
    token: ManagedNetworkCompletionToken,
}

/// Adds them to each card's packet service (MNP) when that appears.
pub(crate) fn plant() -> uefi::Result {
    appearing::watch(&MANAGED_NETWORK_SERVICE_BINDING, on_service)
}

fn on_service(_: Handle, service: NonNull<c_void>) {
    for _ in 0..MORE {
        let _ = receive_all(service.cast());
    }
}

/// Makes a child that asks for all frames. It goes with the card's packet service.
fn receive_all(service: NonNull<ServiceBindingProtocol>) -> uefi::Result {
    let service = service.as_ptr();
    let mut child = ptr::null_mut();
    // SAFETY: the protocol is live; it writes the new handle to a local.
    unsafe { ((*service).create_child)(service, &raw mut child) }.to_result()?;
    // SAFETY: null or a handle.
    let child = unsafe { Handle::from_ptr(child) }.ok_or(Status::UNSUPPORTED)?;
    let protocol = appearing::interface(child, &ManagedNetworkProtocol::GUID)?;
    let protocol = protocol.cast::<ManagedNetworkProtocol>().as_ptr();
    let config = ManagedNetworkConfigData {
        enable_unicast_receive: Boolean::TRUE,
        enable_broadcast_receive: Boolean::TRUE,
        ..ManagedNetworkConfigData::default()
    };
    // SAFETY: the protocol is live; it copies the configuration.
    unsafe { ((*protocol).configure)(protocol, &raw const config) }.to_result()?;
    let kind = boot::MemoryType::BOOT_SERVICES_DATA;
    let receiver = boot::allocate_pool(kind, size_of::<Receiver>())?.cast::<Receiver>();
    // SAFETY: the function is this image's, which stays; the receiver is written below, before anybody signals, and never freed.
    let event = unsafe {
        boot::create_event(
            EventType::NOTIFY_SIGNAL,
            Tpl::CALLBACK,
            Some(on_frame),
            Some(receiver.cast()),
        )
    }?;
    let token = ManagedNetworkCompletionToken {
        event: event.as_ptr(),
        status: Status::NOT_READY,
        packet: ptr::null_mut(),
    };
    // SAFETY: fresh memory of this size; pool memory is aligned to 8 bytes.
    unsafe { receiver.write(Receiver { protocol, token }) };
    // SAFETY: the token is ours, and stays allocated.
    unsafe { ask(receiver) }
}

/// # Safety
/// The firmware does not have the receiver's token, and the protocol is live.
unsafe fn ask(receiver: NonNull<Receiver>) -> uefi::Result {
    // SAFETY: the caller's word.
    unsafe {
        let protocol = (*receiver.as_ptr()).protocol;
        let token = &raw mut (*receiver.as_ptr()).token;
        ((*protocol).receive)(protocol, token).to_result()
    }
}

/// Gives a frame back, and asks for the next.
unsafe extern "efiapi" fn on_frame(_: Event, context: Option<NonNull<c_void>>) {
    let Some(receiver) = context.map(NonNull::cast::<Receiver>) else {
        return;
    };
    // SAFETY: never freed; the firmware has just filled the token.
    let (status, packet) = unsafe {
        let token = &raw const (*receiver.as_ptr()).token;
        (
            (&raw const (*token).status).read_volatile(),
            (&raw const (*token).packet).read_volatile(),
        )
    };
    // When the service goes, its tokens come back with an error: then the protocol is not there any more.
    if !status.is_success() {
        return;
    }
    if let Some(packet) = NonNull::new(packet.cast::<ManagedNetworkReceiveData>()) {
        // SAFETY: received data are valid until they are given back by this event, which is null or the firmware's.
        if let Some(event) = unsafe { Event::from_ptr(packet.as_ref().recycle_event) } {
            let _ = boot::signal_event(&event);
        }
    }
    // SAFETY: the token came back, from a service that is live.
    let _ = unsafe { ask(receiver) };
}
