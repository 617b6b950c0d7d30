//! Network interfaces that a driver of the firmware's has made.

use super::{function, open};
use crate::device_path;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use uefi::Handle;
use uefi::boot::{self, OpenProtocolAttributes, SearchType};
use uefi::proto::ProtocolPointer;

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

/// All that have such a protocol, in the firmware's order.
pub(super) fn with<P: ProtocolPointer>(is_usable: impl Fn(&P) -> bool) -> Vec<Candidate> {
    let Ok(handles) = boot::locate_handle_buffer(SearchType::from_proto::<P>()) else {
        return Vec::new();
    };
    handles
        .iter()
        .filter_map(|&handle| {
            let path = device_path::of_handle(handle)?;
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
