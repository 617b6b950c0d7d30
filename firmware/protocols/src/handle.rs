//! Handles of ours with protocols on them.

use alloc::vec::Vec;
use core::ffi::c_void;
use uefi::Handle;
use uefi::boot;
use uefi_raw::Guid;

/// A handle with protocols on it.
pub(crate) struct Installed {
    handle: Handle,
    protocols: Vec<(Guid, *const c_void)>,
}

impl Installed {
    /// A new handle with these protocols.
    ///
    /// # Safety
    /// What the pointers lead to is what the protocols' GUIDs say, and lives until this is dropped, or for ever if dropping it fails.
    pub(crate) unsafe fn new(protocols: &[(Guid, *const c_void)]) -> uefi::Result<Self> {
        // SAFETY: the caller's word.
        unsafe { Self::on(None, protocols) }
    }

    /// The same on a handle that there is, if there is one.
    ///
    /// # Safety
    /// As for [`Self::new`].
    pub(crate) unsafe fn on(
        handle: Option<Handle>,
        protocols: &[(Guid, *const c_void)],
    ) -> uefi::Result<Self> {
        let mut installed: Option<Self> = None;
        for (guid, interface) in protocols {
            let on = installed.as_ref().map(|one| one.handle).or(handle);
            // SAFETY: the caller's word.
            let handle = unsafe { boot::install_protocol_interface(on, guid, *interface) };
            let handle = handle.inspect_err(|_| {
                installed.as_mut().map(Self::remove);
            })?;
            installed
                .get_or_insert_with(|| Self {
                    handle,
                    protocols: Vec::new(),
                })
                .protocols
                .push((*guid, *interface));
        }
        installed.ok_or_else(|| uefi::Status::INVALID_PARAMETER.into())
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Takes the protocols off. False when the firmware refuses for one: that stays, and so does the handle.
    pub(crate) fn remove(&mut self) -> bool {
        let handle = self.handle;
        self.protocols.retain(|(guid, interface)| {
            // SAFETY: installed by `new`. Who has the protocol open loses it: a program that has returned, or that keeps a table that refuses.
            let removed = unsafe { boot::uninstall_protocol_interface(handle, guid, *interface) };
            removed
                .inspect_err(|error| {
                    log::debug!(
                        "a network protocol cannot be taken back ({})",
                        error.status()
                    );
                })
                .is_err()
        });
        self.protocols.is_empty()
    }
}
