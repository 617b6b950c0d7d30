//! Where the machine's first processor is, by QEMU's own word: what doctor.efi says of itself can be held against that.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use regex::Regex;
use wireboot_lab::patience::Patience;
use wireboot_lab::qemu::RunningMachine;

/// The shortest time between two looks, and how much longer it may be: by chance, so that they keep no time with the machine's timer.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGER: Duration = Duration::from_millis(4);

/// Addresses at which it was, at random times until the console shows `end`.
///
/// # Errors
/// When QEMU does not tell, or the end does not come in time.
pub(super) fn positions(
    running: &mut RunningMachine,
    end: &Regex,
    longest: Duration,
) -> Result<Vec<u64>> {
    let mut patience = Patience::new(longest);
    let mut positions = Vec::new();
    while running.console.seen(end).is_none() {
        if patience.wait().is_none() {
            bail!(
                "the examination did not end in {} s\n{}",
                longest.as_secs(),
                running.console.tail(15)
            );
        }
        let registers = running.monitor("info registers")?;
        let position = position(&registers);
        positions.push(position.with_context(|| format!("no RIP in {registers}"))?);
        sleep(SHORTEST + LONGER.mul_f64(fastrand::f64()));
    }
    Ok(positions)
}

/// Of what QEMU's monitor says: `RIP=000000007e5d1c3a`.
fn position(registers: &str) -> Option<u64> {
    let (_, rest) = registers.split_once("RIP=")?;
    u64::from_str_radix(rest.get(..16)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instruction_pointer_is_read() {
        let registers =
            "R14=0000000000000000 R15=0000000000000000\r\nRIP=000000007e5d1c3a RFL=00000246";
        assert_eq!(position(registers), Some(0x7e5d_1c3a));
        assert_eq!(position("RIP=7e5d"), None);
        assert_eq!(position(""), None);
    }
}
