//! What wireboot leaves behind: nothing.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{NetworkOptions, SERVER6};
use wireboot_lab::qemu::RunningMachine;

use crate::fixture::{Fixture, boot_program, expect};
use crate::system;

/// After a boot by PXE that failed, the firmware's own HTTP Boot works over the same network card.
pub(crate) fn next_boot_option_has_the_network(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let _server = fixture.serve(&[])?;
    fixture
        .system
        .configure("title Test system\nlinux no-such-kernel\n")?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: ready")?;
    fixture.fails(&mut machine, &["404"])?;
    // Now it will find what it needs, if the firmware has its network card back.
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {}\n",
        system::OPTIONS
    ))?;
    fixture.goes_on(&mut machine)?;
    expect(&mut machine, "wireboot: ready")?;
    fixture.arrives(&mut machine)
}

/// The same over IPv6: after an HTTP Boot that failed, the firmware's PXE works over the card.
pub(crate) fn next_boot_option_has_ipv6(lab: &Lab) -> Result<()> {
    let mut fixture = over_ipv6(lab)?;
    fixture.machine.http_boot_ipv6 = true;
    let _server = fixture.serve_as_a_router()?;
    fixture
        .system
        .configure("title Test system\nlinux no-such-kernel\n")?;
    let mut machine = fixture.start()?;
    expect(&mut machine, ">>Start HTTP Boot over IPv6")?;
    expect(&mut machine, "wireboot: ready")?;
    fixture.fails(&mut machine, &["no-such-kernel.*404"])?;
    expect(&mut machine, ">>Start PXE over IPv6")?;
    expect(&mut machine, "NBP file downloaded successfully")?;
    expect(&mut machine, "wireboot: ready").map(drop)
}

/// A program that wireboot starts finds the lease of the firmware's PXE. It comes back, and the firmware goes on.
pub(crate) fn started_program_has_the_lease_over_ipv6(lab: &Lab) -> Result<()> {
    let fixture = over_ipv6(lab)?;
    let _server = fixture.serve_as_a_router()?;
    fixture.system.configure(&format!(
        "network firmware\nefi wireboot.efi\noptions http://[{SERVER6}]/no-such-file\n"
    ))?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "NBP file downloaded successfully")?;
    expect(&mut machine, r"wireboot: address fd00:77::\S+ \(DHCP\)")?;
    expect(
        &mut machine,
        r"wireboot: starting efi \S+/wireboot\.efi over the firmware's network",
    )?;
    expect(
        &mut machine,
        r"wireboot: address fd00:77::\S+ \(the firmware's lease\)",
    )?;
    fixture.fails(&mut machine, &["no-such-file.*404"])?;
    fixture.fails(&mut machine, &[r"wireboot\.efi returned"])?;
    fixture.goes_on(&mut machine)
}

/// A wireboot.efi that wireboot has started takes the card as from the firmware, and comes to its end, the firmware has its network then, and another one boots the system.
pub(crate) fn wireboot_over_wireboot(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let _server = fixture.serve(&[])?;
    let directory = &fixture.system.directory;
    fs::copy(boot_program()?, directory.join("second.efi"))?;
    fs::rename(
        directory.join("wireboot.conf"),
        directory.join("system.conf"),
    )?;
    let second = |file: &str| {
        let url = format!("http://10.77.0.1/{file}");
        let entry = format!("title wireboot once more\nefi second.efi\noptions {url}\n");
        fixture.system.configure(&entry)
    };
    second("no-such-file")?;
    let mut machine = fixture.start()?;
    let over_ours = r"starting efi \S+/second\.efi over wireboot's network";
    expect(&mut machine, over_ours)?;
    expect(
        &mut machine,
        "wireboot: another program gets the network card",
    )?;
    expect(&mut machine, "wireboot: ready")?;
    fixture.fails(&mut machine, &["no-such-file.*404"])?;
    second("system.conf")?;
    fixture.fails(&mut machine, &[r"second\.efi returned"])?;
    fixture.goes_on(&mut machine)?;
    expect(&mut machine, over_ours)?;
    expect(&mut machine, "wireboot: ready")?;
    fixture.arrives(&mut machine)
}

fn over_ipv6(lab: &Lab) -> Result<Fixture<'_>> {
    let mut fixture = Fixture::on(lab, NetworkOptions::of(IpVersion::V6), 1)?;
    fixture.machine.pxe_only(Some(IpVersion::V6));
    Ok(fixture)
}

/// virtio 1.2, 2.1: the driver has set itself up.
pub(crate) const DRIVER_OK: u64 = 4;

/// What the driver of the only virtio device has written to its status, with times.
pub(crate) fn statuses(machine: &RunningMachine) -> Vec<(f64, u64)> {
    let events = machine.trace().into_iter();
    events
        .filter(|event| event.name == "virtio_set_status")
        .filter_map(|event| {
            Some((
                event.time,
                event.arguments.rsplit(' ').next()?.parse().ok()?,
            ))
        })
        .collect()
}

/// The device is reset when boot services end, before the kernel runs, and nobody wakes it: the kernel has no driver for it.
pub(crate) fn exit_boot_services_resets_the_device(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    // The network card is then the only virtio device.
    fixture.machine.entropy = false;
    fixture.machine.trace = vec!["virtio_set_status".to_owned()];
    let _server = fixture.serve(&[])?;
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {} stay\n",
        system::OPTIONS.replace("loglevel=4", "loglevel=7")
    ))?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: starting linux")?;
    expect(&mut machine, "Linux version")?;
    let kernel = machine
        .console
        .seen(&regex::Regex::new("Linux version")?)
        .context("the kernel's first words")?
        .time;
    expect(
        &mut machine,
        &format!("boots: sha256 {}", fixture.system.sha256),
    )?;

    let statuses = statuses(&machine);
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
