//! The body of the fuzz target: what must hold for any report. It panics when it does not.

use wireboot_report::Report;

use crate::{examine, names, verdict};

/// A report that was read is examined: findings have names, evidence and a number of seconds, and there is a verdict.
pub fn fuzz_findings(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let Ok(mut report) = Report::from_json(text) else {
        return;
    };
    report.findings = examine(&report);
    for one in &report.findings {
        assert!(names().any(|name| name == one.id), "{}", one.id);
        assert!(one.seconds >= 0.0 && one.seconds.is_finite(), "{one:?}");
        assert!(
            one.expected_s
                .is_none_or(|left| left >= 0.0 && left.is_finite()),
            "{one:?}"
        );
        assert!(!one.label.is_empty() && !one.evidence.is_empty(), "{one:?}");
    }
    assert!(!verdict(&report).is_empty());
    // What is written is read again.
    Report::from_json(&report.to_json()).unwrap();
}
