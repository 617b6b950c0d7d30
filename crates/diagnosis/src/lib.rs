//! A report of a network boot in, where its seconds went and what to change out, in words.
//!
//! [`examine`] applies all rules, [`verdict`] is the sentence above them. A rule says only what the report's figures show. Seconds lost are those
//! that the change would give back; where the report cannot tell how many are left then, [`Finding::expected_s`] is `None`.
//!
//! ```
//! use wireboot_report::{Report, network::{Dhcp, Offer}};
//!
//! let mut report = Report::new();
//! report.network.span_s = 4.5;
//! report.network.dhcp.push(Dhcp {
//!     discover_s: vec![0.0],
//!     offers: vec![Offer { at_s: 0.1, address: Some("10.0.0.9".into()), boot_file: Some("shimx64.efi".into()), ..Offer::default() }],
//!     request_s: vec![4.0],
//!     ..Dhcp::default()
//! });
//! report.findings = wireboot_diagnosis::examine(&report);
//! assert_eq!(report.findings[0].id, "offer-wait");
//! assert_eq!(
//!     wireboot_diagnosis::verdict(&report),
//!     "4.5 s on the network; 4.0 of them DHCP patience. Nothing was fetched."
//! );
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(any(test, feature = "fuzzing"))]
#[allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "the body of a fuzz target"
)]
pub mod fuzzing;
mod rules;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use wireboot_report::network::Outcome;
use wireboot_report::{Checkpoints, DryBoot, Finding, Network, Report};

/// What costs time or misleads, most seconds first.
pub fn examine(report: &Report) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for found in rules::ALL.iter().filter_map(|rule| rule.examine(report)) {
        // In its place at once: the library's sort is 4 kB of a program for each type.
        let place = findings.partition_point(|one| one.seconds >= found.seconds);
        findings.insert(place, found);
    }
    findings
}

/// Whether this is the name of a network driver of EDK II's: those in memory belong into a report.
pub fn is_network_driver(name: &str) -> bool {
    rules::is_network_driver(name)
}

/// The names of all rules, as [`examine`] applies them.
pub fn names() -> impl Iterator<Item = &'static str> {
    rules::ALL.iter().map(|rule| rule.id)
}

/// The findings in a sentence or two, from the report's own.
pub fn verdict(report: &Report) -> String {
    let captured = report.network != Network::default();
    let points = report.checkpoints.as_ref();
    let whole = points.filter(|points| points.are_whole());
    let inside = whole.is_some() || report.dry_boot().is_some();
    let looked = inside || captured || report.surroundings.is_some();
    // Those of the boot that brought an examination, where that has nothing else.
    let alone = points.filter(|points| !looked && points.ready_s().is_some());
    let told = whole.or(alone);
    let mut out = match (told, report.dry_boot(), &report.surroundings) {
        (Some(points), ..) => checkpoints(points),
        (None, Some(boot), _) => dry_boot(report, boot),
        (None, None, Some(heard)) => {
            format!("{:.1} s of listening to the network", heard.listened_s)
        }
        (None, None, None) if !captured => "no network boot was looked at".into(),
        (None, None, None) => format!("{:.1} s on the network", report.network.span_s),
    };
    let no_boot = !inside && !captured;
    let (timed, others): (Vec<_>, Vec<_>) = report
        .findings
        .iter()
        .partition(|one| one.seconds >= LEAST_S);
    for (finding, place) in timed.iter().zip(0..) {
        let (before, behind) = match place {
            0 if no_boot => ("; a boot here loses ", " s by"),
            0 => ("; ", " of them"),
            _ => (", ", ""),
        };
        out.push_str(&format!(
            "{before}{:.1}{behind} {}",
            finding.seconds, finding.label
        ));
    }
    // Points of a boot alone do not tell that.
    if report.findings.is_empty() && told.is_none() {
        out.push_str("; nothing found that can be saved");
    }
    out.push('.');
    if !others.is_empty() {
        let labels: Vec<&str> = others.iter().map(|one| one.label.as_str()).collect();
        out.push_str(&format!(" Found, too: {}.", labels.join(", ")));
    }
    let arrived = report
        .network
        .transfers
        .iter()
        .any(|one| one.outcome == Outcome::Complete);
    if !arrived && !inside && captured {
        out.push_str(" Nothing was fetched.");
    }
    out
}

/// What became of a dry boot, and the seconds until then.
fn dry_boot(report: &Report, boot: &DryBoot) -> String {
    let mut before = String::new();
    let points = report.checkpoints.as_ref();
    let ready = points.and_then(|points| Some((points, points.ready_s()?)));
    let mut seconds = report.dry_boot_s().unwrap_or_default();
    if let Some((points, ready)) = ready {
        let option = if points.attempts.is_empty() {
            "the boot option of this examination"
        } else {
            "the first boot option"
        };
        before = format!("{ready:.1} s from reset to {option}, then ");
        // The menu waits before that.
        seconds -= report.machine.menu_wait_s();
    }
    match &boot.failure {
        None => format!("{before}{seconds:.1} s to load {}", boot.option),
        Some(status) => format!(
            "{before}{seconds:.1} s until {} failed: {status}",
            boot.option
        ),
    }
}

/// Where the seconds from reset to the last known point went.
fn checkpoints(points: &Checkpoints) -> String {
    let parts = points.parts();
    let end = if points.exit_entry_s.is_some() {
        "the end of boot services"
    } else if points.loader_done_s.is_some() {
        "the system's start"
    } else if points.start_image_s.is_some() {
        "the boot loader's start"
    } else {
        "the boot option"
    };
    let last = parts.last().map_or(0.0, |(_, at)| *at);
    let mut before = 0.0;
    let spans: Vec<String> = parts
        .iter()
        .map(|(name, at)| {
            let span = at - before;
            before = *at;
            format!("{span:.1} {name}")
        })
        .collect();
    format!("{last:.1} s from reset to {end}: {}", spans.join(", "))
}

/// Less than this is none in the verdict.
const LEAST_S: f64 = 0.05;

#[cfg(test)]
mod tests;
