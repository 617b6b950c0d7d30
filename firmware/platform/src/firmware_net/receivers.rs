//! Who gets the frames of a card from the firmware's packet service (`EFI_MANAGED_NETWORK_PROTOCOL`; UEFI 2.10, section 25.1): each has a child of it.

use super::handle_with;
use crate::claim::pci::Candidate;
use crate::images;
use crate::raw::managed_network::{
    MANAGED_NETWORK_SERVICE_BINDING, ManagedNetworkConfigData, ManagedNetworkProtocol,
};
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use uefi::boot;
use uefi::{Guid, Handle, Status, StatusExt};
use uefi_raw::protocol::driver::DriverBindingProtocol;
use uefi_raw::table::boot::{BootServices, OpenProtocolInformationEntry};

/// `EFI_OPEN_PROTOCOL_GET_PROTOCOL`, `BY_CHILD_CONTROLLER` and `BY_DRIVER` (UEFI 2.10, section 7.3.9).
const GET_PROTOCOL: u32 = 2;
const BY_CHILD_CONTROLLER: u32 = 8;
const BY_DRIVER: u32 = 0x10;

/// As many are told of at most.
const MOST: usize = 64;

/// A child that asks for frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// The image that uses it; where the firmware does not tell, empty.
    pub image: String,
    /// The EtherType of its frames; 0: of all.
    pub ether_type: u16,
}

/// Those of a card.
///
/// # Errors
/// Where the firmware has no such service on the card.
pub fn receivers(card: &Candidate) -> uefi::Result<Vec<Receiver>> {
    let boot = services()?;
    let service = handle_with(card, &MANAGED_NETWORK_SERVICE_BINDING, |_| true)?;
    let opened = opened(boot, service, &MANAGED_NETWORK_SERVICE_BINDING)?;
    let mut children: Vec<uefi_raw::Handle> = Vec::new();
    for entry in opened {
        if entry.attributes == BY_CHILD_CONTROLLER && !children.contains(&entry.controller_handle) {
            children.push(entry.controller_handle);
        }
    }
    let children = children.into_iter().take(MOST);
    let receivers = children.filter_map(|child| {
        // SAFETY: null or a handle of the firmware's.
        let child = unsafe { Handle::from_ptr(child) }?;
        let ether_type = asked(boot, child)?;
        let image = user(boot, child).unwrap_or_default();
        Some(Receiver { image, ether_type })
    });
    Ok(receivers.collect())
}

fn services() -> uefi::Result<NonNull<BootServices>> {
    let system = uefi::table::system_table_raw().ok_or(Status::UNSUPPORTED)?;
    // SAFETY: the system table is live, as boot services run.
    let boot = unsafe { system.as_ref() }.boot_services;
    NonNull::new(boot).ok_or_else(|| Status::UNSUPPORTED.into())
}

/// Who has opened a protocol, and how.
fn opened(
    boot: NonNull<BootServices>,
    handle: Handle,
    protocol: &Guid,
) -> uefi::Result<Vec<OpenProtocolInformationEntry>> {
    let (mut entries, mut count) = (ptr::null_mut(), 0);
    // SAFETY: boot services run; the firmware checks the handle and writes to locals.
    unsafe {
        (boot.as_ref().open_protocol_information)(
            handle.as_ptr(),
            protocol,
            &raw mut entries,
            &raw mut count,
        )
    }
    .to_result()?;
    let Some(entries) = NonNull::new(entries) else {
        return Ok(Vec::new());
    };
    // SAFETY: the firmware has allocated so many of them.
    let copied = (0..count.min(1024))
        .map(|at| unsafe { entries.add(at).read() })
        .collect();
    // SAFETY: from the firmware's pool, and not used again.
    unsafe { boot::free_pool(entries.cast()) }?;
    Ok(copied)
}

/// A protocol of a handle's, to be used at once.
fn protocol(boot: NonNull<BootServices>, handle: Handle, guid: &Guid) -> Option<NonNull<c_void>> {
    let mut interface = ptr::null_mut();
    // SAFETY: boot services run; the firmware checks the handle and writes to a local.
    let status = unsafe {
        (boot.as_ref().open_protocol)(
            handle.as_ptr(),
            guid,
            &raw mut interface,
            boot::image_handle().as_ptr(),
            ptr::null_mut(),
            GET_PROTOCOL,
        )
    };
    NonNull::new(interface).filter(|_| status.is_success())
}

/// The EtherType that a child asks for; `None` where it asks for nothing.
fn asked(boot: NonNull<BootServices>, child: Handle) -> Option<u16> {
    let protocol = protocol(boot, child, &ManagedNetworkProtocol::GUID)?;
    let protocol = protocol.cast::<ManagedNetworkProtocol>().as_ptr();
    let mut config = ManagedNetworkConfigData::default();
    // SAFETY: the protocol is live; it copies the configuration to a local, and the interface's may be left out.
    let status = unsafe { ((*protocol).get_mode_data)(protocol, &raw mut config, ptr::null_mut()) };
    status.is_success().then_some(config.protocol_type_filter)
}

/// The image that uses a child: as its driver, else as anybody. Not this one, which has looked at it.
fn user(boot: NonNull<BootServices>, child: Handle) -> Option<String> {
    let own = boot::image_handle().as_ptr();
    let opened = opened(boot, child, &ManagedNetworkProtocol::GUID).ok()?;
    let others = || opened.iter().filter(|entry| entry.agent_handle != own);
    let user = others()
        .find(|entry| entry.attributes & BY_DRIVER != 0)
        .or_else(|| others().next())?;
    // SAFETY: null or a handle of the firmware's.
    let agent = unsafe { Handle::from_ptr(user.agent_handle) }?;
    // A driver's agent is the handle with its binding.
    let binding = protocol(boot, agent, &DriverBindingProtocol::GUID);
    let image = binding.and_then(|binding| {
        // SAFETY: the protocol is live; its image is null or a handle.
        unsafe {
            Handle::from_ptr(
                binding
                    .cast::<DriverBindingProtocol>()
                    .as_ref()
                    .image_handle,
            )
        }
    });
    images::name(image.unwrap_or(agent))
}
