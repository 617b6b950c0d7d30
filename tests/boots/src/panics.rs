//! A panic ends wireboot, not the boot, wherever it comes. The program has them planted: the argument `fault=PLACE` of what is booted says where.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use regex::Regex;
use wireboot_lab::embed;
use wireboot_lab::gdb::Debugger;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{INTERFACE, SERVER};
use wireboot_lab::qemu::RunningMachine;
use wireboot_lab::sender::Sender;
use wireboot_report::Report;

use crate::callers::{self, FILE};
use crate::fixture::{Fixture, PATIENCE, expect, faulty_doctor, faulty_program};
use crate::loaders;
use crate::processors::{THREE_ENGINES, slow, three_pairs};
use crate::system;

/// A machine that boots a program with a fault in it.
struct Victim<'lab> {
    fixture: Fixture<'lab>,
    program: PathBuf,
    /// QEMU's, for a debugger.
    stub: PathBuf,
    /// What the user sees of where the network runs.
    location: &'static str,
}

/// An engine on an AP, as usual.
fn one_engine<'lab>(lab: &'lab Lab, fault: &str) -> Result<Victim<'lab>> {
    let fixture = Fixture::on(lab, slow(), 4)?;
    let program = fixture.system.directory.join("wireboot.efi");
    fs::copy(faulty_program()?, &program)?;
    victim(
        fixture,
        program,
        "wireboot: the network runs on processor 1",
        fault,
    )
}

/// An engine on each of three processors.
fn three_engines<'lab>(lab: &'lab Lab, fault: &str) -> Result<Victim<'lab>> {
    let fixture = three_pairs(lab, IpVersion::V4, 20)?;
    let program = fixture.system.directory.join("wireboot.efi");
    embed::configuration(&faulty_program()?, "processors 3\n", &program)?;
    victim(fixture, program, THREE_ENGINES, fault)
}

fn victim<'lab>(
    mut fixture: Fixture<'lab>,
    program: PathBuf,
    location: &'static str,
    fault: &str,
) -> Result<Victim<'lab>> {
    configure(&fixture, &format!("fault={fault}"))?;
    Ok(Victim {
        stub: fixture.debugged(),
        fixture,
        program,
        location,
    })
}

fn configure(fixture: &Fixture<'_>, argument: &str) -> Result<()> {
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {} {argument}\n",
        system::OPTIONS
    ))
}

/// Where wireboot's image lies in memory: its start and its end.
fn image(machine: &mut RunningMachine) -> Result<(u64, u64)> {
    const PLANTED: &str = r"wireboot: fault planted: \w+; image 0x([0-9a-f]+) to 0x([0-9a-f]+)\s";
    let line = expect(machine, PLANTED)?;
    let groups = Regex::new(PLANTED)?;
    let groups = groups.captures(&line).context("where the image is")?;
    let [start, end] = [1, 2].map(|group| u64::from_str_radix(&groups[group], 16));
    Ok((start?, end?))
}

impl Victim<'_> {
    /// No processor from `first` on (counted from 1) is in the image.
    fn is_out_of_the_image(&self, stub: &Path, first: usize, image: (u64, u64)) -> Result<()> {
        let positions = Debugger::attach(stub)?.positions(self.fixture.machine.processors)?;
        let others = positions.get(first - 1..).unwrap_or_default();
        ensure!(!others.is_empty(), "there is no such processor");
        ensure!(
            others.iter().all(|at| !(image.0..image.1).contains(at)),
            "a processor runs on in the image {image:x?}: {positions:x?}"
        );
        Ok(())
    }

    /// The firmware goes on with its next boot option, and nobody is left in the image; that option has the network.
    fn ends_wireboot(self) -> Result<()> {
        let fixture = &self.fixture;
        let server = fixture.serve_program(&self.program, &[])?;
        let mut machine = fixture.start()?;
        expect(&mut machine, self.location)?;
        let image = image(&mut machine)?;
        expect(
            &mut machine,
            "wireboot: error: internal error, please report it: panicked at",
        )?;
        // Until the processors have been looked at, nothing else is booted.
        drop(server);
        fixture.goes_on(&mut machine)?;
        self.is_out_of_the_image(&self.stub, 1, image)?;
        configure(fixture, "")?;
        let _server = fixture.serve_program(&self.program, &[])?;
        expect(&mut machine, self.location)?;
        fixture.arrives(&mut machine)
    }

    /// The boot goes on without the APs.
    fn loses_processors(mut self) -> Result<()> {
        self.fixture.boot_from_stick(&self.program)?;
        let fixture = &self.fixture;
        let _server = fixture.serve_program(&self.program, &[])?;
        let mut machine = fixture.start()?;
        expect(&mut machine, self.location)?;
        let image = image(&mut machine)?;
        expect(
            &mut machine,
            r"wireboot: warning: processor \d is lost \(panicked at",
        )?;
        expect(
            &mut machine,
            r"a planted fault\); going on with the BSP \(bootstrap processor\)",
        )?;
        // Told when all is there, long after the processors were ended.
        expect(&mut machine, r"wireboot: \S+/linux: \d+ bytes in")?;
        self.is_out_of_the_image(&self.stub, 2, image)?;
        fixture.arrives(&mut machine)
    }
}

