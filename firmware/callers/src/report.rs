//! What is told, and why a job failed.

use alloc::format;
use alloc::string::String;
use core::fmt;
use sha2::{Digest, Sha256};
use wireboot_platform::{Status, console};

/// Why a job did not do what its loader would have done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no such protocol here.
    Absent(&'static str),
    /// A call answered with an error.
    Refused(&'static str, Status),
    /// All calls succeeded, but what came is not right.
    Wrong(&'static str),
}

/// `Ok` for success.
pub(crate) fn succeeded(what: &'static str, status: Status) -> Result<(), Failure> {
    if status == Status::SUCCESS {
        Ok(())
    } else {
        Err(Failure::Refused(what, status))
    }
}

/// A line. It goes past the console, which would break it where the screen ends, if it can.
pub(crate) fn tell(text: fmt::Arguments<'_>) {
    let line = format!("callers: {text}");
    if !console::serial_line(&line) {
        console::line(&line);
    }
}

/// A file that came, with the time of the loader's calls.
pub(crate) fn file(command: &str, file: &str, bytes: &[u8], micros: u64) {
    tell(format_args!(
        "{command} {file}: {} bytes in {micros} us, {} Mbit/s, sha256 {}",
        bytes.len(),
        (bytes.len() as u64 * 8).checked_div(micros).unwrap_or(0),
        hex(&Sha256::digest(bytes))
    ));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_told_in_hexadecimal() {
        assert_eq!(hex(&[0, 0x0a, 0xff]), "000aff");
    }
}
