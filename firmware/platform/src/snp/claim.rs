//! Taking an interface from what the firmware has built on it, and giving it back.

use crate::device_path;
use crate::pci;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol, SearchType};
use uefi::proto::network::snp::SimpleNetwork;
use uefi::{Handle, Status};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;

/// `IfType` of Ethernet (RFC 3232, as PXE has it).
pub(crate) const ETHERNET: u8 = 1;

/// An interface that a driver of the firmware's drives.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub(super) handle: Handle,
    /// Its device path, without end node.
    pub path: Box<[u8]>,
    /// The PCI function behind it, or the one that leads to it (of a USB adapter: the bus's controller).
    function: Option<pci::Candidate>,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => function.fmt(f),
            None => f.write_str("network interface"),
        }
    }
}

/// All Ethernet interfaces, in the firmware's order. Some are there only after [`pci::Candidate::connect`].
#[must_use]
pub fn interfaces() -> Vec<Candidate> {
    let by = SearchType::ByProtocol(&SimpleNetworkProtocol::GUID);
    let Ok(handles) = boot::locate_handle_buffer(by) else {
        return Vec::new();
    };
    handles
        .iter()
        .filter_map(|&handle| {
            let path = device_path::of_handle(handle)?;
            let protocol = open(handle, OpenProtocolAttributes::GetProtocol).ok()?;
            let mode = protocol.get()?.mode();
            (mode.if_type == ETHERNET && mode.hw_address_size == 6).then_some(())?;
            Some(Candidate {
                handle,
                function: pci::function_of(&path),
                path,
            })
        })
        .collect()
}

fn open(
    handle: Handle,
    how: OpenProtocolAttributes,
) -> uefi::Result<ScopedProtocol<SimpleNetwork>> {
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: either exclusive, or used at once with nothing between that could remove the protocol.
    unsafe { boot::open_protocol(params, how) }
}

/// What a panic has to undo: the one interface claimed, if any.
static CLAIMED_HANDLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static CLAIMED: AtomicPtr<SimpleNetwork> = AtomicPtr::new(ptr::null_mut());

/// An interface that is open for us alone. Dropping it gives it back, stopped before.
pub struct Claim {
    /// Closed before the firmware's protocols come back, which they would otherwise be refused.
    protocol: Option<ScopedProtocol<SimpleNetwork>>,
    handle: Handle,
}

impl Claim {
    pub(crate) fn take(handle: Handle) -> uefi::Result<Self> {
        // The firmware has whoever drives something above it let go, for an exclusive user.
        let protocol = open(handle, OpenProtocolAttributes::Exclusive).inspect_err(|_| {
            let _ = boot::connect_controller(handle, &[], None, true);
        })?;
        let claim = Self {
            protocol: Some(protocol),
            handle,
        };
        CLAIMED.store(claim.protocol()?.as_ptr(), Ordering::Relaxed);
        CLAIMED_HANDLE.store(handle.as_ptr(), Ordering::Release);
        Ok(claim)
    }

    pub(crate) fn protocol(&self) -> uefi::Result<NonNull<SimpleNetwork>> {
        let open = self.protocol.as_ref().and_then(|open| open.get());
        open.map(NonNull::from)
            .ok_or_else(|| Status::UNSUPPORTED.into())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED_HANDLE.store(ptr::null_mut(), Ordering::Release);
        self.protocol = None;
        // NOT_FOUND says that the firmware has nothing to put on it, as before.
        let _ = boot::connect_controller(self.handle, &[], None, true);
    }
}

/// Stops the interface and gives it back, when its owner cannot: on a panic.
#[cfg(target_os = "uefi")]
pub(crate) fn release_in_panic() {
    let handle = CLAIMED_HANDLE.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: the pointer is null or came from a handle.
    let (Some(handle), Some(mut protocol)) = (
        unsafe { Handle::from_ptr(handle) },
        NonNull::new(CLAIMED.load(Ordering::Relaxed)),
    ) else {
        return;
    };
    // SAFETY: open until the end of this function; its owner will never run again.
    let snp = unsafe { protocol.as_mut() };
    let _ = snp.shutdown();
    let _ = snp.stop();
    // SAFETY: closes what `Claim::take` opened; the claim's owner will never run again.
    unsafe { pci::close_raw(handle, &SimpleNetworkProtocol::GUID) };
    let _ = boot::connect_controller(handle, &[], None, true);
}
