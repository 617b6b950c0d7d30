//! Secure Boot with a key of one's own, the way of `docs/deploy.md`: ovmf's test key, which its template of variables trusts.

use std::path::Path;

use anyhow::{Result, ensure};
use wireboot_lab::embed;
use wireboot_lab::netns::Lab;
use wireboot_lab::qemu::Firmware;

use crate::fixture::{Fixture, boot_program, expect, run};
use crate::system;

const CERTIFICATE: &str = "/usr/share/ovmf/PkKek-1-snakeoil.pem";
const KEY: &str = "/usr/share/ovmf/PkKek-1-snakeoil.key";

/// A fixture whose machine starts only what is signed with ovmf's test key.
pub(crate) fn fixture(lab: &Lab) -> Result<Fixture<'_>> {
    let mut fixture = Fixture::new(lab)?;
    fixture.machine.firmware = Firmware::Ovmf {
        code: "/usr/share/OVMF/OVMF_CODE_4M.fd".into(),
        variables: "/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd".into(),
    };
    Ok(fixture)
}

/// Signs a program; the signed one replaces it.
pub(crate) fn sign(lab: &Lab, program: &Path) -> Result<()> {
    let key = lab.scratch().join("snakeoil.key");
    // Without its password, for which sbsign would ask a terminal.
    run(lab
        .command("openssl")
        .args(["pkey", "-in", KEY, "-passin", "pass:snakeoil", "-out"])
        .arg(&key))?;
    run(lab
        .command("sbsign")
        .arg("--key")
        .arg(&key)
        .args(["--cert", CERTIFICATE, "--output"])
        .arg(program)
        .arg(program))
}

/// Adds a configuration to a copy of wireboot.efi, and then signs it.
pub(crate) fn signed_boots(lab: &Lab) -> Result<()> {
    let fixture = fixture(lab)?;
    let directory = &fixture.system.directory;
    sign(lab, &directory.join("linux"))?;

    let program = lab.scratch().join("site.efi");
    embed::configuration(
        &boot_program()?,
        &format!(
            "title Embedded\nlinux http://10.77.0.1/linux\ninitrd http://10.77.0.1/system.cpio\n\
             initrd http://10.77.0.1/data.cpio\noptions {}\n",
            system::OPTIONS
        ),
        &program,
    )?;
    sign(lab, &program)?;

    let _server = fixture.serve_program(&program, &[])?;
    let machine = fixture.boots()?;
    ensure!(
        machine
            .console
            .transcript()
            .contains("booting \"Embedded\""),
        "the configuration was not the embedded one"
    );
    Ok(())
}

/// Debian's kernel is signed for Debian's shim.
pub(crate) fn distributions_kernel_is_refused(lab: &Lab) -> Result<()> {
    let fixture = fixture(lab)?;
    let program = fixture.system.directory.join("wireboot.efi");
    sign(lab, &program)?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: ready")?;
    fixture.fails(
        &mut machine,
        &[r"wireboot: .*http://10\.77\.0\.1/linux: is refused by Secure Boot"],
    )?;
    fixture.goes_on(&mut machine)
}

/// By the firmware, before a word of ours.
pub(crate) fn unsigned_wireboot_is_refused(lab: &Lab) -> Result<()> {
    let fixture = fixture(lab)?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "(?i)start PXE over IPv4")?;
    expect(&mut machine, "Access Denied|Security Violation")?;
    fixture.goes_on(&mut machine)?;
    ensure!(
        !machine.console.transcript().contains("wireboot: "),
        "it ran all the same"
    );
    Ok(())
}
