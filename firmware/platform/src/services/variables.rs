//! Variables: read, looked for in vain, written. Nothing of ours is left.

use super::{Called, Service};
use crate::shim;
use crate::variable::{self, OWN};
use alloc::vec::Vec;
use uefi::runtime::{self, VariableAttributes, VariableVendor};
use uefi::{CStr16, Status, cstr16};

/// Bytes of a variable.
const BYTES: usize = 1024;
/// What is written often is gone at the machine's next start.
const VOLATILE: VariableAttributes = VariableAttributes::BOOTSERVICE_ACCESS;
/// What is written seldom stays, until it is removed.
const STAYS: VariableAttributes = VOLATILE.union(VariableAttributes::NON_VOLATILE);

/// With so many writes of one that stays.
pub(super) fn services(nonvolatile: usize) -> Vec<Service> {
    let mut services = Vec::new();
    let mut read = Temporary::new(cstr16!("WirebootCostRead"), VOLATILE);
    if read.write() == Called::Done {
        let mut room = [0; BYTES];
        let service = Service::new("GetVariable", move || read.read(&mut room));
        services.push(service);
    }
    let mut room = [0; BYTES];
    services.push(Service::new("GetVariable, none there", move || {
        let name = cstr16!("WirebootCostNone");
        match runtime::get_variable(name, &VariableVendor(OWN), &mut room) {
            Err(error) if error.status() == Status::NOT_FOUND => Called::Done,
            _ => Called::Refused,
        }
    }));
    let mut written = Temporary::new(cstr16!("WirebootCost"), VOLATILE);
    services.push(Service::new("SetVariable", move || written.write()));
    if nonvolatile > 0 {
        let mut kept = Temporary::new(cstr16!("WirebootCostKept"), STAYS);
        let service = Service::new("SetVariable, non-volatile", move || kept.write());
        services.push(service.at_most(nonvolatile));
    }
    services
}

/// A variable that is removed when this is dropped.
struct Temporary {
    name: &'static CStr16,
    attributes: VariableAttributes,
    content: [u8; BYTES],
    writes: u64,
}

impl Temporary {
    fn new(name: &'static CStr16, attributes: VariableAttributes) -> Self {
        Self {
            name,
            attributes,
            content: [0x5a; BYTES],
            writes: 0,
        }
    }

    fn read(&self, room: &mut [u8]) -> Called {
        let found = runtime::get_variable(self.name, &VariableVendor(OWN), room);
        found
            .map_or_else(|error| error.status(), |_| Status::SUCCESS)
            .into()
    }

    /// Writes it, another content each time: EDK II does nothing where it is the same.
    fn write(&mut self) -> Called {
        self.writes += 1;
        if let Some(first) = self.content.first_chunk_mut() {
            *first = self.writes.to_le_bytes();
        }
        let vendor = VariableVendor(OWN);
        let written = runtime::set_variable(self.name, &vendor, self.attributes, &self.content);
        written
            .map_or_else(|error| error.status(), |()| Status::SUCCESS)
            .into()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.writes > 0 {
            let vendor = VariableVendor(OWN);
            let _ = runtime::delete_variable(self.name, &vendor);
            if variable::exists(self.name, OWN) {
                shim::leave_something();
            }
        }
    }
}
