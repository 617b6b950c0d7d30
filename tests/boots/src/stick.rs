//! wireboot from a stick on networks without IPv4 whose machines make their addresses themselves. No firmware asks before it.

use anyhow::Result;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{NetworkOptions, SERVER6};

use crate::scene::{Scene, boot_program, expect};
use crate::servers;

/// The address that the machine makes of the prefix and its Ethernet address.
const ADDRESS: &str = r"wireboot: address fd00:77::5054:ff:fe77:2 \(DHCP\)";

fn scene(lab: &Lab) -> Result<Scene<'_>> {
    let options = NetworkOptions {
        bridge: true,
        ..NetworkOptions::of(IpVersion::V6)
    };
    Scene::on(lab, options, 1)
}

/// The machine makes itself the address that the network lets it make, and fetches its configuration from `url`.
fn fetches(scene: &Scene<'_>, url: &str) -> Result<()> {
    scene.system.check("data.cpio")?;
    let mut machine = scene.start()?;
    expect(&mut machine, ADDRESS)?;
    expect(&mut machine, &format!(r"wireboot: {url}: \d+ bytes"))?;
    scene.fetched_right(&mut machine)
}

/// DHCPv6 says what to boot, and gives no addresses.
pub(crate) fn with_stateless_dhcpv6(lab: &Lab) -> Result<()> {
    let mut scene = scene(lab)?;
    scene.boot_from_stick(&boot_program()?)?;
    let directory = &scene.system.directory;
    let _servers = [
        servers::dnsmasq(lab, lab.command("dnsmasq"), "dnsmasq-ipv6-stateless.conf")?,
        servers::nginx(lab, lab.command("nginx"), SERVER6.into(), directory)?,
    ];
    fetches(&scene, r"http://\[fd00:77::1\]/wireboot\.conf")
}

/// There is no DHCPv6: the router tells of a name server, and the stick has the URL.
pub(crate) fn with_a_router_alone(lab: &Lab) -> Result<()> {
    let mut scene = scene(lab)?;
    scene.boot_from_disk("http://boot.lab/wireboot.conf")?;
    let _dns = servers::dnsmasq_dns(lab, "boot.lab", &[SERVER6.into()])?;
    let _server = scene.serve(&["--ra", "--no-dhcp", "--dns", "fd00:77::1"])?;
    fetches(&scene, r"http://boot\.lab/wireboot\.conf")
}
