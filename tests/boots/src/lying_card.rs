//! Boots over a card that does wrong on purpose, or is as slow as a model says.

use anyhow::{Context, Result, ensure};
use regex::Regex;
use wireboot_lab::embed;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::NetworkOptions;
use wireboot_lab::nic::Nic;
use wireboot_lab::qemu::RunningMachine;

use crate::scene::{PATIENCE, Scene, boot_program, expect, wireboot};

/// wireboot comes from a stick, the rest from a server in the card with these arguments.
fn scene<'lab>(lab: &'lab Lab, megabytes: usize, more: &[&str]) -> Result<(Scene<'lab>, Nic)> {
    let mut scene = Scene::on(lab, NetworkOptions::default(), megabytes)?;
    let program = scene.system.directory.join("wireboot.efi");
    // Of a card that says nothing it does not know whether it is the server that is silent.
    embed::configuration(&boot_program()?, "patience 10\n", &program)?;
    scene.boot_from_stick(&program)?;
    let mut program = lab.command(wireboot()?);
    program
        .args(["nic", "serve"])
        .arg(&scene.system.directory)
        .args(more);
    let nic = Nic::launch(lab, program)?;
    nic.attach(&mut scene.machine)?;
    Ok((scene, nic))
}

/// What became of a boot.
#[derive(Debug)]
enum End {
    /// The system has started, and found each byte of its data.
    Arrived,
    /// wireboot has told why not, and the firmware went on.
    GaveUp,
}

fn end(scene: &Scene<'_>, machine: &mut RunningMachine) -> Result<End> {
    let either = Regex::new(
        "boots: sha256 [0-9a-f]{64}|wireboot: the firmware goes on with its next boot option",
    )?;
    let text = machine.console.wait_for(&either, PATIENCE)?.text;
    if text.contains("the firmware goes on") {
        return Ok(End::GaveUp);
    }
    ensure!(text.contains(&scene.system.sha256), "a wrong byte: {text}");
    Ok(End::Arrived)
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
        let (scene, nic) = scene(lab, 4, &["--fault", fault])?;
        let mut machine = scene.start()?;
        let end = end(&scene, &mut machine).with_context(|| format!("--fault {fault}"))?;
        let as_expected = arrives.is_none_or(|arrives| arrives == matches!(end, End::Arrived));
        ensure!(as_expected, "--fault {fault}: {end:?}\n{}", nic.log());
        drop(machine);
    }
    Ok(())
}

/// What the bus does in a second is the most that comes, however fast the computer is.
pub(crate) fn slow(lab: &Lab) -> Result<()> {
    let pace = ["--bus", "pci32-33", "--line", "1g"];
    let (scene, nic) = scene(lab, 32, &pace)?;
    let mut machine = scene.start()?;
    let text = expect(
        &mut machine,
        r"wireboot: \S+data\.cpio: \d+ bytes in [0-9.]+ s, \d+ Mbit/s",
    )?;
    let rate = Regex::new(r"(\d+) Mbit/s")?
        .captures(&text)
        .context("a rate")?;
    let rate: u32 = rate.get(1).context("a rate")?.as_str().parse()?;
    ensure!(rate <= 1000, "faster than the line: {text}");
    scene.runs(&mut machine)?;
    nic.end().map(drop)
}
