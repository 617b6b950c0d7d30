//! While a loader runs over wireboot's network, others get the card or try the handles, and the stock network comes back.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use wireboot_lab::embed;
use wireboot_lab::netns::Lab;
use wireboot_lab::packages::{self, Package};
use wireboot_lab::qemu::RunningMachine;
use wireboot_lab::server::Server;

use crate::callers::{self, FILE};
use crate::fixture::{Fixture, PATIENCE, callers_program, expect};
use crate::loaders::{ipxe, program, start, to_the_system};
use crate::{aftermath, firmware_drivers, system};

/// The firmware's shell as a program: that of Debian 12 is a part of OVMF.
const SHELL: &str = "efi-shell-x64";

/// Fetches the shell into the cache, unless it is there.
pub(crate) fn fetch() -> Result<()> {
    packages::fetch(&[SHELL], &["trixie"], Duration::MAX)
}

/// iPXE with drivers of its own takes the card from wireboot below it.
pub(crate) fn ipxe_by_its_own_driver_boots(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    let (mut machine, _server) = ipxe(&fixture, "ipxe.efi", OWN_DRIVER, &to_the_system())?;
    fixture.runs(&mut machine)
}

/// What iPXE says of a card that it drives itself.
const OWN_DRIVER: &str = "virtio-net";

/// The same, and it gives the card to the firmware's drivers when it ends.
pub(crate) fn ipxe_by_its_own_driver_exits(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let (mut machine, _server) = ipxe(&fixture, "ipxe.efi", OWN_DRIVER, "exit\n")?;
    expect(&mut machine, r"ipxe\.efi returned")?;
    has_the_network(&fixture, &mut machine)
}

/// The firmware's next boot option boots the system over its network.
fn has_the_network(fixture: &Fixture<'_>, machine: &mut RunningMachine) -> Result<()> {
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {}\n",
        system::OPTIONS
    ))?;
    fixture.goes_on(machine)?;
    expect(machine, "wireboot: ready")?;
    fixture.arrives(machine)
}

/// A program with jobs for the calls of loaders, over wireboot's network.
fn calls<'lab>(fixture: &Fixture<'lab>, jobs: &str) -> Result<(RunningMachine, Server)> {
    callers::prepare(fixture, jobs)?;
    fixture
        .system
        .configure("title callers\nefi tftp://10.77.0.1/callers.efi\n")?;
    let program = program(fixture, "")?;
    let server = fixture.serve_program(&program, &[])?;
    Ok((start(fixture)?, server))
}

/// A loader starts a program, which ends by Exit, and returns with everything open.
pub(crate) fn loader_leaves_all_open(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let directory = &fixture.system.directory;
    let inner = format!("openbsd {FILE}\nexit\n");
    embed::configuration(&callers_program()?, &inner, &directory.join("inner.efi"))?;
    let jobs = format!("start inner.efi\nleave-open {FILE}\n");
    let (mut machine, _server) = calls(&fixture, &jobs)?;
    callers::gets(&fixture, &mut machine, &["openbsd"])?;
    expect(
        &mut machine,
        r"callers: start inner\.efi: it ended with ABORTED",
    )?;
    callers::gets(&fixture, &mut machine, &["leave-open"])?;
    expect(&mut machine, "callers: done, 0 of 2 failed")?;
    expect(&mut machine, r"callers\.efi returned")?;
    has_the_network(&fixture, &mut machine)?;
    let answered = machine.console.seen(&Regex::new("a token was answered")?);
    ensure!(answered.is_none(), "a token of a loader that has returned");
    Ok(())
}

/// A card that the firmware drives by a driver of iPXE's, which takes a card from any driver. It must not while a loader runs over ours, whoever
/// connects controllers; and it gets the card when somebody disconnects ours.
pub(crate) fn card_is_kept_until_it_is_disconnected(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    firmware_drivers::plug_in(&mut fixture, "e1000", "efi-e1000.rom")?;
    let jobs = format!("connect {FILE}\ndisconnect {FILE}\n");
    let (mut machine, _server) = calls(&fixture, &jobs)?;
    callers::gets(&fixture, &mut machine, &["connect"])?;
    callers::gets(&fixture, &mut machine, &["disconnect"])?;
    expect(&mut machine, "callers: done, 0 of 2 failed")?;
    expect(&mut machine, r"callers\.efi returned")?;
    // In any order, and told by now: a line of the engine's may be late, and on a busy host the network may have given the host that is not
    // there up before.
    for said in [
        "wireboot: another program gets the network card",
        "callers: disconnect: the card is free",
    ] {
        let said = Regex::new(said)?;
        ensure!(machine.console.seen(&said).is_some(), "no line {said}");
    }
    // The request's, and that for the response.
    let answered = Regex::new(r"callers: a token was answered: (\S+)")?;
    let answers = machine.console.all(&answered);
    ensure!(
        answers.len() == 2 && !answers.iter().any(|seen| seen.text.contains("SUCCESS")),
        "the tokens were answered by {answers:?}\n{}",
        machine.console.tail(25)
    );
    fixture.goes_on(&mut machine)
}

