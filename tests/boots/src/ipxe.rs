//! Started by iPXE, which goes on with its script when a boot has failed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use wireboot_lab::loaders::newest_snponly;
use wireboot_lab::netns::Lab;

use crate::fixture::{Fixture, boot_program, expect, faulty_program};
use crate::processors::slow;
use crate::system;

const SNPONLY: &str = "/usr/lib/ipxe/snponly.efi";
pub(crate) const IPXE: &str = "/usr/lib/ipxe/ipxe.efi";

/// Offers wireboot.efi by names that our server has no other program for, and a script that boots with it: by `first`, which fails, and
/// then the system. iPXE fetches a file that it has by that name no second time.
fn write_script(fixture: &Fixture<'_>, first: &str) -> Result<()> {
    let directory = &fixture.system.directory;
    for name in ["first.efi", "second.efi"] {
        fs::copy(boot_program()?, directory.join(name))?;
    }
    let script =
        format!("#!ipxe\nchain {first} ||\nchain second.efi http://10.77.0.1/wireboot.conf\n");
    fs::write(directory.join("boot.ipxe"), script).context("writing the script")
}

/// After the first step, iPXE's network works as it was configured before.
fn goes_on(fixture: &Fixture<'_>, ipxe: &Path, failure: &[&str]) -> Result<()> {
    let _server = fixture.serve_program(ipxe, &[])?;
    let mut machine = fixture.start()?;
    for text in failure {
        expect(&mut machine, text)?;
    }
    expect(&mut machine, "Could not boot")?;
    expect(&mut machine, r"second\.efi\.\.\.[^\n]* ok")?;
    expect(&mut machine, "wireboot: ready")?;
    fixture.arrives(&mut machine)
}

/// iPXE drives the card by the firmware's driver. wireboot starts itself, so that iPXE is not the one that started the second.
pub(crate) fn over_the_firmwares_driver(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    write_script(&fixture, "first.efi http://10.77.0.1/itself.conf")?;
    fs::write(
        fixture.system.directory.join("itself.conf"),
        "title wireboot once more\nefi first.efi\noptions http://10.77.0.1/no-such.conf\n",
    )?;
    goes_on(
        &fixture,
        Path::new(SNPONLY),
        &[
            "driven by virtio-net",
            "the program that started wireboot has the card too",
            "starting efi .* over the firmware's network",
            "driven by virtio-net",
            "no-such.conf.*404",
            r"first\.efi returned",
        ],
    )
}

/// iPXE drives the card itself.
pub(crate) fn over_its_own_driver(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    let card = fixture.machine.network.as_mut().context("a network card")?;
    "e1000e".clone_into(&mut card.model);
    write_script(&fixture, "first.efi http://10.77.0.1/no-such.conf")?;
    let ipxe = Path::new(IPXE);
    fixture.boot_from_stick(ipxe)?;
    goes_on(&fixture, ipxe, &["driven by e1000e", "no-such.conf.*404"])
}

/// iPXE drives the card by the firmware's driver, the firmware has put its own protocols on iPXE's interface, and the first step calls that.
pub(crate) fn over_its_interface(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    write_script(&fixture, "first.efi nic=snp http://10.77.0.1/no-such.conf")?;
    goes_on(
        &fixture,
        Path::new(IPXE),
        &["driven by the firmware's driver", "no-such.conf.*404"],
    )
}

/// The newest iPXE, by the firmware's driver. What wireboot tells of its own driver is `driver`.
fn newest_goes_on(lab: &Lab, options: &str, driver: &str) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let first = format!("first.efi {options}http://10.77.0.1/no-such.conf");
    write_script(&fixture, &first)?;
    goes_on(
        &fixture,
        &newest_snponly()?,
        &[r"iPXE [2-9]\.", driver, "no-such.conf.*404"],
    )
}

/// Its interface is stopped meanwhile.
pub(crate) fn newest_over_the_firmwares_driver(lab: &Lab) -> Result<()> {
    newest_goes_on(lab, "", "driven by virtio-net")
}

/// Its interface is called.
pub(crate) fn newest_over_its_interface(lab: &Lab) -> Result<()> {
    newest_goes_on(lab, "nic=snp ", "driven by the firmware's driver")
}

/// The first step ends while its driver runs.
pub(crate) fn after_a_panic(lab: &Lab) -> Result<()> {
    let fixture = Fixture::on(lab, slow(), 4)?;
    write_script(&fixture, "faulty.efi http://10.77.0.1/faulty.conf")?;
    let directory = &fixture.system.directory;
    fs::copy(faulty_program()?, directory.join("faulty.efi"))?;
    fs::write(
        directory.join("faulty.conf"),
        format!(
            "title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {} fault=boot\n",
            system::OPTIONS
        ),
    )?;
    goes_on(&fixture, Path::new(SNPONLY), &["internal error"])
}
