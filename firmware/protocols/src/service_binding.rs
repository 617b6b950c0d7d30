//! EFI_HTTP_SERVICE_BINDING_PROTOCOL: its table.

use crate::http;
use crate::shared::Shared;
use alloc::boxed::Box;
use core::ffi::c_void;
use uefi_raw::protocol::driver::ServiceBindingProtocol;
use uefi_raw::{Handle, Status};

/// The protocol.
#[repr(C)]
pub(crate) struct HttpServiceBinding {
    /// First, so that `this` is also the table's address.
    protocol: ServiceBindingProtocol,
    shared: &'static Shared,
}

impl HttpServiceBinding {
    pub(crate) fn new(shared: &'static Shared) -> Box<Self> {
        Box::new(Self {
            protocol: ServiceBindingProtocol {
                create_child,
                destroy_child,
            },
            shared,
        })
    }

    pub(crate) fn protocol(&self) -> *const c_void {
        (&raw const self.protocol).cast()
    }
}

unsafe extern "efiapi" fn create_child(
    this: *mut ServiceBindingProtocol,
    handle: *mut Handle,
) -> Status {
    if this.is_null() || handle.is_null() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: `this` is the first field of a table that lives while the protocol is installed; `handle` is the caller's variable.
    unsafe {
        let shared = (*this.cast::<HttpServiceBinding>()).shared;
        match http::create(shared, handle.read_unaligned()) {
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
    if this.is_null() || handle.is_null() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: as in `create_child`.
    http::destroy(
        unsafe { (*this.cast::<HttpServiceBinding>()).shared },
        handle,
    )
}
