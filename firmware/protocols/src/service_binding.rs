//! EFI_HTTP_SERVICE_BINDING_PROTOCOL: its table.

use crate::http;
use crate::offered::Offered;
use crate::shared::Shared;
use alloc::boxed::Box;
use core::ffi::c_void;
use uefi_raw::protocol::driver::ServiceBindingProtocol;
use uefi_raw::{Handle, Status};

static OFFERED: Offered<HttpServiceBinding> = Offered::none();

/// The protocol.
#[repr(C)]
pub(crate) struct HttpServiceBinding {
    /// First, so that `this` is also the table's address.
    protocol: ServiceBindingProtocol,
    shared: &'static Shared,
}

impl HttpServiceBinding {
    pub(crate) fn new(shared: &'static Shared) -> Box<Self> {
        let table = Box::new(Self {
            protocol: ServiceBindingProtocol {
                create_child,
                destroy_child,
            },
            shared,
        });
        OFFERED.set(&table);
        table
    }

    /// What children of the table that is offered are of.
    pub(crate) fn offered() -> Option<&'static Shared> {
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

unsafe extern "efiapi" fn create_child(
    this: *mut ServiceBindingProtocol,
    handle: *mut Handle,
) -> Status {
    let Some(table) = OFFERED.at(this).filter(|_| !handle.is_null()) else {
        return Status::INVALID_PARAMETER;
    };
    // SAFETY: the caller's variable.
    unsafe {
        match http::create(table.shared, handle.read_unaligned()) {
            Ok(child) => {
                handle.write_unaligned(child);
                Status::SUCCESS
            }
            Err(status) => status,
        }
    }
}

unsafe extern "efiapi" fn destroy_child(
    this: *mut ServiceBindingProtocol,
    handle: Handle,
) -> Status {
    match OFFERED.at(this) {
        Some(table) if !handle.is_null() => http::destroy(table.shared, handle),
        _ => Status::INVALID_PARAMETER,
    }
}
