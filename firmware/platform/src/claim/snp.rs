//! An interface by `EFI_SIMPLE_NETWORK_PROTOCOL` (UEFI 2.10, section 24.1).

pub use super::interface::Candidate;

use super::lent::Lent;
use super::{Claimed, ConnectHandleOnDrop, Exclusive, caller, interface};
use alloc::vec::Vec;
use core::ptr::NonNull;
use uefi::boot::ScopedProtocol;
use uefi::proto::network::snp::SimpleNetwork;
use uefi::{Handle, Identify};

/// `IfType` of Ethernet (RFC 3232, as PXE has it).
pub(crate) const ETHERNET: u8 = 1;

/// All wired Ethernet interfaces, in the firmware's order, but those that a program that started us uses: it offers its own. Some are
/// there only after [`connect`](super::pci::Candidate::connect).
#[must_use]
pub fn interfaces() -> Vec<Candidate> {
    let mut interfaces = interface::with(|snp: &SimpleNetwork| {
        let mode = snp.mode();
        mode.if_type == ETHERNET && mode.hw_address_size == 6
    });
    interfaces.retain(|interface| !caller::has_opened(interface.handle, &SimpleNetwork::GUID));
    interfaces
}

static CLAIMED: Claimed<SimpleNetwork> = Claimed::none();

/// An interface that is open for us alone. Dropping it gives it back; it has to be stopped before. A program that started us and drives it
/// gets it back running.
pub struct Claim {
    protocol: NonNull<SimpleNetwork>,
    // Dropped in this order.
    /// `None` while another protocol is in its place.
    open: Option<ScopedProtocol<SimpleNetwork>>,
    handle: ConnectHandleOnDrop,
}

impl Claim {
    pub(crate) fn take(interface: &Candidate) -> uefi::Result<Self> {
        Self::take_handle(interface.handle)
    }

    pub(super) fn take_handle(handle: Handle) -> uefi::Result<Self> {
        let open = Exclusive::<SimpleNetwork>::open(handle)?;
        let protocol = open.get()?;
        CLAIMED.remember(handle, protocol);
        let Exclusive {
            protocol: open,
            handle,
        } = open;
        Ok(Self {
            protocol,
            open: Some(open),
            handle,
        })
    }

    pub(crate) fn protocol(&self) -> NonNull<SimpleNetwork> {
        self.protocol
    }

    /// Closes it, for another protocol to take its place on the handle. It is called all the same, by its address.
    pub(crate) fn lend(&mut self) -> Lent {
        self.open = None;
        Lent::new(self.handle.0, Some(self.protocol))
    }

    /// Has its driver leave the device alone.
    pub(super) fn stop(&self) {
        let mut protocol = self.protocol();
        // SAFETY: it is open, and nobody else uses it.
        stop(unsafe { protocol.as_mut() });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let handle = self.handle.0;
        CLAIMED.forget(handle);
        if caller::drives(handle) {
            let mut protocol = self.protocol();
            // SAFETY: it is open, and nobody uses it any more.
            run(unsafe { protocol.as_mut() });
        }
    }
}

fn stop(snp: &mut SimpleNetwork) {
    let _ = snp.shutdown();
    let _ = snp.stop();
}

/// As it was: iPXE's runs, whatever its state said before.
fn run(snp: &mut SimpleNetwork) {
    let _ = snp.start();
    let _ = snp.initialize(0, 0);
}

/// Stops the interface and gives it back on a panic.
#[cfg(target_os = "uefi")]
pub(crate) fn release_in_panic() {
    CLAIMED.release(&SimpleNetwork::GUID, |handle, mut protocol| {
        // SAFETY: it is open; its owner will never run again.
        let snp = unsafe { protocol.as_mut() };
        stop(snp);
        if caller::drives(handle) {
            // A driver of ours may have left the device running, and some drivers reset it only when they shut it down.
            run(snp);
            stop(snp);
            run(snp);
        }
    });
}
