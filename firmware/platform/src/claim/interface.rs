//! Network interfaces that a driver of the firmware's has made.

use super::{function, open};
use crate::device_path;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use uefi::boot::{self, OpenProtocolAttributes, SearchType};
use uefi::proto::ProtocolPointer;
use uefi::{Guid, Handle, guid};

/// What Wi-Fi has on its handle besides: `EFI_WIRELESS_MAC_CONNECTION_PROTOCOL` and its second version (UEFI 2.10, sections 27.3 and 27.4).
const WIRELESS: [Guid; 2] = [
    guid!("0da55bc9-45f8-4bb4-8719-5224f18a4d45"),
    guid!("1b0fb9bf-699d-4fdd-a7c3-2546681bf63b"),
];

/// A network interface that may be taken from the firmware, while its driver stays.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub(super) handle: Handle,
    /// Its device path, without end node.
    pub path: Box<[u8]>,
    /// The PCI function behind it, or the one that leads to it (of a USB adapter: the bus's controller).
    pub(crate) function: Option<function::Candidate>,
}

impl Candidate {
    /// The PCI function behind it, or the one that leads to it.
    #[must_use]
    pub fn function(&self) -> Option<&function::Candidate> {
        self.function.as_ref()
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => function.fmt(f),
            None => f.write_str("network interface"),
        }
    }
}

/// True for Wi-Fi by the protocols of its handle. Taken from the firmware, it would lose its access point.
fn is_wireless(protocols: &[&Guid]) -> bool {
    protocols.iter().any(|guid| WIRELESS.contains(guid))
}

/// All that have such a protocol and are no Wi-Fi, in the firmware's order.
pub(super) fn with<P: ProtocolPointer>(is_usable: impl Fn(&P) -> bool) -> Vec<Candidate> {
    let Ok(handles) = boot::locate_handle_buffer(SearchType::from_proto::<P>()) else {
        return Vec::new();
    };
    handles
        .iter()
        .filter_map(|&handle| {
            let path = device_path::of_handle(handle)?;
            let protocols = boot::protocols_per_handle(handle).ok()?;
            if is_wireless(&protocols) {
                return None;
            }
            let protocol = open::<P>(handle, OpenProtocolAttributes::GetProtocol).ok()?;
            is_usable(protocol.get()?).then_some(())?;
            Some(Candidate {
                handle,
                function: function::function_of(&path),
                path,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uefi::Identify;
    use uefi::proto::network::snp::SimpleNetwork;

    #[test]
    fn wifi_is_left_to_the_firmware() {
        let wired = &SimpleNetwork::GUID;
        assert!(!is_wireless(&[wired]));
        for wireless in &WIRELESS {
            assert!(is_wireless(&[wired, wireless]));
        }
    }
}
