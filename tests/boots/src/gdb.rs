//! The least of a debugger: QEMU's stub (the GDB remote serial protocol), to do to a processor what no test can ask it to do to itself.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Registers in the stub's order for x86-64.
const RSP: usize = 7;
const RIP: usize = 16;

/// A machine that stands still while the debugger is there.
pub(crate) struct Debugger(UnixStream);

impl Debugger {
    /// Stops the machine.
    pub(crate) fn attach(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).context("connecting to QEMU's debugger stub")?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self(stream))
    }

    /// Makes a processor (counted from 1) run machine code that never returns, and lets the machine go on.
    pub(crate) fn run(mut self, processor: u32, code: &[u8]) -> Result<()> {
        let mut registers = self.registers(processor)?;
        ensure!(register(&registers, RIP)? != 0, "the processor is nowhere");
        // Over what is on the stack, which nobody will come back to.
        let place = register(&registers, RSP)? + 64;
        let digits: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        self.ask(&format!("M{place:x},{:x}:{digits}", code.len()))?;
        registers.replace_range(
            RIP * 16..RIP * 16 + 16,
            &format!("{:016x}", place.swap_bytes()),
        );
        self.ask(&format!("G{registers}"))?;
        self.ask("D").map(drop)
    }

    /// Where the first so many processors are, and lets the machine go on.
    pub(crate) fn positions(mut self, processors: u32) -> Result<Vec<u64>> {
        let mut position = |processor| register(&self.registers(processor)?, RIP);
        let positions = (1..=processors).map(&mut position).collect();
        self.ask("D")?;
        positions
    }

    /// All registers of a processor, as the stub writes them.
    fn registers(&mut self, processor: u32) -> Result<String> {
        self.ask(&format!("Hg{processor}"))?;
        self.ask("g")
    }

    fn ask(&mut self, command: &str) -> Result<String> {
        let sum = command
            .bytes()
            .fold(0u8, |sum, byte| sum.wrapping_add(byte));
        write!(self.0, "${command}#{sum:02x}")?;
        // That the machine has stopped is told unasked.
        let mut answer = self.packet(command)?;
        while answer.starts_with('T') {
            answer = self.packet(command)?;
        }
        ensure!(
            !answer.is_empty() && !answer.starts_with('E'),
            "{command} is refused: {answer:?}"
        );
        Ok(answer)
    }

    fn packet(&mut self, command: &str) -> Result<String> {
        let mut text = String::new();
        loop {
            let mut byte = [0];
            self.0
                .read_exact(&mut byte)
                .with_context(|| format!("waiting for an answer to {command}"))?;
            match byte[0] {
                b'$' => text.clear(),
                b'#' => break,
                other => text.push(char::from(other)),
            }
        }
        self.0.read_exact(&mut [0; 2])?;
        self.0.write_all(b"+")?;
        Ok(text)
    }
}

/// One of them.
fn register(registers: &str, number: usize) -> Result<u64> {
    let digits = registers
        .get(number * 16..number * 16 + 16)
        .context("too few registers")?;
    Ok(u64::from_str_radix(digits, 16)?.swap_bytes())
}
