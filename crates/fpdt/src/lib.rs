//! The Firmware Performance Data Table (ACPI 6.5 section 5.2.24): when the firmware reached which point of a boot.
//!
//! ```text
//! FPDT   "FPDT" length(4) revision checksum ... 36 bytes | record: type(2) length(1) revision(1) ...
//!        type 0: reserved(4), address of the FBPT(8)
//! FBPT   "FBPT" length(4)                                | record: type(2) length(1) revision(1) ...
//!        type 2: reserved(4), five times in nanoseconds(8)
//!        type 0x1010 to 0x1014: EDK II's, of its modules
//!        type 0x3000 of recorder.efi's: its GUID(16), boot option(2), is it known(2), three times in nanoseconds(8)
//! ```
//!
//! All numbers are little-endian. Times count from the machine's reset.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(any(test, feature = "report"))]
extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod modules;
#[cfg(feature = "report")]
mod report;
mod writer;

pub use modules::{Activity, ModuleEvent, module_events};
#[cfg(feature = "report")]
pub use report::{report_boot, report_details};
pub use writer::{FPDT_BYTES, MOST_ATTEMPTS, MOST_BYTES, Recording, write_fpdt};

/// Bytes of an ACPI table's header.
const TABLE_HEADER: usize = 36;
/// Bytes of the FBPT's header.
const BOOT_HEADER: usize = 8;
/// Bytes of a record's header.
const RECORD_HEADER: usize = 4;

/// Types of records: in the FPDT the pointer, in the FBPT the times.
const BOOT_POINTER: u16 = 0;
const BASIC_BOOT: u16 = 2;
/// Of those that firmware's vendors may use, with a GUID that says whose it is.
const ATTEMPT: u16 = 0x3000;
const ATTEMPT_BYTES: usize = 48;
/// df233257-ae2f-4c37-bb24-e63e588efd0f
const WRITER: [u8; 16] = [
    0x57, 0x32, 0x23, 0xdf, 0x2f, 0xae, 0x37, 0x4c, 0xbb, 0x24, 0xe6, 0x3e, 0x58, 0x8e, 0xfd, 0x0f,
];

/// No table of the firmware's is longer, in bytes. One with a record for each module has some hundred kilobytes.
pub const LONGEST_TABLE: usize = 4 << 20;

/// No boot takes longer: a counter that runs on over a warm start says how long the machine has had power.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Why bytes are not such a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The signature is another one.
    #[error("not a table of the firmware's performance: its signature is wrong")]
    Signature,
    /// It is shorter than it says, or than its header.
    #[error("the table is cut off")]
    Truncated,
    /// The bytes do not add up to zero.
    #[error("the table's checksum is wrong")]
    Checksum,
    /// There is no record of the kind that is looked for.
    #[error("the table has no record of the boot")]
    NoRecord,
    /// The times do not go forward, or are longer than any boot: the counter was not set to zero at the machine's reset.
    #[error("the table's times cannot be those of a boot")]
    Times,
}

/// When the firmware reached which point, in nanoseconds from reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BasicBoot {
    /// Behind the reset vector's first work.
    pub reset_end_ns: u64,
    /// The loader of the last boot option was to be loaded. Over the network: before the download.
    pub load_image_ns: u64,
    /// It was to be started.
    pub start_image_ns: u64,
    /// The operating system's loader asked for the end of boot services; 0 where it did not.
    pub exit_entry_ns: u64,
    /// They had ended; 0 where they did not.
    pub exit_ns: u64,
}

/// A boot option that the firmware tried, as recorder.efi saw it, in nanoseconds from reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, that of `Boot####`. Not all that firmware starts is a boot option.
    pub option: Option<u16>,
    /// Its loader was to be loaded. Over the network: before the download.
    pub ready_ns: u64,
    /// It was started; 0 where it was not.
    pub start_ns: u64,
    /// It came back; 0 where it did not.
    pub back_ns: u64,
}

/// The address of the FBPT, out of the FPDT.
///
/// # Errors
/// [`ParseError`] when the bytes are no FPDT, or it points to none.
pub fn boot_table_address(fpdt: &[u8]) -> Result<u64, ParseError> {
    let table = table(fpdt, *b"FPDT", TABLE_HEADER)?;
    let sum = table.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if sum != 0 {
        return Err(ParseError::Checksum);
    }
    let pointer = record(table, TABLE_HEADER, BOOT_POINTER)?;
    u64_at(pointer, 8).ok_or(ParseError::NoRecord)
}

/// Bytes of the FBPT, out of its first eight.
///
/// # Errors
/// [`ParseError`] when they are not an FBPT's.
pub fn boot_table_length(header: &[u8; BOOT_HEADER]) -> Result<usize, ParseError> {
    let [signature @ .., a, b, c, d] = *header;
    if signature != *b"FBPT" {
        return Err(ParseError::Signature);
    }
    usize::try_from(u32::from_le_bytes([a, b, c, d])).map_err(|_| ParseError::Truncated)
}

