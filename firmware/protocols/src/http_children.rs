//! The children of EFI_HTTP_SERVICE_BINDING_PROTOCOL, as the state behind all tables has them: below `shared`, and below `http`, whose
//! functions change them.

mod given;

pub(crate) use given::{GivenToken, GivenTokens};

use crate::handle::Installed;
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use uefi_raw::protocol::network::http::HttpProtocol;
use wireboot_platform::free_memory::FreeMemory;
use wireboot_protocols::http::Http;

pub(crate) struct Child {
    pub(crate) installed: Installed,
    /// Its table: made by `create`, and freed when it is installed no more.
    pub(crate) table: NonNull<HttpProtocol>,
    pub(crate) http: Http,
    pub(crate) given: GivenTokens,
}

/// The children that there are.
#[derive(Default)]
pub(crate) struct Children {
    pub(crate) all: Vec<Child>,
    /// Kept for its memory: the timer's function reads it.
    pub(crate) free: FreeMemory,
}

impl Children {
    pub(crate) fn find(&mut self, this: *const HttpProtocol) -> Option<&mut Child> {
        let is = |child: &&mut Child| ptr::eq(child.table.as_ptr(), this);
        self.all.iter_mut().find(is)
    }
}
