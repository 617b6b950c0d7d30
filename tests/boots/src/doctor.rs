//! `wireboot doctor lab`: stock firmware, shim, GRUB and the installer's files, on networks with faults that the examination has to find.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use wireboot_doctor::lab::{Fault, Trial, boot};
use wireboot_doctor::shown;
use wireboot_lab::accel;
use wireboot_lab::netns::Lab;
use wireboot_report::Report;
use wireboot_report::network::Outcome;

/// Findings that no host is too slow for, nor too fast: each is there where its fault is, and nowhere else.
const FAULTS: [&str; 8] = [
    "spanning-tree",
    "unanswered",
    "ip-version",
    "late-offer",
    "several-servers",
    "vendor-options",
    "no-boot-file",
    "refused",
];

/// For a boot that arrives.
const LONGEST: Duration = Duration::from_secs(150);
/// One that does not, or that would take many minutes, is examined then.
const LONG_ENOUGH: Duration = Duration::from_secs(40);

fn examined(lab: &Lab, faults: &[Fault], longest: Duration) -> Result<Report> {
    let capture = lab.scratch().join("doctor.pcap");
    let trial = Trial {
        accelerator: accel::best(lab, false)?,
        faults,
        wireboot: None,
        longest,
    };
    let report = boot(lab, &trial, &capture)?;
    println!("{}", shown(&report));
    Ok(report)
}

/// Seconds lost by finding: all `wanted` are there, and of [`FAULTS`] no others.
fn findings<'a>(report: &'a Report, wanted: &[&str]) -> Result<BTreeMap<&'a str, f64>> {
    let all = report.findings.iter();
    let seconds: BTreeMap<_, _> = all.map(|one| (one.id.as_str(), one.seconds)).collect();
    for id in wanted {
        ensure!(seconds.contains_key(id), "{id} was not found");
    }
    let others = |id: &&str| FAULTS.contains(id) && !wanted.contains(id);
    let more: Vec<_> = seconds.keys().copied().filter(others).collect();
    ensure!(more.is_empty(), "{more:?} were found, too");
    Ok(seconds)
}

/// GRUB had the installer's kernel and initial RAM disk.
fn arrived(report: &Report) -> Result<()> {
    for (file, least) in [("linux", 4 << 20), ("initrd.gz", 20 << 20)] {
        let came = report.network.transfers.iter().any(|one| {
            one.file.ends_with(file) && one.outcome == Outcome::Complete && one.bytes > least
        });
        ensure!(came, "{file} did not come: {:?}", report.network.transfers);
    }
    Ok(())
}

/// The port forwards nothing for 30 s from power-on, of which the firmware needs some itself.
pub(crate) fn spanning_tree(lab: &Lab) -> Result<()> {
    let report = examined(lab, &[Fault::Stp], LONGEST)?;
    let seconds = findings(&report, &["spanning-tree"])?;
    let lost = seconds.get("spanning-tree").copied().unwrap_or_default();
    ensure!((12.0..120.0).contains(&lost), "{lost} s");
    arrived(&report)
}

/// Everything that dnsmasq can be made to do wrong at once.
pub(crate) fn dhcp_and_blocks(lab: &Lab) -> Result<()> {
    let faults = [
        Fault::LateDhcp,
        Fault::TwoDhcp,
        Fault::Option43,
        Fault::NoBlksize,
    ];
    let report = examined(lab, &faults, LONGEST)?;
    let wanted = ["several-servers", "vendor-options", "block-size", "window"];
    let seconds = findings(&report, &[wanted.as_slice(), &["late-offer"]].concat())?;
    let late = seconds.get("late-offer").copied().unwrap_or_default();
    ensure!(late >= 5.0, "{late} s");
    ensure!(
        report
            .network
            .transfers
            .iter()
            .all(|one| one.block_bytes == 512)
    );
    arrived(&report)
}

/// Lost packets cost timers.
pub(crate) fn loss(lab: &Lab) -> Result<()> {
    let report = examined(lab, &[Fault::Loss], LONG_ENOUGH)?;
    let all: Vec<_> = report.findings.iter().map(|one| one.id.as_str()).collect();
    ensure!(all.contains(&"loss"), "{all:?}");
    ensure!(!all.contains(&"slow-server"), "{all:?}");
    Ok(())
}

/// DHCP gives an address, and that is all.
pub(crate) fn no_boot_file(lab: &Lab) -> Result<()> {
    let report = examined(lab, &[Fault::NoBootFile], LONG_ENOUGH)?;
    findings(&report, &["no-boot-file"])?;
    ensure!(report.network.transfers.is_empty());
    Ok(())
}

/// DHCP names a file that the server has not.
pub(crate) fn missing_file(lab: &Lab) -> Result<()> {
    let report = examined(lab, &[Fault::MissingFile], LONG_ENOUGH)?;
    findings(&report, &["refused"])?;
    let refused = |one: &wireboot_report::network::Transfer| {
        one.file == "grubx46.efi" && one.outcome == Outcome::Refused
    };
    ensure!(
        report.network.transfers.iter().any(refused),
        "{:?}",
        report.network.transfers
    );
    Ok(())
}
