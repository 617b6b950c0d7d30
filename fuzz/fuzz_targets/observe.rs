//! Frames of a network boot.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wireboot_observe::fuzzing::fuzz_observe(data));
