//! More programs over wireboot's network, each as its package has it: shim under Secure Boot, GRUB in its other forms, Xen, a unified kernel
//! image, a memory test; and shim and GRUB where the network is not kind.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use wireboot_lab::Impairment;
use wireboot_lab::capture::{Capture, HEADERS};
use wireboot_lab::gdb::Debugger;
use wireboot_lab::loaders::FOLDER;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{INTERFACE, NetworkOptions, SERVER};
use wireboot_lab::packages::{self, Package};
use wireboot_lab::qemu::Firmware;
use wireboot_lab::variables;

use crate::fixture::{Daemon, Fixture, PATIENCE, expect, run};
use crate::loaders::{MEMTEST, has_come, memtest, menu, prepare, prepare_by, small_menu, start};
use crate::processors::{CIRCLE, slow};
use crate::{secure_boot, servers, system};

/// Packages that are not installed: some would concern the loader of this computer.
const XEN: &str = "xen-hypervisor-4.17-amd64";
const STUB: &str = "systemd-boot-efi";

/// Fetches the programs into the cache, unless they are there.
pub(crate) fn fetch() -> Result<()> {
    packages::fetch(&[XEN, STUB, MEMTEST], &["bookworm"], Duration::MAX)
}

/// Servers that others wrote.
fn serve(fixture: &Fixture<'_>) -> Result<[Daemon; 3]> {
    let (lab, directory) = (fixture.lab, &fixture.system.directory);
    Ok([
        servers::dnsmasq(lab, lab.command("dnsmasq"), "dnsmasq.conf")?,
        servers::atftpd(lab, SERVER.into(), directory)?,
        servers::nginx(lab, lab.command("nginx"), SERVER.into(), directory)?,
    ])
}

/// Boots what `wireboot.conf` says, to the system.
fn boots(fixture: &Fixture<'_>) -> Result<()> {
    let _servers = serve(fixture)?;
    fixture.runs(&mut start(fixture)?)
}

/// The RAM disks of the test system in one file.
fn one_ram_disk(fixture: &Fixture<'_>) -> Result<()> {
    let directory = &fixture.system.directory;
    let parts = ["system.cpio", "data.cpio"].map(|file| fs::read(directory.join(file)));
    let [system, data] = parts;
    fs::write(directory.join("all.cpio"), [system?, data?].concat())?;
    Ok(())
}

/// A machine that trusts Microsoft, as machines do, and ovmf's test key; wireboot.efi is signed with that.
fn secure(lab: &Lab) -> Result<Fixture<'_>> {
    let mut fixture = Fixture::new(lab)?;
    let template = |name: &str| {
        let file = format!("/usr/share/OVMF/OVMF_VARS_4M.{name}.fd");
        fs::read(&file).context(file)
    };
    let mut trusting = template("ms")?;
    variables::trust_too(&mut trusting, &mut template("snakeoil")?)?;
    let file = lab.scratch().join("trusting.fd");
    fs::write(&file, trusting)?;
    fixture.machine.firmware = Firmware::Ovmf {
        code: "/usr/share/OVMF/OVMF_CODE_4M.ms.fd".into(),
        variables: file,
    };
    secure_boot::sign(lab, &fixture.system.directory.join("wireboot.efi"))?;
    Ok(fixture)
}

