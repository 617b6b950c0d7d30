//! The variable in which the firmware keeps an interface's settings.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_protocols::fuzzing::fuzz_ip_variable(data));
