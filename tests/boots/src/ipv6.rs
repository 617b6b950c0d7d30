//! Networks without IPv4: stock firmware fetches and starts wireboot.efi by what others' servers say, as docs/deploy has them.

use std::net::Ipv6Addr;

use anyhow::{Result, ensure};
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{Network, NetworkOptions, SERVER6, Station};

use crate::scene::{Daemon, Scene, expect};
use crate::{servers, stateless};

/// Another computer's address.
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 2);

/// How the firmware boots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Pxe,
    HttpBoot,
}

/// Room for another computer: Kea leaves out an interface without a carrier, and the machine is still off.
fn bridged() -> NetworkOptions {
    NetworkOptions {
        bridge: true,
        ..NetworkOptions::of(IpVersion::V6)
    }
}

fn scene(lab: &Lab, by: By) -> Result<Scene<'_>> {
    let mut scene = Scene::on(lab, bridged(), 4)?;
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
    scene.arrives(&mut machine)
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

pub fn stateless_from_dnsmasq(lab: &Lab) -> Result<()> {
    let network = Network::new(lab, bridged())?;
    let station = network.stranger("client")?;
    let _dnsmasq = servers::dnsmasq(lab, lab.command("dnsmasq"), "dnsmasq-ipv6-stateless.conf")?;
    is_told(&station)
}

pub fn stateless_from_kea(lab: &Lab) -> Result<()> {
    let network = Network::new(lab, bridged())?;
    let station = network.stranger("client")?;
    let _servers = [
        servers::radvd(lab, "radvd-stateless.conf")?,
        servers::kea6(lab, "kea-dhcp6-stateless.json")?,
    ];
    is_told(&station)
}

/// A computer makes itself an address in the network, and is told what to boot.
fn is_told(station: &Station) -> Result<()> {
    let learnt = stateless::learn(station)?;
    let prefix = |address: Ipv6Addr| address.to_bits() >> 64;
    ensure!(
        prefix(learnt.address) == prefix(SERVER6),
        "its address is {}",
        learnt.address
    );
    ensure!(
        learnt.boot_file == format!("http://[{SERVER6}]/wireboot.conf"),
        "its boot file is {}",
        learnt.boot_file
    );
    Ok(())
}
