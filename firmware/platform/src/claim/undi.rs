//! An interface by its UNDI, which `EFI_NETWORK_INTERFACE_IDENTIFIER_PROTOCOL` leads to (UEFI 2.10, section 24.3).

pub use super::interface::Candidate;

use super::lent::Lent;
use super::{Claimed, ConnectHandleOnDrop, interface, open, snp};
use crate::raw::undi::{NetworkInterfaceIdentifierProtocol, NetworkInterfaceType};
use crate::undi_commands::Commands;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, Ordering};
use uefi::boot::{self, OpenProtocolAttributes, ScopedProtocol, SearchType};
use uefi::proto::network::snp::SimpleNetwork;
use uefi::proto::unsafe_protocol;
use uefi::{Handle, Status};

/// The protocol as the `uefi` crate opens it.
#[repr(transparent)]
#[unsafe_protocol(NetworkInterfaceIdentifierProtocol::GUID)]
struct Identifier(NetworkInterfaceIdentifierProtocol);

impl Identifier {
    fn is_undi(&self) -> bool {
        self.0.interface_type == NetworkInterfaceType::UNDI
    }
}

/// All interfaces that say that they have an UNDI, in the firmware's order. Some are there only after
/// [`connect`](super::pci::Candidate::connect).
#[must_use]
pub fn interfaces() -> Vec<Candidate> {
    interface::with(Identifier::is_undi)
}

fn has_simple_network(handle: Handle) -> bool {
    boot::locate_handle_buffer(SearchType::from_proto::<SimpleNetwork>())
        .is_ok_and(|handles| handles.contains(&handle))
}

/// The entry point of what may have been started, and the interface's number.
static CLAIMED: Claimed<()> = Claimed::none();
static CLAIMED_NUMBER: AtomicU16 = AtomicU16::new(0);

/// An interface whose UNDI is ours alone. Dropping it gives it back; it has to be stopped before.
pub struct Claim {
    // Dropped in this order.
    identifier: ScopedProtocol<Identifier>,
    /// `EFI_SIMPLE_NETWORK_PROTOCOL`, where the driver offers it as well: what is built on that lets go too.
    simple: Option<snp::Claim>,
    handle: ConnectHandleOnDrop,
}

impl Claim {
    pub(crate) fn take(interface: &Candidate) -> uefi::Result<Self> {
        let handle = ConnectHandleOnDrop(interface.handle);
        // Has the firmware's own network driver let go, and with it all that is built on it.
        let exclusive = open(handle.0, OpenProtocolAttributes::Exclusive);
        let kept = matches!(&exclusive, Err(error) if error.status() == Status::ACCESS_DENIED);
        let identifier = if kept {
            open(handle.0, OpenProtocolAttributes::GetProtocol)?
        } else {
            exclusive?
        };
        let simple = if has_simple_network(handle.0) {
            Some(snp::Claim::take_handle(handle.0)?)
        } else if kept {
            return Err(Status::ACCESS_DENIED.into());
        } else {
            None
        };
        Ok(Self {
            identifier,
            simple,
            handle,
        })
    }

    /// What leads to its UNDI, if it has one.
    pub(crate) fn identifier(&self) -> Option<&NetworkInterfaceIdentifierProtocol> {
        let identifier = self.identifier.get()?;
        identifier.is_undi().then_some(&identifier.0)
    }

    /// Has `EFI_SIMPLE_NETWORK_PROTOCOL` of ours take the place of the driver's, where that has one.
    pub(crate) fn lend(&mut self) -> Lent {
        match &mut self.simple {
            Some(simple) => simple.lend(),
            None => Lent::new(self.handle.0, None),
        }
    }

    /// From now on, a panic has the interface stopped.
    pub(crate) fn stop_on_panic(&self, commands: Commands) {
        if let Some(entry) = NonNull::new(commands.entry as *mut ()) {
            CLAIMED_NUMBER.store(commands.number, Ordering::Relaxed);
            CLAIMED.remember(self.handle.0, entry);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.forget(self.handle.0);
    }
}

/// Stops the interface and gives it back on a panic.
#[cfg(target_os = "uefi")]
pub(crate) fn release_in_panic() {
    CLAIMED.release(&NetworkInterfaceIdentifierProtocol::GUID, |_, entry| {
        let commands = Commands {
            // SAFETY: stored from such a function.
            entry: unsafe {
                core::mem::transmute::<NonNull<()>, crate::raw::undi::PxeEntryPoint>(entry)
            },
            number: CLAIMED_NUMBER.load(Ordering::Relaxed),
        };
        // SAFETY: the entry point of an UNDI that is claimed; its owner will never run again, and nothing of what the callbacks use was
        // dropped.
        unsafe { commands.stop() };
    });
}
