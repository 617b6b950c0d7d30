//! The machine itself: what its firmware waits for, and the card's place in it.

use alloc::format;

use wireboot_report::Report;

use super::{Found, advice};

/// The firmware waits for somebody who wants its menu.
pub(super) fn boot_menu(report: &Report) -> Option<Found> {
    let told = report.machine.boot_menu_s.filter(|seconds| *seconds > 0)?;
    let seconds = report.machine.menu_wait_s();
    let evidence = if seconds > 0.0 {
        format!(
            "the firmware waits {told} s for a key before it tries its first boot option (`Timeout`)"
        )
    } else {
        format!("the firmware waits in its menu until somebody chooses (`Timeout` is {told})")
    };
    Some(Found {
        label: "the firmware's menu".into(),
        seconds,
        evidence,
        advice: advice([
            "`efibootmgr -t 1`, or the firmware's setup; with 0 some firmware lets nobody in any more",
        ]),
        expected_s: Some(seconds.min(1.0)),
    })
}

/// The card's link to the machine is slower or narrower than the card can.
pub(super) fn pcie(report: &Report) -> Option<Found> {
    let link = report.surroundings.as_ref()?.pcie?;
    let slower = link.gt_per_s < link.most_gt_per_s;
    if !slower && link.lanes >= link.most_lanes {
        return None;
    }
    Some(Found {
        label: "a card in a narrow slot".into(),
        seconds: 0.0,
        evidence: format!(
            "the network card's PCI Express link has {} lanes at {} GT/s; the card can have {} at {}",
            link.lanes, link.gt_per_s, link.most_lanes, link.most_gt_per_s
        ),
        advice: advice([
            "put the card into another slot, and look at its contacts; the firmware's setup may hold the slot to an older generation",
            "some cards slow their link down while little is sent: look again with `lspci -vv` (LnkSta) under load",
        ]),
        expected_s: None,
    })
}
