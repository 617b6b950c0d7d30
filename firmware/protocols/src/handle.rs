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

    /// The handle.
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Takes the protocols off. False when the firmware refuses for one, which stays.
    pub(crate) fn remove(&mut self) -> bool {
        while let Some((guid, interface)) = self.protocols.last() {
            // SAFETY: installed by `new`. Who has the protocol open loses it: that is a program that has returned.
            let removed =
                unsafe { boot::uninstall_protocol_interface(self.handle, guid, *interface) };
            if let Err(error) = removed {
                log::warn!(
                    "a network protocol cannot be taken back ({})",
                    error.status()
                );
                return false;
            }
            self.protocols.pop();
        }
        true
    }
}
