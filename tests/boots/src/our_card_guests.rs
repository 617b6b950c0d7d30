//! Guests over our card that others wrote: Linux and iPXE with drivers of their own, shim and GRUB by wireboot's and by the firmware's.

use std::fs;
use std::io::{self, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use wireboot_experiments::bench::linux::write_ram_disk;
use wireboot_lab::guest::Kernel;
use wireboot_lab::loaders::FOLDER;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{NetworkOptions, SERVER};
use wireboot_lab::nic::Nic;
use wireboot_lab::qemu::{DirectKernel, Firmware, NetworkCard};

use crate::fixture::{Fixture, expect, wireboot};
use crate::ipxe::IPXE;
use crate::our_card::{counter, has, sent, server_of};
use crate::{loaders, servers, system};

/// Where the test takes what Linux sends.
const PORT: u16 = 8081;
/// More than four connections' questions and acknowledgements, less than the file that each of them sends.
const SHARE: u64 = 2_000_000;
/// The longest frame of an ordinary link, in bytes.
const FRAME: u64 = 1514;

/// Linux gets a file and sends it back, with all that the card takes from it and with nothing.
pub(crate) fn linux_with_and_without_offloads(lab: &Lab) -> Result<()> {
    let all = exchange(lab, NetworkOptions::default(), "all")?;
    let none = exchange(lab, NetworkOptions::default(), "none")?;
    for (bytes, units) in [
        ("received_bytes", "received_units"),
        ("sent_bytes", "sent_units"),
    ] {
        // Many segments in a unit, or a frame.
        ensure!(
            counter(&all, bytes)? > 2 * FRAME * counter(&all, units)?,
            "{all}"
        );
        ensure!(
            counter(&none, bytes)? <= FRAME * counter(&none, units)?,
            "{none}"
        );
    }
    Ok(())
}

/// The same in frames of 9000 bytes, by four connections, of which Linux puts more than one pair of four to use.
pub(crate) fn linux_by_four_pairs(lab: &Lab) -> Result<()> {
    let options = NetworkOptions {
        mtu: 9000,
        queues: 4,
        ..NetworkOptions::default()
    };
    let counters = exchange(lab, options, "all")?;
    let pairs = counters.get("pairs").and_then(Value::as_array);
    let pairs = pairs.context("counters of each pair")?;
    // What comes goes by the processor on which a connection was last: on a busy host that may be one.
    let carries = |pair: &&Value| counter(pair, "sent_bytes").is_ok_and(|bytes| bytes > SHARE);
    ensure!(
        pairs.len() == 4 && pairs.iter().filter(carries).count() > 1,
        "{counters}"
    );
    Ok(())
}

/// As many connections as there are pairs of queues. The card's counters.
fn exchange(lab: &Lab, options: NetworkOptions, offload: &str) -> Result<Value> {
    let (mtu, queues) = (options.mtu, options.queues);
    let mut fixture = Fixture::on(lab, options, 8)?;
    let nic = if queues > 1 {
        Nic::start(lab, lab.command(wireboot()?), &fixture.network, None)?
    } else {
        let mut program = lab.command(wireboot()?);
        program.args(["nic", "run", "--offload", offload, "--wire"]);
        program.arg(format!("tap={}", fixture.network.cable()));
        Nic::launch(lab, program)?
    };
    nic.attach(&mut fixture.machine)?;
    let numbers: Vec<_> = (1..=queues).map(|number| number.to_string()).collect();
    let numbers = numbers.join(" ");
    let script = format!(
        "b() {{ /bin/busybox \"$@\"; }}\n\
         get() {{ b wget -q -O /file$1 http://{SERVER}/data.cpio; b sha256sum /file$1 >/sum$1; }}\n\
         b ip link set eth0 mtu {mtu}\n\
         for n in {numbers}; do get $n & done\nwait\nb cat /sum*\n\
         for n in {numbers}; do b nc {SERVER} {PORT} </file$n && echo >/sent$n & done\nwait\n\
         echo exchange: sent $(echo /sent*)"
    );
    start_linux(&mut fixture, &script)?;
    fixture.machine.processors = queues.max(2).into();
    let directory = &fixture.system.directory;
    let _server = servers::nginx(lab, lab.command("nginx"), SERVER.into(), directory)?;
    let listener = TcpListener::bind((SERVER, PORT)).context("listening")?;
    let sent = thread::spawn(move || (0..queues).map(|_| take(&listener)).collect());
    let mut machine = fixture.machine.start(lab, "linux", |_| {})?;
    let digest = fixture.system.digest_of("data.cpio")?;
    for number in 1..=queues {
        expect(&mut machine, &format!("{digest}  /file{number}"))?;
    }
    // Else who takes it waits for ever.
    let all: String = (1..=queues)
        .map(|number| format!(" /sent{number}"))
        .collect();
    expect(&mut machine, &format!("exchange: sent{all}"))?;
    let sent: io::Result<Vec<Vec<u8>>> =
        sent.join().map_err(|_| anyhow!("taking what was sent"))?;
    let data = fs::read(fixture.system.directory.join("data.cpio"))?;
    ensure!(
        sent?.iter().all(|one| *one == data),
        "Linux did not send what it got"
    );
    let counters = nic.end()?;
    for lost in ["send_lost", "receive_too_long", "receive_not_agreed"] {
        ensure!(counter(&counters, lost)? == 0, "{counters}");
    }
    Ok(counters)
}

/// All that a connection brings.
fn take(listener: &TcpListener) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    listener.accept()?.0.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Has QEMU start a Linux that does what the script says.
fn start_linux(fixture: &mut Fixture<'_>, script: &str) -> Result<()> {
    let kernel = Kernel::cached()?;
    let ram_disk = fixture.lab.scratch().join("initrd");
    write_ram_disk(&ram_disk, &kernel, "10.77.0.40/24", &[], script)?;
    on_legacy_firmware(fixture)?.boot_index = None;
    fixture.machine.kernel = Some(DirectKernel {
        kernel: kernel.image,
        initrd: Some(ram_disk),
        command_line: system::OPTIONS.to_owned(),
    });
    Ok(())
}

/// The machine's card.
fn on_legacy_firmware<'a>(fixture: &'a mut Fixture<'_>) -> Result<&'a mut NetworkCard> {
    fixture.machine.firmware = Firmware::SeaBios;
    fixture.machine.firmware_configuration.clear();
    fixture.machine.network.as_mut().context("a network card")
}

/// Has iPXE boot the system, by what its server sends it.
fn write_ipxe_script(fixture: &Fixture<'_>) -> Result<()> {
    let script = format!(
        "#!ipxe\nkernel linux initrd=system.cpio initrd=data.cpio {}\ninitrd system.cpio\ninitrd data.cpio\nboot\n",
        system::OPTIONS
    );
    fs::write(fixture.system.directory.join("boot.ipxe"), script).context("writing the script")
}

/// The card has sent the data whole, and nothing went wrong.
fn has_sent_all(fixture: &Fixture<'_>, nic: Nic) -> Result<()> {
    let log = nic.log();
    let sent = sent(fixture, "(TFTP|HTTP)", "data.cpio")?.replace(" data", " /?data");
    ensure!(has(&log, &sent)?, "{log}");
    // shim and GRUB ask for files that need not be there.
    let mut wrong = log
        .lines()
        .filter(|line| line.contains("error") || line.contains("stopped"));
    ensure!(
        wrong.all(|line| line.ends_with("no such file here")),
        "{log}"
    );
    let counters = nic.end()?;
    for lost in ["send_lost", "receive_too_long", "receive_not_agreed"] {
        ensure!(counter(&counters, lost)? == 0, "{counters}");
    }
    Ok(())
}

/// iPXE for UEFI, which drives the card itself.
pub(crate) fn ipxe(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    write_ipxe_script(&fixture)?;
    fixture.boot_from_stick(Path::new(IPXE))?;
    let nic = server_of(lab, &fixture.system.directory, "all")?;
    nic.attach(&mut fixture.machine)?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "net0: .* using virtio-net")?;
    fixture.runs(&mut machine)?;
    has_sent_all(&fixture, nic)
}

