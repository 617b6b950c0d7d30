//! What is found in a report.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_diagnosis::fuzzing::fuzz_findings(data));
