//! The task priority level that calls work at.

use uefi_raw::table::boot::{BootServices, Tpl};

/// Boot services, as long as there are any.
pub(crate) fn boot_services() -> Option<&'static BootServices> {
    // SAFETY: the firmware's own tables, which stay as long as they are known.
    unsafe {
        uefi::table::system_table_raw()?
            .as_ref()
            .boot_services
            .as_ref()
    }
}

/// TPL_CALLBACK, until this is dropped.
pub(crate) struct AtCallback {
    before: Tpl,
}

impl AtCallback {
    /// `None` for a caller who is above it (UEFI 2.10, section 7.1: calls of network protocols are made at TPL_CALLBACK at most), and where
    /// there are no boot services.
    pub(crate) fn enter() -> Option<Self> {
        let services = boot_services()?;
        // RaiseTPL must not lower, and nothing else tells the level.
        // SAFETY: any level may be raised to the highest, and restored to one between.
        unsafe {
            let before = (services.raise_tpl)(Tpl::HIGH_LEVEL);
            if before > Tpl::CALLBACK {
                (services.restore_tpl)(before);
                return None;
            }
            (services.restore_tpl)(Tpl::CALLBACK);
            Some(Self { before })
        }
    }
}

impl Drop for AtCallback {
    fn drop(&mut self) {
        if let Some(services) = boot_services() {
            // SAFETY: the level before `enter`.
            unsafe { (services.restore_tpl)(self.before) };
        }
    }
}
