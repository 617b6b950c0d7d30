//! Boot loaders over wireboot's network: Debian's shim and GRUB, as they are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use wireboot_lab::capture::{Capture, HEADERS, Transfer};
use wireboot_lab::embed;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::loaders::{self, FOLDER};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{INTERFACE, NetworkOptions, SERVER6};
use wireboot_lab::packages::Package;
use wireboot_lab::qemu::RunningMachine;
use wireboot_lab::server::Server;

use crate::fixture::{Fixture, boot_program, expect, faulty_program, run};
use crate::system;

/// The package of a small program that GRUB starts. It is not installed.
pub(crate) const MEMTEST: &str = "memtest86+";

/// Where Debian's package has iPXE's programs.
const IPXE: &str = "/usr/lib/ipxe";

/// What GRUB boots: the test system.
pub(crate) fn menu() -> String {
    format!(
        "set timeout=0\nmenuentry x {{\nlinux /linux {}\ninitrd /system.cpio /data.cpio\n}}\n",
        system::OPTIONS
    )
}

/// Puts shim into its folder, with `menu` as GRUB's configuration, and has wireboot start it from `server` by TFTP.
pub(crate) fn prepare(fixture: &Fixture<'_>, server: &str, menu: &str) -> Result<()> {
    prepare_by(fixture, "tftp", server, menu)
}

/// The same by the protocol `scheme`.
pub(crate) fn prepare_by(
    fixture: &Fixture<'_>,
    scheme: &str,
    server: &str,
    menu: &str,
) -> Result<()> {
    loaders::shim_and_grub(&fixture.system.directory, menu)?;
    let shim = format!("title shim\nefi {scheme}://{server}/{FOLDER}/bootnetx64.efi\n");
    fixture.system.configure(&shim)
}

/// wireboot.efi with `settings` in it.
pub(crate) fn program(fixture: &Fixture<'_>, settings: &str) -> Result<PathBuf> {
    embedded(fixture, &boot_program()?, settings)
}

pub(crate) fn embedded(fixture: &Fixture<'_>, from: &Path, settings: &str) -> Result<PathBuf> {
    let program = fixture.system.directory.join("wireboot.efi");
    if settings.is_empty() {
        fs::copy(from, &program)?;
    } else {
        embed::configuration(from, settings, &program)?;
    }
    Ok(program)
}

pub(crate) fn start(fixture: &Fixture<'_>) -> Result<RunningMachine> {
    let mut machine = fixture.start()?;
    expect(&mut machine, "starting efi .* over wireboot's network")?;
    Ok(machine)
}

/// What was agreed for a file on the wire.
fn agreed(transfers: &[Transfer], file: &str) -> Result<String> {
    let mut transfers = transfers.iter();
    let transfer = transfers.find(|transfer| transfer.file.trim_start_matches('/') == file);
    let options = transfer.map(|transfer| transfer.granted.clone());
    options.with_context(|| format!("{file} was not asked for"))
}

fn capture(fixture: &Fixture<'_>) -> Result<Capture> {
    let file = fixture.lab.scratch().join("loaders.pcap");
    Capture::start(fixture.lab, INTERFACE, "udp", HEADERS, &file)
}

/// shim asks for GRUB in its own folder, by its server's name of that; GRUB reads configuration, kernel and RAM disks with a network stack of
/// its own, and boot services end while it has everything open. GRUB's reads end in the machine: the server sees wireboot's windows. One file is larger than the memory for it.
pub(crate) fn shim_and_grub(lab: &Lab) -> Result<()> {
    shim_and_grub_in(&Fixture::on(lab, NetworkOptions::default(), 68)?)
}

pub(crate) fn shim_and_grub_in(fixture: &Fixture<'_>) -> Result<()> {
    prepare(fixture, "10.77.0.1", &menu())?;
    let _server = fixture.serve(&[])?;
    let capture = capture(fixture)?;
    fixture.runs(&mut start(fixture)?)?;
    let transfers = capture.finish()?;
    agreed(&transfers, &format!("{FOLDER}/grubx64.efi"))?;
    for file in ["linux", "system.cpio", "data.cpio"] {
        let options = agreed(&transfers, file)?;
        ensure!(options.contains("windowsize"), "{file}: {options}");
    }
    Ok(())
}

/// What GRUB brings where it is to do so by its own TFTP, which takes a whole minute for a Linux: a small kernel, and data. It says so, and starts
/// nothing.
pub(crate) fn small_menu(fixture: &Fixture<'_>) -> Result<String> {
    fs::copy(memtest()?, fixture.system.directory.join("memtest.efi"))?;
    Ok("set timeout=0\nmenuentry x {\nif linux /memtest.efi; then if initrd /data.cpio; then echo all has come; fi; fi\nsleep 1000\n}\n".to_owned())
}

