//! wireboot from a stick on networks without IPv4 whose machines make their addresses themselves. No firmware asks before it.

use anyhow::Result;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{NetworkOptions, SERVER6};

use crate::fixture::{Fixture, boot_program, expect};
use crate::servers;

/// The address that the machine makes of the prefix and its Ethernet address.
const ADDRESS: &str = r"wireboot: address fd00:77::5054:ff:fe77:2 \(DHCP\)";

fn fixture(lab: &Lab) -> Result<Fixture<'_>> {
    let options = NetworkOptions {
        bridge: true,
        ..NetworkOptions::of(IpVersion::V6)
    };
    Fixture::on(lab, options, 1)
}

/// The machine makes itself the address that the network lets it make, and fetches its configuration from `url`.
fn fetches(fixture: &Fixture<'_>, url: &str) -> Result<()> {
    fixture.system.check("data.cpio")?;
    let mut machine = fixture.start()?;
    expect(&mut machine, ADDRESS)?;
    expect(&mut machine, &format!(r"wireboot: {url}: \d+ bytes"))?;
    fixture.fetched_right(&mut machine)
}

/// DHCPv6 says what to boot, and gives no addresses.
pub(crate) fn with_stateless_dhcpv6(lab: &Lab) -> Result<()> {
    let mut fixture = fixture(lab)?;
    fixture.boot_from_stick(&boot_program()?)?;
    let directory = &fixture.system.directory;
    let _servers = [
        servers::dnsmasq(lab, lab.command("dnsmasq"), "dnsmasq-ipv6-stateless.conf")?,
        servers::nginx(lab, lab.command("nginx"), SERVER6.into(), directory)?,
    ];
    fetches(&fixture, r"http://\[fd00:77::1\]/wireboot\.conf")
}

/// There is no DHCPv6: the router tells of a name server, and the stick has the URL.
pub(crate) fn with_a_router_alone(lab: &Lab) -> Result<()> {
    let mut fixture = fixture(lab)?;
    fixture.boot_from_disk("http://boot.lab/wireboot.conf")?;
    let _dns = servers::dnsmasq_dns(lab, "boot.lab", &[SERVER6.into()])?;
    let _server = fixture.serve(&["--ra", "--no-dhcp", "--dns", "fd00:77::1"])?;
    fetches(&fixture, r"http://boot\.lab/wireboot\.conf")
}

/// The router gives the prefix alone, and says that there is no DHCPv6. Our server names the configuration, and gives no addresses.
pub(crate) fn with_a_router_and_our_proxy(lab: &Lab) -> Result<()> {
    let mut fixture = fixture(lab)?;
    fixture.boot_from_stick(&boot_program()?)?;
    let _router = servers::radvd_with(
        lab,
        "interface lab0 {\n    AdvSendAdvert on;\n    MaxRtrAdvInterval 30;\n    prefix fd00:77::/64 {\n    };\n};\n",
    )?;
    let _server = fixture.serve(&["--proxy"])?;
    fetches(&fixture, r"http://\[fd00:77::1\]/wireboot\.conf")
}

/// Nobody tells of a prefix: the server is on the link of the address that it gives.
pub(crate) fn without_a_router(lab: &Lab) -> Result<()> {
    let mut fixture = fixture(lab)?;
    fixture.boot_from_stick(&boot_program()?)?;
    fixture.system.check("data.cpio")?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(
        &mut machine,
        r"wireboot: address fd00:77::[1-9a-f][0-9a-f]{3} \(DHCP\)",
    )?;
    fixture.fetched_right(&mut machine)
}
