//! Programs in the card: eBPF (RFC 9669) that sees each frame between the card and its wire.
//!
//! ```text
//!   guest ── units ──> Offload: cut ── frames ──> hook `guest` ──> wire
//!   guest <── units ── Offload: join <── frames ── hook `wire` <── wire
//! ```
//!
//! A program is read from a file (`elf`), verified (`verify`) and run (`machine`) on a copy of a frame's first bytes. What it decides, `filter` does.
//! Jumps lead forward alone, so each run ends.

mod counters;
mod elf;
mod filter;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod instruction;
mod machine;
#[cfg(test)]
pub(crate) mod tests;
mod verify;
mod waiting;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use self::elf::ElfError;
use self::instruction::Instruction;
use self::verify::{Refused, verify};
pub(crate) use counters::ProgramCounters;
pub(crate) use filter::{Diverted, Filter, PairOf};
pub(crate) use machine::Wild;

/// Bytes of a file, at most.
const LONGEST_FILE: u64 = 1 << 20;
/// Maps of a program, at most.
pub(crate) const MOST_MAPS: usize = 8;
/// Entries of a map, at most.
pub(crate) const MOST_ENTRIES: u32 = 1024;

/// Where frames come from, when a program sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// The guest sends them, and the wire has not got them yet.
    Guest,
    /// They come from the wire, and the guest has not got them yet.
    Wire,
}

impl Hook {
    pub(crate) const ALL: [Self; 2] = [Self::Guest, Self::Wire];

    /// The section of its instructions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Wire => "wire",
        }
    }
}

/// Numbers of 64 bits that stay from frame to frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub name: String,
    pub entries: u32,
}

/// A program that was verified.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The code at each [`Hook`]; none where the program has nothing there.
    pub hooks: [Option<Code>; 2],
    pub maps: Vec<Map>,
}

/// The instructions of one hook, verified.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub instructions: Vec<Instruction>,
    /// Instructions of the longest way through it.
    pub longest: usize,
}

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("longer than a program may be, {LONGEST_FILE} bytes")]
    TooLong,
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("section {}: {refused}", .hook.name())]
    Refused { hook: Hook, refused: Refused },
}

impl Program {
    /// Reads and verifies a file.
    pub(crate) fn open(path: &Path) -> Result<Self, ProgramError> {
        let mut bytes = Vec::new();
        let file = File::open(path)?;
        file.take(LONGEST_FILE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LONGEST_FILE {
            return Err(ProgramError::TooLong);
        }
        Self::parse(&bytes)
    }

    /// The same of a file's bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ProgramError> {
        let object = elf::parse(bytes)?;
        let mut hooks = [None, None];
        for ((hook, place), instructions) in Hook::ALL.iter().zip(&mut hooks).zip(object.hooks) {
            let Some(instructions) = instructions else {
                continue;
            };
            let longest = verify(&instructions, object.maps.len()).map_err(|refused| {
                ProgramError::Refused {
                    hook: *hook,
                    refused,
                }
            })?;
            *place = Some(Code {
                instructions,
                longest,
            });
        }
        Ok(Self {
            hooks,
            maps: object.maps,
        })
    }
}