/// shim and GRUB, by wireboot's driver, which has asked its card for all that it does, and by the firmware's.
pub(crate) fn shim_and_grub(lab: &Lab) -> Result<()> {
    for (setting, network) in [
        ("", "wireboot's network"),
        ("network firmware\n", "the firmware's network"),
    ] {
        let mut fixture = Fixture::new(lab)?;
        loaders::prepare(&fixture, "10.77.0.1", &loaders::menu())?;
        // By the packets of the firmware's PXE, GRUB is beside wireboot.efi.
        let directory = &fixture.system.directory;
        fs::copy(
            directory.join(FOLDER).join("grubx64.efi"),
            directory.join("grubx64.efi"),
        )?;
        let shim = format!("{FOLDER}/bootnetx64.efi");
        fixture.system.configure(&format!(
            "{setting}title shim\nefi tftp://10.77.0.1/{shim}\n"
        ))?;
        let nic = server_of(lab, directory, "all")?;
        nic.attach(&mut fixture.machine)?;
        let mut machine = fixture.start()?;
        expect(&mut machine, &format!("starting efi .* over {network}"))?;
        fixture.runs(&mut machine)?;
        has_sent_all(&fixture, nic)?;
    }
    Ok(())
}

/// iPXE on SeaBIOS, over a card of the time before virtio 1.0, to the system.
pub(crate) fn ipxe_on_legacy_firmware(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    write_ipxe_script(&fixture)?;
    let nic = server_of(lab, &fixture.system.directory, "all")?;
    let card = on_legacy_firmware(&mut fixture)?;
    card.boot_index = None;
    card.properties
        .extend(["disable-modern=on", "disable-legacy=off"].map(str::to_owned));
    nic.attach(&mut fixture.machine)?;
    // Debian's ROM is for cards of virtio 1.0, and the firmware starts it for no other.
    fixture.machine.kernel = Some(DirectKernel {
        kernel: PathBuf::from("/usr/lib/ipxe/ipxe.lkrn"),
        initrd: None,
        command_line: String::new(),
    });
    let mut machine = fixture.machine.start(lab, "bios", |_| {})?;
    fixture.runs(&mut machine)?;
    has_sent_all(&fixture, nic)
}
