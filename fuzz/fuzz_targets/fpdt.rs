//! The firmware's table of times.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_fpdt::fuzzing::fuzz_fpdt(data));
