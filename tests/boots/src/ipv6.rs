//! Networks without IPv4: stock firmware fetches and starts wireboot.efi by what others' servers say, as docs/deploy has them.

use std::net::Ipv6Addr;

use anyhow::Result;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{NetworkOptions, SERVER6};

use crate::scene::{Daemon, Scene, expect};
use crate::servers;

/// Another computer's address.
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 2);

/// How the firmware boots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Pxe,
    HttpBoot,
}

fn scene(lab: &Lab, by: By) -> Result<Scene<'_>> {
    // With another computer beside it: Kea leaves out an interface without a carrier, and the machine is still off.
    let options = NetworkOptions {
        bridge: true,
        ..NetworkOptions::of(IpVersion::V6)
    };
    let mut scene = Scene::on(lab, options, 4)?;
    scene
        .machine
        .pxe_only((by == By::Pxe).then_some(IpVersion::V6));
    scene.machine.http_boot_ipv6 = by == By::HttpBoot;
    Ok(scene)
}

/// Where files come from, both ways.
fn files(scene: &Scene<'_>) -> Result<[Daemon; 2]> {
    let (lab, directory) = (scene.lab, &scene.system.directory);
    let server = SERVER6.into();
    Ok([
        servers::atftpd(lab, server, directory)?,
        servers::nginx(lab, lab.command("nginx"), server, directory)?,
    ])
}

/// The firmware boots as told, and wireboot runs.
fn boots(scene: &Scene<'_>, by: By) -> Result<()> {
    let mut machine = scene.start()?;
    let (begins, fetched) = match by {
        By::Pxe => (">>Start PXE over IPv6", "NBP file downloaded successfully"),
        By::HttpBoot => (">>Start HTTP Boot over IPv6", "Downloading...100%"),
    };
    expect(&mut machine, begins)?;
    expect(&mut machine, fetched)?;
    expect(&mut machine, "wireboot: ")?;
    Ok(())
}

pub fn pxe_from_dnsmasq(lab: &Lab) -> Result<()> {
    from_dnsmasq(lab, By::Pxe)
}

pub fn http_boot_from_dnsmasq(lab: &Lab) -> Result<()> {
    from_dnsmasq(lab, By::HttpBoot)
}

fn from_dnsmasq(lab: &Lab, by: By) -> Result<()> {
    let scene = scene(lab, by)?;
    let _files = files(&scene)?;
    let _dnsmasq = servers::dnsmasq(lab, lab.command("dnsmasq"), "dnsmasq-ipv6.conf")?;
    boots(&scene, by)
}

pub fn pxe_from_kea(lab: &Lab) -> Result<()> {
    from_kea(lab, By::Pxe)
}

pub fn http_boot_from_kea(lab: &Lab) -> Result<()> {
    from_kea(lab, By::HttpBoot)
}

fn from_kea(lab: &Lab, by: By) -> Result<()> {
    let scene = scene(lab, by)?;
    let _other = scene.network.station("other", OTHER)?;
    let _files = files(&scene)?;
    let _servers = [
        servers::radvd(lab, "radvd.conf")?,
        servers::kea6(lab, "kea-dhcp6.json")?,
    ];
    boots(&scene, by)
}
