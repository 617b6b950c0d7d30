//! Boot loaders over wireboot's network, where the firmware's driver drives the card: its EFI_SIMPLE_NETWORK_PROTOCOL gives way to wireboot's, and
//! comes back.

use std::fs;

use anyhow::Result;
use wireboot_lab::embed;
use wireboot_lab::netns::Lab;

use crate::firmware_drivers::{BY_UNDI, plug_in};
use crate::fixture::{Fixture, callers_program, expect, faulty_program};
use crate::loaders::{self, embedded, prepare, start};

fn over_a_vmxnet3(lab: &Lab) -> Result<Fixture<'_>> {
    let mut fixture = Fixture::new(lab)?;
    plug_in(&mut fixture, "vmxnet3", "efi-vmxnet3.rom")?;
    Ok(fixture)
}

/// GRUB opens the protocol on the card's handle exclusively: what it reads ends in the machine. Boot services end with all that open.
pub(crate) fn shim_and_grub(lab: &Lab) -> Result<()> {
    loaders::shim_and_grub_in(&over_a_vmxnet3(lab)?)
}

/// From a disk, with an engine on an AP, whose frames pass through the BSP.
pub(crate) fn snponly(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    plug_in(&mut fixture, "rtl8139", "efi-rtl8139.rom")?;
    fixture.boot_from_disk("network=wireboot processors=1 http://10.77.0.1/wireboot.conf")?;
    loaders::ipxe_boots_in(&fixture)
}

/// Started by iPXE, which is the firmware's driver, the loader ends by a panic in its first call; started by the firmware's own PXE over that
/// driver, it exits. The firmware goes on with its own network both times, the second time by HTTP.
pub(crate) fn comes_back(lab: &Lab) -> Result<()> {
    let fixture = over_a_vmxnet3(lab)?;
    prepare(&fixture, "10.77.0.1", "echo on the way out\nexit\n")?;
    let file = fixture.system.directory.join("wireboot.conf");
    let text = fs::read_to_string(&file)?;
    fs::write(&file, format!("{text}options fault=call\n"))?;
    let program = embedded(&fixture, &faulty_program()?, "nic undi\n")?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    let returns = |machine: &mut _, why| -> Result<()> {
        expect(machine, &format!("driven by {BY_UNDI}"))?;
        expect(machine, "starting efi .* over wireboot's network")?;
        expect(machine, why)?;
        expect(machine, r"bootnetx64\.efi returned").map(drop)
    };
    returns(&mut machine, "a planted fault")?;
    fs::write(&file, text)?;
    expect(&mut machine, "(?i)start PXE over IPv4")?;
    returns(&mut machine, "on the way out")?;
    fixture.goes_on(&mut machine)?;
    // Its TCP over this card does not always get to the end.
    expect(&mut machine, r"File Size: \d+ Bytes").map(drop)
}

/// Calls by hand: the driver below is not disconnected; all statuses; LoadFile, and another program by it; the protocol on the card's handle,
/// opened exclusively. Then LoadFile on the handles of a program that came by HTTP.
pub(crate) fn callers(lab: &Lab) -> Result<()> {
    const JOBS: [(&str, &str); 4] = [
        (
            "callers.efi",
            "drivers-stay\nstatuses\nload-file http://10.77.0.1/inner.efi\nfreebsd-snp system.cpio\n",
        ),
        ("inner.efi", "openbsd system.cpio\n"),
        ("second.efi", "load-file http://10.77.0.1/third.efi\n"),
        ("third.efi", "drivers-stay\n"),
    ];
    const STAY: &str = r"callers: drivers-stay: Ok\(\(\)\)";
    let mut fixture = over_a_vmxnet3(lab)?;
    for (name, jobs) in JOBS {
        let file = fixture.system.directory.join(name);
        embed::configuration(&callers_program()?, jobs, &file)?;
    }
    fixture.boot_from_disk(
        "network=wireboot tftp://10.77.0.1/callers.efi\r\nwireboot.efi network=wireboot http://10.77.0.1/second.efi",
    )?;
    let _server = fixture.serve(&[])?;
    let gets = |machine: &mut _, verb, file| {
        let sha256 = fixture.system.digest_of(file)?;
        expect(machine, &format!("callers: {verb} .* sha256 {sha256}"))
    };
    let mut machine = start(&fixture)?;
    expect(&mut machine, STAY)?;
    expect(&mut machine, "callers: statuses: .* 0 failed")?;
    gets(&mut machine, "openbsd", "system.cpio")?;
    gets(&mut machine, "load-file", "inner.efi")?;
    gets(&mut machine, "freebsd-snp", "system.cpio")?;
    expect(&mut machine, "callers: done, 0 of 4 failed")?;
    expect(&mut machine, "starting efi http.* over wireboot's network")?;
    expect(&mut machine, STAY)?;
    gets(&mut machine, "load-file", "third.efi").map(drop)
}