/// From a stick. With an engine on an AP, a few of these boots stood still in GRUB on a very busy host, after that AP had been given up as lost; why is not
/// known. OVMF with SMM, which Secure Boot needs, has all processors stop together.
fn with_one_processor(mut fixture: Fixture<'_>) -> Result<Fixture<'_>> {
    fixture.machine.processors = 1;
    fixture.by_stick()
}

/// Microsoft's signature of shim, Debian's of GRUB and of the kernel.
pub(crate) fn shim_under_secure_boot(lab: &Lab) -> Result<()> {
    let fixture = with_one_processor(secure(lab)?)?;
    prepare(&fixture, "10.77.0.1", &menu())?;
    let _servers = serve(&fixture)?;
    fixture.runs(&mut start(&fixture)?)
}

/// The same by HTTP.
pub(crate) fn shim_under_secure_boot_by_http(lab: &Lab) -> Result<()> {
    let fixture = with_one_processor(secure(lab)?)?;
    prepare_by(&fixture, "http", "10.77.0.1", &menu())?;
    let _servers = serve(&fixture)?;
    fixture.runs(&mut start(&fixture)?)
}

pub(crate) fn changed_shim_is_refused(lab: &Lab) -> Result<()> {
    let fixture = secure(lab)?;
    prepare(&fixture, "10.77.0.1", &menu())?;
    let file = fixture.system.directory.join(FOLDER).join("bootnetx64.efi");
    let mut shim = fs::read(&file)?;
    // In the middle of its code.
    let byte = shim.get_mut(0x10000).context("so short a shim")?;
    *byte ^= 1;
    fs::write(&file, shim)?;
    let _servers = serve(&fixture)?;
    let mut machine = fixture.start()?;
    let refused = r"wireboot: .*/bootnetx64\.efi: is refused by Secure Boot";
    fixture.fails(&mut machine, &[refused])?;
    fixture.goes_on(&mut machine)
}

/// All frames on the cable have the tag, and one only: GRUB's, too.
pub(crate) fn grub_in_a_vlan(lab: &Lab) -> Result<()> {
    let options = NetworkOptions {
        vlan: Some(5),
        ..NetworkOptions::default()
    };
    let mut fixture = Fixture::on(lab, options, 1)?;
    prepare(&fixture, "10.77.0.1", &small_menu(&fixture)?)?;
    // Without the near end: GRUB's own frames.
    fixture.boot_from_disk("vlan=5 near-end=0 http://10.77.0.1/wireboot.conf")?;
    let _servers = serve(&fixture)?;
    has_come(&mut start(&fixture)?)
}

/// GRUB with its modules in a tree; what it begins with has the module `protocol`.
fn grub_with_modules(fixture: &Fixture<'_>, protocol: &str) -> Result<()> {
    let directory = &fixture.system.directory;
    run(fixture
        .lab
        .command("grub-mknetdir")
        .arg(format!("--net-directory={}", directory.display()))
        .arg(format!("--modules={protocol}"))
        .args(["--subdir=boot/grub", "--directory=/usr/lib/grub/x86_64-efi"]))?;
    let core = "boot/grub/x86_64-efi/core.efi";
    fixture
        .system
        .configure(&format!("efi {protocol}://10.77.0.1/{core}\n"))
}

/// There is no TFTP. Each module of the tree comes by a connection of its own.
pub(crate) fn grub_with_modules_by_http(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.machine.pxe_only(None);
    grub_with_modules(&fixture, "http")?;
    let directory = &fixture.system.directory;
    fs::write(
        directory.join("boot/grub/grub.cfg"),
        format!(
            "linux /linux {}\ninitrd /system.cpio /data.cpio\nboot\n",
            system::OPTIONS
        ),
    )?;
    let capture = Capture::start(
        lab,
        INTERFACE,
        "tcp",
        HEADERS,
        &lab.scratch().join("grub.pcap"),
    )?;
    let _servers = [
        servers::dnsmasq(lab, lab.command("dnsmasq"), "dnsmasq.conf")?,
        servers::nginx(lab, lab.command("nginx"), SERVER.into(), directory)?,
    ];
    fixture.runs(&mut start(&fixture)?)?;
    let transfers = capture.finish()?;
    let files: Vec<_> = transfers.iter().map(|one| one.file.as_str()).collect();
    for file in ["linux.mod", "normal.mod"] {
        let file = format!("/boot/grub/x86_64-efi/{file}");
        ensure!(files.contains(&file.as_str()), "{file} is not in {files:?}");
    }
    Ok(())
}

/// GRUB with its modules in a tree, and Xen, which ends boot services itself.
pub(crate) fn xen_by_grub_with_modules(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?.by_stick()?;
    // Linux under Xen faults early on the newest processor that QEMU has.
    fixture.machine.processor = "qemu64".to_owned();
    let directory = &fixture.system.directory;
    grub_with_modules(&fixture, "tftp")?;
    let xen = Package::fetched(XEN)?.file(&["boot/xen-4.17-amd64.gz"])?;
    fs::copy(xen, directory.join("xen.gz"))?;
    let kernel = "/usr/lib/debian-installer/images/12/amd64/text/debian-installer/amd64/linux";
    fs::copy(kernel, directory.join("linux")).context(kernel)?;
    one_ram_disk(&fixture)?;
    fs::write(
        directory.join("boot/grub/grub.cfg"),
        "insmod gzio\nmultiboot2 /xen.gz com1=115200,8n1 console=com1 noreboot\n\
         module2 /linux console=hvc0 loglevel=4 cryptomgr.notests init_on_alloc=0\nmodule2 /all.cpio\nboot\n",
    )?;
    let _servers = serve(&fixture)?;
    let mut machine = start(&fixture)?;
    expect(&mut machine, "Bootloader: GRUB")?;
    fixture.runs(&mut machine)
}

/// GRUB in one file, which has the kernel come by an HTTP of its own.
pub(crate) fn grub_in_one_file_by_http(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    let directory = &fixture.system.directory;
    let program = "/usr/lib/grub/x86_64-efi/monolithic/grubnetx64.efi";
    fs::copy(program, directory.join("grub.efi")).context(program)?;
    // The one module that it lacks.
    let modules = directory.join("grub/x86_64-efi");
    fs::create_dir_all(&modules)?;
    let http = "/usr/lib/grub/x86_64-efi/http.mod";
    fs::copy(http, modules.join("http.mod")).context(http)?;
    let commands = format!(
        "insmod http\nset root=http,10.77.0.1\nlinux /linux {}\ninitrd /system.cpio /data.cpio\nboot\n",
        system::OPTIONS
    );
    fs::write(directory.join("grub/grub.cfg"), commands)?;
    fixture
        .system
        .configure("efi tftp://10.77.0.1/grub.efi\n")?;
    let _servers = serve(&fixture)?;
    let capture = Capture::start(
        lab,
        INTERFACE,
        "tcp",
        HEADERS,
        &lab.scratch().join("grub.pcap"),
    )?;
    fixture.runs(&mut start(&fixture)?)?;
    let transfers = capture.finish()?;
    for file in ["/linux", "/system.cpio", "/data.cpio"] {
        let asked = transfers.iter().any(|transfer| transfer.file == file);
        ensure!(asked, "{file} did not come by HTTP");
    }
    Ok(())
}

/// GRUB in one file, which came by HTTP, does not go by what it is told: it asks DHCP itself, and goes on by TFTP.
pub(crate) fn grub_that_asks_dhcp(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    let directory = &fixture.system.directory;
    let program = "/usr/lib/grub/x86_64-efi/monolithic/grubnetx64.efi";
    fs::copy(program, directory.join("grub.efi")).context(program)?;
    fs::write(
        directory.join("menu.cfg"),
        format!(
            "linux /linux {}\ninitrd /system.cpio /data.cpio\nboot\n",
            system::OPTIONS
        ),
    )?;
    fixture.system.configure("efi grub.efi\n")?;
    let _servers = serve(&fixture)?;
    let mut machine = start(&fixture)?;
    for (line, answer) in [
        ("net_bootp", ""),
        ("net_ls_addr", r"efinet0:dhcp \S+ 10\.77\.0\.1\d\d"),
        ("set root=tftp,10.77.0.1", ""),
        ("configfile /menu.cfg", ""),
    ] {
        expect(&mut machine, "grub> ")?;
        machine.console.send(&format!("{line}\r"))?;
        expect(&mut machine, answer)?;
    }
    fixture.runs(&mut machine)
}

/// systemd's stub with kernel, command line and RAM disks.
fn unified_kernel_image(fixture: &Fixture<'_>) -> Result<()> {
    let directory = &fixture.system.directory;
    one_ram_disk(fixture)?;
    fs::write(directory.join("options"), system::OPTIONS)?;
    let stub = Package::fetched(STUB)?.file(&["usr/lib/systemd/boot/efi/linuxx64.efi.stub"])?;
    let mut command = fixture.lab.command("objcopy");
    for (section, file, address) in [
        (".cmdline", "options", "0x30000"),
        (".linux", "linux", "0x2000000"),
        (".initrd", "all.cpio", "0x4000000"),
    ] {
        let file = directory.join(file);
        command.arg("--add-section");
        command.arg(format!("{section}={}", file.display()));
        command.arg("--change-section-vma");
        command.arg(format!("{section}={address}"));
    }
    run(command.arg(stub).arg(directory.join("system.efi")))
}

pub(crate) fn unified_kernel_image_by_tftp(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    unified_kernel_image(&fixture)?;
    fixture
        .system
        .configure("efi tftp://10.77.0.1/system.efi\n")?;
    boots(&fixture)
}

pub(crate) fn unified_kernel_image_by_http(lab: &Lab) -> Result<()> {
    let fixture = Fixture::new(lab)?.by_stick()?;
    unified_kernel_image(&fixture)?;
    fixture.system.configure("efi system.efi\n")?;
    boots(&fixture)
}

/// It takes all memory from the firmware, writes to each byte, and would find what a card still writes.
pub(crate) fn memory_test(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?.by_stick()?;
    fixture.machine.memory_mib = 192;
    fs::copy(memtest()?, fixture.system.directory.join("memtest.efi"))?;
    fixture
        .system
        .configure("efi memtest.efi\noptions console=ttyS0,115200\n")?;
    let _servers = serve(&fixture)?;
    let mut machine = start(&fixture)?;
    expect(&mut machine, r"Memtest86\+ v6")?;
    // Behind the first tests of addresses, which have written all of it.
    expect(&mut machine, r"#[2-9]\s+\[")?;
    expect(&mut machine, r"Pass:\s+0\s+Errors: 0 ").map(drop)
}

/// A fixture with shim and GRUB, and a bad cable, whose wireboot.efi comes from a disk: the firmware's TFTP would take minutes.
fn on_a_cable(lab: &Lab, impairment: Impairment, megabytes: usize) -> Result<Fixture<'_>> {
    let options = NetworkOptions {
        impairment: Some(impairment),
        ..NetworkOptions::default()
    };
    let mut fixture = Fixture::on(lab, options, megabytes)?;
    prepare(&fixture, "10.77.0.1", &menu())?;
    fixture.boot_from_disk("http://10.77.0.1/wireboot.conf")?;
    Ok(fixture)
}

