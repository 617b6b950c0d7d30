//! Runs an examination: check after check, each announced and with a time limit, then the report.

use crate::cards::Linked;
use crate::checks::Check;
use crate::delivery::Delivery;
use crate::examination::Examination;
use crate::options::Options;
use alloc::format;
use alloc::string::{String, ToString};
use wireboot_boot::origin::Origin;
use wireboot_platform::claim::snp;
use wireboot_platform::device_path::NetworkPath;
use wireboot_platform::{Clock, console, memory_type, profiler, shim, watchdog};

/// Runs the checks, and delivers the report.
pub(crate) fn run(checks: &[&Check], mut examination: Examination<'_>) {
    let mut delivery = Delivery::open(examination.image.device);
    let interrupted = delivery.interrupted().map(ToString::to_string);
    if let Some(name) = &interrupted {
        examination.not_measured(name, INTERRUPTED);
    }
    let all = checks.len();
    let most = begins_within(examination.options);
    let begun = examination.clock.micros();
    for (check, number) in checks.iter().zip(1..) {
        if most.is_some_and(|most| examination.clock.micros() - begun > most) {
            examination.not_measured(check.name, NO_TIME);
            continue;
        }
        log::info!("check {number} of {all}, {}: {}", check.name, check.what);
        if interrupted.as_deref() != Some(check.name) {
            delivery.announce(check.name);
            self::check(check, &mut examination);
        }
    }
    let report = &mut examination.report;
    if report.machine.mac.is_empty() {
        let mac = mac(examination.origin, &examination.linked);
        report.machine.mac = mac.map(shown).unwrap_or_default();
    }
    report.as_found = Some(
        shim::as_found() && profiler::as_found() && memory_type::as_found() && examination.restored,
    );
    report.findings = wireboot_diagnosis::examine(report);
    delivery.deliver(&examination);
    // The card may have been away for the report.
    examination.restore();
    if examination.report.as_found == Some(false) {
        // It may be reset at once, and the screen is gone then.
        wait_for_a_key(examination.clock);
    }
}

/// How long after the first the last check of an examination begins, in microseconds: one without words is to take three minutes, a quick one half a minute.
/// `None` where checks are named: they were asked for.
fn begins_within(options: &Options) -> Option<u64> {
    match (options.thorough, options.quick) {
        (true, _) => None,
        (false, true) => Some(25_000_000),
        (false, false) => Some(150_000_000),
    }
}

/// What is said of a check for which there was no time.
const NO_TIME: &str = "no time was left for it in an examination of all: name it, and it is made";

/// How long the findings stay on the screen of a machine that is reset then, in microseconds.
const SHOWN: u64 = 60_000_000;

fn wait_for_a_key(clock: Clock) {
    log::info!("goes on after a minute, or at a key");
    let end = clock.micros() + SHOWN;
    while console::key().is_none() && clock.micros() < end {
        core::hint::spin_loop();
    }
}

/// What is said of a check that did not end.
const INTERRUPTED: &str = "the machine hung in it at the last examination and was reset, or was switched off; it was left out this time, and is not the next time";

/// The Ethernet address of the card that the machine came by, else of the one that has a link, else of the first that the firmware has a
/// driver for.
fn mac(origin: &Origin, linked: &Linked) -> Option<[u8; 6]> {
    let examined = origin.network.mac.or_else(|| linked.mac());
    examined.or_else(|| {
        let mut interfaces = snp::interfaces().into_iter();
        interfaces.find_map(|interface| NetworkPath::parse(&interface.path).mac)
    })
}

fn shown(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Runs one check. That it measured nothing is part of the report.
fn check(check: &Check, examination: &mut Examination<'_>) {
    // Where the check hangs, the firmware resets the machine.
    let watchdog = watchdog::arm(check.limit_s);
    let result = (check.run)(examination);
    examination.restore();
    drop(watchdog);
    console::clear_progress();
    if let Err(error) = result {
        examination.not_measured(check.name, &error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    #[test]
    fn who_names_no_check_does_not_wait_long() {
        let seconds = |words: &str| {
            let Command::Examine { options, .. } = Command::parse(words).unwrap() else {
                unreachable!()
            };
            begins_within(&options).map(|most| most / 1_000_000)
        };
        assert_eq!(seconds(""), Some(150));
        assert_eq!(seconds("runs=2"), Some(150));
        assert_eq!(seconds("quick"), Some(25));
        assert_eq!(seconds("sweep"), None);
        assert_eq!(seconds("all"), None);
    }
}
