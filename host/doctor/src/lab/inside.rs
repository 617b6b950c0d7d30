//! A virtual machine that doctor.efi examines from inside.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use regex::Regex;
use wireboot_lab::capture::Capture;
use wireboot_lab::console::ConsoleMatch;
use wireboot_lab::embed;
use wireboot_lab::netns::Lab;
use wireboot_lab::qemu::{Disk, Machine, RunningMachine};
use wireboot_lab::sender::{DATA_PORT, Sender};
use wireboot_report::Report;

use super::site::Site;
use super::words::STANDARD;
use super::{CAPTURED, STARTED, Trial, outside, planted};

/// What is to be examined from inside.
#[derive(Clone, Copy, Debug)]
pub struct Examination<'a> {
    /// Path of doctor.efi on the host.
    pub program: &'a Path,
    /// Its options; `standard` for none.
    pub words: &'a str,
    /// The firmware boots by HTTP, from nginx; else by PXE.
    pub http: bool,
    /// Instructions count instead of time: see [`Machine::counts_instructions`].
    pub counts_instructions: bool,
    /// The machine goes on to its next boot option afterwards, until it starts what that has loaded. Before that, the driver of
    /// [`Trial::planted`] has to find the firmware as it was before the examination.
    pub goes_on: bool,
}

/// Boots a machine from a disk with doctor.efi, on the trial's network, and reads its report. The machine's packets are kept in the file
/// `capture`; `watch` sees its console.
///
/// # Errors
/// When a part of the lab does not start, or no report comes, with the end of the console.
pub fn examine(
    lab: &Lab,
    trial: &Trial<'_>,
    examination: Examination<'_>,
    capture: &Path,
    watch: impl FnMut(&str) + Send + 'static,
) -> Result<Report> {
    let wait = |running: &mut RunningMachine, end: &Regex| {
        let seen = running.console.wait_for(end, trial.longest)?;
        Ok((seen, ()))
    };
    let (report, ()) = run(lab, trial, examination, capture, watch, wait)?;
    Ok(report)
}

/// The same, and where the BSP (bootstrap processor) was, by QEMU's own word, from the first text on the console for which `begin` matches.
///
/// # Errors
/// The same, and when that text does not come.
pub fn examine_sampled(
    lab: &Lab,
    trial: &Trial<'_>,
    examination: Examination<'_>,
    capture: &Path,
    begin: &Regex,
) -> Result<(Report, Vec<u64>)> {
    let wait = |running: &mut RunningMachine, end: &Regex| {
        running.console.wait_for(begin, trial.longest)?;
        let positions = outside::positions(running, end, trial.longest)?;
        let seen = running.console.wait_for(end, Duration::ZERO)?;
        Ok((seen, positions))
    };
    run(lab, trial, examination, capture, |_| {}, wait)
}

/// The same, and the Esc key is pressed at the first text on the console for which `begin` matches.
///
/// # Errors
/// The same, and when that text does not come.
pub fn examine_until_esc(
    lab: &Lab,
    trial: &Trial<'_>,
    examination: Examination<'_>,
    capture: &Path,
    begin: &Regex,
) -> Result<Report> {
    let wait = |running: &mut RunningMachine, end: &Regex| {
        running.console.wait_for(begin, trial.longest)?;
        running.console.send("\x1b")?;
        let seen = running.console.wait_for(end, trial.longest)?;
        Ok((seen, ()))
    };
    let (report, ()) = run(lab, trial, examination, capture, |_| {}, wait)?;
    Ok(report)
}

