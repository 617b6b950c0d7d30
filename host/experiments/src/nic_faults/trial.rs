//! One boot: a fresh machine over a fresh card with a fault.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::guest::{Guest, GuestSetup};
use super::report::Cell;
use super::verdict::{Judge, QUIET, Verdict};
use wireboot_lab::netns::Lab;
use wireboot_lab::nic::Nic;
use wireboot_lab::qemu::Accelerator;

/// A machine that is not at its end by then hangs.
const LONGEST: Duration = Duration::from_secs(300);
/// How often the console is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Lines that are kept of what the console shows, and of what QEMU and the card say: over a card that flaps, QEMU says hundreds.
const LINES: usize = 12;

/// Where guests boot over cards with faults: their files, machines and the seed of the faults.
pub(super) struct NicFaultTestbed<'a> {
    lab: &'a Lab,
    seed: u64,
    /// This program, with no wireboot.efi beside it that the server in the card would take.
    program: PathBuf,
    setups: Vec<(Guest, GuestSetup)>,
}

impl<'a> NicFaultTestbed<'a> {
    /// Puts all files in place.
    ///
    /// # Errors
    /// When a package is missing, or there is no room.
    pub(super) fn new(
        lab: &'a Lab,
        accelerator: Accelerator,
        wireboot: &Path,
        seed: u64,
    ) -> Result<Self> {
        let program = lab.scratch().join("wireboot");
        let own = std::env::current_exe().context("finding this program's own file")?;
        fs::copy(own, &program).context("copying this program")?;
        let setups = Guest::ALL.into_iter().map(|guest| {
            let setup = guest.prepare(lab, accelerator, wireboot);
            Ok((guest, setup.with_context(|| guest.name())?))
        });
        Ok(Self {
            lab,
            seed,
            program,
            setups: setups.collect::<Result<_>>()?,
        })
    }

    /// The version of each guest.
    pub(super) fn versions(&self) -> Vec<String> {
        self.setups
            .iter()
            .map(|(_, setup)| setup.version.clone())
            .collect()
    }

    /// Boots a guest over a card with such a fault; once more where it hangs, as the host may have stood still. `name` tells it from those that boot
    /// beside it.
    ///
    /// # Errors
    /// When the card or the machine does not start.
    pub(super) fn boot(&self, kind: &'static str, guest: Guest, name: &str) -> Result<Cell> {
        match self.boot_once(kind, guest, name)? {
            Cell {
                verdict: Verdict::Hangs,
                ..
            } => self.boot_once(kind, guest, name),
            cell => Ok(cell),
        }
    }

    fn boot_once(&self, kind: &'static str, guest: Guest, name: &str) -> Result<Cell> {
        let (_, setup) = self
            .setups
            .iter()
            .find(|(of, _)| *of == guest)
            .with_context(|| guest.name())?;
        let judge = Judge::new(guest, &setup.digests)?;
        let mut card = self.lab.command(&self.program);
        card.args(["nic", "serve"])
            .arg(&setup.directory)
            .args(["--fault", &format!("{kind},seed={}", self.seed)])
            // With it, files take too few buffers for each fault to come.
            .args(["--placement", "none"]);
        let nic = Nic::launch_as(self.lab, &format!("{name}-card"), card)?;
        let mut machine = setup.machine.clone();
        nic.attach(&mut machine)?;
        let mut running = machine.start(self.lab, name, |_| {})?;
        let begin = Instant::now();
        let (mut bytes, mut heard) = (0, begin);
        let verdict = loop {
            // In this order: what a machine that has ended said last is still taken in.
            let ended = running.failure().is_some();
            let shown = running.console.transcript();
            if let Some(verdict) = judge.judge(&shown) {
                break verdict;
            }
            if ended {
                break judge.unless_started(&shown, Verdict::Crash);
            }
            if running.console.bytes() > bytes {
                (bytes, heard) = (running.console.bytes(), Instant::now());
            }
            if heard.elapsed() > QUIET || begin.elapsed() > LONGEST {
                ensure!(bytes > 0, "the machine did not start: its console is empty");
                break judge.unless_started(&shown, Verdict::Hangs);
            }
            std::thread::sleep(LOOK);
        };
        Ok(Cell {
            kind,
            guest: guest.name(),
            verdict,
            seconds: begin.elapsed().as_secs_f64(),
            console: running.console.tail(LINES),
            qemu: end(&running.messages()),
            card: end(&nic.log()),
        })
    }
}

fn end(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    lines.get(from..).unwrap_or_default().join("\n")
}
