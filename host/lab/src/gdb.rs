//! The least of a debugger: QEMU's stub (the GDB remote serial protocol), to stop a machine at a place, and to do to a processor what no test
//! can ask it to do to itself.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::patience::Patience;

/// Registers in the stub's order for x86-64.
const RSP: usize = 7;
const RIP: usize = 16;

/// How long the stub may take to answer.
const ANSWER: Duration = Duration::from_secs(20);

/// A jump to itself.
const LOOP: [u8; 2] = [0xeb, 0xfe];

/// A machine that stands still when the debugger comes, and whenever it is not told to go on.
#[derive(Debug)]
pub struct Debugger(UnixStream);

/// The code that [`Debugger::hold`] has overwritten.
#[derive(Debug)]
#[must_use]
pub struct Held {
    place: u64,
    code: String,
}

impl Debugger {
    /// Stops the machine.
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn attach(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).context("connecting to QEMU's debugger stub")?;
        stream.set_read_timeout(Some(ANSWER))?;
        Ok(Self(stream))
    }

    /// Lets the machine go on until it writes to four bytes of memory.
    ///
    /// # Errors
    /// When it does not within `patience`.
    pub fn run_until_written(&mut self, address: u64, mut patience: Patience) -> Result<()> {
        self.ask(&format!("Z2,{address:x},4"))?;
        self.send("c")?;
        // That it has understood comes at once.
        self.0.read_exact(&mut [0])?;
        let mut heard = 0;
        while heard == 0 {
            let wait = patience.wait();
            let wait = wait.context("the machine did not come there in time")?;
            let mut stub = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
            heard = poll(&mut stub, wait).context("waiting for QEMU's debugger stub")?;
        }
        let stop = self.packet("c")?;
        ensure!(
            stop.contains("watch:"),
            "the machine stopped elsewhere: {stop}"
        );
        self.ask(&format!("z2,{address:x},4")).map(drop)
    }

    /// Lets the machine go on, while its first processor stays where it is.
    ///
    /// # Errors
    /// When the stub refuses it.
    pub fn hold(&mut self) -> Result<Held> {
        let place = register(&self.registers(1)?, RIP)?;
        let code = self.ask(&format!("m{place:x},{:x}", LOOP.len()))?;
        self.write(place, &digits(&LOOP))?;
        self.send("c")?;
        Ok(Held { place, code })
    }

    /// Has the first processor go on where it was held; for a machine that stands still again.
    ///
    /// # Errors
    /// When the stub refuses it.
    pub fn release(&mut self, held: Held) -> Result<()> {
        self.write(held.place, &held.code)
    }

    /// Makes a processor (counted from 1) run machine code that never returns, and lets the machine go on.
    ///
    /// # Errors
    /// When the stub refuses it.
    pub fn run(mut self, processor: u32, code: &[u8]) -> Result<()> {
        let mut registers = self.registers(processor)?;
        ensure!(register(&registers, RIP)? != 0, "the processor is nowhere");
        // Over what is on the stack, which nobody will come back to.
        let place = register(&registers, RSP)? + 64;
        self.write(place, &digits(code))?;
        registers.replace_range(
            RIP * 16..RIP * 16 + 16,
            &format!("{:016x}", place.swap_bytes()),
        );
        self.ask(&format!("G{registers}"))?;
        self.ask("D").map(drop)
    }

    /// Where the first so many processors are, and lets the machine go on.
    ///
    /// # Errors
    /// When the stub refuses it.
    pub fn positions(mut self, processors: u32) -> Result<Vec<u64>> {
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

    /// Writes to memory, in hexadecimal digits.
    fn write(&mut self, place: u64, digits: &str) -> Result<()> {
        self.ask(&format!("M{place:x},{:x}:{digits}", digits.len() / 2))
            .map(drop)
    }

    fn send(&mut self, command: &str) -> Result<()> {
        let sum = command
            .bytes()
            .fold(0u8, |sum, byte| sum.wrapping_add(byte));
        write!(self.0, "${command}#{sum:02x}").with_context(|| format!("sending {command}"))
    }

    fn ask(&mut self, command: &str) -> Result<String> {
        self.send(command)?;
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

/// One of the registers, which the stub gives in hexadecimal.
fn register(registers: &str, number: usize) -> Result<u64> {
    let digits = registers
        .get(number * 16..number * 16 + 16)
        .context("too few registers")?;
    Ok(u64::from_str_radix(digits, 16)?.swap_bytes())
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
