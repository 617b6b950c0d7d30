//! iPXE's snponly.efi over wireboot's network: Debian 12's, and the newest.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use wireboot_lab::loaders;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::SERVER;
use wireboot_lab::qemu::RunningMachine;

use crate::loaders::start;
use crate::scene::{Daemon, Scene, expect};
use crate::{servers, system};

const OLD: &str = "/usr/lib/ipxe/snponly.efi";

/// Boots the system.
fn script() -> String {
    format!(
        "kernel linux initrd=system.cpio initrd=data.cpio {}\ninitrd system.cpio\ninitrd data.cpio\nboot\n",
        system::OPTIONS
    )
}

/// Puts `snponly` where `wireboot.conf` says that it is to be started from, and a script.
fn prepare(scene: &Scene<'_>, snponly: &Path, script: &str) -> Result<()> {
    let directory = &scene.system.directory;
    fs::copy(snponly, directory.join("snponly.efi"))
        .with_context(|| snponly.display().to_string())?;
    fs::write(directory.join("boot.ipxe"), format!("#!ipxe\n{script}"))?;
    let by_tftp = "title iPXE\nefi tftp://10.77.0.1/snponly.efi\n";
    scene.system.configure(by_tftp)
}

/// Up to iPXE's script.
fn has_its_script(scene: &Scene<'_>) -> Result<RunningMachine> {
    let mut machine = start(scene)?;
    expect(&mut machine, "net0: .* using SNP")?;
    expect(&mut machine, r"boot\.ipxe\.+ ok")?;
    Ok(machine)
}

/// The script comes by HTTP, as our server names it, and all files too.
pub(crate) fn boots(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    prepare(&scene, Path::new(OLD), &script())?;
    let _server = scene.serve(&[])?;
    scene.runs(&mut has_its_script(&scene)?)
}

/// iPXE connects all controllers when it ends: the firmware's drivers must not take our handles, and get the card when they are gone.
pub(crate) fn exits(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    prepare(&scene, Path::new(OLD), "exit\n")?;
    let _server = scene.serve(&[])?;
    returns(&scene, &mut has_its_script(&scene)?)
}

fn returns(scene: &Scene<'_>, machine: &mut RunningMachine) -> Result<()> {
    expect(machine, r"snponly\.efi returned")?;
    scene.goes_on(machine)
}

/// Its first script comes by TFTP, and has another come by HTTP.
fn newest(scene: &Scene<'_>, second: &str) -> Result<[Daemon; 2]> {
    let url = "http://10.77.0.1/second.ipxe";
    let snponly: PathBuf = loaders::newest_snponly()?;
    prepare(scene, &snponly, &format!("chain {url}\n"))?;
    let (lab, directory) = (scene.lab, &scene.system.directory);
    fs::write(directory.join("second.ipxe"), format!("#!ipxe\n{second}"))?;
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
                "--dhcp-boot=tag:ipxe,boot.ipxe,,10.77.0.1",
                "--dhcp-boot=tag:!ipxe,wireboot.efi,,10.77.0.1",
            ],
        )?,
        servers::nginx(lab, lab.command("nginx"), SERVER.into(), directory)?,
    ])
}

/// The kernel comes by TFTP, and what is large by HTTP.
pub(crate) fn newest_boots(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    let by_tftp = script().replace("kernel linux", "kernel tftp://10.77.0.1/linux");
    let _servers = newest(&scene, &by_tftp)?;
    let mut machine = has_its_script(&scene)?;
    expect(&mut machine, r"second\.ipxe\.+ ok")?;
    expect(&mut machine, r"tftp://10\.77\.0\.1/linux\.\.\.[^\n]* ok")?;
    scene.runs(&mut machine)
}

/// It has used TCP and has a file in memory when it ends.
pub(crate) fn newest_exits(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    let _servers = newest(&scene, "imgfetch data.cpio\nexit\n")?;
    let mut machine = has_its_script(&scene)?;
    expect(&mut machine, r"data\.cpio\.\.\.[^\n]* ok")?;
    returns(&scene, &mut machine)
}
