//! What a call, or a packet, takes in the machine's instructions, beside the tables in `tests/boots/instructions`.
//!
//! A machine that counts instructions takes the same of them on every host, busy or not. What differs is what was changed: the program, or the
//! compiler, the firmware, QEMU.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use wireboot_doctor::lab::{Examination, Trial, examine_inside};
use wireboot_experiments::ladder::{self, Kind, Ladder};
use wireboot_lab::ip::IpVersion;
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{Network, NetworkOptions};
use wireboot_lab::qemu::{Accelerator, Machine, TICKS_PER_INSTRUCTION};

use crate::fixture::{doctor_program, wireboot};
use crate::ladder::{IN_SHORT, PATIENCE};

/// With any value, this variable has the tables written anew instead of compared.
const RENEW: &str = "WIREBOOT_RENEW_INSTRUCTIONS";
/// Boots that are looked at before a packet takes more. Those behind the first measure again only what took more.
const BOOTS: usize = 6;
/// The part of a row by which it may differ.
const TOLERANCE: f64 = 0.05;

/// Frames that it takes to ask for frames, at most: for a token and for them, each behind a question for the sender's Ethernet address, and
/// again where the host is busy. A transfer acknowledges more.
const ASKED: u64 = 40;

/// Services whose median call is compared. CreateEvent, AllocatePool and AllocatePages take more or less by how the firmware's memory lies, and text on
/// the screen by where that is: they differ from boot to boot.
const SERVICES: [&str; 7] = [
    "GetTime",
    "GetVariable",
    "SetVariable",
    "RaiseTPL + RestoreTPL",
    "LocateProtocol",
    "SignalEvent",
    "SNP.Receive",
];

/// Words of `only=`, which rungs' names have.
const WORDS: [&str; 4] = ["MNP", "copied", "one", "firmware"];

/// Rungs whose packets are compared. The driver's alone differs most by how many come at once, and HTTP's over it by how many the device puts together; over
/// the firmware's driver neither does.
const RUNGS: [&str; 7] = [
    "firmware's TFTP (PXE)",
    "firmware's HTTP",
    "MNP",
    "MNP without IP",
    "MNP without IP and ARP",
    "driver, copied",
    "wireboot TFTP, one processor",
];

/// A call of each of some services.
pub(crate) fn of_services(lab: &Lab) -> Result<()> {
    let trial = Trial::healthy(Accelerator::Tcg, PATIENCE);
    let program = doctor_program()?;
    let examination = Examination {
        program: &program,
        words: "cost quick",
        http: false,
        counts_instructions: true,
        goes_on: false,
    };
    let capture = lab.scratch().join("instructions.pcap");
    let report = examine_inside(lab, &trial, examination, &capture, |_| {})?;
    let rows = report.costs.iter().filter_map(|cost| {
        let name = &cost.service;
        let wanted = SERVICES.contains(&name.as_str());
        // A tick of the machine's time-stamp counter is a nanosecond.
        wanted.then(|| {
            (
                name.clone(),
                cost.median_ns / u64::from(TICKS_PER_INSTRUCTION),
            )
        })
    });
    compare("services", rows.collect())
}

/// A packet of the firmware's packet service, of its TFTP and HTTP, and of our engine over our driver.
pub(crate) fn of_packets(lab: &Lab) -> Result<()> {
    let (mut least, mut words) = (BTreeMap::new(), Vec::from(WORDS));
    for _ in 0..BOOTS {
        measure_packets(lab, &words, &mut least)?;
        let Some(dearer) = dearer("packets", &least)? else {
            break;
        };
        words.retain(|word| dearer.iter().any(|row| row.contains(word)));
    }
    compare("packets", least)
}

/// The least of each row so far, of the rungs whose names have one of these words: on a busy host fewer packets come at once, and each bears more of what a
/// burst takes.
fn measure_packets(lab: &Lab, words: &[&str], least: &mut BTreeMap<String, u64>) -> Result<()> {
    let ladder = counted_ladder(lab, &format!("only={}", words.join(",")))?;
    // wireboot's own TFTP alone has no stretches.
    let has_stretches = |name: &str| RUNGS.contains(&name) && !name.starts_with("wireboot");
    for rung in ladder
        .of(Kind::Receive)
        .filter(|rung| has_stretches(&rung.name))
    {
        ensure!(rung.sample.least.is_some(), "{}: no stretch", rung.name);
    }
    let rows = per_packet(&ladder).into_iter();
    for (rung, count) in rows.filter(|(rung, _)| RUNGS.contains(&rung.as_str())) {
        let known = least.entry(rung).or_insert(count);
        *known = count.min(*known);
    }
    Ok(())
}

/// The ladder of a machine that counts instructions, in short, with more options.
fn counted_ladder(lab: &Lab, more: &str) -> Result<Ladder> {
    let network = Network::new(lab, NetworkOptions::default())?;
    let mut machine = Machine::new(Accelerator::Tcg);
    machine.counts_instructions = true;
    machine.network = Some(network.card());
    let (ip, doctor) = (IpVersion::V4, doctor_program()?);
    let _counterpart = ladder::counterpart(lab, (&network, ip), (&wireboot()?, &doctor))?;
    let options = format!("{IN_SHORT} {more}");
    ladder::measure(lab, machine, ip, &doctor, &options, PATIENCE, |_| {})
}