pub(crate) fn lossy_network_under_grub(lab: &Lab) -> Result<()> {
    let impairment = Impairment {
        loss: 0.01,
        ..Impairment::default()
    };
    let fixture = on_a_cable(lab, impairment, 4)?;
    let _servers = serve(&fixture)?;
    fixture.runs(&mut start(&fixture)?)?;
    ensure!(
        fixture.network.lost_frames() > 0,
        "the cable has lost nothing"
    );
    Ok(())
}

/// The processor of the network hangs while GRUB reads: GRUB goes on over the BSP.
pub(crate) fn processor_hangs_under_grub(lab: &Lab) -> Result<()> {
    // 16 MB take 3 s or more.
    let mut fixture = on_a_cable(lab, slow().impairment.context("a fast cable")?, 16)?;
    let stub = fixture.debugged();
    let _servers = serve(&fixture)?;
    let mut machine = start(&fixture)?;
    expect(&mut machine, "Booting `x'")?;
    Debugger::attach(&stub)?.run(2, CIRCLE)?;
    expect(
        &mut machine,
        r"wireboot: warning: processor 1 is lost \(it stopped answering\); going on with the BSP \(bootstrap processor\)",
    )?;
    fixture.runs(&mut machine)
}

/// The server forgets the transfer of a file in its midst.
pub(crate) fn server_restarts_under_grub(lab: &Lab) -> Result<()> {
    // 20 MB take 3 s or more.
    let impairment = Impairment {
        rate: Some(50_000_000),
        ..Impairment::default()
    };
    let fixture = on_a_cable(lab, impairment, 20)?;
    let [_dhcp, tftp, _http] = serve(&fixture)?;
    let mut machine = start(&fixture)?;
    wait_for_request(lab, "data.cpio")?;
    drop(tftp);
    let _tftp = servers::atftpd(lab, SERVER.into(), &fixture.system.directory)?;
    fixture.runs(&mut machine)?;
    // Its log is a new one.
    wait_for_request(lab, "data.cpio")
}

/// Until atftpd says that it serves `file`.
fn wait_for_request(lab: &Lab, file: &str) -> Result<()> {
    let log = lab.scratch().join("atftpd.log");
    let deadline = std::time::Instant::now() + PATIENCE;
    while !fs::read_to_string(&log)?.contains(file) {
        ensure!(
            std::time::Instant::now() < deadline,
            "{file} is not asked for"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
