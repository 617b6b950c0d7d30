//! Variables that the firmware keeps (UEFI 2.10, section 8.2): the boot manager's, and wireboot's.

use alloc::boxed::Box;
use uefi::cstr16;
use uefi::runtime::{self, VariableAttributes, VariableVendor};
use uefi::{CStr16, CString16, Guid, Result, Status, guid};

/// Whose variables those of the boot manager are: `BootOrder`, `Boot0000` (`EFI_GLOBAL_VARIABLE`).
pub const GLOBAL: Guid = VariableVendor::GLOBAL_VARIABLE.0;

/// Whose variables those of wireboot's are.
pub(crate) const OWN: Guid = guid!("df233257-ae2f-4c37-bb24-e63e588efd0f");

/// Whether there is a variable of this name. One that cannot be told counts as there.
pub(crate) fn exists(name: &CStr16, vendor: Guid) -> bool {
    let exists = runtime::variable_exists(name, &VariableVendor(vendor));
    exists.unwrap_or(true)
}

/// What a variable holds; `None` where there is none.
#[must_use]
pub fn read(name: &str, vendor: Guid) -> Option<Box<[u8]>> {
    let name = CString16::try_from(name).ok()?;
    let found = runtime::get_variable_boxed(&name, &VariableVendor(vendor));
    found.ok().map(|(content, _)| content)
}

/// The number of the boot option that the firmware tries, without allocating.
#[must_use]
pub fn boot_current() -> Option<u16> {
    let mut number = [0; 2];
    let vendor = VariableVendor::GLOBAL_VARIABLE;
    let found = runtime::get_variable(cstr16!("BootCurrent"), &vendor, &mut number);
    let (content, _) = found.ok()?;
    content.first_chunk().copied().map(u16::from_le_bytes)
}

/// Has the firmware keep `content` from boot to boot, for its own drivers alone.
///
/// # Errors
/// When it does not take it, as when there is no room.
pub fn keep(name: &str, vendor: Guid, content: &[u8]) -> Result {
    let name = CString16::try_from(name).map_err(|_| Status::INVALID_PARAMETER)?;
    let attributes = VariableAttributes::NON_VOLATILE | VariableAttributes::BOOTSERVICE_ACCESS;
    runtime::set_variable(&name, &VariableVendor(vendor), attributes, content)
}

/// Has the firmware keep `content` from boot to boot, for everybody.
///
/// # Errors
/// When it does not take it, as when there is no room.
pub fn store(name: &str, vendor: Guid, content: &[u8]) -> Result {
    let name = CString16::try_from(name).map_err(|_| Status::INVALID_PARAMETER)?;
    let attributes = VariableAttributes::NON_VOLATILE
        | VariableAttributes::BOOTSERVICE_ACCESS
        | VariableAttributes::RUNTIME_ACCESS;
    runtime::set_variable(&name, &VariableVendor(vendor), attributes, content)
}

/// Has the firmware show `content` to the system until the machine's next start.
///
/// # Errors
/// When it does not take it, as when there is no room.
pub fn lend(name: &str, vendor: Guid, content: &[u8]) -> Result {
    let name = CString16::try_from(name).map_err(|_| Status::INVALID_PARAMETER)?;
    let attributes = VariableAttributes::BOOTSERVICE_ACCESS | VariableAttributes::RUNTIME_ACCESS;
    runtime::set_variable(&name, &VariableVendor(vendor), attributes, content)
}

/// Removes a variable, if there is one.
pub fn remove(name: &str, vendor: Guid) {
    if let Ok(name) = CString16::try_from(name) {
        let _ = runtime::delete_variable(&name, &VariableVendor(vendor));
    }
}
