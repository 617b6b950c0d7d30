//! recorder.efi: `doctor.efi record on` has the firmware load it, and the Linux that boots after an option in vain finds when what happened.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use wireboot_doctor::shown;
use wireboot_lab::checkpoints::Checkpoints;
use wireboot_lab::embed;
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::SERVER;
use wireboot_lab::qemu::RunningMachine;
use wireboot_report::{PhaseKind, Report};

use crate::fixture::{Fixture, MACHINE, doctor_program, expect, recorder_program};
use crate::{doctor, system};

/// How much of the time that is seen from outside the firmware's table must have: the table begins later, by QEMU's own start, and a busy host
/// shows the console's lines late.
const SHARE: f64 = 0.3;
/// Seconds that a line of the console may come before what it announces.
const EARLY_S: f64 = 2.0;

/// The disk's option is tried in vain, in which doctor.efi reads what was recorded until then; then the network's boots.
pub(crate) fn keeps_the_attempts(lab: &Lab) -> Result<()> {
    let mut fixture = Fixture::new(lab)?;
    fixture.machine.from_power_on = true;
    let program = lab.scratch().join("doctor.efi");
    embed::configuration(&doctor_program()?, "record on\n", &program)?;
    let disk = fixture.boot_from_stick_at(&program)?;
    fs::copy(recorder_program()?, disk.join("recorder.efi"))?;
    let mut machine = fixture.start()?;
    expect(
        &mut machine,
        r"record is on: Driver0000 has the firmware load recorder\.efi",
    )?;
    drop(machine);

    fixture.machine.keep_variables(lab, MACHINE)?;
    // It examines the machine and goes back, so the firmware tries the next.
    embed::configuration(&doctor_program()?, "check\n", &program)?;
    fs::copy(&program, disk.join("BOOTX64.EFI"))?;
    fixture.machine.pxe_only(Some(IpVersion::V4));
    if let Some(card) = &mut fixture.machine.network {
        card.boot_index = Some(2);
    }
    fixture.system.configure(&format!(
        "report http://{SERVER}:8080/boots\ntitle Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\noptions {} times checkpoints\n",
        system::OPTIONS
    ))?;
    let reports = TcpListener::bind((SERVER, 8080)).context("listening")?;
    let posted = thread::spawn(move || posted(&reports));
    let _server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    examined(&doctor::told(&mut machine)?)?;
    expect(
        &mut machine,
        r"wireboot: http://10\.77\.0\.1:8080/boots: has the report",
    )?;
    fixture.runs(&mut machine)?;
    checkpoints(&machine)?;

    let (request, body) = posted
        .join()
        .map_err(|_| anyhow::anyhow!("the server of reports has panicked"))??;
    ensure!(request == "POST /boots HTTP/1.1", "{request}");
    told(&Report::from_json(&body)?)?;
    let transcript = machine.console.transcript();
    let lines = Regex::new(r"boots: report (.*)\.\s*\n")?;
    let text: String = lines
        .captures_iter(&transcript)
        .filter_map(|found| found.get(1))
        .map(|part| part.as_str())
        .collect();
    let report = Report::from_json(&text).with_context(|| text.clone())?;
    told(&report)?;
    let points = report.checkpoints.context("no times since reset")?;
    ensure!(points.loader_done_s > points.loader_began_s, "{points:?}");
    Ok(())
}

/// Takes one report: the first line of the request, and its body.
fn posted(listener: &TcpListener) -> Result<(String, String)> {
    let (stream, _) = listener.accept()?;
    let mut reader = BufReader::new(stream);
    let (mut request, mut length) = (String::new(), 0);
    reader.read_line(&mut request)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(number) = line.strip_prefix("Content-Length: ") {
            length = number.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let answer = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
    reader.get_mut().write_all(answer.as_bytes())?;
    Ok((request.trim().to_owned(), String::from_utf8(body)?))
}

/// doctor.efi has read what was recorded of the boot that brought it.
fn examined(report: &Report) -> Result<()> {
    let points = report.checkpoints.as_ref().context("no points")?;
    ensure!(points.missing.is_empty(), "{points:?}");
    let option = points.option.as_deref().context("no option")?;
    let [.., tried] = points.attempts.as_slice() else {
        anyhow::bail!("{points:?}")
    };
    ensure!(
        tried.option == option && tried.start_s == points.start_image_s && tried.back_s.is_none(),
        "{points:?}"
    );
    ensure!(points.load_image_s > Some(0.0) && points.start_image_s > points.load_image_s);
    ensure!(!points.are_whole() && !points.over_network, "{points:?}");
    let shown = shown(report);
    let told = " s from reset to the boot loader's start: ";
    ensure!(shown.contains(told), "{shown}");
    Ok(())
}

/// wireboot has told of its card, its address, its choice and its files.
fn told(report: &Report) -> Result<()> {
    let kinds: Vec<_> = report.timeline.iter().map(|phase| phase.kind).collect();
    for kind in [PhaseKind::Card, PhaseKind::Address, PhaseKind::Choice] {
        ensure!(kinds.contains(&kind), "{kinds:?}");
    }
    let files = &report.network.transfers;
    let ends = ["wireboot.conf", "linux", "system.cpio", "data.cpio"];
    for end in ends {
        let came = files
            .iter()
            .any(|one| one.file.ends_with(end) && one.bytes > 0);
        ensure!(came, "{end} is not among {files:?}");
    }
    Ok(())
}

/// The tables are right, and as the console saw it.
fn checkpoints(machine: &RunningMachine) -> Result<()> {
    let Checkpoints {
        boot,
        attempts: tried,
    } = Checkpoints::told(&machine.console.transcript())?;
    let [.., dead, used] = tried.as_slice() else {
        anyhow::bail!("only {tried:?}")
    };
    ensure!(
        dead.start_ns > 0 && dead.back_ns > dead.start_ns,
        "{tried:?}"
    );
    ensure!(
        used.option.is_some() && used.option != dead.option,
        "{tried:?}"
    );
    ensure!(used.ready_ns == boot.load_image_ns, "{tried:?} {boot:?}");
    ensure!(boot.exit_entry_ns > boot.start_image_ns && boot.exit_ns > boot.exit_entry_ns);
    // The last line of the firmware's before the start of each loader, and of wireboot's before it starts Linux.
    let starts = Regex::new("BdsDxe: starting Boot")?;
    let seen: Vec<f64> = machine
        .console
        .all(&starts)
        .iter()
        .map(|one| one.time)
        .collect();
    let [.., dead_seen, used_seen] = seen.as_slice() else {
        anyhow::bail!("the firmware started {} options", seen.len())
    };
    let linux = machine
        .console
        .seen(&Regex::new("wireboot: starting linux")?);
    let linux = linux.context("no Linux")?.time;
    for (what, ns, seen) in [
        ("the start of the option in vain", dead.start_ns, *dead_seen),
        (
            "the start of the option that was used",
            boot.start_image_ns,
            *used_seen,
        ),
        ("the end of boot services", boot.exit_ns, linux),
    ] {
        let (inside, outside) = (ns as f64 / 1e9, seen - machine.power_on);
        println!("{what}: {inside:.3} s by the table, {outside:.3} s on the console");
        ensure!(
            inside > SHARE * outside && inside < outside + EARLY_S,
            "{what}: {inside} s, {outside} s"
        );
    }
    Ok(())
}
