//! EFI_DRIVER_BINDING_PROTOCOL on our image's handle, by which others get the card: the firmware has its driver stopped for whoever asks.

use crate::child::Child;
use crate::guard::Guard;
use crate::handle::Installed;
use crate::replaced::Replaced;
use crate::shared::SharedProtocolState;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ffi::c_void;
use uefi::{Guid, Handle, boot};
use uefi_raw::protocol::device_path::DevicePathProtocol;
use uefi_raw::protocol::driver::DriverBindingProtocol;
use uefi_raw::{Handle as RawHandle, Status};
use wireboot_platform::claim::lent::Lent;
use wireboot_platform::raw::pci_io::PciIoProtocol;

/// The first that is not for drivers of the platform's (UEFI 2.10, section 11.1).
const VERSION: u32 = 0x10;

/// What a protocol is called, and its interface.
type NamedInterface = (Guid, *const c_void);

/// The protocol, and the handles that go with the card.
#[repr(C)]
pub(crate) struct BindingTable {
    /// First, so that `this` is also the table's address.
    protocol: DriverBindingProtocol,
    shared: &'static SharedProtocolState,
    /// The card's handle, while we hold it for others to get.
    card: Cell<Option<Handle>>,
    offered: RefCell<Offered>,
}

/// What is offered to loaders.
#[derive(Default)]
struct Offered {
    guard: Guard,
    /// The card as a network interface, and what is below it.
    handles: Vec<Installed>,
    children: Vec<Child>,
    /// EFI_DRIVER_BINDING_PROTOCOL on our image's handle. `None` where nobody else can get the card.
    binding: Option<Installed>,
    /// The protocol of the firmware's driver of the card, which ours is in the place of.
    replaced: Option<Replaced>,
}

impl BindingTable {
    pub(crate) fn new(shared: &'static SharedProtocolState) -> Box<Self> {
        let image = boot::image_handle().as_ptr();
        Box::new(Self {
            protocol: DriverBindingProtocol {
                supported,
                start,
                stop,
                version: VERSION,
                image_handle: image,
                driver_binding_handle: image,
            },
            shared,
            card: Cell::new(None),
            offered: RefCell::default(),
        })
    }

    /// Offers `interface`, a network interface, on its handle if it has one; handles `below` it; and the card to whoever asks for it. The firmware's
    /// drivers are kept off them. `lent`: the handle of a card that one of these drives, and what takes the place of its driver's protocol.
    ///
    /// # Safety
    /// What is on the handles, and this table, lives until [`Self::remove`] has returned true.
    pub(crate) unsafe fn offer(
        &self,
        interface: (Option<Handle>, &[NamedInterface]),
        below: &[&[NamedInterface]],
        lent: Option<(&Lent, NamedInterface)>,
    ) -> uefi::Result {
        let Ok(mut offered) = self.offered.try_borrow_mut() else {
            return Err(Status::NOT_READY.into());
        };
        let Offered {
            guard,
            handles,
            children,
            binding,
            replaced,
        } = &mut *offered;
        // SAFETY: the caller's word.
        handles.push(unsafe { Installed::on(interface.0, interface.1) }?);
        for protocols in below {
            // SAFETY: the caller's word.
            handles.push(unsafe { Installed::new(protocols) }?);
        }
        let mut guarded: Vec<Handle> = handles.iter().map(Installed::handle).collect();
        let mut state = self.shared.state().ok_or(Status::NOT_READY)?;
        let card = state.network.hold_as_driver()?;
        drop(state);
        let (&parent, below) = guarded.split_first().ok_or(Status::NOT_FOUND)?;
        if let Some(card) = card {
            let protocol = (&raw const self.protocol).cast::<c_void>();
            let protocol = (DriverBindingProtocol::GUID, protocol);
            // SAFETY: the caller's word.
            *binding = Some(unsafe { Installed::on(Some(boot::image_handle()), &[protocol]) }?);
            self.card.set(Some(card));
            children.push(Child::of(card, PciIoProtocol::GUID, parent)?);
        }
        for handle in below {
            // No loader opens a device path for itself alone.
            let by: Guid = DevicePathProtocol::GUID;
            children.push(Child::of(parent, by, *handle)?);
        }
        guarded.extend(card);
        guarded.extend(lent.map(|(lent, _)| lent.handle));
        *guard = Guard::of(&guarded, lent.map(|(lent, _)| lent));
        // Behind the guard: the firmware's drivers are offered what is put there.
        if let Some((lent, (guid, ours))) = lent
            && let Some(theirs) = lent.simple_network
        {
            let theirs = theirs.as_ptr().cast_const().cast();
            // SAFETY: the driver's, which the guard keeps in place; ours lives as the handles do.
            *replaced = Some(unsafe { Replaced::new(lent.handle, guid, theirs, ours) }?);
        }
        Ok(())
    }