/// ESXi's order at the end: drivers off the interface, DMA off, boot services ended. The device is reset all the same.
pub(crate) fn handed_over_without_dma(lab: &Lab) -> Result<()> {
    let fixture = traced(lab)?;
    let (mut machine, _server) = calls(&fixture, &format!("hand-over {FILE}\n"))?;
    callers::gets(&fixture, &mut machine, &["hand-over"])?;
    expect(&mut machine, "callers: hand-over: DMA is off")?;
    let last = last_status(&mut machine)?;
    ensure!(last == 0, "the device was left with status {last}");
    Ok(())
}

/// A callback of the loader's ends boot services in the middle of a call. The network cannot be asked to stop there, and the device's DMA
/// is turned off all the same: QEMU takes `DRIVER_OK` from its status then.
pub(crate) fn ends_in_the_middle_of_a_call(lab: &Lab) -> Result<()> {
    let fixture = traced(lab)?;
    let (mut machine, _server) = calls(&fixture, &format!("end-within {FILE}\n"))?;
    expect(&mut machine, "callers: end-within: in the middle of a call")?;
    let last = last_status(&mut machine)?;
    ensure!(
        last & aftermath::DRIVER_OK == 0,
        "the device was left with status {last}"
    );
    Ok(())
}

/// A machine that traces the status of its network card, which is its only virtio device.
fn traced(lab: &Lab) -> Result<Fixture<'_>> {
    let mut fixture = Fixture::new(lab)?.by_stick()?;
    fixture.machine.entropy = false;
    fixture.machine.trace = vec!["virtio_set_status".to_owned()];
    Ok(fixture)
}

/// The card's last status, once the machine has switched itself off.
fn last_status(machine: &mut RunningMachine) -> Result<u64> {
    let status = machine.wait(PATIENCE)?;
    ensure!(
        status.is_some_and(|status| status.success()),
        "boot services do not end"
    );
    let last = aftermath::statuses(machine).last().copied();
    let (_, last) = last.context("nobody drove the device")?;
    Ok(last)
}

/// Types a command for the shell, which tells this.
fn tells(machine: &mut RunningMachine, command: &str, told: &[&str]) -> Result<String> {
    machine.console.send(&format!("{command}\r"))?;
    let mut last = String::new();
    for told in told {
        last = expect(machine, told)?;
    }
    expect(machine, "Shell> ")?;
    Ok(last)
}

/// The firmware's shell finds our handles as the firmware's own are, connects and disconnects what there is, and then all that there is: that
/// takes the card from us. The firmware's drivers have it when the shell ends.
pub(crate) fn shell_reconnects(lab: &Lab) -> Result<()> {
    // What the shell lists of the card's handle: no protocol of the firmware's.
    const OURS: &str =
        r"[0-9A-F]+: SimpleNetwork DevicePath\S+ Ip6Config IPv4Config2 HttpServiceBinding\s*[\r\n]";
    let fixture = Fixture::new(lab)?;
    let shell = Package::fetched(SHELL)?.file(&["usr/share/efi-shell-x64/shellx64.efi"])?;
    fs::copy(shell, fixture.system.directory.join("shell.efi"))?;
    fixture
        .system
        .configure("title shell\nefi tftp://10.77.0.1/shell.efi\noptions -nostartup -nomap\n")?;
    let program = program(&fixture, "")?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = start(&fixture)?;
    expect(&mut machine, "Shell> ")?;
    let tree = [
        r"(?m)^ {3}Ctrl\[\w+\] \S*/Pci\(0x3,0x0\)",
        r"(?m)^ {5}Ctrl\[\w+\] \S*/MAC\(525400770002,0x1\)",
        r"(?m)^ {7}Ctrl\[\w+\] \S*/IPv4\(",
    ];
    tells(&mut machine, "devtree", &tree)?;
    tells(&mut machine, "connect -r", &["Result Success"])?;
    let ours = tells(&mut machine, "dh -p SimpleNetwork", &[OURS])?;
    let (handle, _) = ours.split_once(':').context("a handle")?;
    let disconnected = format!(r"Disconnect - \({handle},00,00\) Result Success");
    tells(
        &mut machine,
        &format!("disconnect {handle}"),
        &[&disconnected],
    )?;
    tells(
        &mut machine,
        "dh -p SimpleNetwork",
        &[&format!("{handle}: SimpleNetwork"), "PXEBaseCode"],
    )?;
    let gone = "wireboot: another program gets the network card";
    tells(&mut machine, "reconnect -r", &[gone, "Result Success"])?;
    tells(
        &mut machine,
        "dh -p ManagedNetworkServiceBinding",
        &[r"[0-9A-F]+: .*HttpServiceBinding"],
    )?;
    machine.console.send("exit\r")?;
    expect(&mut machine, r"shell\.efi returned")?;
    has_the_network(&fixture, &mut machine)
}
