//! One boot, and what it brought.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::iperf3::Iperf3;
use crate::ladder;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{self, Network, NetworkOptions};
use wireboot_lab::qemu::{Accelerator, Machine};
use wireboot_lab::server::{Server, advertise};
use wireboot_report::Report;
use wireboot_report::throughput::Throughput;

/// For a boot and all its tests, of two seconds each.
const PATIENCE: Duration = Duration::from_secs(400);
/// The ROM with a driver for UEFI, of Debian's package ipxe-qemu.
const E1000_ROM: &str = "/usr/lib/ipxe/qemu/efi-e1000.rom";

/// What is measured of each card and driver.
pub(super) const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

/// A card and who drives it.
#[derive(Debug)]
pub(super) struct Setup {
    /// As the table names it.
    pub name: &'static str,
    /// What QEMU calls the card.
    model: &'static str,
    rom: Option<&'static str>,
    /// doctor.efi's word for the driver.
    driver: &'static str,
    pub mtu: u16,
}

/// All cards and drivers of a round.
pub(super) const SETUPS: [Setup; 6] = [
    Setup {
        name: "virtio-net, wireboot's driver",
        model: "virtio-net-pci",
        rom: None,
        driver: "",
        mtu: 1500,
    },
    Setup {
        name: "virtio-net, SNP",
        model: "virtio-net-pci",
        rom: None,
        driver: "driver=snp",
        mtu: 1500,
    },
    Setup {
        name: "virtio-net, wireboot's driver, MTU 9000",
        model: "virtio-net-pci",
        rom: None,
        driver: "",
        mtu: 9000,
    },
    Setup {
        name: "e1000, wireboot's driver",
        model: "e1000",
        rom: None,
        driver: "",
        mtu: 1500,
    },
    Setup {
        name: "e1000, UNDI",
        model: "e1000",
        rom: Some(E1000_ROM),
        driver: "driver=undi",
        mtu: 1500,
    },
    Setup {
        name: "e1000, SNP",
        model: "e1000",
        rom: Some(E1000_ROM),
        driver: "driver=snp",
        mtu: 1500,
    },
];

/// The programs and the guest that each boot takes.
pub(super) struct TtcpTestbed<'a> {
    pub lab: &'a Lab,
    pub accelerator: Accelerator,
    /// The wireboot command, whose server gives the machine its address.
    pub command: PathBuf,
    pub doctor: PathBuf,
}

impl TtcpTestbed<'_> {
    /// Makes one boot, on a network of its own and with an iperf3 server of its own.
    ///
    /// # Errors
    /// When the machine does not give all figures.
    pub(super) fn measure(&self, setup: &Setup, ip: IpVersion) -> Result<Vec<Throughput>> {
        let options = NetworkOptions {
            mtu: setup.mtu,
            ..NetworkOptions::of(ip)
        };
        let network = Network::new(self.lab, options)?;
        let _iperf3 = Iperf3::start(self.lab)?;
        let root = self.lab.scratch().join("ttcp-files");
        fs::create_dir_all(&root).context("making a directory")?;
        let command = self.lab.command(&self.command);
        let more = advertise(ip);
        let _server = Server::start(self.lab, command, &root, &self.doctor, more.as_slice())?;
        let mut card = network.card();
        card.model = setup.model.to_owned();
        card.rom = setup.rom.map(PathBuf::from);
        if setup.mtu != 1500 {
            card.properties.push(format!("host_mtu={}", setup.mtu));
        }
        let mut machine = Machine::new(self.accelerator);
        machine.network = Some(card);
        let words = format!("ttcp={} {}", network::server(ip), setup.driver);
        let what = (words.as_str(), "doctor");
        let json = ladder::examine(self.lab, machine, &self.doctor, what, PATIENCE, |_| {})?;
        let report = Report::from_json(&json).context("the report on the serial port")?;
        if let Some(missing) = report.not_measured.first() {
            bail!("{}: {}", missing.check, missing.reason);
        }
        ensure!(!report.throughput.is_empty(), "no test in the report");
        Ok(report.throughput)
    }
}
