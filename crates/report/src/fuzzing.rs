//! The body of the fuzz target: what must hold for any bytes. It panics when it does not.

use crate::Report;

/// A text is refused, or read; what was read, written and read again is the same.
pub fn fuzz_report(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let Ok(report) = Report::from_json(text) else {
        return;
    };
    let again = Report::from_json(&report.to_json()).unwrap();
    // A newer version's word is written as one that no version knows the meaning of.
    assert_eq!(again, report);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in r#"\{"schema":1(,"(timeline|network|findings)":(\[\]|\{\}|[0-9e-]{1,4}|\[\{"kind":"[a-z-]{0,9}"\}\])){0,3}\}"#) {
            super::fuzz_report(text.as_bytes());
        }
    }
}
