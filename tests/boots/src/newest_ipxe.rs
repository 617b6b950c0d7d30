//! The newest iPXE's snponly.efi over wireboot's network, from servers that others wrote.

use std::fs;

use anyhow::{Context, Result};
use wireboot_lab::loaders::newest_snponly;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::SERVER;
use wireboot_lab::qemu::RunningMachine;

use crate::fixture::{Daemon, Fixture, expect};
use crate::loaders::start;
use crate::{servers, system};

/// Its first script comes by TFTP, and has another come by HTTP.
fn serve(fixture: &Fixture<'_>, second: &str) -> Result<[Daemon; 2]> {
    let directory = &fixture.system.directory;
    fs::copy(newest_snponly()?, directory.join("snponly.efi")).context("copying iPXE")?;
    for (file, script) in [
        ("first.ipxe", "chain http://10.77.0.1/second.ipxe\n"),
        ("second.ipxe", second),
    ] {
        fs::write(directory.join(file), format!("#!ipxe\n{script}"))?;
    }
    fixture
        .system
        .configure("title iPXE\nefi tftp://10.77.0.1/snponly.efi\n")?;
    serve_files(fixture, "wireboot.efi")
}

/// DHCP names iPXE its first script, and all others this file.
fn serve_files(fixture: &Fixture<'_>, file: &str) -> Result<[Daemon; 2]> {
    let (lab, directory) = (fixture.lab, &fixture.system.directory);
    let root = format!("--tftp-root={}", directory.display());
    Ok([
        servers::dnsmasq_for(
            lab,
            lab.command("dnsmasq"),
            "ipxe",
            &[
                "--port=0",
                "--enable-tftp",
                &root,
                "--interface=lab0",
                "--dhcp-range=10.77.0.100,10.77.0.199,255.255.255.0,1h",
                "--dhcp-userclass=set:ipxe,iPXE",
                "--dhcp-boot=tag:ipxe,first.ipxe,,10.77.0.1",
                &format!("--dhcp-boot=tag:!ipxe,{file},,10.77.0.1"),
            ],
        )?,
        servers::nginx(lab, lab.command("nginx"), SERVER.into(), directory)?,
    ])
}

/// Up to the second script.
fn has_its_scripts(fixture: &Fixture<'_>) -> Result<RunningMachine> {
    let mut machine = start(fixture)?;
    expect(&mut machine, r"iPXE [2-9]\.")?;
    expect(&mut machine, "net0: .* using SNP")?;
    expect(
        &mut machine,
        r"tftp://10\.77\.0\.1/first\.ipxe\.\.\.[^\n]* ok",
    )?;
    expect(
        &mut machine,
        r"http://10\.77\.0\.1/second\.ipxe\.\.\.[^\n]* ok",
    )?;
    Ok(machine)
}

/// The kernel comes by TFTP, and what is large by HTTP.
pub(crate) fn boots(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    let script = format!(
        "kernel tftp://10.77.0.1/linux initrd=system.cpio initrd=data.cpio {}\ninitrd system.cpio\ninitrd data.cpio\nboot\n",
        system::OPTIONS
    );
    let _servers = serve(&fixture, &script)?;
    let mut machine = has_its_scripts(&fixture)?;
    expect(&mut machine, r"tftp://10\.77\.0\.1/linux\.\.\.[^\n]* ok")?;
    fixture.runs(&mut machine)
}

/// It has used TCP and has a file in memory when it ends.
pub(crate) fn exits(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let _servers = serve(&fixture, "imgfetch data.cpio\nexit\n")?;
    let mut machine = has_its_scripts(&fixture)?;
    expect(&mut machine, r"data\.cpio\.\.\.[^\n]* ok")?;
    expect(&mut machine, r"snponly\.efi returned")?;
    fixture.goes_on(&mut machine)
}

/// DHCP names iPXE to all but iPXE, whose script starts wireboot.efi: iPXE is not started for ever, and what lies beside wireboot.efi boots.
pub(crate) fn does_not_go_round(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let directory = &fixture.system.directory;
    fs::copy(newest_snponly()?, directory.join("snponly.efi")).context("copying iPXE")?;
    let script = "#!ipxe\nchain http://10.77.0.1/wireboot.efi\n";
    fs::write(directory.join("first.ipxe"), script)?;
    let _servers = serve_files(&fixture, "snponly.efi")?;
    let mut machine = fixture.start()?;
    for text in [
        r"iPXE [2-9]\.",
        "wireboot: ready",
        r"wireboot: starting efi tftp://10\.77\.0\.1/snponly\.efi",
        r"iPXE [2-9]\.",
        "wireboot: ready",
        r"wireboot: http://10\.77\.0\.1/wireboot\.conf: \d+ bytes",
    ] {
        expect(&mut machine, text)?;
    }
    fixture.arrives(&mut machine)
}