/// Boots, and has `wait` wait for the examination's end.
fn run<T>(
    lab: &Lab,
    trial: &Trial<'_>,
    examination: Examination<'_>,
    capture: &Path,
    watch: impl FnMut(&str) + Send + 'static,
    wait: impl FnOnce(&mut RunningMachine, &Regex) -> Result<(ConsoleMatch, T)>,
) -> Result<(Report, T)> {
    let mut site = Site::new(lab, trial, examination.http)?;
    if wants_throughput(examination.words) {
        site.serve_iperf3(lab)?;
    }
    let wants_sender = wants_frames(examination.words) && trial.faults.is_empty();
    let sender = || Sender::start(trial.ip, site.network.cable());
    let _sender = wants_sender.then(sender).transpose()?;
    // Gigabytes would come, and whoever keeps them slows them down.
    let filter = format!("not port 5201 and not port {DATA_PORT}");
    let disk = lab.scratch().join("doctor-disk");
    let boot = disk.join("EFI/BOOT");
    // An examination before may have left the name of its last check, which doctor.efi would leave out.
    if disk.exists() {
        fs::remove_dir_all(&disk).context("removing the disk of the examination before")?;
    }
    fs::create_dir_all(&boot).context("making a directory")?;
    let words = match examination.words {
        STANDARD => "",
        words => words,
    };
    let planted = Site::planted(trial.faults).unwrap_or_default();
    let words = format!("{words} {planted}");
    // Not by a script of the shell: the newest OVMF has none.
    embed::configuration(examination.program, words.trim(), &boot.join("BOOTX64.EFI"))?;
    let cable = Capture::start(lab, site.network.cable(), &filter, CAPTURED, capture)?;

    let mut machine = Machine::new(trial.accelerator);
    machine.counts_instructions = examination.counts_instructions;
    let mut card = site.network.card();
    card.boot_index = Some(2);
    machine.network = Some(card);
    trial.hardware.build(&mut machine)?;
    machine.disks.push(Disk::Directory {
        path: disk,
        boot_index: Some(1),
    });
    machine.pxe_only((!examination.http).then_some(trial.ip));
    Site::prepare(trial.faults, &mut machine);
    let mut words = planted::words(trial.faults);
    if examination.goes_on {
        words = format!("{words} {}", planted::WITNESS).trim().to_owned();
    }
    planted::plant(lab, words, trial.planted, &mut machine)?;
    site.check()?;
    let mut running = machine.start(lab, "doctor", watch)?;
    let disturbed = Site::disturb(trial.faults, &mut running)?;
    let end = Regex::new(r"doctor: (\{.*\})\r?\n|wireboot: error: (.*)\n")?;
    let (seen, waited) = wait(&mut running, &end)?;
    let json = seen.groups.get(1).filter(|json| !json.is_empty());
    let Some(json) = json else {
        bail!("{}\n{}", seen.text.trim_end(), running.console.tail(15));
    };
    let report = Report::from_json(json).context("the report on the serial port")?;
    if examination.goes_on {
        let told = Regex::new(planted::TOLD)?;
        let told = running.console.wait_for(&told, trial.longest)?;
        let told = told.groups.get(1).map(String::as_str);
        if told != Some(planted::AS_IT_WAS) {
            bail!("doctor.efi left the firmware {}", told.unwrap_or_default());
        }
        let started = Regex::new(STARTED)?;
        running.console.wait_for(&started, trial.longest)?;
    }
    drop(disturbed);
    drop(running);
    site.check()?;
    cable.stop()?;
    Ok((report, waited))
}

/// Whether a server of iperf3 is to be there.
fn wants_throughput(words: &str) -> bool {
    let mut words = words.split_whitespace();
    words.any(|word| word.starts_with("iperf3=") || word.starts_with("ttcp="))
}

/// Whether a sender of frames is to be there.
fn wants_frames(words: &str) -> bool {
    let mut words = words.split_whitespace();
    words.any(|word| [STANDARD, "all", "frames"].contains(&word))
}

/// Shows the console, or in the progress bar its check.
pub(super) fn watch(text: &str, console: bool, bar: &ProgressBar) {
    if console {
        bar.suspend(|| {
            let mut output = std::io::stdout().lock();
            let _ = output
                .write_all(text.as_bytes())
                .and_then(|()| output.flush());
        });
    } else if let Some(check) = text
        .lines()
        .rev()
        .find_map(|line| line.split_once(": check "))
    {
        bar.set_message(format!("check {}", check.1.trim()));
    }
}
