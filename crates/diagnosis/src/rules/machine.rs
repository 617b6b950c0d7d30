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

/// A link is there at once, or within the second that autonegotiation takes. What it takes longer, each start of the card costs.
const LINK_S: f64 = 1.5;

/// The network card's driver waits for its link.
pub(super) fn slow_link(report: &Report) -> Option<Found> {
    let after = report.surroundings.as_ref()?.link_after_s?;
    let seconds = Some(after).filter(|after| *after > LINK_S)?;
    Some(Found {
        label: "the link".into(),
        seconds,
        evidence: format!(
            "{after:.1} s passed from the start of the card by its driver until that had a link. Whoever starts the card anew waits for it again: the firmware, \
             a boot program, the operating system"
        ),
        advice: advice([
            "look at cable, optics and switch port: the same speed at both ends, autonegotiation on at both or at neither, no Energy Efficient Ethernet",
            "firmware and switch ports have newer releases that train faster, above all at 10 Gbit/s and more",
        ]),
        expected_s: Some(LINK_S),
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
