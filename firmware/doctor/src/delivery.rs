//! Where a report goes.

use crate::error::Error;
use alloc::format;
use wireboot_platform::console;
use wireboot_report::Report;

/// What stands before the report on the serial port.
const PREFIX: &str = "doctor: ";

/// Shows the findings, and writes the report to the serial port, on one line.
///
/// # Errors
/// When there is no such port.
pub(crate) fn deliver(report: &Report) -> Result<(), Error> {
    console::line(&wireboot_diagnosis::verdict(report));
    for finding in &report.findings {
        console::line(&format!("{}: {}", finding.label, finding.evidence));
        for advice in &finding.advice {
            console::line(&format!("  {advice}"));
        }
    }
    if !console::serial_line(&format!("{PREFIX}{}", report.to_json_line())) {
        log::warn!("no serial port takes the report");
    }
    Ok(())
}
