//! Boot loaders over wireboot's network: Debian's shim and GRUB, as they are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use wireboot_lab::capture::Capture;
use wireboot_lab::embed;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::loaders::{self, FOLDER};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{INTERFACE, NetworkOptions, SERVER6};
use wireboot_lab::qemu::RunningMachine;
use wireboot_lab::server::Server;

use crate::scene::{Scene, boot_program, expect, faulty_program};
use crate::system;

const SNPONLY: &str = "/usr/lib/ipxe/snponly.efi";

/// What GRUB boots: the test system.
pub(crate) fn menu() -> String {
    format!(
        "set timeout=0\nmenuentry x {{\nlinux /linux {}\ninitrd /system.cpio /data.cpio\n}}\n",
        system::OPTIONS
    )
}

/// Puts shim into its folder, with `menu` as GRUB's configuration, and has wireboot start it from `server` by TFTP.
pub(crate) fn prepare(scene: &Scene<'_>, server: &str, menu: &str) -> Result<()> {
    prepare_by(scene, "tftp", server, menu)
}

/// The same by the protocol `scheme`.
pub(crate) fn prepare_by(scene: &Scene<'_>, scheme: &str, server: &str, menu: &str) -> Result<()> {
    loaders::shim_and_grub(&scene.system.directory, menu)?;
    let shim = format!("title shim\nefi {scheme}://{server}/{FOLDER}/bootnetx64.efi\n");
    scene.system.configure(&shim)
}

/// wireboot.efi with `settings` in it.
pub(crate) fn program(scene: &Scene<'_>, settings: &str) -> Result<PathBuf> {
    embedded(scene, &boot_program()?, settings)
}

fn embedded(scene: &Scene<'_>, from: &Path, settings: &str) -> Result<PathBuf> {
    let program = scene.system.directory.join("wireboot.efi");
    if settings.is_empty() {
        fs::copy(from, &program)?;
    } else {
        embed::configuration(from, settings, &program)?;
    }
    Ok(program)
}

pub(crate) fn start(scene: &Scene<'_>) -> Result<RunningMachine> {
    let mut machine = scene.start()?;
    expect(&mut machine, "starting efi .* over wireboot's network")?;
    Ok(machine)
}

/// shim asks for GRUB in its own folder, by its server's name of that; GRUB reads configuration, kernel and RAM disks with a network stack of
/// its own, and boot services end while it has everything open. Returns what was agreed for each file on the wire.
fn to_a_system(lab: &Lab, settings: &str) -> Result<impl Fn(&str) -> Result<String>> {
    let scene = Scene::new(lab)?;
    prepare(&scene, "10.77.0.1", &menu())?;
    let program = program(&scene, settings)?;
    let _server = scene.serve_program(&program, &[])?;
    let capture = Capture::start(lab, INTERFACE, "udp", &lab.scratch().join("loaders.pcap"))?;
    scene.runs(&mut start(&scene)?)?;
    let transfers = capture.finish()?;
    Ok(move |file: &str| {
        let mut transfers = transfers.iter();
        let transfer = transfers.find(|transfer| transfer.file.trim_start_matches('/') == file);
        let options = transfer.map(|transfer| transfer.options.clone());
        options.with_context(|| format!("{file} was not asked for"))
    })
}

/// GRUB's reads end in the machine: the server sees wireboot's windows.
pub(crate) fn shim_and_grub(lab: &Lab) -> Result<()> {
    let options = to_a_system(lab, "")?;
    options(&format!("{FOLDER}/grubx64.efi"))?;
    for file in ["linux", "system.cpio", "data.cpio"] {
        let options = options(file)?;
        ensure!(options.contains("windowsize"), "{file}: {options}");
    }
    Ok(())
}

/// GRUB's own requests reach the server.
pub(crate) fn grub_by_its_own_means(lab: &Lab) -> Result<()> {
    let options = to_a_system(lab, "near-end 0\n")?;
    for file in ["linux", "system.cpio", "data.cpio"] {
        let options = options(file)?;
        ensure!(options.contains("blksize=1024"), "{file}: {options}");
        ensure!(!options.contains("windowsize"), "{file}: {options}");
    }
    Ok(())
}

/// The same over IPv6, by PXE: shim is told a URL.
pub(crate) fn shim_and_grub_over_ipv6(lab: &Lab) -> Result<()> {
    let mut scene = Scene::on(lab, NetworkOptions::of(IpVersion::V6), 4)?;
    scene.machine.pxe_only(Some(IpVersion::V6));
    prepare(&scene, &format!("[{SERVER6}]"), &menu())?;
    let program = program(&scene, "")?;
    let _server = scene.serve_program(&program, &["--ra"])?;
    scene.runs(&mut start(&scene)?)
}

