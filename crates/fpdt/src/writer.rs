//! Writing the tables, for firmware that has none.

use crate::{
    ATTEMPT, ATTEMPT_BYTES, Attempt, BASIC_BOOT, BOOT_HEADER, BOOT_POINTER, BasicBoot,
    TABLE_HEADER, WRITER,
};

/// Bytes of the FPDT that [`write_fpdt`] makes.
pub const FPDT_BYTES: usize = TABLE_HEADER + POINTER_BYTES;
const POINTER_BYTES: usize = 16;
const BASIC_BYTES: usize = 48;

/// So many attempts are kept, the latest.
pub const MOST_ATTEMPTS: usize = 64;
/// Bytes of an FBPT with all of them.
pub const MOST_BYTES: usize = BOOT_HEADER + BASIC_BYTES + MOST_ATTEMPTS * ATTEMPT_BYTES;

/// The FPDT for an FBPT at `boot_table`.
#[must_use]
pub fn write_fpdt(boot_table: u64) -> [u8; FPDT_BYTES] {
    let mut table = [0; FPDT_BYTES];
    let mut out = Out::new(&mut table);
    out.put(b"FPDT");
    out.put(&(FPDT_BYTES as u32).to_le_bytes());
    // Revision, checksum.
    out.put(&[1, 0]);
    // Who made it, which of theirs, its revision; who compiled it, with which revision.
    out.put(b"WIREBTRECORDER\x01\0\0\0WIRE\x01\0\0\0");
    out.record(BOOT_POINTER, POINTER_BYTES, 1);
    out.put(&[0; 4]);
    out.put(&boot_table.to_le_bytes());
    let sum = table.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if let Some(checksum) = table.get_mut(9) {
        *checksum = 0_u8.wrapping_sub(sum);
    }
    table
}

/// The points of a boot as they come, in nanoseconds from reset.
#[derive(Clone, Debug)]
pub struct Recording {
    boot: BasicBoot,
    attempts: [Attempt; MOST_ATTEMPTS],
    count: usize,
}

impl Default for Recording {
    fn default() -> Self {
        Self {
            boot: BasicBoot::default(),
            attempts: [Attempt::default(); MOST_ATTEMPTS],
            count: 0,
        }
    }
}

impl Recording {
    /// The firmware is about to load the loader of a boot option: what was known of the one before is over.
    pub fn ready_to_boot(&mut self, option: Option<u16>, now: u64) {
        self.boot = BasicBoot {
            load_image_ns: now,
            ..BasicBoot::default()
        };
        if self.count == MOST_ATTEMPTS {
            self.attempts.copy_within(1.., 0);
        } else {
            self.count += 1;
        }
        if let Some(attempt) = self.latest() {
            *attempt = Attempt {
                option,
                ready_ns: now,
                ..Attempt::default()
            };
        }
    }

    /// A program is about to be started. True for the loader of the attempt; programs that loaders start do not count.
    pub fn program_starts(&mut self, now: u64) -> bool {
        let Some(attempt) = self.latest().filter(|attempt| attempt.start_ns == 0) else {
            return false;
        };
        attempt.start_ns = now;
        self.boot = BasicBoot {
            load_image_ns: self.boot.load_image_ns,
            start_image_ns: now,
            ..BasicBoot::default()
        };
        true
    }

    /// The attempt's loader came back.
    pub fn program_came_back(&mut self, now: u64) {
        if let Some(attempt) = self.latest().filter(|attempt| attempt.start_ns != 0) {
            attempt.back_ns = now;
        }
    }

    /// Somebody asks for the end of boot services. Only the first time counts: systems ask again when the memory map has changed.
    pub fn exit_begins(&mut self, now: u64) {
        if self.boot.exit_entry_ns == 0 {
            self.boot.exit_entry_ns = now;
        }
    }

    /// Boot services have ended, as was asked for.
    pub fn exit_done(&mut self, now: u64) {
        if self.boot.exit_entry_ns != 0 {
            self.boot.exit_ns = now;
        }
    }

    /// Writes the FBPT to `memory` as far as there is room for it.
    pub fn write(&self, memory: &mut [u8]) {
        let attempts = self.attempts.iter().take(self.count);
        let length = BOOT_HEADER + BASIC_BYTES + self.count * ATTEMPT_BYTES;
        let mut out = Out::new(memory);
        out.put(b"FBPT");
        out.put(&(length as u32).to_le_bytes());
        out.record(BASIC_BOOT, BASIC_BYTES, 2);
        out.put(&[0; 4]);
        let boot = &self.boot;
        for time in [
            boot.reset_end_ns,
            boot.load_image_ns,
            boot.start_image_ns,
            boot.exit_entry_ns,
            boot.exit_ns,
        ] {
            out.put(&time.to_le_bytes());
        }
        for attempt in attempts {
            out.record(ATTEMPT, ATTEMPT_BYTES, 1);
            out.put(&WRITER);
            out.put(&attempt.option.unwrap_or_default().to_le_bytes());
            out.put(&u16::from(attempt.option.is_some()).to_le_bytes());
            for time in [attempt.ready_ns, attempt.start_ns, attempt.back_ns] {
                out.put(&time.to_le_bytes());
            }
        }
    }

    fn latest(&mut self) -> Option<&mut Attempt> {
        self.attempts.get_mut(self.count.checked_sub(1)?)
    }
}

/// Bytes one behind the other, up to the end of the memory.
struct Out<'a>(&'a mut [u8]);

impl<'a> Out<'a> {
    fn new(memory: &'a mut [u8]) -> Self {
        Self(memory)
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some((place, rest)) = core::mem::take(&mut self.0).split_at_mut_checked(bytes.len())
        {
            place.copy_from_slice(bytes);
            self.0 = rest;
        }
    }

    fn record(&mut self, kind: u16, length: usize, revision: u8) {
        self.put(&kind.to_le_bytes());
        self.put(&[length as u8, revision]);
    }
}
