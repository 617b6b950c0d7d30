//! The `!PXE` structure: what an UNDI says of itself (UEFI 2.10, appendix E.2).

use super::UndiError;
use crate::raw::undi::{
    OPFLAGS_RECEIVE_FILTER_ALL_MULTICAST, OPFLAGS_RECEIVE_FILTER_BROADCAST,
    OPFLAGS_RECEIVE_FILTER_PROMISCUOUS, PXE_ROMID_IMP_BROADCAST_RX_SUPPORTED,
    PXE_ROMID_IMP_HW_UNDI, PXE_ROMID_IMP_PROMISCUOUS_MULTICAST_RX_SUPPORTED,
    PXE_ROMID_IMP_PROMISCUOUS_RX_SUPPORTED, PXE_ROMID_IMP_SW_VIRT_ADDR, PXE_ROMID_REV,
    PXE_ROMID_SIGNATURE,
};
use core::ptr::{self, NonNull};
use core::slice;

/// What it has to be aligned to.
const ALIGNMENT: u64 = 16;
/// Offset of the byte that tells its length.
const LEN: usize = 4;
/// Length of what hardware and software UNDIs have in common.
const COMMON: usize = 16;
/// Length of a software UNDI's.
const SOFTWARE: usize = 32;
/// The least version of commands: callbacks know which interface they serve.
const VERSION: (u8, u8) = (3, 1);
/// The filters that it may have, as bits of its field `Implementation` and of the command Receive Filters.
const FILTERS: [(u32, u16); 3] = [
    (
        PXE_ROMID_IMP_BROADCAST_RX_SUPPORTED,
        OPFLAGS_RECEIVE_FILTER_BROADCAST,
    ),
    (
        PXE_ROMID_IMP_PROMISCUOUS_RX_SUPPORTED,
        OPFLAGS_RECEIVE_FILTER_PROMISCUOUS,
    ),
    (
        PXE_ROMID_IMP_PROMISCUOUS_MULTICAST_RX_SUPPORTED,
        OPFLAGS_RECEIVE_FILTER_ALL_MULTICAST,
    ),
];

/// What the structure of a software UNDI says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Software {
    /// Address of its entry point.
    pub entry: u64,
    /// The filters that it has, as flags of the command Receive Filters. That for broadcasts or that for all frames is among them.
    pub filters: u16,
}

/// The structure of interface `number` at `address`.
///
/// # Safety
/// Where the address is not 0 and aligned, there is one, and nobody writes it.
pub(super) unsafe fn at(address: u64, number: u16) -> Result<Software, UndiError> {
    let start = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    let start = NonNull::new(start).ok_or(UndiError::Structure("is none"))?;
    if !address.is_multiple_of(ALIGNMENT) {
        return Err(UndiError::Structure("is not aligned"));
    }
    // SAFETY: the caller's promise; it has a byte that tells its length.
    let bytes = unsafe {
        let len = start.add(LEN).read();
        slice::from_raw_parts(start.as_ptr(), usize::from(len).max(LEN + 1))
    };
    read(bytes, address, number)
}