    /// Takes all back. False when something stays.
    pub(crate) fn remove(&self) -> bool {
        // A panic has left it so.
        let Ok(mut offered) = self.offered.try_borrow_mut() else {
            return false;
        };
        offered.children.clear();
        // The guard goes behind them, so that nothing of the firmware's is built on a card that is still ours.
        let mut gone = offered.replaced.as_mut().is_none_or(Replaced::remove);
        while let Some(mut handle) = offered.handles.pop() {
            gone &= handle.remove();
        }
        gone &= offered.guard.remove();
        let binding = offered.binding.take();
        gone & binding.is_none_or(|mut binding| binding.remove())
    }

    /// The handles go, where the firmware lets them, and all tables refuse. False, and nothing has changed, in the midst of a call.
    fn withdraw(&self) -> bool {
        let Ok(mut offered) = self.offered.try_borrow_mut() else {
            return false;
        };
        if !self.shared.retire() {
            return false;
        }
        let Offered {
            guard,
            handles,
            children,
            ..
        } = &mut *offered;
        children.clear();
        handles.retain_mut(|installed| {
            let gone = installed.remove();
            if gone {
                guard.forget(installed.handle());
            }
            !gone
        });
        true
    }

    /// The card is somebody else's.
    fn let_go(&self, card: Handle) {
        if let Some(mut state) = self.shared.state() {
            state.network.let_go();
        }
        self.card.set(None);
        if let Ok(offered) = self.offered.try_borrow() {
            offered.guard.forget(card);
        }
        log::info!("another program gets the network card");
    }
}

/// # Safety
/// `this` is of a table that is installed.
unsafe fn is_held(this: *const DriverBindingProtocol, controller: RawHandle) -> Status {
    // SAFETY: the protocol is the first field of a table that lives while it is installed.
    let card = unsafe { &*this.cast::<BindingTable>() }.card.get();
    if card.is_some_and(|card| card.as_ptr() == controller) {
        Status::ALREADY_STARTED
    } else {
        Status::UNSUPPORTED
    }
}

unsafe extern "efiapi" fn supported(
    this: *const DriverBindingProtocol,
    controller: RawHandle,
    _path: *const DevicePathProtocol,
) -> Status {
    // SAFETY: the firmware's call of an installed protocol.
    unsafe { is_held(this, controller) }
}

unsafe extern "efiapi" fn start(
    this: *const DriverBindingProtocol,
    controller: RawHandle,
    _path: *const DevicePathProtocol,
) -> Status {
    // SAFETY: as in `supported`.
    unsafe { is_held(this, controller) }
}

/// First with the children, then with none.
unsafe extern "efiapi" fn stop(
    this: *const DriverBindingProtocol,
    controller: RawHandle,
    count: usize,
    _children: *const RawHandle,
) -> Status {
    // SAFETY: as in `supported`.
    let table = unsafe { &*this.cast::<BindingTable>() };
    let Some(card) = table.card.get().filter(|card| card.as_ptr() == controller) else {
        return Status::DEVICE_ERROR;
    };
    if !table.withdraw() {
        return Status::DEVICE_ERROR;
    }
    if count == 0 {
        table.let_go(card);
    }
    Status::SUCCESS
}
