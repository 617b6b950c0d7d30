//! wireboot in front of a boot loader that a site has, the way of `docs/deploy.md`: servers that others wrote, their loaders as they are,
//! wireboot.efi with a line beside them, and one changed line of DHCP.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use wireboot_lab::capture::{Capture, HEADERS, Transfer};
use wireboot_lab::ip::IpVersion;
use wireboot_lab::loaders::FOLDER;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{INTERFACE, NetworkOptions, SERVER, SERVER6};
use wireboot_lab::payload::{FIRST_QUESTION, INSTALLER_OPTIONS};
use wireboot_lab::qemu::RunningMachine;

use crate::fixture::{Daemon, Fixture, boot_program, expect, run};
use crate::servers;
use crate::system;

/// Where Debian's package has the tree of its installer.
const INSTALLER: &str = "/usr/lib/debian-installer/images/12/amd64/text/debian-installer";
/// Where a proxy is: not where the addresses come from.
const PROXY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// Puts wireboot.efi into a folder of the servers, with the page's line for the `loader` beside it.
fn in_front(fixture: &Fixture<'_>, folder: &str, loader: &str) -> Result<()> {
    let directory = &fixture.system.directory;
    // Those at the top are of no site.
    for file in ["wireboot.efi", "wireboot.conf"] {
        fs::remove_file(directory.join(file)).with_context(|| file.to_owned())?;
    }
    let folder = directory.join(folder);
    fs::copy(boot_program()?, folder.join("wireboot.efi"))?;
    let lines = fs::read_to_string(servers::configuration("in-front.conf")?)?;
    let lines = lines.replace("bootnetx64.efi", loader);
    fs::write(folder.join("wireboot.conf"), lines)?;
    Ok(())
}

/// The tree of Debian's installer as it is, on a network with room for other computers, and a machine without a screen: its menu is on the
/// serial line.
fn installer(lab: &Lab) -> Result<Fixture<'_>> {
    installer_on(lab, IpVersion::V4)
}

fn installer_on(lab: &Lab, version: IpVersion) -> Result<Fixture<'_>> {
    let options = NetworkOptions {
        bridge: true,
        ..NetworkOptions::of(version)
    };
    let mut fixture = Fixture::on(lab, options, 1)?;
    fixture.machine.pxe_only(Some(version));
    fixture.machine.memory_mib = 1280;
    fixture
        .machine
        .extra
        .extend(["-vga", "none"].map(Into::into));
    run(Command::new("cp")
        .args(["--recursive", INSTALLER])
        .arg(&fixture.system.directory))?;
    in_front(&fixture, FOLDER, "bootnetx64.efi")?;
    Ok(fixture)
}

fn capture(lab: &Lab) -> Result<Capture> {
    Capture::start(
        lab,
        INTERFACE,
        "udp",
        HEADERS,
        &lab.scratch().join("site.pcap"),
    )
}

/// Up to the menu of the installer's GRUB.
fn shows_the_menu(fixture: &Fixture<'_>) -> Result<RunningMachine> {
    let mut machine = fixture.start()?;
    expect(
        &mut machine,
        r"starting efi tftp://\S+/debian-installer/amd64/bootnetx64\.efi over wireboot's network",
    )?;
    expect(&mut machine, "GNU GRUB")?;
    expect(&mut machine, r"Advanced options \.\.\.")?;
    Ok(machine)
}

/// The file came whole, and how.
fn came<'a>(fixture: &Fixture<'_>, transfers: &'a [Transfer], file: &str) -> Result<&'a str> {
    let file = format!("{FOLDER}/{file}");
    let size = fs::metadata(fixture.system.directory.join(&file))?.len();
    let mut transfers = transfers.iter();
    let transfer = transfers
        .find(|one| one.file.trim_start_matches('/') == file && one.bytes == size)
        .with_context(|| format!("{file} did not come whole"))?;
    Ok(&transfer.granted)
}

/// shim, GRUB and the menu came from the folder of the tree.
fn to_the_menu(fixture: &Fixture<'_>) -> Result<()> {
    let capture = capture(fixture.lab)?;
    shows_the_menu(fixture)?;
    let transfers = capture.finish()?;
    for file in ["bootnetx64.efi", "grubx64.efi", "grub/grub.cfg"] {
        came(fixture, &transfers, file)?;
    }
    Ok(())
}

/// By dnsmasq's own TFTP, to the installer's first question.
pub(crate) fn installer_by_dnsmasq(lab: &Lab) -> Result<()> {
    let fixture = installer(lab)?;
    let _server =
        servers::dnsmasq_with_tftp(lab, "dnsmasq-in-front.conf", &fixture.system.directory)?;
    into_the_installer(&fixture, FIRST_QUESTION)
}

