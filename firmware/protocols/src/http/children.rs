//! The children of EFI_HTTP_SERVICE_BINDING_PROTOCOL.

use super::given::GivenTokens;
use crate::handle::Installed;
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use uefi_raw::protocol::network::http::HttpProtocol;
use wireboot_platform::free_memory::FreeMemory;
use wireboot_protocols::http::Http;

pub(super) struct Child {
    pub(super) installed: Installed,
    /// Its table: made by `create`, and freed when it is installed no more.
    pub(super) table: NonNull<HttpProtocol>,
    pub(super) http: Http,
    pub(super) given: GivenTokens,
}

/// The children that there are.
#[derive(Default)]
pub(crate) struct Children {
    pub(super) all: Vec<Child>,
    /// Kept for its memory: the timer's function reads it.
    pub(super) free: FreeMemory,
}

impl Children {
    pub(super) fn find(&mut self, this: *const HttpProtocol) -> Option<&mut Child> {
        let is = |child: &&mut Child| ptr::eq(child.table.as_ptr(), this);
        self.all.iter_mut().find(is)
    }
}
