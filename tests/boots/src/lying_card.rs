//! Boots over a card that does wrong on purpose, or is as slow as a model says.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use regex::Regex;
use serde_json::Value;
use wireboot_host_card::scribble_at;
use wireboot_lab::embed;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::NetworkOptions;
use wireboot_lab::nic::Nic;
use wireboot_lab::qemu::RunningMachine;

use crate::fixture::{Fixture, PATIENCE, boot_program, expect, wireboot};

/// wireboot comes from a stick, the rest from a server in the card with these arguments.
fn fixture<'lab>(lab: &'lab Lab, megabytes: usize, more: &[&str]) -> Result<(Fixture<'lab>, Nic)> {
    let mut fixture = Fixture::on(lab, NetworkOptions::default(), megabytes)?;
    let program = fixture.system.directory.join("wireboot.efi");
    // Of a card that says nothing it does not know whether it is the server that is silent.
    embed::configuration(&boot_program()?, "patience 10\n", &program)?;
    fixture.boot_from_stick(&program)?;
    let mut program = lab.command(wireboot()?);
    program
        .args(["nic", "serve"])
        .arg(&fixture.system.directory)
        .args(more);
    let nic = Nic::launch(lab, program)?;
    nic.attach(&mut fixture.machine)?;
    Ok((fixture, nic))
}

/// What became of a boot.
#[derive(Debug)]
enum BootOutcome {
    /// The system has started, and found each byte of its data.
    Arrived,
    /// wireboot has told why not, and the firmware went on.
    GaveUp,
}

fn end(fixture: &Fixture<'_>, machine: &mut RunningMachine) -> Result<BootOutcome> {
    let either = Regex::new(
        "boots: sha256 [0-9a-f]{64}|wireboot: the firmware goes on with its next boot option",
    )?;
    let text = machine.console.wait_for(&either, PATIENCE)?.text;
    if text.contains("the firmware goes on") {
        return Ok(BootOutcome::GaveUp);
    }
    ensure!(
        text.contains(&fixture.system.sha256),
        "a wrong byte: {text}"
    );
    Ok(BootOutcome::Arrived)
}

/// Neither hangs, and none passes a wrong byte.
pub(crate) fn lies(lab: &Lab) -> Result<()> {
    for (fault, arrives) in [
        ("used-index", None),
        ("foreign-buffer", Some(false)),
        ("buffer-count", Some(false)),
        ("late", Some(true)),
        ("silence", Some(false)),
    ] {
        // With placement, files take too few buffers for each fault to come.
        let (fixture, nic) = fixture(lab, 4, &["--fault", fault, "--placement", "none"])?;
        let mut machine = fixture.start()?;
        let end = end(&fixture, &mut machine).with_context(|| format!("--fault {fault}"))?;
        let as_expected =
            arrives.is_none_or(|arrives| arrives == matches!(end, BootOutcome::Arrived));
        ensure!(as_expected, "--fault {fault}: {end:?}\n{}", nic.log());
        drop(machine);
    }
    Ok(())
}

/// What the bus does in a second is the most that comes, however fast the computer is.
pub(crate) fn slow(lab: &Lab) -> Result<()> {
    let pace = ["--bus", "pci32-33", "--line", "1g"];
    let (fixture, nic) = fixture(lab, 32, &pace)?;
    let mut machine = fixture.start()?;
    let text = expect(
        &mut machine,
        r"wireboot: \S+data\.cpio: \d+ bytes in [0-9.]+ s, \d+ Mbit/s",
    )?;
    let rate = Regex::new(r"(\d+) Mbit/s")?
        .captures(&text)
        .context("a rate")?;
    let rate: u32 = rate.get(1).context("a rate")?.as_str().parse()?;
    ensure!(rate <= 1000, "faster than the line: {text}");
    fixture.runs(&mut machine)?;
    nic.end().map(drop)
}

/// Two guests of one card. One breaks its rings again and again while the other boots: the boot arrives, and the card tells of the first one alone,
/// once of each kind of fault.
pub(crate) fn beside_a_hostile_guest(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?.by_stick()?;
    let socket = lab.scratch().join("hostile");
    let mut program = lab.command(wireboot()?);
    program
        .args(["nic", "serve"])
        .arg(&fixture.system.directory);
    program.arg("--socket").arg(&socket);
    let nic = Nic::launch(lab, program)?;
    nic.attach(&mut fixture.machine)?;
    let arrived = AtomicBool::new(false);
    thread::scope(|scope| {
        let hostile = scope.spawn(|| {
            scribble_at(&socket, || {
                // The processors are the machine's.
                thread::sleep(Duration::from_millis(50));
                !arrived.load(Relaxed)
            })
        });
        let boot = fixture.boots();
        arrived.store(true, Relaxed);
        let scribbled = hostile
            .join()
            .map_err(|_| anyhow!("the hostile guest panicked"))?;
        boot.and(scribbled)
    })?;
    let log = nic.log();
    let counters = nic.end()?;
    let ports = counters.get("ports").and_then(Value::as_array);
    let stopped = |port: usize| -> Result<Vec<&str>> {
        let port = ports.and_then(|ports| ports.get(port)).context("a port")?;
        let reasons = port.get("stopped").and_then(Value::as_array);
        let reasons = reasons.context("queues stopped")?.iter();
        reasons
            .map(|one| {
                one.get("reason")
                    .and_then(Value::as_str)
                    .context("a reason")
            })
            .collect()
    };
    let kinds = stopped(0)?;
    ensure!(kinds.len() > 2, "the rings were hardly broken: {counters}");
    ensure!(stopped(1)?.is_empty(), "the other guest's were: {counters}");
    let told = log.matches("queue is stopped").count();
    ensure!(told == kinds.len(), "not once of each kind:\n{log}");
    for kind in kinds {
        let line = Regex::new(&format!(
            "{}: the guest's \\w+ queue is stopped [^\n]*: {}\n",
            regex::escape(&socket.display().to_string()),
            regex::escape(kind)
        ))?;
        ensure!(line.is_match(&log), "{kind} is not told:\n{log}");
    }
    Ok(())
}
