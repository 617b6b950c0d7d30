//! Whose child a handle is: who connects controllers recursively, or lists them, goes by that.

use core::ptr;
use uefi::{Guid, Handle, Status, boot};
use uefi_raw::table::boot::BootServices;

/// EFI_OPEN_PROTOCOL_BY_CHILD_CONTROLLER (UEFI 2.10, section 7.3.9).
const BY_CHILD_CONTROLLER: u32 = 0x08;

/// A child of a handle, until this is dropped: a protocol of that is open for it.
pub(crate) struct Child {
    parent: Handle,
    protocol: Guid,
    child: Handle,
}

fn services() -> Option<&'static BootServices> {
    // SAFETY: the firmware's own services, which last as long as this image runs and boot services have not ended.
    unsafe {
        uefi::table::system_table_raw()?
            .as_ref()
            .boot_services
            .as_ref()
    }
}

impl Child {
    /// Makes `child` a child of `parent`, by `protocol` of that.
    pub(crate) fn of(parent: Handle, protocol: Guid, child: Handle) -> uefi::Result<Self> {
        let services = services().ok_or(Status::UNSUPPORTED)?;
        let mut interface = ptr::null_mut();
        // SAFETY: handles that there are; the result is written to a local, and not used.
        let status = unsafe {
            (services.open_protocol)(
                parent.as_ptr(),
                &protocol,
                &raw mut interface,
                boot::image_handle().as_ptr(),
                child.as_ptr(),
                BY_CHILD_CONTROLLER,
            )
        };
        if status.is_success() {
            Ok(Self {
                parent,
                protocol,
                child,
            })
        } else {
            Err(status.into())
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(services) = services() {
            // SAFETY: opened by `of`. A handle that is gone is refused.
            let _ = unsafe {
                (services.close_protocol)(
                    self.parent.as_ptr(),
                    &self.protocol,
                    boot::image_handle().as_ptr(),
                    self.child.as_ptr(),
                )
            };
        }
    }
}