/// GRUB has brought it.
pub(crate) fn has_come(machine: &mut RunningMachine) -> Result<()> {
    expect(machine, "all has come").map(drop)
}

/// The small program, out of its package in the cache.
pub(crate) fn memtest() -> Result<PathBuf> {
    Package::fetched(MEMTEST)?.file(&["boot/memtest86+x64.efi"])
}

/// GRUB's own requests reach the server.
pub(crate) fn grub_by_its_own_means(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    prepare(&fixture, "10.77.0.1", &small_menu(&fixture)?)?;
    let _server = fixture.serve_program(&program(&fixture, "near-end 0\n")?, &[])?;
    let capture = capture(&fixture)?;
    has_come(&mut start(&fixture)?)?;
    let transfers = capture.finish()?;
    for file in ["memtest.efi", "data.cpio"] {
        let options = agreed(&transfers, file)?;
        ensure!(options.contains("blksize=1024"), "{file}: {options}");
        ensure!(!options.contains("windowsize"), "{file}: {options}");
    }
    Ok(())
}

/// The same over IPv6, by PXE: shim is told a URL.
pub(crate) fn shim_and_grub_over_ipv6(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::on(lab, NetworkOptions::of(IpVersion::V6), 1)?;
    fixture.machine.pxe_only(Some(IpVersion::V6));
    prepare(&fixture, &format!("[{SERVER6}]"), &menu())?;
    let program = program(&fixture, "")?;
    let _server = fixture.serve_program(&program, &["--ra"])?;
    fixture.runs(&mut start(&fixture)?)
}

/// No PXE of the firmware's has been before: shim and GRUB are told what DHCP told wireboot.
pub(crate) fn shim_and_grub_from_a_disk(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    prepare(&fixture, "10.77.0.1", &menu())?;
    let _server = fixture.serve(&[])?;
    fixture.boot_from_disk("http://10.77.0.1/wireboot.conf")?;
    fixture.runs(&mut start(&fixture)?)
}

/// The same over IPv6: the URL of shim's folder is in our Reply.
pub(crate) fn shim_and_grub_from_a_disk_over_ipv6(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::on(lab, NetworkOptions::of(IpVersion::V6), 4)?;
    prepare(&fixture, &format!("[{SERVER6}]"), &menu())?;
    let _server = fixture.serve(&["--ra"])?;
    fixture.boot_from_disk(&format!("http://[{SERVER6}]/wireboot.conf"))?;
    fixture.runs(&mut start(&fixture)?)
}

/// What was asked for by HTTP while `fixture` booted.
fn boots_with_requests(fixture: &Fixture<'_>) -> Result<Vec<String>> {
    let file = fixture.lab.scratch().join("loaders.pcap");
    let capture = Capture::start(fixture.lab, INTERFACE, "tcp", HEADERS, &file)?;
    fixture.runs(&mut start(fixture)?)?;
    capture.finish()?;
    let packets = fs::read(&file)?;
    let text = String::from_utf8_lossy(&packets);
    let requests = text.split("GET ").skip(1);
    let targets = requests.filter_map(|rest| rest.split(' ').next());
    Ok(targets.map(ToOwned::to_owned).collect())
}

fn asked_for(targets: &[String], file: &str) -> Result<()> {
    ensure!(
        targets.iter().any(|target| target == file),
        "{file} is not in {targets:?}"
    );
    Ok(())
}

/// What shim asks for: several files on one connection, with a second slash before their names.
fn shims_grub() -> String {
    format!("/{FOLDER}//grubx64.efi")
}

/// shim came by HTTP: it asks for GRUB by EFI_HTTP_PROTOCOL. Debian's GRUB has no HTTP in it, so it goes on by TFTP, with a network stack of
/// its own.
pub(crate) fn shim_by_http_and_grub(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    prepare_by(&fixture, "http", "10.77.0.1", &menu())?;
    let program = program(&fixture, "")?;
    let _server = fixture.serve_program(&program, &[])?;
    let targets = boots_with_requests(&fixture)?;
    asked_for(&targets, &shims_grub())?;
    ensure!(
        targets.iter().all(|target| target != "/linux"),
        "{targets:?}"
    );
    Ok(())
}

