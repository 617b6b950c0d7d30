//! Networks with IPv4 and IPv6, one of which leads nowhere: the boot works, and waits for neither.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Result, ensure};
use wireboot_lab::embed;
use wireboot_lab::ip::IpVersion::{V4, V6};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{NetworkOptions, SERVER, SERVER6};
use wireboot_lab::qemu::RunningMachine;

use crate::fixture::{Fixture, boot_program, expect};
use crate::{servers, system};

/// A server behind a router that passes on nothing, and says nothing of it.
const BLACK_HOLE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1);

/// A router advertises addresses, DHCPv6 and a name server. Of all that, the addresses alone are true. They are better ones than IPv4's in
/// the order of RFC 6724, so that IPv6 is tried first.
const EMPTY_PROMISES: &str = "interface lab0 {
    AdvSendAdvert on;
    MaxRtrAdvInterval 30;
    AdvManagedFlag on;
    AdvOtherConfigFlag on;
    prefix 2001:db8:77::/64 {
    };
    RDNSS 2001:db8:99::1 {
    };
};
";

/// DHCPv6 is given up after three messages, of 1, 2 and 4 s.
const DHCPV6_SILENCE: Duration = Duration::from_secs(7);
/// A connection may take that long to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn ipv6_is_a_black_hole(lab: &Lab) -> Result<()> {
    let options = NetworkOptions {
        bridge: true,
        ip: &[V4, V6],
        ..NetworkOptions::default()
    };
    let mut fixture = Fixture::on(lab, options, 1)?;
    fixture.boot_from_disk("http://boot.lab/wireboot.conf")?;
    let _servers = [
        servers::radvd_with(lab, EMPTY_PROMISES)?,
        servers::dnsmasq_dns(lab, "boot.lab", &[SERVER.into(), BLACK_HOLE.into()])?,
    ];
    let _server = fixture.serve(&["--no-ipv6", "--dns", "10.77.0.1"])?;
    fixture.system.check("data.cpio")?;
    let mut machine = fixture.start()?;
    let waited = seconds_between(
        &mut machine,
        "wireboot: ready",
        r"wireboot: address 10\.77\S+ \(DHCP\)",
    )?;
    ensure!(
        waited < DHCPV6_SILENCE.as_secs_f64(),
        "the address took {waited} s"
    );
    let text = expect(
        &mut machine,
        r"http://boot\.lab/wireboot\.conf: \d+ bytes in ([0-9.]+) s",
    )?;
    let took: f64 = text.split(' ').rev().nth(1).unwrap_or_default().parse()?;
    ensure!(
        took < CONNECT_TIMEOUT.as_secs_f64(),
        "the configuration took {took} s"
    );
    fixture.fetched_right(&mut machine)
}

/// DHCP over IPv4 answers first and names a server behind a gateway that is not there. DHCPv6 answers later.
pub(crate) fn ipv4_leads_nowhere(lab: &Lab) -> Result<()> {
    let options = NetworkOptions {
        bridge: true,
        ..NetworkOptions::of(V6)
    };
    let mut fixture = Fixture::on(lab, options, 1)?;
    fixture.boot_from_disk("")?;
    let station = fixture
        .network
        .station("other", Ipv4Addr::new(10, 77, 0, 2))?;
    let _dhcp = servers::dnsmasq_for(
        lab,
        station.command("dnsmasq"),
        "dhcp",
        &[
            "--port=0",
            "--no-ping",
            "--dhcp-range=10.77.0.100,10.77.0.199",
            "--dhcp-option=option:router,10.77.0.254",
            "--dhcp-boot=http://10.99.0.1/wireboot.conf",
            "--dhcp-leasefile=/dev/null",
        ],
    )?;
    fixture.system.check("data.cpio")?;
    let mut machine = fixture.start()?;
    expect(&mut machine, r"wireboot: address 10\.77\S+ \(DHCP\)")?;
    let _server = fixture.serve(&["--ra"])?;
    let url = format!(r"http://\[{SERVER6}\]/wireboot\.conf");
    expect(&mut machine, &format!("{url}: \\d+ bytes"))?;
    fixture.fetched_right(&mut machine)
}

/// Addresses by a router at once, and by DHCP from a server that looks first whether somebody has them.
const ROUTER: &str = "interface lab0 {
    AdvSendAdvert on;
    MaxRtrAdvInterval 30;
    prefix 2001:db8:77::/64 {
    };
};
";

/// What the load options name is to be had by the version whose address comes last: by its address, and by a name that has no other.
pub(crate) fn the_slower_version_leads_there(lab: &Lab) -> Result<()> {
    by_the_slower_version(lab, "10.77.0.1", 3)
}

pub(crate) fn the_slower_version_has_the_name(lab: &Lab) -> Result<()> {
    by_the_slower_version(lab, "boot.lab", 1)
}