pub(crate) fn on_the_bsp(lab: &Lab) -> Result<()> {
    one_engine(lab, "boot")?.ends_wireboot()
}

pub(crate) fn on_the_bsp_with_several_engines(lab: &Lab) -> Result<()> {
    three_engines(lab, "boot")?.ends_wireboot()
}

pub(crate) fn in_the_engine(lab: &Lab) -> Result<()> {
    one_engine(lab, "engine")?.loses_processors()
}

pub(crate) fn in_a_worker(lab: &Lab) -> Result<()> {
    three_engines(lab, "worker")?.loses_processors()
}

/// The heap stays locked. The boot goes on with another.
pub(crate) fn in_an_allocation(lab: &Lab) -> Result<()> {
    one_engine(lab, "heap")?.loses_processors()
}

/// The kernel asks for its initrds. It is ended, as if it had come back by itself.
pub(crate) fn in_the_initrds_callback(lab: &Lab) -> Result<()> {
    let Victim {
        fixture, program, ..
    } = one_engine(lab, "initrd")?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: starting linux")?;
    fixture.fails(&mut machine, &["internal error", r"/linux returned"])?;
    configure(&fixture, "")?;
    fixture.goes_on(&mut machine)?;
    fixture.arrives(&mut machine)
}

/// There is no way back from here, neither to the firmware nor to the kernel. QEMU ends instead of beginning anew.
pub(crate) fn at_the_end_of_boot_services(lab: &Lab) -> Result<()> {
    let Victim {
        fixture, program, ..
    } = one_engine(lab, "exit")?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: starting linux")?;
    is_reset(&mut machine)
}

/// The same under a boot loader. That does not come back either.
pub(crate) fn at_the_end_of_boot_services_under_a_loader(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    let program = faulty_program()?;
    fixture.boot_from_stick(&program)?;
    callers::prepare(&fixture, &format!("hand-over {FILE}\n"))?;
    fixture
        .system
        .configure("title callers\nefi tftp://10.77.0.1/callers.efi\noptions fault=exit\n")?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "callers: hand-over: DMA is off")?;
    is_reset(&mut machine)
}

/// A panic ends so, and QEMU with it.
fn is_reset(machine: &mut RunningMachine) -> Result<()> {
    expect(machine, "internal error")?;
    expect(machine, "the machine is reset")?;
    let status = machine.wait(PATIENCE)?;
    ensure!(
        status.is_some_and(|status| status.success()),
        "the machine stands still"
    );
    Ok(())
}

/// What is said of an AP that was told to stop and never does.
const HALTED: &str = r"wireboot: warning: processor 1 does not stop and was halted \(non-maskable interrupt at image\+0x([0-9a-f]+), ";

/// It is in the image when it is halted.
fn is_halted(machine: &mut RunningMachine, image: (u64, u64)) -> Result<()> {
    let line = expect(machine, HALTED)?;
    let place = Regex::new(HALTED)?;
    let place = place.captures(&line).context("no place")?;
    let place = u64::from_str_radix(&place[1], 16)?;
    ensure!(place < image.1 - image.0, "{line}");
    Ok(())
}

/// An AP that never stops is halted, wherever it is, and Linux starts.
pub(crate) fn never_stops(lab: &Lab) -> Result<()> {
    let mut victim = one_engine(lab, "stop")?;
    victim.fixture.boot_from_stick(&victim.program)?;
    let fixture = &victim.fixture;
    let _server = fixture.serve_program(&victim.program, &[])?;
    let mut machine = fixture.start()?;
    let image = image(&mut machine)?;
    is_halted(&mut machine, image)?;
    fixture.runs(&mut machine)
}

