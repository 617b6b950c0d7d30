//! Programs that want the firmware's drivers off the card: ESXi before it leaves, a loader with drivers of its own.

use crate::efi::{self, services};
use crate::report::{Failure, tell};
use core::ptr;
use uefi::{Guid, Handle, Status, guid};
use uefi_raw::protocol::network::snp::SimpleNetworkProtocol;

const PCI_IO: Guid = guid!("4cf5b200-68b8-4ca5-9eec-b23e3f50029a");
/// Type and subtype of a node with an Ethernet address.
const MAC: (u8, u8) = (3, 11);

/// DisconnectController on the card's handle and on its PCI function, below a network that needs the firmware's driver: it stays. True when it
/// says so.
pub(crate) fn stay(device: Handle) -> bool {
    let result = disconnect(device);
    tell(format_args!("drivers-stay: {result:?}"));
    result.is_ok()
}

fn disconnect(device: Handle) -> Result<(), Failure> {
    let is_card = |handle: &Handle| {
        let nodes = efi::nodes(*handle);
        nodes.last().is_some_and(|(kind, _)| *kind == MAC)
    };
    let cards = efi::handles(&SimpleNetworkProtocol::GUID);
    let card = cards.into_iter().find(is_card);
    let function = efi::on_the_way(device, &PCI_IO, "PCI function")?;
    for handle in [card.ok_or(Failure::Absent("card"))?, function] {
        // SAFETY: a handle of the firmware's, and all drivers of it.
        let status = unsafe {
            (services()?.disconnect_controller)(handle.as_ptr(), ptr::null_mut(), ptr::null_mut())
        };
        if status == Status::SUCCESS {
            return Err(Failure::Wrong("a driver has let go"));
        }
    }
    Ok(())
}
