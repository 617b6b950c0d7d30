//! Machines with two network cards, the first of them on a network that has no server.

use anyhow::{Context, Result};
use serde_json::json;
use wireboot_lab::netns::Lab;

use crate::scene::{Scene, expect};

/// A card on a network of its own, before the one with the server in the order of PCI.
fn add_idle_card(scene: &mut Scene<'_>) -> Result<()> {
    scene.machine.extra.extend(
        [
            "-netdev",
            "hubport,id=idle,hubid=0",
            "-device",
            "virtio-net-pci,netdev=idle,mac=52:54:00:77:00:03,romfile=,addr=0x8",
        ]
        .map(Into::into),
    );
    let card = scene.machine.network.as_mut().context("a network card")?;
    card.properties.push("addr=0x9".to_owned());
    Ok(())
}

pub fn booted_from_the_second_card(lab: &Lab) -> Result<()> {
    let mut scene = Scene::new(lab)?;
    add_idle_card(&mut scene)?;
    let _server = scene.serve(&[])?;
    scene.boots().map(drop)
}

pub fn first_card_without_link(lab: &Lab) -> Result<()> {
    let mut scene = Scene::new(lab)?;
    scene.boot_from_stick()?;
    add_idle_card(&mut scene)?;
    let _server = scene.serve(&[])?;
    let mut machine = scene.start()?;
    machine.ask("set_link", json!({ "name": "idle", "up": false }))?;
    expect(&mut machine, "wireboot: .*no link")?;
    scene.arrives(&mut machine)
}
