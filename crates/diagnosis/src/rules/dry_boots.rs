//! Boot options that were loaded and not started.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_report::{DryBoot, Report};

use super::{Found, advice, listed, time};

/// Options that fail before one that loads.
pub(super) fn failing_options(report: &Report) -> Option<Found> {
    let failing = report.failing_before();
    if failing.is_empty() {
        return None;
    }
    let told: Vec<String> = failing
        .iter()
        .map(|boot| {
            let status = boot.failure.as_deref().unwrap_or_default();
            format!("{} ({status} after {})", boot.option, time(boot.mean_s()))
        })
        .collect();
    Some(Found {
        label: "options that fail before it".into(),
        seconds: failing.iter().map(DryBoot::mean_s).sum(),
        evidence: format!(
            "the firmware tries its network boot options in order; these fail: {}",
            listed(told.iter().map(String::as_str))
        ),
        advice: advice([
            "put the one that loads first: `efibootmgr -o`, or the firmware's setup",
            "or switch the others off in the setup: network boot by HTTP, or over the version of IP that nobody speaks here",
        ]),
        expected_s: Some(0.0),
    })
}
