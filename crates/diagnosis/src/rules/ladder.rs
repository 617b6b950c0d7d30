//! What each layer of the firmware's network keeps of what the card can do.

use alloc::format;

use wireboot_report::Report;
use wireboot_report::ladder::{DRIVER, SNP, UNDI};

use super::{Found, advice};

/// A driver that brings less than this part of what another brings on the same card, or of the link's speed, is slow. OVMF's of virtio-net brings a
/// fifth to a third.
const SLOW: f64 = 0.1;

/// The firmware's driver brings far less than wireboot's driver on the same card, or than the link.
pub(super) fn slow_driver(report: &Report) -> Option<Found> {
    let ladder = report.ladder.as_ref()?;
    let rates = [SNP, UNDI].map(|what| Some((what, ladder.full_mbit_s(what)?)));
    let (what, rate) = rates
        .into_iter()
        .flatten()
        .max_by(|one, other| one.1.total_cmp(&other.1))?;
    let link = report.surroundings.as_ref();
    let link = link.and_then(|heard| heard.link_mbit_s).map(f64::from);
    let against = match (ladder.full_mbit_s(DRIVER), link) {
        (Some(driver), _) if rate < driver * SLOW => {
            format!("wireboot's driver, on the same card, {driver:.0}")
        }
        // What the machine itself can do says more.
        (None, Some(link)) if rate < link * SLOW => format!("the link has {link:.0}"),
        _ => return None,
    };
    Some(Found {
        label: "a slow network driver of the firmware".into(),
        seconds: 0.0,
        evidence: format!(
            "the firmware's driver ({what}) brings {rate:.0} Mbit/s of full frames from {}; {against}",
            ladder.sender
        ),
        advice: advice([
            "a newer driver for the card: its option ROM, or the firmware",
            "wireboot.efi has drivers of its own for virtio-net and Intel's e1000e family, which it takes by itself",
        ]),
        expected_s: None,
    })
}
