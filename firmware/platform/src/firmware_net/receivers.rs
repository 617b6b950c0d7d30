//! Who gets the frames of a card from the firmware's packet service (`EFI_MANAGED_NETWORK_PROTOCOL`; UEFI 2.10, section 25.1): each has a child of it,
//! which it opens as a driver. The firmware disconnects that driver from the child, and connects it again by the card.

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
use core::sync::atomic::{AtomicPtr, Ordering};
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
    let service = handle_with(card, &MANAGED_NETWORK_SERVICE_BINDING, |_| true)?;
    receivers_of(service)
}

fn receivers_of(service: Handle) -> uefi::Result<Vec<Receiver>> {
    let boot = services()?;
    let children = children(boot, service)?.into_iter();
    let receivers = children.map(|(child, ether_type)| Receiver {
        image: user(boot, child).unwrap_or_default(),
        ether_type,
    });
    Ok(receivers.collect())
}

/// The service whose receivers are disconnected; null for none.
static SERVICE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Connects them again when their owner cannot: on a panic. Takes no memory of the heap.
#[cfg(target_os = "uefi")]
pub(crate) fn connect_in_panic() {
    let service = SERVICE.swap(ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: null or a handle of the firmware's.
    if let Some(service) = unsafe { Handle::from_ptr(service) } {
        connect(service);
    }
}

/// Has the firmware connect all that goes on a service.
fn connect(service: Handle) {
    // NOT_FOUND says that there was nothing to connect.
    let _ = boot::connect_controller(service, &[], None, true);
}

/// Receivers of a card that are disconnected, of one card at a time; dropping this connects them again.
#[derive(Debug)]
pub struct Disconnected {
    service: Handle,
    before: Vec<Receiver>,
}

impl Disconnected {
    /// Begins with all of them connected.
    ///
    /// # Errors
    /// Where the firmware has no such service on the card.
    pub fn none(card: &Candidate) -> uefi::Result<Self> {
        let service = handle_with(card, &MANAGED_NETWORK_SERVICE_BINDING, |_| true)?;
        Ok(Self {
            service,
            before: receivers_of(service)?,
        })
    }

    /// Disconnects those that ask for one of these EtherTypes, and all that is built on them.
    ///
    /// # Errors
    /// Where one is no driver, or does not let go.
    pub fn disconnect(&mut self, ether_types: &[u16]) -> uefi::Result<()> {
        let boot = services()?;
        SERVICE.store(self.service.as_ptr(), Ordering::Relaxed);
        // One may take another with it, so each is looked for anew.
        for _ in 0..MOST {
            let mut children = children(boot, self.service)?.into_iter();
            let child = children.find(|(_, ether_type)| ether_types.contains(ether_type));
            let Some((child, _)) = child else {
                return Ok(());
            };
            let opened = opened(boot, child, &ManagedNetworkProtocol::GUID)?;
            let driver = opened
                .iter()
                .find(|entry| entry.attributes & BY_DRIVER != 0)
                // SAFETY: null or a handle of the firmware's.
                .and_then(|entry| unsafe { Handle::from_ptr(entry.agent_handle) })
                .ok_or(Status::ACCESS_DENIED)?;
            boot::disconnect_controller(child, Some(driver), None)?;
        }
        Err(Status::ACCESS_DENIED.into())
    }

    /// Connects them again. Returns whether the receivers are those from before.
    #[must_use]
    pub fn connect(self) -> bool {
        let (service, before) = (self.service, self.before.clone());
        drop(self);
        receivers_of(service).is_ok_and(|after| same(&before, &after))
    }
}

impl Drop for Disconnected {
    fn drop(&mut self) {
        SERVICE.store(ptr::null_mut(), Ordering::Relaxed);
        connect(self.service);
    }
}

/// Whether these are the same receivers, in any order.
fn same(before: &[Receiver], after: &[Receiver]) -> bool {
    let count = |of: &[Receiver], one| of.iter().filter(|other| *other == one).count();
    let kept = |one| count(before, one) == count(after, one);
    before.len() == after.len() && before.iter().all(kept)
}

/// Children that ask for frames, and for which EtherType.
fn children(boot: NonNull<BootServices>, service: Handle) -> uefi::Result<Vec<(Handle, u16)>> {
    let opened = opened(boot, service, &MANAGED_NETWORK_SERVICE_BINDING)?;
    let mut children: Vec<uefi_raw::Handle> = Vec::new();
    for entry in opened {
        if entry.attributes == BY_CHILD_CONTROLLER && !children.contains(&entry.controller_handle) {
            children.push(entry.controller_handle);
        }
    }
    let children = children.into_iter().take(MOST);
    let asking = children.filter_map(|child| {
        // SAFETY: null or a handle of the firmware's.
        let child = unsafe { Handle::from_ptr(child) }?;
        Some((child, asked(boot, child)?))
    });
    Ok(asking.collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(image: &str, ether_type: u16) -> Receiver {
        Receiver {
            image: image.into(),
            ether_type,
        }
    }

    #[test]
    fn receivers_are_the_same_in_any_order() {
        let (arp, ip) = (receiver("ArpDxe", 0x0806), receiver("Ip4Dxe", 0x0800));
        let before = [arp.clone(), ip.clone()];
        assert!(same(&before, &[ip.clone(), arp.clone()]));
        assert!(!same(&before, core::slice::from_ref(&arp)));
        assert!(!same(&before, &[arp.clone(), arp.clone()]));
        assert!(!same(&before, &[arp, ip.clone(), ip]));
    }
}
