//! How a card is taken from the firmware, and given back.
//!
//! | | what is opened for us alone | what lets go of it |
//! |---|---|---|
//! | [`pci`] | `EFI_PCI_IO_PROTOCOL` | the firmware's driver of the card, and all above |
//! | [`snp`] | `EFI_SIMPLE_NETWORK_PROTOCOL` | what is built on that: MNP and all above |
//! | [`undi`] | `EFI_NETWORK_INTERFACE_IDENTIFIER_PROTOCOL`, and the former where it is there as well | the firmware's own driver over an UNDI, and all above |
//!
//! A `Claim` that is dropped closes what it has opened, and then has the firmware's drivers connected again. Its device was stopped before. On
//! a panic `release_in_panic` does all of that.
//!
//! A program that started us and drives the card itself keeps its drivers. Its interface is opened for us alone and stopped, which leaves
//! the device to a driver of ours, and is started again afterwards.
//!
//! While another image runs, a function is open as a driver has it ([`pci::Claim::hold_as_driver`]), so that others get it who ask the firmware for
//! it.

mod caller;
mod function;
mod interface;
pub mod lent;
pub mod pci;
pub mod snp;
pub mod undi;

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol};
use uefi::proto::{Protocol, ProtocolPointer};
use uefi::{Handle, Status};

fn open<P: ProtocolPointer>(
    handle: Handle,
    how: OpenProtocolAttributes,
) -> uefi::Result<ScopedProtocol<P>> {
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: either exclusive, or used at once with nothing between that could remove the protocol, or kept by a driver whose other protocol
    // on the handle is open exclusively. PCI functions are removed by the firmware's PCI bus driver only, which nothing stops while this
    // image runs.
    unsafe { boot::open_protocol(params, how) }
}

/// Opens a protocol for us alone. The firmware has drivers that have opened it let go.
fn open_alone<P: ProtocolPointer>(handle: Handle) -> uefi::Result<ScopedProtocol<P>> {
    let once = || open(handle, OpenProtocolAttributes::Exclusive);
    // OVMF's drivers on an interface of iPXE's refuse at first, and have let go the second time.
    once().or_else(|_| once())
}

/// Has the firmware's drivers take a handle, and what they make of it, unless it is of a program that started us.
fn connect(handle: Handle) {
    if !caller::drives(handle) {
        // NOT_FOUND says that it has none.
        let _ = boot::connect_controller(handle, &[], None, true);
    }
}

/// Has the firmware's drivers take a handle again when this is dropped. What is open for us alone has to be closed before, as they would be
/// refused.
struct ConnectHandleOnDrop(Handle);

impl Drop for ConnectHandleOnDrop {
    fn drop(&mut self) {
        connect(self.0);
    }
}

/// A protocol that is open for us alone, until this is dropped.
struct Exclusive<P: Protocol> {
    // Dropped in this order.
    protocol: ScopedProtocol<P>,
    handle: ConnectHandleOnDrop,
}

impl<P: ProtocolPointer> Exclusive<P> {
    fn open(handle: Handle) -> uefi::Result<Self> {
        let handle = ConnectHandleOnDrop(handle);
        Ok(Self {
            protocol: open_alone(handle.0)?,
            handle,
        })
    }

    fn get(&self) -> uefi::Result<NonNull<P>> {
        let protocol = self.protocol.get().map(NonNull::from);
        protocol.ok_or_else(|| Status::UNSUPPORTED.into())
    }
}

/// The one device that is claimed, if any: what it is stopped by, and the handle that a panic gives back.
struct Claimed<T> {
    /// Null where a panic gives nothing back.
    handle: AtomicPtr<c_void>,
    device: AtomicPtr<T>,
}

impl<T> Claimed<T> {
    const fn none() -> Self {
        Self {
            handle: AtomicPtr::new(ptr::null_mut()),
            device: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn remember(&self, handle: Handle, device: NonNull<T>) {
        self.device.store(device.as_ptr(), Ordering::Relaxed);
        self.handle.store(handle.as_ptr(), Ordering::Release);
    }

    /// Remembers a device that a panic does not give back.
    fn hold(&self, device: NonNull<T>) {
        self.handle.store(ptr::null_mut(), Ordering::Release);
        self.device.store(device.as_ptr(), Ordering::Relaxed);
    }

    /// The device that is claimed.
    fn device(&self) -> Option<NonNull<T>> {
        NonNull::new(self.device.load(Ordering::Relaxed))
    }

    /// Forgets the device of this handle, unless it is held.
    fn forget(&self, handle: Handle) {
        let (handle, none) = (handle.as_ptr(), ptr::null_mut());
        let ours = self
            .handle
            .compare_exchange(handle, none, Ordering::Release, Ordering::Relaxed);
        if ours.is_ok() {
            self.device.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// Forgets this device, held or not.
    fn let_go(&self, device: NonNull<T>) {
        let (device, none) = (device.as_ptr(), ptr::null_mut());
        let _ = self
            .device
            .compare_exchange(device, none, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Has `stop` stop the device and gives it back, when the claim's owner cannot: on a panic. Memory that the device has is left
    /// allocated, as it may be in use.
    #[cfg(target_os = "uefi")]
    fn release(&self, protocol: &uefi::Guid, stop: impl FnOnce(Handle, NonNull<T>)) {
        let handle = self.handle.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the pointer is null or came from a handle.
        let (Some(handle), Some(device)) = (
            unsafe { Handle::from_ptr(handle) },
            NonNull::new(self.device.load(Ordering::Relaxed)),
        ) else {
            return;
        };
        stop(handle, device);
        // SAFETY: the system table is live, and boot services too, as the caller is a running image. The claim's owner, who has opened the
        // protocol, will never run again.
        unsafe {
            if let Some(table) = uefi::table::system_table_raw()
                && let Some(services) = table.as_ref().boot_services.as_ref()
            {
                let _ = (services.close_protocol)(
                    handle.as_ptr(),
                    protocol,
                    boot::image_handle().as_ptr(),
                    ptr::null_mut(),
                );
            }
        }
        connect(handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_ends_leaves_that_of_another_handle_to_a_panic() {
        let mut places = [0u8; 2];
        // SAFETY: no firmware sees them.
        let [ours, other] = places
            .each_mut()
            .map(|place| unsafe { Handle::new(NonNull::from(place).cast()) });
        let claimed = Claimed::none();
        claimed.remember(ours, NonNull::<u8>::dangling());
        let at = || claimed.handle.load(Ordering::Relaxed);
        assert!(claimed.device().is_some());
        claimed.forget(other);
        assert_eq!(at(), ours.as_ptr());
        claimed.forget(ours);
        assert!(at().is_null());
        assert!(claimed.device().is_none());
    }

    #[test]
    fn a_device_that_a_panic_does_not_give_back_can_be_stopped_until_it_is_let_go() {
        let mut places = [0u8; 2];
        let [ours, other] = places.each_mut().map(NonNull::from);
        // SAFETY: no firmware sees it.
        let handle = unsafe { Handle::new(ours.cast()) };
        let claimed = Claimed::none();
        claimed.remember(handle, ours);
        claimed.hold(ours);
        assert!(claimed.handle.load(Ordering::Relaxed).is_null());
        claimed.forget(handle);
        claimed.let_go(other);
        assert_eq!(claimed.device(), Some(ours));
        claimed.let_go(ours);
        assert_eq!(claimed.device(), None);
    }
}
