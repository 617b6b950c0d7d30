//! One boot of the soak: disturbed on its way, watched over its hand-over, asked at its end.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use serde::Serialize;

use super::canary::{self, Area};
use super::plan::{Fault, Plan};
use super::stray::{self, Stray};
use super::system::{System, canary_sum};
use wireboot_lab::console::ConsoleMatch;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{Network, NetworkOptions};
use wireboot_lab::nic::{CardChoice, Nic};
use wireboot_lab::qemu::{Accelerator, Machine, RunningMachine};
use wireboot_lab::server::Server;

/// Memory of the machine in MiB: what firmware, wireboot and the data need, as all of it is filled and searched.
const MEMORY: u32 = 320;
/// How long frames are sent to a machine that holds still.
const HOLD: Duration = Duration::from_secs(2);
/// Frames a second sent to it.
const FRAMES: u32 = 1000;
/// The bit of a PCI command register that lets a function write to memory.
const BUS_MASTER: u16 = 1 << 2;

/// Where the boots take place.
#[derive(Debug)]
pub struct SoakTestbed<'a> {
    /// The namespaces in which everything runs.
    pub lab: &'a Lab,
    /// The files that the machine boots, and the checksum that the data is to have.
    pub system: System,
    /// The `wireboot` command, which serves.
    pub server: PathBuf,
    /// What runs the guest's instructions.
    pub accelerator: Accelerator,
    /// Processors of the machine.
    pub processors: u32,
    /// Who carries frames between the machine and its network.
    pub card: CardChoice,
    /// How long a boot may take.
    pub limit: Duration,
}

/// What a good boot showed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Facts {
    /// Engines that ran, 0 where the BSP did it all. Fewer than planned where a processor did not come in time.
    pub engines: u32,
    /// Pages that the card could write to while wireboot had it.
    pub receive_pages: usize,
    /// Those of them that held the canary.
    pub receive_pages_with_canary: usize,
    /// All pages that held it.
    pub canary_pages: usize,
    /// Frames sent to the machine while the boot services ended.
    pub frames_during_handover: u64,
    /// Frames sent to the machine afterwards.
    pub frames_after_handover: u64,
}

/// Why a boot is not good.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// What did not hold.
    pub reason: String,
    /// The end of the machine's console, a line each.
    pub console: String,
    /// The end of the server's log, a line each.
    pub server: String,
}

impl SoakTestbed<'_> {
    /// Boots as planned.
    ///
    /// # Errors
    /// What did not hold, with the ends of console and log.
    pub fn boot(&self, plan: &Plan) -> Result<Facts, Failure> {
        let without_console = |error: anyhow::Error| Failure {
            reason: format!("{error:#}"),
            console: String::new(),
            server: String::new(),
        };
        let mut story = Story::begin(self, plan).map_err(without_console)?;
        story.tell(plan).map_err(|error| {
            let reason = format!("{error:#}");
            Failure {
                // The console's end is told once.
                reason: reason
                    .lines()
                    .next()
                    .map_or("", |first| first.trim_end_matches(", which ends with:"))
                    .to_owned(),
                console: story.machine.console.tail(40),
                server: story.server.map(|server| server.tail()).unwrap_or_default(),
            }
        })
    }
}

/// A boot under way. Fields are dropped in this order.
struct Story<'a> {
    testbed: &'a SoakTestbed<'a>,
    deadline: Instant,
    machine: RunningMachine,
    mac: String,
    server: Option<Server>,
    _nic: Option<Nic>,
    _network: Network,
}

impl<'a> Story<'a> {
    fn begin(testbed: &'a SoakTestbed<'a>, plan: &Plan) -> Result<Self> {
        let deadline = Instant::now() + testbed.limit;
        let engines = plan.engines.number(testbed.processors);
        let options = NetworkOptions {
            impairment: plan.impairment.clone(),
            queues: u16::try_from(engines.max(1)).unwrap_or(1),
            ..NetworkOptions::default()
        };
        let network = testbed.card.network(testbed.lab, options)?;
        testbed.system.configure(plan, engines)?;
        let mut machine = Machine::new(testbed.accelerator);
        machine.memory_mib = MEMORY;
        machine.processors = testbed.processors;
        let card = network.card();
        let mac = card.mac.clone();
        machine.network = Some(card);
        machine.pxe_only(Some(IpVersion::V4));
        let nic = testbed.card.attach(
            testbed.lab,
            &testbed.server,
            &network,
            plan.impairment.as_ref(),
            &mut machine,
        )?;
        let server = serve(testbed)?;
        Ok(Story {
            testbed,
            deadline,
            machine: machine.start(testbed.lab, "soak", |_| {})?,
            mac,
            server: Some(server),
            _nic: nic,
            _network: network,
        })
    }

