//! An examination: check after check, each announced and with a time limit.

use crate::checks::Check;
use crate::delivery;
use crate::error::Error;
use crate::options::Options;
use alloc::string::ToString;
use wireboot_boot::origin::Origin;
use wireboot_platform::image::LoadedSelf;
use wireboot_platform::{Clock, console, watchdog};
use wireboot_report::{NotMeasured, Report};

/// What checks work with.
pub(crate) struct Examination<'a> {
    /// How to examine.
    pub options: &'a Options,
    /// How the firmware loaded this program.
    pub image: &'a LoadedSelf,
    /// What the firmware knew of the network then.
    pub origin: &'a Origin,
    pub clock: Clock,
    /// What was measured so far.
    pub report: Report,
}

/// Runs the checks that the options name, and delivers the report.
///
/// # Errors
/// When nobody takes the report.
pub(crate) fn run(
    options: &Options,
    image: &LoadedSelf,
    origin: &Origin,
    clock: Clock,
) -> Result<(), Error> {
    let mut examination = Examination {
        options,
        image,
        origin,
        clock,
        report: Report::new(),
    };
    let all = options.checks.len();
    for (check, number) in options.checks.iter().zip(1..) {
        log::info!("check {number} of {all}, {}: {}", check.name, check.what);
        examination.check(check);
    }
    let mut report = examination.report;
    report.findings = wireboot_diagnosis::examine(&report);
    delivery::deliver(&report)
}

impl Examination<'_> {
    /// Runs one check. That it measured nothing is part of the report.
    fn check(&mut self, check: &Check) {
        // Where the check hangs, the firmware resets the machine.
        let watchdog = watchdog::arm(check.limit_s);
        let result = (check.run)(self);
        drop(watchdog);
        console::clear_progress();
        if let Err(error) = result {
            log::warn!("{}: {error}", check.name);
            self.report.not_measured.push(NotMeasured {
                check: check.name.to_string(),
                reason: error.to_string(),
            });
        }
    }
}