/// The structure of interface `number`, `bytes` long, as it lies at `address`.
fn read(bytes: &[u8], address: u64, number: u16) -> Result<Software, UndiError> {
    let (Some(common), true) = (
        bytes.first_chunk::<COMMON>(),
        bytes.starts_with(&PXE_ROMID_SIGNATURE),
    ) else {
        return Err(UndiError::Structure("is none"));
    };
    let [
        ..,
        revision,
        count_low,
        major,
        minor,
        count_high,
        _,
        i0,
        i1,
        i2,
        i3,
    ] = *common;
    let implementation = u32::from_le_bytes([i0, i1, i2, i3]);
    if bytes.iter().copied().fold(0, u8::wrapping_add) != 0 {
        return Err(UndiError::Structure("has a wrong checksum"));
    }
    if revision < PXE_ROMID_REV || (major, minor) < VERSION {
        return Err(UndiError::Structure("is older than UNDI 3.1"));
    }
    if implementation & PXE_ROMID_IMP_HW_UNDI != 0 {
        return Err(UndiError::Hardware);
    }
    if number > u16::from_le_bytes([count_low, count_high]) {
        return Err(UndiError::Structure("does not know this interface"));
    }
    let mut filters = 0;
    for (bit, filter) in FILTERS {
        if implementation & bit != 0 {
            filters |= filter;
        }
    }
    if filters & (OPFLAGS_RECEIVE_FILTER_BROADCAST | OPFLAGS_RECEIVE_FILTER_PROMISCUOUS) == 0 {
        return Err(UndiError::Structure("has no way to receive broadcasts"));
    }
    let entry = bytes
        .get(COMMON..SOFTWARE)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |entry| u64::from_le_bytes(*entry));
    let entry = if entry == 0 {
        None
    } else if implementation & PXE_ROMID_IMP_SW_VIRT_ADDR != 0 {
        Some(entry)
    } else if entry >= bytes.len() as u64 {
        address.checked_add(entry)
    } else {
        None
    };
    let entry = entry.ok_or(UndiError::Structure("has no entry point"))?;
    Ok(Software { entry, filters })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure with its checksum.
    fn structure(implementation: u32, entry: u64) -> [u8; SOFTWARE] {
        let mut bytes = [0; SOFTWARE];
        bytes[..4].copy_from_slice(b"!PXE");
        bytes[LEN] = SOFTWARE as u8;
        bytes[6..10].copy_from_slice(&[2, 1, 3, 1]);
        bytes[12..16].copy_from_slice(&implementation.to_le_bytes());
        bytes[16..24].copy_from_slice(&entry.to_le_bytes());
        sum(bytes)
    }

    fn sum(mut bytes: [u8; SOFTWARE]) -> [u8; SOFTWARE] {
        bytes[5] = 0;
        bytes[5] = bytes.iter().copied().fold(0, u8::wrapping_sub);
        bytes
    }

    const ABSOLUTE: u32 = PXE_ROMID_IMP_SW_VIRT_ADDR | PXE_ROMID_IMP_BROADCAST_RX_SUPPORTED;

    #[test]
    fn entry_points_are_addresses_or_offsets() {
        let entry = |implementation, entry| {
            let read = read(&structure(implementation, entry), 0x1000, 0);
            read.map(|software| software.entry)
        };
        assert_eq!(entry(ABSOLUTE, 7), Ok(7));
        assert_eq!(
            entry(PXE_ROMID_IMP_BROADCAST_RX_SUPPORTED, 0x40),
            Ok(0x1040)
        );
        let none = Err(UndiError::Structure("has no entry point"));
        assert_eq!(entry(ABSOLUTE, 0), none);
        assert_eq!(entry(PXE_ROMID_IMP_BROADCAST_RX_SUPPORTED, 31), none);
        assert_eq!(entry(PXE_ROMID_IMP_BROADCAST_RX_SUPPORTED, u64::MAX), none);
    }

    #[test]
    fn filters_are_told_as_the_command_has_them() {
        // Filtered groups, broadcasts, all frames, all groups are bits 4 to 7.
        for (implementation, filters) in [(0x20, 2), (0x40, 8), (0xa0, 0x12), (0xf0, 0x1a)] {
            let read = read(&structure(implementation, 0x40), 0, 0);
            assert_eq!(read.map(|software| software.filters), Ok(filters));
        }
    }

    #[test]
    fn what_is_no_such_structure_is_refused() {
        let good = structure(ABSOLUTE, 7);
        let changed = |offset: usize, value: u8| {
            let mut bytes = good;
            bytes[offset] = value;
            bytes
        };
        let refused = |bytes: &[u8], why| {
            assert_eq!(read(bytes, 0, 0), Err(UndiError::Structure(why)));
        };
        refused(&[], "is none");
        refused(&good[..15], "is none");
        refused(&sum(changed(0, b'?')), "is none");
        refused(&changed(12, 1), "has a wrong checksum");
        refused(&sum(changed(6, 1)), "is older than UNDI 3.1");
        refused(&sum(changed(9, 0)), "is older than UNDI 3.1");
        refused(
            &structure(PXE_ROMID_IMP_SW_VIRT_ADDR | 0x90, 7),
            "has no way to receive broadcasts",
        );
        assert_eq!(
            read(&good, 0, 2),
            Err(UndiError::Structure("does not know this interface"))
        );
    }

    #[test]
    fn hardware_is_refused_whatever_follows() {
        let bytes = structure(PXE_ROMID_IMP_HW_UNDI | ABSOLUTE, 7);
        assert_eq!(read(&bytes, 0, 0), Err(UndiError::Hardware));
    }
}
