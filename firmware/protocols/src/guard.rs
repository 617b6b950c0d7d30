//! Keeps the firmware's own network drivers off our handles.
//!
//! Whoever connects controllers (iPXE does when it ends, the shell by `connect`) has each driver asked for each handle, and the firmware's
//! drivers would build their stack on our Simple Network Protocol. The drivers that say they would get a binding that refuses our
//! handles, and passes everything else on. Other cards and drivers see no difference.
//!
//! Drivers of the firmware's on the way to a card that one of them drives for us get one, too: they do not stop while our handles stand. They
//! would take the protocol on their handle for their own.
//!
//! The card's own handle is among ours: iPXE's driver in a card's ROM takes a card from the driver that has it. One that comes later, as that of
//! an iPXE that is started, gets it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::Handle;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, SearchType};
use uefi::proto::unsafe_protocol;
use uefi_raw::protocol::device_path::DevicePathProtocol;
use uefi_raw::protocol::driver::DriverBindingProtocol;
use uefi_raw::{Handle as RawHandle, Status};
use wireboot_platform::claim::lent::Lent;

/// The protocol as the `uefi` crate opens it.
#[repr(transparent)]
#[unsafe_protocol(DriverBindingProtocol::GUID)]
struct DriverBinding(DriverBindingProtocol);

/// A binding in the place of a driver's own.
#[repr(C)]
struct Wrapper {
    /// First, so that `this` is also the wrapper's address.
    binding: DriverBindingProtocol,
    original: *const DriverBindingProtocol,
    /// The handle on which it is installed.
    driver: Handle,
    /// Our handles; null for one that was forgotten.
    ours: Box<[Cell<RawHandle>]>,
    /// What the driver drives and does not let go of.
    kept: Vec<RawHandle>,
}

impl Wrapper {
    fn guards(&self, controller: RawHandle) -> bool {
        self.ours.iter().any(|one| one.get() == controller)
    }
}

/// Bindings of drivers that refuse our handles.
#[derive(Default)]
pub(crate) struct Guard(Vec<NonNull<Wrapper>>);

impl Guard {
    /// Guards `handles`, and keeps the drivers on the way to `lent` in place. A driver that cannot be guarded against is warned of.
    pub(crate) fn of(handles: &[Handle], lent: Option<&Lent>) -> Self {
        let by = SearchType::ByProtocol(&DriverBindingProtocol::GUID);
        let drivers = boot::locate_handle_buffer(by);
        let drivers = drivers.iter().flat_map(|all| all.iter().copied());
        let wrapped = drivers.filter_map(|driver| wrap(driver, handles, lent));
        Self(wrapped.collect())
    }

    /// Guards a handle no more: the firmware may make another one at its place. The drivers keep the wrappers, as this may be in the midst of
    /// connecting them.
    pub(crate) fn forget(&self, handle: Handle) {
        for wrapper in &self.0 {
            // SAFETY: made by `wrap`, and freed by `remove` alone.
            let ours = unsafe { &wrapper.as_ref().ours };
            let places = ours.iter().filter(|one| one.get() == handle.as_ptr());
            places.for_each(|one| one.set(ptr::null_mut()));
        }
    }

    /// Gives the drivers their own bindings back. False when one stays.
    pub(crate) fn remove(&mut self) -> bool {
        while let Some(wrapper) = self.0.last().copied() {
            // SAFETY: made by `wrap`; calls are over.
            let one = unsafe { wrapper.as_ref() };
            if reinstall(one.driver, wrapper.as_ptr().cast(), one.original.cast()).is_err() {
                return false;
            }
            self.0.pop();
            // SAFETY: nobody knows the wrapper any more.
            drop(unsafe { Box::from_raw(wrapper.as_ptr()) });
        }
        true
    }
}

fn reinstall(driver: Handle, old: *const c_void, new: *const c_void) -> uefi::Result {
    // SAFETY: `old` is what is installed there, and `new` a binding that lives as long as it is installed. Nobody opens a binding for itself.
    unsafe { boot::reinstall_protocol_interface(driver, &DriverBindingProtocol::GUID, old, new) }
}

