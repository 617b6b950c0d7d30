//! A PCI function by `EFI_PCI_IO_PROTOCOL`, with no driver of the firmware's left.

use super::function::PciIo;
pub use super::function::{Candidate, function_of, functions};
use super::{Claimed, caller, open, open_alone, snp};
use crate::clock::Clock;
use crate::device_path;
use crate::pci::Function;
use crate::raw::pci_io::{
    ATTRIBUTE_BUS_MASTER, ATTRIBUTE_MEMORY, PciIoAttributeOperation, PciIoProtocol,
};
use alloc::vec::Vec;
use core::ptr::NonNull;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol, SearchType};
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

/// Has the firmware's drivers take a function again when this is dropped, unless somebody else has it. By its path: its handle may be another one by
/// then.
struct ConnectFunctionOnDrop(Candidate);

impl Drop for ConnectFunctionOnDrop {
    fn drop(&mut self) {
        let mut functions = functions().into_iter();
        if let Some(function) = functions.find(|function| function.path == self.0.path) {
            function.connect();
        }
    }
}

/// How a function is open.
enum Open {
    /// Without any driver of the firmware's. Dropped in this order.
    Owned(Option<ScopedProtocol<PciIo>>, ConnectFunctionOnDrop),
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
        let io = match self {
            Self::Owned(io, _) => io.as_ref(),
            Self::Borrowed(io, _) => Some(io),
        };
        let io = io.and_then(ScopedProtocol::get);
        Ok(NonNull::from(&io.ok_or(Status::UNSUPPORTED)?.0))
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
            None => Self::disconnect(candidate.clone())?,
        };
        let io = open.io()?;
        let original = change_attributes(io, PciIoAttributeOperation::GET, 0)?;
        let claim = Self { open, original };
        if let Open::Owned(..) = &claim.open {
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

    fn disconnect(candidate: Candidate) -> uefi::Result<Open> {
        let handle = candidate.handle;
        let function = ConnectFunctionOnDrop(candidate);
        // From the top down: some drivers refuse to let go of a function while the network driver above has its
        // interface started.
        for interface in interfaces_on(&function.0.path) {
            let _ = boot::disconnect_controller(interface, None, None);
        }
        // Not connected is as good as disconnected; the exclusive open tells whether it worked.
        let _ = boot::disconnect_controller(handle, None, None);
        Ok(Open::Owned(Some(open_alone(handle)?), function))
    }

    /// From now on others get the function when they have the firmware disconnect its driver: by the binding on our image's handle, which has
    /// to [`let_go`](Self::let_go). Returns the function's handle; `None` where it is of a program that started us.
    ///
    /// The firmware may call the binding, so a panic must not come to `release_in_panic` any more: there has to be a
    /// [`Callback`](crate::Callback).
    ///
    /// # Errors
    /// What the firmware answers when it has no memory. The function is not open any more then.
    pub fn hold_as_driver(&mut self) -> uefi::Result<Option<Handle>> {
        let Open::Owned(io, function) = &mut self.open else {
            return Ok(None);
        };
        let handle = function.0.handle;
        CLAIMED.forget(handle);
        // Nobody else runs between.
        *io = None;
        let params = OpenProtocolParams {
            handle,
            agent: boot::image_handle(),
            controller: Some(handle),
        };
        // SAFETY: who removes the protocol has its driver disconnected first, and the binding lets go.
        *io = Some(unsafe { boot::open_protocol(params, OpenProtocolAttributes::ByDriver) }?);
        if let Ok(io) = self.open.io() {
            CLAIMED.hold(io);
        }
        Ok(Some(handle))
    }

    /// Others get the function. The driver must have stopped the device, and its memory must have been dropped. Where nobody has it when the claim is
    /// dropped, the firmware's drivers are connected.
    pub fn let_go(&mut self) {
        self.restore();
        if let Open::Owned(io, _) = &mut self.open {
            *io = None;
        }
    }

    /// Turns DMA off, and what was on before on.
    fn restore(&self) {
        // Off first: `original` may have bus mastering on.
        self.stop_dma();
        if let Ok(io) = self.open.io() {
            CLAIMED.let_go(io);
            let _ = change_attributes(io, PciIoAttributeOperation::SET, self.original);
        }
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
        if let Open::Owned(_, function) = &self.open {
            CLAIMED.forget(function.0.handle);
        }
        self.restore();
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