/// The times of the boot, out of the FBPT.
///
/// # Errors
/// [`ParseError`] when the bytes are no FBPT, or its times cannot be right.
pub fn basic_boot(fbpt: &[u8]) -> Result<BasicBoot, ParseError> {
    let table = table(fbpt, *b"FBPT", BOOT_HEADER)?;
    let record = record(table, BOOT_HEADER, BASIC_BOOT)?;
    let time = |at| u64_at(record, at).ok_or(ParseError::NoRecord);
    let boot = BasicBoot {
        reset_end_ns: time(8)?,
        load_image_ns: time(16)?,
        start_image_ns: time(24)?,
        exit_entry_ns: time(32)?,
        exit_ns: time(40)?,
    };
    boot.is_plausible().then_some(boot).ok_or(ParseError::Times)
}

/// What the firmware tried, out of an FBPT of recorder.efi's, in its order: [`MOST_ATTEMPTS`] at most. Those of other writers have none.
///
/// # Errors
/// [`ParseError`] when the bytes are no FBPT, or a time cannot be right.
pub fn attempts(fbpt: &[u8]) -> Result<impl Iterator<Item = Attempt>, ParseError> {
    let table = table(fbpt, *b"FBPT", BOOT_HEADER)?;
    let mut before = 0;
    for attempt in Records(table.get(BOOT_HEADER..).unwrap_or_default()) {
        let Some(attempt) = attempt_of(attempt?) else {
            continue;
        };
        if attempt.ready_ns == 0 {
            return Err(ParseError::Times);
        }
        let times = [attempt.ready_ns, attempt.start_ns, attempt.back_ns];
        for time in times.into_iter().filter(|time| *time != 0) {
            if time < before || time > LONGEST_NS {
                return Err(ParseError::Times);
            }
            before = time;
        }
    }
    let records = Records(table.get(BOOT_HEADER..).unwrap_or_default());
    let attempts = records.filter_map(|record| attempt_of(record.ok()?));
    Ok(attempts.take(MOST_ATTEMPTS))
}

/// The attempt in a record, if it is one.
fn attempt_of(record: &[u8]) -> Option<Attempt> {
    let [low, high, ..] = *record else {
        return None;
    };
    let writer = record.get(RECORD_HEADER..)?.first_chunk::<16>()?;
    if u16::from_le_bytes([low, high]) != ATTEMPT || *writer != WRITER {
        return None;
    }
    let &[low, high, known, _] = record.get(20..)?.first_chunk::<4>()?;
    Some(Attempt {
        option: (known != 0).then_some(u16::from_le_bytes([low, high])),
        ready_ns: u64_at(record, 24)?,
        start_ns: u64_at(record, 32)?,
        back_ns: u64_at(record, 40)?,
    })
}

impl BasicBoot {
    /// The times go forward, and are no longer than a boot's. Zero is a point that was not reached.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        let times = [
            self.reset_end_ns,
            self.load_image_ns,
            self.start_image_ns,
            self.exit_entry_ns,
            self.exit_ns,
        ];
        let mut before = 0;
        times.into_iter().filter(|time| *time != 0).all(|time| {
            let forward = time >= before && time <= LONGEST_NS;
            before = time;
            forward
        })
    }
}

/// The table's own bytes.
fn table(bytes: &[u8], signature: [u8; 4], header: usize) -> Result<&[u8], ParseError> {
    let (found, rest) = bytes
        .split_first_chunk::<4>()
        .ok_or(ParseError::Truncated)?;
    if *found != signature {
        return Err(ParseError::Signature);
    }
    let length = rest.first_chunk::<4>().ok_or(ParseError::Truncated)?;
    let length = u32::from_le_bytes(*length) as usize;
    bytes
        .get(..length)
        .filter(|table| table.len() >= header)
        .ok_or(ParseError::Truncated)
}

/// The first record of a type, its header included.
fn record(table: &[u8], header: usize, wanted: u16) -> Result<&[u8], ParseError> {
    for record in Records(table.get(header..).unwrap_or_default()) {
        let record = record?;
        if record.first_chunk::<2>() == Some(&wanted.to_le_bytes()) {
            return Ok(record);
        }
    }
    Err(ParseError::NoRecord)
}

/// Records one behind the other, their headers included; the first that is cut off is the last.
struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Result<&'a [u8], ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.0);
        let (&[_, _, length, _], _) = rest.split_first_chunk::<RECORD_HEADER>()?;
        let length = usize::from(length);
        let whole = rest.split_at_checked(length);
        let Some((record, behind)) = whole.filter(|_| length >= RECORD_HEADER) else {
            return Some(Err(ParseError::Truncated));
        };
        self.0 = behind;
        Some(Ok(record))
    }
}

fn u64_at(record: &[u8], at: usize) -> Option<u64> {
    let bytes = record.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
