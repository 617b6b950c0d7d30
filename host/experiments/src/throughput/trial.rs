//! One boot, and what it brought.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;

use crate::bench::linux;
use crate::iperf3::Iperf3;
use crate::ladder::{self, Counterpart, Kind};
use wireboot_lab::guest::Kernel;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{self, Network, with_prefix};
use wireboot_lab::qemu::{Accelerator, DirectKernel, Machine};
use wireboot_lab::sender::Cable;
use wireboot_report::Report;
use wireboot_report::throughput::{Datagrams, Direction};

/// For a boot, besides its tests.
const PATIENCE: Duration = Duration::from_secs(120);
/// The Linux guest's address: it asks nobody for one.
const GUEST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 40));
/// Rungs that a file or frames bring, and the name of what they measure here.
const RUNGS: [(Kind, &str, &str); 10] = [
    (Kind::Receive, "driver", DRIVER_RECEIVES),
    (Kind::ReceiveSmall, "driver", DRIVER_RECEIVES_SMALL),
    (Kind::Transmit, "driver", DRIVER_SENDS),
    (Kind::TransmitSmall, "driver", DRIVER_SENDS_SMALL),
    (Kind::Receive, "wireboot UDP", ENGINE_RECEIVES),
    (Kind::ReceiveSmall, "wireboot UDP", ENGINE_RECEIVES_SMALL),
    (Kind::Transmit, "wireboot UDP", ENGINE_SENDS),
    (Kind::TransmitSmall, "wireboot UDP", ENGINE_SENDS_SMALL),
    (Kind::Receive, "SNP", SNP_RECEIVES),
    (Kind::Receive, "wireboot HTTP, one processor", HTTP),
];

pub(super) const DRIVER_RECEIVES: &str = "frames received by the driver, Mbit/s";
pub(super) const DRIVER_RECEIVES_SMALL: &str = "frames of 18 bytes received by the driver, Mbit/s";
pub(super) const DRIVER_SENDS: &str = "frames sent by the driver, Mbit/s";
pub(super) const DRIVER_SENDS_SMALL: &str = "frames of 18 bytes sent by the driver, Mbit/s";
pub(super) const ENGINE_RECEIVES: &str = "UDP received (ladder), 1472 bytes, Mbit/s";
pub(super) const ENGINE_RECEIVES_SMALL: &str = "UDP received (ladder), 18 bytes, Mbit/s";
pub(super) const ENGINE_SENDS: &str = "UDP sent (ladder), 1472 bytes, Mbit/s";
pub(super) const ENGINE_SENDS_SMALL: &str = "UDP sent (ladder), 18 bytes, Mbit/s";
pub(super) const SNP_RECEIVES: &str = "frames received by SNP, Mbit/s";
pub(super) const HTTP: &str = "HTTP on one processor, Mbit/s";
pub(super) const TCP_RECEIVES: &str = "TCP received (-R), Mbit/s";
pub(super) const TCP_SENDS: &str = "TCP sent, Mbit/s";
pub(super) const TCP_RECEIVES_BY_SNP: &str = "TCP received (-R) over SNP, Mbit/s";
pub(super) const UDP_SENDS: &str = "UDP sent (iperf3), 1472 bytes, Mbit/s";
pub(super) const UDP_SENDS_SMALL: &str = "UDP sent (iperf3), 18 bytes, Mbit/s";
pub(super) const UDP_RECEIVES: &str = "UDP received (iperf3 -R), 1472 bytes, Mbit/s";
pub(super) const UDP_LOST: &str = "UDP received (iperf3 -R), lost, %";
pub(super) const UDP_LOST_BEHIND_CABLE: &str = "UDP received (iperf3 -R), lost behind the cable, %";
pub(super) const LINUX_RECEIVES: &str = "Linux, TCP received (-R), Mbit/s";

/// A boot, by what measures in it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trial {
    /// doctor.efi measures the ladder's rungs.
    Ladder,
    /// doctor.efi is iperf3's client, with these words; its rate has this name.
    Doctor {
        words: &'static str,
        rate: &'static str,
    },
    /// Linux, whose iperf3 is the client.
    Linux,
}

const fn doctor(words: &'static str, rate: &'static str) -> Trial {
    Trial::Doctor { words, rate }
}

/// All boots of a round.
pub(super) const TRIALS: [Trial; 8] = [
    Trial::Ladder,
    doctor("reverse", TCP_RECEIVES),
    Trial::Linux,
    doctor("", TCP_SENDS),
    doctor("reverse driver=snp", TCP_RECEIVES_BY_SNP),
    doctor("udp length=1472", UDP_SENDS),
    doctor("udp length=18", UDP_SENDS_SMALL),
    doctor("udp reverse length=1472", UDP_RECEIVES),
];

impl Trial {
    /// As a failure names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ladder => "the ladder",
            Self::Doctor { rate, .. } => rate,
            Self::Linux => LINUX_RECEIVES,
        }
    }
}

/// The network, the programs and the guest that each boot takes.
pub(super) struct ThroughputTestbed<'a> {
    pub lab: &'a Lab,
    pub network: &'a Network,
    pub ip: IpVersion,
    pub accelerator: Accelerator,
    /// The wireboot command, whose server boots and serves.
    pub command: PathBuf,
    pub doctor: PathBuf,
    pub kernel: Kernel,
    /// How long a test takes.
    pub seconds: u32,
}

