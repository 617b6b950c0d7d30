//! Machines with two network cards, the first of them on a network that has no server, or with other cards than virtio's.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde_json::json;
use wireboot_lab::embed;
use wireboot_lab::netns::{Lab, tool};
use wireboot_lab::network::NetworkOptions;
use wireboot_lab::qemu::{Disk, RunningMachine};
use wireboot_lab::server::{Server, ServerEvent};

use crate::fixture::{Fixture, PATIENCE, boot_program, expect};
use crate::system;

/// QEMU's network that nobody is on.
pub(crate) const NOBODY: &str = "hubport,hubid=0";
/// Its network with a DHCP server and nothing else.
const ELSEWHERE: &str = "user,restrict=on";

/// A card on a network of QEMU's own, before the one with the server in the order of PCI.
pub(crate) fn add_first_card(fixture: &mut Fixture<'_>, netdev: &str) -> Result<()> {
    let netdev = format!("{netdev},id=first");
    let arguments = [
        "-netdev",
        netdev.as_str(),
        "-device",
        "virtio-net-pci,netdev=first,mac=52:54:00:77:00:03,romfile=,addr=0x8",
    ];
    fixture.machine.extra.extend(arguments.map(Into::into));
    let card = fixture.machine.network.as_mut().context("a network card")?;
    card.properties.push("addr=0x9".to_owned());
    Ok(())
}

/// Pulls that card's cable.
pub(crate) fn unplug_first_card(machine: &mut RunningMachine) -> Result<()> {
    let link = json!({ "name": "first", "up": false });
    machine.ask("set_link", link).map(drop)
}

pub(crate) fn booted_from_the_second_card(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    add_first_card(&mut fixture, NOBODY)?;
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    fixture.fetches().map(drop)
}

pub(crate) fn first_card_without_link(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_stick(&boot_program()?)?;
    add_first_card(&mut fixture, NOBODY)?;
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    unplug_first_card(&mut machine)?;
    expect(&mut machine, "wireboot: .*no link")?;
    fixture.fetched_right(&mut machine)
}

/// What is said of the only card, when it has had no link for a while.
const WAITS: &str = r"wireboot: no link yet on .*; waiting 50 s for it \(Esc leaves\)";

/// Some switches let nothing through for long.
pub(crate) fn link_comes_late(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_stick(&boot_program()?)?;
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    machine.set_link(false)?;
    expect(&mut machine, WAITS)?;
    // Longer than the link of one card among several is waited for at first.
    std::thread::sleep(Duration::from_secs(6));
    machine.set_link(true)?;
    fixture.fetched_right(&mut machine)
}

/// The link of a card that the firmware has used is down when ours has started it, and then the switch's port lets nothing through (spanning tree):
/// DHCP is asked all the same, for longer than where the link stays up.
pub(crate) fn link_falls_at_our_start(lab: &Lab) -> Result<()> {
    let options = NetworkOptions {
        bridge: true,
        ..NetworkOptions::default()
    };
    let fixture = Fixture::on(lab, options, 1)?;
    fixture.system.check("data.cpio")?;
    let mut server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    let program_came = |event: &ServerEvent| event.event == "tftp-done";
    let deadline = Instant::now() + PATIENCE;
    while !server.events()?.iter().any(program_came) {
        ensure!(Instant::now() < deadline, "{}", server.tail());
        std::thread::sleep(Duration::from_millis(2));
    }
    machine.set_link(false)?;
    expect(&mut machine, WAITS)?;
    let cable = fixture.network.cable();
    let port = |state| {
        tool(
            "ip",
            ["link", "set", cable, "type", "bridge_slave", "state", state],
        )
    };
    // A bridge without a spanning tree does not move a port out of the learning state.
    port("2")?;
    machine.set_link(true)?;
    std::thread::sleep(Duration::from_secs(8));
    port("3")?;
    expect(&mut machine, r"wireboot: address \S+ \(DHCP\)")?;
    fixture.fetched_right(&mut machine)
}

