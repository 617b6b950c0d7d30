//! Networks without IPv4: stock firmware fetches and starts wireboot.efi by what our server says, or others' as docs/deploy has them.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{Network, NetworkOptions, SERVER6, Station};
use wireboot_lab::qemu::RunningMachine;
use wireboot_lab::server::{Server, ServerEvent};

use crate::fixture::{Daemon, Fixture, boot_program, expect, wireboot};
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

fn fixture(lab: &Lab, by: By) -> Result<Fixture<'_>> {
    let mut fixture = Fixture::on(lab, bridged(), 1)?;
    fixture.system.check("data.cpio")?;
    fixture
        .machine
        .pxe_only((by == By::Pxe).then_some(IpVersion::V6));
    fixture.machine.http_boot_ipv6 = by == By::HttpBoot;
    Ok(fixture)
}

/// Where files come from, both ways.
fn files(fixture: &Fixture<'_>) -> Result<[Daemon; 2]> {
    let (lab, directory) = (fixture.lab, &fixture.system.directory);
    let server = SERVER6.into();
    Ok([
        servers::atftpd(lab, server, directory)?,
        servers::nginx(lab, lab.command("nginx"), server, directory)?,
    ])
}

/// The firmware boots as told, and wireboot does, up to the start of Linux.
fn boots(fixture: &Fixture<'_>, by: By) -> Result<RunningMachine> {
    let mut machine = fixture.start()?;
    let (begins, fetched) = match by {
        By::Pxe => (">>Start PXE over IPv6", "NBP file downloaded successfully"),
        By::HttpBoot => (">>Start HTTP Boot over IPv6", "Downloading...100%"),
    };
    expect(&mut machine, begins)?;
    expect(&mut machine, fetched)?;
    fixture.fetched_right(&mut machine)?;
    Ok(machine)
}

/// The machine has no UUID: its firmware makes a DUID of the card and the time.
pub(crate) fn pxe_from_our_server(lab: &Lab) -> Result<()> {
    let (events, duid) = from_our_server(lab, By::Pxe, &[])?;
    ensure!(
        duid.starts_with("00010001") && duid.ends_with("525400770002"),
        "the firmware is {duid}"
    );
    ensure!(
        tells(
            &events,
            &format!("boot file tftp://[{SERVER6}]/wireboot.efi")
        ),
        "the firmware was not told of TFTP"
    );
    Ok(())
}

/// The first three fields of the UUID are in the byte order of SMBIOS, not in that of RFC 9562.
pub(crate) fn http_boot_from_our_server(lab: &Lab) -> Result<()> {
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    let (events, duid) = from_our_server(lab, By::HttpBoot, &["-uuid", uuid])?;
    ensure!(
        duid == "000433221100554477668899aabbccddeeff",
        "the firmware is {duid}"
    );
    ensure!(
        events.iter().all(|event| !event.event.starts_with("tftp")),
        "something came by TFTP"
    );
    Ok(())
}

/// The network has no other router, and no other server. What the server tells, and the DUID that the firmware and wireboot have in
/// common: a server with a reservation for the machine is to know both.
fn from_our_server(lab: &Lab, by: By, machine: &[&str]) -> Result<(Vec<ServerEvent>, String)> {
    let mut fixture = fixture(lab, by)?;
    fixture.machine.extra.extend(machine.iter().map(Into::into));
    let mut server = fixture.serve_as_a_router()?;
    boots(&fixture, by)?;
    let events = server.events()?;
    ensure!(
        tells(
            &events,
            &format!("boot file http://[{SERVER6}]/wireboot.conf")
        ),
        "wireboot was not told of its configuration"
    );
    let asked = || {
        events
            .iter()
            .filter(|event| event.event == "dhcpv6-request")
    };
    let wireboots = asked().find(|event| event.message.ends_with("user class wireboot"));
    let duid = wireboots.context("wireboot did not ask")?.duid.clone();
    let stranger = asked().find(|event| event.duid != duid);
    ensure!(stranger.is_none(), "wireboot is {duid}, then: {stranger:?}");
    Ok((events, duid))
}

