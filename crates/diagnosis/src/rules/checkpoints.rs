//! What firmware and boot loader left behind for the system.

use alloc::format;

use wireboot_report::Report;

use super::{Found, advice, listed};

/// Other boot options stand before the one that was used: the firmware tried them first, unless somebody chose.
pub(super) fn options_before(report: &Report) -> Option<Found> {
    let points = report.checkpoints.as_ref()?;
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
        advice: advice([
            "put the right one first: `efibootmgr -o`, or the firmware's setup. A network option in vain costs its patience (OVMF's HTTP Boot: 60 s)",
        ]),
        expected_s: None,
    })
}
