//! The tables of statuses of the specification (UEFI 2.10): what each function answers to NULLs, in wrong states, to small buffers. A line
//! for each.

mod base_code;
mod http;
mod ip_config;
mod snp;

use crate::report::tell;
use uefi::{Handle, Status};
use wireboot_platform::Clock;

#[derive(Default)]
struct Walk {
    passed: u32,
    failed: u32,
    /// Functions that are not there.
    absent: u32,
}

const SUCCESS: &[Status] = &[Status::SUCCESS];
const INVALID: &[Status] = &[Status::INVALID_PARAMETER];

impl Walk {
    /// The answer must be one of those that the specification allows.
    fn expect(&mut self, what: &str, answer: Status, allowed: &[Status]) {
        if allowed.contains(&answer) {
            self.passed += 1;
            tell(format_args!("pass {what}"));
        } else if answer == Status::UNSUPPORTED {
            self.absent += 1;
            tell(format_args!("UNSUPPORTED {what}"));
        } else {
            self.failed += 1;
            tell(format_args!("fail {what}: {answer:?}, not {allowed:?}"));
        }
    }

    /// Something beside an answer must be as the specification has it.
    fn holds(&mut self, what: &str, holds: bool) {
        let status = if holds {
            Status::SUCCESS
        } else {
            Status::ABORTED
        };
        self.expect(what, status, SUCCESS);
    }
}

/// Walks through all. True when nothing failed.
pub(crate) fn walk(device: Handle, clock: Clock) -> bool {
    let mut walk = Walk::default();
    for part in [base_code::walk, snp::walk, http::walk, ip_config::walk] {
        if let Err(failure) = part(&mut walk, device, clock) {
            walk.failed += 1;
            tell(format_args!("fail statuses: {failure:?}"));
        }
    }
    let Walk {
        passed,
        failed,
        absent,
    } = walk;
    tell(format_args!(
        "statuses: {passed} passed, {absent} UNSUPPORTED, {failed} failed"
    ));
    failed == 0
}
