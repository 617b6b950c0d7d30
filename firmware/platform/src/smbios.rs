//! The machine's UUID from SMBIOS (DSP0134), which DHCP servers know it by (option 97).

use core::slice;
use uefi::system;
use uefi::table::cfg::ConfigTableEntry;

/// The system UUID in SMBIOS's byte order, as option 97 carries it. `None` where the machine has none.
#[must_use]
pub fn system_uuid() -> Option<[u8; 16]> {
    let (address, len) = system::with_config_table(|table| {
        let find = |guid| {
            table
                .iter()
                .find(|entry| entry.guid == guid)
                .map(|entry| entry.address)
        };
        // SAFETY: the firmware says that an entry point of at least these sizes is there.
        unsafe {
            if let Some(entry) = find(ConfigTableEntry::SMBIOS3_GUID) {
                structures_64(&entry.cast::<[u8; 24]>().read())
            } else {
                structures_32(
                    &find(ConfigTableEntry::SMBIOS_GUID)?
                        .cast::<[u8; 31]>()
                        .read(),
                )
            }
        }
    })?;
    // SAFETY: the entry point says that the structure table is there, `len` bytes at most; firmware keeps it
    // in mapped, constant memory.
    uuid_in(unsafe { slice::from_raw_parts(address as *const u8, len) })
}

/// Address and maximum length of the structure table, from a 64-bit entry point.
fn structures_64(entry: &[u8; 24]) -> Option<(usize, usize)> {
    let entry = entry.strip_prefix(b"_SM3_")?;
    let len = u32::from_le_bytes(*entry.get(7..)?.first_chunk()?);
    let address = u64::from_le_bytes(*entry.get(11..)?.first_chunk()?);
    located(usize::try_from(address).ok()?, len as usize)
}

/// Address and length of the structure table, from a 32-bit entry point.
fn structures_32(entry: &[u8; 31]) -> Option<(usize, usize)> {
    let entry = entry.strip_prefix(b"_SM_")?;
    let len = u16::from_le_bytes(*entry.get(18..)?.first_chunk()?);
    let address = u32::from_le_bytes(*entry.get(20..)?.first_chunk()?);
    located(address as usize, usize::from(len))
}

fn located(address: usize, len: usize) -> Option<(usize, usize)> {
    /// Far more than any machine has, and far less than would reach the end of memory.
    const MOST: usize = 1 << 20;
    (address != 0).then_some((address, len.min(MOST)))
}

fn uuid_in(mut table: &[u8]) -> Option<[u8; 16]> {
    const SYSTEM_INFORMATION: u8 = 1;
    const END_OF_TABLE: u8 = 127;
    while let [kind, len, ..] = *table {
        let len = usize::from(len);
        let (formatted, strings) = table.split_at_checked(len.max(4))?;
        if kind == SYSTEM_INFORMATION {
            let uuid: [u8; 16] = *formatted.get(8..)?.first_chunk()?;
            let set = uuid != [0; 16] && uuid != [0xff; 16];
            return set.then_some(uuid);
        }
        if kind == END_OF_TABLE {
            return None;
        }
        // The structure's strings end with two zero bytes.
        let end = strings.windows(2).position(|pair| pair == [0, 0])?;
        table = strings.get(end + 2..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn table(uuid: [u8; 16]) -> Vec<u8> {
        let mut table = [0, 6, 0, 0, 1, 2, b'a', 0, b'b', 0, 0].to_vec();
        table.extend([1, 27, 1, 0, 0, 0, 0, 0]);
        table.extend(uuid);
        table.extend([0, 0, 0, 0, 0]);
        table.extend([127, 4, 0, 0, 0, 0]);
        table
    }

    #[test]
    fn uuid_of_the_system_structure() {
        let uuid: [u8; 16] = core::array::from_fn(|i| i as u8 + 1);
        assert_eq!(uuid_in(&table(uuid)), Some(uuid));
        assert_eq!(uuid_in(&table([0; 16])), None);
        assert_eq!(uuid_in(&table([0xff; 16])), None);
        let whole = table(uuid);
        for len in 0..whole.len() {
            uuid_in(&whole[..len]);
        }
        assert_eq!(uuid_in(&[0; 64]), None);
    }

    #[test]
    fn entry_points() {
        let mut entry = [0; 24];
        entry[..5].copy_from_slice(b"_SM3_");
        entry[12..16].copy_from_slice(&500u32.to_le_bytes());
        entry[16..24].copy_from_slice(&0x7f00_0000u64.to_le_bytes());
        assert_eq!(structures_64(&entry), Some((0x7f00_0000, 500)));
        let mut entry = [0; 31];
        entry[..4].copy_from_slice(b"_SM_");
        entry[22..24].copy_from_slice(&300u16.to_le_bytes());
        entry[24..28].copy_from_slice(&0xf_0000u32.to_le_bytes());
        assert_eq!(structures_32(&entry), Some((0xf_0000, 300)));
    }
}