/// The same over IPv6, with a GRUB that has HTTP: it goes on by that, by what the path of shim's device says.
pub(crate) fn shim_and_grub_by_http_over_ipv6(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::on(lab, NetworkOptions::of(IpVersion::V6), 1)?;
    fixture.machine.pxe_only(Some(IpVersion::V6));
    prepare_by(&fixture, "http", &format!("[{SERVER6}]"), &menu())?;
    let grub = fixture.system.directory.join(FOLDER).join("grubx64.efi");
    let modules = ["normal", "linux", "http", "efinet", "net"];
    run(lab
        .command("grub-mkimage")
        .args(["-O", "x86_64-efi", "-d", "/usr/lib/grub/x86_64-efi"])
        .arg(format!("--prefix=/{FOLDER}/grub"))
        .arg(format!("--output={}", grub.display()))
        .args(modules))?;
    let program = program(&fixture, "")?;
    let _server = fixture.serve_program(&program, &["--ra"])?;
    let targets = boots_with_requests(&fixture)?;
    asked_for(&targets, &shims_grub())?;
    for file in ["/linux", "/system.cpio", "/data.cpio"] {
        asked_for(&targets, file)?;
    }
    Ok(())
}

/// shim finds the stack that it is written for, and the packets of the firmware's PXE: they name wireboot.efi, so GRUB is beside that.
pub(crate) fn shim_and_grub_over_the_firmwares_network(lab: &Lab) -> Result<()> {
    let fixture = Fixture::on(lab, NetworkOptions::default(), 1)?;
    prepare(&fixture, "10.77.0.1", &menu())?;
    let directory = &fixture.system.directory;
    let grub = directory.join(FOLDER).join("grubx64.efi");
    fs::copy(grub, directory.join("grubx64.efi"))?;
    let program = program(&fixture, "network firmware\n")?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "starting efi .* over the firmware's network")?;
    fixture.runs(&mut machine)
}

/// A loader that returns leaves the firmware its network.
pub(crate) fn grub_that_exits(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    prepare(&fixture, "10.77.0.1", "echo on the way out\nexit\n")?;
    let program = program(&fixture, "")?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = start(&fixture)?;
    expect(&mut machine, "on the way out")?;
    expect(
        &mut machine,
        r"near end: [1-9]\d* reads by TFTP and 0 connections, [1-9]\d* bytes to the boot loader, 0 from it",
    )?;
    expect(&mut machine, r"bootnetx64\.efi returned")?;
    fixture.goes_on(&mut machine)
}

/// A program of iPXE's that is started over wireboot's network, and finds its card by `driver`, with a script that comes by HTTP.
pub(crate) fn ipxe(
    fixture: &Fixture<'_>,
    file: &str,
    driver: &str,
    script: &str,
) -> Result<(RunningMachine, Server)> {
    let directory = &fixture.system.directory;
    fs::copy(Path::new(IPXE).join(file), directory.join(file)).context(IPXE)?;
    fs::write(directory.join("boot.ipxe"), format!("#!ipxe\n{script}"))?;
    let by_tftp = format!("title iPXE\nefi tftp://10.77.0.1/{file}\n");
    fixture.system.configure(&by_tftp)?;
    let program = program(fixture, "")?;
    let server = fixture.serve_program(&program, &[])?;
    let mut machine = start(fixture)?;
    expect(&mut machine, &format!("net0: .* using {driver}"))?;
    expect(&mut machine, r"boot\.ipxe\.\.\.[^\n]* ok")?;
    Ok((machine, server))
}

/// The script that boots the test system.
pub(crate) fn to_the_system() -> String {
    format!(
        "kernel linux initrd=system.cpio initrd=data.cpio {}\ninitrd system.cpio\ninitrd data.cpio\nboot\n",
        system::OPTIONS
    )
}

pub(crate) fn ipxe_boots(lab: &Lab) -> Result<()> {
    ipxe_boots_in(&Fixture::new(lab)?.by_stick()?)
}

pub(crate) fn ipxe_boots_in(fixture: &Fixture<'_>) -> Result<()> {
    let (mut machine, _server) = ipxe(fixture, "snponly.efi", "SNP", &to_the_system())?;
    fixture.runs(&mut machine)
}

/// iPXE connects all controllers when it ends: the firmware's drivers must not take our handles, and get the card when they are gone.
pub(crate) fn ipxe_exits(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let (mut machine, _server) = ipxe(&fixture, "snponly.efi", "SNP", "exit\n")?;
    expect(&mut machine, r"snponly\.efi returned")?;
    fixture.goes_on(&mut machine)
}

/// A panic in a call ends the loader and wireboot; the firmware goes on, with its network.
pub(crate) fn panic_in_a_call(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    prepare(&fixture, "10.77.0.1", "")?;
    let file = fixture.system.directory.join("wireboot.conf");
    let text = fs::read_to_string(&file)? + "options fault=call\n";
    fs::write(&file, text)?;
    let program = embedded(&fixture, &faulty_program()?, "")?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = start(&fixture)?;
    expect(&mut machine, "internal error")?;
    expect(&mut machine, "a planted fault")?;
    expect(&mut machine, r"bootnetx64\.efi returned")?;
    fixture.goes_on(&mut machine)
}