    fn tell(&mut self, plan: &Plan) -> Result<Facts> {
        let mut engines = self.ready()?;
        match plan.fault {
            Fault::NextBootOption => {
                self.expect("wireboot: the firmware goes on with its next boot option")?;
                self.testbed.system.mend()?;
                engines = self.ready()?;
            }
            Fault::StartedAgain => {
                self.expect("wireboot: starting efi .* over the firmware's network")?;
                engines = self.ready()?;
            }
            _ => {}
        }
        let areas = canary::receive_areas(
            &mut self.machine,
            self.testbed.lab,
            self.testbed.card,
            engines.max(1),
        )?;
        let address = self.expect(r"wireboot: address (10\.77\.0\.\d+)")?;
        let address: Ipv4Addr = group(&address, 1)?.parse()?;
        match plan.fault {
            Fault::ServerKilled => self.kill_server(plan)?,
            Fault::LinkFlap => self.flap(plan)?,
            _ => {}
        }
        match plan.fault {
            Fault::Loaders => self.expect("wireboot: starting efi .* over wireboot's network")?,
            _ => self.expect("wireboot: starting linux")?,
        };
        let (during, after) = self.hand_over(plan, address)?;
        let mut facts = self.linux(&areas, &after)?;
        facts.engines = engines;
        facts.frames_during_handover = during;
        facts.frames_after_handover = after.sent();
        Ok(facts)
    }

    /// Waits until wireboot has the card. The number of its engines.
    fn ready(&mut self) -> Result<u32> {
        // "the BSP, as ...", "processor 1", or "processor 1; parts of large files on 2, 3".
        let on = self.expect(r"wireboot: the network runs on ([^\n]*)\n")?;
        let on = group(&on, 1)?;
        let engines = match on.strip_prefix("processor ") {
            None => 0,
            Some(numbers) => 1 + numbers.matches([';', ',']).count(),
        };
        self.expect("wireboot: ready after")?;
        Ok(u32::try_from(engines)?)
    }

    /// Watches the device until it is stopped, which is before the kernel owns the memory. The frames sent until then, and the sender of
    /// those that come afterwards.
    fn hand_over(&mut self, plan: &Plan, address: Ipv4Addr) -> Result<(u64, Stray)> {
        let during = match plan.fault {
            Fault::TransferAtHandover => Some(Stray::start(
                address,
                &self.mac,
                stray::BEFORE,
                plan.frames,
            )?),
            _ => None,
        };
        let linux = Regex::new("soak: ")?;
        while canary::is_running(&mut self.machine)? {
            ensure!(
                self.machine.console.seen(&linux).is_none(),
                "the card still runs under Linux"
            );
            self.in_time("the card was stopped")?;
            std::thread::sleep(Duration::from_millis(5));
        }
        let sent = during.map_or(0, |stray| stray.sent());
        let after = Stray::start(address, &self.mac, stray::AFTER, FRAMES)?;
        Ok((sent, after))
    }