/// No PXE of the firmware's has been before: shim and GRUB are told what DHCP told wireboot.
pub(crate) fn shim_and_grub_from_a_disk(lab: &Lab) -> Result<()> {
    let mut scene = Scene::new(lab)?;
    prepare(&scene, "10.77.0.1", &menu())?;
    let _server = scene.serve(&[])?;
    scene.boot_from_disk("http://10.77.0.1/wireboot.conf")?;
    scene.runs(&mut start(&scene)?)
}

/// shim came by HTTP: it asks for GRUB by EFI_HTTP_PROTOCOL, and GRUB, which has no HTTP in it, goes on by TFTP with a network stack of its own.
pub(crate) fn shim_by_http_and_grub(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    prepare_by(&scene, "http", "10.77.0.1", &menu())?;
    let program = program(&scene, "")?;
    let _server = scene.serve_program(&program, &[])?;
    let file = lab.scratch().join("loaders.pcap");
    let capture = Capture::start(lab, INTERFACE, "tcp", &file)?;
    scene.runs(&mut start(&scene)?)?;
    capture.finish()?;
    // shim asks for several files on one connection, and puts a second slash before their names.
    let packets = fs::read(&file)?;
    let text = String::from_utf8_lossy(&packets);
    let targets = text
        .split("GET ")
        .skip(1)
        .filter_map(|rest| rest.split(' ').next());
    let targets: Vec<_> = targets.collect();
    let grub = format!("/{FOLDER}//grubx64.efi");
    ensure!(
        targets.contains(&grub.as_str()),
        "{grub} is not in {targets:?}"
    );
    Ok(())
}

/// shim finds the stack that it is written for, and the packets of the firmware's PXE: they name wireboot.efi, so GRUB is beside that.
pub(crate) fn shim_and_grub_over_the_firmwares_network(lab: &Lab) -> Result<()> {
    let scene = Scene::on(lab, NetworkOptions::default(), 1)?;
    prepare(&scene, "10.77.0.1", &menu())?;
    let directory = &scene.system.directory;
    let grub = directory.join(FOLDER).join("grubx64.efi");
    fs::copy(grub, directory.join("grubx64.efi"))?;
    let program = program(&scene, "network firmware\n")?;
    let _server = scene.serve_program(&program, &[])?;
    let mut machine = scene.start()?;
    expect(&mut machine, "starting efi .* over the firmware's network")?;
    scene.runs(&mut machine)
}

/// A loader that returns leaves the firmware its network.
pub(crate) fn grub_that_exits(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    prepare(&scene, "10.77.0.1", "echo on the way out\nexit\n")?;
    let program = program(&scene, "")?;
    let _server = scene.serve_program(&program, &[])?;
    let mut machine = start(&scene)?;
    expect(&mut machine, "on the way out")?;
    expect(&mut machine, r"bootnetx64\.efi returned")?;
    scene.goes_on(&mut machine)
}

/// iPXE's snponly.efi over wireboot's network, with a script that comes by HTTP.
fn ipxe(scene: &Scene<'_>, script: &str) -> Result<(RunningMachine, Server)> {
    let directory = &scene.system.directory;
    fs::copy(SNPONLY, directory.join("snponly.efi")).context(SNPONLY)?;
    fs::write(directory.join("boot.ipxe"), format!("#!ipxe\n{script}"))?;
    let by_tftp = "title iPXE\nefi tftp://10.77.0.1/snponly.efi\n";
    scene.system.configure(by_tftp)?;
    let program = program(scene, "")?;
    let server = scene.serve_program(&program, &[])?;
    let mut machine = start(scene)?;
    expect(&mut machine, "net0: .* using SNP")?;
    expect(&mut machine, r"boot\.ipxe\.\.\.[^\n]* ok")?;
    Ok((machine, server))
}

pub(crate) fn ipxe_boots(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    let script = format!(
        "kernel linux initrd=system.cpio initrd=data.cpio {}\ninitrd system.cpio\ninitrd data.cpio\nboot\n",
        system::OPTIONS
    );
    let (mut machine, _server) = ipxe(&scene, &script)?;
    scene.runs(&mut machine)
}

/// iPXE connects all controllers when it ends: the firmware's drivers must not take our handles, and get the card when they are gone.
pub(crate) fn ipxe_exits(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    let (mut machine, _server) = ipxe(&scene, "exit\n")?;
    expect(&mut machine, r"snponly\.efi returned")?;
    scene.goes_on(&mut machine)
}

/// A panic in a call ends the loader and wireboot; the firmware goes on, with its network.
pub(crate) fn panic_in_a_call(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    prepare(&scene, "10.77.0.1", "")?;
    let file = scene.system.directory.join("wireboot.conf");
    let text = fs::read_to_string(&file)? + "options fault=call\n";
    fs::write(&file, text)?;
    let program = embedded(&scene, &faulty_program()?, "")?;
    let _server = scene.serve_program(&program, &[])?;
    let mut machine = start(&scene)?;
    expect(&mut machine, "internal error")?;
    expect(&mut machine, "a planted fault")?;
    expect(&mut machine, r"bootnetx64\.efi returned")?;
    scene.goes_on(&mut machine)
}
