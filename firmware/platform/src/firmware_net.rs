//! The firmware's own network on an interface above its driver (`crate::snp`), for comparison with ours: the packets that protocols share
//! ([`Mnp`]) and [who gets them](receivers()), TFTP ([`Pxe`], [`Mtftp`]), HTTP ([`Http`]) and a boot's own way to its file ([`NetworkBoot`]).

mod http;
mod mnp;
mod mtftp;
mod network_boot;
mod pxe;
mod receivers;

pub use http::Http;
pub use mnp::Mnp;
pub use mtftp::{Mtftp, Station, Transferred, Wanted};
pub use network_boot::NetworkBoot;
pub use pxe::Pxe;
pub use receivers::{Disconnected, Receiver, receivers};

/// Gives the firmware's network back to it when its owner cannot: on a panic.
#[cfg(target_os = "uefi")]
pub(crate) fn release_in_panic() {
    mnp::release_in_panic();
    receivers::connect_in_panic();
}

use crate::claim::pci::Candidate;
use crate::device_path;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol, SearchType};
use uefi::proto::ProtocolPointer;
use uefi::{Guid, Handle, Status};

/// The first handle of the interface that carries a protocol, and whose device path matches.
pub(crate) fn handle_with(
    interface: &Candidate,
    protocol: &Guid,
    matches: impl Fn(&[u8]) -> bool,
) -> uefi::Result<Handle> {
    let handles = boot::locate_handle_buffer(SearchType::ByProtocol(protocol))?;
    let found = handles.iter().find(|&&handle| {
        device_path::of_handle(handle)
            .is_some_and(|path| path.starts_with(&interface.path) && matches(&path))
    });
    found.copied().ok_or_else(|| Status::NOT_FOUND.into())
}

/// Opens a protocol of `handle` for this image.
///
/// # Safety
/// As [`boot::open_protocol`]: unless opened exclusively, nobody may take the protocol away while it is in use.
pub(crate) unsafe fn open<P: ProtocolPointer + ?Sized>(
    handle: Handle,
    how: OpenProtocolAttributes,
) -> uefi::Result<ScopedProtocol<P>> {
    let params = OpenProtocolParams {
        handle,
        agent: boot::image_handle(),
        controller: None,
    };
    // SAFETY: the caller's word.
    unsafe { boot::open_protocol(params, how) }
}