/// Esc leaves that wait. The firmware's next boot option is another stick with wireboot.efi, which has the cable back.
pub(crate) fn esc_leaves_the_wait_for_a_link(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    let program = boot_program()?;
    fixture.boot_from_stick(&program)?;
    let next = lab.scratch().join("next");
    let directory = next.join("EFI/BOOT");
    fs::create_dir_all(&directory)?;
    fs::copy(&program, directory.join("BOOTX64.EFI"))?;
    fixture.machine.disks.push(Disk::Directory {
        path: next,
        boot_index: Some(2),
    });
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    machine.set_link(false)?;
    let console = &mut machine.console;
    let began = console.wait_for(&Regex::new(WAITS)?, PATIENCE)?.time;
    // On the machine's own keyboard.
    machine.press(&["esc"])?;
    let left = Regex::new("wireboot: error: stopped by Esc")?;
    let left = machine.console.wait_for(&left, PATIENCE)?.time;
    let waited = left - began;
    ensure!(waited < 25.0, "it waited for another {waited:.1} s");
    fixture.fails(&mut machine, &[])?;
    expect(&mut machine, WAITS)?;
    machine.set_link(true)?;
    fixture.fetched_right(&mut machine)
}

/// A boot over one of Intel's cards by wireboot's driver, where the firmware takes part by iPXE's from the card's ROM: the
/// data comes by TFTP and the rest by HTTP.
fn over_an_intel_card(mut fixture: Fixture<'_>, model: &str, rom: &str, id: &str) -> Result<()> {
    let card = fixture.machine.network.as_mut().context("a network card")?;
    card.model = model.to_owned();
    card.rom = Some(Path::new("/usr/lib/ipxe/qemu").join(rom));
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd tftp://10.77.0.1/data.cpio\noptions {}\n",
        system::OPTIONS
    ))?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(
        &mut machine,
        &format!(r"wireboot: PCI device \S+ \({id}\), 52:54:00:77:00:02, driven by e1000e"),
    )?;
    expect(&mut machine, r"wireboot: ready after \d+ ms")?;
    fixture.arrives(&mut machine)
}

pub(crate) fn over_an_82574l(lab: &Lab) -> Result<()> {
    over_an_intel_card(Fixture::new(lab)?, "e1000e", "efi-e1000e.rom", "8086:10d3")
}

pub(crate) fn over_an_82540em(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    over_an_intel_card(fixture, "e1000", "efi-e1000.rom", "8086:100e")
}

/// A card older than our driver understands, which the firmware's does.
pub(crate) fn over_a_legacy_virtio_card(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?.by_stick()?;
    let card = fixture.machine.network.as_mut().context("a network card")?;
    card.properties
        .extend(["disable-modern=on", "disable-legacy=off"].map(str::to_owned));
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(
        &mut machine,
        "wireboot: warning: .*; going on with the firmware's driver",
    )?;
    expect(
        &mut machine,
        "wireboot: .*52:54:00:77:00:02, driven by the firmware's driver",
    )?;
    fixture.arrives(&mut machine)
}

/// The first card's network has a link, but nobody who gives addresses.
pub(crate) fn first_card_without_server(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_stick(&boot_program()?)?;
    add_first_card(&mut fixture, NOBODY)?;
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: .*52:54:00:77:00:03")?;
    expect(&mut machine, "wireboot: warning: no DHCP server answered")?;
    expect(
        &mut machine,
        "wireboot: going on with the next network card",
    )?;
    expect(&mut machine, "wireboot: .*52:54:00:77:00:02")?;
    fixture.fetched_right(&mut machine)
}

/// The first card's network gives addresses, and does not lead to the server: what the load options name comes by the second.
pub(crate) fn first_card_leads_elsewhere(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_disk("http://10.77.0.1/wireboot.conf")?;
    add_first_card(&mut fixture, ELSEWHERE)?;
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    let mut machine = goes_on_with_the_second_card(&fixture)?;
    fixture.fetched_right(&mut machine)
}

