//! The firmware's times of a boot (FPDT), as the Linux that was booted tells them on its console.

use anyhow::{Context, Result};
use regex::Regex;
use wireboot_fpdt::{Attempt, BasicBoot, attempts, basic_boot, boot_table_address};

/// Lines of a shell script that tell both tables, in hexadecimal. They call busybox as `b`, and a line to the console is told by `tell`.
pub const SCRIPT: &str = r#"b mknod /dev/mem c 1 1
table=/sys/firmware/acpi/tables/FPDT
tell "fpdt $(b hexdump -v -e '1/1 "%02x"' $table)."
set -- $(b hexdump -v -s 44 -n 8 -e '1/1 "%02x "' $table)
page=$((0x$8$7$6$5$4$3$2$1 / 4096))
tell "fbpt $(b dd if=/dev/mem bs=4096 skip=$page count=1 2>/dev/null | b hexdump -v -n 400 -e '1/1 "%02x"')."
"#;

/// What the tables say.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    /// The boot that succeeded.
    pub boot: BasicBoot,
    /// Boot options in the order in which the firmware tried them.
    pub attempts: Vec<Attempt>,
}

impl Checkpoints {
    /// Those that [`SCRIPT`] has told.
    ///
    /// # Errors
    /// When it has told none, or a table is broken.
    pub fn told(transcript: &str) -> Result<Self> {
        boot_table_address(&table(transcript, "fpdt")?).context("FPDT")?;
        let fbpt = table(transcript, "fbpt")?;
        Ok(Self {
            boot: basic_boot(&fbpt).context("FBPT")?,
            attempts: attempts(&fbpt).context("FBPT")?.collect(),
        })
    }
}

/// The bytes of a table.
fn table(transcript: &str, name: &str) -> Result<Vec<u8>> {
    let line = Regex::new(&format!(r"\b{name} ([0-9a-f]+)\."))?;
    let digits = line.captures(transcript).and_then(|found| found.get(1));
    let digits = digits.with_context(|| {
        let said = transcript.lines().filter(|line| line.contains(name));
        format!("the system told no {name}: {:?}", said.collect::<Vec<_>>())
    })?;
    let pairs = digits.as_str().as_bytes().as_chunks::<2>().0.iter();
    pairs
        .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_among_other_lines() {
        let transcript = "x\n[    1.0] boots: fpdt 46504454.\nboots: fbpt ff00\nfbpt 0102.\n";
        assert_eq!(table(transcript, "fpdt").unwrap(), b"FPDT");
        assert_eq!(table(transcript, "fbpt").unwrap(), [1, 2]);
        assert!(table(transcript, "dsdt").is_err());
        assert!(Checkpoints::told(transcript).is_err());
    }
}
