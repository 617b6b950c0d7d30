//! DPDK's vhost-user card, which carries frames to and from DPDK's tap: `dpdk-testpmd`, of Debian's package dpdk-dev, with librte-net-tap23 and
//! librte-net-vhost23.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::netns::Lab;
use crate::network::Network;
use crate::nic;
use crate::qemu::Machine;

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running card. It ends with this value.
#[derive(Debug)]
pub struct Testpmd {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Testpmd {
    /// Starts it on the cable of a network of several queues: DPDK takes no tap of one. One thread polls, on any processor.
    ///
    /// # Errors
    /// When it does not start, with what it said.
    pub fn start(lab: &Lab, network: &Network) -> Result<Self> {
        let socket = lab.scratch().join("dpdk");
        let log = socket.with_extension("log");
        let last = available_parallelism().map_or(1, |count| count.get().saturating_sub(1));
        let said = File::create(&log).context("making DPDK's log")?;
        let errors = said.try_clone().context("making DPDK's log")?;
        let child = lab
            .command("dpdk-testpmd")
            .args(["--no-shconf", "--no-huge", "-m", "256", "--no-pci"])
            .args(["--no-telemetry", "--lcores"])
            .arg(format!("0@(0-{last}),1@(0-{last})"))
            .arg("--vdev")
            .arg(format!("net_vhost0,iface={},queues=1", socket.display()))
            .arg("--vdev")
            .arg(format!("net_tap0,iface={}", network.cable()))
            .args(["--", "--forward-mode=io", "--auto-start", "--nb-cores=1"])
            .arg("--total-num-mbufs=8192")
            // It ends when it has nothing more to read.
            .stdin(Stdio::piped())
            .stdout(said)
            .stderr(errors)
            .spawn()
            .context("starting dpdk-testpmd (Debian's package dpdk-dev)")?;
        let mut testpmd = Self { child, socket, log };
        let deadline = Instant::now() + PATIENCE;
        while !testpmd.socket.exists() {
            testpmd.runs()?;
            ensure!(
                Instant::now() < deadline,
                "dpdk-testpmd does not listen: {}",
                testpmd.said()
            );
            sleep(Duration::from_millis(20));
        }
        Ok(testpmd)
    }

    /// Sees that it still runs.
    ///
    /// # Errors
    /// When it has ended, with what it said.
    pub fn runs(&mut self) -> Result<()> {
        let ended = self.child.try_wait().context("waiting for dpdk-testpmd")?;
        ensure!(ended.is_none(), "dpdk-testpmd has ended: {}", self.said());
        Ok(())
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Puts the card into the machine, in the place of its network card's way to the network.
    ///
    /// # Errors
    /// When the machine has no network card.
    pub fn attach(&self, machine: &mut Machine) -> Result<()> {
        nic::attach(machine, &self.socket, 1)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}
