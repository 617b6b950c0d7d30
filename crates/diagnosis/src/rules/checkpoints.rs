//! What firmware and boot loader leave behind of a boot.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_report::{Checkpoints, Report};

use super::{Found, advice, listed, time};

/// Less is not worth a word: an option whose device has nothing to boot costs some milliseconds.
const WORTH_S: f64 = 0.1;

/// Other boot options were tried before the one that was used, or stand before it: the firmware tried them first, unless somebody chose.
pub(super) fn options_before(report: &Report) -> Option<Found> {
    let points = report.checkpoints.as_ref()?;
    // The one that brought an examination is not the right one.
    if !points.are_whole() {
        return None;
    }
    if !points.attempts.is_empty() {
        return tried(points);
    }
    let used = points.option.as_deref()?;
    if points.options_before.is_empty() {
        return None;
    }
    let before = points
        .options_before
        .iter()
        .map(alloc::string::String::as_str);
    Some(Found {
        label: "boot options before the right one".into(),
        seconds: 0.0,
        evidence: format!(
            "{used} was used. Before it in the firmware's order, so tried first unless it was chosen by hand: {}",
            listed(before)
        ),
        advice: advice([RIGHT_ONE_FIRST]),
        expected_s: None,
    })
}

const RIGHT_ONE_FIRST: &str = "put the right one first: `efibootmgr -o`, or the firmware's setup. A network option in vain costs its patience (OVMF's HTTP Boot: 60 s)";

/// What the firmware tried, as it was recorded.
fn tried(points: &Checkpoints) -> Option<Found> {
    let used = points.attempts.last()?;
    let seconds: f64 = points.in_vain().map(|(_, seconds)| seconds).sum();
    if seconds < WORTH_S {
        return None;
    }
    let each = points.in_vain();
    let each: Vec<String> = each
        .map(|(attempt, seconds)| {
            let came_back = if attempt.back_s.is_some() {
                ", whose loader came back"
            } else {
                ""
            };
            format!("{} {}{came_back}", attempt.option, time(seconds))
        })
        .collect();
    Some(Found {
        label: "boot options before the right one".into(),
        seconds,
        evidence: format!(
            "the firmware tried before {}: {}",
            used.option,
            listed(each.iter().map(String::as_str))
        ),
        advice: advice([RIGHT_ONE_FIRST]),
        expected_s: Some(0.0),
    })
}

/// EDK II's drivers of disks, and of what lies between them and files.
const STORAGE: [&str; 15] = [
    "AtaAtapiPassThruDxe",
    "AtaBusDxe",
    "DiskIoDxe",
    "EmmcDxe",
    "Fat",
    "NvmExpressDxe",
    "PartitionDxe",
    "ScsiBus",
    "ScsiDisk",
    "SdDxe",
    "SdMmcPciHcDxe",
    "UfsPassThruDxe",
    "UsbMassStorageDxe",
    "VirtioBlkDxe",
    "VirtioScsiDxe",
];

/// Before it chose to boot over the network, the firmware began to drive disks, as its own table of modules tells.
pub(super) fn connected_disks(report: &Report) -> Option<Found> {
    let points = report.checkpoints.as_ref()?;
    let option = points.option.as_deref().filter(|_| points.over_network)?;
    let disks = || {
        let modules = points.modules.iter();
        modules.filter(|one| STORAGE.contains(&one.name.as_str()) && one.bind_before_s > 0.0)
    };
    let seconds: f64 = disks().map(|one| one.bind_before_s).sum();
    // Of a stranger's report, a sum may be beyond all numbers.
    if seconds < WORTH_S || !seconds.is_finite() {
        return None;
    }
    let each: Vec<String> = disks()
        .map(|one| format!("{} {}", one.name, time(one.bind_before_s)))
        .collect();
    Some(Found {
        label: "disks that this boot does not need".into(),
        seconds,
        evidence: format!(
            "before {option} the firmware began to drive disks: {}",
            listed(each.iter().map(String::as_str))
        ),
        advice: advice([
            "have the firmware connect the device that it boots from, and no others: its setup calls that fast or minimal boot",
        ]),
        expected_s: Some(0.0),
    })
}
