//! Boots that cannot arrive: the user sees why, and the firmware goes on.

use std::fs::{self, OpenOptions};
use std::process::Command;

use anyhow::{Context, Result};
use wireboot_lab::embed;
use wireboot_lab::netns::Lab;

use crate::fixture::{Fixture, boot_program, expect, run};
use crate::servers;

pub(crate) fn wrong_checksum(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    let _server = fixture.serve(&[])?;
    let digest = "0123456789abcdef".repeat(4);
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\nsha256 {digest} linux\n"
    ))?;
    let mut machine = fixture.start()?;
    fixture.fails(
        &mut machine,
        &[r"wireboot: .*http://10\.77\.0\.1/linux: .*sha256", &digest],
    )
}

pub(crate) fn missing_file(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    let _server = fixture.serve(&[])?;
    fixture
        .system
        .configure("title Test system\nlinux no-such-kernel\n")?;
    let mut machine = fixture.start()?;
    fixture.fails(
        &mut machine,
        &[r"wireboot: .*http://10\.77\.0\.1/no-such-kernel", "404"],
    )
}

/// wireboot.conf lies beside wireboot.efi, but DHCP names something else, in Latin-1.
pub(crate) fn boot_file_that_is_not_text(lab: &Lab) -> Result<()> {
    const NAMED: &str = "http://10.77.0.1/wireboot.conf";
    let fixture = Fixture::new(lab)?;
    let lines = fs::read_to_string(servers::configuration("dnsmasq.conf")?)?;
    let (before, after) = lines.split_once(NAMED).context("the line for wireboot")?;
    let path = lab.scratch().join("dnsmasq.conf");
    let name = b"caf\xe9.conf,,10.77.0.1".as_slice();
    fs::write(&path, [before.as_bytes(), name, after.as_bytes()].concat())?;
    let path = path.to_str().context("the scratch folder's name")?;
    let _server = servers::dnsmasq_with_tftp(lab, path, &fixture.system.directory)?;
    let mut machine = fixture.start()?;
    fixture.fails(
        &mut machine,
        &[
            r#"wireboot: error: the boot file that the DHCP server names cannot be fetched: "caf.\.conf" holds what is not text"#,
        ],
    )
}

pub(crate) fn no_dhcp_answer(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_disk("")?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: ready")?;
    fixture.fails(&mut machine, &["wireboot: .*DHCP"])
}

pub(crate) fn server_never_answers(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let program = fixture.system.directory.join("wireboot.efi");
    embed::configuration(&boot_program()?, "patience 15\n", &program)?;
    let fixture = fixture.by_stick()?;
    let _server = fixture.serve_program(&program, &[])?;
    let _silent = fixture.kernel_from_silence()?;
    let mut machine = fixture.start()?;
    fixture.fails(
        &mut machine,
        &[
            r"wireboot: .*http://10\.77\.0\.1:8080/linux: the server went silent .*waiting for the server, 15 s more at most \(Esc leaves\)",
            r"wireboot: error: http://10\.77\.0\.1:8080/linux",
        ],
    )
}

pub(crate) fn truncated_kernel(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    let kernel = fixture.system.directory.join("linux");
    let length = fs::metadata(&kernel)?.len();
    OpenOptions::new()
        .write(true)
        .open(&kernel)?
        .set_len(length / 2)?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    fixture.fails(&mut machine, &[r"wireboot: .*http://10\.77\.0\.1/linux: "])
}

/// Whatever is no program is called what it is.
pub(crate) fn compressed_kernel(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    run(Command::new("gzip").arg(fixture.system.directory.join("linux")))?;
    let _server = fixture.serve(&[])?;
    fixture
        .system
        .configure("title Test system\nlinux linux.gz\n")?;
    let mut machine = fixture.start()?;
    fixture.fails(
        &mut machine,
        &[r"wireboot: error: http://10\.77\.0\.1/linux\.gz: is compressed with gzip: unpack it"],
    )
}

pub(crate) fn configuration_with_errors(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    let _server = fixture.serve(&[])?;
    fixture.system.configure(
        "title Test system\nlinux linux\nsha256 beef linux\n\ntitle Other\noptions quiet\n",
    )?;
    let mut machine = fixture.start()?;
    fixture.fails(&mut machine, &[r"line 3.*\S", r"line [56].*\S"])
}

/// The next boot option has its turn.
pub(crate) fn wrong_embedded_setting(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let program = fixture.system.directory.join("wireboot.efi");
    embed::configuration(&boot_program()?, "nic intel\n", &program)?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    fixture.fails(
        &mut machine,
        &[r#"wireboot: error: the embedded configuration: nic "intel" is not understood: nic takes native, undi or snp"#],
    )?;
    fixture.goes_on(&mut machine)
}

pub(crate) fn wrong_load_option(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_disk("processors=many http://10.77.0.1/wireboot.conf")?;
    let mut machine = fixture.start()?;
    fixture.fails(
        &mut machine,
        &[r#"wireboot: error: load option "processors=many" is not understood: processors=N, nic=native, undi or snp, vlan=1"#],
    )
}
