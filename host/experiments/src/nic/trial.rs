//! One trial: a side of a comparison, once.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::bound::Little;
use super::comparison::{Card, POLLS, Side, THROWN_AWAY};
use super::modelled::Modelled;
use crate::bench::card;
use crate::bench::stacks::Stack;
use crate::bench::trial::BenchTestbed;
use crate::ladder;
use crate::protocol::TransferProtocol;
use wireboot_lab::dpdk::Testpmd;
use wireboot_lab::network::{Network, NetworkOptions};
use wireboot_lab::nic::Nic;
use wireboot_lab::qemu::Machine;

/// For a boot in which frames are counted.
const LADDER: Duration = Duration::from_secs(180);
/// Over which time an idle card is watched.
const IDLE: Duration = Duration::from_secs(10);
/// The stack that is up and has nothing to do.
const IDLE_STACK: &str = "linux-http";

/// Bench's testbed, with what the trials of cards need beside it.
pub(super) struct NicTestbed<'a> {
    pub testbed: BenchTestbed<'a>,
    pub stacks: Vec<Stack>,
    /// The program that takes frames.
    pub doctor: PathBuf,
    /// The files' size.
    pub bytes: u64,
}

impl NicTestbed<'_> {
    /// Mbit/s of a side.
    ///
    /// # Errors
    /// When it gives no figure.
    pub(super) fn measure(&self, side: Side) -> Result<f64> {
        match side {
            Side::Cable { stack, card } => {
                let stack = self.stack(stack)?;
                let attach = |machine: &mut Machine| self.attach(card, machine);
                let downloaded = self
                    .testbed
                    .download_by_cable(stack, self.bytes, true, attach)?;
                Ok(self.rate(downloaded.measured.seconds))
            }
            Side::FramesByCable { rung, card } => self.frames_by_cable(rung, card),
            Side::FramesOfCard { rung } => self.frames_of_card(rung, POLLS),
            Side::Served {
                protocol,
                arguments,
            } => {
                let testbed = &self.testbed;
                let start = card::by_pxe(testbed);
                let (measured, _) =
                    card::download(testbed, protocol, self.bytes, true, arguments, start)?;
                Ok(self.rate(measured.seconds))
            }
        }
    }

    /// What is to be little.
    ///
    /// # Errors
    /// When it gives no figure.
    pub(super) fn bounded(&self, what: Little) -> Result<f64> {
        match what {
            Little::Idle => self.idle(),
            Little::Doorbells => self.doorbells(),
        }
    }

    /// Mbit/s of datagrams by a card at the speed of a model, each frame for itself.
    ///
    /// # Errors
    /// When it gives no figure.
    pub(super) fn modelled(&self, model: &Modelled) -> Result<f64> {
        let mut arguments = model.arguments();
        arguments.extend(["--chunk", "none"]);
        arguments.extend(POLLS);
        self.frames_of_card(THROWN_AWAY, &arguments)
    }

    fn doorbells(&self) -> Result<f64> {
        let (testbed, protocol) = (&self.testbed, TransferProtocol::Http);
        // The firmware's driver rings for each frame.
        let start = card::by_stick(testbed);
        let (_, nic) = card::download(testbed, protocol, self.bytes, true, POLLS, start)?;
        let counters = nic.end()?;
        let doorbells = counters.get("transmit_doorbells");
        doorbells.and_then(Value::as_f64).context("a counter")
    }

    fn idle(&self) -> Result<f64> {
        let stack = self.stack(IDLE_STACK)?;
        let attach = |machine: &mut Machine| self.attach(Card::Ours, machine);
        let mib = 1 << 20;
        let guest = self.testbed.download_by_cable(stack, mib, true, attach)?;
        let nic = guest.nic.as_ref().context("a card")?;
        // What the download leaves behind.
        std::thread::sleep(Duration::from_secs(2));
        let before = processor_time(nic.process())?;
        std::thread::sleep(IDLE);
        let used = processor_time(nic.process())?.saturating_sub(before);
        Ok(used.as_secs_f64() / IDLE.as_secs_f64() * 100.0)
    }

    pub(super) fn stack(&self, id: &str) -> Result<&Stack> {
        let found = self.stacks.iter().find(|stack| stack.id == id);
        found.with_context(|| format!("{id} is left out: `wireboot lab bench --list` says why"))
    }

    fn rate(&self, seconds: f64) -> f64 {
        self.bytes as f64 * 8e-6 / seconds
    }

    /// Puts the card at the cable, and gives either card's machine the same memory.
    fn attach(&self, card: Card, machine: &mut Machine) -> Result<Option<Nic>> {
        let BenchTestbed {
            lab,
            network,
            command,
            ..
        } = &self.testbed;
        machine.shares_memory = true;
        Ok(match card {
            Card::Qemu => None,
            Card::Ours => {
                let nic = Nic::start(lab, lab.command(command), network, None)?;
                nic.attach(machine)?;
                Some(nic)
            }
            Card::Dpdk => bail!("only frames are measured by DPDK's card"),
        })
    }

    /// Frames that come by the lab's cable.
    fn frames_by_cable(&self, rung: &str, card: Card) -> Result<f64> {
        if card == Card::Dpdk {
            return self.frames_by_dpdk(rung);
        }
        let mut machine = self.machine();
        let _nic = self.attach(card, &mut machine)?;
        self.frames_from_cable(rung, self.testbed.network, machine)
    }

    /// The same by DPDK, whose tap has several queues.
    fn frames_by_dpdk(&self, rung: &str) -> Result<f64> {
        let BenchTestbed {
            lab, network, ip, ..
        } = &self.testbed;
        let _aside = network.aside()?;
        let options = NetworkOptions::of(*ip);
        let network = Network::new(
            lab,
            NetworkOptions {
                queues: 2,
                ..options
            },
        )?;
        let mut dpdk = Testpmd::start(lab, &network)?;
        let mut machine = self.machine();
        dpdk.attach(&mut machine)?;
        let frames = self.frames_from_cable(rung, &network, machine);
        dpdk.runs()?;
        frames
    }

    fn frames_from_cable(&self, rung: &str, network: &Network, machine: Machine) -> Result<f64> {
        let BenchTestbed {
            lab, ip, command, ..
        } = &self.testbed;
        let programs = (command.as_path(), self.doctor.as_path());
        let _counterpart = ladder::counterpart(lab, (network, *ip), programs)?;
        self.frames(rung, machine)
    }

    /// Frames that the card makes.
    fn frames_of_card(&self, rung: &str, arguments: &[&str]) -> Result<f64> {
        let mut machine = self.machine();
        let nic = card::serve(&self.testbed, arguments)?;
        nic.attach(&mut machine)?;
        self.frames(rung, machine)
    }

    fn machine(&self) -> Machine {
        let mut machine = Machine::new(self.testbed.accelerator);
        machine.network = Some(self.testbed.network.card());
        machine
    }

    /// Mbit/s of a rung of frames, measured by `machine`.
    fn frames(&self, rung: &str, machine: Machine) -> Result<f64> {
        let BenchTestbed { lab, ip, .. } = &self.testbed;
        // A name may have several words.
        let word = rung.split_whitespace().next_back().unwrap_or(rung);
        let options = format!("rounds=3 ms=1000 only={word}");
        let ladder = ladder::measure(lab, machine, *ip, &self.doctor, &options, LADDER, |_| {})?;
        let found = ladder
            .of(ladder::Kind::Receive)
            .find(|one| one.name == rung);
        let rung = found.with_context(|| format!("the ladder has no rung {rung}"))?;
        match &rung.error {
            Some(error) => Err(anyhow::anyhow!("{error}")),
            None => Ok(rung.mbit_s),
        }
    }
}

/// What a process has run so far, in steps of a hundredth of a second (proc(5), `/proc/PID/stat`).
fn processor_time(process: u32) -> Result<Duration> {
    let file = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
    // The program's name, in brackets, may hold anything.
    let (_, fields) = text.rsplit_once(')').context("a name")?;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks = times.map(str::parse::<u64>).sum::<Result<u64, _>>();
    Ok(Duration::from_millis(
        10 * ticks.with_context(|| format!("{file} has no times"))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn processor_time_is_what_was_run() {
        let process = std::process::id();
        let before = processor_time(process).unwrap();
        let begin = Instant::now();
        let mut rounds = 0u64;
        while processor_time(process).unwrap() < before + Duration::from_millis(20) {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "no time is counted"
            );
            rounds = std::hint::black_box(rounds + 1);
        }
        assert!(rounds > 0);
    }
}
