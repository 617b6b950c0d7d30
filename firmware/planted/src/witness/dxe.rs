//! What the firmware's own drivers set: the timer's period, and the types of memory.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::slice;
use uefi::boot;
use uefi::table::cfg::ConfigTableEntry;
use uefi::{Guid, Status, guid, system};

/// EFI_TIMER_ARCH_PROTOCOL (PI 1.8, volume 2, section 12.10).
const TIMER: Guid = guid!("26baccb3-6f42-11d4-bce7-0080c73c8881");

#[repr(C)]
struct Timer {
    register_handler: *const c_void,
    set_timer_period: *const c_void,
    get_timer_period: unsafe extern "efiapi" fn(*mut Self, *mut u64) -> Status,
}

/// The firmware's DXE services (PI 1.8, volume 2, section 7.2), up to what is called of them.
const DXE_SERVICES: Guid = guid!("05ad34ba-6f02-4214-952e-4da0398e2bb9");

#[repr(C)]
struct DxeServices {
    header: [u64; 3],
    others: [*const c_void; 6],
    get_memory_space_map: unsafe extern "efiapi" fn(*mut usize, *mut *mut Space) -> Status,
}

/// EFI_GCD_MEMORY_SPACE_DESCRIPTOR.
#[derive(Clone, Copy)]
#[repr(C)]
struct Space {
    base: u64,
    length: u64,
    capabilities: u64,
    attributes: u64,
    kind: u32,
    image: *const c_void,
    device: *const c_void,
}

/// In units of 100 ns.
pub(super) fn timer_period() -> Option<u64> {
    let mut period = 0;
    // SAFETY: the firmware writes the interface's address to a local; the protocol is its own, with this member, and writes to a local.
    unsafe {
        let boot = crate::services::system().ok()?.as_ref().boot_services;
        let mut found = ptr::null_mut();
        let status = ((*boot).locate_protocol)(&TIMER, ptr::null_mut(), &raw mut found);
        let timer = NonNull::new(found.cast::<Timer>()).filter(|_| status.is_success())?;
        let status = ((*timer.as_ptr()).get_timer_period)(timer.as_ptr(), &raw mut period);
        status.is_success().then_some(period)
    }
}

/// A sum of the types of all memory, the same into whatever pieces the firmware cuts it.
pub(super) fn memory_types() -> Option<u64> {
    let table = system::with_config_table(|tables: &[ConfigTableEntry]| {
        let table = tables.iter().find(|table| table.guid == DXE_SERVICES)?;
        NonNull::new(table.address.cast_mut().cast::<DxeServices>())
    })?;
    let (mut count, mut map) = (0, ptr::null_mut::<Space>());
    // SAFETY: the firmware's DXE services, with this member; it writes to locals.
    let status = unsafe { (table.as_ref().get_memory_space_map)(&raw mut count, &raw mut map) };
    let map = NonNull::new(map).filter(|_| status.is_success())?;
    // SAFETY: the firmware has allocated so many of them.
    let spaces = unsafe { slice::from_raw_parts(map.as_ptr(), count) };
    let all = sum(spaces
        .iter()
        .map(|one| (one.base, one.length, one.attributes)));
    // SAFETY: from the firmware's pool, and not used again.
    unsafe { boot::free_pool(map.cast()) }.ok()?;
    Some(all)
}

/// UC, WC, WT, WB, UCE and WP (UEFI 2.10, section 7.2.3).
const TYPES: u64 = 0x101f;

/// By beginning, length and attributes: a function of each address added up, so that two neighbours of one type are as one.
fn sum(spaces: impl Iterator<Item = (u64, u64, u64)>) -> u64 {
    spaces.fold(0, |all, (base, length, attributes)| {
        let end = base.wrapping_add(length);
        let squares = end.wrapping_mul(end).wrapping_sub(base.wrapping_mul(base));
        all.wrapping_add(squares.wrapping_mul(attributes & TYPES))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn structures_are_as_the_specification_has_them() {
        assert_eq!(offset_of!(DxeServices, get_memory_space_map), 72);
        assert_eq!(offset_of!(Timer, get_timer_period), 16);
        assert_eq!(size_of::<Space>(), 56);
    }

    #[test]
    fn another_type_or_place_is_another_sum_and_other_pieces_are_not() {
        let of = |spaces: &[(u64, u64, u64)]| sum(spaces.iter().copied());
        let whole = of(&[(0x1000, 0x3000, 8), (0x4000, 0x1000, 1)]);
        assert_eq!(
            of(&[
                (0x4000, 0x1000, 1),
                (0x1000, 0x1000, 8),
                (0x2000, 0x2000, 8)
            ]),
            whole
        );
        assert_ne!(of(&[(0x1000, 0x3000, 1), (0x4000, 0x1000, 1)]), whole);
        assert_ne!(
            of(&[(0x1000, 0x1000, 1), (0x2000, 0x3000, 8)]),
            whole,
            "another page has the other type"
        );
        // Only types count.
        assert_eq!(of(&[(0x1000, 0x3000, 0x4008), (0x4000, 0x1000, 1)]), whole);
    }
}
