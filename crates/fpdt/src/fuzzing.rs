//! The body of the fuzz target: what must hold for any bytes. It panics when it does not.

use crate::{
    attempts, basic_boot, boot_table_address, boot_table_length, module_events, report_boot,
    report_details,
};
use alloc::string::String;
use wireboot_report::{Checkpoints, Report};

/// Any bytes are refused or read; times that are read go forward.
pub fn fuzz_fpdt(data: &[u8]) {
    let _ = boot_table_address(data);
    if let Some(header) = data.first_chunk() {
        let _ = boot_table_length(header);
    }
    let mut points = Checkpoints::default();
    if let Ok(boot) = basic_boot(data) {
        assert!(boot.is_plausible());
        report_boot(&boot, &mut points);
    }
    report_details(data, |_| String::new(), &mut points);
    let report = Report {
        checkpoints: Some(points),
        ..Report::new()
    };
    assert!(Report::from_json(&report.to_json_line()).is_ok());
    if let Ok(events) = module_events(data) {
        let printable = |byte| matches!(byte, b' '..=b'~');
        assert!(
            events
                .take(data.len())
                .all(|event| event.name.bytes().all(printable))
        );
    }
    if let Ok(attempts) = attempts(data) {
        assert!(attempts.count() <= data.len());
    }
}