/// Puts a wrapper in the place of the binding on `driver`, if that driver would take one of `handles`, or is on the way to `lent`.
fn wrap(driver: Handle, handles: &[Handle], lent: Option<&Lent>) -> Option<NonNull<Wrapper>> {
    let params = OpenProtocolParams {
        handle: driver,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: drivers stay, and only what is called at once uses the pointer before the wrapper is in place.
    let opened = unsafe {
        boot::open_protocol::<DriverBinding>(params, OpenProtocolAttributes::GetProtocol)
    };
    let original: *const DriverBindingProtocol = &raw const opened.ok()?.get()?.0;
    let ours = handles.iter().map(|handle| Cell::new(handle.as_ptr()));
    // SAFETY: as above.
    let binding = unsafe { &*original };
    let would = |handle: &Handle| {
        // SAFETY: the driver's own function and a handle that exists.
        unsafe { (binding.supported)(original, handle.as_ptr(), ptr::null()) }.is_success()
    };
    let kept = lent.map(|lent| lent.driven_by(driver).map(|it| it.as_ptr()).collect());
    let kept: Vec<_> = kept.unwrap_or_default();
    (!kept.is_empty() || handles.iter().any(would)).then_some(())?;
    let wrapper = NonNull::from(Box::leak(Box::new(Wrapper {
        binding: DriverBindingProtocol {
            supported,
            start,
            stop,
            version: binding.version,
            image_handle: binding.image_handle,
            driver_binding_handle: binding.driver_binding_handle,
        },
        original,
        driver,
        ours: ours.collect(),
        kept,
    })));
    if let Err(error) = reinstall(driver, original.cast(), wrapper.as_ptr().cast()) {
        log::warn!(
            "a driver of the firmware's may take wireboot's network interface ({})",
            error.status()
        );
        // SAFETY: leaked above, and not installed.
        drop(unsafe { Box::from_raw(wrapper.as_ptr()) });
        return None;
    }
    Some(wrapper)
}

/// The wrapper that is called, and the driver's own binding.
unsafe fn parts<'a>(
    this: *const DriverBindingProtocol,
) -> (&'a Wrapper, &'a DriverBindingProtocol) {
    // SAFETY: `this` is the first field of a wrapper that lives while it is installed, and the original as long as its driver.
    unsafe {
        let wrapper = &*this.cast::<Wrapper>();
        (wrapper, &*wrapper.original)
    }
}

unsafe extern "efiapi" fn supported(
    this: *const DriverBindingProtocol,
    controller: RawHandle,
    path: *const DevicePathProtocol,
) -> Status {
    // SAFETY: installed by `wrap`; the arguments are the caller's, for the driver.
    unsafe {
        let (wrapper, original) = parts(this);
        if wrapper.guards(controller) {
            return Status::UNSUPPORTED;
        }
        (original.supported)(wrapper.original, controller, path)
    }
}

unsafe extern "efiapi" fn start(
    this: *const DriverBindingProtocol,
    controller: RawHandle,
    path: *const DevicePathProtocol,
) -> Status {
    // SAFETY: as in `supported`.
    unsafe {
        let (wrapper, original) = parts(this);
        if wrapper.guards(controller) {
            return Status::UNSUPPORTED;
        }
        (original.start)(wrapper.original, controller, path)
    }
}

unsafe extern "efiapi" fn stop(
    this: *const DriverBindingProtocol,
    controller: RawHandle,
    count: usize,
    children: *const RawHandle,
) -> Status {
    // SAFETY: as in `supported`.
    unsafe {
        let (wrapper, original) = parts(this);
        if wrapper.kept.contains(&controller) {
            return Status::DEVICE_ERROR;
        }
        (original.stop)(wrapper.original, controller, count, children)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "efiapi" fn takes_all(
        _: *const DriverBindingProtocol,
        _: RawHandle,
        _: *const DevicePathProtocol,
    ) -> Status {
        Status::SUCCESS
    }

    unsafe extern "efiapi" fn stops(
        _: *const DriverBindingProtocol,
        _: RawHandle,
        _: usize,
        _: *const RawHandle,
    ) -> Status {
        Status::SUCCESS
    }

    #[test]
    fn a_driver_is_kept_off_our_handles_until_they_are_forgotten() {
        let original = DriverBindingProtocol {
            supported: takes_all,
            start: takes_all,
            stop: stops,
            version: 0x10,
            image_handle: ptr::null_mut(),
            driver_binding_handle: ptr::null_mut(),
        };
        let mut places = [0_u8; 4];
        // SAFETY: no firmware sees them.
        let [driver, ours, card, other] = places
            .each_mut()
            .map(|place| unsafe { Handle::new(NonNull::from(place).cast()) });
        let mut wrapper = Wrapper {
            binding: DriverBindingProtocol {
                supported,
                start,
                stop,
                ..original
            },
            original: &raw const original,
            driver,
            ours: [ours, card].map(|one| Cell::new(one.as_ptr())).into(),
            kept: Vec::new(),
        };
        let wrapper = NonNull::from(&mut wrapper);
        let this = wrapper.as_ptr().cast_const().cast();
        let guard = Guard([wrapper].into());
        let asked = |handle: Handle| {
            // SAFETY: the wrapper lives, and so does what it wraps.
            unsafe {
                let path = ptr::null();
                let answers = [supported, start].map(|ask| ask(this, handle.as_ptr(), path));
                assert_eq!(answers[0], answers[1]);
                answers[0]
            }
        };
        for (handle, answer) in [
            (ours, Status::UNSUPPORTED),
            (card, Status::UNSUPPORTED),
            (other, Status::SUCCESS),
        ] {
            assert_eq!(asked(handle), answer);
        }
        guard.forget(card);
        assert_eq!(asked(card), Status::SUCCESS);
        assert_eq!(asked(ours), Status::UNSUPPORTED);
    }
}
