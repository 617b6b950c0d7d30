//! Services of a card: its `EFI_SIMPLE_NETWORK_PROTOCOL` where the firmware has started it, and its `EFI_PCI_IO_PROTOCOL`.

use super::{Called, Service};
use crate::claim::pci::Candidate;
use crate::firmware_net::{handle_with, open};
use crate::memory::Pages;
use crate::raw::pci_io::{PciIoAccess, PciIoOperation, PciIoProtocol, PciIoWidth};
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use uefi::boot::OpenProtocolAttributes;
use uefi::proto::network::snp::{NetworkState, SimpleNetwork};
use uefi::{Identify, Status};
use uefi_raw::protocol::network::snp::{InterruptStatus, SimpleNetworkProtocol};

/// Room for a frame, in bytes.
const FRAME: usize = 2048;
/// BARs of a function.
const BARS: u8 = 6;

/// Of both, as far as they are there.
pub(super) fn services(card: &Candidate) -> Vec<Service> {
    let mut services = Vec::new();
    services.extend(started(card).into_iter().flat_map(of_interface));
    if let Ok(io) = card.io() {
        services.extend(of_function(io));
    }
    services
}

/// The card's interface, if it receives.
fn started(card: &Candidate) -> Option<NonNull<SimpleNetworkProtocol>> {
    let handle = handle_with(card, &SimpleNetwork::GUID, |_| true).ok()?;
    // SAFETY: the card's drivers stay connected while its services are called (see `services::all`).
    let snp = unsafe { open::<SimpleNetwork>(handle, OpenProtocolAttributes::GetProtocol) }.ok()?;
    let snp = snp.get()?;
    (snp.mode().state == NetworkState::INITIALIZED).then(|| NonNull::from(snp).cast())
}

/// A frame that comes meanwhile is lost, as on any network.
fn of_interface(snp: NonNull<SimpleNetworkProtocol>) -> [Service; 2] {
    // SAFETY: as in `started`.
    let (get_status, receive) = unsafe { (snp.as_ref().get_status, snp.as_ref().receive) };
    let mut interrupts = InterruptStatus::empty();
    let mut frame = [0_u8; FRAME];
    [
        Service::new("SNP.GetStatus", move || {
            // SAFETY: as in `started`. No buffer is asked back: they are whose frames they were.
            unsafe { get_status(snp.as_ptr(), &raw mut interrupts, ptr::null_mut()) }.into()
        }),
        Service::new("SNP.Receive", move || {
            let mut length = FRAME;
            // SAFETY: as in `started`; the frame goes to a buffer of ours of that length, and what else it could tell may be left out.
            let status = unsafe {
                receive(
                    snp.as_ptr(),
                    ptr::null_mut(),
                    &raw mut length,
                    frame.as_mut_ptr().cast(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                )
            };
            match status {
                Status::NOT_READY => Called::Done,
                Status::SUCCESS | Status::BUFFER_TOO_SMALL => Called::Other,
                _ => Called::Refused,
            }
        }),
    ]
}

fn of_function(io: NonNull<PciIoProtocol>) -> Vec<Service> {
    // SAFETY: a PCI function's protocol stays while this image runs (see `claim`).
    let (pci, flush) = unsafe { (io.as_ref().pci.read, io.as_ref().flush) };
    let mut value = 0_u32;
    let mut services = Vec::from([
        Service::new("PciIo.Pci.Read", move || {
            // SAFETY: as above; one unit is read into a value of ours: the function's identity.
            unsafe {
                pci(
                    io.as_ptr(),
                    PciIoWidth::UINT32,
                    0,
                    1,
                    (&raw mut value).cast(),
                )
            }
            .into()
        }),
        Service::new("PciIo.Flush", move || {
            // SAFETY: as above.
            unsafe { flush(io.as_ptr()) }.into()
        }),
    ]);
    services.extend(register(io));
    services.extend(mapping(io));
    services
}

/// The first register of the first BAR that has registers. With the cards that are known, reading that one has no effect.
fn register(io: NonNull<PciIoProtocol>) -> Option<Service> {
    type Access = fn(&PciIoProtocol) -> &PciIoAccess;
    let kinds: [(_, Access); 2] = [
        ("PciIo.Mem.Read", |io| &io.mem),
        ("PciIo.Io.Read", |io| &io.io),
    ];
    let mut places = (0..BARS).flat_map(|bar| kinds.map(|(name, access)| (name, access, bar)));
    places.find_map(|(name, access, bar)| {
        // SAFETY: as in `of_function`.
        let read = access(unsafe { io.as_ref() }).read;
        let mut value = 0_u32;
        let mut call = move || {
            let value = (&raw mut value).cast();
            // SAFETY: as in `of_function`; one unit is read into a value of ours. A BAR of the other kind is refused.
            unsafe { read(io.as_ptr(), PciIoWidth::UINT32, bar, 0, 1, value) }.into()
        };
        (call() == Called::Done).then(|| Service::new(name, call))
    })
}

/// Memory for a frame that the device would write, and is not told of.
fn mapping(io: NonNull<PciIoProtocol>) -> Option<Service> {
    // SAFETY: as in `of_function`.
    let (map, unmap) = unsafe { (io.as_ref().map, io.as_ref().unmap) };
    let buffer = Pages::allocate(FRAME).ok()?;
    Some(Service::new("PciIo.Map + Unmap", move || {
        let (mut bytes, mut address, mut mapped) = (FRAME, 0, ptr::null_mut());
        // SAFETY: as in `of_function`; the buffer is ours and has as many bytes. What is unmapped was just mapped.
        unsafe {
            let status = map(
                io.as_ptr(),
                PciIoOperation::BUS_MASTER_WRITE,
                buffer.start().as_ptr().cast(),
                &raw mut bytes,
                &raw mut address,
                &raw mut mapped,
            );
            if status.is_success() {
                unmap(io.as_ptr(), mapped).into()
            } else {
                Called::Refused
            }
        }
    }))
}
