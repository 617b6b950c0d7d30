//! The handle of an interface that is claimed by `snp` or `undi`, for protocols of ours while another image runs.

use super::caller;
use crate::device_path;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use uefi::boot::{self, SearchType};
use uefi::proto::device_path::DevicePath;
use uefi::proto::network::snp::SimpleNetwork;
use uefi::{Handle, Identify};

/// The handle, on which nobody has the driver's `EFI_SIMPLE_NETWORK_PROTOCOL` open. The driver has to stay in place, and what was on the handle
/// has to be there again before the interface is given back.
#[derive(Clone, Debug)]
pub struct Lent {
    /// Handle of the network interface, which has the device path `path`.
    pub handle: Handle,
    /// Its device path, without end node.
    pub path: Box<[u8]>,
    /// The driver's protocol on it, if there is one.
    pub simple_network: Option<NonNull<SimpleNetwork>>,
    /// The handles that its path leads through, itself included: bus, PCI function, interface.
    way: Vec<Handle>,
}

impl Lent {
    pub(super) fn new(handle: Handle, simple_network: Option<NonNull<SimpleNetwork>>) -> Self {
        let path = device_path::of_handle(handle).unwrap_or_default();
        let all = boot::locate_handle_buffer(SearchType::ByProtocol(&DevicePath::GUID));
        let on_the_way = |handle: &Handle| {
            let nodes = device_path::of_handle(*handle);
            nodes.is_some_and(|nodes| !nodes.is_empty() && path.starts_with(&nodes))
        };
        let way = all.map(|all| all.iter().copied().filter(on_the_way).collect());
        Self {
            handle,
            simple_network,
            way: way.unwrap_or_default(),
            path,
        }
    }

    /// Of the handles on its way, those that `driver` drives.
    pub fn driven_by(&self, driver: Handle) -> impl Iterator<Item = Handle> {
        let drives = move |handle: &Handle| {
            boot::protocols_per_handle(*handle).is_ok_and(|protocols| {
                let mut protocols = protocols.iter();
                protocols.any(|protocol| {
                    caller::has_driver(*handle, protocol, |agent| agent == driver.as_ptr())
                })
            })
        };
        self.way.iter().copied().filter(drives)
    }
}
