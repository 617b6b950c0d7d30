//! What the tables tell, as a report has it.

mod modules;

use crate::{Attempt, BasicBoot, attempts, module_events};
use alloc::format;
use alloc::string::String;
use wireboot_report::Checkpoints;

/// Writes the times of a boot into its report.
pub fn report_boot(boot: &BasicBoot, points: &mut Checkpoints) {
    points.reset_end_s = reached(boot.reset_end_ns);
    points.load_image_s = reached(boot.load_image_ns);
    points.start_image_s = reached(boot.start_image_ns);
    points.exit_entry_s = reached(boot.exit_entry_ns);
    points.exit_s = reached(boot.exit_ns);
}

/// Writes what else an FBPT tells: the boot options that were tried, and the times of the firmware's modules. `name` gives the name for an option's
/// number. [`report_boot`] comes before: modules are counted up to its LoadImage where no option was recorded.
pub fn report_details(fbpt: &[u8], name: impl Fn(u16) -> String, points: &mut Checkpoints) {
    let named = |attempt: Attempt| wireboot_report::Attempt {
        option: attempt
            .option
            .map_or_else(|| "what is no boot option".into(), &name),
        ready_s: seconds(attempt.ready_ns),
        start_s: reached(attempt.start_ns),
        back_s: reached(attempt.back_ns),
    };
    match attempts(fbpt) {
        Ok(tried) => points.attempts = tried.map(named).collect(),
        Err(error) => points
            .missing
            .push(format!("the boot options that were tried: {error}")),
    }
    match module_events(fbpt) {
        Ok(events) => {
            // What the firmware connected for options that it tried in vain is their matter.
            let load_ns = points.ready_s().map(|seconds| (seconds * 1e9) as u64);
            points.modules = modules::times(events, load_ns);
        }
        Err(error) => points
            .missing
            .push(format!("the times of the firmware's modules: {error}")),
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Zero is a point that was not reached.
fn reached(ns: u64) -> Option<f64> {
    (ns != 0).then_some(seconds(ns))
}

#[cfg(test)]
mod tests;
