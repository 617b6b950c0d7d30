//! What wireboot leaves behind: nothing.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use wireboot_lab::netns::Lab;

use crate::scene::{Scene, expect};
use crate::system;

/// After a boot by PXE that failed, the firmware's own HTTP Boot works over the same network card.
pub fn next_boot_option_has_the_network(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    let _server = scene.serve(&[])?;
    scene
        .system
        .configure("title Test system\nlinux no-such-kernel\n")?;
    let mut machine = scene.start()?;
    expect(&mut machine, "wireboot: ready")?;
    scene.fails(&mut machine, &["404"])?;
    // Now it will find what it needs, if the firmware has its network card back.
    scene.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {}\n",
        system::OPTIONS
    ))?;
    scene.goes_on(&mut machine)?;
    expect(&mut machine, "wireboot: ready")?;
    scene.arrives(&mut machine)
}

/// virtio 1.2, 2.1: the driver has set itself up.
const DRIVER_OK: u64 = 4;

/// The device is reset when boot services end, before the kernel runs, and nobody wakes it: the kernel has no driver for it.
pub fn exit_boot_services_resets_the_device(lab: &Lab) -> Result<()> {
    let mut scene = Scene::new(lab)?;
    // The network card is then the only virtio device.
    scene.machine.entropy = false;
    scene.machine.trace = vec!["virtio_set_status".to_owned()];
    let _server = scene.serve(&[])?;
    scene.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {} stay\n",
        system::OPTIONS.replace("loglevel=4", "loglevel=7")
    ))?;
    let mut machine = scene.start()?;
    expect(&mut machine, "wireboot: starting linux")?;
    expect(&mut machine, "Linux version")?;
    let kernel = machine
        .console
        .seen(&regex::Regex::new("Linux version")?)
        .context("the kernel's first words")?
        .time;
    expect(
        &mut machine,
        &format!("boots: sha256 {}", scene.system.sha256),
    )?;

    let statuses: Vec<(f64, u64)> = machine
        .trace()
        .into_iter()
        .filter(|event| event.name == "virtio_set_status")
        .filter_map(|event| {
            Some((
                event.time,
                event.arguments.rsplit(' ').next()?.parse().ok()?,
            ))
        })
        .collect();
    let last_driver = statuses
        .iter()
        .rposition(|(_, status)| status & DRIVER_OK != 0)
        .context("nobody drove the device")?;
    let after = statuses.get(last_driver + 1..).unwrap_or_default();
    ensure!(!after.is_empty(), "the device was left running");
    ensure!(
        after.iter().all(|(_, status)| *status == 0),
        "someone woke the device: {after:?}"
    );
    ensure!(
        after.first().is_some_and(|(time, _)| *time < kernel),
        "the kernel ran before the device was reset"
    );

    // What the device itself says now. QEMU calls it by its place in the tree.
    let answer = machine.ask(
        "x-query-virtio-status",
        json!({ "path": "/machine/peripheral/nic0/virtio-backend" }),
    )?;
    ensure!(
        answer.get("started") == Some(&json!(false)),
        "the device runs: {answer}"
    );
    Ok(())
}