/// The same over IPv6, until the installer has its RAM disk. shim is told a URL.
pub(crate) fn installer_over_ipv6(lab: &Lab) -> Result<()> {
    let fixture = installer_on(lab, IpVersion::V6)?;
    let root = format!("--tftp-root={}", fixture.system.directory.display());
    let url =
        format!("--dhcp-option=option6:bootfile-url,tftp://[{SERVER6}]/{FOLDER}/wireboot.efi");
    let _server = servers::dnsmasq_for(
        lab,
        lab.command("dnsmasq"),
        "ipv6",
        &[
            "--port=0",
            "--enable-tftp",
            &root,
            "--interface=lab0",
            "--enable-ra",
            "--dhcp-range=fd00:77::100,fd00:77::1ff,64,1h",
            &url,
        ],
    )?;
    into_the_installer(&fixture, "Run /init as init process")
}

/// Starts the installer by GRUB, and waits until the console shows `words`.
fn into_the_installer(fixture: &Fixture<'_>, words: &str) -> Result<()> {
    let capture = capture(fixture.lab)?;
    let mut machine = shows_the_menu(fixture)?;
    // The menu's entry has the installer on a screen.
    machine.console.send("c")?;
    for line in [
        format!("linux /{FOLDER}/linux {INSTALLER_OPTIONS}"),
        format!("initrd /{FOLDER}/initrd.gz"),
        "boot".to_owned(),
    ] {
        expect(&mut machine, "grub> ")?;
        machine.console.send(&format!("{line}\r"))?;
    }
    expect(&mut machine, words)?;
    let transfers = capture.finish()?;
    for file in ["linux", "initrd.gz"] {
        let options = came(fixture, &transfers, file)?;
        ensure!(!options.contains("blksize=1024"), "{file}: {options}");
    }
    Ok(())
}

pub(crate) fn installer_by_kea(lab: &Lab) -> Result<()> {
    let fixture = installer(lab)?;
    let _other = fixture.network.station("other", PROXY)?;
    let _servers = [
        servers::kea(lab, "kea-in-front.json")?,
        servers::atftpd(lab, SERVER.into(), &fixture.system.directory)?,
    ];
    to_the_menu(&fixture)
}

/// The addresses come from a Kea that knows nothing of booting, the boot file from dnsmasq beside it.
pub(crate) fn installer_by_a_proxy(lab: &Lab) -> Result<()> {
    let fixture = installer(lab)?;
    let station = fixture.network.station("proxy", PROXY)?;
    let service = format!("--pxe-service=x86-64_EFI,Debian,{FOLDER}/wireboot.efi,10.77.0.1");
    let _servers = [
        servers::kea(lab, "kea-addresses-only.json")?,
        servers::atftpd(lab, SERVER.into(), &fixture.system.directory)?,
        servers::dnsmasq_for(
            lab,
            station.command("dnsmasq"),
            "proxy",
            &["--port=0", "--dhcp-range=10.77.0.0,proxy", &service],
        )?,
    ];
    to_the_menu(&fixture)
}

/// The firmware shows the prompt of a PXE server, and asks that again for the first entry of its menu.
pub(crate) fn installer_by_a_pxe_menu(lab: &Lab) -> Result<()> {
    let fixture = installer(lab)?;
    let _server = menu_server(&fixture)?;
    let capture = capture(lab)?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "Which system")?;
    expect(&mut machine, "over wireboot's network")?;
    expect(&mut machine, r"Advanced options \.\.\.")?;
    let transfers = capture.finish()?;
    for file in ["wireboot.efi", "grubx64.efi", "grub/grub.cfg"] {
        came(&fixture, &transfers, file)?;
    }
    Ok(())
}

fn menu_server(fixture: &Fixture<'_>) -> Result<Daemon> {
    let installer = format!("--pxe-service=x86-64_EFI,Debian,{FOLDER}/wireboot.efi");
    let root = format!("--tftp-root={}", fixture.system.directory.display());
    let lab = fixture.lab;
    servers::dnsmasq_for(
        lab,
        lab.command("dnsmasq"),
        "menu",
        &[
            "--port=0",
            "--enable-tftp",
            &root,
            "--interface=lab0",
            "--dhcp-range=10.77.0.100,10.77.0.199,255.255.255.0,1h",
            "--pxe-prompt=Which system?,1",
            &installer,
            &installer.replace("Debian", "The same"),
        ],
    )
}

/// iPXE asks DHCP again, over wireboot's network, and is told its script.
pub(crate) fn snponly_by_dnsmasq(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?;
    let directory = &fixture.system.directory;
    fs::copy("/usr/lib/ipxe/snponly.efi", directory.join("snponly.efi"))?;
    let script = format!(
        "#!ipxe\nkernel linux initrd=system.cpio initrd=data.cpio {}\ninitrd system.cpio\ninitrd data.cpio\nboot\n",
        system::OPTIONS
    );
    fs::write(directory.join("boot.ipxe"), script)?;
    in_front(&fixture, "", "snponly.efi")?;
    let _servers = [
        servers::dnsmasq_with_tftp(lab, "dnsmasq-in-front-of-ipxe.conf", directory)?,
        servers::nginx(lab, lab.command("nginx"), SERVER.into(), directory)?,
    ];
    let mut machine = fixture.start()?;
    expect(
        &mut machine,
        r"starting efi tftp://10\.77\.0\.1/snponly\.efi over wireboot's network",
    )?;
    expect(&mut machine, r"boot\.ipxe\.\.\.[^\n]* ok")?;
    fixture.runs(&mut machine)
}