/// The same when a boot loader ends boot services: Linux finds its memory as it should, and the card off the bus.
pub(crate) fn never_stops_at_the_end_of_boot_services(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    let program = faulty_program()?;
    fixture.boot_from_stick(&program)?;
    loaders::prepare(&fixture, "10.77.0.1", &loaders::menu())?;
    let configuration = fixture.system.directory.join("wireboot.conf");
    let text = fs::read_to_string(&configuration)?;
    // GRUB itself: shim would take the argument for a program.
    let text = text.replace("bootnetx64.efi", "grubx64.efi");
    fs::write(&configuration, format!("{text}options fault=stop\n"))?;
    let _server = fixture.serve_program(&program, &[])?;
    let mut machine = fixture.start()?;
    let image = image(&mut machine)?;
    expect(&mut machine, "Booting `x'")?;
    is_halted(&mut machine, image)?;
    fixture.runs(&mut machine)
}

/// doctor.efi sees the firmware's frames, has its services lead through shims, takes samples, or has the card's buffers uncached. What it changed is as it was
/// behind each: the firmware boots over its network, the same checks end, and `as_found` says so.
pub(crate) fn in_the_checks(lab: &Lab) -> Result<()> {
    const PLACES: [(&str, &str); 4] = [
        // It connects the card, without which there is no boot option of the network.
        ("trace", "trace"),
        ("boot", "dry-boot"),
        ("profile", "profile"),
        ("dma", "dma"),
    ];
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_disk("")?;
    fixture.machine.pxe_only(Some(IpVersion::V4));
    let disk = lab.scratch().join("esp");
    fs::copy(faulty_doctor()?, disk.join("doctor.efi"))?;
    let mut script = vec!["fs0:".to_owned()];
    script.extend(
        PLACES.map(|(check, place)| format!("doctor.efi {check} options=1 rounds=1 fault={place}")),
    );
    // It would leave out the last check, as one that hung.
    script.push("del -q doctor-running.txt".to_owned());
    script.push("doctor.efi boot dma trace profile options=1 rounds=1".to_owned());
    fs::write(disk.join("startup.nsh"), script.join("\r\n"))?;
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    for (_, place) in PLACES {
        expect(&mut machine, &format!("wireboot: fault planted: {place};"))?;
        expect(
            &mut machine,
            "wireboot: error: internal error, please report it: panicked at",
        )?;
    }
    let report = expect(&mut machine, r"doctor: (\{.*\})\r?\n")?;
    let report = report.trim().trim_start_matches("doctor: ");
    let report = Report::from_json(report)?;
    ensure!(report.as_found == Some(true), "not as it was found");
    ensure!(report.not_measured.is_empty(), "{:?}", report.not_measured);
    let loaded = report.dry_boots.iter().any(|boot| boot.failure.is_none());
    ensure!(loaded && report.trace.is_some() && report.profile.is_some());
    ensure!(report.memory.is_some(), "nothing of memory");
    Ok(())
}

/// doctor.efi has IP and ARP disconnected from the card, and a receiver of its own there. Nobody connects anything behind it: the shell's `ping`
/// has what the panic handler has connected.
pub(crate) fn in_the_ladder(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.boot_from_disk("")?;
    let disk = lab.scratch().join("esp");
    fs::copy(faulty_doctor()?, disk.join("doctor.efi"))?;
    let script = [
        "fs0:",
        &format!("doctor.efi ladder server={SERVER} rounds=1 ms=100 only=MNP fault=ladder"),
        "ifconfig -s eth0 static 10.77.0.90 255.255.255.0 10.77.0.1",
        &format!("ping -n 3 {SERVER}"),
    ];
    fs::write(disk.join("startup.nsh"), script.join("\r\n"))?;
    let _server = fixture.serve(&[])?;
    let _sender = Sender::start(IpVersion::V4, INTERFACE)?;
    let mut machine = fixture.start()?;
    expect(&mut machine, "wireboot: fault planted: ladder")?;
    expect(
        &mut machine,
        "wireboot: error: internal error, please report it: panicked at",
    )?;
    expect(&mut machine, &format!("bytes from {SERVER}"))?;
    Ok(())
}
