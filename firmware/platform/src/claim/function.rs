//! The PCI functions that there are.

use super::{connect, open};
use crate::device_path;
use crate::link_speed::{Registers, link_speed};
use crate::pci::{bar, config_read};
use crate::pcie;
use crate::raw::pci_io::PciIoProtocol;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;
use uefi::boot::{self, OpenProtocolAttributes, SearchType};
use uefi::proto::unsafe_protocol;
use uefi::{Handle, Status};
use wireboot_nic::platform::Registers as _;

/// The base class of network controllers.
const CLASS_NETWORK: u8 = 0x02;

/// The protocol as the `uefi` crate opens it.
#[repr(transparent)]
#[unsafe_protocol(PciIoProtocol::GUID)]
pub(super) struct PciIo(pub(super) PciIoProtocol);

/// A PCI function that a driver may take.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub(super) handle: Handle,
    /// Segment, bus, device and function.
    location: [usize; 4],
    /// Of PCI configuration space, offset 0.
    pub vendor: u16,
    /// Of PCI configuration space, offset 2.
    pub device: u16,
    /// Base class (PCI Code and ID Assignment Specification).
    class: u8,
    /// Its device path, without end node.
    pub path: Box<[u8]>,
}

impl Candidate {
    /// By its class, a network controller.
    #[must_use]
    pub fn is_network(&self) -> bool {
        self.class == CLASS_NETWORK
    }

    /// The firmware's interface to it, which stays the driver's that has it.
    pub(crate) fn io(&self) -> uefi::Result<NonNull<PciIoProtocol>> {
        let io = open::<PciIo>(self.handle, OpenProtocolAttributes::GetProtocol)?;
        let io = io.get().ok_or(Status::UNSUPPORTED)?;
        Ok(NonNull::from(&io.0))
    }

    /// Its link of PCI Express, if it has one.
    #[must_use]
    pub fn link(&self) -> Option<pcie::Link> {
        let io = self.io().ok()?;
        pcie::link(|offset| config_read(io, offset))
    }

    /// The speed of its link to the network in Mbit/s, where the card tells it.
    #[must_use]
    pub fn link_speed(&self) -> Option<u32> {
        let io = self.io().ok()?;
        link_speed(self.vendor, self.device, &Beside(io))
    }

    /// Has the firmware's drivers take it. At start-up some firmware does so only with what it boots from.
    pub fn connect(&self) {
        connect(self.handle);
    }
}

/// A function's registers beside its driver.
struct Beside(NonNull<PciIoProtocol>);

impl Registers for Beside {
    fn config(&self, at: u8) -> u32 {
        config_read(self.0, at)
    }

    // `link_speed` reads registers of which reading has no effect.
    fn read(&self, number: u8, offset: u64) -> Option<u32> {
        let offset = usize::try_from(offset).ok()?;
        Some(bar(self.0, number)?.read32(offset))
    }

    // It writes which half of the features is read, which drivers do before they start the device, and puts it back.
    fn write(&self, number: u8, offset: u64, value: u32) -> bool {
        let (Some(bar), Ok(offset)) = (bar(self.0, number), usize::try_from(offset)) else {
            return false;
        };
        bar.write32(offset, value);
        true
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [segment, bus, device, function] = self.location;
        write!(
            f,
            "PCI device {segment:04x}:{bus:02x}:{device:02x}.{function:x} ({:04x}:{:04x})",
            self.vendor, self.device
        )
    }
}

/// Of the PCI functions that `path` (a device path's nodes) leads through, the last.
#[must_use]
pub fn function_of(path: &[u8]) -> Option<Candidate> {
    let on_it = |candidate: &Candidate| path.starts_with(&candidate.path);
    let found = functions().into_iter().filter(on_it);
    found.max_by_key(|candidate| candidate.path.len())
}

/// All PCI functions, in the firmware's order.
#[must_use]
pub fn functions() -> Vec<Candidate> {
    let Ok(handles) = boot::locate_handle_buffer(SearchType::from_proto::<PciIo>()) else {
        return Vec::new();
    };
    handles
        .iter()
        .filter_map(|&handle| {
            let path = device_path::of_handle(handle)?;
            let io = open::<PciIo>(handle, OpenProtocolAttributes::GetProtocol).ok()?;
            let io = NonNull::from(&io.get()?.0);
            let id = config_read(io, 0);
            let [.., class] = config_read(io, 8).to_le_bytes();
            let mut location = [0; 4];
            let [segment, bus, device, function] = &mut location;
            // SAFETY: the protocol is live; the four results are written to locals.
            let told =
                unsafe { (io.as_ref().get_location)(io.as_ptr(), segment, bus, device, function) };
            told.is_success().then_some(())?;
            Some(Candidate {
                handle,
                location,
                vendor: id as u16,
                device: (id >> 16) as u16,
                class,
                path,
            })
        })
        .collect()
}
