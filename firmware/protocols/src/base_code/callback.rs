//! EFI_PXE_BASE_CODE_CALLBACK_PROTOCOL, and the network as the host gets it in a call.

use crate::shared::Network;
use crate::tpl::boot_services;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::Handle;
use uefi::boot::{self, SearchType};
use uefi_raw::protocol::network::pxe::{PxeBaseCodePacket, PxeBaseCodeProtocol};
use uefi_raw::{Guid, Status};
use wireboot_net::Instant;
use wireboot_platform::free_memory::FreeMemory;
use wireboot_platform::raw::pxe_callback::{
    PxeBaseCodeCallbackProtocol, PxeBaseCodeCallbackStatus, PxeBaseCodeFunction,
};
use wireboot_protocols::base_code::Port;
use wireboot_protocols::hub::Hub;
use wireboot_protocols::link::Link;
use wireboot_protocols::packet;

/// The handle of a base code on which a caller has put the protocol.
pub(super) struct Callback {
    handle: Handle,
    function: PxeBaseCodeFunction,
}

/// The interface of a protocol on a handle.
fn interface(handle: Handle, guid: &Guid) -> Option<NonNull<c_void>> {
    let services = boot_services()?;
    let mut interface = ptr::null_mut();
    // SAFETY: the result is written to a local.
    let status = unsafe { (services.handle_protocol)(handle.as_ptr(), guid, &raw mut interface) };
    NonNull::new(interface).filter(|_| status == Status::SUCCESS)
}

/// The address of its function; null is none.
fn called(protocol: NonNull<PxeBaseCodeCallbackProtocol>) -> usize {
    // SAFETY: a caller's protocol, which is on a handle.
    unsafe {
        (&raw const (*protocol.as_ptr()).callback)
            .cast::<usize>()
            .read_unaligned()
    }
}

impl Callback {
    /// That of the base code `this`, for calls of `function`.
    pub(super) fn find(this: *const c_void, function: PxeBaseCodeFunction) -> Option<Self> {
        let guid = PxeBaseCodeProtocol::GUID;
        let handles = boot::locate_handle_buffer(SearchType::ByProtocol(&guid)).ok()?;
        let ours = |handle: &&Handle| {
            interface(**handle, &guid).is_some_and(|found| ptr::eq(found.as_ptr(), this))
        };
        let handle = *handles.iter().find(ours)?;
        let callback = Self { handle, function };
        let protocol = callback.protocol()?;
        // One that a program has left behind, whose memory is free, is nobody's.
        let mut free = FreeMemory::default();
        free.refresh();
        let is_left = free.has_some_of(called(protocol), 1)
            || free.has_some_of(
                protocol.addr().get(),
                size_of::<PxeBaseCodeCallbackProtocol>(),
            );
        (!is_left).then_some(callback)
    }

    /// Looked for each time: the caller may take it off in the middle of a call.
    fn protocol(&self) -> Option<NonNull<PxeBaseCodeCallbackProtocol>> {
        let found = interface(self.handle, &PxeBaseCodeCallbackProtocol::GUID)?;
        let protocol = found.cast::<PxeBaseCodeCallbackProtocol>();
        (called(protocol) != 0).then_some(protocol)
    }

    /// Calls it. False when the caller wants an end.
    fn call(&self, received: bool, bytes: &[u8]) -> bool {
        let Some(protocol) = self.protocol() else {
            return true;
        };
        // As large as a caller may take it to be.
        let padded = packet::padded(bytes);
        let start = if bytes.is_empty() {
            ptr::null()
        } else if bytes.len() < padded.len() {
            padded.as_ptr()
        } else {
            bytes.as_ptr()
        };
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let protocol = protocol.as_ptr();
        // SAFETY: the caller's protocol, which is there; it reads as many bytes as it is told.
        let answer = unsafe {
            ((*protocol).callback)(
                protocol,
                self.function,
                received.into(),
                len,
                start.cast::<PxeBaseCodePacket>(),
            )
        };
        answer == PxeBaseCodeCallbackStatus::CONTINUE
    }
}

/// The network in a call.
pub(super) struct CallerPort<'a> {
    pub(super) network: &'a mut dyn Network,
    pub(super) hub: &'a mut Hub<Box<dyn Link>>,
    pub(super) callback: Option<Callback>,
}

impl Port for CallerPort<'_> {
    fn now(&mut self) -> Instant {
        self.network.turn();
        self.network.now()
    }

    fn link_up(&self) -> bool {
        self.network.link_up()
    }

    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool {
        self.hub.send(header, payload)
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.hub.receive()
    }

    fn show(&mut self, received: bool, packet: &[u8]) -> bool {
        let mut callback = self.callback.iter();
        callback.all(|callback| callback.call(received, packet))
    }
}
