//! A PCI function by `EFI_PCI_IO_PROTOCOL`, with no driver of the firmware's left.

use super::function::PciIo;
pub use super::function::{Candidate, function_of, functions};
use super::{Claimed, Exclusive, caller, open, snp};
use crate::clock::Clock;
use crate::device_path;
use crate::pci::Function;
use crate::raw::pci_io::{
    ATTRIBUTE_BUS_MASTER, ATTRIBUTE_MEMORY, PciIoAttributeOperation, PciIoProtocol,
};
use alloc::vec::Vec;
use core::ptr::NonNull;
use uefi::boot::{self, OpenProtocolAttributes, ScopedProtocol, SearchType};
use uefi::proto::network::snp::SimpleNetwork;
use uefi::{Handle, Status, StatusExt};

/// The network interfaces that the firmware's drivers made of the function at `path`.
fn interfaces_on(path: &[u8]) -> Vec<Handle> {
    let Ok(handles) = boot::locate_handle_buffer(SearchType::from_proto::<SimpleNetwork>()) else {
        return Vec::new();
    };
    let below =
        |handle: &Handle| device_path::of_handle(*handle).is_some_and(|own| own.starts_with(path));
    handles.iter().copied().filter(below).collect()
}

/// Of those interfaces, the one that a program that started us offers; of several, the one above the others.
fn callers_interface(path: &[u8]) -> Option<Handle> {
    interfaces_on(path)
        .into_iter()
        .filter(|interface| caller::drives(*interface))
        .max_by_key(|interface| device_path::of_handle(*interface).map_or(0, |path| path.len()))
}

static CLAIMED: Claimed<PciIoProtocol> = Claimed::none();

/// How a function is open.
enum Open {
    /// Without any driver of the firmware's.
    Alone(Exclusive<PciIo>),
    /// With all drivers in place, below an interface that is stopped. A panic starts that, which resets the device. Dropped in this order.
    Borrowed(
        ScopedProtocol<PciIo>,
        #[expect(dead_code, reason = "is dropped")] snp::Claim,
    ),
}

/// A PCI function taken from the firmware's drivers. Dropping it gives it back: the firmware's own
/// drivers are connected again, and its network works as before.
///
/// The driver must have stopped the device, and its memory must have been dropped, before the claim is.
pub struct Claim {
    open: Open,
    original: u64,
}

impl Open {
    fn io(&self) -> uefi::Result<NonNull<PciIoProtocol>> {
        match self {
            Self::Alone(open) => Ok(open.get()?.cast()),
            Self::Borrowed(io, _) => {
                let io = io.get().ok_or(Status::UNSUPPORTED)?;
                Ok(NonNull::from(&io.0))
            }
        }
    }
}

impl Claim {
    /// Disconnects the firmware's drivers from the function and turns on memory decoding and bus mastering.
    ///
    /// Handles and protocols above the function (network, PXE) are gone afterwards: what they hold is to be
    /// read before. Where a program that started us drives one of them, all stay, and its interface is stopped.
    ///
    /// # Errors
    /// What the firmware answers when a driver will not let go of the function.
    pub fn take(candidate: &Candidate) -> uefi::Result<Self> {
        let open = match callers_interface(&candidate.path) {
            Some(interface) => Self::borrow(candidate.handle, interface)?,
            None => Self::disconnect(candidate)?,
        };
        let io = open.io()?;
        let original = change_attributes(io, PciIoAttributeOperation::GET, 0)?;
        let claim = Self { open, original };
        if let Open::Alone(_) = &claim.open {
            CLAIMED.remember(candidate.handle, io);
        }
        change_attributes(
            io,
            PciIoAttributeOperation::ENABLE,
            ATTRIBUTE_MEMORY | ATTRIBUTE_BUS_MASTER,
        )?;
        Ok(claim)
    }

    fn borrow(handle: Handle, interface: Handle) -> uefi::Result<Open> {
        let interface = snp::Claim::take_handle(interface)?;
        interface.stop();
        let io = open(handle, OpenProtocolAttributes::GetProtocol)?;
        Ok(Open::Borrowed(io, interface))
    }

    fn disconnect(candidate: &Candidate) -> uefi::Result<Open> {
        let handle = candidate.handle;
        // From the top down: some drivers refuse to let go of a function while the network driver above has its
        // interface started.
        for interface in interfaces_on(&candidate.path) {
            let _ = boot::disconnect_controller(interface, None, None);
        }
        // Not connected is as good as disconnected; the exclusive open tells whether it worked.
        let _ = boot::disconnect_controller(handle, None, None);
        Exclusive::open(handle).map(Open::Alone)
    }

    /// Whether a program that started us keeps its drivers, and all handles above the function are in place.
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        matches!(self.open, Open::Borrowed(..))
    }

    /// The function, for the driver.
    ///
    /// # Errors
    /// `UNSUPPORTED` if the firmware has no interface for it.
    pub fn function(&self, clock: Clock) -> uefi::Result<Function> {
        let io = self.open.io()?;
        Ok(Function { io, clock })
    }

    /// Turns bus mastering off: whatever the device still believes, it reaches memory no more. Allocates
    /// nothing, so it may be called while boot services end.
    pub fn stop_dma(&self) {
        if let Ok(io) = self.open.io() {
            stop_dma(io);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Open::Alone(open) = &self.open {
            CLAIMED.forget(open.handle.0);
        }
        // Off first: `original` may have bus mastering on.
        self.stop_dma();
        if let Ok(io) = self.open.io() {
            let _ = change_attributes(io, PciIoAttributeOperation::SET, self.original);
        }
    }
}

fn stop_dma(io: NonNull<PciIoProtocol>) {
    let _ = change_attributes(io, PciIoAttributeOperation::DISABLE, ATTRIBUTE_BUS_MASTER);
}

fn change_attributes(
    io: NonNull<PciIoProtocol>,
    operation: PciIoAttributeOperation,
    attributes: u64,
) -> uefi::Result<u64> {
    let mut result = 0;
    // SAFETY: the protocol is live (see `claim`); `result` is written only by GET and SUPPORTED.
    unsafe { (io.as_ref().attributes)(io.as_ptr(), operation, attributes, &raw mut result) }
        .to_result_with_val(|| result)
}

/// Takes the device that is claimed off the bus, whoever has its claim.
pub(crate) fn stop_claimed() {
    CLAIMED.device().into_iter().for_each(stop_dma);
}

/// Takes the device off the bus and gives it back on a panic. Its attributes are left to the firmware's driver, which enables what it needs.
#[cfg(target_os = "uefi")]
pub(crate) fn release_in_panic() {
    CLAIMED.release(&PciIoProtocol::GUID, |_, io| stop_dma(io));
}