type Found = Vec<(&'static str, f64)>;

/// The share of what the server sends that is lost, and of that the part for which there was room in the cable: negative, where the cable dropped others,
/// too. What is still on its way when the machine ends the test is in that part.
fn losses(datagrams: &Datagrams, without_room: u64) -> Found {
    let percent = |count: f64| count * 100.0 / (datagrams.sent as f64).max(1.0);
    let missing = datagrams.sent as f64 - datagrams.received as f64;
    vec![
        (UDP_LOST, percent(missing)),
        (
            UDP_LOST_BEHIND_CABLE,
            percent(missing - without_room as f64),
        ),
    ]
}

impl ThroughputTestbed<'_> {
    /// Starts what boots machines, and sends frames to them.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) fn serve(&self) -> Result<Counterpart> {
        let network = (self.network, self.ip);
        ladder::counterpart(self.lab, network, (&self.command, &self.doctor))
    }

    /// Makes one boot of a round, with an iperf3 server of its own.
    ///
    /// # Errors
    /// When the machine gives no figure.
    pub(super) fn measure(&self, trial: Trial) -> Result<Found> {
        // A client that is switched off would keep it busy.
        let _iperf3 = Iperf3::start(self.lab)?;
        match trial {
            Trial::Ladder => self.ladder(),
            Trial::Doctor { words, rate } => self.doctor(words, rate),
            Trial::Linux => self.linux(),
        }
    }

    fn machine(&self) -> Machine {
        let mut machine = Machine::new(self.accelerator);
        machine.network = Some(self.network.card());
        machine
    }

    fn ladder(&self) -> Result<Found> {
        let options = "rounds=1 ms=1000 only=driver,SNP,HTTP,UDP";
        let (lab, ip) = (self.lab, self.ip);
        let timeout = PATIENCE * 3;
        let ladder = ladder::measure(
            lab,
            self.machine(),
            ip,
            &self.doctor,
            options,
            timeout,
            |_| {},
        )?;
        let found = RUNGS.map(|(kind, rung, what)| {
            let mut rungs = ladder.of(kind).filter(|one| one.error.is_none());
            let found = rungs.find(|one| one.name == rung);
            let found = found.with_context(|| format!("the ladder has no {rung}"))?;
            Ok((what, found.mbit_s))
        });
        found.into_iter().collect()
    }

    fn doctor(&self, words: &str, rate: &'static str) -> Result<Found> {
        let server = network::server(self.ip);
        let words = format!("iperf3={server} time={} {words}", self.seconds);
        let timeout = PATIENCE + Duration::from_secs(self.seconds.into());
        let (lab, machine, doctor) = (self.lab, self.machine(), &self.doctor);
        let cable = Cable::open(self.network.cable()).context("looking for the machine's cable")?;
        let dropped = || {
            let told = cable.dropped();
            told.context("the machine's cable has no counters")
        };
        let before = dropped()?;
        let json = ladder::examine(lab, machine, doctor, (&words, "doctor"), timeout, |_| {})?;
        let without_room = dropped()?.saturating_sub(before);
        let mut report = Report::from_json(&json).context("the report on the serial port")?;
        if let Some(missing) = report.not_measured.first() {
            bail!("{}: {}", missing.check, missing.reason);
        }
        let test = report.throughput.pop().context("no test in the report")?;
        let stream = test.streams.first().context("a test without a stream")?;
        let mbit_s = |bytes: u64, seconds: f64| bytes as f64 * 8e-6 / seconds;
        let mut found = vec![match (&stream.datagrams, test.direction) {
            // The server is slower.
            (Some(_), Direction::Send) => (rate, mbit_s(stream.sent_bytes, stream.sent_s)),
            _ => (rate, test.bits_per_second() / 1e6),
        }];
        if let (Some(datagrams), Direction::Receive) = (&stream.datagrams, test.direction) {
            ensure!(datagrams.sent > 0, "the server says that it sent nothing");
            found.extend(losses(datagrams, without_room));
        }
        Ok(found)
    }

    fn linux(&self) -> Result<Found> {
        let ram_disk = self.lab.scratch().join("throughput-initramfs");
        let (server, seconds) = (network::server(self.ip), self.seconds);
        let script = format!(
            "/bin/busybox mkdir -p /tmp\n/bin/iperf3 -c {server} -R -t {seconds} -f k\necho tested"
        );
        linux::write_ram_disk(
            &ram_disk,
            &self.kernel,
            &with_prefix(GUEST),
            &["iperf3"],
            &script,
        )?;
        let mut machine = self.machine();
        machine.preallocate = true;
        machine.kernel = Some(DirectKernel {
            kernel: self.kernel.image.clone(),
            initrd: Some(ram_disk.clone()),
            command_line: "console=ttyS0 quiet".into(),
        });
        if let Some(card) = &mut machine.network {
            card.boot_index = None;
        }
        let mut running = machine.start(self.lab, "machine", |_| {})?;
        let end = Regex::new(r"([0-9.]+) Kbits/sec +receiver|\ntested")?;
        let timeout = PATIENCE + Duration::from_secs(self.seconds.into());
        let seen = running.console.wait_for(&end, timeout)?;
        let _ = fs::remove_file(ram_disk);
        let kbit_s = seen.groups.get(1).filter(|text| !text.is_empty());
        let kbit_s = kbit_s.with_context(|| running.console.tail(15))?;
        Ok(vec![(LINUX_RECEIVES, kbit_s.parse::<f64>()? / 1e3)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_cable_dropped_is_not_lost_behind_it() {
        let datagrams = Datagrams {
            sent: 1000,
            received: 700,
            lost: 290,
            ..Datagrams::default()
        };
        let shares = |without_room| {
            losses(&datagrams, without_room)
                .into_iter()
                .map(|(_, share)| share)
        };
        assert_eq!(Vec::from_iter(shares(300)), [30.0, 0.0]);
        assert_eq!(Vec::from_iter(shares(250)), [30.0, 5.0]);
        assert_eq!(Vec::from_iter(shares(320)), [30.0, -2.0]);
    }
}
