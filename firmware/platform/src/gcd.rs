//! What the firmware's GCD (global coherency domain) says of memory: its DXE services (PI 1.8, volume 2, section 7.2).

use crate::known_memory::KnownMemory;
use alloc::string::String;
use core::ffi::c_void;
use core::mem::{MaybeUninit, offset_of};
use uefi::{Guid, Status, guid, system};

const DXE_SERVICES: Guid = guid!("05ad34ba-6f02-4214-952e-4da0398e2bb9");
const SIGNATURE: u64 = u64::from_le_bytes(*b"DXE_SERV");

/// EFI_DXE_SERVICES, up to what is used of it.
#[repr(C)]
struct DxeServices {
    signature: u64,
    revision: u32,
    size: u32,
    crc: u32,
    reserved: u32,
    others: [*const c_void; 4],
    get_memory_space_descriptor: unsafe extern "efiapi" fn(u64, *mut Descriptor) -> Status,
    set_memory_space_attributes: *const c_void,
}

/// EFI_GCD_MEMORY_SPACE_DESCRIPTOR.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Descriptor {
    base: u64,
    length: u64,
    capabilities: u64,
    attributes: u64,
    kind: u32,
    image: *const c_void,
    device: *const c_void,
}

/// The attributes of the memory at `address`: its types, as `WB`. `None` where the firmware does not tell; empty where it says none.
#[must_use]
pub fn types_at(address: u64) -> Option<String> {
    let known = KnownMemory::read()?;
    let table = system::with_config_table(|tables| {
        let table = tables.iter().find(|table| table.guid == DXE_SERVICES)?;
        Some(table.address.cast::<DxeServices>())
    })?;
    let needed = offset_of!(DxeServices, set_memory_space_attributes);
    if !table.is_aligned() || !known.holds(table as u64, needed) {
        return None;
    }
    // SAFETY: aligned, and in memory that the firmware's memory map has, as just checked; what is read is plain data.
    let (signature, size) = unsafe {
        (
            (&raw const (*table).signature).read(),
            (&raw const (*table).size).read(),
        )
    };
    if signature != SIGNATURE || (size as usize) < needed {
        return None;
    }
    // SAFETY: the table is the firmware's DXE services, with this member.
    let get = unsafe { (&raw const (*table).get_memory_space_descriptor).read() };
    let mut descriptor = MaybeUninit::<Descriptor>::zeroed();
    // SAFETY: a descriptor of ours is written.
    let status = unsafe { get(address, descriptor.as_mut_ptr()) };
    // SAFETY: all zeros are a descriptor, too.
    let descriptor = unsafe { descriptor.assume_init() };
    let within = address.checked_sub(descriptor.base);
    let is_its = within.is_some_and(|offset| offset < descriptor.length);
    (status == Status::SUCCESS && is_its).then(|| words(descriptor.attributes))
}

/// The types among attributes (UEFI 2.10, section 7.2.3).
fn words(attributes: u64) -> String {
    const TYPES: [(u64, &str); 6] = [
        (0x1, "UC"),
        (0x2, "WC"),
        (0x4, "WT"),
        (0x8, "WB"),
        (0x10, "UCE"),
        (0x1000, "WP"),
    ];
    let set = TYPES.iter().filter(|(bit, _)| attributes & bit != 0);
    let names: alloc::vec::Vec<_> = set.map(|(_, name)| *name).collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named() {
        assert_eq!(words(0x8), "WB");
        assert_eq!(words(0x8000_0000_0000_400f), "UC WC WT WB");
        assert_eq!(words(0x1010), "UCE WP");
        assert_eq!(words(0x4000), "");
    }

    #[test]
    fn structures_are_as_the_specification_has_them() {
        assert_eq!(offset_of!(DxeServices, get_memory_space_descriptor), 56);
        assert_eq!(offset_of!(Descriptor, attributes), 24);
        assert_eq!(size_of::<Descriptor>(), 56);
    }
}