    /// What Linux finds, and what is found in its memory.
    fn linux(&mut self, areas: &[Area], stray: &Stray) -> Result<Facts> {
        let started =
            self.expect(r"soak: processors (\d+), card's command register ([0-9a-f]+)\n")?;
        let processors: u32 = group(&started, 1)?.parse()?;
        ensure!(
            processors == self.testbed.processors,
            "Linux has {processors} of {} processors",
            self.testbed.processors
        );
        let command = u16::from_str_radix(group(&started, 2)?, 16)?;
        ensure!(
            command & BUS_MASTER == 0,
            "the card may still write to memory: its command register is {command:#06x}"
        );
        let data = self.expect(r"soak: data ([0-9a-f]*)\n")?;
        ensure!(
            group(&data, 1)? == self.testbed.system.data,
            "the data came damaged: sha256 {} instead of {}",
            group(&data, 1)?,
            self.testbed.system.data
        );
        let set = self.expect(r"soak: canary of (\d+) x (\d+)\n")?;
        let (files, units): (usize, usize) = (group(&set, 1)?.parse()?, group(&set, 2)?.parse()?);

        let sent = stray.sent();
        std::thread::sleep(HOLD);
        ensure!(
            stray.sent() > sent,
            "no frames were sent: the canary had nothing to see"
        );
        ensure!(
            !canary::is_running(&mut self.machine)?,
            "somebody started the card under Linux"
        );
        let found = canary::examine(
            &mut self.machine,
            self.testbed.lab,
            MEMORY,
            areas,
            stray::AFTER,
        )?;
        if let Some(place) = found.stray.first() {
            bail!(
                "the card wrote to memory after the hand-over: {} pages, the first frame at {place:#x}",
                found.stray.len()
            );
        }

        self.machine.console.send("\r")?;
        let sums = self.expect(r"soak: canaries((?: [0-9a-f]{32})*)\n")?;
        let expected = canary_sum(units);
        let whole = group(&sums, 1)?
            .split_whitespace()
            .filter(|sum| *sum == expected)
            .count();
        ensure!(
            whole == files,
            "the canary was touched: {whole} of {files} files are whole, {} of {} pages of the card hold it",
            found.receive_canaries,
            found.receive
        );
        let left = self.deadline.saturating_duration_since(Instant::now());
        let status = self
            .machine
            .wait(left)?
            .context("Linux did not switch the machine off")?;
        ensure!(
            status.success(),
            "QEMU failed: {status}, {}",
            self.machine.messages()
        );
        Ok(Facts {
            receive_pages: found.receive,
            receive_pages_with_canary: found.receive_canaries,
            canary_pages: found.canaries,
            ..Facts::default()
        })
    }

    fn kill_server(&mut self, plan: &Plan) -> Result<()> {
        self.reach(plan.at)?;
        self.server = None;
        std::thread::sleep(plan.gone);
        self.server = Some(serve(self.testbed)?);
        Ok(())
    }

    fn flap(&mut self, plan: &Plan) -> Result<()> {
        self.reach(plan.at)?;
        for time in 0..plan.flaps {
            if time > 0 {
                std::thread::sleep(plan.gone);
            }
            self.machine.set_link(false)?;
            std::thread::sleep(plan.gone);
            self.machine.set_link(true)?;
        }
        Ok(())
    }

    /// Waits until this share of the data has come.
    fn reach(&mut self, share: f64) -> Result<()> {
        loop {
            let progress = self.expect(
                r"data\.cpio ([0-9.]+)/([0-9.]+) MB|data\.cpio: \d+ bytes|wireboot: starting",
            )?;
            let (Ok(received), Ok(total)) = (
                group(&progress, 1)?.parse::<f64>(),
                group(&progress, 2)?.parse::<f64>(),
            ) else {
                bail!("the transfer was over before it could be disturbed");
            };
            if received >= share * total {
                return Ok(());
            }
        }
    }

    fn expect(&mut self, expression: &str) -> Result<ConsoleMatch> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.machine
            .console
            .wait_for(&Regex::new(expression)?, left)
    }

    fn in_time(&self, what: &str) -> Result<()> {
        ensure!(
            Instant::now() < self.deadline,
            "{} s went by before {what}",
            self.testbed.limit.as_secs()
        );
        Ok(())
    }
}

fn serve(testbed: &SoakTestbed<'_>) -> Result<Server> {
    Server::start(
        testbed.lab,
        testbed.lab.command(&testbed.server),
        &testbed.system.directory,
        &testbed.system.directory.join("wireboot.efi"),
        &[],
    )
}

fn group(seen: &ConsoleMatch, number: usize) -> Result<&str> {
    seen.groups
        .get(number)
        .map(String::as_str)
        .context("the console's text has fewer parts")
}
