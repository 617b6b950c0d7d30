//! EFI_HTTP_SERVICE_BINDING_PROTOCOL: its table.

use crate::offered::Offered;
use crate::shared::SharedProtocolState;
use alloc::boxed::Box;
use core::ffi::c_void;
use uefi_raw::protocol::driver::ServiceBindingProtocol;

static OFFERED: Offered<HttpServiceBinding> = Offered::none();

#[repr(C)]
pub(crate) struct HttpServiceBinding {
    /// First, so that `this` is also the table's address.
    protocol: ServiceBindingProtocol,
    shared: &'static SharedProtocolState,
}

impl HttpServiceBinding {
    /// With these functions, which find what is theirs by [`Self::at`].
    pub(crate) fn new(
        protocol: ServiceBindingProtocol,
        shared: &'static SharedProtocolState,
    ) -> Box<Self> {
        let table = Box::new(Self { protocol, shared });
        OFFERED.set(&table);
        table
    }

    /// What a caller's `this` is of, if it is the table that is offered.
    pub(crate) fn at(this: *mut ServiceBindingProtocol) -> Option<&'static SharedProtocolState> {
        OFFERED.at(this).map(|table| table.shared)
    }

    /// What children of the table that is offered are of.
    pub(crate) fn offered() -> Option<&'static SharedProtocolState> {
        OFFERED.get().map(|table| table.shared)
    }

    pub(crate) fn protocol(&self) -> *const c_void {
        (&raw const self.protocol).cast()
    }
}

impl Drop for HttpServiceBinding {
    fn drop(&mut self) {
        OFFERED.forget(self);
    }
}
