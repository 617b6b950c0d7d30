//! Taking an interface's UNDI from what the firmware has built on it, and giving it back.

use super::structure::{self, Software};
use super::{Commands, UndiError};
use crate::raw::undi::{NetworkInterfaceIdentifierProtocol, NetworkInterfaceType};
use crate::{device_path, pci, snp};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ffi::c_void;
use core::fmt;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU16, Ordering};
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol, SearchType};
use uefi::proto::unsafe_protocol;
use uefi::{Handle, Status};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;

/// The protocol as the `uefi` crate opens it.
#[repr(transparent)]
#[unsafe_protocol(NetworkInterfaceIdentifierProtocol::GUID)]
struct Identifier(NetworkInterfaceIdentifierProtocol);

/// An interface with an UNDI.
#[derive(Clone, Debug)]
pub struct Candidate {
    handle: Handle,
    /// Its device path, without end node.
    pub path: Box<[u8]>,
    /// The PCI function behind it.
    pub(super) function: Option<pci::Candidate>,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => function.fmt(f),
            None => f.write_str("network interface"),
        }
    }
}

/// All interfaces that say that they have an UNDI, in the firmware's order. Some are there only after [`pci::Candidate::connect`].
#[must_use]
pub fn interfaces() -> Vec<Candidate> {
    let by = SearchType::ByProtocol(&NetworkInterfaceIdentifierProtocol::GUID);
    let Ok(handles) = boot::locate_handle_buffer(by) else {
        return Vec::new();
    };
    handles
        .iter()
        .filter_map(|&handle| {
            let path = device_path::of_handle(handle)?;
            let identifier = open(handle, OpenProtocolAttributes::GetProtocol).ok()?;
            let kind = identifier.get()?.0.interface_type;
            (kind == NetworkInterfaceType::UNDI).then_some(())?;
            Some(Candidate {
                handle,
                function: pci::function_of(&path),
                path,
            })
        })
        .collect()
}

fn open(handle: Handle, how: OpenProtocolAttributes) -> uefi::Result<ScopedProtocol<Identifier>> {
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: exclusive, or used at once with nothing between that could remove the protocol, or kept by a driver whose other protocol on the
    // handle is open exclusively.
    unsafe { boot::open_protocol(params, how) }
}

fn has_simple_network(handle: Handle) -> bool {
    boot::locate_handle_buffer(SearchType::ByProtocol(&SimpleNetworkProtocol::GUID))
        .is_ok_and(|handles| handles.contains(&handle))
}

/// What a panic has to undo: the one interface claimed, if any, once it may have been started.
static CLAIMED_HANDLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static CLAIMED_ENTRY: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
static CLAIMED_NUMBER: AtomicU16 = AtomicU16::new(0);

/// An interface whose UNDI is ours alone. Dropping it gives it back, stopped before.
pub struct Claim {
    /// Closed before the firmware's protocols come back, which they would otherwise be refused.
    identifier: Option<ScopedProtocol<Identifier>>,
    /// `EFI_SIMPLE_NETWORK_PROTOCOL`, where the driver offers it as well: what is built on that lets go too.
    simple: Option<snp::Claim>,
    handle: Handle,
    stops_on_panic: Cell<bool>,
}

impl Claim {
    pub(super) fn take(interface: &Candidate) -> Result<Self, UndiError> {
        let handle = interface.handle;
        let refused = |error: uefi::Error| UndiError::Refused(error.status());
        // Has the firmware's own network driver let go, and with it all that is built on it.
        let exclusive = open(handle, OpenProtocolAttributes::Exclusive);
        let kept = matches!(&exclusive, Err(error) if error.status() == Status::ACCESS_DENIED);
        let identifier = if kept {
            open(handle, OpenProtocolAttributes::GetProtocol)
        } else {
            exclusive
        };
        let mut claim = Self {
            identifier: Some(identifier.map_err(refused)?),
            simple: None,
            handle,
            stops_on_panic: Cell::new(false),
        };
        if has_simple_network(handle) {
            claim.simple = Some(snp::Claim::take(handle).map_err(refused)?);
        } else if kept {
            return Err(UndiError::Refused(Status::ACCESS_DENIED));
        }
        Ok(claim)
    }

    fn identifier(&self) -> Option<&NetworkInterfaceIdentifierProtocol> {
        Some(&self.identifier.as_ref()?.get()?.0)
    }

    /// Its number among the driver's interfaces.
    pub(super) fn number(&self) -> u16 {
        self.identifier().map_or(0, |identifier| identifier.if_num)
    }

    /// What its structure says.
    pub(super) fn software(&self) -> Result<Software, UndiError> {
        let address = self.identifier().map_or(0, |identifier| identifier.id);
        let Some(start) = NonNull::new(ptr::with_exposed_provenance_mut::<u8>(address as usize))
        else {
            return Err(UndiError::Structure("is none"));
        };
        if !address.is_multiple_of(structure::ALIGNMENT) {
            return Err(UndiError::Structure("is not aligned"));
        }
        // SAFETY: the protocol says that an UNDI's structure is at this address, which has a byte that tells its length. It does not change
        // while the interface is not used.
        let bytes = unsafe {
            let len = start.add(structure::LEN).read();
            slice::from_raw_parts(start.as_ptr(), usize::from(len).max(structure::LEN + 1))
        };
        structure::read(bytes, address, self.number())
    }

    /// From now on, a panic has the interface stopped.
    pub(super) fn stop_on_panic(&self, commands: Commands) {
        CLAIMED_NUMBER.store(commands.number, Ordering::Relaxed);
        CLAIMED_ENTRY.store(commands.entry as *mut (), Ordering::Relaxed);
        CLAIMED_HANDLE.store(self.handle.as_ptr(), Ordering::Release);
        self.stops_on_panic.set(true);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.stops_on_panic.get() {
            CLAIMED_HANDLE.store(ptr::null_mut(), Ordering::Release);
        }
        self.identifier = None;
        self.simple = None;
        // NOT_FOUND says that the firmware has nothing to put on it, as before.
        let _ = boot::connect_controller(self.handle, &[], None, true);
    }
}

/// Stops the interface and gives it back, when its owner cannot: on a panic.
#[cfg(target_os = "uefi")]
pub(crate) fn release_in_panic() {
    let handle = CLAIMED_HANDLE.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: the pointer is null or came from a handle.
    let (Some(handle), Some(entry)) = (
        unsafe { Handle::from_ptr(handle) },
        NonNull::new(CLAIMED_ENTRY.load(Ordering::Relaxed)),
    ) else {
        return;
    };
    let commands = Commands {
        // SAFETY: stored from such a function.
        entry: unsafe {
            core::mem::transmute::<NonNull<()>, crate::raw::undi::PxeEntryPoint>(entry)
        },
        number: CLAIMED_NUMBER.load(Ordering::Relaxed),
    };
    // SAFETY: the entry point of an UNDI that is claimed; its owner will never run again, and nothing of what the callbacks use was dropped.
    unsafe { commands.stop() };
    // SAFETY: closes what `Claim::take` opened; the claim's owner will never run again.
    unsafe { pci::close_raw(handle, &NetworkInterfaceIdentifierProtocol::GUID) };
    let _ = boot::connect_controller(handle, &[], None, true);
}
