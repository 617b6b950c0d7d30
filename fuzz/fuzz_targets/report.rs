//! The report of an examination.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_report::fuzzing::fuzz_report(data));