/// For each packet of each rung of receiving full frames and files.
fn per_packet(ladder: &Ladder) -> BTreeMap<String, u64> {
    let rungs = ladder.of(Kind::Receive);
    let rows = rungs.filter_map(|rung| {
        let sample = &rung.sample;
        let each = sample
            .least
            .or_else(|| sample.busy.checked_div(sample.packets))?;
        let each = each / u64::from(TICKS_PER_INSTRUCTION);
        (each > 0).then(|| (rung.name.clone(), each))
    });
    rows.collect()
}

/// The rows that take more than the table of a name says, or were not measured; `None` where there is none, or the table is to be written anew.
fn dearer(name: &str, rows: &BTreeMap<String, u64>) -> Result<Option<Vec<String>>> {
    if env::var_os(RENEW).is_some() {
        return Ok(None);
    }
    let dearer = table(name)?.into_iter().filter(|(row, expected)| {
        let count = rows.get(row);
        count.is_none_or(|&count| change(count, *expected) > TOLERANCE)
    });
    let dearer: Vec<String> = dearer.map(|(row, _)| row).collect();
    Ok(Some(dearer).filter(|rows| !rows.is_empty()))
}

/// By what part of the expected a count is more, or less.
fn change(count: u64, expected: u64) -> f64 {
    count as f64 / expected as f64 - 1.0
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("instructions/{name}.txt"))
}

/// The rows of the table of a name.
fn table(name: &str) -> Result<Vec<(String, u64)>> {
    let file = path(name);
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let rows = text.lines().map(|line| {
        let (count, row) = line.trim().split_once(' ').context("a row of the table")?;
        Ok((row.to_owned(), count.parse().context("a row of the table")?))
    });
    rows.collect()
}

/// Compares with the table of a name, or writes that.
fn compare(name: &str, rows: BTreeMap<String, u64>) -> Result<()> {
    let file = path(name);
    if env::var_os(RENEW).is_some() {
        let mut text = String::new();
        for (row, count) in &rows {
            writeln!(text, "{count:>8} {row}")?;
        }
        return fs::write(&file, text).with_context(|| format!("writing {}", file.display()));
    }
    let mut differences = String::new();
    let mut missing = rows;
    for (row, expected) in table(name)? {
        match missing.remove(&row) {
            None => writeln!(differences, "{row}: not measured")?,
            Some(count) => {
                let change = change(count, expected);
                if change.abs() > TOLERANCE {
                    let percent = change * 100.0;
                    writeln!(
                        differences,
                        "{row}: {count} instructions, {percent:+.1} % of the table's {expected}"
                    )?;
                }
            }
        }
    }
    for row in missing.keys() {
        writeln!(differences, "{row}: not in the table")?;
    }
    ensure!(
        differences.is_empty(),
        "{differences}Where that is meant, or compiler, firmware or QEMU are others: {RENEW}=1 writes {} anew (tests/README.md)",
        file.display()
    );
    Ok(())
}

/// Over the firmware's driver each part of a frame's way takes the instructions that it has more than another: the same on any host.
pub(crate) fn phases_of_a_frame(lab: &Lab) -> Result<()> {
    let ladder = counted_ladder(lab, "phases=1")?;
    println!("{}", ladder.text());
    compare("firmware_driver", per_packet(&ladder))?;
    // Of a frame: the driver's part, and the engine's while it has the frame.
    let parts = |name: &str| {
        let mut rungs = ladder.of(Kind::Receive);
        let (phases, busy) = rungs
            .find(|rung| rung.name == name)
            .and_then(|rung| Some((rung.sample.phases?, rung.sample.busy)))
            .with_context(|| format!("{name} has no phases:\n{}", ladder.text()))?;
        ensure!(phases.turns > 0 && phases.frames >= phases.turns);
        if phases.sent > ASKED {
            let parts = phases.receive + phases.look + phases.take + phases.transmit;
            ensure!(
                phases.transmit > 0 && parts <= busy,
                "{name}: {phases:?} of {busy}"
            );
        }
        Ok((
            phases.receive / phases.frames,
            phases.take / phases.frames,
            phases.sent,
        ))
    };
    let (receive, thrown_away, sent) = parts("SNP")?;
    let (_, copied, _) = parts("SNP, copied")?;
    ensure!(
        sent <= ASKED && receive > 0 && copied > thrown_away,
        "{sent} frames sent, {receive} to receive one; {thrown_away} to throw one away, {copied} to copy it"
    );
    for name in ["wireboot TFTP over SNP", "wireboot HTTP over SNP"] {
        let (same, checked, acknowledgements) = parts(name)?;
        let (_, unchecked, _) = parts(&format!("{name}, unchecked"))?;
        ensure!(acknowledgements > 0, "{name} sends nothing");
        ensure!(
            same.abs_diff(receive) < receive / 10,
            "the driver takes {receive}, in {name} {same}"
        );
        ensure!(
            checked > unchecked && unchecked > copied,
            "{name}: {checked} with checksums, {unchecked} without, {copied} to copy"
        );
    }
    Ok(())
}
