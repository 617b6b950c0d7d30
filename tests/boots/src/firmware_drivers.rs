//! Network cards that the firmware's driver drives, by EFI_SIMPLE_NETWORK_PROTOCOL or UNDI.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use wireboot_lab::embed;
use wireboot_lab::netns::Lab;

use crate::fixture::{Fixture, boot_program, expect};
use crate::system;

/// Gives the machine a card that the stock firmware drives by iPXE's driver, from the card's ROM.
pub(crate) fn plug_in(fixture: &mut Fixture<'_>, model: &str, rom: &str) -> Result<()> {
    let card = fixture.machine.network.as_mut().context("a network card")?;
    card.model = model.to_owned();
    card.rom = Some(Path::new("/usr/lib/ipxe/qemu").join(rom));
    Ok(())
}

pub(crate) const BY_UNDI: &str = "the firmware's driver by UNDI";

/// The data by TFTP and checked, the rest by HTTP.
fn fetch_by_both(fixture: &Fixture<'_>) -> Result<()> {
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd tftp://10.77.0.1/data.cpio\noptions {}\n",
        system::OPTIONS
    ))?;
    fixture.system.check("tftp://10.77.0.1/data.cpio")
}

/// To the end, over a card that the firmware's driver drives.
fn boots(fixture: &Fixture<'_>) -> Result<()> {
    boots_by(
        fixture,
        "the firmware's driver",
        r"the BSP \(bootstrap processor\), as the firmware's driver does",
    )
}

/// The same by that driver, with an engine on that processor.
fn boots_by(fixture: &Fixture<'_>, driver: &str, processor: &str) -> Result<()> {
    fetch_by_both(fixture)?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(
        &mut machine,
        &format!(r"wireboot: PCI device \S+ \(\S+\), 52:54:00:77:00:02, driven by {driver}\s"),
    )?;
    expect(
        &mut machine,
        &format!("wireboot: the network runs on {processor}"),
    )?;
    expect(&mut machine, r"wireboot: ready after \d+ ms")?;
    fixture.arrives(&mut machine)
}

pub(crate) fn over_an_rtl8139(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    plug_in(&mut fixture, "rtl8139", "efi-rtl8139.rom")?;
    boots(&fixture)
}

pub(crate) fn over_a_vmxnet3(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?.by_stick()?;
    plug_in(&mut fixture, "vmxnet3", "efi-vmxnet3.rom")?;
    boots(&fixture)
}

/// A card that we have a driver for.
pub(crate) fn by_option_over_an_e1000(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    plug_in(&mut fixture, "e1000", "efi-e1000.rom")?;
    fixture.boot_from_disk("nic=snp http://10.77.0.1/wireboot.conf")?;
    boots(&fixture)
}

fn by_undi(lab: &Lab, model: &str, rom: &str) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    plug_in(&mut fixture, model, rom)?;
    fixture.boot_from_disk("nic=undi http://10.77.0.1/wireboot.conf")?;
    boots_by(
        &fixture,
        BY_UNDI,
        r"the BSP \(bootstrap processor\), as the firmware's driver does",
    )
}

pub(crate) fn by_undi_over_an_rtl8139(lab: &Lab) -> Result<()> {
    by_undi(lab, "rtl8139", "efi-rtl8139.rom")
}

pub(crate) fn by_undi_over_a_vmxnet3(lab: &Lab) -> Result<()> {
    by_undi(lab, "vmxnet3", "efi-vmxnet3.rom")
}

/// A card that we have a driver for.
pub(crate) fn by_undi_over_an_e1000(lab: &Lab) -> Result<()> {
    by_undi(lab, "e1000", "efi-e1000.rom")
}

/// After a boot by UNDI that failed, the same card is there by EFI_SIMPLE_NETWORK_PROTOCOL, and then by UNDI again.
pub(crate) fn undi_goes_back_to_the_firmware(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    plug_in(&mut fixture, "vmxnet3", "efi-vmxnet3.rom")?;
    let nothing = "http://10.77.0.1/no-such.conf";
    fixture.boot_from_disk(&format!(
        "nic=undi {nothing}\r\nwireboot.efi nic=snp {nothing}\r\nwireboot.efi nic=undi http://10.77.0.1/wireboot.conf"
    ))?;
    fetch_by_both(&fixture)?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    for driver in [BY_UNDI, "the firmware's driver"] {
        expect(&mut machine, &format!(r"driven by {driver}\s"))?;
        fixture.fails(&mut machine, &["404"])?;
    }
    expect(&mut machine, &format!(r"driven by {BY_UNDI}\s"))?;
    fixture.fetched_right(&mut machine)
}

/// Booted by PXE, over the same driver.
pub(crate) fn by_configuration_over_virtio(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let program = fixture.system.directory.join("wireboot.efi");
    embed::configuration(&boot_program()?, "nic snp\n", &program)?;
    fetch_by_both(&fixture)?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, r"driven by the firmware's driver\s")?;
    fixture.fetched_right(&mut machine)
}

/// A driver without UNDI.
pub(crate) fn no_undi_over_virtio(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_disk("nic=undi http://10.77.0.1/wireboot.conf")?;
    let mut machine = fixture.start()?;
    fixture.fails(
        &mut machine,
        &["no usable network card: neither wireboot nor the firmware"],
    )
}

/// The firmware's own driver.
pub(crate) fn by_option_over_virtio(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_disk("nic=snp http://10.77.0.1/wireboot.conf")?;
    boots(&fixture)
}

/// The engine's frames pass through the BSP.
const RELAYED: &str = "processor 1, frames by way of the BSP, as the firmware's driver runs there";

pub(crate) fn relayed_over_an_rtl8139(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    plug_in(&mut fixture, "rtl8139", "efi-rtl8139.rom")?;
    fixture.boot_from_disk("processors=1 http://10.77.0.1/wireboot.conf")?;
    boots_by(&fixture, "the firmware's driver", RELAYED)
}

pub(crate) fn relayed_over_virtio(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_disk("nic=snp processors=1 http://10.77.0.1/wireboot.conf")?;
    boots_by(&fixture, "the firmware's driver", RELAYED)
}

/// The kernel finds the device stopped. It has no driver of its own.
pub(crate) fn exit_boot_services_finds_the_device_stopped(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_disk("nic=snp http://10.77.0.1/wireboot.conf")?;
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {} stay\n",
        system::OPTIONS
    ))?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "driven by the firmware's driver")?;
    expect(
        &mut machine,
        &format!("boots: sha256 {}", fixture.system.sha256),
    )?;
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

/// After a boot that failed, the firmware's own HTTP Boot works over the same card.
pub(crate) fn firmware_has_its_driver_back(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    // The RTL8139's buffers hold five frames, with which the firmware's TCP does not always get to the end.
    plug_in(&mut fixture, "vmxnet3", "efi-vmxnet3.rom")?;
    let _server = fixture.serve(&[])?;
    fixture
        .system
        .configure("title Test system\nlinux no-such-kernel\n")?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "driven by the firmware's driver")?;
    fixture.fails(&mut machine, &["404"])?;
    fetch_by_both(&fixture)?;
    fixture.goes_on(&mut machine)?;
    expect(&mut machine, "driven by the firmware's driver")?;
    fixture.fetched_right(&mut machine)
}
