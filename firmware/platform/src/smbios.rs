//! What SMBIOS (DSP0134) tells of the machine: its UUID, which DHCP servers know it by (option 97), its maker and its model.

use alloc::string::String;
use core::slice;
use uefi::system;
use uefi::table::cfg::ConfigTableEntry;

/// The system UUID in SMBIOS's byte order, as option 97 carries it. `None` where the machine has none.
#[must_use]
pub fn system_uuid() -> Option<[u8; 16]> {
    uuid_in(table()?)
}

/// Maker and model of the machine, one behind the other: `QEMU Standard PC (Q35 + ICH9, 2009)`. `None` where the machine tells neither.
#[must_use]
pub fn system_model() -> Option<String> {
    model_in(table()?)
}

/// The structure table, by the 64-bit entry point where there is one, else by the 32-bit one.
fn table() -> Option<&'static [u8]> {
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
    Some(unsafe { slice::from_raw_parts(address as *const u8, len) })
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

/// The structure that describes the system: its formatted part, and what follows, which begins with its strings.
fn system_information(mut table: &[u8]) -> Option<(&[u8], &[u8])> {
    const SYSTEM_INFORMATION: u8 = 1;
    const END_OF_TABLE: u8 = 127;
    while let [kind, len, ..] = *table {
        let len = usize::from(len);
        let (formatted, strings) = table.split_at_checked(len.max(4))?;
        if kind == SYSTEM_INFORMATION {
            return Some((formatted, strings));
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

fn uuid_in(table: &[u8]) -> Option<[u8; 16]> {
    let (formatted, _) = system_information(table)?;
    let uuid: [u8; 16] = *formatted.get(8..)?.first_chunk()?;
    (uuid != [0; 16] && uuid != [0xff; 16]).then_some(uuid)
}

fn model_in(table: &[u8]) -> Option<String> {
    let (formatted, strings) = system_information(table)?;
    let end = strings.windows(2).position(|pair| pair == [0, 0])?;
    let strings = strings.get(..end)?;
    // Strings are counted from 1; 0 is none.
    let string = |at: usize| {
        let index = usize::from(*formatted.get(at)?).checked_sub(1)?;
        let bytes = strings.split(|byte| *byte == 0).nth(index)?;
        let text: String = bytes
            .iter()
            .map(|byte| match byte {
                b' '..=b'~' => char::from(*byte),
                _ => '?',
            })
            .collect();
        let text = String::from(text.trim());
        (!text.is_empty()).then_some(text)
    };
    const MAKER: usize = 4;
    const MODEL: usize = 5;
    match (string(MAKER), string(MODEL)) {
        (Some(maker), Some(model)) => Some(maker + " " + &model),
        (maker, model) => maker.or(model),
    }
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
    fn model_of_the_system_structure() {
        let with = |maker: u8, model: u8, strings: &[u8]| {
            let mut table = [0, 6, 0, 0, 1, 2, b'a', 0, b'b', 0, 0].to_vec();
            table.extend([1, 27, 1, 0, maker, model]);
            table.extend([0; 21]);
            table.extend(strings);
            table
        };
        let strings = b"QEMU\0 Standard PC \x80\0\0";
        let model = |maker, model| model_in(&with(maker, model, strings));
        assert_eq!(model(1, 2).as_deref(), Some("QEMU Standard PC ?"));
        assert_eq!(model(0, 2).as_deref(), Some("Standard PC ?"));
        assert_eq!(model(1, 0).as_deref(), Some("QEMU"));
        assert_eq!(model(1, 3).as_deref(), Some("QEMU"));
        assert_eq!(model(0, 0), None);
        assert_eq!(model_in(&with(1, 2, b"\0\0")), None);
        let whole = with(1, 2, strings);
        for len in 0..whole.len() {
            assert_eq!(model_in(&whole[..len]), None);
        }
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
