//! Boots through `wireboot nic run`: stock firmware's PXE, wireboot's driver, and the way between them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::NetworkOptions;
use wireboot_lab::nic::Nic;

use crate::scene::{Scene, expect, wireboot};

/// A scene whose machine has our card.
fn scene(lab: &Lab, megabytes: usize) -> Result<(Scene<'_>, Nic)> {
    let mut scene = Scene::on(lab, NetworkOptions::default(), megabytes)?;
    let nic = Nic::start(lab, lab.command(wireboot()?), &scene.network)?;
    nic.attach(&mut scene.machine)?;
    Ok((scene, nic))
}

fn counter(counters: &Value, name: &str) -> Result<u64> {
    let value = counters.get(name).and_then(Value::as_u64);
    value.with_context(|| format!("no {name} in {counters}"))
}

/// Twice, as a machine that is switched on again finds the same card.
pub(crate) fn by_pxe_twice(lab: &Lab) -> Result<()> {
    let (scene, nic) = scene(lab, 4)?;
    let _server = scene.serve(&[])?;
    for _ in 0..2 {
        scene.boots()?;
    }
    let log = nic.log();
    let monitors = log.matches("a monitor has connected").count();
    ensure!(monitors == 2, "{log}");
    ensure!(!log.contains("stopped"), "{log}");
    let counters = nic.end()?;
    let mut sent = 0;
    for file in ["linux", "system.cpio", "data.cpio"] {
        sent += std::fs::metadata(scene.system.directory.join(file))?.len();
    }
    let received = counter(&counters, "received_bytes")?;
    ensure!(received > 2 * sent, "{counters}");
    // The firmware gets frames, wireboot many segments at once: twice a frame's bytes are more than frames alone give.
    let units = counter(&counters, "received_units")?;
    ensure!(received > 3000 * units, "{counters}");
    for lost in [
        "send_lost",
        "send_bad_length",
        "receive_too_long",
        "receive_not_agreed",
        "dropped_fragments",
        "dropped_frames",
    ] {
        ensure!(counter(&counters, lost)? == 0, "{counters}");
    }
    Ok(())
}

/// Killed while files come, and started again at the same place: the download goes on.
pub(crate) fn card_restarts_in_mid_transfer(lab: &Lab) -> Result<()> {
    let (scene, nic) = scene(lab, 64)?;
    let _server = scene.serve(&[])?;
    let mut machine = scene.start()?;
    expect(&mut machine, r"wireboot: ready after \d+ ms")?;
    drop(nic);
    let nic = Nic::start(lab, lab.command(wireboot()?), &scene.network)?;
    scene.arrives(&mut machine)?;
    let counters = nic.end()?;
    ensure!(
        counter(&counters, "received_bytes")? > 1 << 20,
        "{counters}"
    );
    Ok(())
}
