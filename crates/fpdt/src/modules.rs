//! What EDK II's firmware tells of its modules, in records of the FBPT (`ExtendedFirmwarePerformance.h`).
//!
//! ```text
//! type 0x1010 to 0x1014(2) length(1) revision(1) progress(2) APIC ID(4) nanoseconds(8) module's GUID(16)
//!      0x1011: the module's name | 0x1012: another GUID(16), a function's name | 0x1013: number(8)
//!      0x1014: number(8), the path of the device that it begins to drive
//! ```

use crate::{BOOT_HEADER, LONGEST_NS, ParseError, Records, table, u64_at};

/// Types of records: that with a name, and others.
const NAMED: u16 = 0x1011;
const TYPES: core::ops::RangeInclusive<u16> = 0x1010..=0x1014;
/// Where the name is.
const NAME: usize = 34;

/// What is done with a module of the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// It is read into memory, and made ready to run.
    LoadImage,
    /// Its entry point runs.
    StartImage,
    /// It is asked whether it drives a device (EFI_DRIVER_BINDING_PROTOCOL.Supported).
    Supported,
    /// It begins to drive one (Start).
    Start,
    /// It ends that (Stop).
    Stop,
}

impl Activity {
    /// Whether it begins, and which, by a record's progress identifier (`PerformanceLib.h`). What modules log themselves has others.
    fn of(progress: u16) -> Option<(bool, Self)> {
        Some(match progress {
            1 => (true, Self::StartImage),
            2 => (false, Self::StartImage),
            3 => (true, Self::LoadImage),
            4 => (false, Self::LoadImage),
            5 => (true, Self::Start),
            6 => (false, Self::Start),
            7 => (true, Self::Supported),
            8 => (false, Self::Supported),
            9 => (true, Self::Stop),
            10 => (false, Self::Stop),
            _ => return None,
        })
    }
}

/// The beginning or the end of what is done with a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleEvent<'a> {
    /// What is done with the module.
    pub activity: Activity,
    /// It begins; else it ends.
    pub begins: bool,
    /// When, in nanoseconds from reset.
    pub at_ns: u64,
    /// The module's GUID, as UEFI has it in memory.
    pub guid: [u8; 16],
    /// The module's name; empty where the record has none, or none in printable ASCII.
    pub name: &'a str,
}

/// What the firmware tells of its modules, in the order of its records. Most firmware is built without them.
///
/// # Errors
/// [`ParseError`] when the bytes are no FBPT, or a time cannot be right.
pub fn module_events(fbpt: &[u8]) -> Result<impl Iterator<Item = ModuleEvent<'_>>, ParseError> {
    let table = table(fbpt, *b"FBPT", BOOT_HEADER)?;
    let records = || Records(table.get(BOOT_HEADER..).unwrap_or_default());
    for record in records() {
        if event(record?).is_some_and(|event| event.at_ns > LONGEST_NS) {
            return Err(ParseError::Times);
        }
    }
    Ok(records().filter_map(|record| event(record.ok()?)))
}

fn event(record: &[u8]) -> Option<ModuleEvent<'_>> {
    let &[low, high, _, _, progress_low, progress_high] = record.first_chunk()?;
    let found = u16::from_le_bytes([low, high]);
    if !TYPES.contains(&found) {
        return None;
    }
    let (begins, activity) = Activity::of(u16::from_le_bytes([progress_low, progress_high]))?;
    let name = record.get(NAME..).filter(|_| found == NAMED);
    let name = name.unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_printable = name.iter().all(|byte| matches!(byte, b' '..=b'~'));
    Some(ModuleEvent {
        activity,
        begins,
        at_ns: u64_at(record, 10)?,
        guid: *record.get(18..)?.first_chunk()?,
        name: core::str::from_utf8(name)
            .ok()
            .filter(|_| is_printable)
            .unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
