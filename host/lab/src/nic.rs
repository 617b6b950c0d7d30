//! `wireboot nic`, in the lab: a card of ours in the place of QEMU's way to the tap.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::netns::Lab;
use crate::network::{Network, NetworkOptions};
use crate::qemu::Machine;
use crate::wire::Impairment;

/// Who carries frames between the machine and its network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CardChoice {
    /// QEMU itself
    #[default]
    Qemu,
    /// `wireboot nic run`
    Nic,
}

impl CardChoice {
    /// A network whose cable is as these options say. A card of ours is its own bad cable, so the network then has a good one; it has one pair of
    /// queues.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn network(self, lab: &Lab, mut options: NetworkOptions) -> Result<Network> {
        if self == Self::Nic && options.impairment.take().is_some() {
            options.queues = 1;
        }
        Network::new(lab, options)
    }

    /// Puts the chosen card between the machine and the cable of its [`Self::network`]. A card of ours, by `program`, ends with what is returned.
    ///
    /// # Errors
    /// When it does not start, or the machine has no network card.
    pub fn attach(
        self,
        lab: &Lab,
        program: &Path,
        network: &Network,
        impairment: Option<&Impairment>,
        machine: &mut Machine,
    ) -> Result<Option<Nic>> {
        if self == Self::Qemu {
            return Ok(None);
        }
        let nic = Nic::start(lab, lab.command(program), network, impairment)?;
        nic.attach(machine)?;
        Ok(Some(nic))
    }
}

/// What `--line` says of it.
fn line(impairment: &Impairment) -> String {
    let rate = match impairment.rate {
        Some(rate) => format!("rate={rate}"),
        None => "100g".to_owned(),
    };
    let delay = impairment.delay.as_secs_f64() * 1e3;
    let loss = impairment.loss * 100.0;
    format!(
        "{rate},delay={delay:.3},loss={loss:.4},seed={}",
        impairment.seed
    )
}

/// Puts the card that listens at `socket` into the machine, in the place of its network card's way to the network.
pub(crate) fn attach(machine: &mut Machine, socket: &Path, queues: u16) -> Result<()> {
    let card = machine.network.as_mut().context("a network card")?;
    card.netdev = format!("vhost-user,id=net0,chardev=card,queues={queues}");
    // QEMU 7.2 in emulation crashes when Linux uses MSI-X over vhost-user.
    let properties = ["vectors=0", "ctrl_guest_offloads=off"].map(str::to_owned);
    card.properties.extend(properties);
    let chardev = format!("socket,id=card,path={},reconnect=1", socket.display());
    machine.extra.extend(["-chardev".into(), chardev.into()]);
    machine.shares_memory = true;
    Ok(())
}

/// A running card. It ends with this value.
#[derive(Debug)]
pub struct Nic {
    child: Child,
    socket: PathBuf,
    /// Pairs of queues.
    queues: u16,
    statistics: PathBuf,
    log: PathBuf,
}

impl Nic {
    /// Starts `program`, a command for wireboot in the lab, as a card on the network's cable, to which it does this, and waits until it listens.
    ///
    /// # Errors
    /// When it does not start, with what it said.
    pub fn start(
        lab: &Lab,
        mut program: Command,
        network: &Network,
        impairment: Option<&Impairment>,
    ) -> Result<Self> {
        program
            .args(["nic", "run", "--wire"])
            .arg(format!("tap={}", network.cable()));
        if let Some(impairment) = impairment {
            program.args(["--line", &line(impairment)]);
        }
        Self::launch_queues(lab, "card", program, network.queues())
    }

    /// Starts `program`, a command for `wireboot nic serve` or `run` with all that it needs but a socket and a file for its counters, and waits
    /// until it listens.
    ///
    /// # Errors
    /// When it does not start, with what it said.
    pub fn launch(lab: &Lab, program: Command) -> Result<Self> {
        Self::launch_as(lab, "card", program)
    }

    /// The same, as one of several: `name` names its files in the lab's scratch directory.
    ///
    /// # Errors
    /// As [`Self::launch`].
    pub fn launch_as(lab: &Lab, name: &str, program: Command) -> Result<Self> {
        Self::launch_queues(lab, name, program, 1)
    }

    fn launch_queues(lab: &Lab, name: &str, mut program: Command, queues: u16) -> Result<Self> {
        let socket = lab.scratch().join(name);
        let (statistics, log) = (socket.with_extension("json"), socket.with_extension("log"));
        let mut place = socket.clone().into_os_string();
        if queues > 1 {
            place.push(format!(",queues={queues}"));
        }
        program
            .arg("--socket")
            .arg(place)
            .arg("--stats")
            .arg(&statistics)
            .stdout(Stdio::null())
            .stderr(File::create(&log).context("making the card's log")?);
        let child = program.spawn().context("starting the card")?;
        let mut nic = Self {
            child,
            socket,
            queues,
            statistics,
            log,
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !nic.log().contains("waiting for a monitor") {
            let ended = nic.child.try_wait().context("waiting for the card")?;
            if ended.is_some() || Instant::now() > deadline {
                bail!("the card did not start:\n{}", nic.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(nic)
    }

    /// Puts the card into the machine, in the place of its network card's way to the network.
    ///
    /// # Errors
    /// When the machine has no network card.
    pub fn attach(&self, machine: &mut Machine) -> Result<()> {
        attach(machine, &self.socket, self.queues)
    }

    /// The id of its process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// What it has said.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends the card as its user does. Its counters.
    ///
    /// # Errors
    /// When it does not end well.
    pub fn end(mut self) -> Result<Value> {
        let id = i32::try_from(self.child.id()).context("the card's process")?;
        kill(Pid::from_raw(id), Signal::SIGINT).context("ending the card")?;
        let status = self.child.wait().context("waiting for the card")?;
        ensure!(status.success(), "the card: {status}\n{}", self.log());
        ensure!(!self.socket.exists(), "the card has left its socket");
        let text = fs::read_to_string(&self.statistics).context("reading the card's counters")?;
        serde_json::from_str(&text).context("the card's counters")
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_cable_is_a_line() {
        let bad = Impairment {
            loss: 0.0025,
            delay: Duration::from_micros(1500),
            rate: Some(40_000_000),
            seed: 7,
        };
        assert_eq!(line(&bad), "rate=40000000,delay=1.500,loss=0.2500,seed=7");
        let good = Impairment::default();
        assert_eq!(line(&good), "100g,delay=0.000,loss=0.0000,seed=0");
    }
}