/// DHCP's server takes so many seconds for each question, of which there are more the longer it takes.
fn by_the_slower_version(lab: &Lab, host: &str, seconds: u32) -> Result<()> {
    let options = NetworkOptions {
        bridge: true,
        ip: &[V4, V6],
        ..NetworkOptions::default()
    };
    let mut fixture = Fixture::on(lab, options, 1)?;
    fixture.boot_from_disk(&format!("http://{host}/wireboot.conf"))?;
    let _servers = [
        servers::radvd_with(lab, ROUTER)?,
        servers::dnsmasq_for(
            lab,
            lab.command("dnsmasq"),
            "slow",
            &[
                "--no-resolv",
                "--no-hosts",
                "--address=/boot.lab/10.77.0.1",
                "--interface=lab0",
                "--dhcp-range=10.77.0.100,10.77.0.199,255.255.255.0,1h",
                &format!("--dhcp-reply-delay={seconds}"),
                "--dhcp-leasefile=/dev/null",
            ],
        )?,
        servers::nginx(
            lab,
            lab.command("nginx"),
            SERVER.into(),
            &fixture.system.directory,
        )?,
    ];
    fixture.system.check("data.cpio")?;
    let mut machine = fixture.start()?;
    expect(&mut machine, r"wireboot: address 2001:db8:77:\S+ \(DHCP\)")?;
    expect(
        &mut machine,
        &format!(r"http://{host}/wireboot\.conf: \d+ bytes"),
    )?;
    fixture.fetched_right(&mut machine)
}

/// DHCPv6 names a file that its server has not. DHCP over IPv4 answers later and names one that is there.
pub(crate) fn the_slower_version_has_the_file(lab: &Lab) -> Result<()> {
    let options = NetworkOptions {
        bridge: true,
        ip: &[V4, V6],
        ..NetworkOptions::default()
    };
    let mut fixture = Fixture::on(lab, options, 1)?;
    fixture.boot_from_disk("")?;
    let directory = &fixture.system.directory;
    // Each of the two questions that have come by then takes 2 s.
    let _servers = [
        servers::dnsmasq_for(
            lab,
            lab.command("dnsmasq"),
            "slow",
            &[
                "--port=0",
                "--no-ping",
                "--interface=lab0",
                "--dhcp-range=10.77.0.100,10.77.0.199,255.255.255.0,1h",
                "--dhcp-reply-delay=2",
                "--dhcp-boot=http://10.77.0.1/wireboot.conf",
                "--dhcp-leasefile=/dev/null",
            ],
        )?,
        servers::dnsmasq_for(
            lab,
            lab.command("dnsmasq"),
            "six",
            &[
                "--port=0",
                "--interface=lab0",
                "--enable-ra",
                "--dhcp-range=fd00:77::100,fd00:77::1ff,64,1h",
                "--dhcp-option=option6:bootfile-url,http://[fd00:77::1]/gone.conf",
                "--dhcp-leasefile=/dev/null",
            ],
        )?,
        servers::nginx(lab, lab.command("nginx"), SERVER.into(), directory)?,
        servers::nginx(lab, lab.command("nginx"), SERVER6.into(), directory)?,
    ];
    fixture.system.check("data.cpio")?;
    let mut machine = fixture.start()?;
    for text in [
        r"wireboot: warning: http://\[fd00:77::1\]/gone\.conf.*404",
        r"wireboot: asking for http://10\.77\.0\.1/wireboot\.conf as well",
        r"wireboot: http://10\.77\.0\.1/wireboot\.conf: \d+ bytes",
    ] {
        expect(&mut machine, text)?;
    }
    fixture.fetched_right(&mut machine)
}

/// Addresses by DHCPv6 alone.
const MANAGED: &str = "interface lab0 {
    AdvSendAdvert on;
    MaxRtrAdvInterval 30;
    AdvManagedFlag on;
    prefix fd00:77::/64 {
        AdvAutonomous off;
    };
};
";

/// The firmware comes by IPv4, and the embedded configuration's host has an address of IPv6 alone, which nobody has asked for.
pub(crate) fn the_other_version_has_the_name(lab: &Lab) -> Result<()> {
    let options = NetworkOptions {
        bridge: true,
        ip: &[V4, V6],
        ..NetworkOptions::default()
    };
    let fixture = Fixture::on(lab, options, 1)?;
    let program = lab.scratch().join("named.efi");
    let text = format!(
        "title By name\nlinux http://boot.lab/linux\ninitrd http://boot.lab/system.cpio\n\
         initrd http://boot.lab/data.cpio\noptions {}\n",
        system::OPTIONS
    );
    embed::configuration(&boot_program()?, &text, &program)?;
    let _servers = [
        servers::radvd_with(lab, MANAGED)?,
        servers::dnsmasq_dns(lab, "boot.lab", &[SERVER6.into()])?,
    ];
    let _server = fixture.serve_program(&program, &["--dns", "10.77.0.1"])?;
    let mut machine = fixture.start()?;
    for text in [
        r"wireboot: address 10\.77\S+ \(the firmware's lease\)",
        r"wireboot: warning: .*boot\.lab.*; asking DHCP",
        r"wireboot: http://boot\.lab/data\.cpio: \d+ bytes",
        "wireboot: starting linux",
    ] {
        expect(&mut machine, text)?;
    }
    Ok(())
}

/// How long after the first text on the console the second comes.
fn seconds_between(machine: &mut RunningMachine, first: &str, second: &str) -> Result<f64> {
    let mut time = |expression: &str| -> Result<f64> {
        expect(machine, expression)?;
        let expression = regex::Regex::new(expression)?;
        Ok(machine
            .console
            .seen(&expression)
            .map_or(0.0, |seen| seen.time))
    };
    let begin = time(first)?;
    Ok(time(second)? - begin)
}