/// The same for an embedded configuration.
pub(crate) fn embedded_first_card_leads_elsewhere(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    // Beside the default's program, which comes first of all, another may be chosen.
    let entry = |title, program, more| {
        format!(
            "title {title}\nlinux http://10.77.0.1/{program}\ninitrd http://10.77.0.1/system.cpio\n\
             initrd http://10.77.0.1/data.cpio\noptions {}\n{more}",
            system::OPTIONS
        )
    };
    let text = [
        "timeout 60\nreport http://10.77.0.1/of-all\n".to_owned(),
        entry("Default", "linux", ""),
        entry("Other", "other", "report http://10.77.0.1/of-one\n"),
    ];
    let directory = &fixture.system.directory;
    fs::copy(directory.join("linux"), directory.join("other"))?;
    let (_server, mut machine) = chooses_another(&mut fixture, &text.concat())?;
    // What the entry says goes before what the configuration says.
    for text in [
        r#"wireboot: booting "Other""#,
        r"wireboot: http://10\.77\.0\.1/other: \d+ bytes",
        r"wireboot: .*http://10\.77\.0\.1/of-one",
    ] {
        expect(&mut machine, text)?;
    }
    fixture.runs(&mut machine)
}

/// The default's program comes by no card, and the first leads as far as the second: another entry comes by the second.
pub(crate) fn embedded_default_is_gone(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    // Nobody listens at that port.
    let text = format!(
        "timeout 60\ntitle Default\nlinux http://10.77.0.1:81/linux\n\
         title Other\nlinux http://10.77.0.1/linux\ninitrd http://10.77.0.1/system.cpio\n\
         initrd http://10.77.0.1/data.cpio\noptions {}\n",
        system::OPTIONS
    );
    let (_server, mut machine) = chooses_another(&mut fixture, &text)?;
    for text in [
        "wireboot: going on with the next network card",
        r"wireboot: http://10\.77\.0\.1/linux: \d+ bytes",
        r#"wireboot: booting "Other""#,
        "wireboot: starting linux",
    ] {
        expect(&mut machine, text)?;
    }
    Ok(())
}

/// By an embedded configuration, of whose two entries the second is chosen after the first card was in vain.
fn chooses_another(
    fixture: &mut Fixture<'_>,
    configuration: &str,
) -> Result<(Server, RunningMachine)> {
    let program = fixture.lab.scratch().join("embedded.efi");
    embed::configuration(&boot_program()?, configuration, &program)?;
    fixture.boot_from_stick(&program)?;
    add_first_card(fixture, ELSEWHERE)?;
    let server = fixture.serve(&[])?;
    let mut machine = goes_on_with_the_second_card(fixture)?;
    expect(&mut machine, r"wireboot: 1 Default in \d+ s")?;
    machine.console.send("2")?;
    Ok((server, machine))
}

fn goes_on_with_the_second_card(fixture: &Fixture<'_>) -> Result<RunningMachine> {
    let mut machine = fixture.start()?;
    expect(&mut machine, r"wireboot: address 10\.0\.2\.15/24 \(DHCP\)")?;
    expect(
        &mut machine,
        "wireboot: going on with the next network card",
    )?;
    Ok(machine)
}

/// The server is in VLAN 5.
fn tagged(lab: &Lab) -> Result<Fixture<'_>> {
    let options = NetworkOptions {
        vlan: Some(5),
        ..NetworkOptions::default()
    };
    Fixture::on(lab, options, 1)
}

/// The data by TFTP, the rest by HTTP, all of it with the tag.
fn fetches_tagged(fixture: &Fixture<'_>) -> Result<()> {
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd tftp://10.77.0.1/data.cpio\noptions {}\n",
        system::OPTIONS
    ))?;
    fixture.system.check("tftp://10.77.0.1/data.cpio")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: VLAN 5")?;
    fixture.fetched_right(&mut machine)
}

/// The load options name the VLAN.
pub(crate) fn in_a_vlan(lab: &Lab) -> Result<()> {
    let mut fixture = tagged(lab)?;
    fixture.boot_from_disk("vlan=5 http://10.77.0.1/wireboot.conf")?;
    fetches_tagged(&fixture)
}

/// The stick's wireboot.efi has the VLAN in it; where the configuration is, the network's server says.
pub(crate) fn in_an_embedded_vlan(lab: &Lab) -> Result<()> {
    let mut fixture = tagged(lab)?;
    let program = fixture.lab.scratch().join("tagged.efi");
    embed::configuration(&boot_program()?, "vlan 5\n", &program)?;
    fixture.boot_from_stick(&program)?;
    fetches_tagged(&fixture)
}
