//! A protocol of ours in the place of another's, on the other's handle.

use core::ffi::c_void;
use uefi::{Guid, Handle, boot};

/// It is in place until it is removed. Whoever asks the handle for the protocol gets ours, and its maker, who looks for its own, cannot take it
/// off the handle.
pub(crate) struct Replaced {
    handle: Handle,
    guid: Guid,
    theirs: *const c_void,
    /// `None` when theirs is back.
    ours: Option<*const c_void>,
}

impl Replaced {
    /// # Errors
    /// What the firmware answers when somebody has theirs open.
    ///
    /// # Safety
    /// `theirs` is the protocol on the handle, and lives until this is removed. `ours` is such a protocol, too, and lives as long, or for ever if
    /// removing this fails.
    pub(crate) unsafe fn new(
        handle: Handle,
        guid: Guid,
        theirs: *const c_void,
        ours: *const c_void,
    ) -> uefi::Result<Self> {
        // SAFETY: the caller's word.
        unsafe { boot::reinstall_protocol_interface(handle, &guid, theirs, ours) }?;
        Ok(Self {
            handle,
            guid,
            theirs,
            ours: Some(ours),
        })
    }

    /// Puts theirs back. False when the firmware refuses.
    pub(crate) fn remove(&mut self) -> bool {
        let Some(ours) = self.ours else { return true };
        // SAFETY: put there by `new`. Who has ours open loses it: that is a program that has returned.
        let back = unsafe {
            boot::reinstall_protocol_interface(self.handle, &self.guid, ours, self.theirs)
        };
        match &back {
            Ok(()) => self.ours = None,
            Err(error) => log::warn!(
                "the firmware's network protocol cannot be put back ({})",
                error.status()
            ),
        }
        back.is_ok()
    }
}
