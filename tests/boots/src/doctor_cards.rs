//! doctor.efi on machines whose first network card has no cable, and in a VLAN of the firmware's.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{INTERFACE, NetworkOptions, SERVER};
use wireboot_lab::qemu::RunningMachine;
use wireboot_lab::sender::Sender;
use wireboot_report::Report;

use crate::cards::{NOBODY, add_first_card, unplug_first_card};
use crate::doctor::{examination_of, has_all_frames, sole_report, told};
use crate::fixture::{Daemon, Fixture, MACHINE, PATIENCE, expect};

/// The card with the cable.
const CARD: &str = "52:54:00:77:00:02";

/// `net` finds the card that has a link, and the checks behind it take the same.
pub(crate) fn second_card_has_the_cable(lab: &Lab) -> Result<()> {
    let fixture = with_two_cards(lab, "net servers frames iperf3=10.77.0.1 time=3")?;
    let reports = lab.scratch().join("reports");
    let kept = reports.to_str().context("a path that is no text")?;
    // Such a server sends frames, too.
    let _server = fixture.serve(&["--reports", kept])?;
    let _iperf3 = serve_iperf3(lab)?;
    let report = told(&mut start(&fixture)?)?;
    let heard = report.surroundings.as_ref().context("nothing was heard")?;
    ensure!(heard.mac == CARD, "{heard:?}");
    ensure!(report.machine.mac == CARD, "{:?}", report.machine);
    was_answered(&report)?;
    has_all_frames(&report)
}

/// Without `net` before it, a check looks for that card itself.
pub(crate) fn servers_by_the_second_card(lab: &Lab) -> Result<()> {
    let fixture = with_two_cards(lab, "servers")?;
    let _server = fixture.serve(&[])?;
    let report = told(&mut start(&fixture)?)?;
    let [server] = &report.servers[..] else {
        bail!("{:?} {:?}", report.servers, report.not_measured);
    };
    ensure!(server.failure.is_none(), "{server:?}");
    ensure!(report.machine.mac == CARD, "{:?}", report.machine);
    Ok(())
}

/// So does the ladder.
pub(crate) fn ladder_by_the_second_card(lab: &Lab) -> Result<()> {
    let words = format!("ladder server={SERVER} rounds=1 ms=100 only=driver");
    let fixture = with_two_cards(lab, &words)?;
    let _server = fixture.serve(&[])?;
    let _sender = Sender::start(IpVersion::V4, INTERFACE)?;
    let figures = expect(&mut start(&fixture)?, r"ladder: \{.*\}\r?\n")?;
    let rung = r#"{"kind":"receive","name":"driver","error":null,"samples":[{"#;
    ensure!(figures.contains(rung), "{figures}");
    Ok(())
}

/// A machine that boots doctor.efi with these words from a stick. The first of its cards, in the order of PCI, is on no network.
fn with_two_cards<'lab>(lab: &'lab Lab, words: &str) -> Result<Fixture<'lab>> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_stick(&examination_of(lab, words)?)?;
    add_first_card(&mut fixture, NOBODY)?;
    Ok(fixture)
}

/// Switches it on, with that card's cable out.
fn start(fixture: &Fixture<'_>) -> Result<RunningMachine> {
    let mut machine = fixture.start()?;
    unplug_first_card(&mut machine)?;
    Ok(machine)
}

/// A server of the check `iperf3`, at its usual port.
fn serve_iperf3(lab: &Lab) -> Result<Daemon> {
    let mut command = lab.command("iperf3");
    command.arg("--server");
    Daemon::start(command)
}

/// The boot server answered, and iperf3's has got what was sent.
fn was_answered(report: &Report) -> Result<()> {
    let [server] = &report.servers[..] else {
        bail!("{:?} {:?}", report.servers, report.not_measured);
    };
    ensure!(
        server.failure.is_none() && server.path.is_some(),
        "{server:?}"
    );
    let [sent] = &report.throughput[..] else {
        bail!("{:?} {:?}", report.throughput, report.not_measured);
    };
    ensure!(sent.received_bytes() > 1 << 20, "{sent:?}");
    Ok(())
}

/// The firmware gets doctor.efi by PXE in VLAN 5, where its servers are: they are asked there, and get the report there.
pub(crate) fn in_the_firmwares_vlan(lab: &Lab) -> Result<()> {
    let options = NetworkOptions {
        vlan: Some(5),
        ..NetworkOptions::default()
    };
    let mut fixture = Fixture::on(lab, options, 1)?;
    put_into_vlan(&mut fixture)?;
    let reports = lab.scratch().join("reports");
    let kept = reports.to_str().context("a path that is no text")?;
    let words = "check net servers frames iperf3=10.77.0.1 time=3";
    let program = examination_of(lab, words)?;
    let _server = fixture.serve_program(&program, &["--reports", kept])?;
    let _iperf3 = serve_iperf3(lab)?;
    let mut machine = fixture.machine.start(lab, MACHINE, |_| {})?;
    for line in [
        r"doctor-check: net\r?\n",
        r"doctor-check: frames\r?\n",
        "wireboot: VLAN 5",
        r"wireboot: the report was sent to http://10\.77\.0\.1/report",
    ] {
        expect(&mut machine, line)?;
    }
    let report = sole_report(&reports)?;
    let heard = report.surroundings.as_ref().context("nothing was heard")?;
    let mut answered = heard.round_trips.iter();
    ensure!(
        answered.any(|one| !one.took_us.is_empty()),
        "{:?}",
        heard.round_trips
    );
    was_answered(&report)?;
    // Its frames would have no tag.
    let [frames] = &report.not_measured[..] else {
        bail!("{:?}", report.not_measured);
    };
    ensure!(
        frames.check == "frames" && frames.reason.contains("in VLAN 5"),
        "{frames:?}"
    );
    Ok(())
}

/// Where EDK II keeps a card's VLANs: in a variable that has the card's Ethernet address for a name, with 16 bits for each.
const VLAN_5: &str = "setvar 525400770002 -guid 9E23D768-D2F3-4366-9FC3-3A7ABA864374 -bs -nv =0500";

/// Has the machine's firmware boot over its network in VLAN 5 alone. The firmware's shell says so in a boot before.
fn put_into_vlan(fixture: &mut Fixture<'_>) -> Result<()> {
    let lab = fixture.lab;
    fixture.boot_from_disk("")?;
    let script = lab.scratch().join("esp/startup.nsh");
    fs::write(script, format!("{VLAN_5}\r\nreset -s\r\n"))?;
    let ended = fixture.start()?.wait(PATIENCE)?;
    ensure!(
        ended.is_some_and(|status| status.success()),
        "the shell has not switched the machine off: {ended:?}"
    );
    fixture.machine.keep_variables(lab, MACHINE)?;
    fixture.machine.disks.clear();
    fixture.machine.pxe_only(Some(IpVersion::V4));
    let card = fixture.machine.network.as_mut().context("a network card")?;
    card.boot_index = Some(1);
    Ok(())
}
