//! Variables that take long to write.

use crate::{busy, services};
use core::ffi::c_void;
use core::ptr::NonNull;
use uefi::{Guid, Status};
use uefi_raw::table::runtime::VariableAttributes;
use wireboot_platform::shim::Original;

/// So much longer, in microseconds.
const LONGER: u64 = 5000;

type SetVariable = unsafe extern "efiapi" fn(
    *const u16,
    *const Guid,
    VariableAttributes,
    usize,
    *const c_void,
) -> Status;

static SET_VARIABLE: Original<SetVariable> = Original::new();

/// Slows `SetVariable` down.
pub(crate) fn plant() -> uefi::Result {
    let system = services::system()?;
    // SAFETY: the table is the firmware's, live and long-lived; our function goes on to the firmware's.
    unsafe {
        let runtime = system.as_ref().runtime_services;
        let header = NonNull::new(&raw mut (*runtime).header);
        let member = (&raw mut (*runtime).set_variable).cast::<SetVariable>();
        services::replace(member, header, set_variable as SetVariable, &SET_VARIABLE)
    }
}

unsafe extern "efiapi" fn set_variable(
    name: *const u16,
    vendor: *const Guid,
    attributes: VariableAttributes,
    bytes: usize,
    data: *const c_void,
) -> Status {
    let Some(firmwares) = SET_VARIABLE.get() else {
        return Status::DEVICE_ERROR;
    };
    busy::wait(LONGER);
    // SAFETY: the caller's own arguments.
    unsafe { firmwares(name, vendor, attributes, bytes, data) }
}
