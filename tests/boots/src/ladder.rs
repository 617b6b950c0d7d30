//! The machine that measures itself.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use wireboot_experiments::ladder::{self, Kind, Ladder};
use wireboot_lab::accel;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{Network, NetworkOptions};
use wireboot_lab::nic::Nic;
use wireboot_lab::qemu::Machine;

use crate::fixture::{doctor_program, wireboot};

/// For all of it: much longer than it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Little is measured: how high a figure is depends on the host.
pub(crate) const IN_SHORT: &str = "rounds=1 ms=100 file=8M.efi large=64M.efi";

/// Each rung has a figure.
pub(crate) fn every_rung_is_measured(lab: &Lab) -> Result<()> {
    let ladder = measured(lab, IpVersion::V4)?;
    has_figure(&ladder, Kind::Receive, "HTTP, ours")?;
    has_figure(&ladder, Kind::Receive, "firmware's HTTP")
}

/// The same on a network that has no IPv4.
pub(crate) fn every_rung_is_measured_over_ipv6(lab: &Lab) -> Result<()> {
    measured(lab, IpVersion::V6).map(drop)
}

/// Against the sender in our card, without a network of the host's.
pub(crate) fn the_card_sends(lab: &Lab) -> Result<()> {
    let root = lab.scratch().join("served");
    fs::create_dir(&root)?;
    fs::write(root.join("note"), "one file")?;
    let mut card = lab.command(&wireboot()?);
    card.args(["nic", "run", "--wire"])
        .arg(format!("serve={}", root.display()));
    let nic = Nic::launch(lab, card)?;
    let mut machine = Machine::new(accel::best(lab, false)?);
    machine.network = Some(Network::new(lab, NetworkOptions::default())?.card());
    nic.attach(&mut machine)?;
    let (ip, doctor) = (IpVersion::V4, doctor_program()?);
    let options = "rounds=1 ms=100 only=driver";
    let ladder = ladder::measure(lab, machine, ip, &doctor, options, PATIENCE, |_| {})?;
    for kind in [Kind::Receive, Kind::ReceiveSmall, Kind::Transmit] {
        has_figure(&ladder, kind, "driver")?;
    }
    // It sends what the machine has room for.
    let lost = ladder.of(Kind::Receive).map(|rung| rung.sample.lost);
    ensure!(lost.sum::<u64>() == 0, "{}", ladder.text());
    Ok(())
}

/// A ladder that has all rungs that there are over either version of IP.
fn measured(lab: &Lab, ip: IpVersion) -> Result<Ladder> {
    let network = Network::new(lab, NetworkOptions::of(ip))?;
    let mut machine = Machine::new(accel::best(lab, false)?);
    machine.network = Some(network.card());
    let doctor = doctor_program()?;
    let _counterpart = ladder::counterpart(lab, (&network, ip), (&wireboot()?, &doctor))?;
    let ladder = ladder::measure(lab, machine, ip, &doctor, IN_SHORT, PATIENCE, |_| {})?;
    for (kind, names) in [
        (
            Kind::Receive,
            &[
                "driver",
                "driver, copied",
                "wireboot UDP",
                "wireboot TFTP, one processor",
                "wireboot HTTP, one processor",
                "PXE base code, ours",
                "SNP, ours",
                "SNP",
                "wireboot TFTP over SNP",
                "wireboot HTTP over SNP",
                "wireboot TFTP, SNP relayed",
                "wireboot HTTP, SNP relayed",
                "MNP",
                "MNP without IP",
                "MNP without IP and ARP",
                "firmware's TFTP (PXE)",
                "wireboot TFTP",
                "wireboot HTTP",
            ][..],
        ),
        (
            Kind::ReceiveSmall,
            &[
                "driver",
                "wireboot UDP",
                "SNP, ours",
                "SNP",
                "MNP",
                "MNP without IP",
                "MNP without IP and ARP",
            ],
        ),
        (
            Kind::Transmit,
            &[
                "driver",
                "wireboot UDP",
                "wireboot TCP",
                "wireboot TCP, TSO",
                "SNP, ours",
                "SNP",
            ],
        ),
        (
            Kind::TransmitSmall,
            &["driver", "wireboot UDP", "SNP, ours", "SNP"],
        ),
        (
            Kind::Work,
            &[
                "nothing else",
                "beside wireboot TFTP",
                "beside wireboot HTTP",
            ],
        ),
        (Kind::Engine, &["1 of 1"]),
    ] {
        for name in names {
            has_figure(&ladder, kind, name)?;
        }
    }
    let receivers = |name| {
        let mut receiving = ladder.of(Kind::Receive);
        receiving.find(|rung| rung.name == name)?.sample.receivers
    };
    let [all, without_ip, none] =
        ["MNP", "MNP without IP", "MNP without IP and ARP"].map(receivers);
    ensure!(
        all > without_ip && without_ip > none && none == Some(0),
        "{all:?} receivers of MNP, {without_ip:?} without IP, {none:?} without ARP"
    );
    ensure!(ladder.as_found, "the network is not as it was found");
    let frames = |name| {
        let mut sending = ladder.of(Kind::Transmit);
        let rung = sending.find(|rung| rung.name == name);
        rung.map_or(0, |rung| rung.sample.packets)
    };
    let (single, cut) = (frames("wireboot TCP"), frames("wireboot TCP, TSO"));
    ensure!(
        single > 10 * cut,
        "{cut} units for the card to cut, and {single} frames where it cuts none"
    );
    Ok(ladder)
}

fn has_figure(ladder: &Ladder, kind: Kind, name: &str) -> Result<()> {
    let measured = ladder
        .of(kind)
        .any(|rung| rung.name == name && rung.mbit_s > 0.0 && rung.error.is_none());
    ensure!(
        measured,
        "{name} has no figure for {}:\n{}",
        kind.title(),
        ladder.text()
    );
    Ok(())
}