fn tells(events: &[ServerEvent], text: &str) -> bool {
    events.iter().any(|event| event.message.contains(text))
}

pub(crate) fn pxe_from_kea_with_our_proxy(lab: &Lab) -> Result<()> {
    from_kea_with_our_proxy(lab, By::Pxe)
}

pub(crate) fn http_boot_from_kea_with_our_proxy(lab: &Lab) -> Result<()> {
    from_kea_with_our_proxy(lab, By::HttpBoot)
}

/// Kea and radvd know nothing of booting; our server gives no addresses.
fn from_kea_with_our_proxy(lab: &Lab, by: By) -> Result<()> {
    let fixture = fixture(lab, by)?;
    let station = fixture.network.station("proxy", OTHER)?;
    let _servers = [
        servers::radvd(lab, "radvd.conf")?,
        servers::kea6(lab, "kea-dhcp6-addresses-only.json")?,
    ];
    let mut server = Server::start(
        lab,
        station.command(wireboot()?),
        &fixture.system.directory,
        &boot_program()?,
        &["--proxy"],
    )?;
    let machine = boots(&fixture, by).with_context(|| server.tail())?;
    ensure!(
        machine
            .console
            .transcript()
            .contains(&format!("http://[{OTHER}]/linux")),
        "the files did not come from the proxy"
    );
    ensure!(
        server
            .events()?
            .iter()
            .all(|event| event.address.is_empty()),
        "the proxy gave an address"
    );
    Ok(())
}

pub(crate) fn pxe_from_dnsmasq(lab: &Lab) -> Result<()> {
    from_dnsmasq(lab, By::Pxe)
}

pub(crate) fn http_boot_from_dnsmasq(lab: &Lab) -> Result<()> {
    from_dnsmasq(lab, By::HttpBoot)
}

fn from_dnsmasq(lab: &Lab, by: By) -> Result<()> {
    let fixture = fixture(lab, by)?;
    let _files = files(&fixture)?;
    let _dnsmasq = servers::dnsmasq(lab, lab.command("dnsmasq"), "dnsmasq-ipv6.conf")?;
    boots(&fixture, by).map(drop)
}

/// A machine to which dnsmasq and nginx give a program.
pub(crate) struct Booted<'lab> {
    pub running: RunningMachine,
    _files: [Daemon; 2],
    _dnsmasq: Daemon,
    _fixture: Fixture<'lab>,
}

/// A machine that starts `program` by HTTP Boot.
pub(crate) fn http_boot_of<'lab>(lab: &'lab Lab, program: &Path) -> Result<Booted<'lab>> {
    let fixture = fixture(lab, By::HttpBoot)?;
    fs::copy(program, fixture.system.directory.join("wireboot.efi"))?;
    Ok(Booted {
        _files: files(&fixture)?,
        _dnsmasq: servers::dnsmasq(lab, lab.command("dnsmasq"), "dnsmasq-ipv6.conf")?,
        running: fixture.start()?,
        _fixture: fixture,
    })
}

pub(crate) fn pxe_from_kea(lab: &Lab) -> Result<()> {
    from_kea(lab, By::Pxe)
}

pub(crate) fn http_boot_from_kea(lab: &Lab) -> Result<()> {
    from_kea(lab, By::HttpBoot)
}

fn from_kea(lab: &Lab, by: By) -> Result<()> {
    let fixture = fixture(lab, by)?;
    let _other = fixture.network.station("other", OTHER)?;
    let _files = files(&fixture)?;
    let _servers = [
        servers::radvd(lab, "radvd.conf")?,
        servers::kea6(lab, "kea-dhcp6.json")?,
    ];
    boots(&fixture, by).map(drop)
}

pub(crate) fn stateless_from_dnsmasq(lab: &Lab) -> Result<()> {
    let network = Network::new(lab, bridged())?;
    let station = network.stranger("client")?;
    let _dnsmasq = servers::dnsmasq(lab, lab.command("dnsmasq"), "dnsmasq-ipv6-stateless.conf")?;
    is_told(&station)
}

pub(crate) fn stateless_from_kea(lab: &Lab) -> Result<()> {
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
